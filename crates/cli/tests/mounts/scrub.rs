//! `headpond pool scrub` on a real mount, whose flash loses bits behind its back.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::pond::{Pond, SIZE, Said, pattern, run, write_and_sync};
use crate::several_devices::{fault, mount_over, pool, pool_status};

const BLOCK: usize = 4096;
/// More than what is in open segments, which a scrub leaves to the next one.
const BLOCKS: u64 = 6000;

/// The content of a block, which no other has.
fn block(number: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|word| ((number << 16) + word + 1).to_le_bytes()).collect()
}

fn content() -> Vec<u8> {
    (0..BLOCKS).flat_map(block).collect()
}

/// Flips a bit of a block in each place of a flash file that has it. Returns how many places these are.
fn rot(flash: &Path, number: u64) -> usize {
    let bytes = fs::read(flash).unwrap();
    let wanted = block(number);
    let file = OpenOptions::new().write(true).open(flash).unwrap();
    let places = bytes.chunks_exact(BLOCK).enumerate().filter(|(_, found)| *found == wanted);
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    for place in &places {
        file.write_all_at(&[wanted[9] ^ 4], (place * BLOCK + 9) as u64).unwrap();
    }
    file.sync_all().unwrap();
    places.len()
}

fn scrub(pond: &Pond, more: &[&str]) -> Said {
    let more: Vec<&OsStr> = more.iter().map(OsStr::new).collect();
    pool(pond, "scrub", &more)
}

fn stays_dirty(pond: &Pond) {
    run(["set".as_ref(), pond.mnt().as_os_str(), "flush-period=off".as_ref()]).ok();
    run(["set".as_ref(), pond.mnt().as_os_str(), "idle-flush=off".as_ref(), "sequential-cutoff=off".as_ref()]).ok();
}

fn read_block(path: &Path, number: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; BLOCK];
    File::open(path)?.read_exact_at(&mut bytes, number * BLOCK as u64)?;
    Ok(bytes)
}

#[test]
fn damage_on_one_device_is_made_good_before_the_other_one_is_needed() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", "128M", "--test-fault", "none"]).ok();
    stays_dirty(&pond);
    let path = pond.mnt().join("file");
    write_and_sync(&path, &content());
    let would = scrub(&pond, &["-n", "--json"]).ok().json();
    assert!(would["would_read_bytes"].as_u64().unwrap() >= 2 * BLOCKS * BLOCK as u64, "{would}");
    scrub(&pond, &["--cancel"]).refused(2, &["no scrub goes on"]);
    let found = scrub(&pond, &["--json"]).ok().json();
    assert_eq!((found["state"].as_str(), found["damaged"].as_array().unwrap().len()), (Some("done"), 0), "{found}");
    let checked = found["checked_bytes"].as_u64().unwrap();
    assert!(checked > BLOCKS * BLOCK as u64 && checked <= 2 * BLOCKS * BLOCK as u64, "{found}");

    let rotten = [3, 4, 500];
    assert_eq!(rotten.map(|number| rot(&pond.at("flash2"), number)), [1; 3]);
    let found = scrub(&pond, &["--json"]).ok().json();
    assert_eq!(found["damaged"][0]["flash"], pond.at("flash2").to_str().unwrap());
    assert_eq!(
        (&found["damaged"][0]["bytes"], &found["mended_bytes"], &found["lost_bytes"]),
        (&12288.into(), &12288.into(), &0.into())
    );
    pool(&pond, "wait", &["--quiet".as_ref()]).ok();
    let status = pool_status(&pond);
    let action = status["actions"][0].as_str().unwrap();
    assert!(action.contains("flash2") && action.contains("pool replace"), "{action}");
    pool(&pond, "status", &[]).refused(0, &["scrub: read ", "damaged: 12 KiB on "]);
    let again = scrub(&pond, &["--json"]).ok().json();
    assert_eq!(again["damaged"].as_array().unwrap().len(), 0, "{again}");

    fault(&pond, "flash", "cut");
    for number in rotten {
        assert!(read_block(&path, number).unwrap() == block(number), "{number}");
    }
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == content());
}

#[test]
fn what_the_origin_has_is_dropped_and_what_nobody_has_is_named_with_its_file() {
    let pond = Pond::new();
    pond.mount(&["--size", "128M"]).ok();
    stays_dirty(&pond);
    fs::create_dir(pond.mnt().join("db")).unwrap();
    let path = pond.mnt().join("db/table");
    write_and_sync(&path, &content());
    pond.flush().ok();
    assert!(rot(&pond.at("flash"), 5) > 0);
    let found = scrub(&pond, &["--json"]).ok().json();
    assert_eq!((&found["dropped_bytes"], &found["lost_bytes"]), (&4096.into(), &0.into()), "{found}");
    assert!(read_block(&path, 5).unwrap() == block(5));

    // All of it is dirty again.
    write_and_sync(&path, &content());
    assert!(rot(&pond.at("flash"), 7) > 0);
    scrub(&pond, &[]).refused(76, &["db/table at byte 28672", "LOST", "backup"]);
    let status = pool_status(&pond);
    assert!(status["actions"][0].as_str().unwrap().contains("db/table"), "{status}");
    // Past the kernel's cache.
    let mut read = Command::new("dd");
    read.arg(format!("if={}", path.display())).args(["of=/dev/null", "bs=4096", "skip=7", "count=1", "iflag=direct"]);
    assert!(!read.output().unwrap().status.success());
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&block(7), 7 * BLOCK as u64).unwrap();
    file.sync_all().unwrap();
    drop(file);
    scrub(&pond, &["--quiet"]).ok();
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("db/table")).unwrap() == content());
}

#[test]
fn a_scrub_goes_on_beside_programs_and_in_the_background_and_can_be_ended() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE]).ok();
    let path = pond.mnt().join("file");
    write_and_sync(&path, &pattern(30 << 20, 1));
    let handle = scrub(&pond, &["--background", "--json"]).ok().json();
    assert!(handle["handle"].as_u64().is_some());
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for round in 0..200_u64 {
        let at = round * 7919 % 7000 * BLOCK as u64;
        file.write_all_at(&pattern(BLOCK, round), at).unwrap();
        file.sync_data().unwrap();
        let mut read = vec![0; BLOCK];
        file.read_exact_at(&mut read, at).unwrap();
        assert!(read == pattern(BLOCK, round));
    }
    drop(file);
    // Over by now, or not.
    let ended = scrub(&pond, &["--cancel"]);
    assert!([0, 2].contains(&ended.status), "{ended:?}");
    scrub(&pond, &["--quiet"]).ok();
    assert_eq!(pool_status(&pond)["scrub"]["state"], "done");
    pond.unmount(&[]).ok();
}
