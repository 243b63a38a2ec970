//! Users, groups and permissions. These need root, and say so where it is missing.

use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, StatxFlags, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::bench::is_root;
use crate::contents::errno;
use crate::place::Place;

/// Two users that own nothing.
const ANN: u32 = 65_533;
const BEN: u32 = 65_532;
/// A group of neither.
const CLUB: u32 = 65_531;

/// Does something as a user, with one supplementary group if one is given.
fn as_user<T: Send>(user: u32, group: Option<u32>, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let groups: Vec<_> = group.into_iter().map(Gid::from_raw).collect();
                set_thread_groups(&groups).unwrap();
                let (gid, uid) = (Gid::from_raw(user), Uid::from_raw(user));
                set_thread_res_gid(gid, gid, gid).unwrap();
                set_thread_res_uid(uid, uid, uid).unwrap();
                work()
            })
            .join()
            .unwrap()
    })
}

/// Whether the case can run; if not, it is said.
fn root(place: &mut Place<'_>) -> bool {
    if !is_root() {
        eprintln!("NOT TESTED without root: {}", place.directory.display());
        place.say("needs root", ());
    }
    is_root()
}

fn mode(place: &Place<'_>, name: &str, mode: u32) {
    rustix::fs::chmod(place.path(name), Mode::from_raw_mode(mode)).unwrap();
}

fn own(place: &Place<'_>, name: &str, user: u32, group: u32) {
    rustix::fs::chown(place.path(name), Some(Uid::from_raw(user)), Some(Gid::from_raw(group))).unwrap();
}

fn open(place: &Place<'_>, name: &str, flags: OFlags) -> Result<(), Errno> {
    rustix::fs::open(place.path(name), flags, Mode::from_raw_mode(0o666)).map(drop)
}

pub fn permissions(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    mode(place, ".", 0o777);
    place.file("file", b"content");
    own(place, "file", ANN, CLUB);
    for bits in [0o400, 0o200, 0o640, 0o604, 0o044, 0o022, 0o666, 0o000] {
        mode(place, "file", bits);
        for (who, user, group) in [("owner", ANN, None), ("group", BEN, Some(CLUB)), ("other", BEN, None)] {
            for (how, flags) in [("read", OFlags::RDONLY), ("write", OFlags::WRONLY), ("both", OFlags::RDWR)] {
                let result = as_user(user, group, || open(place, "file", flags));
                place.note(format!("{bits:o} {who} {how}"), result);
            }
            let access = as_user(user, group, || {
                let wanted = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
                rustix::fs::accessat(CWD, place.path("file"), wanted, AtFlags::empty())
            });
            place.note(format!("{bits:o} {who} access"), access);
        }
        // Root may all.
        place.note("root", open(place, "file", OFlags::RDWR));
    }
    std::fs::create_dir(place.path("closed")).unwrap();
    place.file("closed/file", b"x");
    for bits in [0o700, 0o755, 0o711, 0o744, 0o722] {
        mode(place, "closed", bits);
        place.note(format!("{bits:o} below"), as_user(ANN, None, || open(place, "closed/file", OFlags::RDONLY)));
        let list = as_user(ANN, None, || std::fs::read_dir(place.path("closed")).map(Iterator::count).map_err(errno));
        place.note(format!("{bits:o} list"), list);
        let make = as_user(ANN, None, || open(place, "closed/new", OFlags::CREATE | OFlags::WRONLY));
        place.note(format!("{bits:o} make"), make);
        place.note(format!("{bits:o} unlink"), as_user(ANN, None, || rustix::fs::unlink(place.path("closed/new"))));
    }
    mode(place, "file", 0o600);
    place.note("chmod by another", as_user(BEN, None, || rustix::fs::chmod(place.path("file"), Mode::RUSR)));
    place.note("truncate by another", as_user(BEN, None, || open(place, "file", OFlags::WRONLY | OFlags::TRUNC)));
    let set =
        |name: &'static str| move |path: &std::path::Path| rustix::fs::setxattr(path, name, b"v", XattrFlags::empty());
    let path = place.path("file");
    place.note("xattr by another", as_user(BEN, None, || set("user.a")(&path)));
    place.note("xattr by the owner", as_user(ANN, None, || set("user.a")(&path)));
    place.note("trusted by the owner", as_user(ANN, None, || set("trusted.a")(&path)));
    rustix::fs::setxattr(&path, "trusted.hidden", b"v", XattrFlags::empty()).unwrap();
    let names = as_user(ANN, None, || rustix::fs::listxattr(&path, &mut [0_u8; 1000][..]));
    place.note("names that the owner sees", names);
}

pub fn sticky(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    mode(place, ".", 0o755);
    std::fs::create_dir(place.path("shared")).unwrap();
    mode(place, "shared", 0o1777);
    as_user(ANN, None, || open(place, "shared/hers", OFlags::CREATE | OFlags::WRONLY)).unwrap();
    let path = |name: &str| place.path(&format!("shared/{name}"));
    let (hers, other, his) = (path("hers"), path("other"), path("his"));
    place.look("shared/hers");
    place.note("unlink by another", as_user(BEN, None, || rustix::fs::unlink(&hers)));
    place.note("rename by another", as_user(BEN, None, || rustix::fs::rename(&hers, &other)));
    place.note("replace by another", {
        as_user(BEN, None, || {
            std::fs::write(&his, b"x").unwrap();
            rustix::fs::rename(&his, &hers)
        })
    });
    place.note("rename by the owner", as_user(ANN, None, || rustix::fs::rename(&hers, &other)));
    place.note("unlink by the owner", as_user(ANN, None, || rustix::fs::unlink(&other)));
    place.note("unlink by root", rustix::fs::unlink(&his));
}

pub fn new_owners(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    mode(place, ".", 0o777);
    let make = |place: &Place<'_>, below: &str| {
        let path = |name: &str| place.path(&format!("{below}/{name}"));
        std::fs::write(path("file"), b"x").unwrap();
        std::fs::create_dir(path("directory")).unwrap();
        std::os::unix::fs::symlink("x", path("link")).unwrap();
        rustix::fs::mknodat(CWD, path("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let flags = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::open(path("group"), flags, Mode::from_raw_mode(0o2755)).unwrap();
        rustix::fs::mkdir(path("set"), Mode::from_raw_mode(0o2755)).unwrap();
    };
    for (below, bits, group) in [("plain", 0o777, 0), ("inherit", 0o2777, CLUB)] {
        std::fs::create_dir(place.path(below)).unwrap();
        own(place, below, 0, group);
        mode(place, below, bits);
        as_user(ANN, None, || make(place, below));
        for name in ["file", "directory", "link", "pipe", "group", "set"] {
            place.look(&format!("{below}/{name}"));
        }
    }
    // And root is root again afterwards.
    place.file("roots", b"x");
    place.look("roots");
}

pub fn groups(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    // Writable only through a supplementary group.
    std::fs::create_dir(place.path("club")).unwrap();
    own(place, "club", 0, CLUB);
    mode(place, "club", 0o2770);
    let flags = OFlags::CREATE | OFlags::WRONLY;
    place.note("without", as_user(ANN, None, || open(place, "club/a", flags)));
    place.note("with", as_user(ANN, Some(CLUB), || open(place, "club/b", flags)));
    place.look("club/b");
    place.note("mkdir", as_user(ANN, Some(CLUB), || std::fs::create_dir(place.path("club/c")).map_err(errno)));
    place.look("club/c");
    place.note("set group", {
        as_user(ANN, Some(CLUB), || {
            rustix::fs::open(place.path("club/d"), flags, Mode::from_raw_mode(0o2775)).map(drop)
        })
    });
    place.look("club/d");
    // Giving a file to a group one is in, and to one that one is not in.
    std::fs::write(place.path("hers"), b"x").unwrap();
    own(place, "hers", ANN, ANN);
    let give = |group| {
        let path = place.path("hers");
        move || rustix::fs::chown(path, None, Some(Gid::from_raw(group)))
    };
    let (to_club, to_ben) = (give(CLUB), give(BEN));
    place.note("give to own group", as_user(ANN, Some(CLUB), to_club));
    place.look("hers");
    place.note("give to another group", as_user(ANN, Some(CLUB), to_ben));
    mode(place, "hers", 0o755);
    let set = |place: &Place<'_>| rustix::fs::chmod(place.path("hers"), Mode::from_raw_mode(0o2755));
    place.note("set-group-id of a group one is not in", as_user(ANN, None, || set(place)));
    place.look("hers");
    place.note("set-group-id of own group", as_user(ANN, Some(CLUB), || set(place)));
    place.look("hers");
}

pub fn set_user_id(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    mode(place, ".", 0o777);
    type Change = (&'static str, fn(&Place<'_>, &std::fs::File) -> Result<(), Errno>);
    let changes: [Change; 7] = [
        ("write", |_, file| file.write_at(b"x", 0).map(drop).map_err(errno)),
        ("ftruncate", |_, file| rustix::fs::ftruncate(file, 2)),
        ("ftruncate to the same size", |_, file| rustix::fs::ftruncate(file, 7)),
        ("open to truncate", |place, _| open(place, "file", OFlags::WRONLY | OFlags::TRUNC)),
        ("allocate", |_, file| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 100)),
        ("chown to the same", |place, _| match rustix::fs::chown(place.path("file"), None, None) {
            // The kernel asks the same of FUSE for this and for a write by another user, so there
            // is no error; nothing happens, either.
            Err(Errno::PERM) => Ok(()),
            other => other,
        }),
        ("chmod", |place, _| rustix::fs::chmod(place.path("file"), Mode::from_raw_mode(0o6777))),
    ];
    for bits in [0o6777, 0o4777, 0o2777, 0o2767, 0o6666] {
        for (user, who) in [(0, "root"), (ANN, "another")] {
            for (name, change) in changes {
                place.file("file", b"content");
                own(place, "file", BEN, BEN);
                mode(place, "file", bits);
                let work = || {
                    let file = std::fs::File::options().read(true).write(true).open(place.path("file")).unwrap();
                    change(place, &file)
                };
                let result = if user == 0 { work() } else { as_user(user, None, work) };
                place.note(format!("{bits:o} {name} by {who}"), result);
                place.look("file");
                std::fs::remove_file(place.path("file")).unwrap();
            }
        }
    }
    // A program's capabilities go at any write, root's too: an old-style entry for net_raw.
    let mut capabilities = vec![0; 20];
    capabilities[3] = 2;
    capabilities[0] = 1;
    capabilities[5] = 0x20;
    let file = place.file("program", b"x");
    let path = place.path("program");
    place.note("capabilities", rustix::fs::setxattr(&path, "security.capability", &capabilities, XattrFlags::empty()));
    place.note("there", rustix::fs::getxattr(&path, "security.capability", &mut [0_u8; 100][..]).map(|_| ()));
    place.note("write", file.write_at(b"y", 0).map_err(errno));
    place.note("gone", rustix::fs::getxattr(&path, "security.capability", &mut [0_u8; 100][..]).map(|_| ()));
}

pub fn owners(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    place.file("file", b"x");
    std::fs::create_dir(place.path("directory")).unwrap();
    std::os::unix::fs::symlink("file", place.path("link")).unwrap();
    for name in ["file", "directory"] {
        mode(place, name, 0o6755);
        own(place, name, ANN, CLUB);
        place.look(name);
    }
    let follow = AtFlags::SYMLINK_NOFOLLOW;
    let (ben, club) = (Some(Uid::from_raw(BEN)), Some(Gid::from_raw(CLUB)));
    place.note("of the link", rustix::fs::chownat(CWD, place.path("link"), ben, club, follow));
    place.look("link");
    place.look("file");
    place.note("through the link", rustix::fs::chown(place.path("link"), ben, club));
    place.look("file");
    place.note("by another", as_user(ANN, None, || rustix::fs::chown(place.path("file"), ben, None)));
    place.note("of nothing", rustix::fs::chown(place.path("none"), ben, None));
}

/// An access list as the kernel takes it: version 2, then tag, permissions, id.
fn access_list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

pub fn access_lists(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    const NONE: u32 = u32::MAX;
    mode(place, ".", 0o755);
    let (user_obj, user, group_obj, mask, other) = (1, 2, 4, 0x10, 0x20);
    place.file("file", b"x");
    // Ann may write by name; the group may not, though the mode's middle bits look as if it could.
    let list =
        access_list(&[(user_obj, 6, NONE), (user, 6, ANN), (group_obj, 0, NONE), (mask, 6, NONE), (other, 0, NONE)]);
    let path = place.path("file");
    place.note("set", rustix::fs::setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty()));
    place.look("file");
    place.note("ann", as_user(ANN, None, || open(place, "file", OFlags::RDWR)));
    place.note("ben", as_user(BEN, None, || open(place, "file", OFlags::RDONLY)));
    place.note("the group", as_user(BEN, Some(0), || open(place, "file", OFlags::RDONLY)));
    place.note("chmod narrows the mask", rustix::fs::chmod(&path, Mode::from_raw_mode(0o640)));
    place.note("ann writes", as_user(ANN, None, || open(place, "file", OFlags::RDWR)));
    place.note("ann reads", as_user(ANN, None, || open(place, "file", OFlags::RDONLY)));
    std::fs::create_dir(place.path("gives")).unwrap();
    let default =
        access_list(&[(user_obj, 7, NONE), (user, 7, ANN), (group_obj, 7, NONE), (mask, 7, NONE), (other, 0, NONE)]);
    let path = place.path("gives");
    place.note("default", rustix::fs::setxattr(&path, "system.posix_acl_default", &default, XattrFlags::empty()));
    std::fs::create_dir(place.path("plain")).unwrap();
    for umask in ["022", "077", "000"] {
        for below in ["plain", "gives"] {
            let script =
                format!("umask {umask}; : > {below}/f{umask}; mkdir {below}/d{umask}; mkfifo {below}/p{umask}");
            let status = std::process::Command::new("sh").args(["-c", &script]).current_dir(place.directory).status();
            place.say("made", status.unwrap().success());
            for kind in ["f", "d", "p"] {
                let name = format!("{below}/{kind}{umask}");
                place.look(&name);
                let list = rustix::fs::getxattr(place.path(&name), "system.posix_acl_access", &mut [0_u8; 200][..]);
                place.note("its list", list);
            }
        }
    }
}

/// A request for the mode alone, as the kernel sends when it runs a program, shows no privilege beyond those kept.
fn mode_at_once(place: &Place<'_>, name: &str) -> String {
    let found = rustix::fs::statx(CWD, place.path(name), AtFlags::empty(), StatxFlags::MODE).unwrap();
    format!("{:o}", found.stx_mode & 0o7777)
}

pub fn set_user_id_at_once(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    mode(place, ".", 0o777);
    type Change = (&'static str, fn(&std::fs::File) -> Result<(), Errno>);
    let changes: [Change; 6] = [
        ("write", |file| file.write_at(b"x", 0).map(drop).map_err(errno)),
        ("truncate", |file| rustix::fs::ftruncate(file, 2)),
        ("allocate", |file| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 10_000)),
        ("punch", |file| rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)),
        ("zero", |file| rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE, 0, 4096)),
        ("direct write", |file| {
            let flags = rustix::fs::fcntl_getfl(file)?;
            rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?;
            let page = headpond_base::BufMut::zeroed(4096);
            file.write_at(&page, 0).map(drop).map_err(errno)
        }),
    ];
    for bits in [0o6777, 0o4777, 0o2777] {
        for (name, change) in changes {
            place.file("program", &[b'x'; 8192]);
            own(place, "program", 0, CLUB);
            mode(place, "program", bits);
            let before = mode_at_once(place, "program");
            let file = std::fs::File::options().read(true).write(true).open(place.path("program")).unwrap();
            place.note(format!("{bits:o} {name}"), as_user(ANN, None, || change(&file)));
            let after = mode_at_once(place, "program");
            place.say("before and at once after", (before, after));
            std::fs::remove_file(place.path("program")).unwrap();
        }
    }
}

/// Without execute for the group the bit is no privilege: a member of the group may write, and it stays.
pub fn set_group_id_without_execute(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    mode(place, ".", 0o777);
    for (who, group) in [("a member", Some(CLUB)), ("a stranger", None)] {
        for cut in [OFlags::empty(), OFlags::TRUNC] {
            place.file("file", b"content");
            own(place, "file", ANN, CLUB);
            mode(place, "file", 0o2644);
            let path = place.path("file");
            let write = || {
                let file = rustix::fs::open(&path, OFlags::WRONLY | cut, Mode::empty())?;
                // Where nothing has space yet, so that it is asked for.
                rustix::io::pwrite(&file, b"more", 100_000)
            };
            place.note(format!("{who} writes {cut:?}"), as_user(ANN, group, write));
            place.say("mode at once", mode_at_once(place, "file"));
            place.look("file");
            std::fs::remove_file(&path).unwrap();
        }
    }
}

/// In a user name space of their own everybody has all capabilities, which are worth nothing outside.
pub fn root_of_a_name_space(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    mode(place, ".", 0o777);
    let user = ANN.to_string();
    let as_own_root = |script: &str, file: &std::path::Path| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "unshare", "--user", "--map-root-user"]);
        command.args(["sh", "-c", script, "sh"]).arg(file).status().is_ok_and(|status| status.success())
    };
    if !as_own_root("true", place.directory) {
        assert!(std::env::var_os("HEADPOND_TEST_ALL").is_none(), "no user name spaces here");
        eprintln!("NOT TESTED without user name spaces: {}", place.directory.display());
        return;
    }
    let changes = [
        ("write", "printf x | dd of=\"$1\" conv=notrunc status=none"),
        ("truncate", "truncate -s 3 \"$1\""),
        ("allocate", "fallocate -l 10000 \"$1\""),
    ];
    for (name, script) in changes {
        place.file("program", b"content");
        own(place, "program", 0, CLUB);
        mode(place, "program", 0o6777);
        place.say(name, as_own_root(script, &place.path("program")));
        place.look("program");
        std::fs::remove_file(place.path("program")).unwrap();
    }
}

pub fn access_lists_and_set_group_id(place: &mut Place<'_>) {
    if !root(place) {
        return;
    }
    mode(place, ".", 0o777);
    const NONE: u32 = u32::MAX;
    let list = access_list(&[(1, 7, NONE), (4, 7, NONE), (0x20, 7, NONE)]);
    let with_mask = access_list(&[(1, 7, NONE), (2, 5, BEN), (4, 7, NONE), (0x10, 7, NONE), (0x20, 5, NONE)]);
    for (what, list) in [("plain", &list), ("with a mask", &with_mask)] {
        for (who, user, group) in
            [("an owner outside the group", ANN, None), ("an owner inside", ANN, Some(CLUB)), ("root", 0, None)]
        {
            for kind in ["file", "directory"] {
                let path = place.path(kind);
                match kind {
                    "file" => drop(place.file(kind, b"x")),
                    _ => std::fs::create_dir(&path).unwrap(),
                }
                own(place, kind, ANN, CLUB);
                mode(place, kind, 0o2755);
                let set = || rustix::fs::setxattr(&path, "system.posix_acl_access", list, XattrFlags::empty());
                let result = if user == 0 { set() } else { as_user(user, group, set) };
                place.note(format!("{what} list by {who} of a {kind}"), result);
                place.say("mode at once", mode_at_once(place, kind));
                place.look(kind);
                if kind == "file" { std::fs::remove_file(&path) } else { std::fs::remove_dir(&path) }.unwrap();
            }
        }
    }
    // A list of defaults is no access.
    std::fs::create_dir(place.path("gives")).unwrap();
    own(place, "gives", ANN, CLUB);
    mode(place, "gives", 0o2755);
    let path = place.path("gives");
    let set = || rustix::fs::setxattr(&path, "system.posix_acl_default", &list, XattrFlags::empty());
    place.note("defaults", as_user(ANN, None, set));
    place.look("gives");
}
