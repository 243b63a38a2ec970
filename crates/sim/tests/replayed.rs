//! Recorded loads through the whole engine: what destage saves the origin, with reclaim, streams and neighbourhoods
//! around it.
//!
//! The traces are not part of the repository. They are looked for in the directory that HEADPOND_TRACES names, or in
//! `../shared/traces` beside the repository; without them the test on one says that it was left out.

use std::path::{Path, PathBuf};

use headpond_base::{BLOCK_U64, Nanos};
use headpond_engine::Config;
use headpond_models::Network;
use headpond_sim::{Hardware, Replayed, replay_through_engine};
use headpond_trace::{Extent, Format, LoadOptions, TracedRequest, read_requests};

fn trace(file: &str, format: Format) -> Option<Vec<TracedRequest>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let directory = std::env::var_os("HEADPOND_TRACES").map_or(beside, PathBuf::from);
    if !directory.join(file).exists() {
        println!("left out: no {file} in {} (set HEADPOND_TRACES to where it is)", directory.display());
        return None;
    }
    let options = LoadOptions { format, unit: None, reads_only: false, sample: 0 };
    Some(read_requests(&directory.join(file), options).expect("a trace that is there can be read"))
}

fn through(requests: &[TracedRequest], blocks: u64, config: Config) -> Replayed {
    let hardware = Hardware { pool: blocks * BLOCK_U64, flash: Network::FLASH_CARD, origin: Network::VOLUME_200 };
    replay_through_engine(requests, hardware, config)
}

#[test]
fn writes_to_random_places_reach_the_origin_in_few_writes_and_a_long_stream_of_them_costs_no_more() {
    // 50 writes of 4 KiB a second to random places of 64 MiB; every eighth goes on with a stream through a file of 256
    // MiB.
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut requests = |stream: bool| -> Vec<TracedRequest> {
        let at = |number: u64| Some(Nanos(number * Nanos::SECOND.0 / 50));
        let mut streamed = 0;
        (0..12_000)
            .map(|number| {
                if stream && number % 8 == 0 {
                    streamed += 32;
                    let extent = Extent::Pages { first: 16_384 + streamed, count: 32 };
                    return TracedRequest { extent, write: true, at: at(number) };
                }
                let extent = Extent::Pages { first: random(16_384), count: 1 };
                TracedRequest { extent, write: true, at: at(number) }
            })
            .collect()
    };
    for stream in [false, true] {
        let done = through(&requests(stream), 32_768, Config::default());
        println!("{} writes instead of {}: {:?}", done.stats.origin_writes, done.trace_writes, done.stats);
        assert!(done.fewer_writes() >= 5.0, "stream: {stream}, {:?}", done.stats);
    }
}

#[test]
fn destage_needs_five_times_fewer_origin_writes_than_the_trace_issued() {
    let Some(requests) = trace("cloudPhysicsIO.vscsi", Format::Vscsi) else { return };
    // A tenth of its footprint.
    let done = through(&requests, 26_921, Config::default());
    println!(
        "{} writes instead of {}: {:.2} times fewer",
        done.stats.origin_writes,
        done.trace_writes,
        done.fewer_writes()
    );
    assert!(done.fewer_writes() >= 5.0);
}
