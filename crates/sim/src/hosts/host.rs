//! A host: its clock, its power, its processes, its flash and its store of copies.
//!
//! Keeps true: with the power goes what was not synced. A flash and a copy have what the kernel knows and what is on
//! disk, apart.

use std::collections::BTreeMap;

use headpond_base::{Nanos, PoolId};
use headpond_claim::Node;
use headpond_claim::ownership::{Allowed, Awaited, Drawn, Held, Ownership, Use, Whose, judge};
use headpond_peer::MemberNamed;

/// Which program a process runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Program {
    /// `headpond mount` of the host's own flash.
    Mount,
    /// `headpond peer guard`, and the mount that it becomes.
    Guard,
    /// `headpond peer serve`.
    Server,
}

impl Program {
    pub(crate) const ALL: [Self; 3] = [Self::Mount, Self::Guard, Self::Server];
}

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Who {
    pub(crate) host: usize,
    pub(crate) program: Program,
    pub(crate) life: u64,
}

/// What an application wrote: its name, and that of the one before it. So a log knows what belongs to it, as the real
/// one does by its chain of batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Value {
    pub(crate) id: u64,
    pub(crate) before: u64,
}

/// Where a pool has its copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerRow {
    pub(crate) host: usize,
    pub(crate) name: MemberNamed,
}

/// Where a pool has its copies: two at most.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Peers([Option<PeerRow>; 2]);

impl Peers {
    pub(crate) fn of(rows: impl IntoIterator<Item = PeerRow>) -> Self {
        let mut rows = rows.into_iter();
        let peers = Self([rows.next(), rows.next()]);
        assert!(rows.next().is_none(), "a pool has two copies at most");
        peers
    }

    pub(crate) fn rows(self) -> impl Iterator<Item = PeerRow> {
        self.0.into_iter().flatten()
    }
}

/// A superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub(crate) owner: u64,
    pub(crate) epoch: u64,
    /// The claim of the last use.
    pub(crate) claim: Drawn,
    /// Generation of the list of members.
    pub(crate) members: u64,
    pub(crate) peers: Peers,
}

/// The pool's name, and the key of its origin.
pub(crate) const POOL: PoolId = PoolId([7; 16]);
const KEY: Drawn = [8; 16];

impl Superblock {
    /// Whether a device with it is as this use of the pool left it: `whose` of `control/src/pool/recovery.rs`.
    pub(crate) fn is_of(&self, last: Use) -> bool {
        let awaited = Awaited { pool: Some(POOL), key: Some(KEY), claim: Some(last), durable: None };
        let Self { epoch, claim, .. } = *self;
        let origin = Some(Whose { key: KEY, same_path: true });
        let held = Held { pool: POOL, origin, epoch, claim, counter: 1, host_batch: 1, dirty: true };
        let allowed = Allowed { format: false, discard_dirty: false };
        judge(Some(&awaited), Some(&held), allowed) == Ok(Ownership::Same(KEY))
    }
}

/// What a device has of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Image {
    /// None while it is made.
    pub(crate) superblock: Option<Superblock>,
    pub(crate) log: BTreeMap<u64, Value>,
    /// Whether it has each batch from some point on: `host_copies` of its superblock.
    pub(crate) has_tail: bool,
    /// Whether it alone has all that is dirty. Its checkpoint says where the rest is.
    pub(crate) is_whole: bool,
}

impl Image {
    pub(crate) const fn empty() -> Self {
        Self { superblock: None, log: BTreeMap::new(), has_tail: false, is_whole: false }
    }
}

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) now: Image,
    pub(crate) disk: Image,
}

impl Device {
    pub(crate) fn new(image: Image) -> Self {
        Self { disk: image.clone(), now: image }
    }

    pub(crate) fn sync(&mut self) {
        self.disk = self.now.clone();
    }
}

/// What a store keeps of the pool: `Record` of `copies/src/store.rs`, and the file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) owner: u64,
    pub(crate) epoch: u64,
    pub(crate) member: MemberNamed,
    pub(crate) boot: u64,
    pub(crate) settled: bool,
    pub(crate) taken_over: bool,
    /// The owner has let it go: all but its number is gone.
    pub(crate) removed: bool,
    pub(crate) device: Device,
    /// The process that has the lock of the file.
    pub(crate) lock: Option<Who>,
    /// The process that holds the copy, to judge it: no owner is served meanwhile.
    pub(crate) held: Option<Who>,
}

impl Stored {
    /// Whether its bytes count, as `Store::counts` says.
    pub(crate) const fn counts(&self, boot: u64) -> bool {
        !self.removed && (self.settled || self.boot == boot)
    }
}

/// What a server has in memory: the newest session of the copy, and its owner's number.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sessions {
    pub(crate) newest: u64,
    pub(crate) owner: u64,
}

/// A process of a host.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) number: u64,
    pub(crate) is_alive: bool,
    pub(crate) is_stopped: bool,
    /// What would have gone on meanwhile.
    pub(crate) deferred: Vec<u64>,
}

/// A host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) index: usize,
    /// Thousandths of true time.
    pub(crate) rate: u64,
    pub(crate) boot: u64,
    pub(crate) booted_at: u64,
    pub(crate) is_up: bool,
    pub(crate) sleeps: bool,
    pub(crate) is_gone: bool,
    pub(crate) flash: Option<Device>,
    pub(crate) store: Option<Stored>,
    /// Its operator wants its store empty.
    pub(crate) drains: bool,
    pub(crate) sessions: Sessions,
    pub(crate) lives: BTreeMap<Program, Life>,
}

impl Host {
    pub(crate) fn new(index: usize, rate: u64) -> Self {
        let lives = Program::ALL.map(|program| (program, Life::default())).into();
        let (flash, store, sessions) = (None, None, Sessions::default());
        let (is_up, sleeps, is_gone, drains) = (false, false, false, false);
        Self { index, rate, boot: 0, booted_at: 0, is_up, sleeps, is_gone, flash, store, drains, sessions, lives }
    }

    /// It counts from the boot, also while the host sleeps.
    pub(crate) const fn clock(&self, now: u64) -> Nanos {
        Nanos(1_000_000_000 + (now - self.booted_at) / 1000 * self.rate)
    }

    pub(crate) fn node(&self) -> Node {
        Node { name: format!("h{}", self.index), boot: self.boot.to_string() }
    }

    pub(crate) fn life(&mut self, program: Program) -> &mut Life {
        self.lives.entry(program).or_default()
    }

    pub(crate) fn is_alive(&self, who: Who) -> bool {
        self.lives.get(&who.program).is_some_and(|life| life.is_alive && life.number == who.life)
    }

    pub(crate) fn is_frozen(&self, program: Program) -> bool {
        self.sleeps || self.lives.get(&program).is_some_and(|life| life.is_stopped)
    }
}
