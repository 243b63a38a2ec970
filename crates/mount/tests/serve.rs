//! Serves a mount over the stand-in for as long as it is mounted, so that any tool can be run on
//! it by hand:
//!
//! `SERVE_ORIGIN=/some/dir SERVE_MOUNTPOINT=/other/dir cargo test -p headpond-mount --test serve -- --ignored`

mod bench;

use headpond_mount::{MountOptions, THREADS, mount};

#[test]
#[ignore = "serves until unmounted, for tools to be run by hand"]
fn serve_until_unmounted() {
    let path = |name| std::env::var_os(name).map(Into::into).expect("SERVE_ORIGIN and SERVE_MOUNTPOINT are set");
    let options = MountOptions {
        origin: path("SERVE_ORIGIN"),
        mountpoint: path("SERVE_MOUNTPOINT"),
        allow_other: bench::is_root(),
        threads: THREADS,
        read_only: false,
    };
    let mut mounted = mount(&options, bench::straight::Straight::start(), &[]).unwrap();
    mounted.join().unwrap();
}
