//! The files beside the origin that say which pool it waits for, as the control layer keeps them: the claim of the last
//! use, and the generation of the pool's list of members.
//!
//! Keeps true: a pool that lacks something which another part of it was used for since is refused.

use headpond_claim::ownership::{Allowed, Awaited, Drawn, Held, Ownership, Use, Whose, judge};

use crate::scenario::POOL;
use crate::under_test::Restored;

/// The key of the origin.
pub(crate) const KEY: Drawn = [9; 16];

/// What is beside the origin.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marker {
    /// The largest generation of a list of members that the engine has told.
    pub(crate) generation: u64,
    last: Option<Use>,
    uses: u64,
}

impl Marker {
    /// Whether this pool is the one that its last use left.
    pub(crate) fn judge(&self, found: &dyn Restored) -> Result<(), String> {
        let (has, awaited) = (found.list_generation(), self.generation);
        if has < awaited {
            return Err(format!("its list of members has generation {has}, and the origin waits for {awaited}"));
        }
        let held = Held {
            pool: POOL,
            origin: Some(Whose { key: KEY, same_path: true }),
            epoch: found.last_epoch(),
            claim: found.last_claim(),
            counter: found.counter(),
            host_batch: found.last_host_batch(),
            dirty: true,
        };
        let Some(last) = self.last else { return Ok(()) };
        let awaited = Awaited { pool: Some(POOL), key: Some(KEY), claim: Some(last), durable: None };
        match judge(Some(&awaited), Some(&held), Allowed { format: false, discard_dirty: false }) {
            Ok(Ownership::Same(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// A use begins.
    pub(crate) fn begin(&mut self, found: &mut dyn Restored) {
        self.uses += 1;
        let mut id = [3; 16];
        id[..8].copy_from_slice(&self.uses.to_le_bytes());
        let before = found.last_claim();
        let earlier = Use::earlier_of_next(self.last.as_ref(), None, before);
        let (epoch, before) = (found.epoch(), Some(before));
        self.last = Some(Use { epoch, id: Some(id), before, earlier, begun: false, stopped_at: None });
        found.claim(id);
    }

    /// The pool durably has the claim of this use.
    pub(crate) fn begun(&mut self) {
        if let Some(last) = &mut self.last {
            last.begun = true;
        }
    }

    /// Whether it has.
    pub(crate) fn has_begun(&self) -> bool {
        self.last.is_some_and(|last| last.begun)
    }

    /// The engine tells of a new list.
    pub(crate) fn told(&mut self, generation: u64) {
        self.generation = self.generation.max(generation);
    }
}
