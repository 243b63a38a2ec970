//! The parts between the engine and the origin's files in histories of names: the descriptors that the engine has,
//! the changes of names that it asks for, and what else is synced with a file.
//!
//! Keeps true, as the shard's origin does:
//! - A file's first sync makes its directory durable, and every sync the directories that were noted for it.
//! - The engine hears of every write that a sync could not make, even if another sync found it.
//! - If an object's file lost its last name and was closed for that, the object holds no number.

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::ObjectId;
use headpond_engine::{Effect, Outcome, RequestId, Space, Ticket};
use headpond_format::Stamp;
use headpond_timed::Rng;

use crate::origin::{FileId, SimOrigin};
use crate::tree::{Tree, TreeEntry};

/// What is attached to an object.
#[derive(Clone, Default, Debug)]
struct Attached {
    /// The directory with its name was noted.
    anchored: bool,
    /// Directories to sync with it.
    noted: BTreeSet<FileId>,
    /// Another object's sync has failed, and the engine has not heard of it.
    refused: bool,
    /// It holds a descriptor.
    open: bool,
    /// How it was opened.
    entry: Option<TreeEntry>,
}

/// Tells an answer from an object that the engine has let go of. Both come in one order.
const LET_GO: u64 = 1 << 63;

/// An object that the engine lets go of, as an answer, so that it has its place among the answers.
pub(crate) const fn let_go(object: ObjectId) -> RequestId {
    RequestId(LET_GO | object.0)
}

/// The object that the engine lets go of, if this answer says so.
pub(crate) fn is_let_go(answered: RequestId) -> Option<ObjectId> {
    (answered.0 & LET_GO != 0).then_some(ObjectId(answered.0 & !LET_GO))
}

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct Above {
    pub(crate) tree: Tree,
    attached: BTreeMap<ObjectId, Attached>,
    syncs: BTreeMap<Ticket, u64>,
    asked: BTreeMap<RequestId, Ticket>,
}

impl Above {
    pub(crate) fn new(tree: Tree) -> Self {
        Self { tree, attached: BTreeMap::new(), syncs: BTreeMap::new(), asked: BTreeMap::new() }
    }

    /// The engine asks for the change of names of a request.
    pub(crate) fn asks(&mut self, ticket: Ticket, request: RequestId) {
        self.asked.insert(request, ticket);
    }

    /// The ticket of that change, if the engine has asked for it.
    pub(crate) fn asked(&mut self, request: RequestId) -> Option<Ticket> {
        self.asked.remove(&request)
    }

    /// Gives an object its file.
    pub(crate) fn attach(&mut self, object: ObjectId, file: FileId, entry: Option<TreeEntry>, origin: &mut SimOrigin) {
        let attached = self.attached.entry(object).or_default();
        if !attached.open {
            (attached.anchored, attached.entry) = (false, entry);
        }
        if !std::mem::replace(&mut attached.open, true) {
            self.tree.count_open(file, true, origin);
        }
    }

    /// The engine lets go of an object.
    pub(crate) fn released(&mut self, object: ObjectId, file: FileId, origin: &mut SimOrigin) {
        if self.attached.remove(&object).is_some_and(|attached| attached.open) {
            self.tree.count_open(file, false, origin);
        }
    }

    /// The object's file has lost its last name, and no reader is left: its descriptor is closed.
    pub(crate) fn gone(&mut self, object: ObjectId, file: FileId, origin: &mut SimOrigin) {
        let Some(attached) = self.attached.get_mut(&object) else { return };
        if std::mem::take(&mut attached.open) {
            self.tree.count_open(file, false, origin);
        }
    }

    /// The outcome of an effect on such a file. What it writes has no reader, so it counts as done.
    pub(crate) fn of_gone(&mut self, effect: &Effect) -> Option<Outcome> {
        let is_gone = |object: &ObjectId| self.attached.get(object).is_some_and(|attached| !attached.open);
        match effect {
            Effect::OriginWrite { object, .. }
            | Effect::OriginZero { object, .. }
            | Effect::OriginResize { object, .. }
                if is_gone(object) =>
            {
                Some(Outcome::Done)
            }
            Effect::OriginReserve { object, .. } if is_gone(object) => Some(Outcome::Space(Space::default())),
            Effect::OriginStamp { object, mtime, .. } if is_gone(object) => {
                Some(Outcome::Stamp(Stamp { size: 0, mtime: *mtime, ctime: *mtime }))
            }
            _ => None,
        }
    }

    /// Names of the object's file changed in this directory.
    pub(crate) fn note(&mut self, object: ObjectId, directory: FileId) {
        if let Some(attached) = self.attached.get_mut(&object) {
            attached.noted.insert(directory);
        }
    }

    pub(crate) fn sync_begins(&mut self, ticket: Ticket) {
        self.syncs.insert(ticket, self.tree.start_sync());
    }

    pub(crate) fn sync_fails(&mut self, ticket: Ticket) {
        self.syncs.remove(&ticket);
    }

    /// Whether another sync has already reported what this object's sync would report. True once.
    pub(crate) fn was_refused(&mut self, object: ObjectId) -> bool {
        self.attached.get_mut(&object).is_some_and(|attached| std::mem::take(&mut attached.refused))
    }

    /// A sync of its file failed and was reported elsewhere.
    pub(crate) fn note_refused(&mut self, object: ObjectId) {
        if let Some(attached) = self.attached.get_mut(&object) {
            attached.refused = true;
        }
    }

    /// The engine's sync of an object's file is done.
    pub(crate) fn synced(&mut self, ticket: Ticket, object: ObjectId, file: FileId) {
        let began = self.syncs.remove(&ticket).unwrap_or(0);
        self.file_synced(object, file, began);
    }

    /// A sync of an object's file that began at `began` is done. Its directories are synced after it.
    pub(crate) fn file_synced(&mut self, object: ObjectId, file: FileId, began: u64) {
        self.tree.file_synced(file, began);
        let now = self.tree.start_sync();
        let Some(attached) = self.attached.get_mut(&object) else { return };
        if !attached.open && attached.noted.is_empty() {
            return self.tree.all_synced();
        }
        if !std::mem::replace(&mut attached.anchored, true) && self.tree.links(file) > 0 {
            match attached.entry.and_then(|entry| self.tree.directory_by(entry)) {
                Some(directory) => attached.noted.insert(directory),
                // It has no path: everything is made durable with it, whatever names it.
                None => return self.tree.all_synced(),
            };
        }
        for directory in std::mem::take(&mut attached.noted) {
            self.tree.directory_synced(directory, now);
        }
    }

    /// The daemon is gone.
    pub(crate) fn lose_daemon(&mut self, origin_falls: bool, rng: &mut Rng, origin: &mut SimOrigin) {
        self.attached.clear();
        self.syncs.clear();
        self.asked.clear();
        if origin_falls {
            self.tree.power_cut(rng, origin);
        }
        self.tree.daemon_killed(origin);
    }
}
