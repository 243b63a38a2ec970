//! Reclaim is eviction: a full segment is emptied, so that it can be filled again.
//!
//! Of a victim's blocks, dead ones are free; clean ones that the policy does not keep (`keep.rs`)
//! move on to the cold stream or are dropped, as `victim.rs` says; those that it keeps move on to the hot stream; dirty
//! ones move on to the host stream, so that room never waits for the origin. It goes a few reads at a time and starts
//! while some segments are still free: nobody waits for it but on a pool that is written faster
//! than it can move.
//!
//! Which segment is next: `victim.rs`. Whether moving gains anything: `gain.rs`.
//!
//! [`Reclaim`] is its state, which nobody else reaches; [`Reclaiming`] is that with what of the engine it is given.
//!
//! What is pinned moves on as what is dirty does, and waits for room with it. Only where there is none, none is on its
//! way and nothing dirty is waited for, pins give way: a pool that stands still serves nobody.
//!
//! What is kept and dirty fits, by the policy's bound. Where it does not for a while, the oldest
//! segments with the least dirty data go, and take half of what they keep along.

mod gain;
mod victim;

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{BLOCK, SegmentId, Sequence, Stream};
use headpond_format::BLOCK_UNITS;
use headpond_log::{DataRecord, Log, Segment};
use headpond_map::Slot;

use crate::destage::Destage;
use crate::effect::Outcome;
use crate::keep::{Keep, Keeping};
use crate::outbox::Outbox;
use crate::piece::{Form, Piece};
use crate::purpose::{Attempt, Purpose, ReclaimEffect};
use crate::stats::Stats;
use crate::store::{Contents, FOOTER_GUESS, MOVE_RESERVE, ReadBack, Store, Stretch};
use gain::Gain;
use victim::{Choice, Lingered};

/// A segment being emptied.
#[derive(Default)]
struct Victim {
    /// What it held, by its footer; taken from the end. `None` until the footer is read.
    pieces: Option<Vec<Piece>>,
    /// Pieces with dirty or pinned blocks, for which there was no room.
    held: Vec<Piece>,
    /// Live, dirty and kept blocks of the segment when its held pieces were last looked at.
    looked_at: (u32, u32, u32),
    under_way: u32,
    /// Blocks of the reads under way.
    reading: u32,
    /// Units of clean blocks that moved on so far.
    kept: u32,
    /// What lingers moves on, too.
    packs: bool,
}

/// What is being emptied.
pub(crate) struct Reclaim {
    victims: BTreeMap<SegmentId, Victim>,
    /// Segments with dirty blocks that cannot be read: they stay as they are.
    stuck: BTreeSet<SegmentId>,
    /// Blank pieces that may still be dealt with before others have their turn.
    blanks_left: u32,
    gain: Gain,
    lingered: Lingered,
}

impl Reclaim {
    /// Of a pool of so many blocks.
    pub(crate) fn new(blocks: u64) -> Self {
        Self {
            victims: BTreeMap::new(),
            stuck: BTreeSet::new(),
            blanks_left: 0,
            gain: Gain::default(),
            lingered: Lingered::new(blocks),
        }
    }

    /// A block that lingered was asked for, and does not linger any more.
    pub(crate) fn lingering_was_asked_for(&mut self) {
        self.lingered.was_asked_for();
    }

    pub(crate) fn idle(&self) -> bool {
        self.victims.is_empty()
    }

    /// Whether it has nothing to do before destage makes something clean: each segment that is being emptied has pieces
    /// left for which there is no room.
    pub(crate) fn waits_for_destage(&self) -> bool {
        let waits = |victim: &Victim| victim.under_way == 0 && !victim.held.is_empty();
        self.blanks_left > 0 && self.victims.values().all(waits)
    }

    /// Whether a segment is being emptied.
    pub(crate) fn is_emptying(&self, segment: SegmentId) -> bool {
        self.victims.contains_key(&segment)
    }

    /// Whether a segment with so many dirty blocks is being emptied, or cannot be before destage has them.
    fn is_on(&self, segment: SegmentId, dirty: u32) -> bool {
        self.victims.contains_key(&segment) || dirty > 0 && self.stuck.contains(&segment)
    }

    /// Whether something that it asked flash for is still to come.
    pub(crate) fn is_under_way(&self) -> bool {
        self.victims.values().any(|victim| victim.under_way > 0)
    }

    /// Whether it goes on with nothing but time.
    pub(crate) fn waits_for_its_turn(&self) -> bool {
        self.blanks_left == 0 && !self.idle()
    }
}

/// Victims at once: one that reads while the other writes.
const VICTIMS_MAX: usize = 2;
/// Reads of a victim at once.
const DEPTH: u32 = 4;
/// The same where no room is wanted, but copies anew, while flash is busy: enough to go on.
const DEPTH_ASIDE: u32 = 1;
/// Blank pieces, which no read paces, at once: up to 32,000 blocks, some milliseconds, and two batches of entries.
const BLANKS_AT_ONCE: u32 = 128;
/// What reclaim is given of the engine, and its own state.
pub(crate) struct Reclaiming<'a> {
    pub(crate) reclaim: &'a mut Reclaim,
    pub(crate) store: &'a mut Store,
    /// Gives up some where nothing else can go.
    pub(crate) keep: &'a mut Keep,
    /// Learns which dirty blocks moved.
    pub(crate) destage: &'a mut Destage,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) stats: &'a mut Stats,
    /// Where the replay of the checkpoint that counts begins, and of one being written.
    pub(crate) replay_from: (Sequence, Option<Sequence>),
    /// Nothing more is begun.
    pub(crate) ending: bool,
    /// Some slots are to be emptied, and wait for segments to be free.
    pub(crate) empties: bool,
}

impl Reclaiming<'_> {
    const fn keeping(&mut self) -> Keeping<'_> {
        Keeping { keep: self.keep, store: self.store, stats: self.stats }
    }

    /// Starts and moves on what is being emptied.
    pub(crate) fn pump(&mut self) {
        if !self.store.takes_writes() {
            // Nothing can move any more, and nothing needs to.
            self.reclaim.victims.retain(|_, victim| victim.under_way > 0);
            return;
        }
        self.release_segments();
        self.note_gain();
        // Those that wait for room to move something must not keep others from making room.
        let most = if self.store.is_short_of_segments() { 2 * VICTIMS_MAX } else { VICTIMS_MAX };
        let weak = self.has_weak();
        let restores = weak && !self.wants_segments();
        self.store.restore_copies(restores);
        while !self.ending
            && self.reclaim.victims.len() < most
            && (weak || self.wants_segments() || self.makes_room_for_a_loss())
        {
            let Some(Choice { segment: victim, packs }) = self.choose_victim() else {
                if !self.wants_segments() {
                    break;
                }
                // All that is full is worth keeping, or dirty. Rather than wait for that to change:
                let blocks = self.store.log().geometry().segment_blocks();
                if self.reclaim.victims.is_empty() && self.keeping().keep_less(blocks) {
                    continue;
                }
                break;
            };
            if self.store.log().segments().get(victim).live == 0 {
                self.emptied(victim);
                continue;
            }
            self.reclaim.victims.insert(victim, Victim { packs, ..Victim::default() });
            self.read_footer(victim, FOOTER_GUESS);
        }
        if self.ending {
            // Half emptied is as good as full: the map says what counts.
            self.reclaim.victims.retain(|_, victim| victim.under_way > 0);
            return;
        }
        self.reclaim.blanks_left = BLANKS_AT_ONCE;
        let victims: Vec<_> = self.reclaim.victims.keys().copied().collect();
        for victim in victims {
            self.look_again_at_held(victim);
            self.empty_on(victim);
        }
        self.let_go_of_pins();
    }

    /// Drops the pinned blocks that wait for room, if there is no other way to get any.
    fn let_go_of_pins(&mut self) {
        let waits = self.store.log().segments().waiting() > 0
            || self.reclaim.victims.values().any(|victim| victim.under_way > 0 || victim.held.is_empty());
        if self.keep.pinned_blocks(self.store) == 0 || !self.store.is_short_of_segments() || waits {
            return;
        }
        let held: Vec<Piece> = self.reclaim.victims.values().flat_map(|victim| victim.held.iter().copied()).collect();
        let there = |piece: &Piece, index: u32| {
            let slot = self.store.slot(piece.object, piece.first.plus(u64::from(index)));
            slot.filter(|slot| piece.holds(index, *slot))
        };
        let slots = || held.iter().flat_map(|piece| (0..piece.count).map(move |index| (*piece, index)));
        if slots().any(|(piece, index)| there(&piece, index).is_some_and(|slot| slot.dirty)) {
            return;
        }
        let pinned: Vec<_> = slots().filter(|(piece, index)| there(piece, *index).is_some()).collect();
        for (piece, index) in pinned {
            self.store.clear_slot(piece.object, piece.first.plus(u64::from(index)));
            self.stats.evicted_blocks += 1;
        }
        let victims: Vec<_> = self.reclaim.victims.keys().copied().collect();
        for victim in victims {
            if let Some(victim) = self.reclaim.victims.get_mut(&victim) {
                victim.held.clear();
            }
            self.empty_on(victim);
        }
    }

    fn wants_segments(&self) -> bool {
        let soon = self.store.free_soon() + self.reclaim.victims.len();
        soon < self.store.free_wanted() || self.store.is_crowded() && self.reclaim.victims.is_empty()
    }

    /// Whether one is emptied where few are free, because the loss of the others would leave too few.
    fn makes_room_for_a_loss(&self) -> bool {
        self.reclaim.victims.is_empty() && self.store.log().lacks_room_for_a_loss(true)
    }

    /// Whether some segment is weak: its dirty blocks lack a copy, or its member is to go.
    fn has_weak(&mut self) -> bool {
        if !self.store.log().may_have_weak() {
            return false;
        }
        let log = self.store.log();
        let has_weak = log.segments().iter().any(|(id, _)| log.is_weak(id));
        if !has_weak {
            self.store.has_no_weak();
        }
        has_weak
    }

    /// Frees emptied segments, and asks for what they wait for if they are needed.
    fn release_segments(&mut self) {
        let segments = self.store.log().segments();
        if segments.waiting() == 0 && segments.rows() == 0 {
            return;
        }
        let (replay_from, begun) = self.replay_from;
        self.store.release_segments(self.outbox, replay_from, begun);
        let segments = self.store.log().segments();
        let log = self.store.log();
        let is_short = log.free_segments() < self.store.free_wanted() || log.lacks_room_for_a_loss(false);
        let needed = segments.waiting() > 0 && (self.empties || is_short);
        if needed && self.store.log().durable().next() < self.store.log().next_sequence() {
            self.store.want_sync();
        }
    }

    fn read_footer(&mut self, segment: SegmentId, len: usize) {
        let end = self.store.end_of(segment, len);
        if let Some(victim) = self.reclaim.victims.get_mut(&segment) {
            victim.under_way += 1;
        }
        let purpose = Purpose::Reclaim(ReclaimEffect::Footer { segment, len: end.bytes });
        self.store.read_end(self.outbox, segment, &end, purpose);
    }

    /// Something that reclaim waited for is there.
    pub(crate) fn answered(&mut self, effect: ReclaimEffect, outcome: Outcome) {
        match effect {
            ReclaimEffect::Footer { segment, len } => {
                self.store.copy_was_read(segment);
                if let Some(victim) = self.reclaim.victims.get_mut(&segment) {
                    victim.under_way -= 1;
                }
                let pieces = match self.store.contents(segment, len, &outcome) {
                    Contents::Behind(needed) => return self.read_footer(segment, needed),
                    Contents::Pieces(pieces) => pieces,
                };
                if let Some(victim) = self.reclaim.victims.get_mut(&segment) {
                    victim.pieces = Some(pieces);
                }
            }
            ReclaimEffect::Move { segment, piece, slots, attempt } => {
                let found = self.store.flash_was_read(piece.object, piece.first, &slots, &outcome);
                if let Some(victim) = self.reclaim.victims.get_mut(&segment) {
                    victim.under_way -= 1;
                    victim.reading -= piece.count;
                }
                let next = if found.all_good() { None } else { self.store.next_attempt(attempt, &slots[0]) };
                match next {
                    Some(next) => self.read_piece(segment, piece, slots, next),
                    None => self.move_on(segment, piece, &slots, &found),
                }
            }
        }
    }

    /// Reads of a victim that may be under way now, and blocks of them beyond which no other begins.
    fn depth(&self) -> (u32, u32) {
        let aside = || self.store.log().is_busy() && !self.wants_segments();
        let blocks = self.moved_at_once();
        match self.replay_from {
            // Reads would wait for both.
            (_, Some(_)) if self.store.log().restores_copies() => (0, 0),
            _ if aside() => (DEPTH_ASIDE, blocks),
            _ => (DEPTH, blocks),
        }
    }

    /// Blocks of a record that move at once, at most, if it is not packed.
    fn moved_at_once(&self) -> u32 {
        if self.store.log().restores_copies() { Log::RESTORED_BLOCKS } else { u32::MAX }
    }

    /// Held pieces have their turn again once some block of their segment was made clean, or is elsewhere: to drop that
    /// needs no room, and room may never come otherwise.
    fn look_again_at_held(&mut self, segment: SegmentId) {
        let Segment { live, dirty, kept, .. } = *self.store.log().segments().get(segment);
        let Some(victim) = self.reclaim.victims.get_mut(&segment) else { return };
        if victim.held.is_empty() || victim.looked_at == (live, dirty, kept) {
            return;
        }
        victim.looked_at = (live, dirty, kept);
        if let Some(pieces) = &mut victim.pieces {
            pieces.append(&mut victim.held);
        }
    }

    /// Moves on with emptying a segment.
    fn empty_on(&mut self, segment: SegmentId) {
        loop {
            let ((reads, blocks), most) = (self.depth(), self.moved_at_once());
            let room = self.store.log().free_segments() >= MOVE_RESERVE;
            let Some(victim) = self.reclaim.victims.get_mut(&segment) else { return };
            let Some(pieces) = &mut victim.pieces else { return };
            if victim.under_way >= reads || victim.reading >= blocks || self.reclaim.blanks_left == 0 {
                return;
            }
            if room {
                pieces.append(&mut victim.held);
            }
            let Some(mut piece) = pieces.pop() else {
                if victim.under_way == 0 && victim.held.is_empty() {
                    self.emptied(segment);
                }
                return;
            };
            if piece.form == Form::Plain && piece.count > most {
                pieces.push(piece.part(most, piece.count - most));
                piece = piece.part(0, most);
            }
            self.reclaim.blanks_left -= u32::from(piece.form == Form::Blank);
            self.empty_piece(segment, piece);
        }
    }

    /// Drops the cold blocks of a piece, and starts moving the first run of others; what is
    /// behind that run is put back.
    fn empty_piece(&mut self, segment: SegmentId, piece: Piece) {
        let budget = self.store.log().geometry().segment_blocks() * BLOCK_UNITS / 2;
        let mut run: Vec<Slot> = Vec::new();
        let mut run_from = 0;
        for index in 0..piece.count {
            let block = piece.first.plus(u64::from(index));
            let slot = self.store.get(piece.object).and_then(|known| known.map().get(block));
            let slot = slot.filter(|slot| piece.holds(index, *slot));
            let (kept, packs) =
                self.reclaim.victims.get(&segment).map_or((0, false), |victim| (victim.kept, victim.packs));
            let worth = slot.is_some_and(|slot| {
                slot.dirty
                    || self.stays(slot)
                    || (slot.kept || packs)
                        && (kept < budget || self.store.is_roomy())
                        && self.store.log().free_segments() > MOVE_RESERVE
                        && !self.moves_in_vain()
            });
            if worth && let Some(slot) = slot {
                if self.store.log().free_segments() < MOVE_RESERVE {
                    self.hold(segment, piece.part(index, 1));
                    continue;
                }
                if run.is_empty() {
                    run_from = index;
                }
                if !slot.dirty
                    && let Some(victim) = self.reclaim.victims.get_mut(&segment)
                {
                    victim.kept += slot.units();
                }
                run.push(slot);
                continue;
            }
            if let Some(slot) = slot {
                self.store.clear_slot(piece.object, block);
                self.stats.evicted_blocks += 1;
                if !slot.kept {
                    self.reclaim.lingered.was_dropped();
                }
            }
            if !run.is_empty() {
                let rest = piece.part(index + 1, piece.count - index - 1);
                if rest.count > 0
                    && let Some(pieces) =
                        self.reclaim.victims.get_mut(&segment).and_then(|victim| victim.pieces.as_mut())
                {
                    pieces.push(rest);
                }
                break;
            }
        }
        if !run.is_empty() {
            let count = u32::try_from(run.len()).expect("a record is bounded");
            let piece = piece.part(run_from, count);
            if piece.form == Form::Blank {
                self.move_on(segment, piece, &run, &ReadBack::of_blanks(run.len()));
            } else {
                self.read_piece(segment, piece, run, self.store.first_attempt());
            }
        }
    }

    fn read_piece(&mut self, segment: SegmentId, piece: Piece, slots: Vec<Slot>, attempt: Attempt) {
        if let Some(victim) = self.reclaim.victims.get_mut(&segment) {
            victim.under_way += 1;
            victim.reading += piece.count;
        }
        let stretch = Stretch::of(&slots);
        let effect = ReclaimEffect::Move { segment, piece, slots, attempt };
        self.store.read_flash(self.outbox, stretch, attempt, Purpose::Reclaim(effect));
    }

    /// Appends blocks that were read, as far as they are still what the map points to.
    fn move_on(&mut self, segment: SegmentId, piece: Piece, slots: &[Slot], found: &ReadBack) {
        let mut index = 0;
        while index < slots.len() {
            let block = piece.first.plus(index as u64);
            let present = self.store.get(piece.object).and_then(|known| known.map().get(block));
            let Some(slot) = present.filter(|slot| slot.is_where(&slots[index])) else {
                index += 1;
                continue;
            };
            if !found.good[index] {
                if !slot.dirty {
                    self.stats.masked_flash_errors += 1;
                    self.store.clear_slot(piece.object, block);
                }
                index += 1;
                continue;
            }
            let same = |at: usize| {
                let present =
                    self.store.get(piece.object).and_then(|known| known.map().get(piece.first.plus(at as u64)));
                found.good[at]
                    && present.is_some_and(|next| {
                        next.is_where(&slots[at])
                            && (next.dirty, next.kept, next.class) == (slot.dirty, slot.kept, slot.class)
                    })
            };
            let run = (index..slots.len()).take_while(|at| same(*at)).count();
            if self.store.log().free_segments() < MOVE_RESERVE {
                self.put_off(segment, piece, index, run, slot.dirty || self.stays(slot));
                index += run;
                continue;
            }
            let blocks = u32::try_from(run).expect("a record is bounded");
            let record = if slot.dirty {
                Store::dirty_record(piece.object, block, blocks, None)
            } else {
                let stream = if slot.kept { Stream::Hot } else { Stream::Cold };
                Store::clean_record(stream, piece.object, block, blocks)
            };
            let (record, kept) = (DataRecord { class: slot.class, whole: true, ..record }, slot.kept || slot.dirty);
            if slot.is_blank() {
                self.store.append_blank(record, kept, slot.class);
            } else {
                let from = &found.bytes[index * BLOCK..(index + run) * BLOCK];
                self.store.append_data(record, kept, slot.class, |payload| payload.copy_from_slice(from));
            }
            if slot.dirty {
                self.store.keep_age(&slots[index..index + run], piece.object, block);
                for (at, from) in (0..).zip(&slots[index..index + run]) {
                    let block = block.plus(at);
                    if let Some(to) = self.store.slot(piece.object, block) {
                        self.destage.note_moved(piece.object, block, *from, to);
                    }
                }
            }
            self.stats.moved_blocks += run as u64;
            index += run;
        }
    }

    /// Whether a clean block is pinned.
    const fn stays(&self, slot: Slot) -> bool {
        slot.kept && self.keep.is_pinned(slot.class)
    }

    /// There is no room to move these blocks now: clean ones go, those that stay are read again later.
    fn put_off(&mut self, segment: SegmentId, piece: Piece, index: usize, run: usize, stay: bool) {
        let first = piece.first.plus(index as u64);
        if !stay {
            for block in 0..run as u64 {
                self.store.clear_slot(piece.object, first.plus(block));
            }
            self.stats.evicted_blocks += run as u64;
            return;
        }
        let small = |number: usize| u32::try_from(number).expect("a record is bounded");
        self.hold(segment, piece.part(small(index), small(run)));
    }

    fn hold(&mut self, segment: SegmentId, piece: Piece) {
        if let Some(victim) = self.reclaim.victims.get_mut(&segment) {
            victim.held.push(piece);
        }
    }

    /// Everything that a segment held was handled.
    fn emptied(&mut self, segment: SegmentId) {
        self.reclaim.victims.remove(&segment);
        if self.store.log().segments().get(segment).live > 0 {
            // Dirty blocks that cannot be read. They stay, and are told as errors when read.
            self.reclaim.stuck.insert(segment);
            return;
        }
        self.reclaim.stuck.remove(&segment);
        self.store.empty_segment(segment);
        self.stats.segments_reclaimed += 1;
        self.release_segments();
    }
}
