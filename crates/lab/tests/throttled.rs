//! A throttled disk holds what is written to it, and is as slow as it says.

mod machine;

use headpond_lab::throttled::{Throttle, ThrottledDisk, missing};
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_throttled_disk_holds_its_bytes_and_is_never_faster_than_it_says() {
    if !machine::lacks_nothing(missing()) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let throttle: Throttle = "iops=400,mib=100".parse().unwrap();
    let disk = ThrottledDisk::make(scratch.path(), 256, &throttle).unwrap();
    disk.begin();
    let path = disk.path().join("data");
    let data: Vec<u8> = (0..64_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let since = Instant::now();
    fs::write(&path, &data).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    assert!(since.elapsed() > Duration::from_millis(600), "64 MiB at 100 MiB a second: {:?}", since.elapsed());
    let mut fio = Command::new("fio");
    fio.args(["--name=r", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=16"]);
    fio.args(["--readonly", "--number_ios=400"]).arg(format!("--filename={}", path.display()));
    let since = Instant::now();
    assert!(fio.output().unwrap().status.success());
    assert!(since.elapsed() > Duration::from_millis(950), "400 at 400 a second: {:?}", since.elapsed());
    // Requests of all sizes, many under way, past the page cache.
    let mut fio = Command::new("fio");
    fio.args(["--name=v", "--rw=randwrite", "--bsrange=4k-512k", "--direct=1", "--ioengine=libaio", "--iodepth=32"]);
    fio.args(["--size=48m", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"])
        .arg(format!("--filename={}", path.display()));
    let output = fio.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    drop(disk);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing stays");
}

/// A container that starts meanwhile has a copy of this machine's mounts.
#[test]
fn it_goes_while_another_namespace_has_copies_of_its_mounts() {
    if !machine::lacks_nothing(missing()) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let disk = ThrottledDisk::make(scratch.path(), 64, &"iops=400,mib=100".parse().unwrap()).unwrap();
    let mut other = Command::new("unshare");
    other.args(["--mount", "--propagation", "private", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = other.spawn().unwrap();
    // What it says back comes out of the namespace.
    other.stdin.as_mut().unwrap().write_all(b".").unwrap();
    other.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", other.id())).unwrap();
    assert!(mounts.contains(disk.path().to_str().unwrap()));
    fs::write(disk.path().join("data"), vec![1; 4 << 20]).unwrap();
    drop(disk);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing stays");
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
}
