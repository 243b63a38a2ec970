//! Names and directories: making, finding, renaming, linking and removing them.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, CWD, Dir, RenameFlags};
use rustix::io::Errno;

use crate::contents::errno;
use crate::place::Place;

pub fn directories(place: &mut Place<'_>) {
    place.note("mkdir", std::fs::create_dir(place.path("a")).map_err(errno));
    place.note("mkdir again", std::fs::create_dir(place.path("a")).map_err(errno));
    place.note("mkdir below nothing", std::fs::create_dir(place.path("none/b")).map_err(errno));
    place.note("mkdir below", std::fs::create_dir(place.path("a/b")).map_err(errno));
    place.look("a");
    place.file("a/file", b"x");
    place.note("mkdir below a file", std::fs::create_dir(place.path("a/file/c")).map_err(errno));
    place.note("rmdir full", std::fs::remove_dir(place.path("a")).map_err(errno));
    place.note("rmdir file", std::fs::remove_dir(place.path("a/file")).map_err(errno));
    place.note("unlink directory", rustix::fs::unlink(place.path("a/b")));
    place.note("rmdir", std::fs::remove_dir(place.path("a/b")).map_err(errno));
    place.look("a");
    place.note("unlink", rustix::fs::unlink(place.path("a/file")));
    place.note("unlink again", rustix::fs::unlink(place.path("a/file")));
    place.note("rmdir dot", rustix::fs::rmdir(place.path("a/.")));
    let held = File::open(place.path("a")).unwrap();
    place.note("rmdir of an open one", std::fs::remove_dir(place.path("a")).map_err(errno));
    place.note("make in what is gone", {
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::RDWR;
        rustix::fs::openat(&held, "x", flags, rustix::fs::Mode::RUSR).map(drop)
    });
    place.note("fsync of what is gone", held.sync_all().map_err(errno));
    place.look(".");
}

pub fn listing(place: &mut Place<'_>) {
    std::fs::create_dir(place.path("many")).unwrap();
    for number in 0..2_000 {
        File::create(place.path(&format!("many/a-rather-long-name-of-a-file-{number}"))).unwrap();
    }
    let names = |place: &Place<'_>| -> BTreeSet<String> {
        std::fs::read_dir(place.path("many"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    place.say("names", names(place).len());
    place.say("entries", std::fs::read_dir(place.path("many")).unwrap().count());
    // Removing while reading, as `rm -r` does.
    for entry in std::fs::read_dir(place.path("many")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().ends_with('7') {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    place.say("left", names(place));
    let mut directory = Dir::read_from(File::open(place.path("many")).unwrap()).unwrap();
    let first: Vec<_> = directory.by_ref().take(5).map(|entry| entry.unwrap().file_name().to_owned()).collect();
    directory.rewind();
    let again: Vec<_> = directory.by_ref().take(5).map(|entry| entry.unwrap().file_name().to_owned()).collect();
    place.say("rewound", first == again);
    let all: BTreeSet<_> = Dir::read_from(File::open(place.path("many")).unwrap())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_bytes().starts_with(b"."))
        .map(|entry| (entry.file_name().to_owned(), format!("{:?}", entry.file_type())))
        .collect();
    place.say("dots", all);
    // The number in the list is the number of the file.
    let same = std::fs::read_dir(place.path("many")).unwrap().take(50).all(|entry| {
        let entry = entry.unwrap();
        let number = std::os::unix::fs::DirEntryExt::ino(&entry);
        number == std::os::unix::fs::MetadataExt::ino(&entry.metadata().unwrap())
    });
    place.say("numbers", same);
    place.note("remove all", std::fs::remove_dir_all(place.path("many")).map_err(errno));
}

pub fn hard_links(place: &mut Place<'_>) {
    let file = place.file("one", b"content");
    place.note("link", std::fs::hard_link(place.path("one"), place.path("two")).map_err(errno));
    place.note("link again", std::fs::hard_link(place.path("one"), place.path("two")).map_err(errno));
    place.look("one");
    place.look("two");
    place.say("same", place.stat("one").unwrap().st_ino == place.stat("two").unwrap().st_ino);
    place.note("write", file.write_at(b"CONTENT and more", 0).map_err(errno));
    place.content("two");
    place.look("two");
    place.note("unlink", rustix::fs::unlink(place.path("one")));
    place.look("two");
    place.content("two");
    place.note("append", file.write_at(b"!", 16).map_err(errno));
    place.look("two");
    place.note("rename", rustix::fs::rename(place.path("two"), place.path("three")));
    place.content("three");
    place.note("link of a directory", std::fs::hard_link(place.directory, place.path("x")).map_err(errno));
    place.note("link of nothing", std::fs::hard_link(place.path("none"), place.path("x")).map_err(errno));
    std::os::unix::fs::symlink("three", place.path("link")).unwrap();
    place.note("link of a link", rustix::fs::linkat(CWD, place.path("link"), CWD, place.path("l2"), AtFlags::empty()));
    place.look("l2");
    place.note("link through a link", {
        rustix::fs::linkat(CWD, place.path("link"), CWD, place.path("l3"), AtFlags::SYMLINK_FOLLOW)
    });
    place.look("l3");
    // Renaming between two names of one file does nothing.
    place.note("rename to itself", rustix::fs::rename(place.path("three"), place.path("l3")));
    place.look("three");
    place.look("l3");
}

pub fn symlinks(place: &mut Place<'_>) {
    let long = "x/".repeat(2000);
    for (name, target) in [("a", "b"), ("dots", "../somewhere"), ("long", long.as_str())] {
        place.note(format!("symlink {name}"), std::os::unix::fs::symlink(target, place.path(name)).map_err(errno));
        place.look(name);
        place.note("readlink", std::fs::read_link(place.path(name)).map_err(errno));
    }
    place.note("again", std::os::unix::fs::symlink("z", place.path("a")).map_err(errno));
    place.note("empty", std::os::unix::fs::symlink("", place.path("empty")).map_err(errno));
    place.file("b", b"through");
    place.content("a");
    place.note("readlink of a file", std::fs::read_link(place.path("b")).map_err(errno));
    std::os::unix::fs::symlink("loop", place.path("loop")).unwrap();
    place.content("loop");
    place.note("unlink", rustix::fs::unlink(place.path("a")));
    place.content("b");
}

pub fn renames(place: &mut Place<'_>) {
    let with = |place: &Place<'_>, from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, place.path(from), CWD, place.path(to), flags)
    };
    let none = RenameFlags::empty();
    let held = place.file("a", b"AAAA");
    place.note("rename", with(place, "a", "b", none));
    place.look("a");
    place.content("b");
    place.note("write after", held.write_at(b"held", 4).map_err(errno));
    place.content("b");
    place.file("c", b"CC");
    place.note("over", with(place, "c", "b", none));
    place.content("b");
    place.note("missing", with(place, "c", "b", none));
    place.file("d", b"DDD");
    place.note("no replace", with(place, "d", "b", RenameFlags::NOREPLACE));
    place.note("no replace, free", with(place, "d", "e", RenameFlags::NOREPLACE));
    place.note("exchange", with(place, "b", "e", RenameFlags::EXCHANGE));
    place.content("b");
    place.content("e");
    place.note("exchange with nothing", with(place, "b", "none", RenameFlags::EXCHANGE));
    place.note("both flags", with(place, "b", "e", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE));
    for name in ["d1", "d1/inner", "d2", "full"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    place.file("full/file", b"x");
    place.note("directory over empty directory", with(place, "d1", "d2", none));
    place.look("d2/inner");
    place.note("directory over full directory", with(place, "d2", "full", none));
    place.note("directory over file", with(place, "d2", "b", none));
    place.note("file over directory", with(place, "b", "d2", none));
    place.note("directory into itself", with(place, "d2", "d2/inner/x", none));
    place.note("exchange file and directory", with(place, "b", "d2", RenameFlags::EXCHANGE));
    place.look("b");
    place.look("d2");
    place.note("to a name that ends in a slash", with(place, "d2", "new/", none));
    place.note("dot", with(place, "b/.", "y", none));
    place.look(".");
}

pub fn moved_below(place: &mut Place<'_>) {
    std::fs::create_dir_all(place.path("top/middle")).unwrap();
    let file = place.file("top/middle/file", b"before");
    place.note("rename", rustix::fs::rename(place.path("top"), place.path("other")));
    place.note("write", file.write_at(b"after!", 0).map_err(errno));
    place.content("other/middle/file");
    place.file("other/middle/second", b"new one");
    place.content("other/middle/second");
    place.note("sync", file.sync_all().map_err(errno));
    place.note("move out", rustix::fs::rename(place.path("other/middle/file"), place.path("file")));
    place.note("write", file.write_at(b"finally", 0).map_err(errno));
    place.content("file");
    place.note("reopen", std::fs::OpenOptions::new().append(true).open(place.path("file")).map(drop).map_err(errno));
    place.note("remove", std::fs::remove_dir_all(place.path("other")).map_err(errno));
}

pub fn strange_names(place: &mut Place<'_>) {
    for name in [" ", "with\nline", "ünïcödé", "a (deleted)", "-rf", "..."] {
        place.file(name, name.as_bytes());
        place.content(name);
        place.note(format!("rename {name}"), rustix::fs::rename(place.path(name), place.path("x")));
        place.content("x");
    }
    let longest = "n".repeat(255);
    place.file(&longest, b"long");
    place.content(&longest);
    let too_long = "n".repeat(256);
    place.note("too long", std::fs::File::create(place.path(&too_long)).map(drop).map_err(errno));
    place.note("look at too long", place.stat(&too_long).map(|_| ()));
    place.note("rename to too long", rustix::fs::rename(place.path("x"), place.path(&too_long)));
    place.note("mkdir too long", std::fs::create_dir(place.path(&too_long)).map_err(errno));
    place.say("none", place.stat("none").map(|_| ()) == Err(Errno::NOENT));
}
