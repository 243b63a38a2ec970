//! The origin, what was promised, and the checks.
//!
//! Keeps true: a promise is a record whose sync was answered. It is given up only if no host has it any more.

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{BLOCK, Buf, BufMut, Errno};
use headpond_claim::ownership::Use;
use headpond_engine::OpenFile;
use headpond_format::FileIdentity;

use crate::hosts::records::{Records, SLOTS};
use crate::origin::{FileId, OriginChange, SimOrigin, SpaceKind};

/// The marker beside the origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marker {
    pub(crate) host: usize,
    pub(crate) owner: u64,
    pub(crate) members: u64,
    /// The last use of the pool.
    pub(crate) last: Use,
}

/// A change that was handed to a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Handed {
    pub(crate) host: usize,
    pub(crate) boot: u64,
    pub(crate) owner: u64,
    pub(crate) change: OriginChange,
    /// At the look at the gate before it, another had the lease already.
    pub(crate) is_late: bool,
}

/// The slow place: one file, and the marker beside it.
pub(crate) struct Origin {
    pub(crate) files: SimOrigin,
    pub(crate) file: FileId,
    pub(crate) marker: Option<Marker>,
    /// Nodes that were fenced.
    pub(crate) fenced: BTreeSet<String>,
    pub(crate) handed: BTreeMap<u64, Handed>,
    /// How changes went.
    pub(crate) landed: BTreeMap<u64, Result<(), Errno>>,
    pub(crate) next: u64,
}

/// The name of the file.
pub(crate) const NAME: &[u8] = b"records";

impl Origin {
    pub(crate) fn new() -> Self {
        let mut files = SimOrigin::new(1 << 20, SpaceKind::Keeps, true);
        let file = files.create(NAME);
        files.set_open(file, true);
        let all = OriginChange::Write { offset: 0, data: vec![BufMut::zeroed(BLOCK * SLOTS as usize).freeze()] };
        files.change(file, all).expect("there is room for one file");
        let (marker, fenced, handed, landed, next) = Default::default();
        Self { files, file, marker, fenced, handed, landed, next }
    }

    /// The file, as a mount finds it.
    pub(crate) fn found(&self) -> OpenFile {
        let stamp = self.files.stamp(self.file).expect("nobody removes it");
        let FileIdentity { inode, birth } = self.files.identity(self.file).expect("nobody removes it");
        let allocated = self.files.allocated_front(self.file);
        OpenFile { inode, birth, path: NAME.to_vec(), stamp, created: false, allocated }
    }

    /// Reads the file.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Buf {
        self.files.read(self.file, offset, len).expect("nobody removes it")
    }
}

/// A record whose sync was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Promise {
    pub(crate) id: u64,
    /// The use of the pool in which it was answered, and the batch up to which that use's log was durable then.
    pub(crate) epoch: u64,
    pub(crate) batch: u64,
}

/// What was promised.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    pub(crate) made: BTreeMap<u64, Promise>,
    /// Records that no host has any more.
    pub(crate) lost: BTreeSet<u64>,
    /// The largest owner's number that serves or has served, and what it found.
    pub(crate) served: (u64, Records),
    /// Each node that has changed the origin, with its largest owner's number then.
    pub(crate) changed_by: BTreeMap<String, u64>,
    pub(crate) last_answer: u64,
}
