//! The answer from a trace: the product's policy, run over it at several sizes.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use headpond_base::BLOCK_U64;
use headpond_control::{Refusal, Size};
use headpond_engine::{Config, blocks_kept_by};
use headpond_trace::{FirstReads, LoadOptions, LoadedTrace, ReplayedPool, SizePoint, first_reads, knee, size_point};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::SizeArgs;
use super::answer::{CurvePoint, SizeAnswer, SizeVerdict, as_option, rounded};
use crate::traces::{caveats, load, refusal};

/// References of blocks that are looked at, of a trace with more: a second or two for each size.
const REFERENCES: u64 = 4 << 20;
/// A sample has at least so many different blocks, if there are as many: with fewer its curve is rough.
const SAMPLE_BLOCKS: usize = 1 << 13;
/// The smallest pool.
const POOL_MIN: u64 = 64 << 20;
/// Sizes on the curve: two for each doubling.
const SIZES: usize = 14;
/// Fewer blocks read than this say nothing.
const READS_MIN: u64 = 1000;
/// If less of what was read had been referred to before, a pool could not show what it is worth.
const AGAIN_MIN: f64 = 0.05;
/// If more of the last quarter of the reads was new, there is more to come.
const LATE_NEW: f64 = 0.2;
/// Sizes that are tried at once.
const THREADS: usize = 4;
const DAY: f64 = 86_400.0;

/// The answer.
pub fn answer(args: &SizeArgs) -> Result<SizeAnswer, Refusal> {
    let options = args.reading.options(&args.from)?;
    let (load, sample) = read(args, options)?;
    let firsts = first_reads(&load);
    let footprint = (load.footprint() as u64) << sample;
    let points = if firsts.reads == 0 { Vec::new() } else { points(args, &load, sample, footprint) };
    let misses: Vec<_> = points.iter().map(|(pool, point)| (*pool, point.read_misses)).collect();
    let seconds = seconds_of(&load);
    let curve: Vec<_> = points.iter().map(|(pool, point)| curve_point(*pool, point, seconds)).collect();
    let knee = knee(&misses, args.worth).and_then(|at| curve.get(at));
    let (verdict, why) = judge(args, &load, firsts, &curve, knee);
    let knee = knee.filter(|_| matches!(verdict, SizeVerdict::Knee | SizeVerdict::AtLeast)).cloned();
    let [reads, writes] = load.referred();
    let seen = format!(
        "{}: {} requests{}: {} read, {} written, in {} of different blocks",
        args.from.display(),
        load.requests(),
        seconds.map_or_else(String::new, |seconds| format!(" in {}", lasted(seconds))),
        Size(reads * BLOCK_U64),
        Size(writes * BLOCK_U64),
        Size(footprint * BLOCK_U64),
    );
    Ok(SizeAnswer {
        source: "trace",
        seen,
        seconds,
        one_of: 1 << sample,
        read_blocks: reads,
        first_read_blocks: Some(firsts.first << sample),
        footprint_bytes: Some(footprint * BLOCK_U64),
        worth: args.worth,
        curve,
        verdict,
        knee,
        why,
        caveats: before_you_trust_it(&load, sample, firsts),
    })
}

/// Reads the trace: all of it, or a sample of its blocks. Returns the sample's power of two.
fn read(args: &SizeArgs, options: LoadOptions) -> Result<(LoadedTrace, u32), Refusal> {
    let count = if args.exact { 0 } else { LoadedTrace::count(&args.from, options).map_err(refusal)? };
    let mut sample = (0..).find(|sample| count >> sample <= REFERENCES).unwrap_or(0);
    loop {
        let load = load(&args.from, LoadOptions { sample, ..options });
        match load {
            // Few blocks, used often.
            Ok(load) if sample > 0 && load.footprint() < SAMPLE_BLOCKS => sample -= 1,
            Err(Refusal::Usage(_)) if sample > 0 => sample -= 1,
            load => return Ok((load?, sample)),
        }
    }
}

/// Pools that people buy: two for each doubling, up to one that keeps everything.
fn sizes(footprint: u64) -> Vec<(u64, u64)> {
    let kept = |pool| blocks_kept_by(pool, Config::default().host_segments).map(|kept| (pool, kept));
    let pools = (0..).flat_map(|power| [POOL_MIN << power, (POOL_MIN << power) / 2 * 3]);
    let mut all = Vec::new();
    for (pool, kept) in pools.map_while(kept) {
        all.push((pool, kept));
        if kept >= footprint {
            break;
        }
    }
    all.split_off(all.len().saturating_sub(SIZES))
}

fn points(args: &SizeArgs, load: &LoadedTrace, sample: u32, footprint: u64) -> Vec<(u64, SizePoint)> {
    let sizes = sizes(footprint);
    let bar = bar(args.quiet, load.references().len() * sizes.len());
    let plan = ReplayedPool {
        policy: Config::default().policy,
        admission: Config::default().admission,
        flush_seconds: flush_seconds(load),
    };
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((pool, kept)) = sizes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let point = size_point(load, *kept, sample, plan, &mut |done| bar.inc(done));
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((*pool, point));
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut points = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    points.sort_by_key(|(pool, _)| *pool);
    points
}

/// How long a block is dirty at most: as when it was recorded, or by default.
fn flush_seconds(load: &LoadedTrace) -> Option<u32> {
    let period = load.facts().map_or_else(|| Config::default().period(), |facts| facts.flush_period);
    period.map(|period| u32::try_from(period.0 / 1_000_000_000).unwrap_or(u32::MAX))
}

fn bar(quiet: bool, references: usize) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(references as u64), ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} %, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// How long the trace lasted, if that is known and not too short for a rate.
fn seconds_of(load: &LoadedTrace) -> Option<f64> {
    let seconds = match load.facts() {
        Some(facts) => facts.lasted.0 as f64 / 1e9,
        None => load.seconds().last().map_or(0.0, |(_, second)| f64::from(*second)),
    };
    Some(seconds).filter(|seconds| *seconds >= 1.0)
}

fn curve_point(pool: u64, point: &SizePoint, seconds: Option<f64>) -> CurvePoint {
    let per_day = |count: u64| seconds.map(|seconds| count as f64 * DAY / seconds);
    CurvePoint {
        pool_bytes: pool,
        kept_bytes: point.size_blocks * BLOCK_U64,
        hit_ratio: point.hit_ratio(),
        missed_blocks: point.read_misses,
        origin_reads_per_day: per_day(point.missed_requests),
        saved_reads_per_day: per_day(point.read_requests - point.missed_requests),
        absorbed_ratio: (point.written > 0)
            .then(|| 1.0 - point.destaged.min(point.written) as f64 / point.written as f64),
    }
}

fn judge(
    args: &SizeArgs,
    load: &LoadedTrace,
    firsts: FirstReads,
    curve: &[CurvePoint],
    knee: Option<&CurvePoint>,
) -> (SizeVerdict, String) {
    let [reads, _] = load.referred();
    let again = firsts.reads - firsts.first;
    let Some(knee) = knee else {
        let why = "The trace has no reads, so it says nothing about what they would find. Writes need room for a few \
                   minutes of them (flush-period).";
        return (SizeVerdict::NoReads, why.to_owned());
    };
    if reads < READS_MIN || (again as f64) < AGAIN_MIN * firsts.reads as f64 {
        let why = format!(
            "The trace is too short to say: of {} that were read, {:.1} % had been used before. Record for longer: a whole \
             working day, with its nightly jobs. (headpond record MOUNTPOINT --to FILE --for 24h --max-size 20G)",
            Size(reads * BLOCK_U64),
            again as f64 * 100.0 / firsts.reads as f64,
        );
        return (SizeVerdict::TooShort, why);
    }
    let size = Size(knee.pool_bytes);
    let found = format!("Of the blocks that are read, a pool of {size} has {:.1} %", knee.hit_ratio * 100.0);
    let spared = match (knee.saved_reads_per_day, knee.origin_reads_per_day) {
        (Some(saved), Some(left)) => {
            format!(": the origin is spared {} reads a day, and has {} left", rounded(saved), rounded(left))
        }
        _ => String::new(),
    };
    let more = if curve.last().is_some_and(|last| last.pool_bytes == knee.pool_bytes) {
        "It keeps everything that was asked for, so more flash saves nothing.".to_owned()
    } else {
        format!("From there on, twice the flash saves less than {:.0} % of the misses.", args.worth * 100.0)
    };
    let late = firsts.late_first as f64 / firsts.late_reads.max(1) as f64;
    if late > LATE_NEW {
        let why = format!(
            "At least {size} (--size {}). {found}{spared}. {more} But {:.0} % of what was read in the last quarter of the \
             trace was new: a longer trace may ask for more flash.",
            as_option(knee.pool_bytes),
            late * 100.0
        );
        return (SizeVerdict::AtLeast, why);
    }
    (SizeVerdict::Knee, format!("{size} (--size {}). {found}{spared}. {more}", as_option(knee.pool_bytes)))
}

fn before_you_trust_it(load: &LoadedTrace, sample: u32, firsts: FirstReads) -> Vec<String> {
    let facts = load.facts().map_or_else(String::new, |facts| caveats(&facts));
    let mut all: Vec<String> = facts.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect();
    if sample > 0 {
        all.push(format!("one block of {} was looked at; --exact looks at all", 1_u64 << sample));
    }
    if firsts.reads > 0 {
        let share = firsts.first as f64 * 100.0 / firsts.reads as f64;
        all.push(format!("{share:.1} % of the reads were the first of their block, and count as misses at any size"));
    }
    all.push("reads that the kernel's page cache answered are in no trace".to_owned());
    all
}

fn lasted(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_end_with_the_first_pool_that_keeps_everything_and_each_has_its_double() {
        let all = sizes(3_000_000);
        let (last, before) = (all[all.len() - 1], all[all.len() - 2]);
        assert!(last.1 >= 3_000_000 && before.1 < 3_000_000);
        assert_eq!(all.len(), SIZES);
        assert!(all[..SIZES - 2].iter().all(|(pool, _)| all.iter().any(|(other, _)| *other == pool * 2)));
        assert_eq!(sizes(1).len(), 1);
        assert_eq!(sizes(u64::MAX).len(), SIZES, "more than any pool keeps");
    }
}
