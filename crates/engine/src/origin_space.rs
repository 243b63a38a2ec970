//! The origin's space, as far as several objects have to do with it: who asks for some, and what is promised of it.
//! What one object has is in `space.rs`.
//!
//! Invariant: an object with changes that wait for space, and whose question can be asked now, is among those that are
//! wanted.

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{Nanos, ObjectId};

use crate::counted_space::CountedSpace;
use crate::store::Store;

/// Owned by the engine.
#[derive(Default)]
pub(crate) struct OriginSpace {
    /// What is promised where the origin keeps none.
    pub(crate) counted: CountedSpace,
    /// The object that was written last: of its file system the origin's space is looked at.
    looks_for: Option<ObjectId>,
    /// Objects with changes that wait for space.
    wanted: BTreeSet<ObjectId>,
    /// Objects whose file is said to be changing for reservations that are over, since when.
    said: BTreeMap<ObjectId, Nanos>,
}

impl OriginSpace {
    /// Something of this object goes to the origin: the next should not have to wait for a look.
    pub(crate) const fn want_look(&mut self, object: ObjectId) {
        self.looks_for = Some(object);
        self.counted.want();
    }

    /// The object of whose file system the origin's space is looked at, if no request waits for that.
    pub(crate) const fn looks_for(&self) -> Option<ObjectId> {
        self.looks_for
    }

    /// Changes of this object may have a question now, or none any more.
    pub(crate) fn wants(&mut self, object: ObjectId) {
        self.wanted.insert(object);
    }

    /// Those that may have one.
    pub(crate) fn wanted(&self) -> Vec<ObjectId> {
        self.wanted.iter().copied().collect()
    }

    /// Nothing waits for space of this object.
    pub(crate) fn wants_none(&mut self, object: ObjectId) {
        self.wanted.remove(&object);
    }

    /// A reservation is over, and the log still says that the file is changing.
    pub(crate) fn note_said(&mut self, object: ObjectId, now: Nanos) {
        self.said.insert(object, now);
    }

    /// Another reservation begins.
    pub(crate) fn goes_on(&mut self, object: ObjectId) {
        self.said.remove(&object);
    }

    /// The next object for which nobody has reserved since then.
    pub(crate) fn next_unsaid(&mut self, over: impl Fn(Nanos) -> bool) -> Option<ObjectId> {
        let object = *self.said.iter().find(|(_, since)| over(**since))?.0;
        self.said.remove(&object);
        Some(object)
    }

    /// Destage has given space of an object back, or failed to.
    pub(crate) fn given(&mut self, store: &mut Store, object: ObjectId) {
        store.known(object).space.given();
        self.wants(object);
    }

    /// The origin has synced what went past the pool of an object.
    pub(crate) fn note_synced(&mut self, store: &mut Store, object: ObjectId) {
        self.counted.passed(store.known(object).past.note_synced());
    }
}
