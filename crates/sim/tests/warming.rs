//! What neighbourhoods do for a cold pool on a slow origin, and what they cost, in virtual time. The long form is the
//! program `headpond-warming`; why the figures are what they are: docs/decisions/0007-how-the-engine-uses-a-policy.md.

use headpond_engine::{Config, Stats};
use headpond_models::Network;
use headpond_sim::{Second, Warming, warm_up};

/// A quarter of a pool of 1 GiB, and a quarter of the time that it takes to become warm.
const LOAD: Warming = Warming {
    pool: 256 << 20,
    seconds: 45,
    depth: 32,
    reads: 80,
    zipf: 1.1,
    hashed: false,
    origin: Network::VOLUME_200,
    by_block: false,
    seed: 1,
};
/// What is asked for, and no more.
const NARROW: fn() -> Config = || Config { fetch_bytes: 4096, ..Config::default() };

fn requests(seconds: &[Second]) -> u64 {
    seconds.iter().map(|second| second.requests).sum()
}

/// Blocks that reads got from the origin.
fn misses(seconds: &[Second]) -> u64 {
    seconds.iter().map(|second| second.misses).sum()
}

/// Blocks that came along with misses, to flash or into memory.
fn neighbours(stats: &Stats) -> u64 {
    stats.neighbour_blocks + stats.waiting_neighbour_blocks
}

#[test]
fn from_cold_three_times_as_many_requests_are_answered_as_when_each_block_is_fetched_by_itself() {
    let wide = warm_up(&LOAD, Config::default());
    let blocks = warm_up(&Warming { by_block: true, ..LOAD }, NARROW());
    assert!(requests(&wide) >= 3 * requests(&blocks), "{} against {}", requests(&wide), requests(&blocks));
    // A third of the data fits: no policy can do much better than one and a half times here.
    let narrow = warm_up(&LOAD, NARROW());
    assert!(requests(&wide) * 10 > requests(&narrow) * 13, "{} against {}", requests(&wide), requests(&narrow));
    assert_eq!(wide, warm_up(&LOAD, Config::default()), "the same load is the same history");
}

#[test]
fn a_gibibyte_is_cold_for_three_minutes_and_answers_three_times_as_many_requests_meanwhile() {
    let load = Warming { pool: 1 << 30, seconds: 180, ..LOAD };
    let wide = warm_up(&load, Config::default());
    let blocks = warm_up(&Warming { by_block: true, ..load }, NARROW());
    assert!(requests(&wide) >= 3 * requests(&blocks), "{} against {}", requests(&wide), requests(&blocks));
}

#[test]
fn once_flash_is_full_neighbours_come_into_memory_until_that_is_too() {
    let seconds = warm_up(&LOAD, Config::default());
    // A tenth of the eight tenths that may be kept.
    let most = (LOAD.pool >> 12) * 8 / 100;
    let waiting: Vec<_> = [14, 44].map(|second: usize| seconds[second].stats.waiting_neighbour_blocks).into();
    assert!(waiting[0] > most * 3 / 4, "{waiting:?} of {most}");
    assert!(waiting[1] < most * 2, "{waiting:?} of {most}");
}

#[test]
fn neighbours_of_pages_that_are_all_asked_for_alike_are_not_brought_into_a_full_pool_for_ever() {
    let uniform = warm_up(&Warming { pool: 32 << 20, seconds: 100, zipf: 0.0, ..LOAD }, Config::default());
    let (middle, end) = (uniform[50].stats, uniform[99].stats);
    let unasked = neighbours(&end) - neighbours(&middle);
    let missed = misses(&uniform[50..]);
    assert!(unasked * 5 < missed, "{unasked} for {missed}");
    assert_eq!(end.neighbour_blocks, middle.neighbour_blocks, "flash has no room to spare for any");
}

#[test]
fn an_origin_that_charges_by_the_byte_is_not_asked_for_more_than_was_missed() {
    // 50,000 I/Os and 100 MB a second: an I/O costs no more than half a block.
    let origin = Network { iops: 50_000.0, rate: 100e6, latency: 100_000.0 };
    let seconds = warm_up(&Warming { pool: 64 << 20, seconds: 10, origin, ..LOAD }, Config::default());
    let (unasked, missed) = (neighbours(&seconds[9].stats), misses(&seconds));
    assert!(unasked * 3 < missed, "{unasked} for {missed}");
}

#[test]
fn who_spares_the_flash_gets_no_neighbours() {
    let load = Warming { pool: 64 << 20, seconds: 5, ..LOAD };
    for sparing in [
        Config { admission: headpond_engine::Admission::Returning, ..Config::default() },
        Config { flash_write_limit: Some(headpond_engine::FlashWriteLimit(1 << 40)), ..Config::default() },
    ] {
        assert_eq!(neighbours(&warm_up(&load, sparing)[4].stats), 0);
    }
}
