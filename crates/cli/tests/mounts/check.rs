//! `headpond check` on the flash of a real mount: what it says, how it ends, and that it writes nothing.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use headpond_format::{SUPERBLOCK_SLOTS, bytes_checksum};
use serde_json::Value;

use crate::pond::{Pond, SIZE, Said, pattern, run, write_and_sync};

fn check(flash: &Path, more: &[&str]) -> Said {
    run([OsStr::new("check"), flash.as_os_str()].into_iter().chain(more.iter().map(OsStr::new)))
}

fn json(flash: &Path) -> Value {
    check(flash, &["--json", "--quiet"]).json()
}

/// A pool that was killed with a synced file in it that the origin has not got.
fn killed() -> Pond {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    pond.kill(daemon);
    pond
}

#[test]
fn a_pool_after_a_crash_is_sound_and_its_dirty_file_is_named() {
    let pond = killed();
    let before = fs::read(pond.flash()).unwrap();
    check(&pond.flash(), &[]).ok().refused(0, &["nothing is damaged", "1 MiB in 1 file", "file (inode"]);
    let report = json(&pond.flash());
    assert_eq!(report["verdict"], "sound");
    assert_eq!(report["pool"]["origin"], pond.origin().to_str().unwrap());
    assert_eq!(
        (&report["dirty_files"][0]["path"], &report["dirty_files"][0]["dirty_bytes"]),
        (&"file".into(), &(1 << 20).into())
    );
    assert!(fs::read(pond.flash()).unwrap() == before, "a check wrote to the flash");
    pond.mount(&[]).ok();
    assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(1 << 20, 1));
    pond.unmount(&[]).ok();
    check(&pond.flash(), &[]).ok().refused(0, &["by an unmount", "0 B in 0 files"]);
}

#[test]
fn what_was_never_a_pool_is_not_called_a_loss() {
    let pond = Pond::new();
    fs::write(pond.flash(), pattern(1 << 20, 3)).unwrap();
    let said = check(&pond.flash(), &[]);
    assert!(!said.text.contains("LOSS") && !said.text.contains("footers"), "{}", said.text);
    said.refused(32, &["is not a headpond pool", "named the right file"]);
}

#[test]
fn a_flash_in_use_is_refused_and_the_mount_goes_on() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    check(&pond.flash(), &[]).refused(31, &["in use"]);
    write_and_sync(&pond.mnt().join("file"), b"still here");
    pond.unmount(&[]).ok();
}

#[test]
fn each_kind_of_damage_has_its_exit_status() {
    let pond = killed();
    let image = fs::read(pond.flash()).unwrap();
    let place = pond.at("copy");
    let copy = |bytes: &[u8]| {
        fs::write(&place, bytes).unwrap();
        check(&place, &[])
    };
    let [first, second] = SUPERBLOCK_SLOTS.map(|slot| slot as usize);
    let mut one = image.clone();
    one[second + 100] ^= 1;
    copy(&one).refused(41, &["superblock 1", "loses nothing"]);
    let mut both = one.clone();
    both[first + 100] ^= 1;
    copy(&both).refused(38, &["superblock 0", "superblock 1", "--discard-dirty"]);
    let mut newer = image.clone();
    for slot in [first, second] {
        newer[slot + 12] = 9;
        newer[slot + 8..slot + 12].fill(0);
        let checksum = bytes_checksum(&newer[slot..slot + 4096]);
        newer[slot + 8..slot + 12].copy_from_slice(&checksum.to_le_bytes());
    }
    copy(&newer).refused(37, &["version 9", "newer"]);
    copy(&image[..image.len() / 2]).refused(36, &["cut short"]);
    copy(&pattern(1 << 20, 3)).refused(32, &["not a headpond pool"]);
    check(&pond.at("nowhere"), &[]).refused(30, &["does not exist"]);
    // A block of the dirty file.
    let block = pattern(1 << 20, 1)[..4096].to_vec();
    let at = image.chunks(4096).position(|bytes| bytes == block).unwrap() * 4096;
    let mut rotten = image;
    rotten[at + 5] ^= 1;
    let said = copy(&rotten);
    assert!(said.status == 38 || said.text.contains("dropped"), "{}", said.text);
}
