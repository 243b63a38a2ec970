//! Makes rows: sealed, mirrored segments get a parity, and then need their copies no more.
//!
//! One row at a time, and of that one piece: the pieces of all segments are read in their homes, compared with the map,
//! combined, and written where the parity lies. Once all is written, one sync makes the row durable, footers of its
//! segments included. Then the log has it.
//!
//! Invariants:
//! - A parity is made of what the homes have. If a live block there is damaged, or cannot be read, no row is made, and
//!   reclaim empties its segment.
//! - If a segment is emptied meanwhile, or a member lost, no row is made.
//! - The home of the parity is given back once nothing is written to it any more.
//! - While requests are under way there is, after each piece, a pause as long as it took.

use headpond_base::{BLOCK, BLOCK_U64, Buf, Location, Nanos};
use headpond_format::{BLOCK_UNITS, combined};
use headpond_log::ChosenRow;
use headpond_map::Slot;

use crate::effect::Outcome;
use crate::outbox::Outbox;
use crate::piece::{Form, Piece};
use crate::purpose::{Purpose, RowEffect};
use crate::reclaim::Reclaim;
use crate::stats::Stats;
use crate::store::{Contents, FOOTER_GUESS, Store, WRITE_RESERVE};

/// What one read brings is 1 MiB at most. Of that, so many blocks were read before: a packed record that ends in a piece
/// may begin in the one before.
const LEAD_BLOCKS: u32 = 16;
const PIECE_BLOCKS: u32 = (1 << 20) / BLOCK as u32 - LEAD_BLOCKS;
/// How long it waits before it looks again, if no row could be made.
const LOOK_AGAIN: Nanos = Nanos(Nanos::SECOND.0 / 20);

enum Stage {
    Footers,
    /// A piece, from this block of the segments on, to that one.
    Reading(u32, u32),
    /// The same, of the parity.
    Writing(u32),
    Syncing,
    /// No row is made.
    GivenUp,
}

/// A row that is being made.
struct Run {
    chosen: ChosenRow,
    /// Of each segment, in the order of its bytes.
    pieces: Vec<Vec<Piece>>,
    /// What was read of each.
    read: Vec<Option<Buf>>,
    stage: Stage,
    under_way: usize,
    since: Nanos,
}

/// Owned by the engine.
#[derive(Default)]
pub(crate) struct MakeRows {
    run: Option<Run>,
    paused_until: Nanos,
    /// The next generation when it was last looked for a row, in vain.
    looked_at: Option<u64>,
}

impl MakeRows {
    /// Whether nothing of it is under way.
    pub(crate) const fn is_idle(&self) -> bool {
        self.run.is_none()
    }

    /// Until when it pauses, if it has something to do then.
    pub(crate) fn pauses(&self, store: &Store, now: Nanos) -> Option<Nanos> {
        let waits = match &self.run {
            Some(run) => run.under_way == 0,
            None => store.log().makes_rows() && self.looked_at != Some(store.log().next_generation().0),
        };
        Some(self.paused_until).filter(|until| waits && *until > now)
    }
}

/// What it is given of the engine, and its own state.
pub(crate) struct MakingRows<'a> {
    pub(crate) rows: &'a mut MakeRows,
    pub(crate) store: &'a mut Store,
    pub(crate) reclaim: &'a Reclaim,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) stats: &'a mut Stats,
    pub(crate) now: Nanos,
    /// Requests are under way.
    pub(crate) busy: bool,
    /// No row is begun, and none goes on.
    pub(crate) ending: bool,
    /// Members change, or one is lost: no row is begun.
    pub(crate) changing: bool,
}

impl MakingRows<'_> {
    /// Begins, and goes on.
    pub(crate) fn pump(&mut self) {
        if self.rows.run.is_none() {
            self.begin();
        }
        loop {
            let may_be = self.rows.run.as_ref().is_some_and(|run| self.store.log().may_be_row(&run.chosen));
            let paused = self.rows.paused_until > self.now && self.busy;
            let Some(run) = &mut self.rows.run else { return };
            // Before it is waited for what is under way: later it might fit again, with segments of another life.
            if self.ending || !may_be {
                run.stage = Stage::GivenUp;
            }
            if run.under_way > 0 {
                return;
            }
            if paused && !matches!(run.stage, Stage::GivenUp) {
                return;
            }
            match run.stage {
                Stage::Footers => self.read_piece(0),
                Stage::Reading(from, to) => self.write_piece(from, to),
                Stage::Writing(to) => self.written(to),
                Stage::Syncing => {
                    if let Some(run) = self.rows.run.take() {
                        self.store.add_row(run.chosen);
                        self.stats.rows_made += 1;
                    }
                    return;
                }
                Stage::GivenUp => {
                    if let Some(run) = self.rows.run.take() {
                        self.store.let_go_of_row(&run.chosen);
                    }
                    return;
                }
            }
        }
    }

    /// Chooses segments, if it is time to, and reads what they hold.
    fn begin(&mut self) {
        let log = self.store.log();
        if self.ending || self.changing || self.rows.paused_until > self.now || !log.makes_rows() {
            return;
        }
        // A row takes a segment before it gives back several.
        let free = log.free_segments();
        if free <= WRITE_RESERVE || log.is_held() || !log.takes_writes() {
            return;
        }
        let narrow = free < 2 * self.store.free_wanted();
        self.rows.looked_at = Some(log.next_generation().0);
        let reclaim = self.reclaim;
        let Some(chosen) = self.store.choose_row(narrow, |id| !reclaim.is_emptying(id)) else {
            self.rows.paused_until = self.now.plus(LOOK_AGAIN);
            return;
        };
        self.rows.looked_at = None;
        let segments = chosen.segments.len();
        let (pieces, read) = (vec![Vec::new(); segments], vec![None; segments]);
        let (stage, since) = (Stage::Footers, self.now);
        self.rows.run = Some(Run { chosen, pieces, read, stage, under_way: 0, since });
        (0..segments).for_each(|which| self.read_footer(which, FOOTER_GUESS));
    }

    fn read_footer(&mut self, which: usize, len: usize) {
        let Some(run) = &mut self.rows.run else { return };
        let segment = run.chosen.segments[which];
        let end = self.store.end_of(segment, len);
        run.under_way += 1;
        let purpose = Purpose::MakeRow(RowEffect::Footer { which, len: end.bytes });
        self.store.read_copy(self.outbox, segment, segment, (end.from, end.bytes), purpose);
    }

    /// Reads the piece of each segment that begins with this block.
    fn read_piece(&mut self, from: u32) {
        let Some(run) = &mut self.rows.run else { return };
        let geometry = self.store.log().geometry();
        let to = geometry.segment_blocks().min(from + PIECE_BLOCKS);
        let lead = from.min(LEAD_BLOCKS);
        let bytes = (to - from + lead) as usize * BLOCK;
        (run.stage, run.since) = (Stage::Reading(from, to), self.now);
        for (which, segment) in run.chosen.segments.iter().enumerate() {
            let first = self.store.log().geometry().first_location(*segment).plus(from - lead);
            run.under_way += 1;
            let purpose = Purpose::MakeRow(RowEffect::Piece { which });
            self.store.read_copy(self.outbox, *segment, *segment, (first, bytes), purpose);
        }
    }

    /// All of a piece is read.
    fn write_piece(&mut self, from: u32, to: u32) {
        let Some(run) = &mut self.rows.run else { return };
        let lead = from.min(LEAD_BLOCKS);
        let geometry = *self.store.log().geometry();
        let mut parts: Vec<Buf> = Vec::with_capacity(run.read.len());
        for (which, segment) in run.chosen.segments.iter().enumerate() {
            let first = geometry.first_location(*segment);
            let piece = (first.plus(from - lead), first.plus(from), first.plus(to));
            let read = run.read[which].take();
            if let Some(bytes) = read.filter(|bytes| is_sound(self.store, &run.pieces[which], bytes, piece)) {
                let behind = lead as usize * BLOCK;
                parts.push(bytes.slice(behind..bytes.len()));
            } else {
                run.stage = Stage::GivenUp;
                self.store.note_differing(first);
                return;
            }
        }
        let data = combined(parts.iter().map(|part| &part[..]), (to - from) as usize * BLOCK);
        let first = geometry.first_location(run.chosen.segments[0]).plus(from);
        let at = self.store.log().segments().addresses().within(run.chosen.parity, first);
        run.stage = Stage::Writing(to);
        run.under_way += 1;
        self.outbox.write_flash(Purpose::MakeRow(RowEffect::Written), at, data);
    }

    /// The parity is written up to here.
    fn written(&mut self, to: u32) {
        let Some(run) = &mut self.rows.run else { return };
        self.rows.paused_until = self.now.plus(self.now.since(run.since));
        if to < self.store.log().geometry().segment_blocks() {
            return self.read_piece(to);
        }
        let (log, chosen) = (self.store.log(), &run.chosen);
        let home = |id: &_| log.segments().addresses().home(*id).member;
        let members: Vec<_> = chosen.segments.iter().chain([&chosen.parity]).map(home).collect();
        run.stage = Stage::Syncing;
        run.under_way += 1;
        self.outbox.sync_flash(Purpose::MakeRow(RowEffect::Synced), &members);
    }

    /// Something that it waited for is there.
    pub(crate) fn answered(&mut self, effect: RowEffect, outcome: Outcome) {
        let Some(run) = &mut self.rows.run else { return };
        run.under_way -= 1;
        match effect {
            RowEffect::Footer { which, len } => {
                let segment = run.chosen.segments[which];
                self.store.copy_was_read(segment);
                match self.store.contents(segment, len, &outcome) {
                    Contents::Behind(needed) => self.read_footer(which, needed),
                    Contents::Pieces(mut pieces) => {
                        pieces.retain(|piece| piece.form != Form::Blank);
                        pieces.sort_by_key(|piece| piece.at);
                        run.pieces[which] = pieces;
                    }
                }
            }
            RowEffect::Piece { which } => {
                self.store.copy_was_read(run.chosen.segments[which]);
                run.read[which] = if let Outcome::Bytes(bytes) = outcome { Some(bytes) } else { None };
            }
            RowEffect::Written | RowEffect::Synced => {
                if let Outcome::Failed(_) = outcome {
                    run.stage = Stage::GivenUp;
                }
            }
        }
    }
}

/// Whether all that is of use and ends in a piece of a segment is what was written. `bytes` begin with the first
/// location; the piece goes from the second to the third.
fn is_sound(store: &Store, pieces: &[Piece], bytes: &Buf, (base, from, to): (Location, Location, Location)) -> bool {
    if bytes.len() as u64 != (to.0 - base.0) * BLOCK_U64 {
        return false;
    }
    // No record of the log is longer than this.
    let near = pieces.partition_point(|piece| piece.at.0 + headpond_format::BATCH_PAYLOAD_BLOCKS_MAX as u64 <= base.0);
    let near = pieces[near..].iter().take_while(|piece| piece.at < to);
    near.into_iter().all(|piece| {
        let mut index = 0;
        while index < piece.count {
            let mut slots: Vec<Slot> = Vec::new();
            let first = index;
            while index < piece.count
                && let Some(slot) = live(store, piece, index)
                && ends_within(slot, from, to)
                && slots.last().is_none_or(|last| last.goes_on_in(&slot))
            {
                slots.push(slot);
                index += 1;
            }
            if slots.is_empty() {
                index += 1;
                continue;
            }
            let (start, end) = slots[0].extent();
            let block = |units: u64| usize::try_from(units - base.0).expect("a read is bounded") * BLOCK;
            let units = u64::from(BLOCK_UNITS);
            let stored = bytes.slice(block(start / units)..block(end.div_ceil(units)));
            let block = piece.first.plus(u64::from(first));
            if !store.read_back(piece.object, block, &slots, Some(&stored)).all_good() {
                return false;
            }
        }
        true
    })
}

/// The slot of a block of a piece, if the map has it there.
fn live(store: &Store, piece: &Piece, index: u32) -> Option<Slot> {
    let slot = store.slot(piece.object, piece.first.plus(u64::from(index)));
    slot.filter(|slot| piece.holds(index, *slot) && !slot.is_blank())
}

/// Whether what is stored for a block ends between two locations.
fn ends_within(slot: Slot, from: Location, to: Location) -> bool {
    let last = (slot.extent().1 - 1) / u64::from(BLOCK_UNITS);
    (from.0..to.0).contains(&last)
}
