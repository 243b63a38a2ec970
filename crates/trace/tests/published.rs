//! The policies against published miss ratios, on the real traces that those were measured on.
//!
//! The traces are not part of the repository. They are looked for in the directory that
//! HEADPOND_TRACES names, or in `../shared/traces` beside the repository; without them
//! these tests say that they were left out. OLTP and P6: N. Megiddo and D. Modha, "ARC: A Self-Tuning,
//! Low Overhead Replacement Cache", FAST 2003.

use std::path::{Path, PathBuf};

use headpond_policy::{Admission, Policy};
use headpond_trace::{CacheSize, Format, LoadOptions, LoadedTrace, Unit, destage, replay};

struct Trace {
    file: &'static str,
    format: Format,
    unit: Option<Unit>,
    reads_only: bool,
    references: usize,
    /// At 1, 5, 10 and 20 % of the footprint.
    sizes: [usize; 4],
    lru: [f64; 4],
    fifo: [f64; 4],
    s3_fifo: [f64; 4],
    /// Of fourteen fixed policies, the best for each size.
    best: [f64; 4],
}

const PERCENTS: [f64; 4] = [1.0, 5.0, 10.0, 20.0];

const TRACES: [Trace; 4] = [
    Trace {
        file: "cloudPhysicsIO.vscsi",
        format: Format::Vscsi,
        unit: None,
        reads_only: false,
        references: 1_141_869,
        sizes: [2692, 13460, 26921, 53842],
        lru: [0.8969, 0.8871, 0.8741, 0.8129],
        fifo: [0.8977, 0.8873, 0.8729, 0.8109],
        s3_fifo: [0.8932, 0.8654, 0.8110, 0.7264],
        best: [0.8932, 0.8534, 0.8110, 0.7205],
    },
    Trace {
        file: "cloudPhysicsIO.vscsi",
        format: Format::Vscsi,
        unit: None,
        reads_only: true,
        references: 485_700,
        sizes: [2100, 10500, 21000, 42000],
        lru: [0.9219, 0.9180, 0.9160, 0.8772],
        fifo: [0.9216, 0.9179, 0.9160, 0.8617],
        s3_fifo: [0.9203, 0.9127, 0.8860, 0.8296],
        best: [0.9196, 0.8974, 0.8584, 0.7905],
    },
    Trace {
        file: "arc_OLTP.lis.zst",
        format: Format::Lis,
        unit: Some(Unit::Page),
        reads_only: false,
        references: 914_145,
        sizes: [1869, 9344, 18688, 37376],
        lru: [0.5836, 0.3992, 0.3348, 0.2803],
        fifo: [0.6341, 0.4340, 0.3666, 0.3073],
        s3_fifo: [0.5354, 0.3789, 0.3222, 0.2740],
        best: [0.5354, 0.3789, 0.3205, 0.2697],
    },
    Trace {
        file: "arc_P6.lis.zst",
        format: Format::Lis,
        unit: Some(Unit::Sector),
        reads_only: false,
        references: 2_021_684,
        sizes: [1019, 5095, 10190, 20381],
        lru: [0.8736, 0.8264, 0.6488, 0.1615],
        fifo: [0.8736, 0.8216, 0.6103, 0.2384],
        s3_fifo: [0.8349, 0.6344, 0.4536, 0.1475],
        best: [0.8349, 0.6213, 0.3485, 0.1475],
    },
];

fn directory() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let found = std::env::var_os("HEADPOND_TRACES").map_or(beside, PathBuf::from);
    if found.join(TRACES[0].file).exists() {
        return Some(found);
    }
    println!("left out: no traces in {} (set HEADPOND_TRACES to where they are)", found.display());
    None
}

fn load(trace: &Trace) -> Option<LoadedTrace> {
    let options = LoadOptions { format: trace.format, unit: trace.unit, reads_only: trace.reads_only, sample: 0 };
    let load = LoadedTrace::read(&directory()?.join(trace.file), options).expect("a trace that is there can be read");
    assert_eq!(load.references().len(), trace.references);
    assert_eq!(PERCENTS.map(|percent| CacheSize::Percent(percent).blocks(load.footprint())), trace.sizes);
    Some(load)
}

fn agrees(policy: Policy, published: impl Fn(&Trace) -> [f64; 4], within: f64) {
    for trace in &TRACES {
        let Some(load) = load(trace) else { return };
        for (size, published) in trace.sizes.into_iter().zip(published(trace)) {
            let measured = replay(&load, policy, Admission::Always, size, &mut |_| ()).miss_ratio();
            // Published with four digits.
            let off = (measured - published).abs() - 0.000_05;
            assert!(off <= within, "{} {policy} {size}: {measured:.4} and not {published}", trace.file);
        }
    }
}

#[test]
fn lru_agrees_with_the_published_miss_ratios_to_four_digits() {
    agrees(Policy::Lru, |trace| trace.lru, 0.0001);
}

#[test]
fn fifo_agrees_with_the_published_miss_ratios_to_four_digits() {
    agrees(Policy::Fifo, |trace| trace.fifo, 0.0001);
}

#[test]
fn s3_fifo_agrees_with_the_published_miss_ratios() {
    agrees(Policy::S3Fifo, |trace| trace.s3_fifo, 0.0001);
}

#[test]
fn adaptive_is_near_the_best_fixed_policy_everywhere_better_on_the_mean_and_writes_a_third_of_lru() {
    let fixed = [Policy::Fifo, Policy::Lru, Policy::S3Fifo, Policy::WTinyLfu];
    let (mut adaptive, mut others) = (0.0, [0.0; 4]);
    let (mut far, mut cells) = (Vec::new(), 0);
    for trace in &TRACES {
        let Some(load) = load(trace) else { return };
        for (size, published) in trace.sizes.into_iter().zip(trace.best) {
            let run = |policy| replay(&load, policy, Admission::Always, size, &mut |_| ());
            let ours = run(Policy::Adaptive);
            let lru = run(Policy::Lru);
            for (sum, policy) in others.iter_mut().zip(fixed) {
                *sum += run(policy).miss_ratio();
            }
            adaptive += ours.miss_ratio();
            cells += 1;
            let regret = ours.miss_ratio() - published;
            println!(
                "{:<22} {size:>6}: adaptive {:.4}, best published {published}, {regret:+.4}; fills {:.3} of lru's",
                trace.file,
                ours.miss_ratio(),
                ours.fills as f64 / lru.fills as f64
            );
            assert!(ours.misses <= lru.misses + lru.misses / 100, "{} {size}: worse than lru", trace.file);
            assert!(ours.fills * 3 <= lru.fills, "{} {size}: {} fills, lru {}", trace.file, ours.fills, lru.fills);
            if regret > 0.01 {
                far.push((trace.file, size, regret));
            }
        }
    }
    println!(
        "means: adaptive {:.4}, {fixed:?} {:?}",
        adaptive / f64::from(cells),
        others.map(|sum| sum / f64::from(cells))
    );
    assert!(others.iter().all(|other| adaptive < *other));
    assert!(far.is_empty(), "{far:?}");
}

#[test]
fn destage_needs_five_times_fewer_origin_writes_than_the_trace_issued() {
    let Some(load) = load(&TRACES[0]) else { return };
    // At 1 % of the footprint, six MiB to gather in, it is 4.97 times.
    for size in &TRACES[0].sizes[1..] {
        let done = destage(&load, *size, 0);
        println!("{size} blocks: {} writes instead of {}", done.destage_ios, done.write_requests);
        assert!(done.destage_ios * 5 <= done.write_requests, "{size}: {done:?}");
        assert!(done.destaged_blocks <= done.written_blocks);
    }
}
