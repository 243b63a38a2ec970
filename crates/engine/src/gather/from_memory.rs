//! Blocks that waited in memory: asked for after all, or on their way to flash, because the policy keeps them.

use headpond_base::{Block, Class, ObjectId};
use headpond_policy::Key;

use crate::gather::Gathering;
use crate::keep::Destination;
use crate::key::{block_of, key_of};
use crate::locks::Span;

impl Gathering<'_> {
    /// Writes what the policy let move on.
    pub(crate) fn write_what_moved_on(&mut self) {
        let keys = self.store.take_moved_on();
        if !keys.is_empty() {
            let most = self.store.log().geometry().record_blocks_max() as usize;
            let runs = keys.chunk_by(|a, b| a.0 + 1 == b.0 && block_of(*a).0 == block_of(*b).0);
            for run in runs.flat_map(|run| run.chunks(most)) {
                self.append_run(run);
            }
        }
    }

    /// A block that waited in memory without anybody having asked for it is asked for, by a request of class `by`,
    /// which has its lock and these bytes of it. It comes in as a miss would.
    pub(super) fn asked_after_all(&mut self, object: ObjectId, block: Block, by: Class, bytes: &[u8]) {
        self.keeping().touched(object, block);
        let Some(key) = key_of(object, block) else { return };
        let excluded = self.store.get(object).is_none_or(|known| known.locks.excluded(block));
        let span = Span { first: block, end: block.next() };
        if excluded || !self.store.is_in_memory(object, block) || !self.may_let_in(object, span) {
            return;
        }
        self.stats.lingering_hit_blocks += 1;
        self.gather.neighbours.promoted(object, block, self.fetch_most());
        let place = self.keeping().place(object, block, by, true, bytes);
        match place {
            Destination::Kept(class) if class != Class::EVERYBODY => {
                // What waits in memory has no class: it is written with it now.
                self.store.let_go(key);
                if self.may_name_clean(object) {
                    self.let_in(object, block, &[place], bytes);
                } else {
                    self.keep.forget(key);
                }
            }
            // It is written at the end of this step, with what lies beside it.
            Destination::Kept(_) => self.store.was_asked_for(key),
            // Not wanted, or not yet: it waits on.
            Destination::Nowhere => self.store.stays(key),
            Destination::Memory | Destination::Unasked | Destination::Lingers(_) => {}
        }
    }

    /// Appends blocks that follow each other; where that cannot be now they are dropped.
    fn append_run(&mut self, run: &[Key]) {
        let (object, first) = block_of(run[0]);
        let room = self.store.has_room_for_clean();
        let stays = self.store.get(object).is_some_and(|known| !known.state.flags.unlinked);
        if room && stays && !self.ending && self.may_name_clean(object) {
            self.store.append_from_memory(object, first, run);
            self.stats.admitted_blocks += run.len() as u64;
        } else {
            run.iter().for_each(|key| self.keep.forget(*key));
        }
        run.iter().for_each(|key| self.store.let_go(*key));
    }
}
