//! Settings of a running mount: changed together or not at all, in force at once, kept over restarts.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use headpond_control::{SETTINGS, reference};

use crate::pond::{Pond, SIZE, Said, pattern, run, wait_until, write_and_sync};

fn ask(pond: &Pond, command: &str, more: &[&str]) -> Said {
    let mnt = pond.mnt();
    run([OsStr::new(command), mnt.as_os_str()].into_iter().chain(more.iter().map(OsStr::new)))
}

fn get(pond: &Pond, name: &str) -> String {
    let object = ask(pond, "get", &[name, "--json"]).ok().json();
    object[name].as_str().unwrap().to_owned()
}

#[test]
fn every_setting_is_shown_as_set_takes_it() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let all = ask(&pond, "get", &[]);
    let lines: Vec<&str> = all.ok().text.lines().collect();
    assert_eq!(lines.len(), SETTINGS.len() + 1, "and the word of protect:\n{}", all.text);
    let said = ask(&pond, "set", &lines);
    said.ok().refused(0, &["nothing to change"]);
    ask(&pond, "get", &["colour"]).refused(2, &["unknown setting 'colour'", "flush-period"]);
    pond.unmount(&[]).ok();
}

#[test]
fn settings_change_together_and_are_kept_over_a_crash_and_a_stop() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    let said = ask(&pond, "set", &["flush-period=10s", "dirty-threshold=30%", "mode=write-through"]);
    said.ok()
        .refused(0, &["flush-period: 5m -> 10s", "dirty-threshold: 50% -> 30%", "mode: write-back -> write-through"]);
    assert_eq!(pond.status()["mode"], "write-through");
    pond.kill(daemon);
    let expected =
        [("flush-period", "10s"), ("dirty-threshold", "30%"), ("mode", "write-through"), ("fetch-size", "512K")];
    for _ in 0..2 {
        pond.mount(&[]).ok();
        for (name, value) in expected {
            assert_eq!(get(&pond, name), value, "{name}");
        }
        assert_eq!(pond.status()["mode"], "write-through");
        pond.unmount(&[]).ok();
    }
    // They belong to the pool, wherever it goes.
    fs::rename(pond.flash(), pond.at("flash2")).unwrap();
    pond.mount_places("other", "mnt", "flash2", &[]).ok();
    assert_eq!(get(&pond, "flush-period"), "10s");
    pond.unmount(&[]).ok();
    // And go with it.
    pond.mount_places("other", "mnt", "flash2", &["--format"]).ok();
    assert_eq!((get(&pond, "flush-period").as_str(), get(&pond, "mode").as_str()), ("5m", "write-back"));
    pond.unmount(&[]).ok();
}

#[test]
fn a_wrong_name_or_value_is_refused_with_the_range_and_nothing_is_changed() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    for (wrong, says) in [
        ("dirty-threshold=90%", "from 1% to 70%"),
        ("flush-period=60", "from 1s to 7d, or off"),
        ("fetch-size=5K", "power of two from 4K to 1M"),
        ("mode=fast", "one of write-back"),
        ("colour=red", "Known: protect, mode, dirty-threshold"),
    ] {
        ask(&pond, "set", &["sync-interval=2s", wrong]).refused(2, &[says]);
        assert_eq!(get(&pond, "sync-interval"), "1s");
    }
    pond.unmount(&[]).ok();
}

#[test]
fn a_dry_run_tells_what_would_be_and_changes_nothing() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    let said = ask(&pond, "set", &["mode=write-around", "flush-period=off", "--dry-run"]);
    said.ok().refused(
        0,
        &["would change mode: write-back -> write-around", "after a flush of 1 MiB", "flush-period: 5m -> off"],
    );
    assert_eq!((get(&pond, "mode").as_str(), get(&pond, "flush-period").as_str()), ("write-back", "5m"));
    assert_eq!(pond.status()["dirty_bytes"], 1 << 20);
    pond.unmount(&[]).ok();
}

#[test]
fn a_change_is_in_force_at_once() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    ask(&pond, "set", &["flush-period=off"]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    assert_eq!(pond.status()["dirty_bytes"], 1 << 20, "nothing drains it");
    ask(&pond, "set", &["flush-period=1s"]).ok();
    wait_until("destage has drained it", || pond.status()["dirty_bytes"] == 0);
    assert!(fs::read(pond.origin().join("file")).unwrap() == pattern(1 << 20, 1));
    pond.unmount(&[]).ok();
}

#[test]
fn a_file_of_settings_goes_over_what_the_pool_keeps_and_the_command_line_over_the_file() {
    let pond = Pond::new();
    fs::write(
        pond.at("config"),
        "# for tests\nflush-period = \"20s\"\ndirty-threshold = 40\nmode = \"write-around\"\n",
    )
    .unwrap();
    let config = pond.at("config");
    let config = config.to_str().unwrap();
    pond.mount(&["--size", SIZE, "--config", config]).ok().refused(0, &["flush-period is now 20s"]);
    assert_eq!((get(&pond, "flush-period").as_str(), get(&pond, "mode").as_str()), ("20s", "write-around"));
    ask(&pond, "set", &["flush-period=30s", "sync-interval=3s"]).ok();
    pond.unmount(&[]).ok();
    pond.mount(&["--config", config, "--mode", "write-through"]).ok();
    for (name, value) in
        [("flush-period", "20s"), ("sync-interval", "3s"), ("mode", "write-through"), ("dirty-threshold", "40%")]
    {
        assert_eq!(get(&pond, name), value, "{name}");
    }
    pond.unmount(&[]).ok();
}

#[test]
fn a_file_of_settings_that_makes_no_sense_refuses_the_mount_and_nothing_is_made() {
    let pond = Pond::new();
    let config = pond.at("config");
    let config = config.to_str().unwrap();
    pond.mount(&["--size", SIZE, "--config", config]).refused(1, &["read the settings in", config]);
    for (text, says) in [
        ("flush-period = \n", "line 1"),
        ("flush-period = \"1y\"", "1s to 7d"),
        ("size = \"1G\"", "Known: protect, mode"),
    ] {
        fs::write(config, text).unwrap();
        pond.mount(&["--size", SIZE, "--config", config]).refused(2, &["settings in", config, says]);
        assert!(!pond.flash().exists() && pond.marker().is_none());
    }
}

#[test]
fn the_reference_of_settings_is_what_the_table_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let written = fs::read_to_string(&page).unwrap_or_default();
    assert!(written == reference(), "docs/settings.md is not up to date: headpond get --reference > docs/settings.md");
    assert_eq!(run(["get", "--reference"]).ok().text, reference());
}

#[test]
fn the_mode_changes_in_every_direction_while_a_program_writes_and_nothing_it_wrote_is_lost() {
    const BLOCK: usize = 16 << 10;
    const BLOCKS: u64 = 64;
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let path = pond.mnt().join("file");
    let expected = Mutex::new(vec![0; BLOCK * BLOCKS as usize]);
    write_and_sync(&path, &expected.lock().unwrap());
    let stop = AtomicBool::new(false);
    let write = || {
        let file = fs::File::options().write(true).open(&path).unwrap();
        for round in (1..).take_while(|_| !stop.load(Ordering::Relaxed)) {
            let (bytes, block) = (pattern(BLOCK, round), round * 37 % BLOCKS);
            let mut expected = expected.lock().unwrap();
            let at = block as usize * BLOCK;
            expected[at..at + BLOCK].copy_from_slice(&bytes);
            file.write_all_at(&bytes, at as u64).unwrap();
            if round % 8 == 0 {
                file.sync_data().unwrap();
            }
        }
    };
    // What the mount gives, past the kernel's pages.
    let read = || {
        let copy = pond.at("copy");
        let arguments = [format!("if={}", path.display()), format!("of={}", copy.display()), "iflag=direct".into()];
        let said: Said = Command::new("dd").args(arguments).args(["bs=64K", "status=none"]).output().unwrap().into();
        said.ok();
        fs::read(copy).unwrap()
    };
    // From each mode to each other one, once.
    let modes = ["write-back", "write-through", "write-around", "pass-through"];
    let walk = [1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0].map(|index: usize| modes[index]);
    std::thread::scope(|scope| {
        scope.spawn(write);
        let _ends = Ends(&stop);
        for mode in walk {
            ask(&pond, "set", &[&format!("mode={mode}")]).ok().refused(0, &[&format!("-> {mode}")]);
            assert_eq!(pond.status()["mode"], mode);
            let expected = expected.lock().unwrap();
            assert!(read() == *expected, "after the change to {mode}");
        }
    });
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == *expected.lock().unwrap());
}

/// Ends the writer, also when the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
