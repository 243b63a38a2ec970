//! Requests for data go straight to the engine, whole, and each is always answered.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod bench;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use bench::{Behind, Bench};
use headpond_base::CacheMode;
use headpond_engine::{Reply, Request};

const MIB: usize = 1 << 20;

/// What the kernel lets a request have: 256 unless the system's administrator raised it.
fn pages_max() -> usize {
    let text = fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit").unwrap_or_default();
    text.trim().parse().unwrap_or(256)
}

#[test]
fn an_unaligned_mebibyte_is_one_request_where_the_kernel_allows_257_pages() {
    let bench = Bench::straight(|_| {});
    let Behind::Straight(pond) = &bench.behind else { unreachable!() };
    let data: Vec<u8> = (0..MIB).map(|at| (at / 100) as u8).collect();
    let file = File::options().read(true).write(true).create_new(true).open(bench.mountpoint.join("file")).unwrap();
    pond.forget_sizes();
    file.write_all_at(&data, 100).unwrap();
    let sizes = pond.sizes();
    if pages_max() > 256 {
        assert_eq!(sizes, [MIB]);
    } else {
        // Documented in docs/operations.md: the kernel cuts it where its pages are at an end.
        assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (2, MIB));
    }
    let mut read = vec![0; MIB];
    file.read_exact_at(&mut read, 100).unwrap();
    assert!(read == data);
}

#[test]
fn requests_longer_than_a_record_are_answered_whole() {
    // Comes about only where more pages are allowed; the content must be right either way.
    let mut bench = Bench::engine(CacheMode::WriteBack);
    let data: Vec<u8> = (0..3 * MIB).map(|at| (at / 1000) as u8).collect();
    let file = File::options().read(true).write(true).create_new(true).open(bench.mountpoint.join("file")).unwrap();
    file.write_all_at(&data, 3000).unwrap();
    file.sync_all().unwrap();
    let again = File::open(bench.mountpoint.join("file")).unwrap();
    let mut read = vec![0; 3 * MIB];
    again.read_exact_at(&mut read, 3000).unwrap();
    assert!(read == data);
    drop((file, again));
    bench.finish();
}

#[test]
fn many_writers_at_once_get_their_own_bytes() {
    // More are under way than buffers are lent out for.
    let mut bench = Bench::engine(CacheMode::WriteBack);
    let path = bench.mountpoint.join("file");
    File::create(&path).unwrap().set_len(64 * 40_000).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..64_u64 {
            let path = &path;
            scope.spawn(move || {
                let file = File::options().read(true).write(true).open(path).unwrap();
                let mut read = vec![0; 40_000];
                for round in 0..20 {
                    let data = vec![(worker * 20 + round) as u8; 40_000];
                    file.write_all_at(&data, worker * 40_000).unwrap();
                    if round % 7 == worker % 7 {
                        file.sync_data().unwrap();
                    }
                    file.read_exact_at(&mut read, worker * 40_000).unwrap();
                    assert!(read == data, "worker {worker}, round {round}");
                }
            });
        }
    });
    bench.finish();
}

#[test]
fn callers_are_told_an_error_when_the_shard_has_ended_under_the_mount() {
    let bench = Bench::engine(CacheMode::WriteBack);
    let path = bench.mountpoint.join("file");
    fs::write(&path, vec![1; 10_000]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let Behind::Engine(handle) = &bench.behind else { unreachable!() };
    assert!(matches!(handle.call(Request::Stop), Reply::Done));
    handle.clone().stop().unwrap();
    // Neither hangs, whatever the kernel has cached.
    assert!(file.write_all_at(&[2; 100], 0).is_err());
    assert!(file.sync_all().is_err());
    assert!(fs::metadata(&bench.mountpoint).is_ok(), "what is not for data is served on");
}

#[test]
fn lists_of_directories_and_large_attributes_come_through_whole() {
    let bench = Bench::straight(|_| {});
    let directory = bench.mountpoint.join("many");
    fs::create_dir(&directory).unwrap();
    let names: Vec<String> = (0..3000).map(|number| format!("{number:0>60}")).collect();
    for name in &names {
        File::create(directory.join(name)).unwrap();
    }
    let mut found: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, names);
    // The kernel forgets them in long lists.
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(fs::read_dir(&bench.mountpoint).unwrap().count(), 0);
}
