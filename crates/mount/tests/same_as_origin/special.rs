//! Pipes, sockets, device nodes, locks, programs.

use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags};

use crate::contents::errno;
use crate::place::{Place, pattern, sum};

pub fn nodes(place: &mut Place<'_>) {
    let kinds = [
        ("pipe", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        ("block", FileType::BlockDevice, rustix::fs::makedev(7, 300)),
        ("file", FileType::RegularFile, 0),
    ];
    for (name, kind, device) in kinds {
        let made = rustix::fs::mknodat(CWD, place.path(name), kind, Mode::from_raw_mode(0o640), device);
        place.note(format!("mknod {name}"), made);
        place.look(name);
    }
    place.note("again", rustix::fs::mknodat(CWD, place.path("pipe"), FileType::Fifo, Mode::RUSR, 0));
    place.note("write the file", std::fs::write(place.path("file"), b"content").map_err(errno));
    place.content("file");
    place.note("write null", std::fs::write(place.path("null"), b"content").map_err(errno));
    place.note("rename", rustix::fs::rename(place.path("pipe"), place.path("other")));
    place.look("other");
    place.open("other", OFlags::WRONLY | OFlags::NONBLOCK);
    place.open("socket", OFlags::RDWR);
    for name in ["other", "socket", "file"] {
        place.note("unlink", rustix::fs::unlink(place.path(name)));
    }
}

pub fn pipe(place: &mut Place<'_>) {
    let path = place.path("pipe");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let writer = std::thread::spawn({
        let path = path.clone();
        move || std::fs::File::options().write(true).open(path).unwrap().write_all(b"through the pipe").unwrap()
    });
    let mut text = String::new();
    place.note("read", std::fs::File::open(&path).and_then(|mut file| file.read_to_string(&mut text)).map_err(errno));
    writer.join().unwrap();
    place.say("text", text);
}

pub fn socket(place: &mut Place<'_>) {
    // Socket addresses are short: by a short way to the directory.
    let directory = std::fs::File::open(place.directory).unwrap();
    let path = format!("/proc/self/fd/{}/s", std::os::fd::AsRawFd::as_raw_fd(&directory));
    let listener = UnixListener::bind(&path);
    place.note("bind", listener.as_ref().map(|_| ()).map_err(|error| rustix::io::Errno::from_io_error(error).unwrap()));
    place.look("s");
    place.note("bind again", UnixListener::bind(&path).map(drop).map_err(errno));
    if let Ok(listener) = listener {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut text = [0; 5];
        listener.accept().unwrap().0.read_exact(&mut text).unwrap();
        place.say("text", text);
    }
    place.note("unlink", rustix::fs::unlink(place.path("s")));
}

pub fn whole_file_locks(place: &mut Place<'_>) {
    let one = place.file("file", b"x");
    let two = std::fs::File::open(place.path("file")).unwrap();
    place.note("shared", rustix::fs::flock(&one, FlockOperation::LockShared));
    place.note("shared too", rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared));
    place.note("exclusive", rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive));
    place.note("unlock", rustix::fs::flock(&two, FlockOperation::Unlock));
    place.note("exclusive", rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive));
    place.note("shared", rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared));
    drop(one);
    place.note("shared", rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared));
}

/// Whether another process gets a lock of the whole file.
fn another_process_locks(place: &Place<'_>, name: &str) -> bool {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "try_lock_as_another_process"])
        .env("LOCKED_FILE", place.path(name))
        .output()
        .unwrap()
        .status
        .success()
}

pub fn record_locks(place: &mut Place<'_>) {
    let file = place.file("file", b"x");
    place.say("free", another_process_locks(place, "file"));
    place.note("shared", rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared));
    place.say("another, while shared", another_process_locks(place, "file"));
    place.note("exclusive", rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive));
    place.say("another, while exclusive", another_process_locks(place, "file"));
    place.note("unlock", rustix::fs::fcntl_lock(&file, FlockOperation::Unlock));
    place.say("another, after", another_process_locks(place, "file"));
    place.note("again", rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive));
    // Any close of the file by the process lets go.
    drop(std::fs::File::open(place.path("file")).unwrap());
    place.say("another, after a close", another_process_locks(place, "file"));
}

#[allow(unsafe_code, reason = "there is no other way to a mapping")]
pub fn mapping(place: &mut Place<'_>) {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    const LENGTH: usize = 3 * 4096 + 100;
    let file = place.file("file", &pattern(LENGTH, 1));
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the address is the kernel's choice; the mapping is gone before this function ends and is
    // reached only through the slice below; nothing truncates the file meanwhile.
    let address = unsafe { mmap(std::ptr::null_mut(), LENGTH, protection, MapFlags::SHARED, &file, 0) }.unwrap();
    // SAFETY: LENGTH bytes are mapped there, readable and writable, and all inside the file.
    let mapped = unsafe { std::slice::from_raw_parts_mut(address.cast::<u8>(), LENGTH) };
    place.say("content", sum(mapped));
    mapped[5000..5004].copy_from_slice(b"here");
    // SAFETY: the same range.
    place.note("msync", unsafe { msync(address, LENGTH, MsyncFlags::SYNC) });
    place.content("file");
    place.note("write", file.write_at(b"there", 9000).map_err(errno));
    place.say("seen in the mapping", mapped[9000..9005] == *b"there");
    mapped[LENGTH - 1] = 42;
    // SAFETY: mapped above, and the slice is not used any more.
    place.note("unmap", unsafe { munmap(address, LENGTH) });
    place.note("fsync", file.sync_all().map_err(errno));
    drop(file);
    place.content("file");
    place.look("file");
}

pub fn program(place: &mut Place<'_>) {
    std::fs::copy("/bin/echo", place.path("echo")).unwrap();
    let run = |place: &Place<'_>| Command::new(place.path("echo")).arg("hello").output();
    place.note("run", run(place).map(|output| output.stdout).map_err(errno));
    std::fs::set_permissions(place.path("echo"), std::fs::Permissions::from_mode(0o644)).unwrap();
    place.note("run without x", run(place).map(|output| output.stdout).map_err(errno));
    std::fs::set_permissions(place.path("echo"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let writer = std::fs::File::options().append(true).open(place.path("echo")).unwrap();
    place.note("run while written", run(place).map(|output| output.stdout).map_err(errno));
    drop(writer);
    running(place);
    place.note("script", {
        std::fs::write(place.path("text"), "#!/bin/sh\necho from a script\n").unwrap();
        std::fs::set_permissions(place.path("text"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::copy(place.path("text"), place.path("script")).unwrap();
        Command::new(place.path("script")).output().map(|output| output.stdout).map_err(errno)
    });
}

/// A program that runs can be neither written nor cut short, not even by the attempt.
fn running(place: &mut Place<'_>) {
    std::fs::copy("/bin/sleep", place.path("sleep")).unwrap();
    let mut sleeps = Command::new(place.path("sleep")).arg("60").spawn().unwrap();
    for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::TRUNC, OFlags::WRONLY | OFlags::TRUNC] {
        place.open("sleep", flags);
    }
    place.note(
        "cut it short",
        std::fs::File::options().write(true).truncate(true).open(place.path("sleep")).map(drop).map_err(errno),
    );
    place.content("sleep");
    sleeps.kill().unwrap();
    sleeps.wait().unwrap();
    place.open("sleep", OFlags::RDONLY | OFlags::TRUNC);
    place.content("sleep");
}
