//! A host: its clock, its power, its processes, its flash and its store of copies.
//!
//! Keeps true: with the power goes what was not synced. A flash and a copy have what the kernel knows and what is on
//! disk, apart.

use std::collections::BTreeMap;

use headpond_base::{BufMut, Nanos};
use headpond_claim::Node;
use headpond_format::Superblock;
use headpond_peer::MemberNamed;
use headpond_timed::Rng;

use crate::flash::{SimFlash, WriteFate};
use crate::hosts::pool::superblock_of;

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

/// Where a pool has its copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerRow {
    pub(crate) host: usize,
    pub(crate) name: MemberNamed,
}

/// A device: a host's own flash, or the file of a copy.
#[derive(Clone)]
pub(crate) struct Device {
    pub(crate) flash: SimFlash,
    /// Names requests that are done at once.
    next: u64,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Device")
    }
}

impl Device {
    pub(crate) const fn new(flash: SimFlash) -> Self {
        Self { flash, next: 1 << 61 }
    }

    /// All that was written is durable.
    pub(crate) fn sync(&mut self) {
        self.next += 1;
        self.flash.start_sync(self.next);
        self.flash.finish_sync(self.next);
    }

    /// Writes at once, as to a page cache.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], rng: &mut Rng) -> Result<(), String> {
        self.next += 1;
        self.flash.start_write(self.next, offset, BufMut::copy_of(data).freeze())?;
        self.flash.finish_write(self.next, WriteFate::Done, rng);
        Ok(())
    }

    /// Its superblock, if it has one.
    pub(crate) fn superblock(&self) -> Option<Superblock> {
        superblock_of(&self.flash)
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
