//! What the origin lost, and nobody has told yet.
//!
//! Invariant: what was lost of an object stays here until a flush takes it to tell it, or nobody is concerned any more.

use std::collections::BTreeMap;

use headpond_base::{Errno, ObjectId};

use crate::request::FlushScope;

/// What the origin lost, and no flush has told.
#[derive(Default)]
pub(crate) struct Losses(BTreeMap<ObjectId, Errno>);

impl Losses {
    pub(crate) fn add(&mut self, object: ObjectId, errno: Errno) {
        self.0.entry(object).or_insert(errno);
    }

    /// Whether some of an object is lost.
    pub(crate) fn has(&self, object: ObjectId) -> bool {
        !self.0.is_empty() && self.0.contains_key(&object)
    }

    /// Those that a flush tells.
    pub(crate) fn take(&mut self, scope: &FlushScope) -> Self {
        let (told, untold) = std::mem::take(&mut self.0).into_iter().partition(|(object, _)| scope.holds(*object));
        self.0 = untold;
        Self(told)
    }

    /// A flush ended before it told.
    pub(crate) fn take_back(&mut self, untold: Self) {
        self.0.extend(untold.0);
    }

    /// Any of them.
    pub(crate) fn first(&self) -> Option<Errno> {
        self.0.values().next().copied()
    }

    /// It was told, or concerns nobody any more.
    pub(crate) fn forget(&mut self, object: ObjectId) {
        self.0.remove(&object);
    }
}
