//! The pace of destage, in virtual time on a modelled volume of 200 I/Os and 150 MB a second. What it comes
//! to: docs/decisions/0009-the-pace-of-destage.md.

use headpond_base::Nanos;
use headpond_engine::Config;
use headpond_models::Network;
use headpond_sim::{Arrival, PagedLoad, Second, TimedReport, Warming, run_paged, warm_up};

const POOL: u64 = 192 << 20;
/// Writes of 16 KiB to random places of twice the pool, 16 at once.
const LOAD: PagedLoad = PagedLoad {
    pool: POOL,
    file: 2 * POOL,
    arrival: Arrival::Depth(16),
    seconds: 40,
    origin: Network::VOLUME_200,
    card: None,
    seed: 1,
};

/// As many misses as the volume serves, and more waiting, for as long as it lasts; a fifth of the requests are writes.
const MISSES: Warming = Warming {
    pool: 64 << 20,
    seconds: 120,
    depth: 32,
    reads: 80,
    zipf: 1.1,
    hashed: false,
    origin: Network::VOLUME_200,
    by_block: false,
    seed: 1,
};

#[test]
fn random_writes_over_twice_the_pool_go_on_at_five_times_the_origins_rate_without_a_stall() {
    let report = run_paged(&LOAD, Config::default());
    // In the first seconds the pool fills.
    let steady = 5..;
    assert!(TimedReport::mean(&report.writes[steady.clone()]) >= 1000.0, "{:?}", report.writes);
    let longest = report.longest[steady].iter().max().unwrap();
    assert!(*longest < 250 * Nanos::MILLISECOND.0, "{:?}", report.longest);
    assert!(report.origin_ios.iter().all(|ios| *ios <= 201), "the volume does what it can: {:?}", report.origin_ios);
    assert!(report.stats.joined_writes > 0 && report.stats.gap_reads > 0, "{:?}", report.stats);
}

#[test]
fn under_a_steady_load_the_origin_gets_as_much_in_every_ten_seconds() {
    let steady = PagedLoad { arrival: Arrival::PerSecond(100.0), seconds: 300, ..LOAD };
    let period = Config { flush_period: Nanos(20 * Nanos::SECOND.0), ..Config::default() };
    let report = run_paged(&steady, period);
    assert!(TimedReport::variation(&report.origin_bytes[100..]) < 0.15, "{:?}", report.origin_bytes);
    // A round and its sync included; and reclaim moves many of those blocks meanwhile.
    assert!(report.stats.oldest_dirty_age_nanos < 20 * Nanos::SECOND.0, "{:?}", report.stats);
    let threshold = Config { dirty_threshold: 20, flush_period: Config::OFF, ..Config::default() };
    let report = run_paged(&steady, threshold);
    assert!(TimedReport::variation(&report.origin_bytes[100..]) < 0.15, "{:?}", report.origin_bytes);
}

#[test]
fn a_way_through_all_that_is_dirty_ends_though_the_load_does_not() {
    let load = PagedLoad { arrival: Arrival::PerSecond(200.0), seconds: 60, ..LOAD };
    let report = run_paged(&load, Config { flush_period: Nanos(10 * Nanos::SECOND.0), ..Config::default() });
    assert!(report.stats.oldest_dirty_age_nanos < 10 * Nanos::SECOND.0, "{:?}", report.stats);
}

#[test]
fn misses_that_would_take_all_of_the_origin_do_not_keep_anything_dirty_for_longer_than_the_period() {
    let period = Nanos(20 * Nanos::SECOND.0);
    let kept = warm_up(&MISSES, Config { flush_period: period, ..Config::default() });
    let oldest: Vec<u64> =
        kept.iter().map(|second| second.stats.oldest_dirty_age_nanos / Nanos::MILLISECOND.0).collect();
    // A round and its sync included, which waits its turn among the misses.
    assert!(oldest.iter().all(|age| *age < 20_000), "{oldest:?}");
    // Misses come first: what destage does not need is theirs.
    let never = warm_up(&MISSES, Config { flush_period: Config::OFF, dirty_threshold: 0, ..Config::default() });
    let answered = |seconds: &[Second]| seconds.iter().map(|second| second.requests).sum::<u64>();
    assert!(answered(&kept) * 10 > answered(&never) * 6, "{} and {}", answered(&kept), answered(&never));
    // Evenly: the way does not skip what it then has to catch up with.
    let writes: Vec<u64> =
        kept.windows(2).map(|two| two[1].stats.origin_write_bytes - two[0].stats.origin_write_bytes).collect();
    assert!(TimedReport::variation(&writes[39..]) < 0.15, "{writes:?}");
}

#[test]
fn a_period_of_a_minute_is_kept_on_a_large_warm_pool_whose_misses_would_take_all_of_the_origin() {
    // A pool that has become warm: what is dirty lies further apart than what one write of the origin may join.
    let load = Warming { pool: 1 << 30, seconds: 900, ..MISSES };
    let minute = Config { flush_period: Nanos(60 * Nanos::SECOND.0), ..Config::default() };
    let oldest: Vec<u64> =
        warm_up(&load, minute).iter().map(|second| second.stats.oldest_dirty_age_nanos / Nanos::SECOND.0).collect();
    // Not of each second: of 4,500 in five such runs four were late, all in one place, by less than 4 s.
    let late = oldest.iter().filter(|age| **age >= 60).count();
    assert!(late * 100 < oldest.len() && oldest.iter().all(|age| *age < 66), "{oldest:?}");
}

#[test]
fn with_every_reason_off_nothing_is_destaged_until_the_pool_can_take_no_more() {
    let off = Config { dirty_threshold: 0, flush_period: Config::OFF, idle_flush: None, ..Config::default() };
    let few = PagedLoad { arrival: Arrival::PerSecond(20.0), seconds: 60, ..LOAD };
    let report = run_paged(&few, off);
    assert_eq!(report.stats.origin_writes, 0);
    let idle = Config { idle_flush: Some(Nanos(2 * Nanos::SECOND.0)), ..off };
    assert_eq!(run_paged(&few, idle).stats.origin_writes, 0, "what is written all the time does not go for it");
    let pauses = PagedLoad { arrival: Arrival::PerSecond(0.2), ..few };
    assert!(run_paged(&pauses, idle).stats.origin_writes > 0, "nobody waits for the origin, or writes");
    let many = PagedLoad { seconds: 20, ..LOAD };
    assert!(run_paged(&many, off).writes[19] > 0, "writes go on");
}

/// What was not written for ten seconds is seldom written again before the period is over. So the origin gets hardly
/// more writes for `idle-flush`, and no request waits for it.
#[test]
fn idle_flush_costs_no_request_its_time_and_the_origin_few_writes() {
    // A page of 16 KiB of 96 MiB each quarter of a minute, for an hour.
    let pauses = PagedLoad { file: POOL / 2, arrival: Arrival::PerSecond(0.07), seconds: 3600, ..LOAD };
    let without = run_paged(&pauses, Config { idle_flush: None, ..Config::default() });
    let with = run_paged(&pauses, Config::default());
    let longest = |report: &TimedReport| report.longest.iter().max().copied().unwrap_or(0);
    let writes = |report: &TimedReport| report.stats.origin_writes;
    println!("idle-flush: {} writes to the origin, and {} without", writes(&with), writes(&without));
    assert!(writes(&with) * 20 <= writes(&without) * 21, "{} and {}", writes(&with), writes(&without));
    assert!(longest(&with) <= longest(&without) * 2, "{} and {} ns", longest(&with), longest(&without));
}

#[test]
fn the_rate_that_is_set_is_kept_to() {
    let limit = 2 << 20;
    let limited = Config { destage_rate: Some(limit), dirty_threshold: 20, ..Config::default() };
    let load = PagedLoad { seconds: 30, ..LOAD };
    let report = run_paged(&load, limited);
    let blocks = report.stats.destaged_blocks * 4096;
    assert!(blocks <= 31 * limit && blocks >= 20 * limit, "{blocks}");
}
