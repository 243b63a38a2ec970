//! Serves a mount for as long as it is mounted, so that any tool can be run on it by hand: over an
//! engine with the pool `SERVE_FLASH` (made anew, 4 GiB) where that is set, else over the stand-in.
//!
//! `SERVE_ORIGIN=/some/dir SERVE_MOUNTPOINT=/other/dir cargo test -p headpond-mount --test serve -- --ignored`
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod bench;

use std::path::PathBuf;
use std::sync::Arc;

use headpond_base::CacheMode;
use headpond_engine::{Reply, Request};
use headpond_mount::{MountOptions, Pond, THREADS, mount};

#[test]
#[ignore = "serves until unmounted, for tools to be run by hand"]
fn serve_until_unmounted() {
    let path = |name| std::env::var_os(name).map(PathBuf::from).expect("SERVE_ORIGIN and SERVE_MOUNTPOINT are set");
    let handle = std::env::var_os("SERVE_FLASH").map(|flash| {
        let mode = std::env::var("SERVE_MODE").map_or(CacheMode::WriteBack, |name| name.parse().unwrap());
        bench::start_engine(&PathBuf::from(flash), &path("SERVE_ORIGIN"), 4 << 30, mode)
    });
    let pond: Arc<dyn Pond> = match &handle {
        Some(handle) => Arc::new(handle.clone()),
        None => bench::straight::Straight::start(),
    };
    let options = MountOptions {
        origin: path("SERVE_ORIGIN"),
        mountpoint: path("SERVE_MOUNTPOINT"),
        allow_other: bench::is_root(),
        threads: THREADS,
        read_only: false,
    };
    let mut mounted = mount(&options, pond, &[]).unwrap();
    mounted.join().unwrap();
    if let Some(handle) = handle {
        for request in [Request::flush_all(1), Request::Stop] {
            assert!(matches!(handle.call(request), Reply::Done));
        }
    }
}
