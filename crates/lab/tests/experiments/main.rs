//! Every shipped experiment in its short form with the real tools: its numbers make sense, it cleans up, it can be
//! interrupted, and what it must not touch stays whole.

#[path = "../machine/mod.rs"]
mod machine;
mod order_entry;

use headpond_lab::kernel_caches;
use headpond_lab::throttled::{self, Throttle};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Whether this machine has the programs.
fn has(programs: &[&str]) -> bool {
    let missing: Vec<&&str> =
        programs.iter().filter(|program| Command::new(program).arg("--version").output().is_err()).collect();
    machine::lacks_nothing((!missing.is_empty()).then(|| format!("{missing:?}")))
}

/// A place for scratch directories, and one for results.
struct Bench {
    place: TempDir,
}

impl Bench {
    fn new() -> Self {
        let place = machine::scratch("lab-test-");
        fs::create_dir(place.path().join("scratch")).expect("a directory");
        fs::set_permissions(place.path().join("scratch"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("its owner may");
        Self { place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(machine::program());
        command.arg("lab").args(words).arg("--scratch").arg(self.path("scratch"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        let out = self.path("out");
        self.command(words).arg("--out").arg(out).output().expect("headpond starts")
    }

    fn figures(&self) -> Value {
        let text = fs::read_to_string(self.path("out/figures.json")).expect("the figures are there");
        serde_json::from_str(&text).expect("they are JSON")
    }

    /// Nothing is left of what the lab made for itself, and nothing mounted.
    fn is_clean(&self) {
        let left: Vec<_> = fs::read_dir(self.path("scratch")).expect("it is there").collect();
        assert!(left.is_empty(), "{left:?}");
        let mounts = fs::read_to_string("/proc/self/mounts").expect("a list of mounts");
        assert!(!mounts.contains(&self.path("scratch").display().to_string()), "{mounts}");
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs an experiment in its short form, and looks at its numbers.
fn runs_end_to_end(name: &str, more: &[&str]) -> (Bench, Value) {
    let bench = Bench::new();
    let mut words = vec!["run", name, "--quick"];
    words.extend(more);
    let output = bench.run(&words);
    assert!(output.status.success(), "{name}: {}", text(&output));
    let figures = bench.figures();
    let runs = figures["runs"].as_array().expect("runs");
    assert_eq!(runs.len() as u64, figures["runs_planned"].as_u64().expect("a number"), "{name}");
    for run in runs {
        assert_eq!(run["doubts"], serde_json::json!([]), "{name}: {run}");
        assert!(run["figures"]["throughput"].as_f64().expect("a number") > 0.0, "{name}: {run}");
        let row = ["p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"].map(|key| run["figures"][key].as_f64());
        let known: Vec<f64> = row.into_iter().flatten().collect();
        assert!(known.windows(2).all(|pair| pair[0] <= pair[1] * 1.02), "{name}: {known:?}");
        assert!(run["commands"].as_array().is_some_and(|commands| !commands.is_empty()), "{name}");
    }
    for file in ["report.html", "figures.csv", "session.json"] {
        assert!(bench.path("out").join(file).exists(), "{name}: {file}");
    }
    let lines = fs::read_to_string(bench.path("out/figures.csv")).expect("lines").lines().count();
    assert_eq!(lines, runs.len() + 1, "{name}");
    assert!(fs::metadata(bench.path("out/report.html")).expect("the page").len() < 1 << 20, "{name}: a small page");
    bench.is_clean();
    (bench, figures)
}

/// What a mount counted in all, in the last sample of a run.
fn counted(run: &Value, counter: &str) -> u64 {
    run["pond"].as_array().and_then(|pond| pond.last()).map_or(0, |last| last[counter].as_u64().expect("a number"))
}

#[test]
fn fileio_runs_in_short_and_bytes_are_requests() {
    if !has(&["fio"]) {
        return;
    }
    if !machine::lacks_nothing(throttled::missing()) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = runs_end_to_end("fileio", &["--seconds", "1", "--warmup", "0"]);
    for run in figures["runs"].as_array().expect("runs") {
        let of = |key: &str| run["figures"][key].as_u64().expect("a number");
        assert_eq!(of("read_bytes") + of("write_bytes"), of("operations") * 16 * 1024, "{run}");
    }
}

/// Its mixed load has two sizes: fio gets each with its share, and the mean of its requests lies between the two.
#[test]
fn sweep_runs_in_short_with_sizes_mixed() {
    if !has(&["fio"]) || !machine::lacks_nothing(throttled::missing()) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = runs_end_to_end("sweep", &["--warmup", "0", "--seconds", "3"]);
    let runs = figures["runs"].as_array().expect("runs");
    let mixed: Vec<&Value> =
        runs.iter().filter(|run| run["commands"].to_string().contains("--bssplit=8k/90:1024k/10")).collect();
    assert!(!mixed.is_empty());
    for run in mixed {
        let of = |key: &str| run["figures"][key].as_u64().expect("a number");
        let mean = (of("read_bytes") + of("write_bytes")) / of("operations");
        assert!((8 << 10..=1 << 20).contains(&mean), "{run}");
    }
}

#[test]
fn profiles_run_in_short_and_the_mount_serves_what_the_load_reads() {
    if !has(&["fio"]) || !machine::lacks_nothing(throttled::missing()) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = runs_end_to_end("profiles", &["--seconds", "1", "--warmup", "1"]);
    // The first side is bare.
    for run in figures["runs"].as_array().expect("runs").iter().filter(|run| run["side"] != 0) {
        // All of the mount's life: the load, its warm-up included, and no more.
        let served = (counted(run, "hit_blocks") + counted(run, "miss_blocks")) * 4096;
        let read = run["figures"]["read_bytes"].as_u64().expect("a number");
        assert!(served >= read / 2, "{served} bytes served of {read} read");
    }
    // With a cache something is found on flash.
    let hits = |side: u64| {
        let of = figures["runs"].as_array().expect("runs").iter().filter(|run| run["side"] == side);
        of.map(|run| counted(run, "hit_blocks")).sum::<u64>()
    };
    assert!((1..4).all(|side| hits(side) > 0));
}

/// A study in short: its page has the study's figures beside those of the sessions that were run, streams are taken in
/// where the setting says so, and the same command again runs nothing twice.
#[test]
fn a_study_runs_in_short_and_goes_on_where_it_was() {
    if !has(&["fio"]) || !machine::lacks_nothing(throttled::missing()) {
        return;
    }
    let _beside = machine::side_by_side();
    let bench = Bench::new();
    let words = ["study", "fvp", "--quick", "--only", "streams"];
    let output = bench.run(&words);
    assert!(output.status.success(), "{}", text(&output));
    let session = bench.path("out/streams");
    let figures: Value =
        serde_json::from_str(&fs::read_to_string(session.join("figures.json")).expect("figures")).expect("JSON");
    let found = |side: u64| {
        let runs = figures["runs"].as_array().expect("runs").iter().filter(|run| run["side"] == side);
        runs.map(|run| counted(run, "hit_blocks")).sum::<u64>()
    };
    assert!(found(2) > 2 * found(1), "taken in {}, passing by {}", found(2), found(1));
    let page = || fs::read_to_string(bench.path("out/study.html")).expect("the page");
    assert!(page().contains("Sequential reads of 1 MiB, streams taken in") && page().contains("too few runs"));
    assert!(page().contains("not run") && page().contains("<svg"), "the other experiments were left out");
    let kept = || fs::metadata(session.join("runs/0001.json")).expect("a run").modified().expect("a time");
    let before = kept();
    assert!(bench.run(&words).status.success());
    assert_eq!(kept(), before);
    let other = bench.run(&[&words[..], &["--seconds", "7"]].concat());
    assert!(!other.status.success() && text(&other).contains("of other sizes"), "{}", text(&other));
    bench.is_clean();
}

#[test]
fn fill_runs_in_short_on_a_directory_and_touches_nothing_beside_its_own() {
    if !has(&["fio"]) {
        return;
    }
    let _beside = machine::side_by_side();
    let mine = tempfile::tempdir_in("/var/tmp").expect("a directory");
    fs::write(mine.path().join("precious"), "data").expect("written");
    let target = format!("mine={}", mine.path().display());
    runs_end_to_end("fill", &["--target", &target, "--target", "headpond:disk=none"]);
    assert_eq!(fs::read_to_string(mine.path().join("precious")).expect("it is there"), "data");
    assert_eq!(fs::read_dir(mine.path()).expect("it is there").count(), 1);
}

/// The published table of experiment B, through the same plan, record, judgement and page as real storage.
#[test]
fn fill_on_modelled_cards_has_the_published_shape() {
    let bench = Bench::new();
    let words = ["run", "fill", "--repeats", "4", "--target", "model:tachion", "--target", "model:iodrive-duo"];
    let output = bench.run(&words);
    assert!(output.status.success(), "{}", text(&output));
    let figures = bench.figures();
    let mib = |point: usize, side: usize| {
        figures["points"][point]["sides"][side]["throughput"]["median"].as_f64().expect("a number") * 16.0 / 1024.0
    };
    let published = [990.0, 959.0, 964.0, 872.0, 783.0, 669.0, 611.0, 502.0, 417.0];
    for (point, expected) in published.into_iter().enumerate() {
        let found = mib(point, 0);
        assert!((found / expected - 1.0_f64).abs() <= 0.12, "point {point}: {found} for {expected}");
    }
    assert!((mib(8, 1) / mib(1, 1) - 0.09).abs() < 0.015, "{} {}", mib(8, 1), mib(1, 1));
    // Full, the one card is about four times the other, and four runs of each are enough to say so.
    let last = &figures["comparisons"][8];
    assert_eq!((last["significant"].as_bool(), last["enough_runs"].as_bool()), (Some(true), Some(true)));
    assert!(text(&output).contains("times modelled tachion (95 % interval"), "{}", text(&output));
    bench.is_clean();
}

#[test]
fn pace_runs_in_short_and_a_rate_is_kept() {
    if !has(&["fio"]) {
        return;
    }
    let _beside = machine::side_by_side();
    let (bench, figures) = runs_end_to_end("pace", &["--repeats", "1"]);
    for run in figures["runs"].as_array().expect("runs") {
        let throughput = run["figures"]["throughput"].as_f64().expect("a number");
        assert!(run["point"] == 0 || throughput <= 110.0, "100 a second were asked for: {run}");
        // Everything that was acknowledged is at the origin, or dirty, or was written over before it went there.
        let written = (counted(run, "dirty_blocks") * 4096).max(counted(run, "origin_write_bytes"));
        assert!(written > 0, "{run}");
    }
    let page = fs::read_to_string(bench.path("out/report.html")).expect("the page");
    assert!(page.contains("counts from when a request was due"), "a rate of fio is an open loop, and the page says so");
    // A rate that the storage keeps has no other to be told from.
    assert!(figures["points"][1]["title"].as_str().is_some_and(|title| title.contains("100 a second")));
}

/// The daemon stands still for a second while 100 reads a second are due, four at once at most: a closed loop would
/// tell of four long answers, and its users saw a hundred.
#[test]
fn at_a_rate_a_stall_is_seen_by_all_that_were_due_in_it() {
    if !has(&["fio"]) {
        return;
    }
    let _beside = machine::side_by_side();
    let bench = Bench::new();
    let shown = Command::new(machine::program()).args(["lab", "show", "pace"]).output().expect("headpond starts");
    let changed =
        String::from_utf8_lossy(&shown.stdout).replace("randwrite", "randread").replace("depth = 16", "depth = 4");
    let (before, rest) = changed.split_once("[[case]]").expect("a case");
    let (_, second) = rest.split_once("[[case]]").expect("another case");
    let file = bench.path("rate.toml").display().to_string();
    fs::write(&file, format!("{before}[[case]]{second}")).expect("written");
    let words = ["run", &file, "--quick", "--seconds", "8", "--warmup", "0", "--target", "headpond:disk=none"];
    let child = bench.command(&words).arg("--out").arg(bench.path("out")).stdout(Stdio::piped()).spawn();
    let child = child.expect("headpond starts");
    let (log, start) = (bench.path("out/logs/0001.txt"), Instant::now());
    while !log.exists() {
        assert!(start.elapsed() < Duration::from_secs(120), "no load starts");
        std::thread::sleep(Duration::from_millis(20));
    }
    // fio is at work by then.
    std::thread::sleep(Duration::from_millis(1500));
    let made = fs::read_dir(bench.path("scratch")).expect("it is there").flatten();
    let mountpoint = made.map(|entry| entry.path().join("mnt")).find(|path| path.exists()).expect("a mount");
    let status = Command::new(machine::program()).arg("status").arg(&mountpoint).arg("--json").output();
    let status: Value = serde_json::from_slice(&status.expect("it starts").stdout).expect("JSON");
    let daemon = rustix::process::Pid::from_raw(status["pid"].as_i64().expect("a number") as i32).expect("a process");
    let signal = |signal| rustix::process::kill_process(daemon, signal).expect("it runs");
    signal(rustix::process::Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    signal(rustix::process::Signal::CONT);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output));
    let run = &bench.figures()["runs"][0]["figures"];
    let (p95, operations) = (run["p95_ms"].as_f64().expect("a number"), run["operations"].as_u64().expect("a number"));
    assert!(p95 > 300.0 && operations >= 700, "an eighth of {operations} waited up to a second: {run}");
}

#[test]
fn a_flush_in_short_is_under_way_while_reads_hit_and_in_a_quiet_run_nothing_is() {
    if !has(&["fio"]) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = runs_end_to_end("flush", &[]);
    for run in figures["runs"].as_array().expect("runs") {
        let pond = run["pond"].as_array().expect("samples");
        let gained = |counter: &str| {
            let of = |sample: &Value| sample[counter].as_u64().expect("a number");
            of(pond.last().expect("a sample")) - of(&pond[0])
        };
        assert_eq!(gained("origin_writes") > 0, run["side"] == 1, "{run}");
        assert!(gained("miss_blocks") * 100 <= gained("hit_blocks"), "reads are hits: {run}");
        let dirty = pond[0]["dirty_blocks"].as_u64().expect("a number");
        // 96 MiB are written each time, to the same places, while nothing else flushes them.
        assert!(dirty * 4096 > 64 << 20 && dirty * 4096 <= 96 << 20, "{dirty} blocks: {run}");
    }
    let against = &figures["comparisons"][0];
    assert!(against["p99_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0) && against["against"] == "quiet");
}

/// A pool of 64 MiB takes the first writes, and then they go on as fast as the origin takes them: that is found, told,
/// and drawn; and from there on the run counts.
#[test]
fn steady_runs_in_short_and_counts_from_where_it_settles() {
    if !has(&["fio"]) {
        return;
    }
    let _beside = machine::side_by_side();
    let (bench, figures) = runs_end_to_end("steady", &["--target", "pond=headpond:disk=cloud"]);
    let run = &figures["runs"][0];
    let settling = &run["settling"];
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!(
        settling["round"] == 1 && number(&settling["mean"]) > 0.0 && number(&settling["deviation"]) >= 0.0,
        "{run}"
    );
    // What counts is what is left of the 10 s: the part after it settled, or the last five rounds.
    let (warmup, counted) = (number(&run["warmup"]), number(&run["figures"]["seconds"]));
    assert!((warmup + counted - 10.0).abs() < 1.5 && counted >= 4.0, "{warmup} s of warm-up, {counted} s that count");
    let page = fs::read_to_string(bench.path("out/report.html")).expect("the page");
    assert!(page.contains("How it settled"));
    let steady = run["steadiness"]["steady"].as_bool().expect("judged");
    assert_eq!(settling["after"].is_number(), steady, "{run}");
    assert_eq!(page.contains("settles after"), steady, "{run}");
    assert_eq!(page.contains("is not steady: it never settled"), !steady, "{run}");
}

/// The published card through the same plan: fast while it is fresh, then a decline, then steady at a third of that.
#[test]
fn steady_on_a_modelled_card_declines_and_settles() {
    let bench = Bench::new();
    // A modelled second is a tenth of the card written over, so a round of two shows it while it is fresh.
    let shown = Command::new(machine::program()).args(["lab", "show", "steady"]).output().expect("headpond starts");
    let changed = String::from_utf8_lossy(&shown.stdout).replace("round = 60", "round = 2");
    let file = bench.path("fine.toml").display().to_string();
    fs::write(&file, changed).expect("written");
    let output = bench.run(&["run", &file, "--repeats", "1", "--seconds", "80", "--target", "model:tachion"]);
    assert!(output.status.success(), "{}", text(&output));
    let settled = &bench.figures()["points"][0]["sides"][0]["settled"];
    let number = |name: &str| settled[name].as_f64().expect("a number");
    assert!(number("after_s") >= 4.0 && number("mean") < number("first") / 2.0, "{settled}");
    // 417 MiB/s published for the full card.
    assert!((number("mean") * 16.0 / 1024.0 / 417.0 - 1.0).abs() < 0.12, "{settled}");
    assert!(text(&output).contains("settles after"), "{}", text(&output));
    let short = bench.command(&["run", "steady", "--seconds", "3", "--warmup", "2", "--plan"]).output();
    assert!(text(&short.expect("it starts")).contains("'steady' does not take --warmup"));
}

/// What ends before it is even is called so.
#[test]
fn a_run_that_never_settles_is_called_not_steady() {
    let bench = Bench::new();
    // All of it is the decline of a fresh card.
    let output = bench.run(&["run", "steady", "--repeats", "1", "--seconds", "8", "--target", "model:tachion"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("is not steady: it never settled"), "{}", text(&output));
    let settled = &bench.figures()["points"][0]["sides"][0]["settled"];
    assert!(settled["after_s"].is_null() && settled["runs"] == 0, "{settled}");
}

const DATABASE: [&str; 5] = ["mariadb", "mariadb-install-db", "sysbench", "fusermount3", "fio"];

/// On tables that are made once for all tests, behind a volume instead of a disk: a cold start of a server over an
/// arm takes longer than its load.
fn database_runs_end_to_end(name: &str) -> (Bench, Value) {
    let tables = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-tables").display().to_string();
    let mut words = vec!["--keep-tables", &tables, "--target", "pond=headpond:mode=write-back,disk=cloud"];
    if name == "oltp" {
        words.extend(["--target", "none=headpond:mode=pass-through,disk=cloud"]);
    }
    runs_end_to_end(name, &words)
}

#[test]
fn oltp_runs_in_short() {
    if !has(&DATABASE) {
        return;
    }
    let _beside = machine::side_by_side();
    database_runs_end_to_end("oltp");
}

#[test]
fn dbconfig_runs_in_short_with_the_settings_of_each_set() {
    if !has(&DATABASE) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = database_runs_end_to_end("dbconfig");
    let runs = figures["runs"].as_array().expect("runs");
    let with = |option: &str| runs.iter().filter(|run| run["commands"].to_string().contains(option)).count();
    assert_eq!((runs.len(), with("--innodb-read-io-threads=16"), with("--innodb-io-capacity=30000")), (6, 2, 2));
}

#[test]
fn a_rate_in_short_is_an_open_loop_and_the_page_says_so() {
    if !has(&DATABASE) {
        return;
    }
    let _beside = machine::side_by_side();
    let (bench, figures) = database_runs_end_to_end("rate");
    for run in figures["runs"].as_array().expect("runs") {
        assert!(run["commands"].to_string().contains("--rate="), "{run}");
    }
    let page = fs::read_to_string(bench.path("out/report.html")).expect("the page");
    assert!(page.contains("Open loop: transactions are due") && !page.contains("Closed loop"));
}

#[test]
fn thresholds_run_in_short_with_the_settings_of_each_variant() {
    if !has(&DATABASE) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = database_runs_end_to_end("thresholds");
    let expected = ["10 flush-period=30s", "10 flush-period=off", "50 flush-period=30s", "50 flush-period=off"];
    assert_eq!(settings_behind(&figures, "dirty-threshold="), expected);
}

/// What stands behind a word in the settings that mounts were given, each once, in order.
fn settings_behind<'a>(figures: &'a Value, word: &str) -> Vec<&'a str> {
    let runs = figures["runs"].as_array().expect("runs");
    let commands = runs.iter().flat_map(|run| run["commands"].as_array().expect("commands"));
    let given = commands.filter(|command| command[0] == "settings").filter_map(|command| command[1].as_str());
    let found: BTreeSet<&str> = given.filter_map(|text| text.split_once(word).map(|(_, rest)| rest)).collect();
    found.into_iter().collect()
}

#[test]
fn compression_runs_in_short_with_each_codec() {
    if !has(&DATABASE) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = database_runs_end_to_end("compression");
    assert_eq!(settings_behind(&figures, "compression="), ["lz4", "off", "zstd:1"]);
}

#[test]
fn untorn_runs_in_short_and_turns_the_doublewrite_off() {
    if !has(&DATABASE) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = database_runs_end_to_end("untorn");
    for run in figures["runs"].as_array().expect("runs") {
        let commands = run["commands"].to_string();
        let wanted = if run["side"] == 0 { "--innodb-doublewrite=1" } else { "--innodb-doublewrite=0" };
        let last = commands.rfind("--innodb-doublewrite=").expect("it is set");
        assert!(commands[last..].starts_with(wanted), "{commands}");
    }
}

#[test]
fn untorn_postgres_runs_in_short_and_leaves_whole_pages_out_of_the_log() {
    if !has(&["psql", "pgbench", "fusermount3", "fio"]) {
        return;
    }
    let _beside = machine::side_by_side();
    let (_bench, figures) = runs_end_to_end("untorn-postgres", &[]);
    let runs = figures["runs"].as_array().expect("runs");
    let last = |run: &Value| {
        let commands = run["commands"].to_string();
        let at = commands.rfind("full_page_writes=").expect("it is set");
        commands[at..].split(' ').next().map(str::to_owned)
    };
    let settings: Vec<_> = runs.iter().filter_map(last).collect();
    assert_eq!(settings, ["full_page_writes=on", "full_page_writes=on", "full_page_writes=off"], "ext4, mount, mount");
}

#[test]
fn an_interrupted_session_cleans_up_and_goes_on_where_it_was() {
    if !has(&["fio"]) {
        return;
    }
    let _beside = machine::side_by_side();
    let bench = Bench::new();
    let words = ["run", "profiles", "--quick", "--seconds", "1", "--warmup", "1", "--target", "headpond:disk=none"];
    let mut command = bench.command(&words);
    let mut child = command.arg("--out").arg(bench.path("out")).spawn().expect("headpond starts");
    let (first, start) = (bench.path("out/runs/0001.json"), Instant::now());
    while !first.exists() {
        assert!(start.elapsed() < Duration::from_secs(120), "no run ends");
        std::thread::sleep(Duration::from_millis(50));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is our child");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    bench.is_clean();
    let before = fs::read(&first).expect("the first run is kept");
    assert!(!bench.path("out/runs/0004.json").exists(), "it was not over yet");

    let out = bench.path("out").display().to_string();
    let again = bench.command(&["resume", &out]).output().expect("headpond starts");
    assert!(again.status.success(), "{}", text(&again));
    assert_eq!(fs::read(&first).expect("still there"), before, "what had ended is not run again");
    assert_eq!(bench.figures()["runs"].as_array().map(Vec::len), Some(4));
    bench.is_clean();
}

#[test]
fn a_step_that_fails_is_told_with_its_command_and_its_output() {
    if !has(&["fio"]) {
        return;
    }
    let _beside = machine::side_by_side();
    let bench = Bench::new();
    let file = bench.path("broken.toml");
    let shown = Command::new(machine::program()).args(["lab", "show", "sweep"]).output().expect("headpond starts");
    let changed = String::from_utf8_lossy(&shown.stdout).replace("libaio", "no-such-engine");
    fs::write(&file, changed).expect("written");
    let target = format!("a={}", bench.path("scratch").display());
    let output = bench.run(&["run", &file.display().to_string(), "--quick", "--target", &target]);
    assert_eq!(output.status.code(), Some(1));
    let text = text(&output);
    assert!(text.contains("command: fio --name=load") && text.contains("engine no-such-engine not loadable"), "{text}");
    assert!(text.contains("headpond lab resume"), "{text}");
    bench.is_clean();
}

#[test]
fn a_device_that_was_not_named_to_be_destroyed_is_not_touched() {
    let bench = Bench::new();
    let output = bench.run(&["run", "sweep", "--quick", "--target", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("--destroy /dev/zero"), "{}", text(&output));
    assert_eq!(fs::read_dir(bench.path("out/logs")).expect("it is there").count(), 0, "no load was started");
}

#[test]
fn a_plan_tells_time_and_bytes_and_does_nothing() {
    let bench = Bench::new();
    let output = bench.run(&["run", "fileio", "--plan"]);
    assert!(output.status.success() && text(&output).contains("272 runs"), "{}", text(&output));
    assert!(text(&output).contains("MiB of data") && !bench.path("out").exists());
}

/// `./demo` runs this very command.
#[test]
fn the_demo_is_run_like_any_experiment_and_refuses_what_it_does_not_have() {
    let bench = Bench::new();
    let lab = |words: &[&str]| Command::new(machine::program()).arg("lab").args(words).output().expect("it starts");
    assert!(text(&lab(&["list"])).contains("\ndemo "), "{}", text(&lab(&["list"])));
    let plan = bench.run(&["run", "demo", "--quick", "--plan"]);
    assert!(plan.status.success() && text(&plan).contains("5 s of warm-up and 20 s that count"), "{}", text(&plan));
    assert!(text(&plan).contains("modelled 7,200 rpm disk") && !bench.path("out").exists());
    bench.is_clean();
    for words in [["run", "demo", "--target", "/slow"], ["run", "demo", "--repeats", "3"]] {
        let refused = lab(&words);
        assert!(refused.status.code() == Some(1) && text(&refused).contains(words[2]), "{}", text(&refused));
    }
    let refused = lab(&["run", "oltp", "--origin", "/slow", "--flash", "/nvme"]);
    assert!(text(&refused).contains("--origin belongs to 'headpond lab run demo'"), "{}", text(&refused));
}

/// Chromium without a window on a file; what it made of it, and what it complained of.
fn browsed(bench: &Bench, file: &Path, more: &[&str]) -> (String, String) {
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", bench.path("browser").display()))
        .args(more)
        .args(["--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("chromium starts");
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Each picture is a file that is drawn by itself, in its own colours: on white, and on a dark screen on dark.
fn pictures_stand_alone(bench: &Bench) {
    let files: Vec<_> = fs::read_dir(bench.path("out/pictures")).expect("pictures").flatten().collect();
    assert!(files.len() >= 4, "{files:?}");
    let svg = fs::read_to_string(bench.path("out/pictures/throughput-0.svg")).expect("a picture");
    // Drawn as an image is, which can load nothing else; then its colours are counted.
    let page = format!(
        "<body><canvas width=900 height=400></canvas><script>const image=new Image();image.onload=()=>{{\
         const c=document.querySelector('canvas').getContext('2d');c.drawImage(image,0,0);\
         const d=c.getImageData(0,0,900,400).data,n={{}};for(let i=0;i<d.length;i+=4){{\
         const k=[d[i],d[i+1],d[i+2],d[i+3]].join();n[k]=(n[k]||0)+1;}}\
         document.body.dataset.colours=Object.keys(n).filter(k=>n[k]>40).join(' ');}};\
         image.src='data:image/svg+xml,'+encodeURIComponent({});</script></body>",
        Value::from(svg)
    );
    let file = bench.path("out/alone.html");
    fs::write(&file, page).expect("written");
    // Ground, first and second line.
    let light = ["255,255,255,255", "180,84,10,255", "11,99,181,255"];
    let dark = ["28,32,38,255", "240,153,79,255", "95,176,255,255"];
    for (scheme, wanted) in [("1", light), ("0", dark)] {
        let (dom, log) = browsed(bench, &file, &[&format!("--blink-settings=preferredColorScheme={scheme}")]);
        let found = dom.split("data-colours=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let lacking: Vec<_> = wanted.iter().filter(|colour| !found.split(' ').any(|one| one == **colour)).collect();
        assert!(lacking.is_empty(), "scheme {scheme}: {lacking:?} of {found}\n{log}");
    }
}

/// In a real browser: the page is drawn, its script ends without an error, and each figure is the one in the JSON.
#[test]
fn the_page_works_in_a_browser_and_its_numbers_are_those_of_the_json() {
    if !has(&["chromium"]) {
        return;
    }
    let _beside = machine::side_by_side();
    let bench = Bench::new();
    let words = ["run", "fill", "--repeats", "4", "--target", "model:tachion", "--target", "model:iodrive-duo"];
    assert!(bench.run(&words).status.success());
    let figures = bench.figures();
    let page = bench.path("out/report.html");
    // A drag across the first picture, as a hand would do it.
    let drag = "<script>{const s=document.querySelector('figure[data-zoom=\"true\"] svg'),b=s.getBoundingClientRect();\
        for(const[t,x]of[['pointerdown',.3],['pointermove',.5],['pointerup',.6]])\
        s.dispatchEvent(new PointerEvent(t,{clientX:b.left+b.width*x,clientY:b.top+50,bubbles:true}));}</script></body>";
    let dragged = bench.path("out/dragged.html");
    let html = fs::read_to_string(&page).expect("the page");
    assert!(!html.contains("http://") || !html.contains("src=\"http"), "it needs no network");
    fs::write(&dragged, html.replace("</body>", drag)).expect("written");
    let (dom, log) = browsed(&bench, &dragged, &[]);
    assert!(dom.contains("data-runs=\"72\""), "the script ran to its end: {log}");
    assert!(!log.contains("CONSOLE"), "{log}");
    assert!(dom.matches("<svg").count() >= 4 && dom.matches("<circle").count() > 30, "pictures are drawn");
    let zoomed = dom.matches("preserveAspectRatio=\"none\"").count();
    assert_eq!(zoomed, 1, "the drag looks closer at one picture");
    let cells: Vec<(&str, &str)> = dom
        .split("data-place=\"")
        .skip(1)
        .filter_map(|part| {
            let (place, rest) = part.split_once("\">")?;
            Some((place, rest.split('<').next()?))
        })
        .collect();
    assert!(cells.len() > 100, "{}", cells.len());
    for (place, shown) in cells {
        let number = figures.pointer(place).and_then(Value::as_f64).unwrap_or_else(|| panic!("{place} is in the JSON"));
        assert_eq!(headpond_lab::experiment::judge::short(number), shown, "{place}");
    }
    pictures_stand_alone(&bench);
}

/// A case for each of the kernel's caches, as short as it can be: the shipped file has four, which take minutes.
const KERNEL_CACHES: &str = r#"
name = "kernel-caches"
title = "short"
question = "Does each cache work in its guest?"
source = "kernel-caches"
load = "fio"
seconds = 1
warmup = 0
repeats = 1
size = 32
flash = 64
targets = ["guest:none", "guest:bcache-write-back", "guest:bcache-write-through", "guest:dm-cache", "guest:dm-writecache", "guest:headpond"]

[[case]]
name = "80/20"
rw = "randrw"
reads = 80
block = 8
depth = 8
engine = "libaio"

[quick]
seconds = 1
warmup = 0
repeats = 1
size = 32
flash = 64
"#;

#[test]
fn each_kernel_cache_and_headpond_run_in_a_guest_and_the_origin_alone_has_their_bytes() {
    if !machine::lacks_nothing(kernel_caches::missing()) {
        return;
    }
    let _beside = machine::side_by_side();
    let file = machine::scratch("lab-test-");
    let path = file.path().join("short.toml");
    fs::write(&path, KERNEL_CACHES).expect("written");
    let (bench, figures) = runs_end_to_end(path.to_str().expect("a name"), &[]);
    let sides = figures["sides"].as_array().expect("sides");
    for run in figures["runs"].as_array().expect("runs") {
        let side = sides[run["side"].as_u64().expect("a number") as usize]["name"].as_str().expect("a name");
        // Every cache tells what reads found in it; no cache finds nothing.
        assert_eq!(run["reads"].as_array().is_some_and(|reads| !reads.is_empty()), side != "none", "{run}");
        assert!(run["waited"].as_f64().is_some_and(|share| (0.0..1.0).contains(&share)), "{run}");
        // A guest writes to its flash, and without a cache it has none to write to.
        let flash = |system: &Value| system["flash_written"].as_f64().unwrap_or(0.0);
        let written: f64 = run["system"].as_array().expect("samples").iter().map(flash).sum();
        assert!(side != "none" || written == 0.0, "{run}");
    }
    // Nothing goes on that was started for it.
    let scratch = bench.path("scratch").display().to_string();
    for process in fs::read_dir("/proc").expect("processes").flatten() {
        let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        assert!(!words.contains(&scratch), "{words}");
    }
}

/// The control: bytes that the load changed behind the check are found.
#[test]
fn a_block_that_differs_after_a_load_in_a_guest_fails_the_run() {
    if !machine::lacks_nothing(kernel_caches::missing()) {
        return;
    }
    let _beside = machine::side_by_side();
    let scratch = machine::scratch("lab-test-");
    let lay_out = |file: &Path| {
        let mut command = Command::new("truncate");
        command.arg("--size=8M").arg(file);
        command
    };
    let origin = kernel_caches::GuestOrigin::make(scratch.path(), 8, lay_out).expect("an origin");
    let mut load = Command::new("dd");
    load.args(["if=/dev/zero", "of=checked", "bs=4096", "count=1", "seek=1200", "conv=notrunc"]);
    let run = kernel_caches::GuestRun {
        cache: kernel_caches::GuestCache::DmWritecache,
        throttle: Throttle::VOLUME_200,
        flash_mib: 64,
        headpond: machine::program(),
        load: &load,
        takes: Duration::ZERO,
        seed: 7,
    };
    let failure = run.run(&origin, scratch.path(), || {}).err().expect("a block differs").to_string();
    assert!(failure.contains("bytes differ") && failure.contains("after the load"), "{failure}");
}

#[test]
fn a_guest_that_lacks_something_is_refused_with_the_package_that_has_it() {
    let bench = Bench::new();
    // No PATH has none of the programs.
    let mut command = bench.command(&["run", "kernel-caches", "--quick", "--target", "guest:none"]);
    let output = command.env("PATH", bench.path("nothing")).arg("--out").arg(bench.path("out")).output();
    let said = text(&output.expect("headpond starts"));
    assert!(said.contains("qemu-system-common") && said.contains("user-mode-linux"), "{said}");
    bench.is_clean();
}
