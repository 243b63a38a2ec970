//! The purpose of each effect: which part goes on with its result, and with what.
//!
//! Plain data, so that the outbox can keep it for all parts. Only the part that asked interprets it.

use headpond_base::{Block, Location, MemberId, Nanos, ObjectId, SegmentId};
use headpond_log::{CommitSide, WriteId};
use headpond_map::Slot;

use crate::fetches::FetchId;
use crate::locks::OpId;
use crate::piece::Piece;

/// What an effect is for.
pub(crate) enum Purpose {
    /// What recovery found is durable.
    Settling,
    Heal(HealEffect),
    /// What was healed is durable.
    Healed,
    /// A write of the log on this member.
    LogWrite(WriteId, MemberId),
    LogSync(CommitSide),
    /// A request waits for it; it is stepped with the outcome.
    Op(OpId),
    Gather(GatherRead),
    Fetch(FetchId),
    Destage(JobEffect),
    Reclaim(ReclaimEffect),
    Scrub(ScrubEffect),
    MakeRow(RowEffect),
    Checkpoint,
    Bury(ObjectId),
    Disown,
    /// The origin's side is told of a list of members with this generation.
    TellMembers(u64),
    /// Whether a member is still there.
    Probe(MemberId),
    /// The same, after a read that failed.
    ProbeSync(MemberId),
    /// Space for changes of an object.
    Space(ObjectId),
    /// How much the origin has free.
    Look,
}

impl Purpose {
    /// Whether a request waits for it.
    pub(crate) const fn is_foreground(&self) -> bool {
        matches!(self, Self::Op(_) | Self::Fetch(_) | Self::Gather(_))
    }
}

/// Which of its tries a read of a block is at. The second goes elsewhere than the first, if the block lies in two places.
///
/// A loss changes which place comes first. So after one it begins anew: else both tries might go to the member that was
/// lost meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attempt {
    /// From 0.
    number: u8,
    /// Losses before it.
    losses: u32,
}

impl Attempt {
    /// The first, after so many losses of members.
    pub(crate) const fn first(losses: u32) -> Self {
        Self { number: 0, losses }
    }

    /// The one after this one has failed, if there is to be one. `last` is the number of the last one.
    pub(crate) fn next(self, losses: u32, last: usize) -> Option<Self> {
        if self.losses < losses {
            Some(Self::first(losses))
        } else {
            (self.number() < last).then_some(Self { number: self.number + 1, losses })
        }
    }

    /// Which it is, from 0.
    pub(crate) fn number(self) -> usize {
        usize::from(self.number)
    }
}

/// A read of what the map has, for a request.
pub(crate) struct GatherRead {
    pub(crate) op: OpId,
    pub(crate) object: ObjectId,
    pub(crate) first: Block,
    /// The slots of the blocks as they were when the read was begun; they lie behind each other.
    pub(crate) slots: Vec<Slot>,
    /// Where among the request's blocks the bytes go.
    pub(crate) out_at: usize,
    pub(crate) attempt: Attempt,
    /// It is the origin that is read.
    pub(crate) at_origin: bool,
    pub(crate) since: Nanos,
}

/// Names a job of destage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct JobId(pub(crate) u64);

/// What a job of destage waits for.
pub(crate) enum JobEffect {
    /// Some blocks of a run, from flash.
    Read { job: JobId, reading: Reading },
    /// One run or several, to the origin, up to this byte of the file.
    Write { job: JobId, end: u64, what: Written },
    /// What lies between runs, from flash or from the origin.
    Fill { job: JobId, filling: Filling },
    /// A range of zeros, to the origin, which gives the space of its whole blocks back or not.
    Zero { job: JobId, run: usize, gives: bool },
    /// Whatever its stage says.
    Step(JobId),
}

impl JobEffect {
    /// Which one.
    pub(crate) const fn job(&self) -> JobId {
        match self {
            Self::Read { job, .. }
            | Self::Write { job, .. }
            | Self::Fill { job, .. }
            | Self::Zero { job, .. }
            | Self::Step(job) => *job,
        }
    }
}

/// What a write of a job brings, by its number in the job.
#[derive(Clone, Copy)]
pub(crate) enum Written {
    Run(usize),
    /// Runs that go together, with what lies between them.
    Group(usize),
}

/// A read of some blocks of a run, which lie together on flash.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) run: usize,
    pub(crate) from: usize,
    pub(crate) count: usize,
    pub(crate) attempt: Attempt,
}

/// A read of what lies in a gap between runs.
pub(crate) struct Filling {
    pub(crate) group: usize,
    pub(crate) first: Block,
    pub(crate) blocks: u64,
    /// From flash: the slots as they were when the read was begun. Empty: from the origin.
    pub(crate) slots: Vec<Slot>,
}

/// What reclaim waits for.
pub(crate) enum ReclaimEffect {
    /// The end of a segment, in search of its footer.
    Footer { segment: SegmentId, len: usize },
    /// Blocks that move on.
    Move { segment: SegmentId, piece: Piece, slots: Vec<Slot>, attempt: Attempt },
}

/// What a scrub waits for, of its visit with this number.
pub(crate) enum ScrubEffect {
    /// The end of a segment, in search of its footer.
    Footer { visit: u64, segment: SegmentId, len: usize },
    /// Some of a segment.
    Blocks { visit: u64, segment: SegmentId, read: ScrubRead },
}

/// A read of one copy of a part of a segment.
pub(crate) struct ScrubRead {
    pub(crate) from: Location,
    pub(crate) blocks: usize,
    /// What of use lies there, in the order of its bytes.
    pub(crate) runs: Vec<ScrubbedRun>,
    pub(crate) again: bool,
    pub(crate) since: Nanos,
}

/// Neighbouring blocks of an object, one behind the other on flash.
pub(crate) struct ScrubbedRun {
    pub(crate) object: ObjectId,
    pub(crate) first: Block,
    /// The slots as they were when the read was begun.
    pub(crate) slots: Vec<Slot>,
}

/// What a start waits for that brings dirty blocks to the places that lack them.
pub(crate) enum HealEffect {
    /// The read with this number, in one of its places.
    Read { number: u64, place: usize },
    /// A write.
    Written,
}

/// What a row that is being made waits for. A segment is named by its place in the row.
pub(crate) enum RowEffect {
    /// The end of a segment, in search of its footer.
    Footer { which: usize, len: usize },
    /// A piece of a segment.
    Piece { which: usize },
    /// A piece of the parity is written.
    Written,
    /// All of the row is durable.
    Synced,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_tried_twice_and_begins_anew_after_a_loss() {
        let first = Attempt::first(0);
        let second = first.next(0, 1).unwrap();
        assert_eq!((first.number(), second.number()), (0, 1));
        assert_eq!(second.next(0, 1), None);
        assert_eq!(second.next(0, 2).map(Attempt::number), Some(2), "of three copies");
        assert_eq!((first.next(1, 1), second.next(1, 1)), (Some(Attempt::first(1)), Some(Attempt::first(1))));
    }
}
