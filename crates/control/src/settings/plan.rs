//! What the operator asked for.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use headpond_base::{CacheMode, Redundancy};
use headpond_device::{Backend, FaultPlan, Fill};
use headpond_shard::{FileOrigin, Origin};

use crate::leases::LeasePlan;
use crate::peers::PeerPlan;
use crate::refusal::{Decisions, Refusal};
use crate::reserve::Reserve;
use crate::wording::Size;

/// One pool with its origin, from the command line.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// The slow directory that owns the data.
    pub origin: PathBuf,
    /// The files or devices of the pool.
    pub flashes: Vec<PathBuf>,
    /// The hosts that may keep a copy of what is dirty, in the order in which they are tried.
    pub peers: Vec<PeerPlan>,
    /// The registry that says who owns the pool.
    pub lease: Option<LeasePlan>,
    /// The owner's number that this host has from now on: it takes the pool over.
    pub owner: Option<u64>,
    /// The size of each file that is made.
    pub size: Option<Size>,
    /// How much of each device stays unwritten. Without it: nothing of a new pool, and else as the pool has it.
    pub reserve: Option<Reserve>,
    /// The cache mode. Without it: that of the file, or the pool's own.
    pub mode: Option<CacheMode>,
    /// How many devices get each dirty block. Without it: as the pool has it.
    pub redundancy: Option<Redundancy>,
    /// How many of the peers have a copy at a time, 1 or 2. Without it: as the pool has it.
    pub copies: Option<u8>,
    /// A file of settings. They replace those that the pool keeps.
    pub config: Option<PathBuf>,
    /// The backend of the flash.
    pub backend: Backend,
    /// How to fill a new flash file.
    pub fill: Fill,
    /// A layer in front of the origin's files.
    pub origin_layer: Option<OriginLayer>,
    /// For tests: faults of the flash.
    pub fault: Option<FaultPlan>,
    /// Overwrite what the flash holds.
    pub format: bool,
    /// Drop dirty data that prevents the mount.
    pub discard_dirty: bool,
    /// The operator's decisions on conflicts.
    pub decisions: Decisions,
}

/// One mount, from the command line.
#[derive(Clone, Debug)]
pub struct MountPlan {
    /// The pool to which the mount is a door.
    pub pool: PoolPlan,
    /// An empty directory: the mount point.
    pub mountpoint: PathBuf,
    /// Let other users in.
    pub allow_other: bool,
    /// The address for the page and the metrics over HTTP.
    pub http: Option<SocketAddr>,
    /// A file with the token that a reader must show.
    pub http_token: Option<PathBuf>,
}

/// A layer in front of the origin's files that only the command line knows, such as a modelled disk. It is made once,
/// at the start.
#[derive(Clone)]
pub struct OriginLayer(Make);

type Make = Arc<dyn Fn(FileOrigin) -> Arc<dyn Origin> + Send + Sync>;

impl OriginLayer {
    /// The layer that `make` puts in front.
    pub fn new(make: impl Fn(FileOrigin) -> Arc<dyn Origin> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn put_before(&self, files: FileOrigin) -> Arc<dyn Origin> {
        (self.0)(files)
    }
}

impl fmt::Debug for OriginLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OriginLayer")
    }
}

impl MountPlan {
    /// The same plan with absolute paths, good from any directory.
    ///
    /// # Errors
    /// If the current directory is gone.
    pub fn absolute(mut self) -> Result<Self, Refusal> {
        let places = [&mut self.pool.origin, &mut self.mountpoint].into_iter().chain(&mut self.pool.flashes);
        for path in places {
            *path = std::path::absolute(&*path).map_err(|error| Refusal::from_io("find", path, error))?;
        }
        let registry = self.pool.lease.as_mut().and_then(|lease| lease.certificates.as_mut());
        let certificates = self.pool.peers.iter_mut().filter_map(|peer| peer.certificates.as_mut());
        let others = [self.pool.config.as_mut(), self.http_token.as_mut(), registry];
        for path in others.into_iter().flatten().chain(certificates) {
            *path = std::path::absolute(&*path).map_err(|error| Refusal::from_io("find", path, error))?;
        }
        Ok(self)
    }
}
