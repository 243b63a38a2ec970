//! `headpond flush`: of everything or a part, waited for or followed by its handle, and always with an end.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::pond::{Pond, SIZE, Said, pattern, run, wait_until, write_and_sync};

fn flush(pond: &Pond, more: &[&str]) -> Said {
    let mnt = pond.mnt();
    run([OsStr::new("flush"), mnt.as_os_str()].into_iter().chain(more.iter().map(OsStr::new)))
}

/// A mount with more dirty data, all over a file, than its slow origin takes in a moment.
fn busy_pond() -> Pond {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE, "--model-disk", "hdd-7200"]).ok();
    for number in 0..12 {
        let file = File::create(pond.mnt().join(format!("file{number}"))).unwrap();
        for block in 0..125_u64 {
            file.write_all_at(&pattern(4096, block), block * 37 * 65536).unwrap();
        }
        file.sync_data().unwrap();
    }
    pond
}

fn handle_of(pond: &Pond, handle: u64) -> serde_json::Value {
    let status = pond.status();
    let flushes = status["flushes"].as_array().unwrap();
    flushes.iter().find(|flush| flush["handle"] == handle).cloned().unwrap_or_default()
}

#[test]
fn a_flush_in_the_background_has_a_handle_with_progress_and_ends_cancelled_when_that_is_wanted() {
    let pond = busy_pond();
    let said = flush(&pond, &["--background", "--quiet"]);
    let handle: u64 = said.ok().text.trim().parse().unwrap();
    let running = handle_of(&pond, handle);
    assert_eq!(running["state"], "running", "{running}");
    wait_until("the engine has it", || handle_of(&pond, handle)["total_bytes"].as_u64().unwrap() > 0);
    let text = run([OsStr::new("status"), pond.mnt().as_os_str()]);
    text.ok().refused(0, &[&format!("{handle}: everything, "), " left"]);
    flush(&pond, &["--cancel", &handle.to_string()]).ok().refused(0, &["stays dirty"]);
    wait_until("it has ended", || handle_of(&pond, handle)["state"] == "cancelled");
    assert!(pond.status()["dirty_bytes"].as_u64().unwrap() > 0, "what was not written stays dirty");
    assert_eq!(pond.status()["flush"], "cancelled");
    flush(&pond, &["--cancel", &handle.to_string()]).refused(2, &["ended already"]);
    flush(&pond, &["--cancel", "99"]).refused(2, &["no flush 99"]);
    let again = flush(&pond, &["--background", "--json"]).ok().json();
    let again = again["handle"].as_u64().unwrap();
    assert_ne!(again, handle);
    let mut least = u64::MAX;
    wait_until("it has moved on", || {
        let flush = handle_of(&pond, again);
        let left = flush["left_bytes"].as_u64().unwrap();
        assert!(left <= least, "nobody writes, so nothing comes back: {flush}");
        least = left;
        flush["state"] == "done" || flush["total_bytes"].as_u64().unwrap() > left
    });
    // One that is waited for meanwhile ends for itself.
    flush(&pond, &[]).ok();
    wait_until("the other one has ended too", || handle_of(&pond, again)["state"] == "done");
    assert_eq!(pond.status()["dirty_bytes"], 0);
    let dirty = fs::read_to_string(pond.mnt().join(".headpond/dirty")).unwrap();
    assert!(dirty.contains(&format!("\nflush_{again} done left_bytes 0 ")), "{dirty}");
    pond.unmount(&[]).ok();
}

#[test]
fn a_flush_of_a_file_or_directory_brings_that_to_the_origin_and_keeps_it_to_be_read() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    // Nothing but these flushes brings anything to the origin, however long the machine takes for the test.
    run(["set".as_ref(), pond.mnt().as_os_str(), "flush-period=off".as_ref(), "idle-flush=off".as_ref()]).ok();
    let mnt = pond.mnt();
    fs::create_dir_all(mnt.join("db/sub")).unwrap();
    for (index, name) in ["a", "db/b", "db/sub/c", "other"].into_iter().enumerate() {
        write_and_sync(&mnt.join(name), &pattern(1 << 20, index as u64));
    }
    let dirty = || pond.status()["dirty_bytes"].as_u64().unwrap() >> 20;
    assert_eq!(dirty(), 4);
    flush(&pond, &["a"]).ok().refused(0, &["dirty in a"]);
    assert_eq!((dirty(), fs::read(pond.origin().join("a")).unwrap() == pattern(1 << 20, 0)), (3, true));
    // The names of now count, and those through another directory.
    fs::rename(mnt.join("db"), mnt.join("database")).unwrap();
    flush(&pond, &["database/sub"]).ok();
    assert_eq!((dirty(), fs::read(pond.origin().join("database/sub/c")).unwrap() == pattern(1 << 20, 2)), (2, true));
    let absolute = mnt.join("database");
    flush(&pond, &[absolute.to_str().unwrap()]).ok();
    assert_eq!((dirty(), fs::read(pond.origin().join("database/b")).unwrap() == pattern(1 << 20, 1)), (1, true));
    assert_eq!(pond.status()["cached_bytes"], 3 << 20, "what was written is kept, as clean");
    let files = fs::read_to_string(mnt.join(".headpond/files")).unwrap();
    let row = |name: &str| -> Vec<u64> {
        let line = files.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap_or_else(|| panic!("{files}"));
        line.split_whitespace().take(5).map(|word| word.parse().unwrap()).collect()
    };
    assert_eq!(
        (row("other")[3..].to_vec(), row("database/b")[3..].to_vec()),
        (vec![1 << 20, 1 << 20], vec![1 << 20, 0])
    );
    for (wrong, says) in
        [("none", "there is no"), ("../origin", "not below"), ("/etc", "not below"), ("database/../..", "not below")]
    {
        flush(&pond, &[wrong]).refused(2, &[says]);
    }
    assert_eq!(dirty(), 1);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("other")).unwrap() == pattern(1 << 20, 3));
}

#[test]
fn files_that_were_dirty_before_a_restart_are_flushed_by_their_path() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    fs::create_dir(pond.mnt().join("db")).unwrap();
    write_and_sync(&pond.mnt().join("db/a"), &pattern(1 << 20, 1));
    write_and_sync(&pond.mnt().join("b"), &pattern(1 << 20, 2));
    pond.unmount(&["--keep-dirty"]).ok();
    pond.mount(&[]).ok();
    assert_eq!(pond.status()["dirty_bytes"], 2 << 20);
    flush(&pond, &["db"]).ok();
    assert_eq!(pond.status()["dirty_bytes"], 1 << 20);
    assert!(fs::read(pond.origin().join("db/a")).unwrap() == pattern(1 << 20, 1));
    let files = fs::read_to_string(pond.mnt().join(".headpond/files")).unwrap();
    assert!(files.lines().any(|line| line.contains(&format!(" {} ", 1 << 20)) && line.ends_with(" b")), "{files}");
    pond.unmount(&[]).ok();
}
