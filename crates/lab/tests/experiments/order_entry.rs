//! Order entry in its short forms: the standard's mix, a consistent database, and what varies around it.

use super::{DATABASE, has, machine, runs_end_to_end, settings_behind};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// All five transactions, the standard's mix, and a database that is consistent after them: a condition that is broken
/// would be a doubt, and `runs_end_to_end` allows none.
fn order_entry_runs_in_short(name: &str, programs: &[&str]) {
    if !has(programs) {
        return;
    }
    let _beside = machine::side_by_side();
    let target = "pond=headpond:mode=write-back,disk=ssd-mirror";
    let (bench, figures) = runs_end_to_end(name, &["--target", target, "--seconds", "8"]);
    let kinds = figures["runs"][0]["kinds"].as_array().expect("kinds");
    let done = |kind: &str| {
        let found = kinds.iter().find(|one| one["kind"] == kind).expect(kind);
        found["committed"].as_u64().expect("a number") + found["rolled_back"].as_u64().expect("a number")
    };
    let all: u64 = kinds.iter().map(|one| done(one["kind"].as_str().expect("a name"))).sum();
    // The terminals tell of what ended after the warm-up by their own clock; sysbench by its own.
    let operations = figures["runs"][0]["figures"]["operations"].as_u64().expect("a number");
    assert!(all > 0 && all.abs_diff(operations) <= 32 + operations / 10, "{all} of {operations}: {kinds:?}");
    // The least shares of 5.2.3, less what sixteen unfinished decks may lack.
    for (kind, percent) in [("payment", 43), ("order-status", 4), ("delivery", 4), ("stock-level", 4)] {
        assert!(done(kind) * 100 + 16 * 100 >= all * percent, "{kind}: {} of {all}", done(kind));
    }
    let page = fs::read_to_string(bench.path("out/report.html")).expect("the page");
    assert!(page.contains("By kind of transaction") && page.contains("no tpmC"), "{name}");
}

#[test]
fn order_entry_on_mariadb_runs_in_short_and_leaves_a_consistent_database() {
    order_entry_runs_in_short("tpcc", &DATABASE);
}

#[test]
fn order_entry_on_postgresql_runs_in_short_and_leaves_a_consistent_database() {
    order_entry_runs_in_short("tpcc-postgres", &["psql", "sysbench", "fusermount3", "fio"]);
}

/// The pool survives from run to run, so more is found there each time: counted, not timed.
#[test]
fn warming_in_short_finds_more_in_the_third_run_than_in_the_first() {
    if !has(&DATABASE) {
        return;
    }
    let _beside = machine::side_by_side();
    let target = "pond=headpond:mode=write-back,disk=ssd-mirror";
    let (_bench, figures) = runs_end_to_end("warming", &["--target", target]);
    let missed = |run: usize| {
        let pond = figures["runs"][run]["pond"].as_array().expect("samples");
        let of = |sample: &Value, key: &str| sample[key].as_u64().expect("a number");
        let (first, last) = (pond.first().expect("a sample"), pond.last().expect("a sample"));
        let [hits, misses] = ["hit_blocks", "miss_blocks"].map(|key| of(last, key) - of(first, key));
        misses as f64 / (hits + misses).max(1) as f64
    };
    assert!(missed(0) > missed(2), "{} {}", missed(0), missed(2));
}

#[test]
fn order_entry_runs_in_short_by_the_memory_of_the_database() {
    if !has(&DATABASE) {
        return;
    }
    let _beside = machine::side_by_side();
    let target = "pond=headpond:mode=write-back,disk=none";
    let (_bench, figures) = runs_end_to_end("tpcc-memory", &["--target", target]);
    let runs = figures["runs"].as_array().expect("runs");
    let with = |option: &str| runs.iter().filter(|run| run["commands"].to_string().contains(option)).count();
    assert_eq!((runs.len(), with("--innodb-buffer-pool-size=720M"), with("--innodb-buffer-pool-size=64M")), (4, 2, 4));
    // The lab's own log is as small in the short form, so here the option stands twice.
    let logs = runs[3]["commands"].to_string().matches("--innodb-log-file-size=").count();
    assert_eq!(logs, 2, "{}", runs[3]);
}

#[test]
fn order_entry_runs_in_short_with_whole_writes_and_packed() {
    if !has(&DATABASE) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = runs_end_to_end("untorn-tpcc", &["--target", "pond=headpond:disk=none"]);
    assert_eq!(settings_behind(&figures, "compression="), ["lz4 compression-from=0%"]);
    let runs = figures["runs"].as_array().expect("runs");
    let off = runs.iter().filter(|run| {
        let commands = run["commands"].to_string();
        commands.rfind("--innodb-doublewrite=").is_some_and(|at| commands[at..].starts_with("--innodb-doublewrite=0"))
    });
    assert_eq!((runs.len(), off.count()), (3, 2));
}

#[test]
fn order_entry_on_postgresql_runs_in_short_without_whole_pages_in_the_log_and_packed() {
    if !has(&["psql", "sysbench", "fusermount3", "fio"]) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = runs_end_to_end("untorn-tpcc-postgres", &["--target", "pond=headpond:disk=none"]);
    assert_eq!(settings_behind(&figures, "compression="), ["lz4 compression-from=0%"]);
    let runs = figures["runs"].as_array().expect("runs");
    let off = runs.iter().filter(|run| run["commands"].to_string().contains("full_page_writes=off"));
    assert_eq!((runs.len(), off.count()), (3, 2));
}

/// A side that may use one processor uses no more. The report names what ran out, and how far more of it would carry.
#[test]
fn limit_runs_in_short_on_the_processors_of_each_side_and_tells_what_ran_out() {
    if !has(&DATABASE) {
        return;
    }
    let _beside = machine::side_by_side();
    let tables = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-tables").display().to_string();
    let target = "pond=headpond:mode=write-back,disk=none";
    let (bench, figures) = runs_end_to_end("limit", &["--keep-tables", &tables, "--target", target]);
    let there = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    for run in figures["runs"].as_array().expect("runs") {
        let wanted = if run["side"] == 0 { 1 } else { there };
        assert_eq!(run["cores"], wanted, "{run}");
        assert_eq!(run["commands"][0][0] == "processors", run["side"] == 0, "{run}");
    }
    let limits = figures["limits"].as_array().expect("each side at its best");
    assert_eq!(limits.len(), 2);
    for one in limits {
        let number = |name: &str| one[name].as_f64().unwrap_or_else(|| panic!("{name}: {one}"));
        let (cores, busy) = (number("cores"), number("busy_cores"));
        assert!(busy > 0.0 && busy <= cores * 1.01, "{one}");
        assert!((number("core_ms_each") * number("throughput") / 1000.0 / busy - 1.0).abs() < 0.01, "{one}");
        // What is extrapolated is the same number of operations for each processor.
        if let Some(full) = one["cores_for_a_full_device"].as_f64() {
            let times = number("throughput_of_a_full_device") / number("throughput");
            assert!((full / busy / times - 1.0).abs() < 0.01, "{one}");
        }
    }
    let page = fs::read_to_string(bench.path("out/report.html")).expect("the page");
    assert!(
        page.contains("What was the limit, and what lies behind it")
            && page.contains("Assumed: what an operation costs")
    );
}
