//! Making a mount and taking it away: what is refused, and in which words; what is left.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod bench;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bench::straight::Straight;
use bench::{Behind, Bench, is_root};
use headpond_mount::{Beside, MARKER_NAME, MountError, MountOptions, mount, mount_with};

fn refused(change: impl FnOnce(&mut MountOptions)) -> MountError {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for name in ["origin", "mount"] {
        fs::create_dir(directory.path().join(name)).unwrap();
    }
    let mut options = MountOptions {
        origin: directory.path().join("origin"),
        mountpoint: directory.path().join("mount"),
        allow_other: false,
        threads: 1,
        read_only: false,
    };
    change(&mut options);
    mount(&options, Straight::start(), &[]).expect_err("it is refused")
}

#[test]
fn a_mount_point_that_will_not_do_is_refused_in_clear_words() {
    let missing = refused(|options| options.mountpoint.push("none"));
    assert!(matches!(missing, MountError::MountpointMissing(_)));
    assert!(missing.to_string().contains("does not exist. To make it"), "{missing}");

    let full = refused(|options| fs::write(options.mountpoint.join("file"), "x").unwrap());
    assert!(matches!(full, MountError::MountpointNotEmpty(_)));
    assert!(full.to_string().contains("not empty"), "{full}");

    let file = refused(|options| {
        fs::remove_dir(&options.mountpoint).unwrap();
        fs::write(&options.mountpoint, "x").unwrap();
    });
    assert!(matches!(file, MountError::MountpointNotDirectory(_)));

    let inside = refused(|options| {
        options.mountpoint = options.origin.join("below");
        fs::create_dir(&options.mountpoint).unwrap();
    });
    assert!(matches!(inside, MountError::MountpointInsideOrigin { .. }));
    assert!(inside.to_string().contains("would contain itself"), "{inside}");

    let origin = refused(|options| options.origin.push("none"));
    assert!(matches!(origin, MountError::Origin { .. }));
}

/// While a mount starts, the owner of the directory above can swap the origin.
#[test]
fn the_directory_that_was_opened_is_served_whatever_its_path_leads_to_by_then() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["origin", "planted", "mount"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("origin/file"), "the origin's").unwrap();
    fs::write(at("planted/file"), "planted").unwrap();
    let options = MountOptions {
        origin: at("origin"),
        mountpoint: at("mount"),
        allow_other: false,
        threads: 1,
        read_only: false,
    };
    let root = File::open(at("origin")).unwrap();
    fs::rename(at("origin"), at("aside")).unwrap();
    std::os::unix::fs::symlink("planted", at("origin")).unwrap();
    let mut mounted = mount_with(&options, root.into(), Straight::start(), &[], Beside::default()).unwrap();
    assert_eq!(fs::read_to_string(at("mount/file")).unwrap(), "the origin's");
    fs::write(at("mount/new"), "new").unwrap();
    assert!(at("aside/new").exists() && !at("planted/new").exists());
    mounted.unmount().unwrap();
}

#[test]
fn a_mount_in_use_stays_and_goes_later() {
    let mut bench = Bench::straight(|_| {});
    fs::write(bench.mountpoint.join("file"), "content").unwrap();
    let held = File::open(bench.mountpoint.join("file")).unwrap();
    let busy = bench.mounted.unmount().expect_err("a file is open");
    assert!(matches!(busy, MountError::Busy(_)), "{busy}");
    assert!(busy.to_string().contains("in use"), "{busy}");
    assert!(!bench.mounted.is_finished());
    let mut text = [0; 7];
    held.read_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"content", "it serves on");
    drop(held);
    for _ in 0..100 {
        // The kernel gives the handle back a moment after the close.
        if bench.mounted.unmount().is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(bench.mounted.is_finished());
    assert_eq!(fs::read_dir(&bench.mountpoint).unwrap().count(), 0);
    assert_eq!(fs::read(bench.origin.join("file")).unwrap(), b"content");
}

#[test]
fn a_mount_that_somebody_else_removes_is_over() {
    let mut bench = Bench::straight(|_| {});
    let status = Command::new("fusermount3").arg("-u").arg(&bench.mountpoint).status().unwrap();
    assert!(status.success());
    bench.mounted.join().unwrap();
    assert!(bench.mounted.is_finished());
}

#[test]
fn the_marker_beside_the_data_is_not_seen_and_cannot_be_made() {
    let bench = Bench::straight(|_| {});
    fs::create_dir(bench.origin.join(MARKER_NAME)).unwrap();
    fs::write(bench.origin.join(MARKER_NAME).join("claim"), "x").unwrap();
    fs::write(bench.mountpoint.join("file"), "x").unwrap();
    let marker = bench.mountpoint.join(MARKER_NAME);
    let names: Vec<_> = fs::read_dir(&bench.mountpoint).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
    let code = |result: std::io::Result<()>| result.expect_err("refused").raw_os_error();
    let (no_entry, not_permitted) = (Some(2), Some(1));
    assert_eq!(code(fs::metadata(&marker).map(drop)), no_entry);
    assert_eq!(code(fs::create_dir(&marker)), not_permitted);
    assert_eq!(code(fs::write(&marker, "x")), not_permitted);
    assert_eq!(code(fs::rename(bench.mountpoint.join("file"), &marker)), not_permitted);
    assert_eq!(code(fs::hard_link(bench.mountpoint.join("file"), &marker)), not_permitted);
    assert_eq!(code(std::os::unix::fs::symlink("x", &marker)), not_permitted);
    assert_eq!(code(fs::remove_dir(&marker)), no_entry);
    assert_eq!(fs::read(bench.origin.join(MARKER_NAME).join("claim")).unwrap(), b"x");
    // Elsewhere it is a name like any other.
    fs::create_dir(bench.mountpoint.join("below")).unwrap();
    fs::create_dir(bench.mountpoint.join("below").join(MARKER_NAME)).unwrap();
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let bench = Bench::straight(|options| {
        fs::write(options.origin.join("file"), "content").unwrap();
        options.read_only = true;
    });
    assert_eq!(fs::read(bench.mountpoint.join("file")).unwrap(), b"content");
    let read_only = Some(30);
    assert_eq!(fs::write(bench.mountpoint.join("file"), "x").unwrap_err().raw_os_error(), read_only);
    assert_eq!(fs::create_dir(bench.mountpoint.join("x")).unwrap_err().raw_os_error(), read_only);
    assert_eq!(fs::read(bench.origin.join("file")).unwrap(), b"content");
}

#[test]
fn requests_of_a_mebibyte_stay_whole() {
    let bench = Bench::straight(|_| {});
    let Behind::Straight(pond) = &bench.behind else { unreachable!() };
    let mut memory = vec![7_u8; (1 << 20) + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let data = &mut memory[start..start + (1 << 20)];
    let cached = File::create(bench.mountpoint.join("cached")).unwrap();
    let direct = rustix::fs::open(
        bench.mountpoint.join("direct"),
        rustix::fs::OFlags::CREATE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::DIRECT,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    );
    let direct = File::from(direct.unwrap());
    for (file, how) in [(&cached, "through the page cache"), (&direct, "past the page cache")] {
        for size in [4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20] {
            pond.forget_sizes();
            file.write_all_at(&data[..size], 1 << 20).unwrap();
            assert_eq!(pond.sizes(), [size], "a write of {size} {how}");
        }
    }
    pond.forget_sizes();
    direct.read_exact_at(data, 1 << 20).unwrap();
    assert_eq!(pond.sizes(), [1 << 20], "a direct read");
}

#[test]
fn an_ordinary_user_mounts_own_files() {
    // The user `nobody` has a name, which fusermount3 asks for.
    let user = 65_534;
    if !is_root() {
        eprintln!("NOT TESTED apart: without root, all tests here are an ordinary user's");
        return;
    }
    // As another process, since a user is a process's.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let place = |name: &str| directory.path().join(name);
    for name in [".", "origin", "mount"] {
        fs::create_dir_all(place(name)).unwrap();
        std::os::unix::fs::chown(place(name), Some(user), Some(user)).unwrap();
    }
    let program = place("program");
    // Another process copies it: what this one has open for writing may be inherited by a child of another test, and
    // does not run then.
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap().success());
    let mut child = Command::new(&program);
    let status = child
        .uid(user)
        .gid(user)
        .args(["--ignored", "--exact", "serve_as_this_user", "--nocapture"])
        .env("LIFECYCLE_DIRECTORY", directory.path())
        .status()
        .unwrap();
    let _ = rustix::mount::unmount(place("mount"), rustix::mount::UnmountFlags::DETACH);
    assert!(status.success());
    assert_eq!(fs::read(place("origin/file")).unwrap(), b"written by a user");
    assert_eq!(fs::metadata(place("origin/file")).unwrap().uid(), user);
}

#[test]
#[ignore = "run by an_ordinary_user_mounts_own_files, as another user"]
fn serve_as_this_user() {
    let directory = std::env::var_os("LIFECYCLE_DIRECTORY").expect("the other test sets it");
    let place = |name: &str| Path::new(&directory).join(name);
    let mut options = MountOptions {
        origin: place("origin"),
        mountpoint: place("mount"),
        allow_other: false,
        threads: 2,
        read_only: false,
    };
    let pond: Arc<Straight> = Straight::start();
    let mut mounted = mount(&options, pond.clone(), &[]).unwrap();
    fs::write(place("mount/file"), "written by a user").unwrap();
    // A file that the user may not write any more, while a handle still can; and again by the owner's right.
    let held = File::create(place("mount/dark")).unwrap();
    fs::set_permissions(place("mount/dark"), std::os::unix::fs::PermissionsExt::from_mode(0o200)).unwrap();
    held.write_all_at(b"held", 0).unwrap();
    drop(held);
    let again = File::options().write(true).open(place("mount/dark")).unwrap();
    again.write_all_at(b"again", 0).unwrap();
    drop(again);
    assert_eq!(fs::metadata(place("mount/dark")).unwrap().mode() & 0o777, 0o200);
    std::thread::sleep(std::time::Duration::from_millis(100));
    mounted.unmount().unwrap();
    assert_eq!(fs::metadata(place("origin/dark")).unwrap().len(), 5);
    options.mountpoint = "/usr".into();
    assert!(matches!(mount(&options, pond.clone(), &[]), Err(MountError::MountpointNotEmpty(_))));
    options.mountpoint = place("foreign");
    if options.mountpoint.exists() {
        assert!(matches!(mount(&options, pond, &[]), Err(MountError::NotPermitted { .. })));
    }
}
