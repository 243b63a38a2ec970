//! What tests of a mount work on: a fresh origin with a mount over it, and beside it a plain
//! directory on the same file system in which to do the same things. The mount is over the
//! stand-in, or over a real engine with a small pool.
#![allow(dead_code, reason = "each test uses a part")]

pub mod keeper;
pub mod straight;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headpond_base::{Buf, CacheMode, MemberId, Nanos, PoolId, Result};
use headpond_device::{Backend, Fill, Flash, TrimPolicy, start_reactor};
use headpond_engine::{Config, FlashRead, Reply, Request, format_pool, recover};
use headpond_format::{Geometry, MemberName};
use headpond_mount::{Beside, MountError, MountLedger, MountOptions, Mounted, Pond, mount_lasting};
use headpond_shard::{Budget, FileOrigin, Handle, Limits, Shard};
use rustix::mount::UnmountFlags;
use straight::Straight;

/// Bytes of a pool: so small that it is full soon.
const POOL: u64 = 128 << 20;

/// What is behind a mount.
pub enum Behind {
    Straight(Arc<Straight>),
    Engine(Handle),
}

/// See the module. All of it goes away with this value.
pub struct Bench {
    pub mounted: Mounted,
    pub behind: Behind,
    pub origin: PathBuf,
    pub mountpoint: PathBuf,
    pub plain: PathBuf,
    pub directory: tempfile::TempDir,
}

struct Reading<'a>(&'a Flash);

impl FlashRead for Reading<'_> {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        self.0.read(offset, len)
    }
}

impl Bench {
    /// Over the stand-in.
    pub fn straight(change: impl FnOnce(&mut MountOptions)) -> Self {
        let pond = Straight::start();
        let directory = fresh();
        Self::start(directory, pond.clone(), Behind::Straight(pond), Beside::default(), change)
    }

    /// Over a real engine that destages soon.
    pub fn engine(mode: CacheMode) -> Self {
        Self::engine_within(mode, Budget::of(4096))
    }

    /// The same, with so many descriptors for paths that can close.
    pub fn engine_within(mode: CacheMode, budget: Budget) -> Self {
        let directory = fresh();
        let (flash, origin) = (directory.path().join("flash"), directory.path().join("origin"));
        let handle = start_engine_within(&flash, &origin, POOL, mode, budget);
        let beside = Beside { descriptors: Some(budget), ..Beside::default() };
        Self::start(directory, Arc::new(handle.clone()), Behind::Engine(handle), beside, |_| {})
    }

    /// Over a real engine in write-back mode that destages on request, and its origin.
    pub fn idle() -> (Self, Arc<FileOrigin>) {
        let directory = fresh();
        let origin = below(&directory.path().join("origin"), Budget::of(4096));
        let config = Config { flush_period: Config::OFF, ..Config::default() };
        let handle = start_engine_over(&directory.path().join("flash"), origin.clone(), POOL, config);
        (Self::start(directory, Arc::new(handle.clone()), Behind::Engine(handle), Beside::default(), |_| {}), origin)
    }

    /// Over any other pond, which is made for the origin.
    pub fn over<P: Pond>(pond: impl FnOnce(&Path) -> Arc<P>) -> (Self, Arc<P>) {
        let directory = fresh();
        let straight = Straight::start();
        let pond = pond(&directory.path().join("origin"));
        (Self::start(directory, pond.clone(), Behind::Straight(straight), Beside::default(), |_| {}), pond)
    }

    fn start(
        directory: tempfile::TempDir,
        pond: Arc<dyn Pond>,
        behind: Behind,
        beside: Beside,
        change: impl FnOnce(&mut MountOptions),
    ) -> Self {
        let place = |name: &str| directory.path().join(name);
        let (origin, mountpoint, plain) = (place("origin"), place("mount"), place("plain"));
        let mut options = MountOptions {
            origin: origin.clone(),
            mountpoint: mountpoint.clone(),
            allow_other: is_root(),
            threads: 4,
            read_only: false,
        };
        change(&mut options);
        let root = std::fs::File::open(&options.origin).unwrap();
        // As a mount that outlives its server, which must make no difference here.
        let ledger = MountLedger::create(keeper::words(), keeper::ROOM).unwrap();
        let lasting = keeper::lasting(&ledger, &Arc::default());
        let mounted = mount_lasting(&options, root.into(), pond, &[], beside, Some(lasting)).unwrap();
        Self { mounted, behind, origin, mountpoint, plain, directory }
    }

    /// Unmounts, brings everything to the origin, and ends the engine.
    pub fn finish(&mut self) {
        // What was just closed is given back a moment later.
        let begun = Instant::now();
        while let Err(error) = self.mounted.unmount() {
            assert!(matches!(error, MountError::Busy(_)) && begun.elapsed() < Duration::from_secs(60), "{error}");
        }
        if let Behind::Engine(handle) = &self.behind {
            for request in [Request::flush_all(1), Request::Stop] {
                let reply = handle.call(request);
                assert!(matches!(reply, Reply::Done), "{reply:?}");
            }
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(error) = self.mounted.unmount() {
            // A failed test may have left files open. What is below must not be deleted through the mount.
            eprintln!("{error}");
            let _ = rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH);
        }
    }
}

fn fresh() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let open_to_all = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    open_to_all(directory.path());
    for name in ["origin", "mount", "plain"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
        open_to_all(&directory.path().join(name));
    }
    directory
}

/// Formats a pool and starts an engine over it that destages soon.
pub fn start_engine(flash: &Path, origin: &Path, bytes: u64, mode: CacheMode) -> Handle {
    start_engine_within(flash, origin, bytes, mode, Budget::of(4096))
}

/// The same with so many descriptors.
pub fn start_engine_within(flash: &Path, origin: &Path, bytes: u64, mode: CacheMode, budget: Budget) -> Handle {
    let config = Config { mode, flush_period: Nanos(Nanos::SECOND.0 / 20), ..Config::default() };
    start_engine_over(flash, below(origin, budget), bytes, config)
}

fn below(origin: &Path, budget: Budget) -> Arc<FileOrigin> {
    let root = std::fs::File::open(origin).unwrap();
    Arc::new(FileOrigin::below_within(root.into(), budget).unwrap())
}

fn start_engine_over(flash: &Path, origin: Arc<FileOrigin>, bytes: u64, config: Config) -> Handle {
    let flash = Flash::create(flash, bytes, Fill::Reserved).unwrap();
    for (offset, data) in
        format_pool(PoolId([7; 16]), MemberName([7; 16]), Geometry::for_bytes(bytes).unwrap(), None, config.mode)
    {
        flash.write(offset, &data).unwrap();
    }
    flash.sync().unwrap();
    let recovered = recover(&mut Reading(&flash), bytes).unwrap();
    let engine = recovered.into_engine(config, headpond_shard::now());
    let reactor = start_reactor(vec![(MemberId(0), flash)], Backend::Auto, TrimPolicy::Off).unwrap();
    Shard::start(engine, reactor, origin, Limits::default()).unwrap()
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
