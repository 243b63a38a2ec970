//! Objects that nobody needs, and that are let go of once the log is durable up to a place of each.
//!
//! Who is told that an object is let go of may remove its file, or replace it, without a word to the log. So after a crash at any
//! later moment the log must say that the origin lacks nothing of the file; and where the origin has no birth times, that a
//! removed one is forgotten.
//!
//! Invariant: each object is in it at most once, so there are no more than there are files that the shard has open.
//!
//! What bounds the wait: the entry that is waited for is not durable, so the log is synced within `sync_interval`, also if nothing
//! else happens.

use std::collections::BTreeSet;

use headpond_base::{ObjectId, Sequence};

/// Owned by the engine.
#[derive(Default)]
pub(crate) struct Leaving(BTreeSet<(Sequence, ObjectId)>);

impl Leaving {
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
