//! Many more files than descriptors: nothing fails for it, whatever is renamed, linked and removed meanwhile; and what
//! is removed is closed.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod bench;

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bench::{Behind, Bench};
use headpond_base::CacheMode;
use headpond_engine::{Reply, Request};
use headpond_shard::Budget;
use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, StatxFlags};

/// So few that each directory needs them anew.
const FEW: Budget = Budget { paths: 40, files: 20, handles: 16 };

const DIRECTORIES: usize = 12;
const FILES: usize = 20;

/// What of the origin this process, which is the daemon too, has open.
fn open_at_origin(bench: &Bench) -> Vec<PathBuf> {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.starts_with(&bench.origin)).collect()
}

#[track_caller]
fn few_are_open(bench: &Bench) {
    // The root, directories being synced or read, and what is in use at the moment. The kernel tells of closes after
    // `close` has returned, so on a busy machine the last ones are still on their way; what leaks stays open for good.
    let most = FEW.paths + FEW.files + 20;
    let mut open = open_at_origin(bench).len();
    for _ in 0..1000 {
        if open <= most {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        open = open_at_origin(bench).len();
    }
    panic!("{open} descriptors stay open, {most} at most are allowed for");
}

fn flush(bench: &Bench) {
    let Behind::Engine(handle) = &bench.behind else { unreachable!() };
    assert!(matches!(handle.call(Request::flush_all(1)), Reply::Done));
}

fn text(directory: usize, file: usize) -> String {
    format!("this is {directory}/{file}")
}

/// Makes many files, some with names that are found only by their directories.
fn fill(below: &Path) {
    for directory in 0..DIRECTORIES {
        let place = below.join(format!("d{directory}/deep"));
        fs::create_dir_all(&place).unwrap();
        for file in 0..FILES {
            fs::write(place.join(file.to_string()), text(directory, file)).unwrap();
        }
    }
}

#[test]
fn many_more_files_than_descriptors_are_made_looked_at_and_opened() {
    for mode in [CacheMode::WriteBack, CacheMode::WriteThrough] {
        let mut bench = Bench::engine_within(mode, FEW);
        fill(&bench.mountpoint);
        few_are_open(&bench);
        for round in 0..2 {
            for directory in 0..DIRECTORIES {
                for file in 0..FILES {
                    let path = bench.mountpoint.join(format!("d{directory}/deep/{file}"));
                    assert_eq!(fs::metadata(&path).unwrap().len(), text(directory, file).len() as u64);
                    assert_eq!(fs::read_to_string(&path).unwrap(), text(directory, file), "round {round}");
                }
            }
            few_are_open(&bench);
            flush(&bench);
        }
        // What is open stays open, more than there are descriptors for.
        let mut all: Vec<File> = (0..2 * FEW.files)
            .map(|file| {
                let path = bench.mountpoint.join(format!("d{}/deep/{}", file % DIRECTORIES, file % FILES));
                File::options().read(true).append(true).open(path).unwrap()
            })
            .collect();
        for (number, file) in all.iter_mut().enumerate() {
            write!(file, " and {number}").unwrap();
            file.sync_all().unwrap();
            file.rewind().unwrap();
            let mut content = String::new();
            file.read_to_string(&mut content).unwrap();
            assert!(content.ends_with(&format!(" and {number}")), "{content}");
        }
        drop(all);
        bench.finish();
        for file in 0..FILES {
            let at_origin = fs::read_to_string(bench.origin.join(format!("d3/deep/{file}"))).unwrap();
            assert!(at_origin.starts_with(&text(3, file)), "{at_origin}");
        }
    }
}

#[test]
fn files_are_found_again_though_directories_above_were_renamed_meanwhile() {
    let mut bench = Bench::engine_within(CacheMode::WriteBack, FEW);
    let at = |name: &str| bench.mountpoint.join(name);
    fill(&bench.mountpoint);
    // Numbers are asked of descriptors that only name the files, so that nothing is looked up by name again.
    let named: Vec<_> = (0..DIRECTORIES)
        .map(|directory| {
            let path = at(&format!("d{directory}/deep/7"));
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            (directory, rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap())
        })
        .collect();
    fs::create_dir(at("elsewhere")).unwrap();
    for directory in 0..DIRECTORIES {
        fs::rename(at(&format!("d{directory}/deep")), at(&format!("d{directory}/deeper"))).unwrap();
        fs::rename(at(&format!("d{directory}")), at(&format!("elsewhere/{directory}"))).unwrap();
    }
    rustix::fs::renameat_with(CWD, at("elsewhere/0"), CWD, at("elsewhere/1"), RenameFlags::EXCHANGE).unwrap();
    fs::rename(at("elsewhere"), at("there")).unwrap();
    for round in 0..2 {
        for (directory, path) in &named {
            let now = [1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11][*directory];
            // Past the kernel's memory of attributes.
            let found =
                rustix::fs::statx(path, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
            let at_origin = fs::metadata(bench.origin.join(format!("there/{now}/deeper/7"))).unwrap();
            assert_eq!(found.unwrap().stx_ino, at_origin.ino(), "round {round}");
            let name = at(&format!("there/{now}/deeper/7"));
            assert_eq!(fs::read_to_string(name).unwrap(), text(*directory, 7));
        }
        flush(&bench);
    }
    few_are_open(&bench);
    drop(named);
    bench.finish();
}

#[test]
fn nothing_is_missed_while_directories_above_are_renamed_all_the_time() {
    let bench = Bench::engine_within(CacheMode::WriteBack, FEW);
    fill(&bench.mountpoint);
    let names: Vec<PathBuf> = (0..DIRECTORIES).map(|number| bench.mountpoint.join(format!("d{number}"))).collect();
    let working: Vec<File> = names.iter().map(|name| File::open(name.join("deep")).unwrap()).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for name in &names {
                    let other = name.with_extension("moved");
                    fs::rename(name, &other).unwrap();
                    fs::rename(&other, name).unwrap();
                }
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let working = &working;
                scope.spawn(move || {
                    for number in 0..200 {
                        let (directory, file) = ((number * 5 + reader) % DIRECTORIES, number % FILES);
                        let name = file.to_string();
                        let open = rustix::fs::openat(
                            &working[directory],
                            &name,
                            OFlags::RDONLY | OFlags::CLOEXEC,
                            rustix::fs::Mode::empty(),
                        );
                        let mut content = String::new();
                        File::from(open.unwrap()).read_to_string(&mut content).unwrap();
                        assert_eq!(content, text(directory, file));
                    }
                })
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    drop(working);
}

#[test]
fn a_file_with_several_names_is_there_as_long_as_one_of_them_is() {
    let mut bench = Bench::engine_within(CacheMode::WriteBack, FEW);
    let at = |name: &str| bench.mountpoint.join(name);
    fs::create_dir(at("one")).unwrap();
    fs::create_dir(at("two")).unwrap();
    for number in 0..20 {
        fs::write(at(&format!("one/{number}")), text(1, number)).unwrap();
        fs::hard_link(at(&format!("one/{number}")), at(&format!("two/{number}"))).unwrap();
    }
    fill(&bench.mountpoint);
    let named: Vec<_> = (0..20).map(|number| File::open(at(&format!("one/{number}"))).unwrap()).collect();
    for number in 0..20 {
        fs::remove_file(at(&format!("one/{number}"))).unwrap();
    }
    fs::remove_dir(at("one")).unwrap();
    fill(&bench.mountpoint);
    for (number, file) in named.iter().enumerate() {
        assert_eq!(file.metadata().unwrap().nlink(), 1);
        assert_eq!(fs::read_to_string(at(&format!("two/{number}"))).unwrap(), text(1, number));
    }
    drop(named);
    bench.finish();
}

#[test]
fn a_file_whose_descriptor_was_closed_is_found_while_one_of_its_names_goes_and_comes() {
    let mut bench = Bench::engine_within(CacheMode::WriteBack, FEW);
    let at = |name: &str| bench.mountpoint.join(name);
    for name in ["one", "two"] {
        fs::create_dir(at(name)).unwrap();
    }
    // More than stay open.
    let many = 2 * FEW.paths;
    for number in 0..many {
        fs::write(at(&format!("one/{number}")), text(1, number)).unwrap();
        fs::hard_link(at(&format!("one/{number}")), at(&format!("two/{number}"))).unwrap();
    }
    flush(&bench);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let open = |number| rustix::fs::open(at(&format!("one/{number}")), flags, rustix::fs::Mode::empty()).unwrap();
    let named: Vec<_> = (0..many).map(open).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // The name by which it was looked up last is the one that goes.
                for (gone, left) in [("one", "two"), ("two", "one")] {
                    for number in 0..many {
                        let (gone, left) = (at(&format!("{gone}/{number}")), at(&format!("{left}/{number}")));
                        fs::remove_file(&gone).unwrap();
                        // The kernel takes one off its count of links for a removal, also where a look in between has
                        // told it the new count, and links no file that seems to have none.
                        let look = AtFlags::STATX_FORCE_SYNC;
                        rustix::fs::statx(rustix::fs::CWD, &left, look, StatxFlags::BASIC_STATS).unwrap();
                        fs::hard_link(&left, &gone).unwrap();
                    }
                }
            }
        });
        let look = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let looks = (0..20 * many).map(|number| {
            let found = rustix::fs::statx(&named[number * 7 % many], c"", look, StatxFlags::BASIC_STATS);
            found.map(|found| found.stx_size)
        });
        let failed: Vec<_> = looks.filter_map(Result::err).collect();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, []);
    });
    few_are_open(&bench);
    drop(named);
    bench.finish();
}

#[test]
fn a_flush_right_after_the_last_close_of_removed_files_succeeds() {
    let mut bench = Bench::engine_within(CacheMode::WriteBack, FEW);
    let at = |name: String| bench.mountpoint.join(name);
    for round in 0..20_u8 {
        let files: Vec<File> =
            (0..2 * FEW.files).map(|number| File::create(at(format!("{number}"))).unwrap()).collect();
        for (number, file) in files.iter().enumerate() {
            file.write_all_at(&[round; 20_000], 0).unwrap();
            fs::remove_file(at(format!("{number}"))).unwrap();
        }
        drop(files);
        flush(&bench);
    }
    bench.finish();
}

/// All that can be open of files of this name, wherever they were.
fn open_of(bench: &Bench, name: &str) -> Vec<PathBuf> {
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
    open_at_origin(bench).into_iter().filter(is_it).collect()
}

#[test]
fn no_descriptor_of_a_removed_file_is_left_when_its_removal_is_answered() {
    for mode in [CacheMode::WriteBack, CacheMode::WriteThrough] {
        let mut bench = Bench::engine_within(mode, Budget::of(4096));
        let at = |name: &str| bench.mountpoint.join(name);
        for round in 0..9 {
            fs::create_dir(at("table")).unwrap();
            for number in 0..4 {
                fs::write(at(&format!("table/goes-{number}")), vec![round; 50_000]).unwrap();
                // Read again, so that the kernel and the engine know it well.
                assert_eq!(fs::read(at(&format!("table/goes-{number}"))).unwrap().len(), 50_000);
            }
            std::os::unix::fs::symlink("nowhere", at("table/goes-link")).unwrap();
            if round % 3 == 0 {
                flush(&bench);
            }
            // A close is answered before it is done here.
            assert!(soon(|| bench_opens(&bench) == 0));
            for number in 0..2 {
                fs::remove_file(at(&format!("table/goes-{number}"))).unwrap();
                assert_eq!(open_of(&bench, &format!("goes-{number}")), Vec::<PathBuf>::new(), "round {round}");
            }
            fs::remove_file(at("table/goes-link")).unwrap();
            fs::write(at("table/comes"), "new").unwrap();
            fs::rename(at("table/comes"), at("table/goes-2")).unwrap();
            let gone: Vec<_> = open_of(&bench, "goes-2 (deleted)");
            assert_eq!(gone, Vec::<PathBuf>::new(), "replaced, round {round}");
            assert_eq!(fs::read_to_string(at("table/goes-2")).unwrap(), "new");
            assert!(soon(|| bench_opens(&bench) == 0));
            fs::remove_file(at("table/goes-2")).unwrap();
            fs::remove_file(at("table/goes-3")).unwrap();
            assert_eq!(open_of(&bench, "goes-"), Vec::<PathBuf>::new(), "round {round}");
            fs::remove_dir(at("table")).unwrap();
        }
        bench.finish();
    }
}

/// How many regular files below the mount this process still has open, as an application.
fn bench_opens(bench: &Bench) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.starts_with(&bench.mountpoint)).count()
}

#[test]
fn a_file_that_is_removed_while_it_is_open_is_there_until_it_is_closed() {
    let mut bench = Bench::engine_within(CacheMode::WriteBack, FEW);
    let path = bench.mountpoint.join("file");
    for round in 0..3_u8 {
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(&[round; 20_000], 0).unwrap();
        fs::remove_file(&path).unwrap();
        fill(&bench.mountpoint);
        file.write_all_at(&[round + 1; 1000], 19_500).unwrap();
        file.sync_all().unwrap();
        flush(&bench);
        let mut content = vec![0; 20_500];
        file.read_exact_at(&mut content, 0).unwrap();
        assert!(content[..19_500].iter().all(|byte| *byte == round));
        assert!(content[19_500..].iter().all(|byte| *byte == round + 1));
        let found = file.metadata().unwrap();
        assert_eq!((found.nlink(), found.len()), (0, 20_500));
    }
    bench.finish();
}

#[test]
fn a_removed_file_that_was_only_named_can_still_be_looked_at() {
    let bench = Bench::engine_within(CacheMode::WriteBack, Budget::of(4096));
    let path = bench.mountpoint.join("file");
    fs::write(&path, "some bytes").unwrap();
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let named = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    fs::remove_file(&path).unwrap();
    let look = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let found = rustix::fs::statx(&named, c"", look, StatxFlags::BASIC_STATS).unwrap();
    assert_eq!((found.stx_nlink, found.stx_size), (0, 10));
}

#[test]
fn a_number_that_the_origin_gives_to_a_new_file_is_not_taken_for_the_old_one() {
    let mut bench = Bench::engine_within(CacheMode::WriteBack, Budget::of(4096));
    let path = bench.mountpoint.join("file");
    let mut named = Vec::new();
    let mut numbers = std::collections::BTreeSet::new();
    for round in 0..20_usize {
        let content = round.to_string().repeat(1000 + round);
        fs::write(&path, &content).unwrap();
        assert!(fs::read_to_string(&path).unwrap() == content, "round {round}");
        numbers.insert(fs::metadata(&path).unwrap().ino());
        // The kernel remembers the old ones.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        named.push(rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap());
        if round % 2 == 0 {
            fs::remove_file(&path).unwrap();
        } else {
            fs::write(path.with_extension("new"), "x").unwrap();
            fs::rename(path.with_extension("new"), &path).unwrap();
            fs::remove_file(&path).unwrap();
        }
    }
    eprintln!("{} numbers for 20 files", numbers.len());
    drop(named);
    bench.finish();
}

#[test]
fn a_number_that_the_origin_gives_to_a_new_directory_is_not_taken_for_the_old_one() {
    let mut bench = Bench::engine_within(CacheMode::WriteBack, Budget::of(4096));
    let at = |name: &str| bench.mountpoint.join(name);
    let mut named = Vec::new();
    for round in 0..20_usize {
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/file"), round.to_string()).unwrap();
        assert_eq!(fs::read_to_string(at("d/file")).unwrap(), round.to_string());
        // Every other one is remembered.
        if round % 2 == 0 {
            named.push(File::open(at("d")).unwrap());
        }
        fs::rename(at("d/file"), at("file")).unwrap();
        if round % 3 == 0 {
            fs::create_dir(at("empty")).unwrap();
            fs::rename(at("empty"), at("d")).unwrap();
        }
        fs::remove_dir(at("d")).unwrap();
    }
    assert!(named.iter().all(|directory| directory.metadata().unwrap().nlink() == 0));
    drop(named);
    bench.finish();
}

#[test]
fn a_file_that_others_replaced_at_the_origin_is_not_taken_for_the_one_that_was() {
    let bench = Bench::engine_within(CacheMode::WriteBack, FEW);
    let path = bench.mountpoint.join("file");
    fs::write(&path, "the old one").unwrap();
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let named = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    flush(&bench);
    fill(&bench.mountpoint);
    flush(&bench);
    assert_eq!(open_of(&bench, "file"), Vec::<PathBuf>::new(), "its descriptor is closed by now");
    fs::rename(bench.origin.join("file"), bench.origin.join("moved-by-others")).unwrap();
    fs::write(bench.origin.join("file"), "a stranger").unwrap();
    let look = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let found = rustix::fs::statx(&named, c"", look, StatxFlags::BASIC_STATS);
    assert_eq!(found.map(|found| found.stx_ino).unwrap_err(), rustix::io::Errno::STALE);
}

/// Whether something comes true before patience ends.
fn soon(is_so: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        let now = is_so();
        if !now {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        now
    })
}
