//! What only a mount over a real engine can show.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod bench;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::{Behind, Bench};
use headpond_base::CacheMode;
use headpond_engine::{Reply, Request};
use headpond_shard::Syncs;

fn flush(bench: &Bench) {
    let Behind::Engine(handle) = &bench.behind else { unreachable!() };
    assert!(matches!(handle.call(Request::flush_all(1)), Reply::Done));
}

#[test]
fn a_file_is_open_again_though_it_was_just_let_go() {
    let mut bench = Bench::engine(CacheMode::WriteBack);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Flushing makes files clean all the time, so that closing lets them go.
            while !stop.load(Ordering::Relaxed) {
                flush(&bench);
            }
        });
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let path = bench.mountpoint.join(format!("file-{worker}"));
                scope.spawn(move || {
                    let mut content = vec![0_u8; 40_000];
                    fs::write(&path, &content).unwrap();
                    for round in 0..400_usize {
                        let file = File::options().read(true).write(true).open(&path).unwrap();
                        // Parts of blocks, so that the origin is read as well as written.
                        let (offset, byte) = (round * 97 % 39_000, (round % 251) as u8);
                        file.write_all_at(&[byte; 100], offset as u64).unwrap();
                        content[offset..offset + 100].fill(byte);
                        if round % 3 == 0 {
                            file.sync_all().unwrap();
                        }
                        drop(file);
                        if round % 5 == 0 {
                            std::thread::sleep(Duration::from_millis(2));
                        }
                        assert!(fs::read(&path).unwrap() == content, "round {round}");
                    }
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
    });
    bench.finish();
}

#[test]
fn size_and_time_are_the_engines_before_and_after_destage() {
    let mut bench = Bench::engine(CacheMode::WriteBack);
    let path = bench.mountpoint.join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[1; 70_001], 0).unwrap();
    let before = fs::metadata(&path).unwrap();
    assert_eq!(before.len(), 70_001);
    flush(&bench);
    let after = fs::metadata(&path).unwrap();
    let moments = |found: &fs::Metadata| [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    assert_eq!((after.len(), moments(&after)), (70_001, moments(&before)), "destage is not seen");
    let renamed = bench.mountpoint.join("renamed");
    fs::rename(&path, &renamed).unwrap();
    let changed = fs::metadata(&renamed).unwrap();
    let at_origin = fs::metadata(bench.origin.join("renamed")).unwrap();
    assert_eq!(moments(&changed)[2..], moments(&at_origin)[2..], "or it would go back with the next mount");
    fs::rename(&renamed, &path).unwrap();
    drop(file);
    bench.finish();
    let at_origin = fs::metadata(bench.origin.join("file")).unwrap();
    assert_eq!((at_origin.len(), at_origin.mtime_nsec()), (70_001, before.mtime_nsec()));
}

/// btrfs before 6.15.3 brings a removed file back though it was synced after that, and what the pool has of it is
/// dropped.
#[test]
fn what_the_pool_has_of_a_removed_file_goes_once_the_directory_is_synced() {
    let (mut bench, origin) = Bench::idle();
    let file = File::create(bench.mountpoint.join("file")).unwrap();
    file.write_all_at(&[1; 70_001], 0).unwrap();
    file.sync_all().unwrap();
    let before = origin.syncs();
    assert_eq!(before, Syncs { files: 1, directories: 1 }, "it is new");
    fs::remove_file(bench.mountpoint.join("file")).unwrap();
    assert_eq!(origin.syncs(), before);
    drop(file);
    // The kernel gives the handle back a moment after the close.
    assert!(soon(|| origin.syncs() == Syncs { files: 2, directories: 2 }), "{:?}", origin.syncs());
    bench.finish();
}

#[test]
fn after_a_flush_nothing_is_left_of_files_that_were_removed_before_it() {
    let (mut bench, _) = Bench::idle();
    let path = |number: u32| bench.mountpoint.join(number.to_string());
    for number in 0..40 {
        let file = File::create(path(number)).unwrap();
        file.write_all_at(&[1; 20_000], 0).unwrap();
    }
    File::open(path(0)).unwrap().sync_all().unwrap();
    (0..40).for_each(|number| fs::remove_file(path(number)).unwrap());
    flush(&bench);
    let Behind::Engine(handle) = &bench.behind else { unreachable!() };
    let stats = handle.stats().engine;
    assert_eq!((stats.dirty_blocks, stats.dirty_objects), (0, 0));
    bench.finish();
}

#[test]
fn a_sync_of_a_file_is_one_of_its_names_too_where_those_changed() {
    let (mut bench, origin) = Bench::idle();
    let path = |name: &str| bench.mountpoint.join(name);
    for name in ["one", "other"] {
        fs::create_dir(path(name)).unwrap();
    }
    let file = File::create(path("one/file")).unwrap();
    file.write_all_at(&[1; 70_001], 0).unwrap();
    file.sync_all().unwrap();
    let mut directories = origin.syncs().directories;
    let mut syncs = |what: &str, more: u64| {
        for expected in [more, 0] {
            file.sync_all().unwrap();
            let now = origin.syncs().directories;
            assert_eq!(now - directories, expected, "{what}");
            directories = now;
        }
    };
    syncs("nothing happened", 0);
    fs::rename(path("one/file"), path("other/file")).unwrap();
    syncs("it left one directory for another", 2);
    fs::hard_link(path("other/file"), path("one/name")).unwrap();
    syncs("it has a name more", 1);
    fs::remove_file(path("other/file")).unwrap();
    syncs("it has a name less", 1);
    fs::remove_file(path("one/name")).unwrap();
    syncs("it has none", 1);
    drop(file);
    bench.finish();
}

/// Two handles of a removed file are given back at the same moment, by two threads of the mount.
#[test]
fn what_is_removed_while_open_twice_is_not_looked_for_at_the_origin_for_ever() {
    let mut bench = Bench::engine(CacheMode::WriteBack);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let directory = bench.mountpoint.join(format!("of-{thread}"));
            scope.spawn(move || {
                fs::create_dir(&directory).unwrap();
                for round in 0..200 {
                    let path = directory.join("file");
                    let first = File::create_new(&path).unwrap();
                    first.write_all_at(&vec![1; 4096 << (round % 4)], 0).unwrap();
                    let second = File::options().write(true).open(&path).unwrap();
                    second.write_all_at(&[2; 4096], 8192).unwrap();
                    fs::remove_file(&path).unwrap();
                    std::thread::scope(|scope| {
                        scope.spawn(|| drop(first));
                        drop(second);
                    });
                }
            });
        }
    });
    flush(&bench);
    bench.finish();
}

/// Whether something comes true before patience ends.
fn soon(is_so: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        is_so()
    })
}
