//! Which object a file or a volume of the origin is, and for a while after the engine has let go of it.
//!
//! Invariants:
//! - What the origin uses for one thing at a time (an [`OriginNumber`]) leads to the object that had it last.
//! - No object's number is given twice in the life of a pool.
//! - What a crash may bring back of a file that the log was told to forget is known until that word is durable.

use std::collections::BTreeMap;

use headpond_base::{ObjectId, Sequence, UnixNanos};
use headpond_format::{Identity, ObjectState};

use crate::forgotten::Forgotten;
use crate::newborn::Newborn;
use crate::origin_number::OriginNumber;

/// Owned by the store.
pub(crate) struct Identities {
    by_number: BTreeMap<OriginNumber, ObjectId>,
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
            by_number: BTreeMap::new(),
            next,
            nameless_forgotten: Sequence(0),
            forgotten: Forgotten::default(),
            newborn: Newborn::default(),
        }
    }

    /// The object that is, or was, where this one is.
    pub(crate) fn of(&self, identity: Identity) -> Option<ObjectId> {
        self.by_number.get(&OriginNumber::of(identity)).copied()
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

    /// The object is this file or volume.
    pub(crate) fn is(&mut self, id: ObjectId, identity: Identity) {
        self.by_number.insert(OriginNumber::of(identity), id);
    }

    /// The object is another file or volume than before, by a log that no writer wrote.
    pub(crate) fn note_another(&mut self, id: ObjectId, identity: Identity) {
        self.by_number.retain(|_, known| *known != id);
        self.is(id, identity);
    }

    /// The inode number was given to a new file.
    pub(crate) fn note_reused(&mut self, identity: Identity) {
        self.by_number.remove(&OriginNumber::of(identity));
    }

    /// The engine lets go of an object. If the log named it, it was told to forget it with the entry `said`, and is
    /// durable up to `durable`.
    pub(crate) fn let_go(&mut self, id: ObjectId, state: &ObjectState, said: Option<Sequence>, durable: Sequence) {
        let number = OriginNumber::of(state.identity);
        if self.by_number.get(&number) == Some(&id) {
            self.by_number.remove(&number);
        }
        if let Some(file) = state.identity.file().filter(|_| state.made_at != UnixNanos(0)) {
            self.newborn.remember(file.inode, state.made_at);
        }
        if let Some(said) = said {
            self.forgotten.add(number, said, durable);
            if state.identity.lacks_birth() {
                self.nameless_forgotten = said;
            }
        }
    }

    /// The log was told by this entry to forget a file whose object stays.
    pub(crate) fn note_forgotten(&mut self, identity: Identity, said: Sequence, durable: Sequence) {
        self.forgotten.add(OriginNumber::of(identity), said, durable);
    }

    /// Whether a crash may bring back what the log knew of an object before it was told to forget it.
    pub(crate) fn may_come_back(&mut self, identity: Identity, durable: Sequence) -> bool {
        self.forgotten.may_come_back(OriginNumber::of(identity), durable)
    }

    /// The log's last word of a file without a birth time that it is forgotten: until that is durable nothing tells
    /// another file that gets its inode number from it.
    pub(crate) const fn nameless_forgotten(&self) -> Sequence {
        self.nameless_forgotten
    }

    /// When a file without a birth time was made, if that was here; its status was last changed at `ctime`.
    pub(crate) fn made_at(&self, identity: Identity, ctime: UnixNanos) -> Option<UnixNanos> {
        let file = identity.file().filter(|file| file.lacks_birth())?;
        self.newborn.made(file.inode, ctime)
    }
}
