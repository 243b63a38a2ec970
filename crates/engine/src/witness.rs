//! What the comparison of an object with the origin comes to at a start. That of a volume; of a file, with its times:
//! `recovery.rs`.
//!
//! The witness of a volume changes with what others do, and with nothing that headpond does. So it is compared whatever
//! was going on when the pool was last used, and decides by itself: equal, and nobody else wrote there.

use headpond_base::{Block, ObjectId};
use headpond_format::Witness;

use crate::store::Store;
use crate::store::object::Object;

/// What became of an object when it was compared with the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it was left.
    Kept,
    /// Its file was changed meanwhile: what the pool had of it, all of it clean, is dropped.
    Dropped,
    /// The same of a file that differs by its status change time alone, after a use that did not end in order. Who
    /// changes mode, owner, attributes or names through headpond moves that, and the log's word of it may not have been
    /// durable yet; who changes the file behind its back, and puts the time back, moves it too.
    Doubted,
    /// Its file is gone, as it should be or without loss.
    Forgotten,
    /// Dirty data, and a file that is not as it was left: the operator must choose.
    Conflict(Conflict),
}

/// Dirty data in the pool and another state at the origin than it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The file's path below the origin's root, as far as known; empty of a volume.
    pub path: Vec<u8>,
    /// Blocks that the origin has not got.
    pub dirty_blocks: u64,
    /// The object as headpond left it.
    pub left: Witness,
    /// The object now; `None` if it is missing.
    pub found: Option<Witness>,
}

/// The conflict of an object with the origin as it was found.
pub(crate) fn conflict(object: &Object, found: Option<Witness>) -> Conflict {
    Conflict { path: object.state.path.clone(), dirty_blocks: object.dirty_blocks(), left: object.state.witness, found }
}

/// Compares a volume with the origin as it is now; `None` if the door has no volume of this name.
///
/// `origin_stood`: the origin has lost nothing since the last use, whether synced or not.
pub(crate) fn reconcile_volume(store: &mut Store, id: ObjectId, found: Option<Witness>, origin_stood: bool) -> Verdict {
    let Some(volume) = store.get_mut(id) else { return Verdict::Forgotten };
    let dirty = volume.dirty_blocks() > 0;
    match found {
        None if dirty => Verdict::Conflict(conflict(volume, None)),
        None => {
            store.remove(id);
            Verdict::Forgotten
        }
        // What went to the origin past the log was perhaps not synced there: the pool's copies may be newer than what a
        // loss of power has left.
        Some(found) if found.shows_the_same(volume.state.witness) => {
            let copies_doubted = volume.trust.is_changed_directly() && !origin_stood;
            if copies_doubted { drop_clean(store, id) } else { Verdict::Kept }
        }
        Some(found) if dirty => Verdict::Conflict(conflict(volume, Some(found))),
        Some(found) => {
            volume.follow_origin(found);
            drop_clean(store, id)
        }
    }
}

/// The operator keeps the pool's dirty data of a volume that others have changed. What lies beyond the end of one that
/// is shorter now has no place any more.
pub(crate) fn keep_volume(store: &mut Store, id: ObjectId, found: Witness) {
    store.clear_clean(id);
    store.clear_range(id, Block(headpond_base::blocks_for(found.size())), Block(u64::MAX));
    if let Some(volume) = store.get_mut(id) {
        volume.follow_origin(found);
    }
}

fn drop_clean(store: &mut Store, id: ObjectId) -> Verdict {
    let had = store.get(id).map_or(0, |volume| volume.map().blocks() - volume.map().dirty());
    store.clear_clean(id);
    if had > 0 { Verdict::Dropped } else { Verdict::Kept }
}
