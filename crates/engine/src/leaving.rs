//! Objects without users. The engine releases each once the log is durable up to a place of its own.
//!
//! After the release, the front door may remove or replace the file without an entry in the log. So the log must
//! durably say before that the origin lacks nothing of the file. If the origin has no birth times, it must also say
//! that a removed file is forgotten.
//!
//! Invariant: each object is in it at most once, so there are no more than there are files that the shard has open.
//!
//! The wait is bounded: while the awaited entry is not durable, the log syncs within `sync_interval`, even if nothing
//! else happens.

use std::collections::BTreeSet;

use headpond_base::{ObjectId, Sequence};

/// Owned by the engine.
#[derive(Default)]
pub(crate) struct LeavingObjects(BTreeSet<(Sequence, ObjectId)>);

impl LeavingObjects {
    /// Once the log is durable up to there.
    pub(crate) fn waits(&mut self, at: Sequence, object: ObjectId) {
        self.0.insert((at, object));
    }

    /// It stays, or waits for something else.
    pub(crate) fn stays(&mut self, at: Sequence, object: ObjectId) {
        self.0.remove(&(at, object));
    }

    /// Takes out the next one for which the log is durable up to here.
    pub(crate) fn next(&mut self, durable: Sequence) -> Option<ObjectId> {
        self.0.first().filter(|(at, _)| *at <= durable)?;
        self.0.pop_first().map(|(_, object)| object)
    }
}
