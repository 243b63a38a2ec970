//! What headpond will not do, each with its message and its exit status, and that nothing is
//! changed by it.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};

use crate::pond::{Pond, SIZE, Said, headpond, is_mounted, pattern, run, write_and_sync};

#[test]
fn bad_places_are_refused_and_nothing_is_made() {
    let pond = Pond::new();
    fs::write(pond.at("mnt2/file"), "x").unwrap();
    for (origin, mnt, flash, more, status, says) in [
        ("gone", "mnt", "flash", &["--size", SIZE][..], 10, "does not exist"),
        ("origin", "gone", "flash", &["--size", SIZE], 20, "mkdir -p"),
        ("origin", "mnt2", "flash", &["--size", SIZE], 21, "not empty"),
        ("origin", "origin", "flash", &["--size", SIZE], 23, "same directory"),
        ("origin", "mnt", "origin/flash", &["--size", SIZE], 23, "inside the origin"),
        ("origin", "mnt", "flash", &[], 30, "--size 200G"),
        ("origin", "mnt", "other", &[], 30, "neither a file"),
        ("origin", "mnt", "flash", &["--size", "1M"], 34, "at least 64 MiB"),
        ("origin", "mnt", "flash", &["--size", "15T"], 35, "no room"),
        ("origin", "mnt", "flash", &["--size", "lots"], 2, "200G"),
    ] {
        pond.mount_places(origin, mnt, flash, more).refused(status, &[says]);
        assert!(!is_mounted(&pond.at(mnt)));
        assert_eq!(fs::read_dir(pond.origin()).unwrap().count(), 0, "nothing is left at the origin");
        assert!(!pond.at("flash").exists(), "no flash is left");
    }
}

#[test]
fn the_foreground_refuses_with_the_same_status() {
    let pond = Pond::new();
    let mut command = headpond();
    command.arg("mount").arg(pond.at("gone")).arg(pond.mnt()).arg("--flash").arg(pond.flash());
    Said::from(command.output().unwrap()).refused(10, &["headpond: origin", "does not exist"]);
}

#[test]
fn two_mounts_of_one_origin_are_refused() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let second = pond.mount_places("origin", "mnt2", "flash2", &["--size", SIZE]);
    second.refused(11, &["already mounted", pond.mnt().to_str().unwrap(), "headpond unmount"]);
    assert!(!pond.at("flash2").exists());
    pond.mount_places("other", "mnt", "flash2", &["--size", SIZE]).refused(22, &["mounted there already"]);
    pond.unmount(&[]).ok();
}

#[test]
fn one_flash_for_two_origins_is_refused() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    pond.mount_places("other", "mnt2", "flash", &[]).refused(31, &["in use", "A flash can serve one mount"]);
    assert_eq!(fs::read_dir(pond.at("other")).unwrap().count(), 0);
    pond.unmount(&[]).ok();
}

#[test]
fn dirty_data_of_another_origin_is_kept_unless_told_otherwise() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    pond.unmount(&["--keep-dirty"]).ok();

    let origin = pond.origin();
    let origin = origin.to_str().unwrap();
    let other = pond.mount_places("other", "mnt2", "flash", &[]);
    other.refused(33, &["1 MiB", "1 file", origin, "--discard-dirty"]);
    let formatted = pond.mount_places("other", "mnt2", "flash", &["--format"]);
    formatted.refused(33, &["1 MiB", origin]);
    // The origin knows where its data is, and takes no other flash.
    let elsewhere = pond.mount_places("origin", "mnt", "flash2", &["--size", SIZE]);
    elsewhere.refused(12, &[pond.flash().to_str().unwrap(), "dirty data", "--discard-dirty"]);
    assert!(!pond.at("flash2").exists());
    // Nothing of all that hurt it.
    pond.mount(&[]).ok();
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), pattern(1 << 20, 1));
    pond.unmount(&["--keep-dirty"]).ok();

    pond.mount_places("other", "mnt2", "flash", &["--discard-dirty"]).ok();
    assert_eq!(fs::read_dir(pond.at("mnt2")).unwrap().count(), 0);
    run([OsStr::new("unmount"), pond.at("mnt2").as_os_str()]).ok();
    pond.mount(&[]).refused(12, &["now serves another origin"]);
    pond.mount(&["--discard-dirty"]).ok();
    pond.unmount(&[]).ok();
}

#[test]
fn a_clean_pool_serves_another_origin() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    pond.unmount(&[]).ok();
    fs::write(pond.at("other/file"), "of the other").unwrap();
    pond.mount_places("other", "mnt2", "flash", &[]).ok();
    assert_eq!(fs::read(pond.at("mnt2/file")).unwrap(), b"of the other");
    run([OsStr::new("unmount"), pond.at("mnt2").as_os_str()]).ok();
}

#[test]
fn a_foreign_file_is_not_overwritten_without_format() {
    let pond = Pond::new();
    let foreign = pattern(70 << 20, 1);
    fs::write(pond.flash(), &foreign).unwrap();
    pond.mount(&[]).refused(32, &["not a headpond pool", "--format", "Nothing was written"]);
    assert!(fs::read(pond.flash()).unwrap() == foreign, "the file was touched");
    pond.mount(&["--format"]).ok();
    assert_eq!(pond.status()["size_bytes"], 70 << 20);
    pond.unmount(&[]).ok();
}

#[test]
fn a_pool_keeps_its_size() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    pond.unmount(&[]).ok();
    pond.mount(&["--size", SIZE]).ok();
    pond.unmount(&[]).ok();
    pond.mount(&["--size", "128M"]).refused(2, &["64 MiB", "128 MiB", "--format"]);
    pond.mount(&["--size", "128M", "--format"]).ok();
    assert_eq!(pond.status()["size_bytes"], 128 << 20);
    pond.unmount(&[]).ok();
}

#[test]
fn damaged_pools_are_told_apart_and_left_alone() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    pond.unmount(&["--keep-dirty"]).ok();
    let image = fs::read(pond.flash()).unwrap();
    let superblocks = headpond_format::SUPERBLOCK_SLOTS;
    let spoil = |changes: &dyn Fn(&mut Vec<u8>)| {
        let mut spoiled = image.clone();
        changes(&mut spoiled);
        fs::write(pond.flash(), spoiled).unwrap();
    };

    spoil(&|image| superblocks.iter().for_each(|&slot| image[slot as usize + 100] ^= 1));
    pond.mount(&[]).refused(38, &["Nothing was written"]);
    pond.mount(&["--format"]).refused(38, &["--format --discard-dirty"]);
    spoil(&|image| image.truncate(40 << 20));
    pond.mount(&[]).refused(36, &["cut short"]);
    for (version, says) in [(99_u32, "newer"), (1, "older")] {
        spoil(&|image| {
            for slot in superblocks {
                let block = &mut image[slot as usize..slot as usize + 4096];
                block[12..16].copy_from_slice(&version.to_le_bytes());
                block[8..12].fill(0);
                let checksum = headpond_format::bytes_checksum(block);
                block[8..12].copy_from_slice(&checksum.to_le_bytes());
            }
        });
        let flush_first = "new pool with this one: --format --discard-dirty";
        pond.mount(&[]).refused(37, &[says, "Nothing was written", flush_first]);
    }
    // One damaged copy is what the other is for.
    spoil(&|image| image[superblocks[0] as usize + 100] ^= 1);
    let first = pond.mount(&[]);
    let survived = if first.status == 0 {
        first
    } else {
        spoil(&|image| image[superblocks[1] as usize + 100] ^= 1);
        pond.mount(&[])
    };
    survived.ok();
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), pattern(1 << 20, 1));
    pond.unmount(&[]).ok();
}

#[test]
fn a_conflict_is_shown_and_decided_by_the_operator() {
    let pond = Pond::new();
    for (decision, expected) in [("--keep-pool", pattern(1 << 20, 2)), ("--keep-origin", pattern(999, 3))] {
        pond.mount(if pond.flash().exists() { &[] } else { &["--size", SIZE] }).ok();
        fs::create_dir_all(pond.mnt().join("db")).unwrap();
        for name in ["db/changed", "db/left"] {
            write_and_sync(&pond.mnt().join(name), &pattern(1 << 20, 1));
        }
        pond.flush().ok();
        for name in ["db/changed", "db/left"] {
            let file = OpenOptions::new().write(true).open(pond.mnt().join(name)).unwrap();
            file.write_all_at(&pattern(1 << 20, 2), 0).unwrap();
            file.sync_all().unwrap();
        }
        pond.unmount(&["--keep-dirty"]).ok();
        fs::write(pond.origin().join("db/changed"), pattern(999, 3)).unwrap();

        let refused = pond.mount(&[]);
        refused.refused(50, &["db/changed", "1 MiB", "999", "--keep-pool", "--keep-origin"]);
        assert!(!refused.text.contains("db/left"), "{}", refused.text);
        assert_eq!(fs::read(pond.origin().join("db/changed")).unwrap(), pattern(999, 3), "nothing was changed");
        pond.mount(&[decision, "db/other"]).refused(50, &["db/changed", "You named db/other"]);
        pond.mount(&[decision, "db/changed"]).ok();
        assert!(fs::read(pond.mnt().join("db/changed")).unwrap() == expected, "{decision}");
        assert!(fs::read(pond.mnt().join("db/left")).unwrap() == pattern(1 << 20, 2), "{decision}");
        pond.unmount(&[]).ok();
        assert!(fs::read(pond.origin().join("db/changed")).unwrap() == expected, "{decision}");
        assert!(fs::read(pond.origin().join("db/left")).unwrap() == pattern(1 << 20, 2), "{decision}");
    }
}

#[test]
fn a_dirty_file_that_was_moved_at_the_origin_is_found_again_and_the_operator_decides() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(100_000, 1));
    pond.flush().ok();
    let file = OpenOptions::new().write(true).open(pond.mnt().join("file")).unwrap();
    file.write_all_at(b"dirty", 5000).unwrap();
    file.sync_all().unwrap();
    drop(file);
    pond.unmount(&["--keep-dirty"]).ok();
    fs::create_dir(pond.origin().join("sub")).unwrap();
    fs::rename(pond.origin().join("file"), pond.origin().join("sub/moved")).unwrap();
    // A move changes the status of a file, as does a change of its bytes whose time was put back: they look the same.
    pond.mount(&[]).refused(50, &["sub/moved", "status changed"]);
    pond.mount(&["--keep-pool", "sub/moved"]).ok();
    let mut expected = pattern(100_000, 1);
    expected[5000..5005].copy_from_slice(b"dirty");
    assert_eq!(fs::read(pond.mnt().join("sub/moved")).unwrap(), expected);
    pond.unmount(&[]).ok();
    assert_eq!(fs::read(pond.origin().join("sub/moved")).unwrap(), expected);
}

/// Killed, with dirty data: `dd conv=notrunc` and `touch -r` at the origin are no secret, and what went through the
/// mount is no change by others.
#[test]
fn after_a_kill_a_change_whose_time_was_put_back_is_a_conflict_and_the_mounts_own_changes_are_none() {
    let mut pond = Pond::new();
    for name in ["file", "own"] {
        fs::write(pond.origin().join(name), pattern(100_000, 1)).unwrap();
    }
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    let write = |pond: &Pond, name: &str| {
        let file = OpenOptions::new().write(true).open(pond.mnt().join(name)).unwrap();
        file.write_all_at(&pattern(4096, 2), 4096).unwrap();
        file.sync_all().unwrap();
    };
    for _ in 0..2 {
        write(&pond, "file");
        write(&pond, "own");
        // What asked for space at the origin, or opened the file, is over for long: the log gets its last word of it.
        std::thread::sleep(std::time::Duration::from_secs(3));
    }
    let own = pond.mnt().join("own");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&own, pond.mnt().join("link")).unwrap();
    fs::rename(&own, pond.mnt().join("renamed")).unwrap();
    fs::remove_file(pond.mnt().join("link")).unwrap();
    pond.kill(daemon);

    let changed = pond.origin().join("file");
    let modified = fs::metadata(&changed).unwrap().modified().unwrap();
    let file = OpenOptions::new().write(true).open(&changed).unwrap();
    file.write_all_at(b"others", 50_000).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    let refused = pond.mount(&[]);
    refused.refused(50, &["file", "status changed"]);
    assert!(!refused.text.contains("renamed"), "{}", refused.text);
    pond.mount(&["--keep-pool", "file"]).ok();
    let mut expected = pattern(100_000, 1);
    expected[4096..8192].copy_from_slice(&pattern(4096, 2));
    assert!(fs::read(pond.mnt().join("renamed")).unwrap() == expected);
    expected[50_000..50_006].copy_from_slice(b"others");
    assert!(fs::read(pond.mnt().join("file")).unwrap() == expected);
    pond.unmount(&[]).ok();
}

#[test]
fn commands_for_what_is_not_mounted_say_so() {
    let pond = Pond::new();
    for command in ["status", "flush", "unmount"] {
        run([OsStr::new(command), pond.mnt().as_os_str()]).refused(71, &["no headpond is mounted there"]);
    }
    run([OsStr::new("set"), pond.mnt().as_os_str(), OsStr::new("mode=write-back")]).refused(71, &["no headpond"]);
}
