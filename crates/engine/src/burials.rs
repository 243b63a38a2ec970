//! Files with dirty data that are gone at the origin, while that is made durable there.
//!
//! Invariant: a file whose burial the origin refused is asked for again, at its time or with the next flush, whichever
//! is first.

use std::collections::BTreeMap;

use headpond_base::{Nanos, ObjectId};

/// Owned by the engine.
#[derive(Default)]
pub(crate) struct Burials {
    under_way: usize,
    /// When the origin is asked again.
    refused: BTreeMap<ObjectId, Nanos>,
}

impl Burials {
    /// The origin is asked.
    pub(crate) fn begin(&mut self, object: ObjectId) {
        self.under_way += 1;
        self.refused.remove(&object);
    }

    /// The origin answered. If it refused: when it is asked again.
    pub(crate) fn end(&mut self, object: ObjectId, refused: Option<Nanos>) {
        self.under_way -= 1;
        if let Some(again) = refused {
            self.refused.insert(object, again);
        }
    }

    /// Whether the origin is being asked.
    pub(crate) const fn are_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// Those that it refused.
    pub(crate) fn refused(&self) -> impl Iterator<Item = ObjectId> {
        self.refused.keys().copied()
    }

    /// Takes out one whose time has come.
    pub(crate) fn next_due(&mut self, now: Nanos) -> Option<ObjectId> {
        let (object, _) = self.refused.iter().find(|(_, at)| now >= **at)?;
        let object = *object;
        self.refused.remove(&object);
        Some(object)
    }
}
