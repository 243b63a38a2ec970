//! A set of byte ranges.

use std::collections::BTreeMap;

/// Ranges that do not overlap or touch, by start.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Whether nothing is in.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes everything out.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds `start..end`.
    pub(crate) fn add(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        while let Some((from, to)) = self.0.range(..=end).next_back().map(|(from, to)| (*from, *to)) {
            if to < start {
                break;
            }
            self.0.remove(&from);
            start = start.min(from);
            end = end.max(to);
        }
        self.0.insert(start, end);
    }

    /// Takes `start..end` out.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((from, to)) = self.0.range(..end).next_back().map(|(from, to)| (*from, *to)) {
            if to <= start {
                break;
            }
            self.0.remove(&from);
            if from < start {
                self.0.insert(from, start);
            }
            if to > end {
                self.0.insert(end, to);
            }
        }
    }

    /// The parts at or after `start`.
    pub(crate) fn beyond(&self, start: u64) -> Vec<(u64, u64)> {
        let parts = self.0.iter().map(|(from, to)| ((*from).max(start), *to));
        parts.filter(|(from, to)| from < to).collect()
    }

    /// The parts in `start..end`.
    pub(crate) fn within(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let from = self.0.range(..=start).next_back().filter(|(_, to)| **to > start).map_or(start, |(from, _)| *from);
        let parts = self.0.range(from..).take_while(|(from, _)| **from < end);
        parts.map(|(from, to)| ((*from).max(start), (*to).min(end))).filter(|(from, to)| from < to).collect()
    }

    /// Whether anything behind `end` is in.
    pub(crate) fn reaches_beyond(&self, end: u64) -> bool {
        self.0.last_key_value().is_some_and(|(_, to)| *to > end)
    }

    /// The first byte at or after `from` that is in, or is not.
    pub(crate) fn next(&self, from: u64, inside: bool) -> u64 {
        match self.0.range(..=from).next_back() {
            Some((_, to)) if *to > from => {
                if inside {
                    from
                } else {
                    *to
                }
            }
            _ if !inside => from,
            _ => self.0.range(from..).next().map_or(u64::MAX, |(start, _)| *start),
        }
    }

    /// Whether all of `start..end` is in.
    pub(crate) fn contains(&self, start: u64, end: u64) -> bool {
        start >= end || self.0.range(..=start).next_back().is_some_and(|(_, to)| *to >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_set_agrees_with_an_array(steps in proptest::collection::vec((any::<bool>(), 0_usize..64, 0_usize..64), 0..40), probe in (0_usize..64, 0_usize..64)) {
            let (mut set, mut array) = (RangeSet::default(), [false; 64]);
            for (add, start, end) in steps {
                if add { set.add(start as u64, end as u64) } else { set.remove(start as u64, end as u64) }
                if start < end { array[start..end].fill(add) }
            }
            let (start, end) = probe;
            let expected = start >= end || array[start..end].iter().all(|in_set| *in_set);
            prop_assert_eq!(set.contains(start as u64, end as u64), expected);
        }
    }
}
