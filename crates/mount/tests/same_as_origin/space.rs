//! Sizes, space and holes.

use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::fs::{FallocateFlags, SeekFrom};

use crate::contents::errno;
use crate::place::{Place, pattern};

pub fn truncation(place: &mut Place<'_>) {
    let file = place.file("file", &pattern(10_000, 1));
    for size in [10_000, 5_000, 4_097, 4_096, 4_095, 20_000, 1, 0, 3, 1_000_000, 0] {
        place.note(format!("ftruncate {size}"), rustix::fs::ftruncate(&file, size));
        place.look("file");
        place.content("file");
    }
    place.note("write", file.write_at(&pattern(10_000, 2), 0).map_err(errno));
    for size in [7_000, 7_001, 12, 30_000, 0] {
        let opened = std::fs::File::options().write(true).open(place.path("file")).unwrap();
        drop(opened);
        place.note(format!("truncate {size}"), truncate(place, "file", size));
        place.look("file");
        place.content("file");
    }
    // Never opened since it was made.
    std::fs::write(place.path("closed"), pattern(9_000, 3)).unwrap();
    place.note("truncate a closed file", truncate(place, "closed", 4_000));
    place.content("closed");
    place.note("truncate a missing file", truncate(place, "missing", 1));
    place.note("truncate a directory", truncate(place, ".", 1));
    // What was cut off does not come back.
    place.note("grow", rustix::fs::ftruncate(&file, 10));
    place.note("shrink", rustix::fs::ftruncate(&file, 5));
    place.note("grow", rustix::fs::ftruncate(&file, 10));
    place.content("file");
}

/// `truncate(2)`, which takes a path and which std and rustix do not have.
pub fn truncate(place: &Place<'_>, name: &str, size: u64) -> Result<(), rustix::io::Errno> {
    let script = "truncate($ARGV[0], $ARGV[1]) or exit($! + 0)";
    let status = Command::new("perl").args(["-e", script]).arg(place.path(name)).arg(size.to_string()).status();
    match status.unwrap().code() {
        Some(0) => Ok(()),
        code => Err(rustix::io::Errno::from_raw_os_error(code.unwrap())),
    }
}

pub fn too_large(place: &mut Place<'_>) {
    let file = place.file("file", b"abc");
    for size in [1_u64 << 50, (1 << 44) + 1, i64::MAX as u64, 1 << 63] {
        place.note(format!("ftruncate {size}"), rustix::fs::ftruncate(&file, size));
        place.note(format!("write at {size}"), file.write_at(b"x", size).map_err(errno));
        place.look("file");
    }
}

pub fn allocation(place: &mut Place<'_>) {
    let file = place.file("file", &pattern(3_000, 1));
    let plain = FallocateFlags::empty();
    place.note("allocate inside", rustix::fs::fallocate(&file, plain, 0, 1_000));
    place.look("file");
    place.note("allocate beyond", rustix::fs::fallocate(&file, plain, 2_000, 100_000));
    place.look("file");
    place.note("keep size", rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 200_000, 100_000));
    place.look("file");
    place.say("space is there", place.stat("file").unwrap().st_blocks >= 200_000 / 512);
    place.content("file");
    place.note("nothing", rustix::fs::fallocate(&file, plain, 0, 0));
    place.note("more than there is", rustix::fs::fallocate(&file, plain, 0, 1 << 62));
    let reader = std::fs::File::open(place.path("file")).unwrap();
    place.note("by a reader", rustix::fs::fallocate(&reader, plain, 0, 10));
    place.look("file");
}

pub fn zeroing(place: &mut Place<'_>) {
    let file = place.file("file", &pattern(100_000, 1));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for (offset, length) in [(10_000, 5), (4_096, 8_192), (20_001, 30_000), (99_000, 50_000), (200_000, 10)] {
        place.note(format!("punch {offset} {length}"), rustix::fs::fallocate(&file, punch, offset, length));
        place.look("file");
        place.content("file");
    }
    place.note("write", file.write_at(&pattern(100_000, 2), 0).map_err(errno));
    let zero = FallocateFlags::ZERO_RANGE;
    for (offset, length) in [(1, 1), (8_192, 4_096), (50_001, 20_000), (90_000, 20_001)] {
        place.note(format!("zero {offset} {length}"), rustix::fs::fallocate(&file, zero, offset, length));
        place.look("file");
        place.content("file");
    }
    let keeping = zero | FallocateFlags::KEEP_SIZE;
    place.note("zero, keep size", rustix::fs::fallocate(&file, keeping, 100_000, 100_000));
    place.look("file");
    place.content("file");
    place.note("punch without keeping", rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE, 0, 10));
    let both = FallocateFlags::PUNCH_HOLE | zero | FallocateFlags::KEEP_SIZE;
    place.note("punch and zero", rustix::fs::fallocate(&file, both, 0, 10));
}

pub fn shifting(place: &mut Place<'_>) {
    let file = place.file("file", &pattern(40_960, 1));
    place.note("collapse", rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 4_096, 4_096));
    place.note("insert", rustix::fs::fallocate(&file, FallocateFlags::INSERT_RANGE, 4_096, 4_096));
    std::fs::remove_file(place.path("file")).unwrap();
}

const SOME: [u64; 10] = [0, 1, 65_535, 65_536, 100_000, 1 << 20, (1 << 20) + 70_000, (4 << 20) - 1, 4 << 20, 5 << 20];

fn with_holes(place: &mut Place<'_>) -> std::fs::File {
    let file = place.file("file", b"");
    file.write_all_at(&pattern(65_536, 1), 0).unwrap();
    file.write_all_at(&pattern(65_536, 2), 1 << 20).unwrap();
    rustix::fs::ftruncate(&file, 4 << 20).unwrap();
    file
}

/// What every program relies on: data is never skipped, and the end is a hole.
pub fn holes(place: &mut Place<'_>) {
    let file = with_holes(place);
    let content = std::fs::read(place.path("file")).unwrap();
    let zeros = |from: u64, to: u64| content[from as usize..to as usize].iter().all(|byte| *byte == 0);
    for offset in SOME {
        let data = rustix::fs::seek(&file, SeekFrom::Data(offset));
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(offset));
        if offset >= 4 << 20 {
            place.note("data past the end", data);
            place.note("hole past the end", hole);
            continue;
        }
        let end = data.unwrap_or(4 << 20);
        place.say("what is skipped is zeros", end >= offset && zeros(offset, end));
        let hole = hole.unwrap();
        place.say("a hole is zeros", hole >= offset && zeros(hole, content.len().min(hole as usize + 4_096) as u64));
        place.say("data is found where it is", zeros(offset, offset + 1) || data == Ok(offset));
    }
    place.note("end", rustix::fs::seek(&file, SeekFrom::End(-10)));
    place.note("start", rustix::fs::seek(&file, SeekFrom::Start(10)));
    place.note("current", rustix::fs::seek(&file, SeekFrom::Current(5)));
    place.note("before the start", rustix::fs::seek(&file, SeekFrom::Current(-100)));
    let empty = place.file("empty", b"");
    place.note("data in nothing", rustix::fs::seek(&empty, SeekFrom::Data(0)));
    place.note("hole in nothing", rustix::fs::seek(&empty, SeekFrom::Hole(0)));
}

/// Where exactly the origin has its holes.
pub fn exact_holes(place: &mut Place<'_>) {
    let file = with_holes(place);
    for offset in SOME {
        place.note(format!("data from {offset}"), rustix::fs::seek(&file, SeekFrom::Data(offset)));
        place.note(format!("hole from {offset}"), rustix::fs::seek(&file, SeekFrom::Hole(offset)));
    }
}

pub fn room(place: &mut Place<'_>) {
    let room = rustix::fs::statvfs(place.directory).unwrap();
    place.say("blocks", (room.f_blocks, room.f_bsize, room.f_frsize, room.f_files, room.f_namemax));
    place.say("some free", room.f_bfree > 0 && room.f_bavail > 0 && room.f_ffree > 0);
}
