//! A pool that is put back as it was earlier: a copy, a snapshot or a clone of the flash. The origin knows which use
//! of the pool it waits for, and no other is believed.

use std::fs;

use crate::pond::{Pond, SIZE, wait_until, write_and_sync};

/// The file that each use writes anew.
fn write(pond: &Pond, what: &str) {
    write_and_sync(&pond.mnt().join("file"), what.as_bytes());
}

fn read(pond: &Pond) -> String {
    fs::read_to_string(pond.mnt().join("file")).unwrap()
}

fn keep(pond: &Pond, name: &str) {
    fs::copy(pond.flash(), pond.at(name)).unwrap();
}

fn put_back(pond: &Pond, name: &str) {
    fs::copy(pond.at(name), pond.flash()).unwrap();
}

#[test]
fn an_image_of_the_pool_from_before_its_last_use_is_refused_and_the_newest_is_taken() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write(&pond, "first");
    pond.flush().ok();
    write(&pond, "v1");
    pond.unmount(&["--keep-dirty"]).ok();
    keep(&pond, "older");
    pond.mount(&[]).ok();
    write(&pond, "v2 is longer");
    pond.unmount(&["--keep-dirty"]).ok();
    keep(&pond, "newest");

    put_back(&pond, "older");
    let marker = pond.marker();
    for more in [&[][..], &["--format"], &["--keep-pool", "other"]] {
        pond.mount(more).refused(42, &["older image", "file", "--keep-origin", "--keep-pool", "--discard-dirty"]);
    }
    assert_eq!(fs::read(pond.flash()).unwrap(), fs::read(pond.at("older")).unwrap(), "nothing was changed");
    assert_eq!(pond.marker(), marker);

    put_back(&pond, "newest");
    pond.mount(&[]).ok();
    assert_eq!(read(&pond), "v2 is longer");
    pond.unmount(&["--keep-dirty"]).ok();

    // The newest is lost for good, and the operator goes on with what there is.
    put_back(&pond, "older");
    pond.mount(&["--keep-pool", "all"]).ok();
    assert_eq!(read(&pond), "v1");
    pond.unmount(&["--keep-dirty"]).ok();
    keep(&pond, "went-on");
    // Then it turns up after all: it is a copy that was used by itself.
    put_back(&pond, "newest");
    pond.mount(&[]).refused(42, &["Nothing was changed"]);
    pond.mount(&["--keep-origin", "all"]).ok();
    assert_eq!(read(&pond), "first");
    pond.unmount(&[]).ok();
    assert_eq!(pond.marker(), None);
    // The origin is complete: what is dirty in any image now is not this origin's.
    put_back(&pond, "went-on");
    pond.mount(&[]).refused(33, &["no marker"]);
}

#[test]
fn a_snapshot_of_the_pool_in_use_is_refused_after_a_stop_in_order() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write(&pond, "v1");
    keep(&pond, "snapshot");
    write(&pond, "v2");
    pond.unmount(&["--keep-dirty"]).ok();
    put_back(&pond, "snapshot");
    pond.mount(&[]).refused(42, &["older image"]);
    pond.mount(&["--discard-dirty"]).ok();
    pond.unmount(&[]).ok();
    assert_eq!(pond.marker(), None);
}

#[test]
fn an_image_from_before_the_last_start_is_refused_after_a_crash() {
    let mut pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write(&pond, "v1");
    pond.unmount(&["--keep-dirty"]).ok();
    keep(&pond, "older");
    let daemon = pond.mount_foreground(&[]);
    write(&pond, "v2");
    pond.kill(daemon);
    keep(&pond, "newest");
    put_back(&pond, "older");
    pond.mount(&[]).refused(42, &["older image"]);
    put_back(&pond, "newest");
    pond.mount(&[]).ok();
    assert_eq!(read(&pond), "v2");
    pond.unmount(&[]).ok();
}

/// What the note beside the origin says of how far the pool is durable.
fn durable(pond: &Pond) -> u64 {
    let text = fs::read(pond.origin().join(".headpond/durable.json")).unwrap_or_default();
    assert!(text.len() <= 256, "{text:?}");
    serde_json::from_slice::<serde_json::Value>(&text).map_or(0, |note| note["host_batch"].as_u64().unwrap())
}

#[test]
fn a_snapshot_of_the_pool_in_use_is_refused_after_a_crash() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    write(&pond, "v1");
    keep(&pond, "snapshot");
    let before = durable(&pond);
    write(&pond, "v2");
    wait_until("the note says more", || durable(&pond) > before);
    pond.kill(daemon);
    keep(&pond, "newest");

    put_back(&pond, "snapshot");
    let marker = pond.marker();
    for more in [&[][..], &["--format"], &["--keep-pool", "other"]] {
        pond.mount(more).refused(42, &["older image", "file", "--keep-origin", "--keep-pool", "--discard-dirty"]);
    }
    assert_eq!(fs::read(pond.flash()).unwrap(), fs::read(pond.at("snapshot")).unwrap(), "nothing was changed");
    assert_eq!(pond.marker(), marker);

    put_back(&pond, "newest");
    let daemon = pond.mount_foreground(&[]);
    assert_eq!(read(&pond), "v2");
    // The note is of this use by now.
    pond.kill(daemon);
    put_back(&pond, "snapshot");
    pond.mount(&[]).refused(42, &["older image"]);
    pond.mount(&["--keep-pool", "all"]).ok();
    assert_eq!(read(&pond), "v1", "as the operator decided");
    pond.unmount(&[]).ok();
    assert!(!pond.origin().join(".headpond").exists());
}

#[test]
fn a_note_that_is_torn_or_missing_keeps_no_pool_from_its_origin() {
    let mut pond = Pond::new();
    let mut daemon = pond.mount_foreground(&["--size", SIZE]);
    let note = pond.origin().join(".headpond/durable.json");
    let damages: [&dyn Fn(); 3] = [&|| fs::remove_file(&note).unwrap(), &|| fs::write(&note, "").unwrap(), &|| {
        let mut torn = fs::read(&note).unwrap();
        torn[120..].fill(0);
        fs::write(&note, torn).unwrap();
    }];
    for (round, damage) in damages.into_iter().enumerate() {
        write(&pond, &round.to_string());
        wait_until("there is a note", || note.exists());
        pond.kill(daemon);
        damage();
        daemon = pond.mount_foreground(&[]);
        assert_eq!(read(&pond), round.to_string());
    }
    pond.unmount(&[]).ok();
    assert_eq!(pond.wait(daemon), 0);
    assert!(!pond.origin().join(".headpond").exists());
}
