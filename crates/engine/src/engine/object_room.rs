//! How many objects the pool remembers: as many as a checkpoint is sure to have room for.
//!
//! When the log names as many as it may (`store/room.rs`), one that lacks nothing at the origin is dropped for a
//! new one; a write waits until there is one, and a read is served without being let in.

use headpond_base::ObjectId;

use crate::engine::Engine;
use crate::store::object::Object;

impl Engine {
    /// Whether the log may name this object now, or could once another is dropped for it.
    pub(crate) fn may_name(&self, id: ObjectId) -> bool {
        self.store.get(id).is_some_and(|known| known.persisted)
            || !self.store.is_short_of_objects()
            || self.store.objects().values().any(can_go)
    }

    /// Makes sure that the log may name this object; `false` if it cannot now.
    pub(crate) fn make_room_for(&mut self, id: ObjectId) -> bool {
        if self.store.get(id).is_some_and(|known| known.persisted) || !self.store.is_short_of_objects() {
            return true;
        }
        // Round and round, so that each search begins where the last one found something.
        let from = self.forget_from.next();
        let after = self.store.objects().range(from..).find(|(_, known)| can_go(known));
        let found = after.or_else(|| self.store.objects().iter().find(|(_, known)| can_go(known)));
        let Some(victim) = found.map(|(victim, _)| *victim) else { return false };
        self.forget_from = victim;
        self.stats.evicted_blocks += self.store.known(victim).map().blocks();
        self.store.unname(victim);
        self.retire(victim);
        true
    }
}

/// Whether the log can do without an object: nothing of it is only here, and nobody uses it.
fn can_go(known: &Object) -> bool {
    known.persisted
        && known.active == 0
        && !known.past.is_under_way()
        && !known.job.is_running()
        && !known.name.is_being_buried()
        && !known.past.needs_sync()
        && !known.is_dirty()
        && known.locks.idle()
}
