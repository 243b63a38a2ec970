//! `headpond-warming`: a cold pool on a slow origin, with neighbourhoods and without, in virtual time.

use clap::Parser;
use headpond_engine::Config;
use headpond_sim::{Second, Warming, warm_up};

/// Reads and writes pages of 8 KiB at random, some much more often than others, over three times the pool, on an origin
/// of 200 I/Os and 150 MB a second, and prints what was answered: single blocks fetched, then neighbourhoods.
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
    /// Exponent of the pages' popularity
    #[arg(long, default_value_t = 1.1)]
    zipf: f64,
    /// Where chance begins
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() {
    let arguments = Arguments::parse();
    let load = Warming {
        pool: arguments.pool << 20,
        seconds: arguments.seconds,
        depth: arguments.depth,
        reads: 80,
        zipf: arguments.zipf,
        seed: arguments.seed,
    };
    let single = warm_up(&load, Config { fetch_bytes: 4096, ..Config::default() });
    let wide = warm_up(&load, Config::default());
    println!("{:>8}  {:>10} {:>7}  {:>10} {:>7} {:>12}", "second", "single/s", "hits", "wide/s", "hits", "flash MB/s");
    for (number, (single, wide)) in single.chunks(10).zip(wide.chunks(10)).enumerate() {
        let flash = wide.iter().map(|second| second.flash_bytes).sum::<u64>() / wide.len() as u64 / 1_000_000;
        println!(
            "{:>8}  {:>10} {:>6.2}%  {:>10} {:>6.2}% {flash:>12}",
            number * 10,
            rate(single),
            share(single),
            rate(wide),
            share(wide)
        );
    }
    let cold = 180.min(single.len());
    println!("first {cold} s: {:.2} times as many requests", rate(&wide[..cold]) as f64 / rate(&single[..cold]) as f64);
}

fn rate(seconds: &[Second]) -> u64 {
    seconds.iter().map(|second| second.requests).sum::<u64>() / seconds.len() as u64
}

fn share(seconds: &[Second]) -> f64 {
    let (hits, misses) = seconds.iter().fold((0, 0), |(hits, misses), one| (hits + one.hits, misses + one.misses));
    hits as f64 * 100.0 / (hits + misses).max(1) as f64
}
