//! Opening, reading, writing, syncing.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::place::{Place, opened, pattern, sum};

pub fn open_flags(place: &mut Place<'_>) {
    place.open("missing", OFlags::RDONLY);
    place.open("new", OFlags::RDWR | OFlags::CREATE | OFlags::EXCL);
    place.open("new", OFlags::RDWR | OFlags::CREATE | OFlags::EXCL);
    place.look("new");
    let mut file = place.file("full", b"some content");
    place.open("full", OFlags::RDONLY);
    place.open("full", OFlags::RDONLY | OFlags::DIRECTORY);
    place.open("full", OFlags::WRONLY | OFlags::TRUNC);
    place.look("full");
    let mut text = String::new();
    place.note("read truncated", file.read_to_string(&mut text).map_err(errno));
    place.file("full", b"again");
    place.open("full", OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC);
    place.look("full");
    // Truncating an empty file by opening it is fine, too.
    place.open("full", OFlags::RDWR | OFlags::TRUNC);
    place.open("full", OFlags::RDONLY | OFlags::SYNC);
    place.open("full", OFlags::RDWR | OFlags::DSYNC | OFlags::NONBLOCK | OFlags::NOATIME);
    place.open("full", OFlags::PATH);
    place.open(".", OFlags::RDONLY | OFlags::DIRECTORY);
    place.open(".", OFlags::RDWR);
    std::os::unix::fs::symlink("full", place.path("link")).unwrap();
    place.open("link", OFlags::RDONLY);
    place.open("link", OFlags::RDONLY | OFlags::NOFOLLOW);
    std::os::unix::fs::symlink("nowhere", place.path("dangling")).unwrap();
    place.open("dangling", OFlags::RDONLY);
    place.open("dangling", OFlags::RDWR | OFlags::CREATE);
    place.look("nowhere");
    place.open("full/below", OFlags::RDONLY);
    let read_only = place.open("full", OFlags::RDONLY).unwrap();
    place.note("write to a reader", read_only.write_at(b"x", 0).map_err(errno));
    let write_only = place.open("full", OFlags::WRONLY).unwrap();
    place.note("read from a writer", write_only.read_at(&mut [0], 0).map_err(errno));
    // Modes at creation hold for later opens, not for this one.
    let file = rustix::fs::open(place.path("dark"), OFlags::RDWR | OFlags::CREATE, Mode::empty()).unwrap();
    place.note("write to a file of mode 0", rustix::io::pwrite(&file, b"abc", 0));
    place.look("dark");
}

pub fn unnamed(place: &mut Place<'_>) {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    place.note("O_TMPFILE", opened(rustix::fs::open(place.directory, flags, Mode::RUSR | Mode::WUSR)));
}

pub fn alignment(place: &mut Place<'_>) {
    let file = place.file("file", b"");
    let sizes = [1, 511, 512, 513, 4095, 4096, 4097, 16384, 65536, 131_071, 1 << 20, (1 << 20) + 1, 3 << 20];
    let offsets = [0, 1, 511, 4095, 4096, 4097, 12_345, 1 << 20, (1 << 20) + 7];
    for (round, size) in sizes.iter().enumerate() {
        for offset in offsets {
            let data = pattern(*size, (round as u64) << 32 | offset);
            place.note(format!("write {size} at {offset}"), file.write_at(&data, offset).map_err(errno));
            let mut back = vec![0; size + 10];
            let read = file.read_at(&mut back, offset).map_err(errno);
            place.note("read back", read);
            place.say("same", back[..*size] == data[..]);
        }
    }
    place.content("file");
    let sparse = place.file("sparse", b"");
    place.note("write far", sparse.write_at(b"end", 50_000_001).map_err(errno));
    place.look("sparse");
    let mut zeros = vec![1; 10_000];
    place.note("read hole", sparse.read_at(&mut zeros, 49_000_000).map_err(errno));
    place.say("zeros", zeros.iter().all(|byte| *byte == 0));
    place.note("read at the end", sparse.read_at(&mut zeros, 50_000_000).map_err(errno));
    place.note("read past the end", sparse.read_at(&mut zeros, 50_000_100).map_err(errno));
    place.content("sparse");
}

pub fn direct(place: &mut Place<'_>) {
    let file = place.open("file", OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT).unwrap();
    let mut memory = vec![0_u8; (2 << 20) + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let aligned = &mut memory[start..start + (2 << 20)];
    aligned.copy_from_slice(&pattern(2 << 20, 5));
    for size in [4096, 16384, 1 << 20, 2 << 20] {
        place.note(format!("direct write {size}"), file.write_at(&aligned[..size], 8192).map_err(errno));
    }
    let before = sum(&aligned[..1 << 20]);
    place.note("direct read", file.read_at(&mut aligned[..1 << 20], 8192).map_err(errno));
    place.say("same", sum(&aligned[..1 << 20]) == before);
    place.note("direct read at the end", file.read_at(&mut aligned[..8192], (2 << 20) + 4096).map_err(errno));
    // Through the page cache and past it by turns.
    let cached = File::options().read(true).write(true).open(place.path("file")).unwrap();
    place.note("cached write", cached.write_at(&[7; 4096], 16384).map_err(errno));
    place.note("direct read", file.read_at(&mut aligned[..4096], 16384).map_err(errno));
    place.say("seen", aligned[..4096].iter().all(|byte| *byte == 7));
    aligned[..4096].fill(9);
    place.note("direct write", file.write_at(&aligned[..4096], 16384).map_err(errno));
    let mut back = [0; 4096];
    place.note("cached read", cached.read_at(&mut back, 16384).map_err(errno));
    place.say("seen", back.iter().all(|byte| *byte == 9));
    place.note("unaligned direct write", file.write_at(&aligned[..100], 0).map_err(errno));
    std::fs::remove_file(place.path("file")).unwrap();
}

pub fn durable_writes(place: &mut Place<'_>) {
    for flags in [OFlags::SYNC, OFlags::DSYNC, OFlags::SYNC | OFlags::APPEND] {
        let file = place.open("file", OFlags::RDWR | OFlags::CREATE | flags).unwrap();
        place.note("write", rustix::io::write(&file, &pattern(10_000, 3)));
        place.look("file");
    }
    let file = place.file("per write", b"");
    let flags = rustix::io::ReadWriteFlags::DSYNC;
    place.note("pwritev2 DSYNC", rustix::io::pwritev2(&file, &[IoSlice::new(b"abc")], 3, flags));
    place.content("per write");
    place.content("file");
}

pub fn appends(place: &mut Place<'_>) {
    let one = place.open("log", OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND).unwrap();
    let other = place.open("log", OFlags::WRONLY | OFlags::APPEND).unwrap();
    for round in 0..50_u8 {
        let mut file = if round % 2 == 0 { &one } else { &other };
        place.note("append", file.write(&vec![round; 100 * usize::from(round) + 1]).map_err(errno));
    }
    // O_APPEND wins over an offset.
    place.note("pwrite at 0", one.write_at(b"the end", 0).map_err(errno));
    place.look("log");
    place.content("log");
}

pub fn vectored(place: &mut Place<'_>) {
    let mut file = place.file("file", b"");
    let parts = [pattern(100, 1), pattern(5000, 2), pattern(0, 3), pattern(70_000, 4)];
    let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    place.note("writev", file.write_vectored(&slices).map_err(errno));
    let (mut first, mut second) = (vec![0; 5000], vec![0; 80_000]);
    let mut targets = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    place.note("preadv", rustix::io::preadv(&file, &mut targets, 50));
    place.say("first", sum(&first));
    place.say("second", sum(&second));
}

pub fn syncs(place: &mut Place<'_>) {
    let file = place.file("file", &pattern(100_000, 1));
    place.note("fsync", file.sync_all().map_err(errno));
    place.note("fdatasync", file.sync_data().map_err(errno));
    let reader = File::open(place.path("file")).unwrap();
    place.note("fsync of a reader", reader.sync_all().map_err(errno));
    place.note("fchmod", rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600)));
    place.note("fsync after chmod", file.sync_all().map_err(errno));
    let directory = File::open(place.directory).unwrap();
    place.note("fsync of the directory", directory.sync_all().map_err(errno));
    place.note("fdatasync of the directory", directory.sync_data().map_err(errno));
    place.note("syncfs", rustix::fs::syncfs(&file));
    place.note(
        "sync_file_range",
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map(|()| "advice taken"),
    );
    place.content("file");
}

pub fn unlinked(place: &mut Place<'_>) {
    let file = place.file("gone", &pattern(50_000, 1));
    place.note("unlink", rustix::fs::unlink(place.path("gone")));
    place.look("gone");
    place.say("links", rustix::fs::fstat(&file).unwrap().st_nlink);
    place.note("write", file.write_at(b"still here", 49_995).map_err(errno));
    let mut back = vec![0; 60_000];
    place.note("read", file.read_at(&mut back, 0).map_err(errno));
    place.say("content", sum(&back));
    place.note("truncate", rustix::fs::ftruncate(&file, 10));
    place.note("fsync", file.sync_all().map_err(errno));
    place.say("size", rustix::fs::fstat(&file).unwrap().st_size);
    // The name can be taken again meanwhile.
    place.file("gone", b"another");
    place.content("gone");
    place.note("read", file.read_at(&mut back, 0).map_err(errno));
    drop(file);
    place.content("gone");
    let old = place.file("target", b"old");
    place.file("source", b"new");
    place.note("rename over", rustix::fs::rename(place.path("source"), place.path("target")));
    let mut text = [0; 3];
    place.note("read the old", old.read_at(&mut text, 0).map_err(errno));
    place.say("old", text);
    place.note("write the old", old.write_at(b"OLD", 0).map_err(errno));
    place.content("target");
}

pub fn copy_range(place: &mut Place<'_>) {
    let from = place.file("from", &pattern(300_000, 1));
    let to = place.file("to", b"");
    let (mut source, mut target) = (1000, 5);
    while source < 300_000 {
        let copied = rustix::fs::copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 1 << 20);
        if !matches!(copied, Ok(1..)) {
            place.note("copy", copied);
            break;
        }
    }
    place.note("copy at the end", rustix::fs::copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 100));
    place.look("to");
    place.content("to");
    place.say("std", std::fs::copy(place.path("from"), place.path("std")).unwrap());
    place.content("std");
}

pub fn errors(place: &mut Place<'_>) {
    let file = place.file("file", b"content");
    place.note("write at the last offset", rustix::io::pwrite(&file, b"xy", i64::MAX as u64));
    place.note("write beyond offsets", rustix::io::pwrite(&file, b"xy", u64::MAX - 1));
    place.note("write nothing", rustix::io::pwrite(&file, b"", 1000));
    place.look("file");
    let directory = File::open(place.directory).unwrap();
    place.note("read a directory", rustix::io::pread(&directory, &mut [0; 10], 0));
    place.note("truncate a reader", {
        let reader = File::open(place.path("file")).unwrap();
        rustix::fs::ftruncate(&reader, 1)
    });
    place.note("access", rustix::fs::accessat(CWD, place.path("file"), rustix::fs::Access::READ_OK, AtFlags::empty()));
    place.note("access", rustix::fs::accessat(CWD, place.path("none"), rustix::fs::Access::EXISTS, AtFlags::empty()));
}

pub fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
