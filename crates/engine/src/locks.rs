//! Who may touch which blocks of an object at the same time.
//!
//! Reads share; changes exclude. A request that conflicts with one that holds, or with an
//! earlier one that waits, waits behind it: nobody is overtaken for ever. This is what makes a
//! write request untorn for readers (promise 3) although it is carried out in pieces.

use std::collections::VecDeque;

use headpond_base::Block;

/// Blocks from `first` up to and without `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) first: Block,
    pub(crate) end: Block,
}

impl Span {
    /// All blocks that bytes `offset..offset + len` touch.
    pub(crate) const fn of_bytes(offset: u64, len: u64) -> Self {
        Self { first: Block::holding(offset), end: Block(headpond_base::blocks_for(offset + len)) }
    }

    /// All blocks from the one that holds `offset` on.
    pub(crate) const fn from_byte(offset: u64) -> Self {
        Self { first: Block::holding(offset), end: Block(u64::MAX) }
    }

    pub(crate) fn contains(self, block: Block) -> bool {
        self.first <= block && block < self.end
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.first < other.end && other.first < self.end
    }

    pub(crate) const fn blocks(self) -> u64 {
        self.end.0.saturating_sub(self.first.0)
    }
}

/// Names a request inside the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct OpId(pub(crate) u64);

#[derive(Clone, Copy, Debug)]
struct Hold {
    op: OpId,
    span: Span,
    exclusive: bool,
}

impl Hold {
    fn conflicts(&self, other: &Self) -> bool {
        (self.exclusive || other.exclusive) && self.span.overlaps(other.span)
    }
}

/// The locks of one object. The number of requests under way bounds both lists.
#[derive(Default, Debug)]
pub(crate) struct Locks {
    held: Vec<Hold>,
    waiting: VecDeque<Hold>,
}

impl Locks {
    /// Takes the lock, or queues for it and answers `false`.
    pub(crate) fn take(&mut self, op: OpId, span: Span, exclusive: bool) -> bool {
        let wanted = Hold { op, span, exclusive };
        if self.held.iter().chain(&self.waiting).any(|hold| hold.conflicts(&wanted)) {
            self.waiting.push_back(wanted);
            return false;
        }
        self.held.push(wanted);
        true
    }

    /// Gives the lock back; answers with those that got theirs now.
    pub(crate) fn give(&mut self, op: OpId) -> Vec<OpId> {
        self.held.retain(|hold| hold.op != op);
        let mut granted = Vec::new();
        let mut still: VecDeque<Hold> = VecDeque::new();
        for hold in std::mem::take(&mut self.waiting) {
            if self.held.iter().chain(&still).any(|other| other.conflicts(&hold)) {
                still.push_back(hold);
            } else {
                self.held.push(hold);
                granted.push(hold.op);
            }
        }
        self.waiting = still;
        granted
    }

    /// Whether a request is changing this block now.
    pub(crate) fn excluded(&self, block: Block) -> bool {
        self.held.iter().any(|hold| hold.exclusive && hold.span.contains(block))
    }

    /// Whether nobody holds or waits.
    pub(crate) fn idle(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn span(first: u64, end: u64) -> Span {
        Span { first: Block(first), end: Block(end) }
    }

    #[test]
    fn readers_share_writers_exclude_and_nobody_is_overtaken() {
        let mut locks = Locks::default();
        assert!(locks.take(OpId(1), span(0, 4), false));
        assert!(locks.take(OpId(2), span(2, 6), false), "readers share");
        assert!(!locks.take(OpId(3), span(3, 5), true), "a writer waits for readers");
        assert!(!locks.take(OpId(4), span(4, 5), false), "a reader does not overtake a waiting writer");
        assert!(locks.take(OpId(5), span(6, 8), true), "elsewhere nobody waits");
        assert_eq!(locks.give(OpId(1)), []);
        assert_eq!(locks.give(OpId(2)), [OpId(3)]);
        assert_eq!(locks.give(OpId(3)), [OpId(4)]);
        locks.give(OpId(4));
        locks.give(OpId(5));
        assert!(locks.idle());
    }
}
