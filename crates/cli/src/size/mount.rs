//! The answer from a running mount: what its policy evicted and reads asked for again.
//!
//! The policy remembers as many evicted blocks as twice the number that it keeps. A read of one of them would have been
//! a hit in a pool that is larger by as many blocks as were evicted since. So the mount sees what pools of up to three
//! times its size would do, and nothing of smaller ones.
//!
//! Counted so, a loop is missed as a whole until it fits. The default policy keeps a part of it, so that its curve has
//! no such cliffs: between two sizes it does at least as well as on the straight line (the convex hull, as in Talus:
//! Beckmann and Sanchez, HPCA 2015).

use headpond_base::BLOCK_U64;
use headpond_control::{Daemon, Refusal, Size, Status};
use headpond_engine::Stats;

use super::SizeArgs;
use super::answer::{CurvePoint, SizeAnswer, SizeVerdict, as_option};
use crate::ask::{ask_status, confused};

/// Fewer misses than this say nothing.
const MISSES_MIN: u64 = 1000;
/// Parts of the policy's memory for each multiple of the pool, and the parts that are shown.
const PARTS: usize = 8;
const SHOWN: [usize; 4] = [2, 4, 8, 16];

/// The answer.
pub fn answer(args: &SizeArgs) -> Result<SizeAnswer, Refusal> {
    let daemon = Daemon::of(&args.from)?;
    let status = ask_status(&daemon)?;
    let stats: Stats = serde_json::from_value(status.engine.clone()).map_err(|_| confused(&daemon))?;
    Ok(of_numbers(args.worth, &status, &stats))
}

fn of_numbers(worth: f64, status: &Status, stats: &Stats) -> SizeAnswer {
    let seconds = status.uptime_seconds as f64;
    let curve = curve(status, stats);
    let (verdict, why) = judge(worth, status, stats, &curve);
    let reads = stats.read_hits_blocks + stats.read_miss_blocks;
    SizeAnswer {
        source: "mount",
        seen: format!(
            "{}: {} read since the daemon started, {:.1} h ago; a pool of {}",
            status.mountpoint.display(),
            Size(reads * BLOCK_U64),
            seconds / 3600.0,
            Size(status.size_bytes)
        ),
        seconds: Some(seconds),
        one_of: 1,
        read_blocks: reads,
        first_read_blocks: None,
        footprint_bytes: None,
        worth,
        knee: None,
        curve,
        verdict,
        why,
        caveats: vec![
            "the mount sees pools of up to three times its own, as far as so much was evicted since it started, and no \
             smaller ones; a trace shows all: headpond record"
                .to_owned(),
            "larger pools are estimates: the policy remembers most evicted blocks, by a short hash, and about when they went"
                .to_owned(),
        ],
    }
}

/// The present pool, and larger ones as far as they can be seen.
fn curve(status: &Status, stats: &Stats) -> Vec<CurvePoint> {
    let reads = stats.read_hits_blocks + stats.read_miss_blocks;
    // What was evicted before is all that can come back.
    let part = (stats.kept_blocks_max / PARTS as u64).max(1);
    let seen = usize::try_from(stats.remembered_blocks / part).unwrap_or(usize::MAX).min(stats.returned_blocks.len());
    let point = |parts: usize| {
        let missed = stats.read_miss_blocks.saturating_sub(more(&stats.returned_blocks[..seen], parts));
        let scaled = |bytes: u64| bytes / PARTS as u64 * (PARTS + parts) as u64;
        CurvePoint {
            pool_bytes: scaled(status.size_bytes),
            kept_bytes: scaled(stats.kept_blocks_max * BLOCK_U64),
            hit_ratio: if reads == 0 { 0.0 } else { 1.0 - missed as f64 / reads as f64 },
            missed_blocks: missed,
            origin_reads_per_day: None,
            saved_reads_per_day: None,
            absorbed_ratio: None,
        }
    };
    let larger = SHOWN.into_iter().filter(|parts| *parts <= seen);
    if reads == 0 { Vec::new() } else { std::iter::once(0).chain(larger).map(point).collect() }
}

/// How many misses less there are with so many parts more. `returned` are the reads that came back within each part.
fn more(returned: &[u64], parts: usize) -> u64 {
    let sums: Vec<u64> = std::iter::once(0)
        .chain(returned.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
        .collect();
    let line = |from: usize, to: usize| match (to - from) as u64 {
        0 => sums[from],
        length => (sums[from] * (to - parts) as u64 + sums[to] * (parts - from) as u64) / length,
    };
    let lines = (0..=parts).flat_map(|from| (parts..sums.len()).map(move |to| (from, to)));
    lines.map(|(from, to)| line(from, to)).max().unwrap_or(0)
}

fn judge(worth: f64, status: &Status, stats: &Stats, curve: &[CurvePoint]) -> (SizeVerdict, String) {
    let size = Size(status.size_bytes);
    let Some(now) = curve.first() else {
        return (
            SizeVerdict::NoReads,
            "Nothing was read since the daemon started, so there is nothing to say.".to_owned(),
        );
    };
    if stats.evicted_blocks + stats.remembered_blocks == 0 {
        let why = format!(
            "{size} is enough so far: nothing had to go for room yet. Whether less would do, the mount cannot see; a trace can."
        );
        return (SizeVerdict::Enough, why);
    }
    if stats.remembered_blocks == 0 {
        let why =
            "The policy of this mount does not remember what it evicted. Record a trace: headpond record".to_owned();
        return (SizeVerdict::Unseen, why);
    }
    let double = curve.iter().find(|point| point.pool_bytes / 2 >= status.size_bytes / PARTS as u64 * PARTS as u64);
    let Some(double) = double.filter(|_| stats.read_miss_blocks >= MISSES_MIN) else {
        let why = format!(
            "Too little was seen to say: {} went for room since the daemon started, and a pool of {size} keeps {}. Ask again \
             later, or record a trace: headpond record",
            Size(stats.remembered_blocks * BLOCK_U64),
            Size(stats.kept_blocks_max * BLOCK_U64)
        );
        return (SizeVerdict::TooShort, why);
    };
    let saves = (now.missed_blocks - double.missed_blocks) as f64 / now.missed_blocks.max(1) as f64;
    let figures = format!(
        "twice the flash would save {:.0} % of the misses: reads would find {:.1} % of their blocks in the pool, and not {:.1} %",
        saves * 100.0,
        double.hit_ratio * 100.0,
        now.hit_ratio * 100.0
    );
    if saves < worth {
        return (
            SizeVerdict::Enough,
            format!("{size} is enough: {figures}. Whether less would do, the mount cannot see."),
        );
    }
    let last = curve.last().unwrap_or(double);
    let option = as_option(last.pool_bytes);
    let why = format!(
        "More flash helps: {figures}. With {option} it would be {:.1} %. A trace shows where that ends: headpond record",
        last.hit_ratio * 100.0
    );
    (SizeVerdict::MoreHelps, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_kept_in_part_and_what_comes_back_soon_is_kept_first() {
        let cliff = [0, 0, 0, 0, 0, 0, 0, 80];
        assert_eq!([0, 2, 4, 8].map(|parts| more(&cliff, parts)), [0, 20, 40, 80]);
        let falling = [40, 20, 10, 5, 0, 0, 0, 0];
        assert_eq!([0, 1, 2, 4, 8].map(|parts| more(&falling, parts)), [0, 40, 60, 75, 75]);
    }
}
