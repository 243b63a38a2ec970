//! A share of clean hits goes to the origin where flash is the bottleneck, and none to an origin that is slower: in
//! virtual time, on modelled devices.

use headpond_base::Nanos;
use headpond_engine::{Config, Stats};
use headpond_models::Network;
use headpond_sim::{Hardware, HitLoad, read_hits};

const POOL: u64 = 64 << 20;
/// 2,000 reads a second.
const SLOW_FLASH: Network = Network { iops: 2_000.0, rate: 200e6, latency: 0.1e6 };

/// Reads answered in five seconds, 32 at once, once all of the file is in the pool; what was counted then, and at the
/// end.
fn answered(origin: Network, hits_to_origin: u8) -> (u64, Stats, Stats) {
    let load = HitLoad { file: POOL / 4, depth: 32, time: Nanos(5 * Nanos::SECOND.0), seed: 1 };
    let config = Config { hits_to_origin, policy: headpond_engine::Policy::Lru, ..Config::default() };
    read_hits(load, Hardware { pool: POOL, flash: SLOW_FLASH, origin }, config)
}

#[test]
fn hits_go_to_an_origin_with_headroom_and_more_are_answered() {
    let (off, ..) = answered(Network::CLOUD, 0);
    let (on, warm, end) = answered(Network::CLOUD, 90);
    let went = end.origin_hits_blocks - warm.origin_hits_blocks;
    println!("{off} reads from flash alone, {on} with a share of {went} at the origin");
    assert!(on * 2 > off * 3, "{on} against {off}");
    assert_eq!(end.read_miss_blocks, warm.read_miss_blocks, "all of them are hits");
    assert_eq!(end.admitted_blocks, warm.admitted_blocks, "and nothing is written to flash for them");
    let (some, warm, end) = answered(Network::CLOUD, 10);
    let went = end.origin_hits_blocks - warm.origin_hits_blocks;
    assert!(went > 0 && went * 10 <= some + 32, "{went} of {some}: no more than the share that is set");
}

#[test]
fn nothing_goes_to_an_origin_that_is_slower_or_when_it_is_off() {
    // 32 reads wait 16 ms for the flash; this origin answers none sooner than after 50.
    let slower = Network { latency: 50e6, ..Network::VOLUME_200 };
    let (off, _, end) = answered(slower, 0);
    assert_eq!(end.origin_hits_blocks, 0);
    let (on, _, end) = answered(slower, 90);
    assert_eq!(end.origin_hits_blocks, 0);
    assert_eq!(on, off, "and the setting costs nothing");
}
