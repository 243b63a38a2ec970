//! The daemon is killed and mounted again, at moments when log and origin know different things; or then the origin's
//! host loses power: an image of the origin's device is what is left.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;

use crate::loop_device::{Loop, make_ext4};
use crate::pond::{Pond, SIZE, pattern, run, write_and_sync};

#[test]
fn a_flush_after_a_crash_covers_what_was_written_directly_before_it() {
    for mode in ["write-through", "write-around", "pass-through"] {
        let mut pond = Pond::new();
        make_ext4(&pond.at("disk"), 64 << 20);
        let Some(mut disk) = Loop::over(&pond.at("disk")) else { return };
        // Nothing goes to the device by itself while the test runs.
        disk.mount(&pond.origin(), "commit=600");
        let daemon = pond.mount_foreground(&["--size", SIZE, "--mode", mode]);
        let mut file = fs::File::create(pond.mnt().join("file")).unwrap();
        file.write_all(&pattern(300_000, 1)).unwrap();
        // Still open: a file that is closed is synced at the origin at once.
        pond.kill(daemon);
        drop(file);
        assert!(left_by_power_cut(&pond).is_none(), "{mode}: the test shows nothing: the file is durable already");
        pond.mount(&[]).ok();
        pond.flush().ok();
        assert!(left_by_power_cut(&pond).is_some_and(|left| left == pattern(300_000, 1)), "{mode}");
        pond.unmount(&[]).ok();
    }
}

/// Its data is durable before the rename, and the log learns its new name after it. The next start looks for a file
/// even if its name was never synced.
#[test]
fn a_file_that_was_written_and_renamed_over_another_is_found_after_a_kill_that_comes_at_once() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    run([OsStr::new("set"), pond.mnt().as_os_str(), OsStr::new("sync-interval=1m")]).ok();
    let at = |name: &str| pond.mnt().join(name);
    write_and_sync(&at("file"), &pattern(50_000, 1));
    fs::write(at("new"), pattern(60_000, 2)).unwrap();
    fs::rename(at("new"), at("file")).unwrap();
    pond.kill(daemon);
    pond.mount(&[]).ok();
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), pattern(60_000, 2));
    pond.unmount(&[]).ok();
}

/// The file as it is on the origin's device now.
fn left_by_power_cut(pond: &Pond) -> Option<Vec<u8>> {
    fs::copy(pond.at("disk"), pond.at("image")).unwrap();
    let mut image = Loop::over(&pond.at("image")).unwrap();
    image.mount(&pond.at("other"), "ro");
    fs::read(pond.at("other/file")).ok().filter(|bytes| !bytes.is_empty())
}
