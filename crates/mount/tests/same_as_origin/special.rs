//! Pipes, sockets, device nodes, locks, programs.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags};

use crate::contents::errno;
use crate::place::Place;

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
    place.note("script", {
        std::fs::write(place.path("script"), "#!/bin/sh\necho from a script\n").unwrap();
        std::fs::set_permissions(place.path("script"), std::fs::Permissions::from_mode(0o755)).unwrap();
        Command::new(place.path("script")).output().map(|output| output.stdout).map_err(errno)
    });
}
