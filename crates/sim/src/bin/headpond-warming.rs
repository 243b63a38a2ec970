//! `headpond-warming`: a cold pool on a slow origin, with and without neighbourhoods, in virtual time.

use clap::Parser;
use headpond_engine::{Config, Stats};
use headpond_models::{DiskModel, Network};
use headpond_sim::{DestageArguments, Second, Warming, warm_up};

/// Seconds of the cold start to compare, and of the warm end.
const COLD: usize = 180;
const WARM: usize = 60;

/// Reads and writes pages of 8 KiB at random, some much more often than others, over three times the pool, on a slow
/// origin. It prints the answers of three runs: each block of 4 KiB fetched by itself; then all misses of a request
/// in one read; then neighbourhoods too. The figures of the origin, the pool, its flash and destage are those of the
/// last run
#[derive(Parser)]
struct Arguments {
    /// The pool, in MiB
    #[arg(long, default_value_t = 256)]
    pool: u64,
    /// Seconds of virtual time
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Requests under way
    #[arg(long, default_value_t = 32)]
    depth: u64,
    /// Reads in a hundred requests
    #[arg(long, default_value_t = 80)]
    reads: u64,
    /// Exponent of the pages' popularity. 0: all alike
    #[arg(long, default_value_t = 1.1)]
    zipf: f64,
    /// Hash ranks to pages as fio does: some pages have several
    #[arg(long)]
    hashed: bool,
    /// The origin: a modelled volume (volume-200, cloud, ssd-mirror, flash-card)
    #[arg(long, default_value = "volume-200")]
    origin: DiskModel,
    #[command(flatten)]
    destage: DestageArguments,
    /// The seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only with neighbourhoods
    #[arg(long)]
    alone: bool,
}

fn main() {
    let arguments = Arguments::parse();
    let DiskModel::Network(origin) = arguments.origin else {
        eprintln!("headpond-warming: {} has an arm; choose a volume", arguments.origin);
        std::process::exit(2);
    };
    let with = |by_block| Warming {
        pool: arguments.pool << 20,
        seconds: arguments.seconds,
        depth: arguments.depth,
        reads: arguments.reads,
        zipf: arguments.zipf,
        hashed: arguments.hashed,
        seed: arguments.seed,
        origin,
        by_block,
    };
    let narrow = Config { fetch_bytes: 4096, ..Config::default() };
    let others: Vec<_> = [("blocks", true), ("requests", false)]
        .into_iter()
        .filter(|_| !arguments.alone)
        .map(|(name, by_block)| (name, warm_up(&with(by_block), narrow)))
        .collect();
    let wide = warm_up(&with(false), arguments.destage.config());
    print_table(&others, &wide, origin);
    let cold = COLD.min(wide.len());
    for (name, other) in &others {
        let times = rate(&wide[..cold]) as f64 / rate(&other[..cold]).max(1) as f64;
        println!("first {cold} s: {times:.2} times as many requests as fetching {name}");
    }
    let warm = &wide[wide.len() - WARM.min(wide.len())..];
    let tens: Vec<f64> = warm.chunks(10).map(|ten| rate(ten) as f64).collect();
    let mean = tens.iter().sum::<f64>() / tens.len() as f64;
    let most = tens.iter().map(|ten| (ten / mean - 1.0).abs()).fold(0.0, f64::max);
    println!(
        "last {} s: {:.2} % of the blocks read from the pool, of {:.2} % at best; the averages of 10 s are within {:.1} % of their mean",
        warm.len(),
        share(warm),
        with(false).best(),
        most * 100.0
    );
    let before = wide.len().checked_sub(WARM + 1).map_or(Stats::default(), |second| wide[second].stats);
    let stats = wide[wide.len() - 1].stats;
    let asked_for = stats.lingering_hit_blocks - before.lingering_hit_blocks;
    let dropped = stats.evicted_blocks - before.evicted_blocks;
    println!(
        "last {} s: of the blocks that lingered and do no more {:.1} % were asked for, the others dropped",
        warm.len(),
        asked_for as f64 * 100.0 / (asked_for + dropped).max(1) as f64
    );
    println!(
        "last {} s: reclaim moved {:.0} MB, of {:.0} MB written to flash",
        warm.len(),
        (stats.moved_blocks - before.moved_blocks) as f64 * 4096.0 / 1e6,
        (stats.flash_write_bytes - before.flash_write_bytes) as f64 / 1e6
    );
    println!(
        "neighbours: {:.0} MB of flash written, {:.0} KiB for each block of what lingered that was asked for; all writes to flash {:.0} MB",
        stats.neighbour_blocks as f64 * 4096.0 / 1e6,
        stats.neighbour_blocks as f64 * 4.0 / stats.lingering_hit_blocks.max(1) as f64,
        stats.flash_write_bytes as f64 / 1e6
    );
}

fn print_table(others: &[(&str, Vec<Second>)], wide: &[Second], origin: Network) {
    print!("{:>6}", "second");
    for (name, _) in others {
        print!("  {:>10} {:>7}", format!("{name}/s"), "hits");
    }
    println!(
        "  {:>8} {:>7} | {:>6} {:>7} {:>6} {:>6} | {:>6} {:>9} {:>6} {:>6} | {:>6}",
        "wide/s", "hits", "busy", "misses", "gaps", "writes", "kept", "lingering", "dirty", "oldest", "MB/s"
    );
    let width = 24 + 20 * others.len();
    println!("{:>width$} | {:<28} | {:<30} |  flash", "", "origin: reads, writes a second", "pool");
    let mut before = Stats::default();
    for (number, wide) in wide.chunks(10).enumerate() {
        print!("{:>6}", number * 10);
        for (_, other) in others {
            let other = &other[number * 10..number * 10 + wide.len()];
            print!("  {:>10} {:>6.2}%", rate(other), share(other));
        }
        let (now, seconds) = (wide[wide.len() - 1].stats, wide.len() as u64);
        let per_second = |count: fn(&Stats) -> u64| (count(&now) - count(&before)) / seconds;
        let busy = wide.iter().map(|second| second.origin_busy).sum::<u64>() as f64 / 1e7 / seconds as f64;
        let of_pool = |blocks: u64| blocks as f64 * 100.0 / now.pool_blocks as f64;
        println!(
            "  {:>8} {:>6.2}% | {busy:>5.1}% {:>7} {:>6} {:>6} | {:>5.1}% {:>8.1}% {:>5.1}% {:>5.1}s | {:>6.1}",
            rate(wide),
            share(wide),
            per_second(|stats| stats.origin_reads - stats.gap_reads),
            per_second(|stats| stats.gap_reads),
            per_second(|stats| stats.origin_writes),
            of_pool(now.kept_blocks),
            of_pool(now.cached_blocks - now.kept_blocks - now.dirty_blocks),
            of_pool(now.dirty_blocks),
            wide.iter().map(|second| second.stats.oldest_dirty_age_nanos).max().unwrap_or(0) as f64 / 1e9,
            per_second(|stats| stats.flash_write_bytes) as f64 / 1e6,
        );
        before = now;
    }
    println!("the origin: {} I/Os and {:.0} MB a second", origin.iops, origin.rate / 1e6);
}

fn rate(seconds: &[Second]) -> u64 {
    seconds.iter().map(|second| second.requests).sum::<u64>() / seconds.len() as u64
}

fn share(seconds: &[Second]) -> f64 {
    let (hits, misses) = seconds.iter().fold((0, 0), |(hits, misses), one| (hits + one.hits, misses + one.misses));
    hits as f64 * 100.0 / (hits + misses).max(1) as f64
}
