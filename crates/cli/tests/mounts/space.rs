//! Space at the origin: files take what they take without headpond, and what is promised is there. Each test has a file
//! system of its own on a loop device, and compares with a directory beside the origin that headpond never sees.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::FallocateFlags;

use crate::lacking::lacks_nothing;
use crate::loop_device::{Loop, has, output, run};
use crate::pond::{Pond, SIZE, is_mounted, pattern, wait_until, write_and_sync};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
/// A user who owns nothing else.
const USER: &str = "65534";

/// A pond whose origin is a directory of a file system of its own.
struct Bed {
    // In the order in which they go.
    pond: Pond,
    _disk: Loop,
}

impl Bed {
    /// `None` where this machine or user cannot: that is said.
    fn new(mkfs: &[&str], megabytes: u64, options: &str) -> Option<Self> {
        if !has(mkfs[0]) {
            return None;
        }
        let pond = Pond::new();
        let image = pond.at("disk");
        File::create(&image).unwrap().set_len(megabytes * MIB).unwrap();
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image).stdout(Stdio::null()));
        let mut disk = Loop::over(&image)?;
        disk.mount(&pond.at("other"), options);
        for name in ["bare", "data"] {
            fs::create_dir(pond.at("other").join(name)).unwrap();
            let open = fs::Permissions::from_mode(0o777);
            fs::set_permissions(pond.at("other").join(name), open).unwrap();
        }
        for dir in [pond.at(""), pond.at("other"), pond.mnt()] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(Self { pond, _disk: disk })
    }

    fn ext4(megabytes: u64) -> Option<Self> {
        Self::new(&["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0"], megabytes, "rw")
    }

    fn bare(&self) -> PathBuf {
        self.pond.at("other/bare")
    }

    fn origin(&self) -> PathBuf {
        self.pond.at("other/data")
    }

    fn mount(&self) {
        let more = ["--size", SIZE, "--allow-other"];
        self.pond.mount_places("other/data", "mnt", "flash", &more).ok();
    }

    /// All dirty data reaches the origin, and the unmount ends.
    #[track_caller]
    fn end(&self) {
        self.pond.flush().ok();
        self.pond.unmount(&[]).ok();
        assert!(!is_mounted(&self.pond.mnt()));
    }

    /// Does the same on the bare file system and through a mount: what both take, in KiB, the mount's after its
    /// unmount.
    fn both(&self, work: impl Fn(&Path)) -> (u64, u64) {
        work(&self.bare());
        self.mount();
        work(&self.pond.mnt());
        self.end();
        run(Command::new("sync").arg("-f").arg(self.pond.at("other")));
        (taken(&self.bare()), taken(&self.origin()))
    }
}

/// What the files below a directory take, in KiB.
fn taken(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let found = fs::symlink_metadata(&path).unwrap();
            if found.is_dir() { taken(&path) } else { found.blocks() / 2 }
        })
        .sum()
}

fn kib(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() / 2
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn punch(file: &File, offset: u64, len: u64) {
    rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len).unwrap();
}

/// Almost the same: trees of extents may differ by a block here and there.
#[track_caller]
fn alike(what: &str, (bare, through): (u64, u64)) {
    assert!(through <= bare + bare / 20 + 16, "{what}: {bare} KiB without headpond, {through} KiB with it");
}

#[test]
fn a_thousand_small_files_take_no_more_than_without() {
    let Some(bed) = Bed::ext4(256) else { return };
    let sizes = bed.both(|dir| {
        for number in 0..1000_u64 {
            fs::write(dir.join(number.to_string()), pattern(1000, number)).unwrap();
        }
    });
    alike("1,000 files of 1,000 bytes", sizes);
}

#[test]
fn a_file_that_grows_gives_back_what_was_asked_for_ahead() {
    let Some(bed) = Bed::ext4(256) else { return };
    let sizes = bed.both(|dir| {
        let file = open(&dir.join("log"));
        let line = pattern(3000, 1);
        (0..1500_u64).for_each(|number| file.write_all_at(&line, number * 3000).unwrap());
    });
    alike("a file that grew to 4.5 MB", sizes);
}

#[test]
fn holes_stay_holes() {
    let Some(bed) = Bed::ext4(256) else { return };
    let sizes = bed.both(|dir| {
        let file = open(&dir.join("sparse"));
        file.set_len(256 * MIB).unwrap();
        (0..256_u64).for_each(|number| file.write_all_at(&[7; 4096], number * MIB).unwrap());
        open(&dir.join("far")).write_all_at(&[7; 4096], 1 << 40).unwrap();
    });
    alike("4 KiB in each MiB", sizes);
}

/// Of which the pool could not hold one block in a hundred.
#[test]
fn a_hole_of_two_tebibytes_is_one_also_at_the_origin() {
    const DISK: u64 = 2 << 40;
    let Some(bed) = Bed::ext4(256) else { return };
    let (kept, gone) = ([0, DISK - 4096], [4096, DISK / 2, DISK - 8192]);
    let is_punched = |path: &Path| {
        let (file, mut bytes) = (File::open(path).unwrap(), [1; 4096]);
        let mut all = |places: &[u64], byte: u8| {
            places
                .iter()
                .all(|at| file.read_exact_at(&mut bytes, *at).is_ok() && bytes.iter().all(|found| *found == byte))
        };
        all(&kept, 7) && all(&gone, 0) && fs::metadata(path).unwrap().len() == DISK
    };
    let sizes = bed.both(|dir| {
        let disk = open(&dir.join("disk"));
        disk.set_len(DISK).unwrap();
        kept.iter().chain(&gone).for_each(|at| disk.write_all_at(&[7; 4096], *at).unwrap());
        disk.sync_all().unwrap();
        punch(&disk, 4096, DISK - 8192);
        assert!(is_punched(&dir.join("disk")));
    });
    alike("a hole with 4 KiB on either side", sizes);
    assert!(is_punched(&bed.origin().join("disk")));
}

#[test]
fn page_compression_takes_no_more_than_without() {
    let Some(bed) = Bed::ext4(256) else { return };
    let sizes = bed.both(|dir| {
        let file = open(&dir.join("pages"));
        let page = pattern(16 << 10, 1);
        for number in 0..512_u64 {
            file.write_all_at(&page, number * 16 * KIB).unwrap();
            punch(&file, number * 16 * KIB + 4 * KIB, 12 * KIB);
        }
    });
    alike("pages of 16 KiB of which 12 are punched", sizes);
}

#[test]
fn holes_beside_which_is_written_after_a_remount_stay_holes() {
    let Some(bed) = Bed::ext4(256) else { return };
    let path = bed.pond.mnt().join("file");
    bed.mount();
    write_and_sync(&path, &pattern(16 << 20, 1));
    bed.pond.flush().ok();
    let file = open(&path);
    punch(&file, 4 * MIB, 8 * MIB);
    punch(&file, MIB, 12 * KIB);
    file.sync_all().unwrap();
    drop(file);
    bed.end();
    let there = bed.origin().join("file");
    // And a block for the tree of its extents.
    assert!(kib(&there) <= 8 * KIB - 12 + 4, "{} KiB", kib(&there));
    bed.mount();
    let file = open(&path);
    // In front of the small hole, behind it, and in the large one.
    for offset in [MIB - 4 * KIB, MIB + 12 * KIB, 6 * MIB, 14 * MIB] {
        file.write_all_at(&[3; 4096], offset).unwrap();
    }
    drop(file);
    bed.end();
    assert!(kib(&there) <= 8 * KIB - 12 + 4 + 4, "{} KiB", kib(&there));
}

#[test]
fn space_past_the_end_that_an_application_asked_for_stays() {
    let Some(bed) = Bed::ext4(256) else { return };
    bed.mount();
    let file = open(&bed.pond.mnt().join("file"));
    file.write_all_at(&[1; 8192], 0).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4 * MIB).unwrap();
    file.write_all_at(&[2; 8192], 8192).unwrap();
    drop(file);
    bed.end();
    let there = bed.origin().join("file");
    assert_eq!((fs::metadata(&there).unwrap().len(), kib(&there)), (16 * KIB, 4 * KIB));
}

/// The pond with the bed's origin in the usual place, for a daemon in the foreground.
fn with_origin_beside(pond: Pond) -> Pond {
    fs::remove_dir(pond.origin()).unwrap();
    std::os::unix::fs::symlink(pond.at("other/data"), pond.origin()).unwrap();
    pond
}

/// A crash forgets how far ahead the daemon had asked for space.
#[test]
fn what_was_asked_for_ahead_is_given_back_after_a_crash() {
    let Some(mut bed) = Bed::ext4(256) else { return };
    bed.pond = with_origin_beside(bed.pond);
    let daemon = bed.pond.mount_foreground(&["--size", SIZE]);
    let file = open(&bed.pond.mnt().join("log"));
    (0..100_u64).for_each(|number| file.write_all_at(&[7; 8192], number * 8192).unwrap());
    file.sync_all().unwrap();
    assert!(kib(&bed.origin().join("log")) > 800, "nothing was asked for ahead: this shows nothing");
    bed.pond.kill(daemon);
    drop(file);
    let _ = Command::new("umount").arg("-l").arg(bed.pond.mnt()).status();
    bed.pond.mount(&["--size", SIZE]).ok();
    bed.end();
    // Its extents may have needed a block of their own meanwhile, which ext4 keeps.
    let taken = kib(&bed.origin().join("log"));
    assert!(taken == 800 || taken == 804, "{taken} KiB");
}

/// Writes until there is no space, on a file system that cannot keep any. What was taken must reach it.
fn fill_by_turns(bed: &Bed, most: u64) -> u64 {
    let piece = pattern(256 << 10, 2);
    let file = open(&bed.pond.mnt().join("large"));
    let mut taken = 0;
    let error = loop {
        match file.write_all_at(&piece, taken * piece.len() as u64) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        if taken % 16 == 0 && file.sync_all().is_err() {
            break std::io::Error::from_raw_os_error(ENOSPC);
        }
        assert!(taken * piece.len() as u64 <= most, "the origin has no room for that");
    };
    assert_eq!(error.raw_os_error(), Some(ENOSPC), "{error}");
    let synced = taken;
    drop(file);
    bed.end();
    let there = fs::read(bed.origin().join("large")).unwrap();
    assert!(there.chunks(piece.len()).take(synced as usize).all(|chunk| chunk == piece));
    synced * piece.len() as u64
}

#[test]
fn no_more_is_taken_than_fits_where_space_cannot_be_kept() {
    let mkfs = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^extent,^64bit,^flex_bg,^metadata_csum"];
    let Some(bed) = Bed::new(&mkfs, 96, "rw") else { return };
    bed.mount();
    let free = rustix::fs::statvfs(bed.origin()).unwrap();
    let free = free.f_bavail * free.f_frsize;
    let taken = fill_by_turns(&bed, 96 * MIB);
    assert!(taken >= free - 12 * MIB, "{taken} of {free}: what would have fitted was refused");
}

/// ext4 without extents moves a file's time, and then refuses to reserve space for it.
#[test]
fn a_refused_reservation_is_no_change_by_others_after_a_kill() {
    let mkfs = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^extent,^64bit,^flex_bg,^metadata_csum"];
    let Some(mut bed) = Bed::new(&mkfs, 96, "rw") else { return };
    bed.pond = with_origin_beside(bed.pond);
    fs::write(bed.origin().join("file"), [1; 8192]).unwrap();
    let before = fs::metadata(bed.origin().join("file")).unwrap().modified().unwrap();
    let daemon = bed.pond.mount_foreground(&["--size", SIZE]);
    let file = open(&bed.pond.mnt().join("file"));
    file.write_all_at(&[2; 4096], 4096).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::metadata(bed.origin().join("file")).unwrap().modified().unwrap(), before);
    // A second after the last reservation the log says that the file is not changing any more.
    std::thread::sleep(std::time::Duration::from_secs(2));
    file.write_all_at(&[3; 4096], 4096).unwrap();
    file.sync_all().unwrap();
    bed.pond.kill(daemon);
    drop(file);
    let _ = Command::new("umount").arg("-l").arg(bed.pond.mnt()).status();
    bed.pond.mount(&["--size", SIZE]).ok();
    bed.end();
    assert_eq!(fs::read(bed.origin().join("file")).unwrap()[4096..], [3; 4096]);
}

/// Overwrites blocks of a file of 48 MiB on btrfs, of which `leave` leaves room for few. What was taken must reach it.
fn overwrites_reach_btrfs_or_are_refused(leave: impl Fn(&Bed), before_the_end: impl Fn(&Bed)) {
    let Some(bed) = Bed::new(&["mkfs.btrfs", "-q", "-f"], 256, "rw") else { return };
    bed.mount();
    let old = pattern(1 << 20, 1);
    let file = open(&bed.pond.mnt().join("base"));
    (0..48_u64).for_each(|number| file.write_all_at(&old, number * MIB).unwrap());
    file.sync_all().unwrap();
    bed.pond.flush().ok();
    leave(&bed);
    // That is seen with the next look, a second later at most.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let page = pattern(4096, 5);
    let mut refused = false;
    let mut taken = Vec::new();
    for number in 0..6000_u64 {
        let offset = number.wrapping_mul(7919) % (48 * 256) * 4096;
        match file.write_all_at(&page, offset) {
            Ok(()) => taken.push(offset),
            Err(error) => {
                assert!([ENOSPC, EDQUOT].contains(&error.raw_os_error().unwrap_or(0)), "{error}");
                refused = true;
                break;
            }
        }
        if number % 500 == 0 && file.sync_all().is_err() {
            refused = true;
            break;
        }
    }
    let synced = file.sync_all().is_ok();
    assert!(synced || refused);
    drop(file);
    before_the_end(&bed);
    bed.end();
    let there = File::open(bed.origin().join("base")).unwrap();
    let mut found = vec![0; 4096];
    for offset in taken {
        there.read_exact_at(&mut found, offset).unwrap();
        assert!(found == page, "what was taken is not there");
    }
}

/// Each start writes who has the origin. Where the origin is full there has to be room for it already.
#[test]
fn the_death_of_a_worker_goes_unseen_while_the_origin_is_full() {
    for mkfs in [&["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0"][..], &["mkfs.xfs", "-q", "-f"]] {
        let Some(bed) = Bed::new(mkfs, 320, "rw") else { continue };
        bed.mount();
        let file = bed.pond.mnt().join("file");
        write_and_sync(&file, &pattern(MIB as usize, 1));
        bed.pond.flush().ok();
        let filler = bed.bare().join("filler");
        for block in [MIB, 4 * KIB] {
            let mut dd = Command::new("dd");
            dd.args(["if=/dev/zero", &format!("bs={block}"), "oflag=append", "conv=notrunc,fsync"]);
            dd.arg(format!("of={}", filler.display())).stderr(Stdio::null());
            assert!(!dd.status().unwrap().success(), "it is not full");
        }
        // Others may still make an empty file, which needs no block of its own.
        assert!(fs::write(bed.bare().join("one"), [1; 4096]).is_err(), "it is not full");
        for lives in 1..4 {
            bed.pond.another_worker("mnt", lives);
            assert!(fs::read(&file).unwrap() == pattern(MIB as usize, 1));
        }
        fs::remove_file(&filler).unwrap();
        bed.end();
        assert!(!bed.origin().join(".headpond").exists(), "nothing of it is left");
    }
}

/// btrfs reserves nothing, so the origin's file has no space before destage. GNU tar with `--sparse` takes a file without
/// any for one hole, and reads none of it.
#[test]
fn a_dirty_file_is_no_hole_where_the_origin_reserves_nothing() {
    let Some(bed) = Bed::new(&["mkfs.btrfs", "-q", "-f"], 256, "rw") else { return };
    bed.mount();
    let file = bed.pond.mnt().join("file");
    write_and_sync(&file, &pattern(MIB as usize, 1));
    let archive = bed.pond.at("archive.tar");
    run(Command::new("tar").args(["--sparse", "-cf"]).arg(&archive).arg("-C").arg(bed.pond.mnt()).arg("file"));
    assert_eq!(kib(&bed.origin().join("file")), 0, "it is not dirty any more, so this shows nothing");
    let out = bed.pond.at("out");
    fs::create_dir(&out).unwrap();
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&out));
    assert!(fs::read(out.join("file")).unwrap() == pattern(MIB as usize, 1), "the archive has zeros");
    bed.end();
}

#[test]
fn overwrites_on_a_nearly_full_btrfs_reach_it_or_are_refused() {
    let leave = |bed: &Bed| {
        // Others leave it 12 MiB.
        let ballast = File::create(bed.bare().join("ballast")).unwrap();
        let free = || rustix::fs::statvfs(bed.origin()).map(|found| found.f_bavail * found.f_frsize).unwrap();
        let mut at = 0;
        while free() > 12 * MIB {
            let piece = pattern(1 << 20, 9 + at);
            if ballast.write_all_at(&piece, at * MIB).is_err() || ballast.sync_all().is_err() {
                break;
            }
            at += 1;
        }
    };
    overwrites_reach_btrfs_or_are_refused(leave, |_| ());
}

/// The file system has room, and its subvolume may not have it. At its very limit btrfs makes no file and sets no time,
/// so that nothing could be unmounted: in the end it gets 2 MiB more, a tenth of what is overwritten.
#[test]
fn overwrites_close_to_the_limit_of_a_btrfs_subvolume_reach_it_or_are_refused() {
    if !has("btrfs") {
        return;
    }
    let btrfs = |bed: &Bed, arguments: &[&str]| {
        run(Command::new("btrfs").args(arguments).arg(bed.bare()).stdout(Stdio::null()));
        run(Command::new("sync").arg("-f").arg(bed.bare()));
    };
    let leave = |bed: &Bed| {
        btrfs(bed, &["quota", "enable"]);
        btrfs(bed, &["qgroup", "limit", "58M", "0/5"]);
    };
    let raise = |bed: &Bed| {
        // The limit itself takes room: btrfs may refuse a new one until it has written out what it has reserved.
        wait_until("btrfs takes another limit", || {
            run(Command::new("sync").arg("-f").arg(bed.bare()));
            let mut limit = Command::new("btrfs");
            limit.args(["qgroup", "limit", "60M", "0/5"]).arg(bed.bare());
            output(&mut limit).status.success()
        });
    };
    overwrites_reach_btrfs_or_are_refused(leave, raise);
}

/// Appends as a user until the file system says no. Answers with how much that was, in KiB, and the error.
fn append_as_user(dir: &Path) -> (u64, i32) {
    let mut dd = Command::new("setpriv");
    dd.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--inh-caps=-all", "--"]);
    dd.args(["dd", "if=/dev/zero", "bs=64k", "count=4000", "oflag=append", "conv=notrunc"]);
    let mut of = std::ffi::OsString::from("of=");
    of.push(dir.join("user"));
    let output = dd.arg(of).env("LC_ALL", "C").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let error = match said {
        said if said.contains("No space left") => ENOSPC,
        said => panic!("{said}"),
    };
    (fs::metadata(dir.join("user")).unwrap().len() / KIB, error)
}

#[test]
fn users_do_not_get_the_blocks_that_are_kept_for_root() {
    if !has("setpriv") {
        return;
    }
    let mkfs = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "30"];
    for more in [&[][..], &["--mode", "write-through"]] {
        let Some(bed) = Bed::new(&mkfs, 128, "rw") else { return };
        let bare = append_as_user(&bed.bare());
        fs::remove_file(bed.bare().join("user")).unwrap();
        run(Command::new("sync").arg("-f").arg(bed.bare()));
        let arguments = [&["--size", SIZE, "--allow-other"], more].concat();
        bed.pond.mount_places("other/data", "mnt", "flash", &arguments).ok();
        let through = append_as_user(&bed.pond.mnt());
        assert_eq!(through.1, ENOSPC);
        assert!(
            through.0 <= bare.0 + 512 && through.0 + 1024 >= bare.0,
            "{bare:?} without headpond, {through:?} with it"
        );
        // Root has them still.
        write_and_sync(&bed.pond.mnt().join("root"), &pattern(8 << 20, 1));
        bed.end();
    }
}

#[test]
fn a_mapping_of_a_user_does_not_get_the_blocks_that_are_kept_for_root() {
    if !has("setpriv") || !has("fio") {
        return;
    }
    let Some(bed) = Bed::new(&["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "30"], 128, "rw") else { return };
    bed.mount();
    append_as_user(&bed.pond.mnt());
    bed.pond.flush().ok();
    let kept = || rustix::fs::statvfs(bed.origin()).map(|found| found.f_bfree * found.f_frsize / MIB).unwrap();
    let before = kept();
    assert!(before > 20, "the load is to find {before} MiB");
    // It fails, as it finds no space; how, is the kernel's.
    let mut fio = Command::new("setpriv");
    fio.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--inh-caps=-all", "--", "fio", "--name=mapped"]);
    fio.args(["--ioengine=mmap", "--rw=write", "--bs=4k", "--size=16m", "--fallocate=none", "--end_fsync=1"]);
    fio.arg("--filename").arg(bed.pond.mnt().join("mapped")).stdout(Stdio::null()).stderr(Stdio::null());
    fio.current_dir("/").status().unwrap();
    bed.end();
    let after = kept();
    assert!(after + 2 >= before, "{after} MiB are left of {before} MiB");
}

/// A fresh cluster of PostgreSQL, and fresh system tables of MariaDB.
#[test]
fn fresh_databases_take_no_more_than_without() {
    let initdb =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|dir| dir.path().join("bin/initdb"));
    let initdb = initdb.filter(|path| path.exists()).last();
    let maria = Path::new("/usr/bin/mariadb-install-db");
    lacks_nothing(initdb.is_none().then_some("initdb"));
    lacks_nothing((!maria.exists()).then_some("mariadb-install-db"));
    let as_user = |dir: &Path, program: &Path, arguments: &[&OsStr]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]).arg(program).args(arguments);
        let output = command.current_dir(dir).env("LC_ALL", "C").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    if let Some(initdb) = initdb {
        let Some(bed) = Bed::ext4(512) else { return };
        let sizes = bed.both(|dir| {
            let data = dir.join("pg");
            as_user(
                dir,
                &initdb,
                ["-N", "-A", "trust", "-D"]
                    .map(OsStr::new)
                    .iter()
                    .chain([&data.as_os_str()])
                    .copied()
                    .collect::<Vec<_>>()
                    .as_slice(),
            );
        });
        alike("a fresh PostgreSQL cluster", sizes);
    }
    if maria.exists() {
        let Some(bed) = Bed::ext4(768) else { return };
        let sizes = bed.both(|dir| {
            let mut data = std::ffi::OsString::from("--datadir=");
            data.push(dir.join("maria"));
            let auth = OsStr::new("--auth-root-authentication-method=normal");
            as_user(dir, maria, &[OsStr::new("--no-defaults"), auth, &data]);
        });
        alike("fresh system tables of MariaDB", sizes);
    }
}
