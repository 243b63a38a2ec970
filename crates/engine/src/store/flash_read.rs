//! Reads of data blocks from flash, for requests, destage and reclaim. Places go in, verified blocks come out. Only
//! this file knows whether a block is stored plain or in a packed record.
//!
//! Invariants:
//! - While a read is under way its segment says so, and is not filled again. Each [`Store::read_flash`] is met by one
//!   [`Store::flash_was_read`].
//! - Bytes come out only if they agree with their slot: with the block's checksum, or with that of the packed record,
//!   which is unpacked after that, into a buffer of the size that it must have.
//! - Blocks in blank records need no read: [`Store::in_batch`] gives their zeros, and every reader asks it first.

use headpond_base::{BLOCK, Block, Buf, BufMut, Location, ObjectId, SegmentId};
use headpond_format::{BLOCK_UNITS, UNIT};
use headpond_log::ReadFrom;
use headpond_map::{PackedPlace, Slot};

use crate::effect::Outcome;
use crate::outbox::Outbox;
use crate::purpose::{Attempt, Purpose};
use crate::store::Store;
use crate::store::contents::End;

/// What a read of some neighbouring blocks brought.
pub(crate) struct ReadBack {
    /// The bytes of all of them, in order; anything where they are not good. Empty if nothing came.
    pub(crate) bytes: Buf,
    /// Of each, whether its bytes are what they must be.
    pub(crate) good: Vec<bool>,
}

impl ReadBack {
    /// Of blocks in blank records there is nothing to bring.
    pub(crate) fn of_blanks(blocks: usize) -> Self {
        Self { bytes: Buf::empty(), good: vec![true; blocks] }
    }

    pub(crate) fn all_good(&self) -> bool {
        self.good.iter().all(|good| *good)
    }

    /// The bytes of one of them, if they are good.
    pub(crate) fn block(&self, index: usize) -> Option<Buf> {
        self.good[index].then(|| self.bytes.slice(index * BLOCK..(index + 1) * BLOCK))
    }
}

/// The packed record that was unpacked last from memory: its neighbours are asked for next, one by one.
#[derive(Default)]
pub(crate) struct Unpacked(Option<(Slot, Buf)>);

/// Which of these slots, from the first on, are of one packed record, block after block.
fn record_run(slots: &[Slot]) -> usize {
    slots.windows(2).take_while(|pair| pair[0].goes_on_in(&pair[1])).count() + 1
}

impl Store {
    /// The first attempt at a read that begins now.
    pub(crate) const fn first_attempt(&self) -> Attempt {
        Attempt::first(self.log.losses())
    }

    /// The attempt after one that has failed, if there is to be one. The slot is any of those that are read.
    pub(crate) fn next_attempt(&self, attempt: Attempt, slot: &Slot) -> Option<Attempt> {
        attempt.next(self.log.losses(), self.log.last_attempt(slot.location))
    }

    /// Starts to read blocks that lie behind each other.
    pub(crate) fn read_flash(&mut self, outbox: &mut Outbox, stretch: Stretch, attempt: Attempt, purpose: Purpose) {
        let segment = self.segment_of(stretch.from());
        self.log.segments_mut().get_mut(segment).under_way += 1;
        let from = self.log.address_to_read(stretch.from(), attempt.number());
        let len = u32::try_from(stretch.blocks() * BLOCK).expect("a read is at most a segment");
        outbox.read_flash(purpose, &from, len);
    }

    /// A read is over, with or without its bytes: what it brought.
    pub(crate) fn flash_was_read(
        &mut self,
        object: ObjectId,
        first: Block,
        slots: &[Slot],
        outcome: &Outcome,
    ) -> ReadBack {
        let segment = self.segment_of(slots[0].location);
        self.log.segments_mut().get_mut(segment).under_way -= 1;
        let bytes = if let Outcome::Bytes(bytes) = outcome { Some(bytes) } else { None };
        let found = self.read_back(object, first, slots, bytes);
        if !found.all_good() {
            self.note_differing(slots[0].location);
        }
        found
    }

    /// Starts to read bytes of a segment out of the copy in the slot `keeper`, whatever the other one has. If that slot has
    /// the parity of its row, out of the row. Met by one [`Store::copy_was_read`].
    pub(crate) fn read_copy(
        &mut self,
        outbox: &mut Outbox,
        segment: SegmentId,
        keeper: SegmentId,
        (from, bytes): (Location, usize),
        purpose: Purpose,
    ) {
        self.log.segments_mut().get_mut(segment).under_way += 1;
        let segments = self.log.segments();
        let within = |keeper| segments.addresses().within(keeper, from);
        let row = segments.row_without(segment).filter(|rest| rest.last() == Some(&keeper));
        let read = row.map_or_else(
            || ReadFrom::Place(within(keeper)),
            |rest| ReadFrom::Row(rest.into_iter().map(within).collect()),
        );
        let len = u32::try_from(bytes).expect("a read is at most a segment");
        outbox.read_flash(purpose, &read, len);
    }

    /// Starts to read the end of a segment. Met by one [`Store::copy_was_read`].
    pub(crate) fn read_end(&mut self, outbox: &mut Outbox, segment: SegmentId, end: &End, purpose: Purpose) {
        self.log.segments_mut().get_mut(segment).under_way += 1;
        let from = self.log.address_to_read(end.from, 0);
        let len = u32::try_from(end.bytes).expect("a segment is at most 64 MiB");
        outbox.read_flash(purpose, &from, len);
    }

    /// A read of a copy is over.
    pub(crate) fn copy_was_read(&mut self, segment: SegmentId) {
        self.log.segments_mut().get_mut(segment).under_way -= 1;
    }

    /// Whether the block after these lies on flash so that one read takes it along: in the same packed record, or right
    /// behind.
    pub(crate) fn lies_behind(&self, before: &[Slot], next: Slot) -> bool {
        let Some(last) = before.last() else { return false };
        let (end, start) = (last.extent().1, next.extent().0);
        let behind = start >= end && start - end < u64::from(BLOCK_UNITS);
        self.segment_of(next.location) == self.segment_of(last.location) && (last.goes_on_in(&next) || behind)
    }

    /// The bytes of blocks that lie behind each other, out of what was read for them.
    pub(crate) fn read_back(&self, object: ObjectId, first: Block, slots: &[Slot], read: Option<&Buf>) -> ReadBack {
        let nothing = || ReadBack { bytes: BufMut::zeroed(0).freeze(), good: vec![false; slots.len()] };
        let Some(read) = read.filter(|read| read.len() == blocks_of(slots) * BLOCK) else { return nothing() };
        if slots.iter().all(|slot| !slot.packed) {
            let blocks = (first.0..).map(Block).zip(slots).zip(read.as_chunks::<BLOCK>().0);
            let good = blocks.map(|((block, slot), bytes)| self.verify(object, block, *slot, bytes)).collect();
            return ReadBack { bytes: read.clone(), good };
        }
        let base = slots[0].location.0 * u64::from(BLOCK_UNITS);
        let mut bytes = BufMut::unwritten(slots.len() * BLOCK);
        let (mut good, mut at) = (Vec::with_capacity(slots.len()), 0);
        while at < slots.len() {
            let (slot, block) = (slots[at], first.plus(at as u64));
            let (start, end) = slot.extent();
            let unit = |unit: u64| usize::try_from(unit - base).expect("a read is bounded") * UNIT;
            let stored = &read[unit(start)..unit(end)];
            let run = record_run(&slots[at..]);
            let out = &mut bytes[at * BLOCK..(at + run) * BLOCK];
            let fine = match slot.in_record() {
                Some(place) => self.unpack(object, block, slot, place, stored, out),
                None => {
                    out.copy_from_slice(stored);
                    self.verify(object, block, slot, stored)
                }
            };
            good.extend(std::iter::repeat_n(fine, run));
            at += run;
        }
        ReadBack { bytes: bytes.freeze(), good }
    }

    /// Unpacks some blocks of a packed record; the first is `block`, in `place`. `false` if its bytes are not what they
    /// must be.
    fn unpack(
        &self,
        object: ObjectId,
        block: Block,
        slot: Slot,
        place: PackedPlace,
        stored: &[u8],
        out: &mut [u8],
    ) -> bool {
        // A slot is of a block that the record has: a forged one may say otherwise.
        let Some(first) = block.0.checked_sub(u64::from(place.index)).map(Block) else { return false };
        let len = usize::from(place.blocks) * BLOCK;
        if out.len() == len {
            return self.log.unpack((object, first), slot.location, place, stored, out);
        }
        let mut plain = BufMut::unwritten(len);
        let good = self.log.unpack((object, first), slot.location, place, stored, &mut plain);
        let from = usize::from(place.index) * BLOCK;
        out.copy_from_slice(&plain[from..from + out.len()]);
        good
    }

    /// Whether a block's bytes are what its slot says. `false` of one that is in a packed record, wherever they are
    /// from.
    pub(crate) fn verify(&self, object: ObjectId, block: Block, slot: Slot, bytes: &[u8]) -> bool {
        !slot.packed && self.log.verify(object, block, slot.location, slot.checksum, bytes)
    }

    /// Whether a block's bytes are in memory, as part of a batch, or are known to be zeros.
    pub(crate) fn is_in_batch(&self, slot: Slot) -> bool {
        slot.is_blank() || self.log.is_in_memory(slot.location)
    }

    /// A block's bytes, if they are in memory or known to be zeros.
    ///
    /// # Panics
    /// When a record in memory is not what was appended.
    pub(crate) fn in_batch(&self, object: ObjectId, block: Block, slot: Slot, unpacked: &mut Unpacked) -> Option<Buf> {
        if !self.is_in_batch(slot) {
            return None;
        }
        if slot.is_blank() {
            return Some(self.zeros());
        }
        let Some(place) = slot.in_record() else { return self.log.in_memory(slot.location, 0..BLOCK_UNITS) };
        let from = usize::from(place.index) * BLOCK;
        let begin = Slot { checksum: PackedPlace { index: 0, ..place }.word(), ..slot };
        if let Some((record, plain)) = &unpacked.0
            && record.is_where(&begin)
        {
            return Some(plain.slice(from..from + BLOCK));
        }
        let unit = u32::from(place.unit);
        let stored = self.log.in_memory(slot.location, unit..unit + u32::from(place.units))?;
        let mut plain = BufMut::unwritten(usize::from(place.blocks) * BLOCK);
        let first = Block(block.0 - u64::from(place.index));
        let good = self.log.unpack((object, first), slot.location, place, &stored, &mut plain);
        assert!(good, "a record in memory is what was appended");
        let plain = plain.freeze();
        unpacked.0 = Some((begin, plain.clone()));
        Some(plain.slice(from..from + BLOCK))
    }
}

/// What has to be read for blocks that lie behind each other.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    from: Location,
    blocks: usize,
}

impl Stretch {
    pub(crate) fn of(slots: &[Slot]) -> Self {
        Self { from: slots[0].location, blocks: blocks_of(slots) }
    }

    /// Where it begins.
    const fn from(self) -> Location {
        self.from
    }

    /// How long it is.
    pub(crate) const fn blocks(self) -> usize {
        self.blocks
    }
}

/// How many blocks have to be read for some that lie behind each other.
pub(super) fn blocks_of(slots: &[Slot]) -> usize {
    let units = |slot: Option<&Slot>| slot.map_or((0, 0), Slot::extent);
    let (start, end) = (units(slots.first()).0, units(slots.last()).1);
    let blocks = end.div_ceil(u64::from(BLOCK_UNITS)).saturating_sub(start / u64::from(BLOCK_UNITS));
    usize::try_from(blocks).expect("a read is bounded")
}
