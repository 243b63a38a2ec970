//! Opening, locking and creating flash: errors are reported, and nothing is harmed.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use headpond_base::{BLOCK, BufMut, Errno, MemberId};
use headpond_device::{Backend, Fill, Flash, FlashError, FlashKind, TrimPolicy, start_reactor};

/// The disk under test.
const DISK: MemberId = MemberId(0);

#[test]
fn two_never_share_a_flash_and_the_second_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let first = Flash::create(&path, 1 << 20, Fill::Reserved).unwrap();
    assert!(matches!(Flash::open(&path), Err(FlashError::InUse(_))));
    assert!(matches!(Flash::open_read_only(&path), Err(FlashError::InUse(_))));
    assert!(matches!(Flash::create(&path, 1 << 20, Fill::Reserved), Err(FlashError::Exists(_))));
    drop(first);
    let device = start_reactor(vec![(DISK, Flash::open(&path).unwrap())], Backend::Auto, TrimPolicy::Off).unwrap();
    assert!(matches!(Flash::open(&path), Err(FlashError::InUse(_))));
    drop(device);
    let reader = Flash::open_read_only(&path).unwrap();
    assert!(Flash::open_read_only(&path).is_ok());
    assert!(matches!(Flash::open(&path), Err(FlashError::InUse(_))));
    assert_eq!(reader.write(0, &BufMut::zeroed(BLOCK).freeze()), Err(Errno::BADF));
}

#[test]
fn what_is_taken_over_keeps_its_lock_when_its_first_owner_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let first = Flash::create(&path, 1 << 20, Fill::Reserved).unwrap();
    let handed = first.file().unwrap().try_clone().unwrap();
    let (bytes, direct) = (first.bytes(), first.is_direct());
    drop(first);
    assert!(matches!(Flash::open(&path), Err(FlashError::InUse(_))));
    let second = Flash::taken_over(handed, &path).unwrap();
    assert_eq!((second.bytes(), second.is_direct(), second.kind()), (bytes, direct, FlashKind::File));
    drop(second);
    assert!(Flash::open(&path).is_ok());
}

#[test]
fn a_second_process_is_refused_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let flash = Flash::create(&path, 1 << 20, Fill::Reserved).unwrap();
    let locked = |how: &str| std::process::Command::new("flock").args([how, "-x"]).arg(&path).arg("true").status();
    let Ok(status) = locked("--nonblock") else { return };
    assert!(!status.success());
    drop(flash);
    // A child that another test has just started has the lock until it runs its own program.
    assert!(locked("--wait=10").unwrap().success());
}

#[test]
fn a_created_file_has_its_size_all_its_space_and_zeros() {
    use std::os::unix::fs::MetadataExt;
    for fill in [Fill::Reserved, Fill::Zeros] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flash");
        let flash = Flash::create(&path, (3 << 20) + 100, fill).unwrap();
        assert_eq!((flash.bytes(), flash.kind()), (3 << 20, FlashKind::File));
        assert!(flash.file().unwrap().metadata().unwrap().blocks() * 512 >= 3 << 20);
        assert!(flash.read(0, 3 << 20).unwrap().iter().all(|byte| *byte == 0));
        assert_eq!(flash.read(3 << 20, BLOCK).unwrap_err(), Errno::IO);
    }
}

#[test]
fn a_sparse_file_gets_its_space_and_keeps_its_bytes() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    std::fs::write(&path, b"somebody's").unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
    let flash = Flash::open(&path).unwrap();
    assert!(flash.file().unwrap().metadata().unwrap().blocks() * 512 < 2 << 20);
    flash.allocate().unwrap();
    assert!(flash.file().unwrap().metadata().unwrap().blocks() * 512 >= 2 << 20);
    assert_eq!(flash.read(0, BLOCK).unwrap()[..10], *b"somebody's");
}

#[test]
fn too_large_for_the_file_system_is_told_at_creation_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let made = Flash::create(&path, 1 << 50, Fill::Reserved);
    match made {
        Err(FlashError::NoSpace { wanted, free, .. }) => assert!(wanted == 1 << 50 && free > 0),
        other => panic!("{other:?}"),
    }
    assert!(!path.exists());
}

#[test]
fn what_is_no_flash_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Flash::open(&dir.path().join("none")), Err(FlashError::Missing(_))));
    assert!(matches!(Flash::open(dir.path()), Err(FlashError::NotFlash(_))));
    assert!(matches!(Flash::open(Path::new("/dev/null")), Err(FlashError::NotFlash(_))));
}

#[test]
fn memory_file_systems_work_with_or_without_direct_io() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return;
    }
    let dir = tempfile::tempdir_in(shm).unwrap();
    let flash = Flash::create(&dir.path().join("flash"), 1 << 20, Fill::Reserved).unwrap();
    let data = BufMut::copy_of(&[7; BLOCK]).freeze();
    flash.write(4096, &data).unwrap();
    flash.sync().unwrap();
    assert_eq!(flash.read(4096, BLOCK).unwrap()[..], data[..]);
}

#[test]
fn the_flash_of_a_killed_process_can_be_opened_at_once() {
    use headpond_device::{DiskOp, Tag};
    use std::io::Read;
    const PATH: &str = "HEADPOND_TEST_KILLED_FLASH";
    if let Some(path) = std::env::var_os(PATH) {
        let backend = if path.as_encoded_bytes().ends_with(b"0") { Backend::Auto } else { Backend::Psync };
        let flash = Flash::open(path.as_ref()).unwrap();
        let mut device = start_reactor(vec![(DISK, flash)], backend, TrimPolicy::Off).unwrap();
        let data = BufMut::zeroed(64 << 10).freeze();
        let mut done = Vec::new();
        (0..64).for_each(|tag| {
            device.submit(DISK, DiskOp::Write { tag: Tag(tag), offset: tag << 16, data: data.clone() })
        });
        loop {
            device.wait(&mut done, None).unwrap();
            for one in done.drain(..) {
                let tag = one.tag;
                device.submit(DISK, DiskOp::Write { tag, offset: tag.0 << 16, data: data.clone() });
                if tag.0 == 0 {
                    eprintln!("writing");
                }
            }
        }
    }
    for round in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("flash{}", round % 2));
        drop(Flash::create(&path, 4 << 20, Fill::Reserved).unwrap());
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "the_flash_of_a_killed_process_can_be_opened_at_once"])
            .env(PATH, &path)
            .stderr(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        child.stderr.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        Flash::open(&path).unwrap();
    }
}

/// A loop device, where there is a right to make one.
struct Loop(std::path::PathBuf);

impl Loop {
    fn on(file: &Path) -> Option<Self> {
        let made = std::process::Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?;
        made.status.success().then(|| Self(name.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn block_devices_are_measured_locked_written_and_trimmed() {
    use headpond_device::{DiskOp, Tag};
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    std::fs::write(&file, vec![7; 4 << 20]).unwrap();
    let Some(disk) = Loop::on(&file) else {
        eprintln!("not tested: no right to make a loop device");
        return;
    };
    let flash = Flash::open(&disk.0).unwrap();
    assert_eq!((flash.kind(), flash.bytes()), (FlashKind::BlockDevice, 4 << 20));
    assert!(matches!(Flash::open(&disk.0), Err(FlashError::InUse(_))));
    let mut device = start_reactor(vec![(DISK, flash)], Backend::Auto, TrimPolicy::Devices).unwrap();
    device.submit(DISK, DiskOp::Trim { offset: 0, len: 2 << 20 });
    device.submit(DISK, DiskOp::Write { tag: Tag(1), offset: 0, data: BufMut::copy_of(&[9; BLOCK]).freeze() });
    device.submit(DISK, DiskOp::Sync { tag: Tag(2) });
    let mut done = Vec::new();
    while done.len() < 2 {
        device.wait(&mut done, None).unwrap();
    }
    drop(device);
    let flash = Flash::open(&disk.0).unwrap();
    assert_eq!(flash.read(0, BLOCK).unwrap()[..], [9; BLOCK]);
    assert_eq!(flash.read(2 << 20, BLOCK).unwrap()[..], [7; BLOCK]);
    let blocks = std::fs::metadata(&file).unwrap().blocks();
    assert!(blocks * 512 < 3 << 20, "the trimmed half keeps its space: {blocks} sectors");
}
