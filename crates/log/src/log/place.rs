//! Where the next batch goes, and which member the next segment is opened on.
//!
//! Members differ in speed, and one may be slow for a while. Without copies a batch goes to the open segment where it is
//! likely durable first: by what its members have to write already, and by how long they take for that and for a sync. So a
//! pool that has much to write uses each device as far as it goes, and a lone sync waits for a fast one. A segment is opened
//! where fewest are open, so that each member has one.
//!
//! Pairs take turns, and are opened where there is most room, as most pairs come of it so. Decision 15 says what was tried
//! with them.
//!
//! The price: a look at each open segment of the host stream for each batch.

use headpond_base::{MemberId, Nanos, SegmentId, Stream};

use super::Log;

/// What a batch is taken for, before its size is known: 128 KiB.
const BATCH_BYTES: u64 = 128 << 10;

/// How long a member takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberSpeed {
    /// The member.
    pub member: MemberId,
    /// For each MiB that it has to write.
    pub per_mebibyte: Nanos,
    /// For a sync.
    pub sync: Nanos,
}

impl Log {
    /// How long each member takes, so that batches go where they are written first. Until this is said, all are alike.
    pub fn set_speeds(&mut self, speeds: Vec<MemberSpeed>) {
        self.speeds = speeds;
    }

    /// When what a member has to write, and one batch more, would be written and synced.
    fn ends(&self, member: MemberId) -> u64 {
        let bytes = self.writes.queued(member) + BATCH_BYTES;
        let speed = self.speeds.iter().find(|speed| speed.member == member);
        speed.map_or(bytes, |speed| speed.per_mebibyte.0.saturating_mul(bytes) / (1 << 20) + speed.sync.0)
    }

    /// Whether a stream may have one more open segment.
    pub(super) fn may_open_another(&self, stream: Stream) -> bool {
        self.open.are_none(stream) || self.free_segments() > self.filling.spare
    }

    /// Makes the place the current one where the next batch is likely durable first. Of equal ones, the next in turn.
    pub(super) fn choose_place(&mut self, stream: Stream) {
        let at_once = self.open.at_once(stream);
        if at_once == 1 {
            return;
        }
        let may_open = self.may_open_another(stream);
        let mirrors = self.mirrors();
        let ends = |place: usize| match self.open.at(stream, place) {
            Some(_) if mirrors => 0,
            Some(open) => self.ends_in(open.id),
            None if may_open => 0,
            None => u64::MAX,
        };
        let current = self.open.current_place(stream);
        let in_turn = (1..=at_once).map(|step| (current + step) % at_once);
        if let Some(place) = in_turn.min_by_key(|place| ends(*place)) {
            self.open.go_to(stream, place);
        }
    }

    /// When a batch in this segment would be durable in all places.
    fn ends_in(&self, segment: SegmentId) -> u64 {
        let members = self.members_of(segment).filter(|member| self.health.works(*member));
        members.map(|member| self.ends(member)).max().unwrap_or(0)
    }

    fn members_of(&self, segment: SegmentId) -> impl Iterator<Item = MemberId> {
        self.segments.keepers(segment).map(|keeper| self.segments.addresses().home(keeper).member)
    }

    /// Takes a free segment for one that has no copy.
    pub(super) fn take_free(&mut self, mirrors: bool) -> Option<SegmentId> {
        if mirrors {
            return self.segments.take_free();
        }
        let open: Vec<MemberId> = self.open.all().flat_map(|open| self.members_of(open.id)).collect();
        self.segments
            .take_free_beside(Self::LEFT_BY_A_LOSS, |member| open.iter().filter(|other| **other == member).count())
    }
}
