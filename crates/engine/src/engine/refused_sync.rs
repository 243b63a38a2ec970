//! The origin refuses to sync a file: it may have let go of what the file got since its last good sync, and says so
//! once.
//!
//! Invariants:
//! - What the pool has as clean of an object goes in the same step in which the engine hears that the origin may have
//!   lost changes that went there directly, from memory and from the log. Its dirty data stays.
//! - A layer above the engine that keeps copies learns of the error in the same step, and before any program does.
//! - A job that was writing meanwhile fails, too: what it wrote stays dirty and is written again.
//! - An object is known until its loss was told: by a flush that covers it or by the end of the pool's use, whichever
//!   comes first; or until the file was closed, opened again and synced well, or is gone.

use headpond_base::{Block, Errno, ObjectId};

use crate::effect::Effect;
use crate::engine::Engine;
use crate::locks::Span;
use crate::store::object::Object;

impl Engine {
    /// The origin failed to sync the file. That concerns others, too, than the request that asked for it.
    pub(crate) fn origin_refused_sync(&mut self, object: ObjectId, errno: Errno) {
        let destages = self.destage.fail_jobs(object, errno);
        let known = self.store.known(object);
        if destages {
            // What destage has written is still dirty here, but not the size that the file had by it.
            known.loses_origin_size();
        }
        if !known.past.sync_was_refused(errno) {
            return;
        }
        // It may have lost the end, too. What the object's size is here counts, as after a write that failed.
        known.loses_origin_size();
        self.destage.has_lost(object, errno);
        self.drop_all_clean(object);
        // Not before the pool has dropped it: what is read again from here on is what the origin has.
        self.emit(Effect::OriginLost { object });
        self.size_counts_here(object);
        self.store.want_sync();
        self.destage.hurry(object);
    }

    /// Drops what the pool has of an object but for its dirty data, so that no crash brings it back.
    fn drop_all_clean(&mut self, object: ObjectId) {
        self.store.clear_clean(object);
        self.poison(object, Span::from_byte(0));
        if !self.store.takes_writes() {
            return;
        }
        let Some(known) = self.store.get(object).filter(|known| known.persisted) else { return };
        for span in not_dirty(known) {
            self.store.say_dropped(object, span);
        }
    }
}

/// What lies between an object's dirty blocks, data or zeros, with or without slots: a replay could find there what was
/// evicted.
fn not_dirty(known: &Object) -> Vec<Span> {
    let mut dirty = known.zeros().clone();
    for (block, _) in known.map().dirty_from(Block(0)) {
        dirty.add(block, block.next());
    }
    let mut spans = Vec::new();
    let mut from = Block(0);
    for (first, end) in dirty.within(Block(0), Block(u64::MAX)) {
        if from < first {
            spans.push(Span { first: from, end: first });
        }
        from = end;
    }
    spans.push(Span { first: from, end: Block(u64::MAX) });
    spans
}
