//! Which object a file of the origin is: by its inode number, and for a while after the engine has let go of it.
//!
//! Invariants:
//! - An inode number leads to the object of the file that had it last.
//! - No object's number is given twice in the life of a pool.
//! - What a crash may bring back of a file that the log was told to forget is known until that word is durable.

use std::collections::BTreeMap;

use headpond_base::{ObjectId, Sequence, UnixNanos};
use headpond_format::ObjectState;

use crate::forgotten::Forgotten;
use crate::newborn::Newborn;

/// Owned by the store.
pub(crate) struct Identities {
    by_inode: BTreeMap<u64, ObjectId>,
    next: ObjectId,
    /// The log's last word of an object without a birth time that it is forgotten.
    nameless_forgotten: Sequence,
    forgotten: Forgotten,
    newborn: Newborn,
}

impl Identities {
    /// The next new object gets this number.
    pub(crate) fn new(next: ObjectId) -> Self {
        Self {
            by_inode: BTreeMap::new(),
            next,
            nameless_forgotten: Sequence(0),
            forgotten: Forgotten::default(),
            newborn: Newborn::default(),
        }
    }

    /// The object of the file that has this inode number.
    pub(crate) fn of(&self, inode: u64) -> Option<ObjectId> {
        self.by_inode.get(&inode).copied()
    }

    /// A number for a new object.
    pub(crate) const fn draw(&mut self) -> ObjectId {
        let id = self.next;
        self.next = id.next();
        id
    }

    /// The number that the next new object gets.
    pub(crate) const fn next(&self) -> ObjectId {
        self.next
    }

    /// The log has an object of this number.
    pub(crate) fn note_drawn(&mut self, id: ObjectId) {
        self.next = self.next.max(id.next());
    }

    /// The object is the file with this inode number.
    pub(crate) fn is(&mut self, id: ObjectId, inode: u64) {
        self.by_inode.insert(inode, id);
    }

    /// The object is another file than before, by a log that no writer wrote.
    pub(crate) fn note_another(&mut self, id: ObjectId, inode: u64) {
        self.by_inode.retain(|_, known| *known != id);
        self.by_inode.insert(inode, id);
    }

    /// The inode number was given to a new file.
    pub(crate) fn note_reused(&mut self, inode: u64) {
        self.by_inode.remove(&inode);
    }

    /// The engine lets go of an object. If the log named it, it was told to forget it with the entry `said`, and is durable up
    /// to `durable`.
    pub(crate) fn let_go(&mut self, id: ObjectId, state: &ObjectState, said: Option<Sequence>, durable: Sequence) {
        if self.by_inode.get(&state.inode) == Some(&id) {
            self.by_inode.remove(&state.inode);
        }
        if state.made_at != UnixNanos(0) {
            self.newborn.remember(state.inode, state.made_at);
        }
        if let Some(said) = said {
            self.forgotten.add(state.inode, said, durable);
            if state.birth == ObjectState::NO_BIRTH {
                self.nameless_forgotten = said;
            }
        }
    }

    /// The log was told by this entry to forget a file whose object stays.
    pub(crate) fn note_forgotten(&mut self, inode: u64, said: Sequence, durable: Sequence) {
        self.forgotten.add(inode, said, durable);
    }

    /// Whether a crash may bring back what the log knew of a file before it was told to forget it.
    pub(crate) fn may_come_back(&mut self, inode: u64, durable: Sequence) -> bool {
        self.forgotten.may_come_back(inode, durable)
    }

    /// The log's last word of a file without a birth time that it is forgotten: until that is durable nothing tells another
    /// file that gets its inode number from it.
    pub(crate) const fn nameless_forgotten(&self) -> Sequence {
        self.nameless_forgotten
    }

    /// When a file without a birth time was made, if that was here; its status was last changed at `ctime`.
    pub(crate) fn made_at(&self, inode: u64, ctime: UnixNanos) -> Option<UnixNanos> {
        self.newborn.made(inode, ctime)
    }
}
