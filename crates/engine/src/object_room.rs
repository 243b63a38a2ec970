//! How many objects the pool remembers: as many as a checkpoint is sure to have room for.
//!
//! When the log names as many as it may (`store/room.rs`), one that lacks nothing at the origin is dropped for a
//! new one; a write waits until there is one, and a read is served without being let in.
//!
//! Invariants:
//! - Nothing is lost with an object that is dropped: the origin has all of it, and nothing uses it.
//! - Each dropped object is given out once, to be retired.

use headpond_base::ObjectId;

use crate::stats::Stats;
use crate::store::Store;
use crate::store::object::Object;

/// Which objects were dropped for others.
#[derive(Default)]
pub(crate) struct ObjectRoom {
    /// The one that was dropped last: the next search begins behind it.
    last: ObjectId,
    /// Those that were dropped, and not retired yet.
    unnamed: Vec<ObjectId>,
}

impl ObjectRoom {
    /// Makes sure that the log may name this object; `false` if it cannot now.
    pub(crate) fn make_for(&mut self, id: ObjectId, store: &mut Store, stats: &mut Stats) -> bool {
        if store.get(id).is_some_and(|known| known.persisted) || !store.is_short_of_objects() {
            return true;
        }
        // Round and round, so that each search begins where the last one found something.
        let from = self.last.next();
        let after = store.objects().range(from..).find(|(_, known)| can_go(known));
        let found = after.or_else(|| store.objects().iter().find(|(_, known)| can_go(known)));
        let Some(victim) = found.map(|(victim, _)| *victim) else { return false };
        self.last = victim;
        stats.evicted_blocks += store.known(victim).map().blocks();
        store.unname(victim);
        self.unnamed.push(victim);
        true
    }

    /// One that was dropped, to be retired.
    pub(crate) fn take_unnamed(&mut self) -> Option<ObjectId> {
        self.unnamed.pop()
    }
}

/// Whether the log may name this object now, or could once another is dropped for it.
pub(crate) fn may_name(store: &Store, id: ObjectId) -> bool {
    store.get(id).is_some_and(|known| known.persisted)
        || !store.is_short_of_objects()
        || store.objects().values().any(can_go)
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
