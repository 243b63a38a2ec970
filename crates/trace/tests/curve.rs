//! The curve of pool sizes, on loads whose answer is known, and against an exact LRU of its own.

mod random;

use std::collections::HashMap;

use headpond_base::{Class, Nanos, ObjectId, UnixNanos};
use headpond_policy::{Admission, Policy};
use headpond_recording::{AskedKind, AskedRequest, Pulled, TraceEncoder, TraceHead, WhyEnded};
use headpond_trace::{Format, LoadOptions, LoadedTrace, ReplayedPool, SizePoint, first_reads, knee, size_point};

use crate::random::Random;

const SHARE: f64 = 0.1;

fn plan(policy: Policy) -> ReplayedPool {
    ReplayedPool { policy, admission: Admission::Always, flush_seconds: Some(300) }
}

fn points(load: &LoadedTrace, sample: u32, policy: Policy, sizes: &[u64]) -> Vec<SizePoint> {
    sizes.iter().map(|size| size_point(load, *size, sample, plan(policy), &mut drop)).collect()
}

fn knee_of(points: &[SizePoint]) -> u64 {
    let misses: Vec<_> = points.iter().map(|point| (point.size_blocks, point.read_misses)).collect();
    points[knee(&misses, SHARE).expect("there are points")].size_blocks
}

fn zipf(references: u64) -> Vec<u64> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    // Popular blocks lie anywhere.
    (0..references).map(|_| random.zipf(40_000, 0.9).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

/// The misses of an exact LRU at each size, by the distance at which each block comes back (Mattson and others, 1970).
fn exact_lru(keys: &[u64], sizes: &[u64]) -> Vec<u64> {
    let mut last = HashMap::new();
    let mut misses = vec![0; sizes.len()];
    // How many used since: a tree of sums over the positions.
    let mut sums = vec![0_i64; keys.len() + 1];
    let add = |sums: &mut Vec<i64>, at: usize, by: i64| {
        let mut at = at + 1;
        while at < sums.len() {
            sums[at] += by;
            at += at & at.wrapping_neg();
        }
    };
    let upto = |sums: &Vec<i64>, at: usize| {
        let (mut at, mut sum) = (at + 1, 0);
        while at > 0 {
            sum += sums[at];
            at &= at - 1;
        }
        sum
    };
    for (at, key) in keys.iter().enumerate() {
        let distance = match last.insert(*key, at) {
            None => i64::MAX,
            Some(before) => {
                let since = upto(&sums, at) - upto(&sums, before);
                add(&mut sums, before, -1);
                since + 1
            }
        };
        add(&mut sums, at, 1);
        for (miss, size) in misses.iter_mut().zip(sizes) {
            *miss += u64::from(distance > *size as i64);
        }
    }
    misses
}

#[test]
fn a_loop_has_its_knee_at_its_length() {
    let load = LoadedTrace::of_keys((0..200_000).map(|at| at % 16_000));
    let sizes = [1000, 2000, 4000, 8000, 16_000, 32_000];
    for policy in [Policy::Lru, Policy::Adaptive] {
        let points = points(&load, 0, policy, &sizes);
        assert_eq!(knee_of(&points), 16_000, "{policy}: {points:?}");
        assert_eq!(points[4].read_misses, 16_000, "only the first reads miss");
    }
    let points = points(&load, 0, Policy::Lru, &sizes);
    assert!(points[..4].iter().all(|point| point.read_misses == 200_000), "a loop beats an LRU that it does not fit");
}

#[test]
fn uniform_reads_are_found_as_often_as_their_share_says_and_the_knee_is_all_of_them() {
    let mut random = Random(7);
    let load = LoadedTrace::of_keys((0..600_000).map(|_| random.below(20_000)));
    let sizes = [2500, 5000, 10_000, 20_000, 40_000];
    for policy in [Policy::Lru, Policy::Adaptive] {
        let points = points(&load, 0, policy, &sizes);
        for point in &points {
            let share = (point.size_blocks as f64 / 20_000.0).min(1.0);
            assert!((point.hit_ratio() - share).abs() < 0.04, "{policy}: {point:?}");
        }
        assert_eq!(knee_of(&points), 20_000, "{policy}");
    }
}

#[test]
fn the_curve_is_that_of_an_exact_lru_and_a_sample_is_within_two_hundredths() {
    let keys = zipf(300_000);
    let sizes = [500, 1000, 2000, 4000, 8000, 16_000, 32_000];
    let exact = exact_lru(&keys, &sizes);
    let (all, some) = (LoadedTrace::of_keys(keys.iter().copied()), LoadedTrace::of_sampled_keys(keys, 3));
    let lru = points(&all, 0, Policy::Lru, &sizes);
    assert_eq!(lru.iter().map(|point| point.read_misses).collect::<Vec<_>>(), exact);
    for policy in [Policy::Lru, Policy::Adaptive] {
        let (whole, sampled) = (points(&all, 0, policy, &sizes), points(&some, 3, policy, &sizes));
        for (one, other) in whole.iter().zip(&sampled).filter(|(one, _)| one.size_blocks >= 2000) {
            let differs = (one.hit_ratio() - other.hit_ratio()).abs();
            assert!(differs < 0.02, "{policy}, {} blocks: {differs}", one.size_blocks);
        }
    }
}

#[test]
fn first_reads_tell_whether_a_trace_is_long_enough() {
    let once = first_reads(&LoadedTrace::of_keys(0..1000));
    assert_eq!((once.reads, once.first, once.late_reads, once.late_first), (1000, 1000, 250, 250));
    let again = first_reads(&LoadedTrace::of_keys((0..1000).map(|at| at % 100)));
    assert_eq!((again.first, again.late_first), (100, 0));
}

fn asked(kind: AskedKind, second: u64, block: u64, blocks: u64) -> AskedRequest {
    AskedRequest {
        at: Nanos(second * Nanos::SECOND.0),
        kind,
        object: ObjectId(1),
        offset: block * 4096,
        len: blocks * 4096,
        process: 1,
        class: Class::EVERYBODY,
        past: false,
        through: false,
        alone: true,
    }
}

/// A trace of these requests, as `headpond record` writes one.
fn recorded(name: &str, requests: &[AskedRequest]) -> LoadedTrace {
    let head = TraceHead {
        started: UnixNanos(0),
        pool_bytes: 1 << 30,
        flush_period: Nanos(300 * Nanos::SECOND.0),
        sequential_cutoff: 0,
        dirty_threshold: 50,
    };
    let mut bytes = Vec::new();
    let mut encoder = TraceEncoder::begin(&head, u64::MAX, &mut bytes);
    let pulled: Vec<_> = (0..).zip(requests).map(|(number, request)| Pulled { number, request: *request }).collect();
    encoder.append(&pulled, Nanos(0), &mut bytes);
    encoder.end(0, Nanos(0), WhyEnded::Time, &mut bytes);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).expect("the directory of tests takes a file");
    assert_eq!(Format::of_file(&path).ok().flatten(), Some(Format::Headpond), "its first bytes say what it is");
    let options = LoadOptions { format: Format::Headpond, unit: None, reads_only: false, sample: 0 };
    LoadedTrace::read(&path, options).expect("a trace that was just written reads")
}

#[test]
fn writes_are_absorbed_until_the_flush_and_what_is_removed_before_never_goes_to_the_origin() {
    // Ten blocks, written each second for 900 seconds: the origin gets them every 300.
    let often: Vec<_> = (0..900).map(|second| asked(AskedKind::Write, second, 0, 10)).collect();
    let point = points(&recorded("often.trace", &often), 0, Policy::Adaptive, &[10_000])[0];
    assert_eq!((point.written, point.destaged), (9000, 30));
    // A temporary file: written, read and removed, again and again.
    let round = |round: u64| {
        [
            asked(AskedKind::Write, round, 0, 100),
            asked(AskedKind::Read, round, 0, 100),
            asked(AskedKind::Remove, round, 0, 0),
        ]
    };
    let temporary: Vec<_> = (0..50).flat_map(round).collect();
    let point = points(&recorded("temporary.trace", &temporary), 0, Policy::Adaptive, &[10_000])[0];
    assert_eq!((point.written, point.destaged, point.read_misses), (5000, 0, 0));
    assert_eq!((point.read_requests, point.missed_requests), (50, 0));
}

#[test]
fn a_request_that_misses_in_several_blocks_is_one_read_of_the_origin() {
    let requests = [
        asked(AskedKind::Read, 0, 0, 4),
        asked(AskedKind::Read, 0, 2, 4),
        asked(AskedKind::Read, 0, 0, 6),
        asked(AskedKind::Write, 0, 100, 2),
        asked(AskedKind::Read, 0, 100, 2),
    ];
    let point = points(&recorded("requests.trace", &requests), 0, Policy::Adaptive, &[10_000])[0];
    assert_eq!((point.reads, point.read_misses), (16, 6));
    assert_eq!((point.read_requests, point.missed_requests), (4, 2));
}
