//! Letting clean blocks into the pool: from the origin, and after a write that went there.
//!
//! Invariants:
//! - A block is let in only if, from the moment the origin was asked until now, the map had no slot for it and nothing
//!   changed it. Whatever changes blocks tells `Engine::poison`.
//! - The log can name the object: `object_room.rs` makes room for it first.

use headpond_base::{BLOCK, Block, Buf, Class, ObjectId, Stream};
use headpond_log::DataRecord;

use crate::fetches::Fetch;
use crate::gather::Gathering;
use crate::keep::Destination;
use crate::locks::Span;
use crate::store::{ADMIT_RESERVE, Store};

impl Gathering<'_> {
    /// Lets in what a read of the origin brought, as far as it is welcome.
    pub(super) fn admit(&mut self, fetch: &Fetch, bytes: &Buf) {
        let Some(by) = fetch.admit() else { return };
        if !self.may_let_in(fetch.object(), fetch.span()) {
            return;
        }
        let Some(known) = self.store.get(fetch.object()) else { return };
        let welcome: Vec<bool> = (0..)
            .zip(fetch.poisoned())
            .map(|(index, poisoned)| {
                let block = fetch.span().first.plus(index);
                !poisoned
                    && !known.locks.excluded(block)
                    && !known.has(block)
                    && !self.store.is_in_memory(fetch.object(), block)
            })
            .collect();
        if !welcome.contains(&true) || !self.may_name_clean(fetch.object()) {
            return;
        }
        let places: Vec<Destination> = (0..)
            .zip(&welcome)
            .map(|(index, welcome)| {
                let block = fetch.span().first.plus(index);
                let from = usize::try_from(index).expect("fetches are small") * BLOCK;
                let bytes = &bytes[from..from + BLOCK];
                let asked = fetch.asked_for(block);
                if *welcome {
                    self.keeping().place(fetch.object(), block, asked.unwrap_or(by), asked.is_some(), bytes)
                } else {
                    Destination::Nowhere
                }
            })
            .collect();
        self.let_in(fetch.object(), fetch.span().first, &places, bytes);
        let lingering = places.iter().filter(|place| matches!(place, Destination::Lingers(_))).count();
        let waiting = places.iter().filter(|place| **place == Destination::Unasked).count();
        let middle = fetch.waiters().first().map_or(fetch.span().first, |waiter| waiter.span.first);
        let unasked = u32::try_from(lingering + waiting).expect("fetches are small");
        self.stats.neighbour_blocks += lingering as u64;
        self.stats.waiting_neighbour_blocks += waiting as u64;
        self.gather.neighbours.came(fetch.object(), middle, fetch.window(), unasked);
    }

    /// Whether clean blocks may come into the pool now.
    pub(super) fn may_let_in(&self, object: ObjectId, span: Span) -> bool {
        let room = self.store.log().free_segments() > ADMIT_RESERVE;
        // A sparse file may be longer than what the pool can name.
        let nameable = span.end.byte() <= crate::store::object::OBJECT_BYTES_MAX;
        let linked = self.store.get(object).is_some_and(|known| !known.state.flags.unlinked);
        room && nameable
            && linked
            && !self.store.is_crowded()
            && self.config.behaviour().admit_reads
            && self.store.takes_writes()
            && !self.ending
    }

    /// Makes sure that the log may name the object of clean blocks; `false` if it cannot now.
    pub(super) fn may_name_clean(&mut self, object: ObjectId) -> bool {
        let Some(known) = self.store.get(object) else { return false };
        let dirty_unnamed = known.state.flags.attributes_dirty && !known.persisted;
        if !self.room.make_for(object, self.store, self.stats) {
            return false;
        }
        if dirty_unnamed {
            self.store.known(object).trust.begin_change();
        }
        true
    }

    /// Appends clean blocks, as far as they are to be on flash; a last block that is not whole ends with zeros.
    pub(crate) fn let_in(&mut self, object: ObjectId, first: Block, places: &[Destination], bytes: &[u8]) {
        let mut index = 0;
        for run in places.chunk_by(PartialEq::eq) {
            let (place, from) = (run[0], index * BLOCK);
            index += run.len();
            let (kept, class) = match place {
                Destination::Nowhere | Destination::Memory | Destination::Unasked => continue,
                Destination::Lingers(class) => (false, class),
                Destination::Kept(class) => (true, class),
            };
            self.store.introduce(object);
            let blocks = u32::try_from(run.len()).expect("a record is bounded");
            let first = first.plus((from / BLOCK) as u64);
            let record = DataRecord { class, ..Store::clean_record(Stream::Cold, object, first, blocks) };
            let bytes = &bytes[from..(index * BLOCK).min(bytes.len())];
            let fill = |payload: &mut [u8]| payload[..bytes.len()].copy_from_slice(bytes);
            self.store.append_data(record, kept, Class::EVERYBODY, fill);
            (0..run.len() as u64).for_each(|at| self.keeping().count_for_class(object, first.plus(at), None, class));
            self.stats.admitted_blocks += run.len() as u64;
        }
    }
}
