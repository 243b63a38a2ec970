//! At a start, dirty blocks that a crash left in some of their places are written to the others.
//!
//! A crash leaves a batch that no sync covered on some of the members that were to have it, and recovery takes it. A
//! checkpoint that says so counts on all members. If the one that has the bytes were lost after that, reads of them would
//! fail, where a start without it would have had what was there before. So each place gets them first.
//!
//! Invariants:
//! - What is written somewhere has been read elsewhere, and is what each record there must be.
//! - A block of flash is copied as a whole: only from a place where all dirty records that have a part in it are good.
//! - No member is asked for anything else meanwhile: nothing is appended before the first checkpoint.

use std::collections::VecDeque;
use std::ops::Range;

use headpond_base::{BLOCK, BLOCK_U64, Block, Buf, Location, ObjectId, SegmentId};
use headpond_format::Address;
use headpond_log::ReadFrom;
use headpond_map::Slot;

use crate::effect::Outcome;
use crate::outbox::Outbox;
use crate::purpose::{HealEffect, Purpose};
use crate::scrub::{GAP_BLOCKS, READ_BLOCKS};
use crate::store::{Store, Stretch};

/// Stretches that are read at once, each in all of its places.
const STRETCHES_AT_ONCE: usize = 4;
/// Nothing is read while so many writes are under way.
const WRITES_AT_ONCE: usize = 16;

/// A dirty block, or the dirty ones of a packed record that are neighbours.
struct Record {
    object: ObjectId,
    first: Block,
    slots: Vec<Slot>,
}

impl Record {
    /// The blocks of flash that have a part of it.
    fn on_flash(&self) -> Range<u64> {
        let from = self.slots[0].location.0;
        from..from + Stretch::of(&self.slots).blocks() as u64
    }
}

/// What is read in one go.
struct Records {
    records: Vec<Record>,
    on_flash: Range<u64>,
}

impl Records {
    fn segment(&self, store: &Store) -> SegmentId {
        store.segment_of(Location(self.on_flash.start))
    }

    /// The parts that have no block of flash in common.
    fn apart(self) -> Vec<Self> {
        joined(self.records, |_, _| false)
    }
}

/// Joins records, which are in the order of their places, with the one before: where `joins` says so of what there is and
/// the next one's blocks; and in any case if they share a block of flash, which is of one batch then. So each block is
/// judged by all that has a part in it.
fn joined(records: Vec<Record>, joins: impl Fn(&Records, &Range<u64>) -> bool) -> Vec<Records> {
    let mut all: Vec<Records> = Vec::new();
    for record in records {
        let on_flash = record.on_flash();
        match all.last_mut() {
            Some(last) if on_flash.start < last.on_flash.end || joins(last, &on_flash) => {
                last.on_flash.end = last.on_flash.end.max(on_flash.end);
                last.records.push(record);
            }
            _ => all.push(Records { records: vec![record], on_flash }),
        }
    }
    all
}

/// The same, being read.
struct Reading {
    number: u64,
    what: Records,
    places: Vec<Address>,
    /// What each place has.
    brought: Vec<Option<Buf>>,
    left: usize,
}

/// Owned by the engine, until all is written.
#[derive(Default)]
pub(crate) struct Heal {
    left: VecDeque<Records>,
    reading: Vec<Reading>,
    begun: u64,
    writes_under_way: usize,
    has_written: bool,
}

impl Heal {
    /// Finds what some place may lack.
    pub(crate) fn of(store: &Store) -> Self {
        let mut records = differing(store);
        records.sort_by_key(|record| record.slots[0].extent());
        let left: VecDeque<Records> = joined(records, |last, next| {
            last.segment(store) == store.segment_of(Location(next.start))
                && next.start <= last.on_flash.end + GAP_BLOCKS
                && next.end <= last.on_flash.start + READ_BLOCKS
        })
        .into();
        Self { left, ..Self::default() }
    }

    /// Whether nothing is left to be done, nor under way.
    pub(crate) fn is_over(&self) -> bool {
        self.left.is_empty() && self.reading.is_empty() && self.writes_under_way == 0
    }

    /// Whether something was written, which is to become durable.
    pub(crate) const fn has_written(&self) -> bool {
        self.has_written
    }

    /// Goes on as far as it can without an answer.
    pub(crate) fn pump(&mut self, store: &Store, outbox: &mut Outbox) {
        while self.reading.len() < STRETCHES_AT_ONCE
            && self.writes_under_way < WRITES_AT_ONCE
            && let Some(what) = self.left.pop_front()
        {
            let places = places(store, &what);
            // One that is not here has none of them, and one may be lost meanwhile.
            if places.len() < 2 {
                continue;
            }
            self.begun += 1;
            let (number, left) = (self.begun, places.len());
            let len = u32::try_from((what.on_flash.end - what.on_flash.start) * BLOCK_U64).expect("a read is bounded");
            for (place, at) in places.iter().enumerate() {
                outbox.read_flash(Purpose::Heal(HealEffect::Read { number, place }), &ReadFrom::Place(*at), len);
            }
            self.reading.push(Reading { number, what, brought: vec![None; left], places, left });
        }
    }

    /// Something that was asked for is over.
    pub(crate) fn answered(&mut self, effect: &HealEffect, outcome: Outcome, store: &Store, outbox: &mut Outbox) {
        match *effect {
            HealEffect::Read { number, place } => {
                let at = self.reading.iter().position(|reading| reading.number == number);
                let at = at.expect("a read is answered once");
                let reading = &mut self.reading[at];
                reading.brought[place] = if let Outcome::Bytes(bytes) = outcome { Some(bytes) } else { None };
                reading.left -= 1;
                if reading.left == 0 {
                    let mut reading = self.reading.swap_remove(at);
                    if reading.brought.iter().any(Option::is_none) {
                        // One bad sector says nothing of what lies around it, which must not be written over.
                        let mut parts = reading.what.apart();
                        if parts.len() > 1 {
                            return parts.into_iter().rev().for_each(|part| self.left.push_front(part));
                        }
                        let Some(whole) = parts.pop() else { return };
                        reading.what = whole;
                    }
                    for (at, data) in reading.lacking(store) {
                        self.writes_under_way += 1;
                        self.has_written = true;
                        outbox.write_flash(Purpose::Heal(HealEffect::Written), at, data);
                    }
                }
            }
            HealEffect::Written => self.writes_under_way -= 1,
        }
    }
}

impl Reading {
    /// What the places lack of the records: what to write where.
    fn lacking(&self, store: &Store) -> Vec<(Address, Buf)> {
        let start = self.what.on_flash.start;
        let index = |block: u64| usize::try_from(block - start).expect("a read is bounded");
        let blocks = index(self.what.on_flash.end);
        let mut lacks = vec![vec![false; blocks]; self.places.len()];
        for record in &self.what.records {
            let on_flash = record.on_flash();
            let (from, to) = (index(on_flash.start), index(on_flash.end));
            for (brought, lacks) in self.brought.iter().zip(&mut lacks) {
                let bytes = brought.as_ref().filter(|bytes| bytes.len() == blocks * BLOCK);
                let bytes = bytes.map(|bytes| bytes.slice(from * BLOCK..to * BLOCK));
                if !store.read_back(record.object, record.first, &record.slots, bytes.as_ref()).all_good() {
                    lacks[from..to].fill(true);
                }
            }
        }
        let source = |block: usize| lacks.iter().position(|lacks| !lacks[block]);
        let mut writes = Vec::new();
        for (place, lacks) in self.places.iter().zip(&lacks) {
            let mut at = 0;
            while at < blocks {
                let from = if lacks[at] { source(at) } else { None };
                let end = (at + 1..blocks).find(|next| !lacks[*next] || source(*next) != from).unwrap_or(blocks);
                if let Some(bytes) = from.and_then(|from| self.brought[from].as_ref()) {
                    writes.push((place.plus((at * BLOCK) as u64), bytes.slice(at * BLOCK..end * BLOCK)));
                }
                at = end;
            }
        }
        writes
    }
}

/// The places of what is read in one go, on members that work.
fn places(store: &Store, what: &Records) -> Vec<Address> {
    let log = store.log();
    let places = log.segments().places(what.segment(store), Location(what.on_flash.start));
    places.filter(|at| log.works(at.member)).collect()
}

/// What may be lacking, as records.
fn differing(store: &Store) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for (object, block, slot) in store.differing_blocks() {
        match records.last_mut() {
            Some(last)
                if last.object == object
                    && last.first.plus(last.slots.len() as u64) == block
                    && last.slots.last().is_some_and(|before| before.goes_on_in(&slot)) =>
            {
                last.slots.push(slot);
            }
            _ => records.push(Record { object, first: block, slots: vec![slot] }),
        }
    }
    records
}
