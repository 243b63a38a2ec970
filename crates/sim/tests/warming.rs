//! A cold pool on a slow origin becomes warm sooner with the neighbourhoods of its misses. The long form is the program
//! `headpond-warming`.

use headpond_engine::Config;
use headpond_sim::{Second, Warming, warm_up};

const LOAD: Warming = Warming { pool: 128 << 20, seconds: 20, depth: 32, reads: 80, zipf: 1.1, seed: 1 };

fn requests(seconds: &[Second]) -> u64 {
    seconds.iter().map(|second| second.requests).sum()
}

#[test]
fn neighbourhoods_warm_a_cold_pool_sooner_than_single_blocks() {
    let single = warm_up(&LOAD, Config { fetch_bytes: 4096, ..Config::default() });
    let wide = warm_up(&LOAD, Config::default());
    assert!(requests(&wide) * 10 > requests(&single) * 11, "{} against {}", requests(&wide), requests(&single));
    assert_eq!(wide, warm_up(&LOAD, Config::default()), "the same load is the same history");
}
