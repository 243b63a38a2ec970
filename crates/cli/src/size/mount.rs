//! The answer from a running mount: what its policy evicted and reads asked for again.
//!
//! The daemon remembers a sample of the evicted blocks, of as many as twice the number that it keeps. A read of one of
//! them would have been a hit in a pool that is larger by as many blocks as were evicted since. So the mount sees what
//! pools of up to three times its size would do, and nothing of smaller ones. The page shows the same estimate.

use headpond_base::BLOCK_U64;
use headpond_control::{Daemon, PoolShown, Refusal, Size, Status};
use headpond_engine::Stats;

use super::SizeArgs;
use super::answer::{CurvePoint, SizeAnswer, SizeVerdict, as_option};
use crate::ask::{ask_pool, ask_status, confused};

/// Fewer misses than this say nothing.
const MISSES_MIN: u64 = 1000;
/// Larger by so many eighths: what is shown.
const EIGHTHS: [usize; 4] = [2, 4, 8, 16];

/// The answer.
pub fn answer(args: &SizeArgs) -> Result<SizeAnswer, Refusal> {
    let daemon = Daemon::of(&args.from)?;
    let status = ask_status(&daemon)?;
    let stats: Stats = serde_json::from_value(status.engine.clone()).map_err(|_| confused(&daemon))?;
    Ok(of_numbers(args.worth, &status, &stats, &ask_pool(&daemon)?))
}

/// Bytes of flash that the second copies of dirty data take now.
fn second_copies(status: &Status, pool: &PoolShown) -> u64 {
    pool.sum(|member| member.dirty_bytes).saturating_sub(status.dirty_bytes)
}

fn of_numbers(worth: f64, status: &Status, stats: &Stats, pool: &PoolShown) -> SizeAnswer {
    let seconds = status.uptime_seconds as f64;
    let copies = second_copies(status, pool);
    let curve = curve(status, stats, copies);
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
        caveats: caveats(copies, pool),
    }
}

fn caveats(copies: u64, pool: &PoolShown) -> Vec<String> {
    let mut all = vec![
        "the mount sees pools of up to three times its own, as far as so much was evicted since it started, and no \
         smaller ones; a trace shows all: headpond record"
            .to_owned(),
        "larger pools are estimates, from a sample of the evicted blocks".to_owned(),
    ];
    if pool.members.len() > 1 {
        all.push(format!(
            "a size is that of all devices together; second copies of dirty data take {} of it now",
            Size(copies)
        ));
    }
    all
}

/// The present pool, and larger ones as far as they can be seen. Second copies of dirty data do not grow with the pool.
fn curve(status: &Status, stats: &Stats, copies: u64) -> Vec<CurvePoint> {
    let reads = stats.read_hits_blocks + stats.read_miss_blocks;
    // What was evicted before is all that can come back.
    let seen = stats.given_up_blocks * 8 / stats.kept_blocks_max.max(1);
    let point = |eighths: usize| {
        let missed = stats.read_miss_blocks.saturating_sub(stats.saved_by(eighths));
        let scaled = |bytes: u64| bytes / 8 * (8 + eighths) as u64;
        CurvePoint {
            pool_bytes: scaled(status.size_bytes),
            kept_bytes: scaled(stats.kept_blocks_max * BLOCK_U64).saturating_sub(copies),
            hit_ratio: if reads == 0 { 0.0 } else { 1.0 - missed as f64 / reads as f64 },
            missed_blocks: missed,
            origin_reads_per_day: None,
            saved_reads_per_day: None,
            absorbed_ratio: None,
        }
    };
    let larger = EIGHTHS.into_iter().filter(|eighths| *eighths as u64 <= seen);
    if reads == 0 { Vec::new() } else { std::iter::once(0).chain(larger).map(point).collect() }
}

fn judge(worth: f64, status: &Status, stats: &Stats, curve: &[CurvePoint]) -> (SizeVerdict, String) {
    let size = Size(status.size_bytes);
    let Some(now) = curve.first() else {
        return (
            SizeVerdict::NoReads,
            "Nothing was read since the daemon started, so there is nothing to say.".to_owned(),
        );
    };
    if stats.evicted_blocks + stats.given_up_blocks == 0 {
        let why = format!(
            "{size} is enough so far: nothing had to go for room yet. Whether less would do, the mount cannot see; a trace can."
        );
        return (SizeVerdict::Enough, why);
    }
    let double = curve.iter().find(|point| point.pool_bytes / 2 >= status.size_bytes / 8 * 8);
    let Some(double) = double.filter(|_| stats.read_miss_blocks >= MISSES_MIN) else {
        let why = format!(
            "Too little was seen to say: {} went for room since the daemon started, and a pool of {size} keeps {}. Ask again \
             later, or record a trace: headpond record",
            Size(stats.given_up_blocks * BLOCK_U64),
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
