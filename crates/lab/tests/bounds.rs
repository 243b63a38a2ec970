//! Flash that the lab slows down, and bounds on memory, are there while they are to be, and leave nothing behind.

mod machine;

use headpond_lab::limited::{self, Limited};
use headpond_lab::memory_bound::MemoryBound;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whether a loop device still shows a file below this directory, or a mount lies there.
fn is_in_use(directory: &Path) -> bool {
    let name = directory.to_string_lossy().into_owned();
    let loops = fs::read_dir("/sys/block").expect("there are block devices").flatten();
    let mut files = loops.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.any(|file| file.contains(&name))
        || fs::read_to_string("/proc/self/mounts").expect("there are mounts").contains(&name)
}

/// The kernel takes a device away after its last use. A mount name space that another process has just made holds a
/// copy of the mount for a moment.
fn is_gone(directory: &Path) {
    let start = Instant::now();
    while is_in_use(directory) {
        assert!(start.elapsed() < Duration::from_secs(60), "something of {} stays", directory.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fs::read_dir(directory).expect("it is there").count(), 0, "files stay");
}

#[test]
fn flash_is_slowed_down_while_it_is_to_be_and_gone_afterwards() {
    if !limited::kernel_can() {
        eprintln!("left out, for this kernel cannot slow a device down for all processes");
        return;
    }
    if !machine::lacks_nothing(limited::missing()) {
        return;
    }
    let scratch = machine::scratch("slow-flash-");
    let flash = Limited::make(scratch.path(), 64, 5).expect("it is made");
    fs::write(flash.path().join("data"), b"there").expect("it can be written");
    assert_eq!(flash.in_force().expect("it is shown"), None);
    let limit = flash.limit().expect("it can be slowed down");
    assert_eq!(flash.in_force().expect("it is shown"), Some(5_000_000));
    drop(limit);
    assert_eq!(flash.in_force().expect("it is shown"), None);
    drop(flash);
    is_gone(scratch.path());
}

#[test]
fn a_process_with_bounded_memory_is_ended_by_the_kernel_beyond_it_and_its_group_goes() {
    let bound = match MemoryBound::make(64) {
        Ok(bound) => bound,
        Err(missing) => {
            machine::lacks_nothing(Some(missing));
            return;
        }
    };
    // It waits for a line before it takes 512 MiB.
    let mut child = Command::new("python3")
        .args(["-c", "import sys; sys.stdin.readline(); held = bytearray(512 << 20); print(len(held))"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("python3 runs");
    bound.take(child.id()).expect("it is taken");
    child.stdin.take().expect("it is piped").write_all(b"\n").expect("it reads");
    assert_eq!(child.wait().expect("it ends").signal(), Some(9), "the kernel ends it");
    drop(bound);
}
