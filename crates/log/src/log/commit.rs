//! Group commit: what becomes durable together, and where.
//!
//! The members of this host sync together, and so do those apart, which lie on other hosts. What both sides have synced is
//! durable everywhere. A request may be content with this host: then a commit of this side alone begins once the one
//! before has ended here, however slow a peer is.
//!
//! ```text
//!              wanted            written on this side        synced
//!  each side: ────────> Writing ─────────────────────> Syncing ────> Idle
//! ```
//!
//! Invariants:
//! - At most one sync of each side is under way.
//! - A commit everywhere begins on both sides at once, when both are idle, and before one of this host alone.
//! - Whose side a member is on changes only then.
//! - What was appended before a member of this host was lost is durable here only once it is everywhere: its other copy
//!   may be apart.

use headpond_base::{BatchNumber, MemberId, Sequence, Stream};
use smallvec::SmallVec;

use super::{Held, Log};
use crate::mutation::Mutation;
use crate::sides::{CommitSide, Durability};
use crate::start::{LogIo, WriteId};

/// How far a commit makes things durable.
#[derive(Clone, Copy, Debug)]
struct Target {
    write: WriteId,
    batch: BatchNumber,
    host: BatchNumber,
    sequence: Sequence,
    /// The same for entries of all streams. Beyond what was durable before only if their batches were closed too.
    all: Sequence,
}

impl Target {
    /// What both make durable.
    fn min(self, other: Self) -> Self {
        Self {
            write: self.write.min(other.write),
            batch: self.batch.min(other.batch),
            host: self.host.min(other.host),
            sequence: self.sequence.min(other.sequence),
            all: self.all.min(other.all),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    /// Waits for writes.
    Writing(Target),
    /// Waits for the members.
    Syncing(Target),
}

impl Phase {
    const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    const fn target(&self) -> Option<Target> {
        match self {
            Self::Idle => None,
            Self::Writing(target) | Self::Syncing(target) => Some(*target),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Wanted {
    Nothing,
    Host,
    AllStreams,
}

/// The commits under way, and what the ones before made durable. Owned by the log.
#[derive(Debug)]
pub(super) struct Commits {
    phases: [Phase; 2],
    synced: [Target; 2],
    /// The members that sync apart.
    apart: SmallVec<[MemberId; 2]>,
    wanted: Wanted,
    wanted_here: bool,
    /// Who asked last was content with this.
    last_asked: Durability,
    /// Up to here nothing is durable here before it is everywhere.
    here_from: Sequence,
}

impl Commits {
    /// Everything up to `sequence` and `batch` is durable.
    pub(super) fn new(sequence: Sequence, batch: BatchNumber) -> Self {
        let start = Target { write: WriteId(0), batch, host: batch, sequence, all: sequence };
        Self {
            phases: [Phase::Idle; 2],
            synced: [start; 2],
            apart: SmallVec::new(),
            wanted: Wanted::Nothing,
            wanted_here: false,
            last_asked: Durability::Everywhere,
            here_from: sequence,
        }
    }

    /// What both sides have synced.
    fn everywhere(&self) -> Target {
        let [here, apart] = self.synced;
        here.min(apart)
    }

    /// The last entry of the host stream up to which all are durable everywhere.
    pub(super) fn durable(&self) -> Sequence {
        self.everywhere().sequence
    }

    /// The same for all streams.
    pub(super) fn durable_all(&self) -> Sequence {
        self.everywhere().all
    }

    /// The last batch up to which all are durable everywhere.
    pub(super) fn batch(&self) -> BatchNumber {
        self.everywhere().batch
    }

    /// The last host batch up to there.
    pub(super) fn host(&self) -> BatchNumber {
        self.everywhere().host
    }

    /// Whether what the members of this host have synced is durable here.
    fn here_counts(&self) -> bool {
        self.durable() >= self.here_from
    }

    /// The last entry, and the last host batch, up to which the members of this host have synced all.
    const fn here(&self) -> (Sequence, BatchNumber) {
        let here = &self.synced[CommitSide::Here as usize];
        (here.sequence, here.host)
    }

    /// Whether somebody waits for a commit that has not begun.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted != Wanted::Nothing || self.wanted_here
    }

    /// Whether the commits under way cover all entries before `next`.
    fn cover(&self, durability: Durability, next: Sequence) -> bool {
        let covers = |side: CommitSide| {
            let target = self.phases[side as usize].target().unwrap_or(self.synced[side as usize]);
            target.sequence.next() == next
        };
        let is_under_way = |side: CommitSide| !self.phases[side as usize].is_idle();
        match durability {
            Durability::Here => is_under_way(CommitSide::Here) && covers(CommitSide::Here),
            Durability::Everywhere => {
                CommitSide::BOTH.iter().any(|side| is_under_way(*side)) && CommitSide::BOTH.into_iter().all(covers)
            }
        }
    }

    /// Takes where the commit that may begin now makes things durable, if one is wanted, and whether it is of all streams.
    fn take_wanted(&mut self) -> Option<(Durability, bool)> {
        let [here, apart] = self.phases.each_ref().map(Phase::is_idle);
        if self.wanted != Wanted::Nothing && here && apart {
            let all = self.wanted == Wanted::AllStreams;
            (self.wanted, self.wanted_here) = (Wanted::Nothing, false);
            return Some((Durability::Everywhere, all));
        }
        (here && std::mem::take(&mut self.wanted_here)).then_some((Durability::Here, false))
    }

    /// These members sync apart from now on, unless a commit is under way.
    fn sort_members(&mut self, apart: SmallVec<[MemberId; 2]>) {
        if !self.phases.iter().all(Phase::is_idle) {
            return;
        }
        if self.apart.iter().any(|member| !apart.contains(member)) {
            // One that is of this host now may not have all that the others have synced.
            self.synced[CommitSide::Here as usize] = self.everywhere();
        }
        self.apart = apart;
    }

    fn begin(&mut self, durability: Durability, target: Target) {
        self.phases[CommitSide::Here as usize] = Phase::Writing(target);
        if durability == Durability::Everywhere {
            self.phases[CommitSide::Apart as usize] = Phase::Writing(target);
        }
    }

    fn is_on(&self, side: CommitSide, member: MemberId) -> bool {
        self.apart.contains(&member) == (side == CommitSide::Apart)
    }

    /// A commit ended on this side.
    fn ended(&mut self, side: CommitSide, target: Target) {
        self.phases[side as usize] = Phase::Idle;
        let synced = &mut self.synced[side as usize];
        *synced = Target { all: synced.all.max(target.all), ..target };
    }

    /// A member of this host is lost: what was appended up to this entry counts here once it is durable everywhere.
    pub(super) fn lost_here(&mut self, last: Sequence) {
        self.here_from = last;
        // Those that wait for this host wait for all now.
        self.wanted = self.wanted.max(Wanted::Host);
    }

    fn want(&mut self, durability: Durability) {
        match durability {
            Durability::Here => self.wanted_here = true,
            Durability::Everywhere => self.wanted = self.wanted.max(Wanted::Host),
        }
    }
}

impl Log {
    /// What a request that asks for this has to wait for. Without members apart that is all.
    fn durability_now(&self, asked: Durability) -> Durability {
        let counts_here = || self.segments.members_with_copies_only().next().is_some() && self.commits.here_counts();
        if asked == Durability::Here && counts_here() { Durability::Here } else { Durability::Everywhere }
    }

    /// Asks that all entries of the host stream up to now become durable.
    pub fn want_sync(&mut self, durability: Durability) {
        self.found_durable(durability);
        let durability = self.durability_now(durability);
        // If a sync under way covers everything, the members need no second one.
        if !self.commits.cover(durability, self.next_sequence) {
            self.commits.want(durability);
            self.pump();
        }
    }

    /// Notes that a request asked for a sync and found everything durable.
    pub const fn found_durable(&mut self, durability: Durability) {
        self.commits.last_asked = durability;
        self.rhythm.asked();
    }

    /// Somebody is about to ask for the same sync as the last time.
    pub(super) fn expect_sync(&mut self) {
        let durability = self.durability_now(self.commits.last_asked);
        self.commits.want(durability);
        self.pump();
    }

    /// Asks that all entries of all streams up to now become durable.
    pub fn want_sync_of_all(&mut self) {
        self.commits.wanted = Wanted::AllStreams;
        self.pump();
    }

    /// Begins what is wanted and may begin.
    pub(super) fn pump(&mut self) {
        if !self.takes_writes() {
            return;
        }
        if let Some((durability, all)) = self.commits.take_wanted() {
            self.commits.sort_members(self.segments.members_with_copies_only().collect());
            if all {
                self.close(Stream::Cold);
                self.close(Stream::Hot);
                self.mark();
            }
            self.close(Stream::Host);
            let sequence = Sequence(self.next_sequence.0 - 1);
            let target = Target {
                write: self.writes.last(),
                batch: BatchNumber(self.next_batch.0 - 1),
                host: self.last_host,
                sequence,
                all: if all { sequence } else { self.commits.durable_all() },
            };
            self.commits.begin(durability, target);
        }
        let one_is_over = CommitSide::BOTH.map(|side| self.sync_what_is_written(side)).contains(&true);
        if one_is_over && self.commits.is_wanted() {
            // Nobody is apart any more: what waited for them begins.
            self.pump();
        }
    }

    /// Has the members of this side sync, once they have written what the commit covers. Whether that is over at once, as
    /// nobody has anything to sync.
    fn sync_what_is_written(&mut self, side: CommitSide) -> bool {
        let Phase::Writing(target) = self.commits.phases[side as usize] else { return false };
        if !self.is_written(&target, side) {
            return false;
        }
        let mut members = self.writes.begin_sync(target.write, |member| self.commits.is_on(side, member));
        members.retain(|member| self.health.works(*member));
        if members.is_empty() && side == CommitSide::Apart {
            self.committed(side, target);
            return true;
        }
        if members.is_empty() {
            members = self.health.working();
            let apart = |member: &MemberId| self.commits.is_on(CommitSide::Apart, *member);
            if !members.iter().all(apart) {
                members.retain(|member| !apart(member));
            }
        }
        self.commits.phases[side as usize] = Phase::Syncing(target);
        self.io.push(LogIo::Sync { side, members });
        false
    }

    /// Whether the members of this side have completed every write that the commit covers: those of all streams, in all
    /// segments.
    fn is_written(&self, target: &Target, side: CommitSide) -> bool {
        if Mutation::SyncOneSegment.is_planted(self.mutation) {
            let last = self.open.all().find(|open| open.summary.last().is_some_and(|last| last.number == target.host));
            let mut earlier = self.writes.segments_until(target.write);
            return earlier.all(|segment| last.is_some_and(|open| open.id != segment));
        }
        self.writes.are_completed(target.write, |member| self.commits.is_on(side, member))
    }

    /// Records that a write is completed in its place on this member. If it failed there, call [`Log::refused`] first.
    ///
    /// # Panics
    /// When the write was not under way there.
    pub fn wrote(&mut self, id: WriteId, member: MemberId) {
        let hasty = Mutation::OneCopySync.is_planted(self.mutation);
        if let Some(segment) = self.writes.completed_on(member, id, hasty) {
            self.segments.get_mut(segment).under_way -= 1;
            if self.takes_writes()
                && let Some(tail) = &mut self.second_tail
            {
                tail.wrote(id);
            }
        }
        self.pump();
    }

    /// Records that the sync is completed on all members of this side. If it failed on some, call [`Log::refused`] for
    /// each first: what it covers is durable on the others.
    ///
    /// # Panics
    /// When no sync of this side was under way.
    pub fn synced(&mut self, side: CommitSide) {
        let Phase::Syncing(target) = self.commits.phases[side as usize] else {
            panic!("a sync is completed that was not under way")
        };
        if self.takes_writes() {
            self.committed(side, target);
            self.pump();
        } else {
            self.commits.phases[side as usize] = Phase::Idle;
        }
    }

    fn committed(&mut self, side: CommitSide, target: Target) {
        self.commits.ended(side, target);
        self.buffers.synced(self.commits.batch());
    }

    /// All host entries up to this one are durable everywhere, and requests may hear of it.
    #[must_use]
    pub fn durable(&self) -> Sequence {
        self.durable_in(Durability::Everywhere)
    }

    /// All host entries up to this one are durable there, and requests may hear of it.
    #[must_use]
    pub fn durable_in(&self, durability: Durability) -> Sequence {
        self.heard_of(durability).0
    }

    /// The last host batch of which the same holds everywhere.
    #[must_use]
    pub fn durable_host(&self) -> BatchNumber {
        self.heard_of(Durability::Everywhere).1
    }

    /// All host entries up to this one are durable everywhere, whether requests may hear of it or not.
    pub(crate) fn synced_sequence(&self) -> Sequence {
        self.commits.durable()
    }

    /// A member of this host is lost.
    pub(crate) fn lost_here(&mut self) {
        self.commits.lost_here(Sequence(self.next_sequence.0 - 1));
    }

    /// From now on no request hears of more, as members were lost, or as if they had been. With [`Durability::Here`] none hears
    /// either of what is durable on this host.
    pub fn hold(&mut self, durability: Durability) {
        let (durable, host) = (self.commits.durable(), self.commits.host());
        let held = self.held.get_or_insert(Held { durable, host, here: false });
        held.here |= durability == Durability::Here;
    }

    /// Whether a loss waits for its list.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The list without the lost members is durable, here and at the origin.
    pub const fn go_on_without(&mut self) {
        self.held = None;
    }

    fn heard_of(&self, durability: Durability) -> (Sequence, BatchNumber) {
        let mut everywhere = (self.commits.durable(), self.commits.host());
        if Mutation::HereForAll.is_planted(self.mutation) {
            everywhere = self.commits.here();
        }
        let everywhere = self.held.map_or(everywhere, |held| (held.durable, held.host));
        let here_is_held = self.held.is_some_and(|held| held.here);
        match self.durability_now(durability) {
            Durability::Here if !here_is_held => self.commits.here().max(everywhere),
            _ => everywhere,
        }
    }
}
