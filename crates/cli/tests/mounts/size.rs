//! `headpond size`: a known load has a known answer, from a trace and from a mount; where there is none, it says so.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::pond::{Pond, SIZE, Said, headpond, pattern, run, wait_until, write_and_sync};
use crate::several_devices::mount_over;

fn size(from: &Path, more: &[&str]) -> Said {
    run([OsStr::new("size"), from.as_os_str()].into_iter().chain(more.iter().map(OsStr::new)))
}

/// A trace of these blocks, as other tools write it.
fn trace(pond: &Pond, blocks: impl Iterator<Item = u64>) -> std::path::PathBuf {
    let path = pond.at("load.trace");
    let mut text = String::new();
    blocks.for_each(|block| writeln!(text, "{block}").unwrap());
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_loop_asks_for_the_smallest_pool_that_keeps_it() {
    const BLOCKS: u64 = 60_000;
    let pond = Pond::new();
    let path = trace(&pond, (0..BLOCKS * 8).map(|at| at % BLOCKS));
    let json = size(&path, &["--json"]).ok().json();
    assert_eq!((&json["source"], &json["verdict"]), (&"trace".into(), &"knee".into()), "{json}");
    let kept = |point: &serde_json::Value| point["kept_bytes"].as_u64().unwrap();
    let curve = json["curve"].as_array().unwrap();
    let first = curve.iter().position(|point| kept(point) >= BLOCKS * 4096).unwrap();
    assert_eq!(json["knee"], curve[first]);
    assert!(curve[..first].iter().all(|point| point["hit_ratio"].as_f64() < json["knee"]["hit_ratio"].as_f64()));
    assert_eq!(json["knee"]["hit_ratio"].as_f64().unwrap(), 0.875, "one round of eight is new");
    let gib = json["knee"]["pool_bytes"].as_u64().unwrap() >> 20;
    size(&path, &[]).refused(0, &[&format!("--size {gib}M"), "->", "keeps everything"]);
}

#[test]
fn a_trace_that_says_nothing_gets_no_answer() {
    let pond = Pond::new();
    let path = trace(&pond, 0..50_000);
    let json = size(&path, &["--json"]).ok().json();
    assert_eq!((&json["verdict"], &json["knee"]), (&"too-short".into(), &serde_json::Value::Null), "{json}");
    size(&path, &[]).refused(0, &["too short to say", "Record for longer"]);
    let path = trace(&pond, (0..500).map(|at| at % 10));
    assert_eq!(size(&path, &["--json"]).ok().json()["verdict"], "too-short", "few reads");
    fs::write(pond.at("writes.csv"), "time,key,bytes,op\n1,4096,4096,W\n2,4096,4096,W\n").unwrap();
    let json = size(&pond.at("writes.csv"), &["--unit", "512", "--json"]).ok().json();
    assert_eq!(json["verdict"], "no-reads");
    fs::write(pond.at("nothing"), "").unwrap();
    size(&pond.at("nothing"), &[]).refused(2, &["--format"]);
    size(&pond.at("missing"), &[]).refused(1, &["missing"]);
}

/// Reads a file past the page cache, in another order than its own.
fn read_all(path: &Path, piece: usize) {
    let file = OpenOptions::new().read(true).custom_flags(0o40000).open(path).unwrap();
    let pieces = file.metadata().unwrap().len() / piece as u64;
    let mut memory = vec![0; piece + 4096];
    let at = memory.as_ptr().align_offset(4096);
    for number in 0..pieces {
        // 389 divides no power of two: each piece comes once.
        file.read_exact_at(&mut memory[at..at + piece], number * 389 % pieces * piece as u64).unwrap();
    }
}

#[test]
fn what_was_recorded_on_a_mount_and_the_mount_itself_give_an_answer() {
    let pond = Pond::new();
    write_and_sync(&pond.origin().join("small"), &pattern(1 << 20, 1));
    pond.mount(&["--size", SIZE]).ok();
    size(&pond.mnt(), &[]).refused(0, &["Nothing was read"]);
    let path = pond.at("trace");
    let mut command = headpond();
    command.args(["record", "--quiet", "--to"]).arg(&path).arg(pond.mnt()).args(["--for", "60s"]);
    let mut recording = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("the recording has begun", || path.exists());
    let small = pond.mnt().join("small");
    // It may begin a little later than its file. Its first piece is there before the others are asked for, so that a cut
    // leaves one.
    let begun = || fs::metadata(&path).is_ok_and(|file| file.len() > 8 << 10);
    wait_until("the first requests are in the trace", || {
        read_all(&small, 4096);
        begun()
    });
    (0..32).for_each(|_| read_all(&small, 4096));
    assert!(Command::new("kill").args(["-INT", &recording.id().to_string()]).status().unwrap().success());
    assert!(recording.wait().unwrap().success());
    let json = size(&path, &["--json"]).ok().json();
    assert_eq!((&json["verdict"], &json["one_of"]), (&"knee".into(), &1.into()), "{json}");
    assert_eq!(json["knee"]["pool_bytes"], 64 << 20, "the smallest pool");
    assert_eq!(json["footprint_bytes"], 1 << 20);
    run([OsStr::new("replay"), path.as_os_str()]).refused(0, &["references of 256 blocks"]);
    let json = size(&pond.mnt(), &["--json"]).ok().json();
    assert_eq!((&json["source"], &json["verdict"]), (&"mount".into(), &"enough".into()), "{json}");
    // Cut in the middle: what is there is used, and the answer says so.
    let bytes = fs::read(&path).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(bytes.len() as u64 * 3 / 4).unwrap();
    size(&path, &[]).refused(0, &["cut or damaged", "--size 64M"]);
    pond.unmount(&[]).ok();
}

#[test]
fn of_several_devices_the_size_is_that_of_all_and_second_copies_are_taken_off() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(4 << 20, 1));
    // Read past the pages that the write left in memory.
    read_all(&pond.mnt().join("file"), 4096);
    let point = || size(&pond.mnt(), &["--json"]).ok().json()["curve"][0].clone();
    let bytes = |point: &serde_json::Value, name: &str| point[name].as_u64().unwrap();
    let dirty = point();
    assert_eq!(bytes(&dirty, "pool_bytes"), 128 << 20, "{dirty}");
    size(&pond.mnt(), &[]).refused(0, &["all devices together", "second copies"]);
    pond.flush().ok();
    let clean = point();
    let copies = bytes(&clean, "kept_bytes") - bytes(&dirty, "kept_bytes");
    assert!((4 << 20..6 << 20).contains(&copies), "4 MiB were dirty, and on both: {copies}");
    pond.unmount(&[]).ok();
}

#[test]
fn a_mount_whose_load_is_twice_its_pool_says_that_more_flash_helps() {
    let pond = Pond::new();
    write_and_sync(&pond.origin().join("large"), &pattern(96 << 20, 1));
    pond.mount(&["--size", SIZE]).ok();
    (0..6).for_each(|_| read_all(&pond.mnt().join("large"), 64 << 10));
    let json = size(&pond.mnt(), &["--json"]).ok().json();
    assert_eq!(json["verdict"], "more-helps", "{json}");
    let curve = json["curve"].as_array().unwrap();
    let ratio = |point: &serde_json::Value| point["hit_ratio"].as_f64().unwrap();
    assert!(ratio(&curve[curve.len() - 1]) > ratio(&curve[0]) + 0.1, "{json}");
    assert!(curve.windows(2).all(|two| ratio(&two[0]) <= ratio(&two[1])));
    size(&pond.mnt(), &[]).refused(0, &["More flash helps", "headpond record"]);
    // The estimate is not of the policy: with another, what was seen before still counts.
    Said::from(headpond().args(["set"]).arg(pond.mnt()).arg("policy=lru").output().unwrap()).ok();
    size(&pond.mnt(), &[]).refused(0, &["More flash helps"]);
    let metrics = Said::from(headpond().args(["stats", "--json"]).arg(pond.mnt()).output().unwrap()).ok().json();
    let [missed, double] = ["read_miss_bytes_total", "regretted_double_bytes_total"];
    let [missed, saved] = [missed, double].map(|name| metrics["metrics"][name].as_f64().unwrap());
    let of_page = curve[3]["missed_blocks"].as_f64().unwrap() * 4096.0;
    assert_eq!(missed - saved, of_page, "the page, the metrics and this command say the same: {json}");
    pond.unmount(&[]).ok();
}
