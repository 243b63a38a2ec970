//! A database's redo log that comes round to what the pool had no room to keep, in virtual time.

use headpond_engine::Config;
use headpond_models::Network;
use headpond_sim::{Hardware, LogLoad, LogRun, rewrite_log};

const QUICK: Network = Network { iops: 1e9, rate: 1e9, latency: 0.1e6 };
const HARDWARE: Hardware = Hardware { pool: 64 << 20, flash: QUICK, origin: Network::VOLUME_200 };
/// Six writes to a block, and a page of a table read for every ten blocks.
const LOAD: LogLoad = LogLoad { log: 3 << 20, piece: 700, writes_each: 60, seed: 1 };

#[test]
fn what_lies_ahead_in_a_log_comes_in_one_read_though_neighbours_are_of_no_use_elsewhere() {
    let LogRun { before, after, took, waited } = rewrite_log(LOAD, HARDWARE, Config::default());
    let (blocks, pages) = (LOAD.log / 4096, LOAD.log / LOAD.piece / LOAD.writes_each + 1);
    let reads = after.origin_reads - before.origin_reads - (after.gap_reads - before.gap_reads);
    println!(
        "{blocks} blocks of a log and {pages} pages: {reads} reads at the origin, {took:?}, {waited} writes waited"
    );
    assert!(reads < pages + blocks / 16, "{reads} reads for {pages} pages and {blocks} blocks of a log");
    let alone = Config { fetch_bytes: 4096, ..Config::default() };
    let LogRun { before, after, .. } = rewrite_log(LOAD, HARDWARE, alone);
    let each = after.origin_reads - before.origin_reads;
    assert!(each > blocks, "{each}: nothing of it was there");
}

#[test]
fn a_commit_does_not_wait_for_what_lies_ahead_in_a_log_as_it_was_brought_before() {
    let run = rewrite_log(LogLoad { log: 24 << 20, ..LOAD }, HARDWARE, Config::default());
    println!("{} writes waited for the origin in {:?}", run.waited, run.took);
    // Until it is seen where the log goes. Commits come as fast as flash takes them, so some overtake what is on its
    // way.
    assert!(run.waited <= 12, "{} writes waited for the origin", run.waited);
}
