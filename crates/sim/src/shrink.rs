//! Makes a failing run smaller, so that a person can follow it.

use std::ops::Range;

use crate::{Failure, Options, run_caught};

/// The most runs of a shrink. The result need not be the smallest.
const ATTEMPTS: u32 = 400;

/// Looks for fewer operations, without faults and without concurrency if possible, with which the seed still fails in
/// the same way.
#[must_use]
pub fn shrink(failure: Failure) -> Failure {
    let seed = failure.seed;
    let mut best = failure;
    let mut left = ATTEMPTS;
    let mut attempt = |options: Options, best: &mut Failure| {
        if left == 0 {
            return false;
        }
        left -= 1;
        match run_caught(seed, &options) {
            Err(smaller) if kind(&smaller.what) == kind(&best.what) => {
                *best = smaller;
                true
            }
            _ => false,
        }
    };
    if let Some(at) = best.at {
        attempt(Options { ops: at + 1, ..best.options.clone() }, &mut best);
    }
    attempt(Options { no_faults: true, ..best.options.clone() }, &mut best);
    attempt(Options { serial: true, ..best.options.clone() }, &mut best);
    let mut size = (best.options.ops / 2).max(1);
    while size > 0 {
        let mut at = 0;
        while at < best.options.ops {
            let part = at..(at + size).min(best.options.ops);
            let covered = best.options.skip.iter().any(|range| range.start <= part.start && part.end <= range.end);
            if !covered {
                let skip = merge(best.options.skip.clone(), part);
                attempt(Options { skip, ..best.options.clone() }, &mut best);
            }
            at += size;
        }
        size /= 2;
    }
    best
}

/// The text of a failure, without numbers and without the details at its end.
fn kind(what: &str) -> String {
    what.chars().filter(|letter| !letter.is_ascii_digit()).take(70).collect()
}

/// Adds a range, and keeps the ranges in order and without overlaps.
fn merge(mut ranges: Vec<Range<u32>>, new: Range<u32>) -> Vec<Range<u32>> {
    ranges.push(new);
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u32>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn ranges_merge() {
        assert_eq!(merge(vec![0..2, 8..9], 2..4), [0..4, 8..9]);
        assert_eq!(merge(vec![0..2, 4..9], 1..4), [0..9]);
    }
}
