//! Modes, times, extended attributes.

use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, IFlags, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;

use crate::place::Place;

pub fn modes(place: &mut Place<'_>) {
    let file = place.file("file", b"x");
    for mode in [0o600, 0o7777, 0o000, 0o1755, 0o644] {
        place.note(format!("chmod {mode:o}"), rustix::fs::chmod(place.path("file"), Mode::from_raw_mode(mode)));
        place.look("file");
    }
    place.note("fchmod", rustix::fs::fchmod(&file, Mode::from_raw_mode(0o640)));
    place.look("file");
    std::fs::create_dir(place.path("directory")).unwrap();
    place.note("chmod of a directory", rustix::fs::chmod(place.path("directory"), Mode::from_raw_mode(0o2711)));
    place.look("directory");
    place.note("chmod of nothing", rustix::fs::chmod(place.path("none"), Mode::from_raw_mode(0o644)));
}

pub fn times(place: &mut Place<'_>) {
    place.file("open", b"x");
    let held = std::fs::File::open(place.path("open")).unwrap();
    std::fs::create_dir(place.path("directory")).unwrap();
    rustix::fs::mknodat(CWD, place.path("fresh"), FileType::RegularFile, Mode::from_raw_mode(0o644), 0).unwrap();
    std::os::unix::fs::symlink("open", place.path("link")).unwrap();
    let moments = [(0, 0), (1, 1), (-1, 999_999_999), (-2, 5), (1_600_000_000, 123_456_789), (4_294_967_296, 7)];
    for name in ["open", "directory", "fresh", "link"] {
        for (seconds, nanos) in moments {
            let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
            let both = Timestamps { last_access: time, last_modification: Timespec { tv_sec: seconds + 1, ..time } };
            place.note(
                format!("set {name} {seconds} {nanos}"),
                rustix::fs::utimensat(CWD, place.path(name), &both, AtFlags::SYMLINK_NOFOLLOW),
            );
            note_times(place, name);
        }
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let one = Timespec { tv_sec: 77, tv_nsec: 7 };
        for (last_access, last_modification) in [(omit, one), (one, omit), (omit, omit)] {
            let times = Timestamps { last_access, last_modification };
            place.note(
                format!("omit {name}"),
                rustix::fs::utimensat(CWD, place.path(name), &times, AtFlags::SYMLINK_NOFOLLOW),
            );
            note_times(place, name);
        }
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        place.note(
            format!("now {name}"),
            rustix::fs::utimensat(CWD, place.path(name), &times, AtFlags::SYMLINK_NOFOLLOW),
        );
        let found = place.stat(name).unwrap();
        place.say("recent", found.st_mtime > 1_700_000_000 && found.st_atime > 1_700_000_000);
    }
    place.note(
        "futimens",
        rustix::fs::futimens(
            &held,
            &Timestamps {
                last_access: Timespec { tv_sec: 5, tv_nsec: 5 },
                last_modification: Timespec { tv_sec: 6, tv_nsec: 6 },
            },
        ),
    );
    note_times(place, "open");
    let bad = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: 1_000_000_000 },
        last_modification: Timespec { tv_sec: 0, tv_nsec: 0 },
    };
    place.note("bad", rustix::fs::utimensat(CWD, place.path("open"), &bad, AtFlags::empty()));
}

fn note_times(place: &mut Place<'_>, name: &str) {
    let found = place.stat(name).unwrap();
    place.say("times", (found.st_atime, found.st_atime_nsec, found.st_mtime, found.st_mtime_nsec));
}

/// Which of access, modification and status change move with what.
pub fn which_times_move(place: &mut Place<'_>) {
    let file = place.file("file", b"0123456789");
    std::fs::create_dir(place.path("directory")).unwrap();
    type Step = (&'static str, fn(&Place<'_>, &std::fs::File));
    let steps: [Step; 17] = [
        ("write", |_, file| file.write_all_at(b"x", 3).unwrap()),
        ("ftruncate", |_, file| rustix::fs::ftruncate(file, 5).unwrap()),
        ("ftruncate to the same size", |_, file| rustix::fs::ftruncate(file, 5).unwrap()),
        ("truncate to the same size", |place, _| crate::space::truncate(place, "file", 5).unwrap()),
        ("truncate to less", |place, _| crate::space::truncate(place, "file", 4).unwrap()),
        ("allocate", |_, file| {
            rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, 10_000).unwrap();
        }),
        ("punch", |_, file| {
            let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, flags, 0, 100).unwrap();
        }),
        ("chmod", |_, file| rustix::fs::fchmod(file, Mode::from_raw_mode(0o600)).unwrap()),
        ("chown", |_, file| rustix::fs::fchown(file, None, Some(rustix::process::getegid())).unwrap()),
        ("xattr", |_, file| rustix::fs::fsetxattr(file, "user.a", b"b", XattrFlags::empty()).unwrap()),
        ("flags", |_, file| {
            // An origin without flags refuses them on both sides.
            let flags = rustix::fs::ioctl_getflags(file).unwrap_or(IFlags::empty());
            let _ = rustix::fs::ioctl_setflags(file, flags ^ IFlags::NODUMP);
        }),
        ("link", |place, _| std::fs::hard_link(place.path("file"), place.path("other")).unwrap()),
        ("unlink", |place, _| std::fs::remove_file(place.path("other")).unwrap()),
        ("rename", |place, _| {
            std::fs::rename(place.path("file"), place.path("directory/file")).unwrap();
            std::fs::rename(place.path("directory/file"), place.path("file")).unwrap();
        }),
        ("open to truncate", |place, _| drop(std::fs::File::create(place.path("file")).unwrap())),
        ("open to truncate what is empty", |place, _| drop(std::fs::File::create(place.path("file")).unwrap())),
        ("fsync", |_, file| file.sync_all().unwrap()),
    ];
    for (name, step) in steps {
        let moments = |place: &Place<'_>, name: &str| {
            let found = place.stat(name).unwrap();
            [(found.st_mtime, found.st_mtime_nsec), (found.st_ctime, found.st_ctime_nsec)]
        };
        let before = [moments(place, "file"), moments(place, "directory"), moments(place, ".")];
        // Longer than any kernel's tick.
        thread::sleep(Duration::from_millis(15));
        step(place, &file);
        let after = [moments(place, "file"), moments(place, "directory"), moments(place, ".")];
        let moved: Vec<_> = before.iter().zip(&after).map(|(old, new)| (new[0] > old[0], new[1] > old[1])).collect();
        place.say(name, moved);
    }
}

pub fn extended(place: &mut Place<'_>) {
    let file = place.file("file", b"x");
    let path = place.path("file");
    let mut buffer = [0; 100];
    place.note("get none", rustix::fs::getxattr(&path, "user.none", &mut buffer[..]));
    place.note("list none", rustix::fs::listxattr(&path, &mut buffer[..]).map(|_| ()));
    place.note("set", rustix::fs::setxattr(&path, "user.one", b"value", XattrFlags::empty()));
    place.note("get", rustix::fs::getxattr(&path, "user.one", &mut buffer[..]));
    place.say("value", buffer[..5].to_vec());
    place.note("get by handle", rustix::fs::fgetxattr(&file, "user.one", &mut buffer[..]));
    place.note("length", rustix::fs::getxattr_query(&path, "user.one"));
    place.note("too short", rustix::fs::getxattr(&path, "user.one", &mut buffer[..2]));
    place.note("create again", rustix::fs::setxattr(&path, "user.one", b"v", XattrFlags::CREATE));
    place.note("replace", rustix::fs::setxattr(&path, "user.one", b"", XattrFlags::REPLACE));
    place.note("replace none", rustix::fs::setxattr(&path, "user.two", b"v", XattrFlags::REPLACE));
    place.note("second", rustix::fs::setxattr(&path, "user.two", &[5; 1000], XattrFlags::CREATE));
    let mut names = vec![0; 1000];
    let length = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
    let mut list: Vec<_> = names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")).collect();
    list.sort_unstable();
    place.say("names", list.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>());
    place.note("list too short", rustix::fs::listxattr(&path, &mut names[..3]));
    place.note("remove", rustix::fs::removexattr(&path, "user.one"));
    place.note("remove again", rustix::fs::removexattr(&path, "user.one"));
    place.note("too large", rustix::fs::setxattr(&path, "user.big", &[1; 65_537], XattrFlags::empty()));
    place.note("too large for the origin", {
        rustix::fs::setxattr(&path, "user.big", &[1; 65_536], XattrFlags::empty())
    });
    place.note("no such space", rustix::fs::setxattr(&path, "nonsense.a", b"v", XattrFlags::empty()));
    place.note("empty name", rustix::fs::setxattr(&path, "user.", b"v", XattrFlags::empty()));
    place.look("file");
}

pub fn extended_special(place: &mut Place<'_>) {
    std::fs::create_dir(place.path("directory")).unwrap();
    std::os::unix::fs::symlink("nowhere", place.path("link")).unwrap();
    rustix::fs::mknodat(CWD, place.path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let mut buffer = [0; 10];
    for name in ["directory", "link", "pipe"] {
        let path = place.path(name);
        place.note(format!("user {name}"), rustix::fs::lsetxattr(&path, "user.a", b"v", XattrFlags::empty()));
        place.note(format!("get {name}"), rustix::fs::lgetxattr(&path, "user.a", &mut buffer[..]));
        place.note(format!("trusted {name}"), rustix::fs::lsetxattr(&path, "trusted.a", b"v", XattrFlags::empty()));
        place.note(format!("get {name}"), rustix::fs::lgetxattr(&path, "trusted.a", &mut buffer[..]));
        place.note(format!("remove {name}"), rustix::fs::lremovexattr(&path, "trusted.a"));
    }
    let gone = rustix::fs::lgetxattr(place.path("link"), "trusted.a", &mut buffer[..]);
    place.say("gone", matches!(gone, Err(Errno::NODATA | Errno::PERM)));
}
