//! What file systems have beyond names and content: birth times, file flags, files without a name, inodes that are
//! asked for by number.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod bench;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use bench::{Behind, Bench};
use headpond_base::CacheMode;
use headpond_engine::{Reply, Request};
use rustix::fs::{AtFlags, CWD, IFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

fn bench() -> Bench {
    Bench::engine(CacheMode::WriteBack)
}

fn flush(bench: &Bench) {
    let Behind::Engine(handle) = &bench.behind else { unreachable!() };
    assert!(matches!(handle.call(Request::flush_all(1)), Reply::Done));
}

/// Whether the kernel is at least this. If not, it is said.
fn kernel(major: u32, minor: u32) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let new_enough = (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor);
    if !new_enough {
        eprintln!("NOT TESTED: Linux {release} is older than {major}.{minor}");
    }
    new_enough
}

#[test]
fn birth_times_are_the_origins() {
    if !kernel(6, 6) {
        return;
    }
    let bench = bench();
    fs::write(bench.mountpoint.join("file"), "content").unwrap();
    fs::create_dir(bench.mountpoint.join("directory")).unwrap();
    let birth = |path: &Path| {
        let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::ALL).unwrap();
        (found.stx_mask & StatxFlags::BTIME.bits() != 0).then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
    };
    for name in ["file", "directory", ""] {
        let seen = birth(&bench.mountpoint.join(name));
        assert_eq!(seen, birth(&bench.origin.join(name)), "{name}");
        assert!(seen.is_some(), "the origin has birth times");
    }
    // All else that statx says is as stat says it.
    let found = rustix::fs::statx(CWD, bench.mountpoint.join("file"), AtFlags::empty(), StatxFlags::ALL).unwrap();
    let plain = fs::metadata(bench.mountpoint.join("file")).unwrap();
    assert_eq!((found.stx_size, found.stx_ino), (7, plain.ino()));
    assert_eq!((u32::from(found.stx_mode), found.stx_nlink, found.stx_uid), (plain.mode(), 1, plain.uid()));
    assert_eq!((found.stx_mtime.tv_sec, i64::from(found.stx_mtime.tv_nsec)), (plain.mtime(), plain.mtime_nsec()));
}

#[test]
fn a_file_without_a_name_is_written_and_given_one() {
    if !kernel(6, 1) {
        return;
    }
    let mut bench = bench();
    let nameless = |flags| {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC | flags;
        rustix::fs::open(&bench.mountpoint, flags, Mode::from_raw_mode(0o640)).map(File::from)
    };
    let file = nameless(OFlags::empty()).unwrap();
    file.write_all_at(&[7; 10_000], 0).unwrap();
    file.sync_all().unwrap();
    let found = file.metadata().unwrap();
    assert_eq!((found.nlink(), found.len(), found.mode() & 0o777), (0, 10_000, 0o640));
    assert_eq!(fs::read_dir(&bench.mountpoint).unwrap().count(), 0);
    let path = bench.mountpoint.join("named");
    let link = |file: &File, path: &Path| {
        rustix::fs::linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, path, AtFlags::SYMLINK_FOLLOW)
    };
    link(&file, &path).unwrap();
    // By its name and by the first descriptor it is one file.
    let named = File::options().read(true).write(true).open(&path).unwrap();
    named.write_all_at(&[8; 10], 5000).unwrap();
    file.write_all_at(&[9; 10], 6000).unwrap();
    drop((file, named));
    let content = fs::read(&path).unwrap();
    assert_eq!((content.len(), content[0], content[5000], content[6009]), (10_000, 7, 8, 9));
    let never = nameless(OFlags::EXCL).unwrap();
    assert_eq!(link(&never, &bench.mountpoint.join("never")).unwrap_err(), Errno::NOENT);
    drop(never);
    bench.finish();
    assert!(fs::read(bench.origin.join("named")).unwrap() == content);
}

#[test]
fn file_flags_are_the_origins() {
    let mut bench = bench();
    let path = bench.mountpoint.join("file");
    fs::write(&path, "content").unwrap();
    let flags = |path: &Path| rustix::fs::ioctl_getflags(File::open(path).unwrap());
    let Ok(at_origin) = flags(&bench.origin.join("file")) else {
        eprintln!("NOT TESTED: the origin has no file flags");
        return;
    };
    assert_eq!(flags(&path).unwrap(), at_origin);
    assert_eq!(flags(&bench.mountpoint).unwrap(), flags(&bench.origin).unwrap());
    let set = |flags| rustix::fs::ioctl_setflags(File::open(&path).unwrap(), flags);
    set(at_origin | IFlags::NODUMP).unwrap();
    assert!(flags(&bench.origin.join("file")).unwrap().contains(IFlags::NODUMP));
    if !bench::is_root() {
        eprintln!("NOT TESTED without root: the immutable flag");
        return;
    }
    // Dirty data reaches the origin while it can still be written there.
    set(at_origin | IFlags::IMMUTABLE).unwrap();
    let refused = File::options().write(true).open(&path).map(drop);
    let at_origin_then = fs::read_to_string(bench.origin.join("file"));
    let removed = fs::remove_file(&path);
    let read = fs::read_to_string(&path);
    set(at_origin).unwrap();
    assert!(refused.is_err() && removed.is_err(), "{refused:?} {removed:?}");
    assert_eq!((at_origin_then.unwrap().as_str(), read.unwrap().as_str()), ("content", "content"));
    assert_eq!(set(at_origin | IFlags::APPEND).unwrap_err(), Errno::OPNOTSUPP);
    let writer = File::options().append(true).open(&path).unwrap();
    assert_eq!(set(at_origin | IFlags::IMMUTABLE).unwrap_err(), Errno::BUSY, "while it is open for writing");
    drop(writer);
    fs::write(&path, "other content").unwrap();
    flush(&bench);
    bench.finish();
}

/// A program that opens a file by its handle, as an NFS server does, after the kernel has forgotten the inode. The
/// file's kind of handle holds its number and generation.
const BY_HANDLE: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
def handle(path):
    h, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(h), ctypes.byref(mount), 0):
        sys.exit("name_to_handle_at: " + os.strerror(ctypes.get_errno()))
    return h
def read(h):
    top = os.open(root, os.O_RDONLY)
    fd = libc.open_by_handle_at(top, ctypes.byref(h), os.O_RDONLY)
    os.close(top)
    if fd < 0:
        return os.strerror(ctypes.get_errno())
    with os.fdopen(fd) as file:
        return file.read()
root = sys.argv[1]
a, b = handle(root + "/deep/down/file"), handle(root + "/goes")
print(read(a), read(b))
os.rename(root + "/deep", root + "/other")
os.remove(root + "/goes")
forget()
print(read(a), read(b))
"#;

#[test]
fn a_file_is_opened_by_its_handle_after_the_kernel_forgot_it() {
    if !bench::is_root() || !Command::new("python3").arg("-V").status().is_ok_and(|status| status.success()) {
        assert!(!bench::is_root() || std::env::var_os("HEADPOND_TEST_ALL").is_none(), "python3 is missing");
        eprintln!("NOT TESTED: needs root and python3");
        return;
    }
    let bench = bench();
    fs::create_dir_all(bench.mountpoint.join("deep/down")).unwrap();
    fs::write(bench.mountpoint.join("deep/down/file"), "content").unwrap();
    fs::write(bench.mountpoint.join("goes"), "gone soon").unwrap();
    // There is no way to have the kernel forget the inodes of one mount alone.
    let forget = "def forget():\n    open('/proc/sys/vm/drop_caches', 'w').write('2')\n";
    let said = Command::new("python3").args(["-c", &format!("{forget}{BY_HANDLE}")]).arg(&bench.mountpoint).output();
    let said = said.unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert_eq!(text, "content gone soon\ncontent Stale file handle\n");
}
