//! Blocks that waited in memory and move on to flash, because the policy keeps them.

use headpond_base::{BLOCK, Class, Stream};
use headpond_policy::Key;

use crate::engine::Engine;
use crate::engine::fetch::ADMIT_RESERVE;
use crate::key::block_of;
use crate::store::Store;

impl Engine {
    /// Writes what the policy let move on, and retires objects of which nothing is left.
    pub(crate) fn write_what_moved_on(&mut self) {
        let keys = self.store.window.take_moved_on();
        if !keys.is_empty() {
            let most = self.store.log.geometry().record_blocks_max() as usize;
            let runs = keys.chunk_by(|a, b| a.0 + 1 == b.0 && block_of(*a).0 == block_of(*b).0);
            for run in runs.flat_map(|run| run.chunks(most)) {
                self.append_run(run);
            }
        }
        for object in self.store.window.take_emptied() {
            self.retire(object);
        }
    }

    /// Appends blocks that follow each other; where that cannot be now they are dropped.
    fn append_run(&mut self, run: &[Key]) {
        let (object, first) = block_of(run[0]);
        let room = self.store.log.segments().free() > ADMIT_RESERVE && !self.store.log.failed();
        let stays = self.store.get(object).is_some_and(|known| !known.state.flags.unlinked);
        if room && stays && !self.life.is_ending() && self.may_name_clean(object) {
            let blocks = u32::try_from(run.len()).expect("a record is bounded");
            let known = self.store.known(object);
            let slots = known.map.range(first, first.plus(u64::from(blocks))).count();
            assert!(slots == 0, "what waits in memory is not on flash");
            self.store.introduce(object);
            let window = std::mem::take(&mut self.store.window);
            let record = Store::clean_record(Stream::Cold, object, first, blocks);
            self.store.append_data(record, true, Class::EVERYBODY, |payload| {
                for (to, key) in payload.chunks_mut(BLOCK).zip(run) {
                    to.copy_from_slice(window.bytes_of(*key));
                }
            });
            self.store.window = window;
            self.stats.admitted_blocks += u64::from(blocks);
        } else {
            run.iter().for_each(|key| self.forget_kept(*key));
        }
        run.iter().for_each(|key| self.store.let_go(*key));
    }
}
