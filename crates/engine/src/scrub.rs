//! Scrub: what lies on flash and is of use is read, copy by copy, and compared with what was written.
//!
//! Flash loses bits where nobody reads, and a mirror helps only while one of the two copies is good. So damage is to be
//! found before the other copy is needed.
//!
//! Of a segment in a row, what the rest of the row gives back is one more copy. So the parity is compared, too: once the
//! homes of all segments of the row were, so that a block that has rotted in its home is not blamed on the parity. What
//! rots in a segment of a row that was emptied is known to nobody, and is.
//!
//! A segment is read in large pieces, in the order of its bytes. What is damaged, after a second try:
//! - a clean block is dropped: the origin has it;
//! - a dirty block whose other copy is good is made good by reclaim, which empties a segment whose copies differ;
//! - a dirty block without a good copy is lost. Reads of it fail, and the scrub names its file.
//!
//! Invariants:
//! - Only what was sealed when it began is read, and of that only what is durable.
//! - A read under way keeps its segment from being filled again. The bytes are compared with the slots of that time.
//! - While requests are under way there is one read, and after it a pause as long as it took: they lose at most half of
//!   what flash gives to one reader.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use headpond_base::{BLOCK, BLOCK_U64, Block, Buf, Errno, Generation, Location, MemberId, Nanos, ObjectId, SegmentId};
use headpond_format::{BLOCK_UNITS, Geometry, SegmentState};
use headpond_map::Slot;

use crate::effect::Outcome;
use crate::outbox::Outbox;
use crate::piece::{Form, Piece};
use crate::purpose::{Purpose, ScrubEffect, ScrubRead, ScrubbedRun};
use crate::request::RequestId;
use crate::stats::Stats;
use crate::store::{Contents, FOOTER_GUESS, Store, Stretch};

/// Reads at once while nobody asks for anything.
const DEPTH: u32 = 4;
/// The most that one read of a copy brings.
pub(crate) const READ_BLOCKS: u64 = (1 << 20) / BLOCK_U64;
/// Between pieces of one read there may be so much that is of no use.
pub(crate) const GAP_BLOCKS: u64 = 16;
/// The most lost blocks that are named one by one.
const LOST_TOLD: usize = 16;

/// How far a scrub is, or how the last one ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubShown {
    /// It goes on.
    pub running: bool,
    /// Bytes of data that were read and compared, each copy by itself.
    pub checked_bytes: u64,
    /// Bytes that are still to be.
    pub left_bytes: u64,
    /// How many blocks were damaged on which member.
    pub damaged: Vec<(MemberId, u64)>,
    /// Damaged blocks that were dropped: the origin has them.
    pub dropped_blocks: u64,
    /// Damaged blocks that the origin lacks and another member has: they are written anew.
    pub mended_blocks: u64,
    /// Damaged blocks that nobody has.
    pub lost_blocks: u64,
    /// The first of those.
    pub lost: Vec<LostBlock>,
}

/// A block that the origin lacks, and of which no copy is good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostBlock {
    /// The path of its file, as far as it is known.
    pub path: Vec<u8>,
    /// Which block of the file.
    pub block: Block,
}

/// One copy of one segment.
struct Visit {
    number: u64,
    segment: SegmentId,
    generation: Generation,
    /// The slot that has the copy.
    keeper: SegmentId,
    /// Those that have the copies still to be read.
    keepers: Vec<SegmentId>,
    /// Taken from the end. `None` until the footer is read.
    pieces: Option<Vec<Piece>>,
    under_way: u32,
    /// Dirty blocks that this copy has not got.
    bad: Blocks,
    before: Before,
    /// It was in a row when the visit began.
    in_row: bool,
}

type Blocks = BTreeSet<(ObjectId, Block)>;

/// What the copies of a segment that were read before say of its dirty blocks.
#[derive(Default)]
struct Before {
    /// Those that some copy has not got.
    damaged: Blocks,
    /// Those that no copy has; `None` before the first.
    nowhere: Option<Blocks>,
    /// The slots that were read to their end.
    read: Vec<SegmentId>,
}

impl Before {
    /// With what one more copy says, in the slot `keeper`.
    fn with(mut self, keeper: SegmentId, bad: Blocks) -> Self {
        let nowhere = self.nowhere.map_or_else(|| bad.clone(), |nowhere| &nowhere & &bad);
        self.read.push(keeper);
        Self { damaged: &self.damaged | &bad, nowhere: Some(nowhere), read: self.read }
    }
}

/// A row of which all homes are read before what it gives back.
#[derive(Default)]
struct RowVisit {
    /// The segment that lends its home to the parity.
    parity: Option<SegmentId>,
    /// Segments whose homes were read.
    waiting: Vec<(SegmentId, Generation, Before)>,
    /// Where in a segment which of them, or the parity, is damaged.
    damaged: BTreeSet<(u32, SegmentId)>,
}

impl RowVisit {
    /// Whether what the row does not give back of a segment, at these blocks, is for some damage that is known.
    fn explains(&self, segment: SegmentId, blocks: RangeInclusive<u32>) -> bool {
        let damaged = (*blocks.start(), SegmentId(0))..=(*blocks.end(), SegmentId(u32::MAX));
        self.damaged.range(damaged).any(|(_, other)| *other != segment)
    }
}

struct Run {
    request: RequestId,
    left: VecDeque<(SegmentId, Generation)>,
    row: RowVisit,
    visit: Option<Visit>,
    paused_until: Nanos,
}

/// The scrub of an engine: at most one at a time.
#[derive(Default)]
pub(crate) struct Scrub {
    run: Option<Run>,
    shown: Option<ScrubShown>,
    visits: u64,
    reads_under_way: u32,
}

/// What it is given of the engine, and its own state.
pub(crate) struct Scrubbing<'a> {
    pub(crate) scrub: &'a mut Scrub,
    pub(crate) store: &'a mut Store,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) stats: &'a mut Stats,
    pub(crate) now: Nanos,
    /// Requests are under way.
    pub(crate) busy: bool,
}

impl Scrub {
    /// Whether one goes on.
    pub(crate) const fn is_running(&self) -> bool {
        self.run.is_some()
    }

    /// Whether no read of it is under way.
    pub(crate) const fn is_idle(&self) -> bool {
        self.reads_under_way == 0
    }

    /// Until when it pauses, if it does.
    pub(crate) fn pauses(&self, now: Nanos) -> Option<Nanos> {
        self.run.as_ref().map(|run| run.paused_until).filter(|until| *until > now)
    }

    /// Ends it: who asked for it.
    pub(crate) fn end(&mut self) -> Option<RequestId> {
        let run = self.run.take()?;
        if let Some(shown) = &mut self.shown {
            shown.running = false;
        }
        Some(run.request)
    }

    /// How far it is, or how the last one of this use ended.
    pub(crate) fn shown(&self, store: &Store) -> Option<ScrubShown> {
        let shown = self.shown.clone()?;
        let Some(run) = &self.run else { return Some(shown) };
        let segments = store.log().segments();
        let bytes = |id: SegmentId, copies: usize| u64::from(segments.get(id).live) * BLOCK_U64 * copies as u64;
        let left: u64 = run.left.iter().map(|(id, _)| bytes(*id, copies_of(store, *id).count())).sum();
        let of_row: u64 = run.row.waiting.iter().map(|(id, ..)| bytes(*id, 1)).sum();
        // Of the copy that is being read, as if it were whole.
        let here = run.visit.as_ref().map_or(0, |visit| bytes(visit.segment, visit.keepers.len() + 1));
        Some(ScrubShown { left_bytes: left + of_row + here, ..shown })
    }
}

impl Scrubbing<'_> {
    /// Begins one. [`Errno::BUSY`] if one goes on.
    pub(crate) fn begin(&mut self, request: RequestId) -> Result<(), Errno> {
        if self.scrub.is_running() {
            return Err(Errno::BUSY);
        }
        let sealed = self.store.log().segments().iter().filter(|(_, segment)| segment.state == SegmentState::Sealed);
        let left = sealed.map(|(id, segment)| (id, segment.generation)).collect();
        self.scrub.run = Some(Run { request, left, row: RowVisit::default(), visit: None, paused_until: self.now });
        self.scrub.shown = Some(ScrubShown { running: true, ..ScrubShown::default() });
        Ok(())
    }

    /// Goes on. Gives who asked for it once all is read.
    pub(crate) fn pump(&mut self) -> Option<RequestId> {
        loop {
            let run = self.scrub.run.as_mut()?;
            let Some(visit) = &mut run.visit else {
                if run.left.is_empty() && run.row.waiting.is_empty() {
                    return self.scrub.end();
                }
                self.visit_next()?;
                continue;
            };
            if !is_as_it_was(self.store, visit) {
                let Some(Visit { segment, generation, keeper, bad, mut before, in_row, .. }) = run.visit.take() else {
                    continue;
                };
                if is_alive(self.store, segment, generation) && (in_row || is_in_row(self.store, segment)) {
                    // A row was made of it, or has ended. What else has it?
                    before.damaged.extend(bad);
                    let homes = self.store.log().segments().keepers(segment);
                    let keepers = homes.filter(|home| !before.read.contains(home)).collect();
                    self.visit(segment, generation, keepers, before);
                    continue;
                }
                // Reclaim has emptied it: what had a good copy has moved.
                let before = before.with(keeper, bad);
                self.settle(&before.damaged, &Blocks::new());
                continue;
            }
            let depth = if self.busy { 1 } else { DEPTH };
            if visit.pieces.is_none() || visit.under_way >= depth || self.busy && run.paused_until > self.now {
                return None;
            }
            let Some((from, blocks, runs)) = next_read(self.store, visit) else {
                if visit.under_way > 0 {
                    return None;
                }
                self.visited();
                continue;
            };
            let number = visit.number;
            self.read(number, ScrubRead { from, blocks, runs, again: false, since: self.now });
        }
    }

    /// Begins with what is read next: of a row whose parity waits, the homes first. `None` if that is still on its way to
    /// flash.
    fn visit_next(&mut self) -> Option<()> {
        let run = self.scrub.run.as_mut()?;
        let (log, segments) = (self.store.log(), self.store.log().segments());
        let of_row = |(id, _): &(SegmentId, Generation)| {
            run.row.parity.is_some() && segments.parity_of(*id) == run.row.parity && !log.is_being_written(*id)
        };
        if let Some(at) = run.left.iter().position(of_row) {
            let (segment, generation) = run.left.remove(at)?;
            let keepers = segments.keepers(segment).collect();
            self.visit(segment, generation, keepers, Before::default());
            return Some(());
        }
        if let Some((segment, generation, before)) = run.row.waiting.pop() {
            if !is_alive(self.store, segment, generation) {
                self.settle(&before.damaged, &Blocks::new());
                return Some(());
            }
            let parity: Vec<SegmentId> = run.row.parity.into_iter().collect();
            self.visit(segment, generation, parity, before);
            return Some(());
        }
        run.row = RowVisit::default();
        // One that was sealed just now may still be on its way to flash.
        let is_written = |(id, _): &(SegmentId, Generation)| !log.is_being_written(*id);
        let (segment, generation) = run.left.iter().position(is_written).and_then(|at| run.left.remove(at))?;
        run.row.parity = segments.parity_of(segment);
        let keepers = segments.keepers(segment).collect();
        self.visit(segment, generation, keepers, Before::default());
        Some(())
    }

    /// Goes on with the next of these copies of a segment. After the last: what its row gives back, later.
    fn visit(&mut self, segment: SegmentId, generation: Generation, mut keepers: Vec<SegmentId>, before: Before) {
        let Some(run) = &mut self.scrub.run else { return };
        run.visit = None;
        while let Some(keeper) = keepers.pop() {
            // A lost member has nothing that counts.
            if !has_copy(self.store, segment, generation, keeper) {
                continue;
            }
            self.scrub.visits += 1;
            let (number, bad) = (self.scrub.visits, Blocks::new());
            let (pieces, under_way, in_row) = (None, 0, is_in_row(self.store, segment));
            let visit = Visit { number, segment, generation, keeper, keepers, pieces, under_way, bad, before, in_row };
            run.visit = Some(visit);
            return self.read_footer(number, segment, FOOTER_GUESS);
        }
        let parity = self
            .store
            .log()
            .segments()
            .parity_of(segment)
            .filter(|parity| !before.read.contains(parity) && has_copy(self.store, segment, generation, *parity));
        if let Some(parity) = parity {
            if run.row.parity != Some(parity) && run.row.waiting.is_empty() {
                run.row = RowVisit { parity: Some(parity), ..RowVisit::default() };
            }
            // A row that was made meanwhile, of what was compared then, waits for the next scrub.
            if run.row.parity == Some(parity) {
                return run.row.waiting.push((segment, generation, before));
            }
        }
        self.settle(&before.damaged, &before.nowhere.unwrap_or_default());
    }

    /// All of a copy was read.
    fn visited(&mut self) {
        if let Some(Visit { segment, generation, keeper, keepers, bad, before, .. }) =
            self.scrub.run.as_mut().and_then(|run| run.visit.take())
        {
            self.visit(segment, generation, keepers, before.with(keeper, bad));
        }
    }

    /// Counts the damaged dirty blocks of a segment, and tells of those that no copy has.
    fn settle(&mut self, damaged: &Blocks, nowhere: &Blocks) {
        let Some(shown) = &mut self.scrub.shown else { return };
        shown.mended_blocks += (damaged.len() - nowhere.len()) as u64;
        shown.lost_blocks += nowhere.len() as u64;
        let room = LOST_TOLD - shown.lost.len();
        for (object, block) in nowhere.iter().take(room) {
            let path = self.store.get(*object).map_or_else(Vec::new, |known| self.store.path_of(known));
            shown.lost.push(LostBlock { path, block: *block });
        }
    }

    fn read_footer(&mut self, visit: u64, segment: SegmentId, len: usize) {
        let end = self.store.end_of(segment, len);
        self.start(visit, end.from, end.bytes, |segment| ScrubEffect::Footer { visit, segment, len: end.bytes });
    }

    fn read(&mut self, visit: u64, read: ScrubRead) {
        let (from, bytes) = (read.from, read.blocks * BLOCK);
        self.start(visit, from, bytes, |segment| ScrubEffect::Blocks { visit, segment, read });
    }

    fn start(&mut self, number: u64, from: Location, bytes: usize, effect: impl FnOnce(SegmentId) -> ScrubEffect) {
        let visit = self.scrub.run.as_mut().and_then(|run| run.visit.as_mut()).filter(|visit| visit.number == number);
        let Some(visit) = visit else { return };
        visit.under_way += 1;
        self.scrub.reads_under_way += 1;
        let purpose = Purpose::Scrub(effect(visit.segment));
        self.store.read_copy(self.outbox, visit.segment, visit.keeper, (from, bytes), purpose);
    }

    /// A read is over.
    pub(crate) fn answered(&mut self, effect: ScrubEffect, outcome: &Outcome) {
        let (ScrubEffect::Footer { visit, segment, .. } | ScrubEffect::Blocks { visit, segment, .. }) = effect;
        self.scrub.reads_under_way -= 1;
        self.store.copy_was_read(segment);
        let Some(run) = &mut self.scrub.run else { return };
        // Else it is of a scrub that was ended, or of a segment that has become another.
        let Some(found) = run.visit.as_mut().filter(|found| found.number == visit) else { return };
        found.under_way -= 1;
        match effect {
            ScrubEffect::Footer { len, .. } => {
                let mut pieces = match self.store.contents(segment, len, outcome) {
                    Contents::Behind(needed) => return self.read_footer(visit, segment, needed),
                    Contents::Pieces(pieces) => pieces,
                };
                pieces.retain(|piece| piece.form != Form::Blank);
                pieces.sort_by_key(|piece| std::cmp::Reverse(place_of(piece)));
                found.pieces = Some(pieces);
            }
            ScrubEffect::Blocks { read, .. } => {
                run.paused_until = self.now.plus(self.now.since(read.since));
                self.judge(visit, read, outcome);
            }
        }
    }

    /// Compares what was read with what must be there.
    fn judge(&mut self, number: u64, read: ScrubRead, outcome: &Outcome) {
        let bytes = if let Outcome::Bytes(bytes) = outcome { Some(bytes) } else { None };
        let judged: Vec<Vec<bool>> = read.runs.iter().map(|run| self.is_good(&read, run, bytes)).collect();
        if !read.again && judged.iter().flatten().any(|good| !good) {
            return self.read(number, ScrubRead { again: true, ..read });
        }
        let mut checked = 0;
        for (run, good) in read.runs.iter().zip(judged) {
            checked += run.slots.len() as u64;
            let blocks = (0..).map(|at| run.first.plus(at)).zip(&run.slots).zip(good);
            for ((block, slot), _) in blocks.filter(|(_, good)| !good) {
                self.is_damaged(run.object, block, *slot);
            }
        }
        if let Some(shown) = &mut self.scrub.shown {
            shown.checked_bytes += checked * BLOCK_U64;
        }
    }

    fn is_good(&self, read: &ScrubRead, run: &ScrubbedRun, bytes: Option<&Buf>) -> Vec<bool> {
        let from = usize::try_from(run.slots[0].location.0 - read.from.0).expect("a read is bounded") * BLOCK;
        let of_run = bytes.and_then(|bytes| {
            let to = from + blocks_of(run) * BLOCK;
            (to <= bytes.len()).then(|| bytes.slice(from..to))
        });
        self.store.read_back(run.object, run.first, &run.slots, of_run.as_ref()).good
    }

    /// A block is not what it must be in the copy that is being read.
    fn is_damaged(&mut self, object: ObjectId, block: Block, was: Slot) {
        let Some(run) = self.scrub.run.as_mut() else { return };
        let Some(visit) = &mut run.visit else { return };
        let Some(shown) = &mut self.scrub.shown else { return };
        let Some(slot) = self.store.slot(object, block).filter(|slot| slot.is_where(&was)) else { return };
        let log = self.store.log();
        let is_of_row = log.segments().parity_of(visit.segment) == Some(visit.keeper);
        let blocks = blocks_in_segment(log.geometry(), slot);
        let is_explained = is_of_row && run.row.explains(visit.segment, blocks.clone());
        run.row.damaged.extend(blocks.map(|block| (block, visit.keeper)));
        if !is_explained {
            let member = log.segments().addresses().home(visit.keeper).member;
            match shown.damaged.iter_mut().find(|(other, _)| *other == member) {
                Some((_, blocks)) => *blocks += 1,
                None => shown.damaged.push((member, 1)),
            }
        }
        if !slot.dirty {
            // The block itself is good.
            if is_of_row {
                return;
            }
            shown.dropped_blocks += 1;
            self.stats.masked_flash_errors += 1;
            self.store.clear_slot(object, block);
            return;
        }
        self.store.note_differing(slot.location);
        visit.bad.insert((object, block));
    }
}

/// Whether the copy of a visit is still there.
fn is_as_it_was(store: &Store, visit: &Visit) -> bool {
    has_copy(store, visit.segment, visit.generation, visit.keeper)
}

/// Whether a sealed segment is still in this life, and has a copy in that slot, or the parity of its row is there. All
/// that is read of it must be on members that work.
fn has_copy(store: &Store, id: SegmentId, generation: Generation, keeper: SegmentId) -> bool {
    let (log, segments) = (store.log(), store.log().segments());
    let works = || log.works(segments.addresses().home(keeper).member);
    let has = segments.keepers(id).any(|other| other == keeper) && works();
    let has_row = || segments.parity_of(id) == Some(keeper) && log.rest_of_row_works(id);
    is_alive(store, id, generation) && (has || has_row())
}

fn is_alive(store: &Store, id: SegmentId, generation: Generation) -> bool {
    let segment = store.log().segments().get(id);
    (segment.state, segment.generation) == (SegmentState::Sealed, generation)
}

fn is_in_row(store: &Store, id: SegmentId) -> bool {
    store.log().segments().parity_of(id).is_some()
}

/// Which blocks of its segment have what is stored for a block.
fn blocks_in_segment(geometry: &Geometry, slot: Slot) -> RangeInclusive<u32> {
    let units = u64::from(BLOCK_UNITS);
    let (start, end) = slot.extent();
    let block = |unit: u64| geometry.block_in_segment(Location(unit / units));
    block(start)..=block(end - 1)
}

/// The slots that have a segment, and that of its row's parity: with it the rest of the row gives the segment back.
fn copies_of(store: &Store, id: SegmentId) -> impl Iterator<Item = SegmentId> {
    let segments = store.log().segments();
    segments.keepers(id).chain(segments.parity_of(id))
}

/// How many blocks of flash have a run.
fn blocks_of(run: &ScrubbedRun) -> usize {
    Stretch::of(&run.slots).blocks()
}

/// Where a piece begins, in the order of bytes.
const fn place_of(piece: &Piece) -> (Location, u8) {
    let unit = if let Form::Packed(unit, _) = piece.form { unit } else { 0 };
    (piece.at, unit)
}

/// What is read next of a copy: the first location, how many blocks, and what of use lies there.
fn next_read(store: &Store, visit: &mut Visit) -> Option<(Location, usize, Vec<ScrubbedRun>)> {
    let pieces = visit.pieces.as_mut()?;
    let (mut runs, mut end): (Vec<ScrubbedRun>, u64) = (Vec::new(), 0);
    while let Some(piece) = pieces.pop() {
        let mut of_piece = runs_of(store, &piece);
        let Some((first, last)) = of_piece.first().zip(of_piece.last()) else { continue };
        let (from, to) = (first.slots[0].location.0, last.slots[0].location.0 + blocks_of(last) as u64);
        let start = runs.first().map_or(from, |run| run.slots[0].location.0);
        if !runs.is_empty() && (from > end + GAP_BLOCKS || to - start > READ_BLOCKS) {
            pieces.push(piece);
            break;
        }
        end = end.max(to);
        runs.append(&mut of_piece);
    }
    let from = runs.first()?.slots[0].location;
    Some((from, usize::try_from(end - from.0).expect("a read is bounded"), runs))
}

/// The blocks of a piece that are of use, and durable.
fn runs_of(store: &Store, piece: &Piece) -> Vec<ScrubbedRun> {
    let mut runs: Vec<ScrubbedRun> = Vec::new();
    for index in 0..piece.count {
        let block = piece.first.plus(u64::from(index));
        let slot = store
            .slot(piece.object, block)
            .filter(|slot| piece.holds(index, *slot) && store.log().is_durable(slot.location));
        let Some(slot) = slot else { continue };
        match runs.last_mut() {
            Some(run) if run.first.plus(run.slots.len() as u64) == block => run.slots.push(slot),
            _ => runs.push(ScrubbedRun { object: piece.object, first: block, slots: vec![slot] }),
        }
    }
    runs
}
