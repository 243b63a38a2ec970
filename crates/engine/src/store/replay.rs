//! Replay: what an entry of the log does to the store. Nothing is appended here.

use headpond_base::{Block, ObjectId, UnixNanos, blocks_for};
use headpond_format::Entry;
use headpond_log::TailEntry;
use headpond_map::{ObjectMap, PackedPlace, Slot, Zeros};

use crate::origin_size::OriginSize;
use crate::stamp_trust::StampTrust;
use crate::store::Store;
use crate::store::object::Object;

impl Store {
    /// Brings the store to where it was after this entry.
    pub(crate) fn replay(&mut self, tail: TailEntry) {
        match tail.entry {
            Entry::Object { object, state } => {
                self.identities.note_drawn(object);
                let now = self.path_now();
                match self.get_mut(object) {
                    Some(known) => {
                        known.origin_size = OriginSize::Known(state.witness.size());
                        known.path_seen = now;
                        known.trust = StampTrust::from_flags(state.flags);
                        let identity = state.identity;
                        let before = std::mem::replace(&mut known.state, state).identity;
                        // A start may learn a birth time. No writer gives an object another file, but the log may be forged.
                        if before != identity {
                            self.identities.note_another(object, identity);
                        }
                    }
                    None => self.adopt(object, Object::from_state(state, ObjectMap::default(), Zeros::default())),
                }
            }
            Entry::Data { object, first, dirty, grown, class, checksums } => {
                let Some(location) = tail.location else { return };
                for (index, checksum) in (0_u32..).zip(checksums) {
                    let location = location.plus(index);
                    let slot = Slot { location, checksum, packed: false, dirty, kept: true, class };
                    self.set_slot(object, first.plus(u64::from(index)), slot);
                }
                self.replay_growth(object, grown);
            }
            Entry::Packed { object, first, blocks, dirty, grown, class, units, checksum, .. } => {
                let Some(location) = tail.location else { return };
                let small = |number: u32| u8::try_from(number).expect("an entry that decodes is bounded");
                for index in 0..blocks {
                    let place = PackedPlace::new(tail.unit, small(units), small(blocks), small(index), checksum);
                    let slot = Slot { location, checksum: place.word(), packed: true, dirty, kept: true, class };
                    self.set_slot(object, first.plus(u64::from(index)), slot);
                }
                self.replay_growth(object, grown);
            }
            Entry::Blank { object, first, blocks, dirty, grown, class } => {
                let Some(batch) = tail.location else { return };
                for block in 0..u64::from(blocks) {
                    self.set_slot(object, first.plus(block), Slot::blank(batch, dirty, true, class));
                }
                self.replay_growth(object, grown);
            }
            Entry::Zero { object, first, blocks, mtime } => {
                let end = first.plus(blocks);
                self.clear_range(object, first, end);
                let Some(known) = self.get_mut(object) else { return };
                touched(known, mtime);
                let last = Block(blocks_for(known.state.size)).min(end);
                self.zero_range(object, first, last);
            }
            Entry::Drop { object, first, blocks } => self.clear_range(object, first, first.plus(blocks)),
            Entry::Clean { object, first, blocks } => {
                let Some(known) = self.get(object) else { return };
                let there: Vec<Block> = known.map.range(first, first.plus(blocks)).map(|(block, _)| block).collect();
                for block in there {
                    self.mark_clean(object, block);
                }
                self.mark_zeros_clean(object, first, first.plus(blocks));
            }
            // No writer cuts a volume, but the log may be forged.
            Entry::Truncate { object, .. } if self.get(object).is_some_and(|known| !known.is_file()) => {}
            Entry::Truncate { object, size, mtime } => {
                self.clear_range(object, Block(blocks_for(size)), Block(u64::MAX));
                let (within, shorter) =
                    (Block::holding(size), self.get(object).is_some_and(|known| size < known.state.size));
                if shorter && self.slot(object, within).is_some_and(|slot| !slot.dirty) {
                    // It has bytes from behind the cut: it had been evicted before, of which the log says nothing.
                    self.clear_slot(object, within);
                }
                let Some(known) = self.get_mut(object) else { return };
                if size < known.state.size {
                    known.state.origin_valid = known.state.origin_valid.min(size);
                }
                known.state.size = size;
                touched(known, mtime);
            }
            Entry::Rename { from, to } => self.rename_paths(&from, &to),
            Entry::Forget { object } => self.remove(object),
            Entry::Mark => {}
        }
    }

    fn replay_growth(&mut self, object: ObjectId, grown: Option<(u64, UnixNanos)>) {
        let file = self.get_mut(object).filter(|known| known.is_file());
        if let (Some((size, mtime)), Some(known)) = (grown, file) {
            known.state.size = size;
            touched(known, mtime);
        }
    }

    /// Removes an object without a word to the log.
    pub(crate) fn remove(&mut self, id: ObjectId) {
        self.unpersist(id);
        self.forget(id);
    }
}

fn touched(known: &mut Object, mtime: UnixNanos) {
    if known.is_file() {
        known.state.mtime = mtime;
        known.has_status_of(mtime);
        known.owes_attributes();
    }
    known.trust.log_counts_again();
}
