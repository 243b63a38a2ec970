//! The present bytes of some blocks, for a request that has their lock.
//!
//! Every block comes from one of: a batch in memory, flash (verified), what waits in memory (only where the map has no
//! slot), the origin, or nowhere, being zeros. A block that flash does not give correctly is read
//! once more. Then a clean one comes from the origin, and its slot is dropped; a dirty one is an error: never wrong
//! bytes. A share of what is clean on flash may come from the origin by choice (`hits_to_origin.rs`): verified as from
//! flash, and from flash after all where that fails.

use headpond_base::{BLOCK, Block, Buf, BufMut, Class, Errno, ObjectId};
use headpond_map::Slot;

use crate::effect::{Effect, Outcome};
use crate::gather::Gathering;
use crate::locks::{OpId, Span};
use crate::memory_window::HeldBlock;
use crate::op::Op;
use crate::purpose::{GatherRead, Purpose};
use crate::store::{ReadBack, Stretch, Unpacked};

/// Where a run of blocks comes from.
enum Source {
    Memory(Slot),
    Flash(Slot),
    /// What waits in memory, by its place there.
    Window(HeldBlock),
    Nowhere,
    Origin,
}

impl Gathering<'_> {
    /// Starts gathering `span` as the request's blocks from `out_at` on, of `total`. What is at hand is put there at
    /// once; `op.parts` counts the rest.
    pub(crate) fn gather(&mut self, id: OpId, op: &mut Op, span: Span, out_at: u64, total: u64) {
        let out_at = usize::try_from(out_at).expect("a request has few blocks");
        let total = usize::try_from(total).expect("a request has few blocks");
        let count = usize::try_from(span.blocks()).expect("a request has few blocks");
        op.gathered.expect(total);
        let mut unpacked = Unpacked::default();
        let mut index = 0;
        while index < count {
            let block = span.first.plus(index as u64);
            match self.source(op.object, block) {
                Source::Memory(slot) => {
                    let bytes = self.store.in_batch(op.object, block, slot, &mut unpacked);
                    if self.config.behaviour_for(op.how).admit_reads {
                        self.used(op.object, block, slot, op.how.class);
                    }
                    self.stats.read_hits_blocks += 1;
                    op.served.hit_blocks += 1;
                    op.gathered.put(out_at + index, bytes.expect("it is in memory"));
                    index += 1;
                }
                Source::Window(held) => {
                    // Copied first: the policy may give it up when it hears of the use.
                    let bytes = BufMut::copy_of(self.store.window().bytes(held)).freeze();
                    if self.config.behaviour_for(op.how).admit_reads {
                        if held.is_unasked() {
                            let (object, class) = (op.object, op.how.class);
                            self.asked_after_all(object, block, class, &bytes);
                        } else {
                            self.keeping().touched(op.object, block);
                        }
                    }
                    op.gathered.put(out_at + index, bytes);
                    self.stats.read_hits_blocks += 1;
                    self.stats.memory_hits_blocks += 1;
                    op.served.hit_blocks += 1;
                    index += 1;
                }
                Source::Nowhere => index += 1,
                Source::Flash(slot) => {
                    let mut slots = vec![slot];
                    while index + slots.len() < count
                        && let Source::Flash(next) = self.source(op.object, block.plus(slots.len() as u64))
                        && self.store.lies_behind(&slots, next)
                    {
                        slots.push(next);
                    }
                    self.stats.read_hits_blocks += slots.len() as u64;
                    op.served.hit_blocks += u32::try_from(slots.len()).expect("a request has few blocks");
                    if self.config.behaviour_for(op.how).admit_reads {
                        for (at, slot) in (0..).zip(&slots) {
                            self.used(op.object, block.plus(at), *slot, op.how.class);
                        }
                    }
                    let run = slots.len();
                    op.parts += 1;
                    let (object, out_at, since) = (op.object, out_at + index, self.now);
                    let at_origin = self.config.hits_to_origin > 0 && self.goes_to_origin(object, block, &slots);
                    self.gather_read(GatherRead {
                        op: id,
                        object,
                        first: block,
                        slots,
                        out_at,
                        attempt: self.store.first_attempt(),
                        at_origin,
                        since,
                    });
                    index += run;
                }
                Source::Origin => {
                    let mut run = 1;
                    while index + run < count
                        && matches!(self.source(op.object, block.plus(run as u64)), Source::Origin)
                    {
                        run += 1;
                    }
                    self.stats.read_miss_blocks += run as u64;
                    op.served.miss_blocks += u32::try_from(run).expect("a request has few blocks");
                    op.parts += 1;
                    let run_span = Span { first: block, end: block.plus(run as u64) };
                    let admit = self.config.behaviour_for(op.how).admit_reads.then_some(op.how.class);
                    if admit.is_some() {
                        (0..run as u64).for_each(|at| self.keeping().missed(op.object, block.plus(at)));
                    }
                    self.fetch(id, op.object, run_span, out_at + index, admit);
                    index += run;
                }
            }
        }
    }

    /// A block that the pool has is used, by a request of class `by`.
    fn used(&mut self, object: ObjectId, block: Block, slot: Slot, by: Class) {
        if self.keeping().used(object, block, slot, by) {
            if !slot.dirty {
                self.stats.lingering_hit_blocks += 1;
                self.reclaim.lingering_was_asked_for();
            }
            self.gather.neighbours.promoted(object, block, self.fetch_most());
        }
    }

    fn source(&self, object: ObjectId, block: Block) -> Source {
        let Some(known) = self.store.get(object) else { return Source::Nowhere };
        match known.map().get(block) {
            Some(slot) if slot.dirty || self.config.behaviour().serve_hits => {
                if self.store.is_in_batch(slot) {
                    Source::Memory(slot)
                } else {
                    Source::Flash(slot)
                }
            }
            None if known.zeros().has(block) => Source::Nowhere,
            _ if block.byte() >= known.origin_end() => Source::Nowhere,
            None if self.config.behaviour().serve_hits => {
                self.store.window().find(object, block).map_or(Source::Origin, Source::Window)
            }
            _ => Source::Origin,
        }
    }

    fn gather_read(&mut self, read: GatherRead) {
        if read.at_origin {
            let (object, offset) = (read.object, read.first.byte());
            let len = u32::try_from(read.slots.len() * BLOCK).expect("a request has few blocks");
            return self.outbox.start(Purpose::Gather(read), |ticket| Effect::OriginRead {
                ticket,
                object,
                offset,
                len,
            });
        }
        self.store.read_flash(self.outbox, Stretch::of(&read.slots), read.attempt, Purpose::Gather(read));
    }

    /// A read from flash came back.
    pub(crate) fn gathered(&mut self, mut read: GatherRead, outcome: Outcome) {
        if read.at_origin {
            return self.hit_came_from_origin(&read, outcome);
        }
        if self.config.hits_to_origin > 0 {
            let took = self.now.since(read.since);
            self.gather.hits_to_origin.flash_took(took, self.config.hits_to_origin, self.now);
        }
        let found = self.store.flash_was_read(read.object, read.first, &read.slots, &outcome);
        let all_good = found.all_good();
        let moved = !all_good && (0..read.slots.len()).any(|index| self.moved(&read, index));
        if !all_good
            && !moved
            && let Some(next) = self.store.next_attempt(read.attempt, &read.slots[0])
            && self.store.log().place_to_read(read.slots[0].location, next.number()).is_some()
        {
            // A transfer may go wrong once; flash that has rotted stays so.
            read.attempt = next;
            return self.gather_read(read);
        }
        if self.requests.get(read.op).is_none() {
            return;
        }
        if all_good {
            self.give(&read, found.bytes);
        } else {
            self.repair(&read, &found);
        }
        self.requests.part_done(read.op, None);
    }

    /// Whether these blocks on flash are read from the origin: clean, and its bytes count there. The request has their
    /// lock, so that they stay so until it is done.
    fn goes_to_origin(&mut self, object: ObjectId, first: Block, slots: &[Slot]) -> bool {
        let end = first.plus(slots.len() as u64).byte();
        // Of what is packed, only the record as a whole can be verified, as it is on flash.
        slots.iter().all(|slot| !slot.dirty && !slot.packed)
            && self.store.get(object).is_some_and(|known| end <= known.origin_end())
            && self.gather.hits_to_origin.goes(self.config.hits_to_origin, self.now)
    }

    /// Clean blocks came from the origin by choice. Reclaim may have moved or dropped them meanwhile; dropped, they
    /// are as good as any that flash had not got.
    fn hit_came_from_origin(&mut self, read: &GatherRead, outcome: Outcome) {
        let matches = |index: usize, bytes: &Buf| {
            let block = read.first.plus(index as u64);
            let present = self.store.slot(read.object, block);
            let bytes = &bytes[index * BLOCK..(index + 1) * BLOCK];
            present.is_none_or(|slot| !slot.dirty && self.store.verify(read.object, block, slot, bytes))
        };
        let good = match &outcome {
            Outcome::Bytes(bytes) if bytes.len() == read.slots.len() * BLOCK => {
                (0..read.slots.len()).all(|index| matches(index, bytes))
            }
            _ => false,
        };
        if let (true, Outcome::Bytes(bytes)) = (good, outcome) {
            self.gather.hits_to_origin.origin_took(self.now.since(read.since), self.now);
            self.stats.origin_hits_blocks += read.slots.len() as u64;
            self.give(read, bytes);
            return self.requests.part_done(read.op, None);
        }
        // It did not answer, or not with what is on flash: that is asked after all.
        self.stats.origin_errors += 1;
        self.gather.hits_to_origin.origin_failed(self.now);
        for index in 0..read.slots.len() {
            let block = read.first.plus(index as u64);
            if let Some(slot) = self.store.slot(read.object, block) {
                self.read_again(read, index, slot);
            } else if let Some(op) = self.requests.get_mut(read.op) {
                op.parts += 1;
                self.fetch_again(read, index);
            }
        }
        self.requests.part_done(read.op, None);
    }

    /// Whether reclaim moved a block since the read was begun: it is to be read at its new place.
    fn moved(&self, read: &GatherRead, index: usize) -> bool {
        let block = read.first.plus(index as u64);
        let present = self.store.get(read.object).and_then(|object| object.map().get(block));
        present.is_some_and(|slot| !slot.is_where(&read.slots[index]))
    }

    /// Reads one block of an earlier read from where it is now.
    fn read_again(&mut self, read: &GatherRead, index: usize, slot: Slot) {
        let block = read.first.plus(index as u64);
        let bytes = self.store.in_batch(read.object, block, slot, &mut Unpacked::default());
        let Some(op) = self.requests.get_mut(read.op) else { return };
        if let Some(bytes) = bytes {
            return op.gathered.put(read.out_at + index, bytes);
        }
        op.parts += 1;
        let out_at = read.out_at + index;
        let (op, object, first, slots, since) = (read.op, read.object, block, vec![slot], self.now);
        let (attempt, at_origin) = (self.store.first_attempt(), false);
        self.gather_read(GatherRead { op, object, first, slots, out_at, attempt, at_origin, since });
    }

    /// Whether a block that was not good may be so where it was not looked for: another place, for each
    /// block by itself.
    fn may_be_elsewhere(&self, read: &GatherRead) -> bool {
        let at = read.slots[0].location;
        let place = |attempt| self.store.log().place_to_read(at, attempt);
        let is_last = read.attempt.number() >= self.store.log().last_attempt(at);
        match (place(0), place(1)) {
            (_, None) => false,
            (first, second) if first != second => !is_last || read.slots.len() > 1,
            _ => !is_last,
        }
    }

    /// Some blocks of a read are not what they must be, for the second time, or while others were moved.
    fn repair(&mut self, read: &GatherRead, found: &ReadBack) {
        for index in 0..read.slots.len() {
            let block = read.first.plus(index as u64);
            if let Some(piece) = found.block(index) {
                let op = self.requests.get_mut(read.op).expect("looked up by the caller");
                op.gathered.put(read.out_at + index, piece);
                continue;
            }
            let present = self.store.slot(read.object, block);
            // One that was dropped meanwhile is clean: the origin has it.
            if let Some(slot) = present
                && (self.moved(read, index) || self.may_be_elsewhere(read))
            {
                self.read_again(read, index, slot);
                continue;
            }
            let op = self.requests.get_mut(read.op).expect("looked up by the caller");
            op.parts += 1;
            if present.is_some_and(|slot| slot.dirty) {
                self.stats.lost_blocks += 1;
                self.requests.part_done(read.op, Some(Errno::IO));
                continue;
            }
            self.stats.masked_flash_errors += 1;
            if present.is_some_and(|slot| slot.is_where(&read.slots[index])) {
                self.store.clear_slot(read.object, block);
            }
            self.fetch_again(read, index);
        }
    }

    /// Gets one block of an earlier read from the origin, as if the map had not had it.
    fn fetch_again(&mut self, read: &GatherRead, index: usize) {
        let block = read.first.plus(index as u64);
        let how = self.requests.get(read.op).map(|op| op.how);
        let admit = how.filter(|how| self.config.behaviour_for(*how).admit_reads).map(|how| how.class);
        let span = Span { first: block, end: block.next() };
        self.fetch(read.op, read.object, span, read.out_at + index, admit);
    }

    /// The bytes of a read are the request's.
    fn give(&mut self, read: &GatherRead, bytes: Buf) {
        if let Some(op) = self.requests.get_mut(read.op) {
            op.gathered.put(read.out_at, bytes);
        }
    }
}
