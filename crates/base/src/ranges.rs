//! A set of ranges of numbers: bytes of a file, or blocks.

use std::collections::BTreeMap;

/// Ranges that are not empty and do not overlap or touch, by start. Each takes a node's share of a B-tree, however long
/// it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Whether nothing is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ranges there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds `start..end`.
    pub fn add(&mut self, mut start: u64, mut end: u64) {
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
    pub fn remove(&mut self, start: u64, end: u64) {
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

    /// The parts at or after `start`, in order.
    pub fn beyond(&self, start: u64) -> impl Iterator<Item = (u64, u64)> {
        let from = self.0.range(..=start).next_back().filter(|(_, to)| **to > start).map_or(start, |(from, _)| *from);
        self.0.range(from..).map(move |(from, to)| ((*from).max(start), *to))
    }

    /// The parts in `start..end`, in order.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        self.beyond(start).take_while(move |(from, _)| *from < end).map(move |(from, to)| (from, to.min(end)))
    }

    /// Whether anything behind `end` is in.
    #[must_use]
    pub fn reaches_beyond(&self, end: u64) -> bool {
        self.0.last_key_value().is_some_and(|(_, to)| *to > end)
    }

    /// The first number at or after `from` that is in, or is not.
    #[must_use]
    pub fn next(&self, from: u64, inside: bool) -> u64 {
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
    #[must_use]
    pub fn contains(&self, start: u64, end: u64) -> bool {
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
            let parts: Vec<_> = set.within(start as u64, end as u64).collect();
            let inside = |at: usize| parts.iter().any(|(from, to)| (*from..*to).contains(&(at as u64)));
            prop_assert!((0..64).all(|at| inside(at) == (array[at] && start <= at && at < end)));
            prop_assert!(parts.iter().all(|(from, to)| from < to) && parts.is_sorted_by(|one, next| one.1 < next.0));
            let runs = array.chunk_by(|one, next| one == next).filter(|run| run[0]).count();
            prop_assert_eq!((set.len(), set.is_empty()), (runs, runs == 0));
            let next = (start..64).find(|at| array[*at]).map_or(u64::MAX, |at| at as u64);
            prop_assert_eq!(set.next(start as u64, true), next);
        }
    }
}
