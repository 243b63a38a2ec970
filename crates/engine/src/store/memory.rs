//! The blocks that wait in memory, as far as objects count them.

use headpond_base::{BLOCK, Block, Class, ObjectId, Stream};
use headpond_policy::Key;

use crate::key::{block_of, key_of};
use crate::locks::Span;
use crate::store::Store;

impl Store {
    /// Whether a block is in memory only.
    pub(crate) fn is_in_memory(&self, object: ObjectId, block: Block) -> bool {
        self.window.find(object, block).is_some()
    }

    /// Holds a clean block in memory that a request asked for.
    pub(crate) fn hold(&mut self, object: ObjectId, block: Block, bytes: &[u8]) {
        self.hold_in_memory(object, block, bytes, true);
    }

    /// Holds a clean block in memory that nobody asked for, as one of so many at most.
    pub(crate) fn hold_unasked(&mut self, object: ObjectId, block: Block, bytes: &[u8], most: usize) {
        self.hold_in_memory(object, block, bytes, false);
        while let Some(key) = self.window.too_many_unasked(most) {
            self.let_go(key);
        }
    }

    fn hold_in_memory(&mut self, object: ObjectId, block: Block, bytes: &[u8], asked: bool) {
        let (Some(key), Some(known)) = (key_of(object, block), self.objects.get_mut(&object)) else { return };
        assert!(!known.has(block), "what waits in memory is not on flash");
        known.in_memory += u32::from(self.window.insert(key, bytes, asked));
    }

    /// The policy lets a block move on to flash. Nothing happens if it is not in memory: then it comes there straight
    /// away.
    pub(crate) fn moves_on(&mut self, key: Key) {
        self.window.moves_on(key);
    }

    /// A block in memory does not move on after all.
    pub(crate) fn stays(&mut self, key: Key) {
        self.window.stays(key);
    }

    /// A request has asked for a block in memory.
    pub(crate) fn was_asked_for(&mut self, key: Key) {
        self.window.was_asked_for(key);
    }

    /// Blocks in memory that are to be written to flash now, in order.
    pub(crate) fn take_moved_on(&mut self) -> Vec<Key> {
        self.window.take_moved_on()
    }

    /// Objects that have lost the last of their blocks in memory.
    pub(crate) fn take_emptied(&mut self) -> Vec<ObjectId> {
        self.window.take_emptied()
    }

    /// Appends blocks that are in memory and follow each other. They stay there until they are let go.
    pub(crate) fn append_from_memory(&mut self, object: ObjectId, first: Block, run: &[Key]) {
        let blocks = u32::try_from(run.len()).expect("a record is bounded");
        let slots = self.known(object).map.range(first, first.plus(u64::from(blocks))).count();
        assert!(slots == 0, "what waits in memory is not on flash");
        self.introduce(object);
        let window = std::mem::take(&mut self.window);
        let record = Self::clean_record(Stream::Cold, object, first, blocks);
        self.append_data(record, true, Class::EVERYBODY, |payload| {
            for (to, key) in payload.chunks_mut(BLOCK).zip(run) {
                to.copy_from_slice(window.bytes_of(*key));
            }
        });
        self.window = window;
    }

    /// Lets a block in memory go, if it is there.
    pub(crate) fn let_go(&mut self, key: Key) {
        if !self.window.remove(key) {
            return;
        }
        let (object, _) = block_of(key);
        if let Some(known) = self.objects.get_mut(&object) {
            known.in_memory -= 1;
            if known.in_memory == 0 {
                self.window.note_empty_of(object);
            }
        }
    }

    /// These blocks of an object change: what is in memory of them is old from now on.
    pub(crate) fn drop_from_memory(&mut self, object: ObjectId, span: Span) {
        for key in self.window.within(object, span) {
            self.let_go(key);
            let (object, block) = block_of(key);
            self.note_gone(object, block);
        }
    }
}
