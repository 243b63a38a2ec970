//! What is known of one object's space at the origin, and the changes that wait for some.
//!
//! Invariants
//! - `reserved` has only what the origin has for good: nothing that destage is giving back, and nothing that was asked
//!   for before destage began to.
//! - `reserved` and `idle` have whole blocks.
//! - While destage gives space of the object back, the origin is not asked for any: what comes in between is neither
//!   lost nor another file's.
//! - At most one question is under way.

use headpond_base::{BLOCK_U64, Block, Errno, RangeSet, blocks_for};

use crate::locks::OpId;

/// Changes that are asked for together, at most: what one thread does for the origin in one go.
const TOGETHER_MAX: usize = 64;

/// Space at the origin, from byte to byte.
pub(crate) type Bytes = (u64, u64);

/// Owned by the object.
#[derive(Default)]
pub(crate) struct ObjectSpace {
    reserved: RangeSet,
    /// The origin cannot keep space for this file: what is dirty of it is counted instead.
    keeps_none: bool,
    /// The origin has said whether it can.
    has_answered: bool,
    /// What the origin keeps for nobody: it was asked for, and became a hole before destage came to it.
    idle: RangeSet,
    waiting: Vec<Wish>,
    asked: Option<Asked>,
    /// Changes at the origin under way that give space of it back.
    giving: u32,
    /// How often space was given back.
    lost: u64,
    /// An earlier life may have left a run past the end.
    left_over: bool,
    /// An application asked for space past the end, up to here. It stays.
    kept_to: u64,
    /// The last destage of it met a quota.
    over_quota: bool,
}

/// What a change needs.
pub(crate) struct Wish {
    pub(crate) op: OpId,
    pub(crate) need: Vec<Bytes>,
    /// What it would like besides: behind what it needs, in a file that grows.
    pub(crate) ahead: Option<Bytes>,
    /// Who asks.
    pub(crate) user: u32,
    /// An application's own reservation, which the origin answers for itself.
    pub(crate) insists: bool,
    /// It was refused together with others, or with more than it needs.
    pub(crate) alone: bool,
}

/// A question under way.
struct Asked {
    wishes: Vec<Wish>,
    ranges: Vec<Bytes>,
    lost: u64,
}

/// A question for the origin.
pub(crate) struct Question {
    pub(crate) ranges: Vec<Bytes>,
    pub(crate) user: u32,
    pub(crate) insists: bool,
}

impl ObjectSpace {
    /// An earlier life may have left a run past the end.
    pub(crate) const fn note_left_over(&mut self) {
        self.left_over = true;
    }

    /// Whether the origin has space for these bytes, as far as that is the origin's business.
    pub(crate) fn has(&self, (start, end): Bytes) -> bool {
        self.keeps_none || self.reserved.contains(start, end)
    }

    /// Whether the origin keeps space that it was asked for.
    pub(crate) const fn keeps(&self) -> bool {
        !self.keeps_none
    }

    /// Whether the origin has said if it keeps space of this file.
    pub(crate) const fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Destage of the object ended, and why if it failed.
    pub(crate) fn destaged(&mut self, failed: Option<Errno>) {
        self.over_quota = failed.is_some_and(|errno| self.over_quota || errno == Errno::DQUOT);
    }

    /// Whether the last destage met a quota.
    pub(crate) const fn is_over_quota(&self) -> bool {
        self.over_quota
    }

    /// Whether all of this is reserved.
    pub(crate) fn is_reserved(&self, start: u64, end: u64) -> bool {
        self.reserved.contains(start, end)
    }

    /// The first byte at or after `from` that is reserved, or is not.
    pub(crate) fn next(&self, from: u64, reserved: bool) -> u64 {
        self.reserved.next(from, reserved)
    }

    /// The origin has this: it was asked for it.
    fn add(&mut self, (start, end): Bytes) {
        self.reserved.add(start, end);
        self.idle.remove(start, end);
    }

    /// The origin was found to have this. What is to become a hole there stays so. A block of which the origin has a
    /// part, because its own blocks are smaller, is not reserved.
    pub(crate) fn found(&mut self, (start, end): Bytes) {
        let (start, end) = (Block(blocks_for(start)).byte(), Block::holding(end).byte());
        let mut at = self.idle.next(start, false);
        while at < end {
            let to = self.idle.next(at, true).min(end);
            self.reserved.add(at, to);
            at = self.idle.next(to, false);
        }
    }

    /// Something is written to the origin's file itself, past the log.
    pub(crate) fn passed_by(&mut self, start: u64, end: u64) {
        self.idle.remove(Block::holding(start).byte(), Block(blocks_for(end)).byte());
    }

    /// The origin's file was made longer past the log. XFS takes as much again past the end of such a file, and keeps
    /// that for good once space of the file was ever asked for. Gives whether there may be such a run now.
    pub(crate) fn grew_past_the_log(&mut self) -> bool {
        self.left_over |= self.reserved.next(0, true) != u64::MAX;
        self.left_over
    }

    /// What is kept for nobody here is in use after all.
    pub(crate) fn not_idle(&mut self, (start, end): Bytes) {
        self.idle.remove(start, end);
    }

    /// Nothing is known any more: others changed the file.
    pub(crate) fn forget(&mut self) {
        (self.reserved, self.idle) = (RangeSet::default(), RangeSet::default());
        self.lost += 1;
    }

    /// A change makes a hole of these whole blocks: later ones ask for their space again.
    pub(crate) fn give(&mut self, start: u64, end: u64) {
        for (from, to) in self.reserved.within(start, end) {
            self.idle.add(from, to);
        }
        self.reserved.remove(start, end);
    }

    /// The origin gives this back, of its own file alone and at once.
    pub(crate) fn was_punched(&mut self, start: u64, end: u64) {
        self.begin_giving(start, end);
        self.given();
    }

    /// The next whole blocks below `end` that the origin keeps for nobody.
    pub(crate) fn next_idle(&self, end: u64) -> Option<Bytes> {
        self.idle.within(0, end).next()
    }

    /// The object ends here now: what lies behind goes.
    pub(crate) fn cut(&mut self, size: u64) {
        let end = Block(blocks_for(size)).byte();
        self.reserved.remove(end, u64::MAX);
        self.idle.remove(end, u64::MAX);
        self.kept_to = self.kept_to.min(end);
    }

    /// The origin begins to give this back. To be followed by [`ObjectSpace::given`].
    pub(crate) fn begin_giving(&mut self, start: u64, end: u64) {
        let (start, end) = (Block::holding(start).byte(), end.checked_next_multiple_of(BLOCK_U64).unwrap_or(end));
        self.reserved.remove(start, end);
        self.idle.remove(start, end);
        self.lost += 1;
        self.giving += 1;
    }

    /// It has done so, or failed.
    pub(crate) const fn given(&mut self) {
        self.giving -= 1;
    }

    /// Whether there may be a run past the object's end that nobody asked for but the engine.
    pub(crate) fn has_tail(&self, size: u64) -> bool {
        let end = Block(blocks_for(size)).byte();
        self.kept_to <= end && (self.left_over || self.reserved.reaches_beyond(end))
    }

    /// The run past the end is being given back.
    pub(crate) fn begin_giving_tail(&mut self, size: u64) {
        self.begin_giving(Block(blocks_for(size)).byte(), u64::MAX);
        self.left_over = false;
    }

    /// An application has space up to here.
    pub(crate) fn keep_to(&mut self, end: u64) {
        self.kept_to = self.kept_to.max(Block(blocks_for(end)).byte());
    }

    /// Whether changes wait for space.
    pub(crate) const fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || self.asked.is_some()
    }

    /// A change waits for space.
    pub(crate) fn wish(&mut self, wish: Wish) {
        self.waiting.push(wish);
    }

    /// The next question, if it can be asked now.
    pub(crate) fn question(&mut self) -> Option<Question> {
        if self.asked.is_some() || self.giving > 0 {
            return None;
        }
        let (user, alone, insists) = self.waiting.first().map(|first| (first.user, first.alone, first.insists))?;
        let most = if alone || insists { 1 } else { TOGETHER_MAX };
        let mut wishes: Vec<Wish> = Vec::new();
        let goes = |wish: &mut Wish| wish.user == user && wish.alone == alone && wish.insists == insists;
        for wish in self.waiting.extract_if(.., goes).take(most) {
            wishes.push(wish);
        }
        let mut ranges = RangeSet::default();
        for wish in &wishes {
            let ahead = wish.ahead.filter(|_| !alone);
            wish.need.iter().copied().chain(ahead).for_each(|(start, end)| ranges.add(start, end));
        }
        let ranges: Vec<Bytes> = ranges.beyond(0).collect();
        self.asked = Some(Asked { wishes, ranges: ranges.clone(), lost: self.lost });
        Some(Question { ranges, user, insists })
    }

    /// The origin has what was asked for, and these ranges. Answers with those who wait for it.
    pub(crate) fn granted(&mut self, found: &[Bytes], keeps: bool) -> Vec<OpId> {
        let Some(asked) = self.asked.take() else { return Vec::new() };
        self.has_answered = true;
        if !keeps {
            self.forget();
            self.keeps_none = true;
        } else if asked.lost == self.lost {
            asked.ranges.iter().for_each(|range| self.add(*range));
            found.iter().for_each(|range| self.found(*range));
        }
        asked.wishes.into_iter().map(|wish| wish.op).collect()
    }

    /// The origin has not got it. Answers with who is to be told; others ask again, each for just what it needs.
    pub(crate) fn refused(&mut self) -> Option<OpId> {
        let asked = self.asked.take()?;
        // File systems may leave a part of what they refuse.
        self.left_over = true;
        if let [wish] = &asked.wishes[..]
            && (wish.ahead.is_none() || wish.alone)
        {
            return Some(wish.op);
        }
        let again = asked.wishes.into_iter().map(|wish| Wish { alone: true, ..wish });
        self.waiting.splice(0..0, again);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(op: u64, need: Bytes, ahead: Option<Bytes>) -> Wish {
        Wish { op: OpId(op), need: vec![need], ahead, user: 0, insists: false, alone: false }
    }

    #[test]
    fn what_waits_while_a_question_is_under_way_is_asked_together() {
        let mut space = ObjectSpace::default();
        space.wish(wish(1, (0, 4096), None));
        assert_eq!(space.question().unwrap().ranges, [(0, 4096)]);
        space.wish(wish(2, (8192, 12_288), None));
        space.wish(wish(3, (12_288, 16_384), None));
        assert!(space.question().is_none());
        assert_eq!(space.granted(&[], true), [OpId(1)]);
        assert_eq!(space.question().unwrap().ranges, [(8192, 16_384)]);
        assert_eq!(space.granted(&[], true), [OpId(2), OpId(3)]);
        assert!(space.has((8192, 16_384)) && !space.has((4096, 8192)));
    }

    #[test]
    fn who_is_refused_with_more_than_it_needs_asks_for_just_that() {
        let mut space = ObjectSpace::default();
        space.wish(wish(1, (0, 4096), Some((4096, 65_536))));
        space.question();
        assert_eq!(space.refused(), None);
        assert_eq!(space.question().unwrap().ranges, [(0, 4096)]);
        assert_eq!(space.refused(), Some(OpId(1)));
    }

    #[test]
    fn nothing_is_asked_while_space_is_given_back_and_an_answer_from_before_counts_for_nothing() {
        let mut space = ObjectSpace::default();
        space.wish(wish(1, (0, 4096), None));
        space.question();
        space.begin_giving(0, 4096);
        assert_eq!(space.granted(&[], true), [OpId(1)]);
        assert!(!space.has((0, 4096)));
        space.wish(wish(1, (0, 4096), None));
        assert!(space.question().is_none());
        space.given();
        assert!(space.question().is_some());
    }
}
