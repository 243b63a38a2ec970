//! Rules, on a mount and with real processes: which requests of which programs the pool takes.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::lacking::lacks_nothing;
use crate::pond::{Pond, SIZE, Said, pattern, run, wait_until, write_and_sync};

const MIB: u64 = 1 << 20;

pub fn rules(pond: &Pond, what: &str, more: &[&str]) -> Said {
    let mnt = pond.mnt();
    run(["rules", what].map(OsStr::new).into_iter().chain([mnt.as_os_str()]).chain(more.iter().map(OsStr::new)))
}

fn listed(pond: &Pond) -> Vec<serde_json::Value> {
    rules(pond, "list", &["--json"]).ok().json().as_array().unwrap().clone()
}

/// A mount over an origin with some cold files of a mebibyte.
fn pond_with(files: &[&str]) -> Pond {
    let pond = Pond::new();
    fs::create_dir(pond.origin().join("db")).unwrap();
    for (index, name) in files.iter().enumerate() {
        fs::write(pond.origin().join(name), pattern(MIB as usize, index as u64)).unwrap();
    }
    pond.mount(&["--size", SIZE]).ok();
    pond
}

/// `dd` under another name.
fn program(pond: &Pond, name: &str) -> PathBuf {
    pond.program("/bin/dd", name)
}

fn dd(program: &PathBuf, arguments: &[String]) {
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "{arguments:?}");
}

fn read(program: &PathBuf, pond: &Pond, file: &str, flags: &str) {
    let from = format!("if={}", pond.mnt().join(file).display());
    dd(program, &[from, "of=/dev/null".into(), "bs=1M".into(), format!("iflag={flags}")]);
}

fn number(pond: &Pond, name: &str) -> u64 {
    pond.status()[name].as_u64().unwrap()
}

/// Bytes that are cached, on flash or, as long as they are new, in memory.
fn cached(pond: &Pond) -> u64 {
    let status = pond.status();
    status["cached_bytes"].as_u64().unwrap() + status["engine"]["memory_blocks"].as_u64().unwrap() * 4096
}

#[test]
fn everything_is_cached_but_the_backup_with_direct_and_with_buffered_reads() {
    let pond = pond_with(&["db/direct", "db/buffered", "db/other"]);
    rules(&pond, "add", &["name=backupper", "action=bypass"])
        .ok()
        .refused(0, &["rule 1: name=backupper action=bypass"]);
    let backup = program(&pond, "backupper");
    read(&backup, &pond, "db/direct", "direct");
    read(&backup, &pond, "db/buffered", "fullblock");
    assert_eq!(cached(&pond), 0, "the backup leaves nothing behind");
    let rule = &listed(&pond)[0];
    assert_eq!(rule["bytes"], 2 * MIB, "readahead is on behalf of who reads: {rule}");
    read(&PathBuf::from("/bin/dd"), &pond, "db/other", "direct");
    assert_eq!(cached(&pond), MIB);
    // What is in the pool is served to it all the same, and what is dirty is never missed.
    let misses = number(&pond, "read_miss_blocks");
    read(&backup, &pond, "db/other", "direct");
    assert_eq!(number(&pond, "read_miss_blocks"), misses);
    write_and_sync(&pond.mnt().join("db/direct"), &pattern(MIB as usize, 77));
    let copy = pond.at("copy");
    dd(
        &backup,
        &[
            format!("if={}", pond.mnt().join("db/direct").display()),
            format!("of={}", copy.display()),
            "bs=1M".into(),
            "iflag=direct".into(),
        ],
    );
    assert!(fs::read(copy).unwrap() == pattern(MIB as usize, 77));
    let stats = fs::read_to_string(pond.mnt().join(".headpond/stats")).unwrap();
    let latency = |line: &&str| line.strip_prefix("latency_read_bypass_count ").is_some_and(|count| count != "0");
    assert!(stats.lines().any(|line| latency(&line)), "{stats}");
    pond.unmount(&[]).ok();
}

#[test]
fn nothing_is_cached_but_the_database() {
    let pond = pond_with(&["db/one", "db/two"]);
    rules(&pond, "add", &["action=bypass"]).ok();
    rules(&pond, "add", &["name=databased", "action=cache", "--before", "1"]).ok();
    let (database, other) = (program(&pond, "databased"), program(&pond, "somebody"));
    read(&other, &pond, "db/one", "direct");
    assert_eq!(cached(&pond), 0);
    read(&database, &pond, "db/two", "direct");
    assert_eq!(cached(&pond), MIB);
    // A write past the cache is at the origin, and what the pool had of it is not seen any more.
    let write = |program: &PathBuf, seed: u64| {
        let source = pond.at("source");
        fs::write(&source, pattern(MIB as usize, seed)).unwrap();
        let to = format!("of={}", pond.mnt().join("db/two").display());
        dd(
            program,
            &[
                format!("if={}", source.display()),
                to,
                "bs=1M".into(),
                "oflag=direct".into(),
                "conv=notrunc,fsync".into(),
            ],
        );
    };
    write(&database, 5);
    assert_eq!(number(&pond, "dirty_bytes"), MIB);
    write(&other, 6);
    assert!(fs::read(pond.origin().join("db/two")).unwrap() == pattern(MIB as usize, 6));
    assert!(fs::read(pond.mnt().join("db/two")).unwrap() == pattern(MIB as usize, 6));
    let counted: Vec<u64> = listed(&pond).iter().map(|rule| rule["requests"].as_u64().unwrap()).collect();
    assert!(counted.iter().all(|count| *count > 0), "{counted:?}");
    rules(&pond, "list", &[]).ok().refused(0, &["requests", "name=databased action=cache", "action=bypass"]);
    let sheet = fs::read_to_string(pond.mnt().join(".headpond/rules")).unwrap();
    assert!(sheet.lines().nth(1).unwrap().ends_with(" name=databased action=cache"), "{sheet}");
    pond.unmount(&[]).ok();
}

#[test]
fn rules_on_paths_sizes_and_directions_decide_in_their_order_and_live() {
    let pond = pond_with(&["db/log.tmp", "db/table.ibd", "top.ibd"]);
    let dd = PathBuf::from("/bin/dd");
    rules(&pond, "add", &["ext=tmp", "action=bypass"]).ok();
    rules(&pond, "add", &["path=db/*", "direction=read", "min-size=512K", "action=bypass"]).ok();
    read(&dd, &pond, "db/log.tmp", "direct");
    read(&dd, &pond, "db/table.ibd", "direct");
    assert_eq!(cached(&pond), 0);
    read(&dd, &pond, "top.ibd", "direct");
    assert_eq!(cached(&pond), MIB);
    // A file that is renamed is what its name is now.
    fs::rename(pond.mnt().join("db/log.tmp"), pond.mnt().join("log.keep")).unwrap();
    read(&dd, &pond, "log.keep", "direct");
    assert_eq!(cached(&pond), 2 * MIB);
    // A file that is open meets the rules of now.
    let held = fs::File::open(pond.mnt().join("db/table.ibd")).unwrap();
    rules(&pond, "remove", &["2"]).ok();
    read(&dd, &pond, "db/table.ibd", "direct");
    assert_eq!(cached(&pond), 3 * MIB);
    drop(held);
    assert_eq!(listed(&pond).len(), 1);
    pond.unmount(&[]).ok();
}

#[test]
fn rules_are_kept_over_a_crash_and_a_stop_and_without_what_cannot_be_kept() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    rules(&pond, "add", &["command=*dump --all \"q\"*", "user=root", "for=1h", "action=bypass"]).ok();
    rules(&pond, "add", &["name=first", "action=read-only", "--before", "1"]).ok();
    let before: Vec<String> = listed(&pond).iter().map(|rule| rule["rule"].to_string()).collect();
    pond.kill(daemon);
    pond.mount(&[]).ok();
    let rules_of = |pond: &Pond| listed(pond).iter().map(|rule| rule["rule"].to_string()).collect::<Vec<_>>();
    assert_eq!(rules_of(&pond), before);
    pond.unmount(&[]).ok();
    pond.mount(&[]).ok();
    assert_eq!(rules_of(&pond), before);
    assert!(listed(&pond)[1]["state"].as_str().unwrap().starts_with("until "), "{:?}", listed(&pond));
    // Settings and rules do not push each other out.
    let long = format!("path={}", "x".repeat(250));
    let mut refused = None;
    for _ in 0..20 {
        let said = rules(&pond, "add", &[&long, "action=cache"]);
        if said.status != 0 {
            refused = Some(said);
            break;
        }
    }
    refused.expect("there is an end").refused(2, &["a pool keeps", "Nothing was changed"]);
    run([OsStr::new("set"), pond.mnt().as_os_str(), OsStr::new("flush-period=10s")]).ok();
    pond.unmount(&[]).ok();
}

#[test]
fn a_rule_on_a_process_ends_with_it_and_one_for_a_time_with_that() {
    let pond = pond_with(&["db/one"]);
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = format!("pid={}", sleeper.id());
    rules(&pond, "add", &[&pid, "action=bypass"]).ok();
    rules(&pond, "test", &[&pid]).ok().refused(0, &["bypass: rule 1 decides"]);
    rules(&pond, "add", &["for=1s", "path=db/**", "action=bypass"]).ok();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    wait_until("both are over", || {
        let states: Vec<String> = listed(&pond).iter().map(|rule| rule["state"].as_str().unwrap().to_owned()).collect();
        states == ["its process has ended", "expired"]
    });
    rules(&pond, "test", &[&pid]).refused(2, &["no process"]);
    rules(&pond, "test", &["path=db/one"]).ok().refused(0, &["no rule matches"]);
    rules(&pond, "add", &["pid=4194304", "action=bypass"]).refused(2, &["there is no process"]);
    pond.unmount(&[]).ok();
}

#[test]
fn a_wrong_rule_is_refused_and_a_dry_run_changes_nothing() {
    let pond = pond_with(&["db/one"]);
    read(&PathBuf::from("/bin/dd"), &pond, "db/one", "direct");
    for (wrong, says) in [
        (&["name=x"][..], "needs an action"),
        (&["action=fast"], "one of cache, bypass"),
        (&["colour=red", "action=cache"], "unknown key 'colour'"),
        (&["user=nobody-like-this", "action=cache"], "id -u"),
        (&["action=pin"], "quota=2G"),
        (&["action=cache", "quota=2G"], "has no quota"),
        (&["action=cache", "--before", "9"], "no rule 9"),
    ] {
        rules(&pond, "add", wrong).refused(2, &[says, "Nothing was changed"]);
    }
    rules(&pond, "remove", &["1"]).refused(2, &["no rule 1"]);
    let said = rules(&pond, "add", &["path=db/*", "action=bypass", "--dry-run"]);
    said.ok().refused(0, &["would be rule 1: path=db/* action=bypass", "would match", "db/one"]);
    assert!(listed(&pond).is_empty());
    rules(&pond, "list", &[]).ok().refused(0, &["no rules"]);
    let verdict = rules(&pond, "test", &["name=x", "path=db/one", "direction=write", "size=1M", "--json"]).ok().json();
    assert_eq!((&verdict["action"], &verdict["decided_by"]), (&"cache".into(), &serde_json::Value::Null));
    pond.unmount(&[]).ok();
}

#[test]
fn who_asks_is_known_for_direct_and_buffered_requests_and_hidden_where_the_kernel_writes_mapped_pages() {
    let pond = pond_with(&["db/one"]);
    let worker = program(&pond, "worker");
    read(&worker, &pond, "db/one", "fullblock");
    let to = format!("of={}", pond.mnt().join("new").display());
    dd(&worker, &["if=/dev/zero".into(), to.clone(), "bs=64K".into(), "count=4".into(), "conv=fsync".into()]);
    dd(&worker, &["if=/dev/zero".into(), to, "bs=64K".into(), "count=4".into(), "oflag=direct".into()]);
    let processes = || fs::read_to_string(pond.mnt().join(".headpond/processes")).unwrap();
    // A process that has ended within a moment may have no name.
    let total = |name: &str, column: usize| -> u64 {
        let of_name =
            |line: &&str| line.ends_with(&format!(" {name}")) || name == "worker" && line.ends_with(" (ended)");
        processes()
            .lines()
            .filter(of_name)
            .map(|line| line.split_whitespace().nth(column).unwrap().parse::<u64>().unwrap())
            .sum()
    };
    assert!(total("worker", 0) + total("worker", 1) >= MIB && total("worker", 3) >= 512 << 10, "{}", processes());
    assert_eq!(total("(kernel)", 3), 0, "{}", processes());
    let mapped = pond.mnt().join("mapped");
    fs::write(&mapped, vec![0; 256 << 10]).unwrap();
    let fio = Command::new("fio")
        .args([
            "--name=mapped",
            "--ioengine=mmap",
            "--rw=write",
            "--bs=4k",
            "--size=256k",
            "--end_fsync=1",
            "--minimal",
        ])
        .arg(format!("--filename={}", mapped.display()))
        .stdin(Stdio::null())
        .output();
    match fio {
        Ok(output) if output.status.success() => {
            let kernel: u64 = total("(kernel)", 3);
            assert!(kernel >= 256 << 10, "{}", processes());
        }
        result => {
            lacks_nothing(Some(format!("fio: {result:?}")));
        }
    }
    pond.unmount(&[]).ok();
}

#[test]
fn counting_that_is_off_stays_off_over_a_restart() {
    let pond = pond_with(&["db/one"]);
    rules(&pond, "add", &["action=cache"]).ok();
    let (set, mnt) = (OsStr::new("set"), pond.mnt());
    let reader = PathBuf::from("/bin/dd");
    let requests = || {
        read(&reader, &pond, "db/one", "direct");
        listed(&pond)[0]["requests"].as_u64().unwrap()
    };
    run([set, mnt.as_os_str(), OsStr::new("counting=off")]).ok();
    assert_eq!(requests(), 0);
    pond.unmount(&[]).ok();
    pond.mount(&["--size", SIZE]).ok();
    assert_eq!(requests(), 0);
    run([set, mnt.as_os_str(), OsStr::new("counting=on")]).ok();
    assert!(requests() > 0);
    pond.unmount(&[]).ok();
}

#[test]
fn what_is_pinned_stays_while_three_times_the_pool_goes_by_and_a_share_is_kept_to() {
    let pond = pond_with(&["db/pinned", "db/other"]);
    fs::write(pond.origin().join("db/large"), pattern(3 * 64 * MIB as usize, 9)).unwrap();
    // No policy that would keep by itself what is read again.
    run([OsStr::new("set"), pond.mnt().as_os_str(), OsStr::new("sequential-cutoff=off"), OsStr::new("policy=fifo")])
        .ok();
    rules(&pond, "add", &["path=db/pinned", "action=pin", "quota=2M"]).ok();
    rules(&pond, "add", &["path=db/large", "direction=read", "action=share", "quota=20%"]).ok();
    let reader = PathBuf::from("/bin/dd");
    let missed = |file: &str| {
        let before = number(&pond, "read_miss_blocks");
        read(&reader, &pond, file, "direct");
        number(&pond, "read_miss_blocks") - before
    };
    let amount = |rule: usize, name: &str| listed(&pond)[rule][name].as_u64().unwrap();
    assert!(missed("db/pinned") > 0);
    missed("db/large");
    let (held, quota) = (amount(1, "held_bytes"), amount(1, "quota_bytes"));
    assert!(held <= quota && held * 2 > quota, "{held} of {quota}");
    assert!(cached(&pond) <= held + 2 * MIB, "nothing else was read");
    // Without a share it takes all there is, but for what is pinned.
    rules(&pond, "remove", &["2"]).ok();
    assert!(missed("db/other") > 0);
    let goes = |_| {
        missed("db/large");
        assert_eq!(missed("db/pinned"), 0);
        missed("db/other") > 0
    };
    assert!((0..10).any(goes), "what is not pinned goes");
    assert_eq!((amount(0, "held_bytes"), amount(0, "quota_bytes")), (MIB, 2 * MIB));
    rules(&pond, "list", &[]).ok().refused(0, &["path=db/pinned action=pin quota=2M    # holds 1 MiB of 2 MiB"]);
    let sheet = fs::read_to_string(pond.mnt().join(".headpond/rules")).unwrap();
    assert!(sheet.contains("holds 1 MiB of 2 MiB"), "{sheet}");
    // The same after a restart.
    pond.unmount(&[]).ok();
    pond.mount(&["--size", SIZE]).ok();
    missed("db/large");
    assert_eq!(missed("db/pinned"), 0);
    assert_eq!(amount(0, "held_bytes"), MIB);
    pond.unmount(&[]).ok();
}

#[test]
fn files_are_packed_as_the_rule_for_their_path_says_and_numbers_show_how_well() {
    let pond = Pond::new();
    fs::create_dir(pond.origin().join("db")).unwrap();
    pond.mount(&["--size", SIZE]).ok();
    rules(&pond, "add", &["path=db/**", "action=cache", "compression=gzip"]).refused(2, &["off, lz4, zstd"]);
    rules(&pond, "add", &["path=db/**", "action=bypass", "compression=lz4"])
        .refused(2, &["does not go with action=bypass"]);
    rules(&pond, "add", &["ext=jpg", "action=cache", "compression=off"]).ok();
    rules(&pond, "add", &["path=db/**", "action=cache", "compression=zstd:1"]).ok();
    let tested = rules(&pond, "test", &["path=db/t.ibd", "direction=write"]);
    tested.ok();
    assert!(tested.text.contains("compression=zstd:1"), "{tested:?}");
    run([OsStr::new("set"), pond.mnt().as_os_str(), OsStr::new("compression-from=0%")]).ok();
    let shrinks = b"a page of a table, more or less. ".repeat(MIB as usize / 32);
    // The first request asks for a superblock that says so.
    write_and_sync(&pond.mnt().join("db/first"), b"x");
    wait_until("records are packed", || {
        write_and_sync(&pond.mnt().join("db/first"), &shrinks[..1 << 16]);
        number(&pond, "packed_bytes") > 0
    });
    for name in ["db/table.ibd", "db/picture.jpg", "other"] {
        write_and_sync(&pond.mnt().join(name), &shrinks);
    }
    let stored = || {
        let mnt = pond.mnt();
        let numbers = run([OsStr::new("stats"), mnt.as_os_str(), OsStr::new("--json")]).ok().json();
        ["db/table.ibd", "db/picture.jpg", "other"].map(|name| {
            let file = numbers["files"].as_array().unwrap().iter().find(|file| file["path"] == name).unwrap().clone();
            file["stored_bytes"].as_f64().unwrap() / file["cached_bytes"].as_f64().unwrap()
        })
    };
    let as_the_rules_say = |[table, picture, other]: [f64; 3]| table < 0.3 && picture > 0.99 && other > 0.99;
    let before = stored();
    assert!(as_the_rules_say(before), "{before:?}");
    pond.unmount(&[]).ok();
    pond.mount(&[]).ok();
    for name in ["db/table.ibd", "db/picture.jpg", "other"] {
        assert!(fs::read(pond.mnt().join(name)).unwrap() == shrinks, "{name}");
        write_and_sync(&pond.mnt().join(name), &shrinks);
    }
    let after = stored();
    assert!(as_the_rules_say(after), "after another mount: {after:?}");
    pond.unmount(&[]).ok();
}
