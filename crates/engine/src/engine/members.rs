//! What the engine does with its members: it goes on without a lost one, takes another in, and empties one that is to
//! go.

use headpond_base::{Errno, MemberId, Redundancy};
use headpond_format::{MemberState, Members};
use headpond_log::Mutation;

use crate::effect::{Effect, Outcome};
use crate::engine::Engine;
use crate::membership::{MembersChange, Next};
use crate::purpose::Purpose;
use crate::request::{Reply, RequestId};

/// A member, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberShown {
    /// Its number.
    pub member: MemberId,
    /// Its state in the list of members.
    pub state: MemberState,
    /// Whether it refused nothing.
    pub works: bool,
    /// How many segments have their home there.
    pub segments: u64,
    /// How many of those can be opened.
    pub free_segments: u64,
    /// Blocks that it has, copies included.
    pub blocks: u64,
    /// Dirty ones of those.
    pub dirty_blocks: u64,
}

impl Engine {
    /// A member refused a write or a sync.
    pub(crate) fn member_refused(&mut self, member: MemberId, errno: Errno) {
        self.store.refused(member, errno);
        let untold = Mutation::LossUntold.is_planted(self.config.mutation);
        if self.store.takes_writes() && !self.store.log().works(member) && !untold {
            self.membership.lose(member);
        }
    }

    /// The list of members that is wanted has come to count here.
    pub(crate) fn list_counts(&mut self, list: &Members) {
        if let Next::Tell(generation) = self.membership.counts(list) {
            self.tell_of_members(generation);
        }
    }

    fn tell_of_members(&mut self, generation: u64) {
        self.start(Purpose::TellMembers(generation), |ticket| Effect::MembersChanged { ticket, generation });
    }

    /// The origin's side has answered.
    pub(crate) fn told_of_members(&mut self, generation: u64, outcome: &Outcome) {
        let failed = matches!(outcome, Outcome::Failed(_));
        if self.membership.told(generation, failed, self.now) {
            self.store.go_on_without_lost_members();
        }
    }

    /// A request to change the members.
    pub(crate) fn change_members(&mut self, id: RequestId, change: MembersChange) {
        let refusal = if !self.membership.is_settled() || self.membership.asked().is_some() {
            Some(Errno::BUSY)
        } else if !self.store.takes_writes() {
            Some(Errno::IO)
        } else {
            self.begin_members_change(change).err()
        };
        if let Some(errno) = refusal {
            return self.answer(id, Reply::Failed(errno));
        }
        if let Err(errno) = self.membership.ask(id, change) {
            self.answer(id, Reply::Failed(errno));
        }
    }

    fn begin_members_change(&mut self, change: MembersChange) -> Result<(), Errno> {
        let list = self.membership.wanted().clone();
        let segment_bytes = u64::from(self.store.log().geometry().segment_bytes);
        match change {
            MembersChange::Add(member) => {
                let fits = u64::from(member.slots) * segment_bytes + member.start <= member.bytes;
                let known = list.iter().any(|(_, other)| other.name == member.name);
                let starts_right = member.start >= self.store.log().geometry().segments_start;
                if member.slots == 0 || !fits || known || !starts_right || member.state != MemberState::InUse {
                    return Err(Errno::INVAL);
                }
                let (longer, id) = list.with(member).ok_or(Errno::NOSPC)?;
                self.store.extend_member(id, &member);
                self.membership.want(longer);
            }
            MembersChange::Grow { member, bytes } => {
                let row = list.get(member).filter(|row| row.state == MemberState::InUse).ok_or(Errno::INVAL)?;
                let slots = bytes.checked_sub(row.start).ok_or(Errno::INVAL)? / segment_bytes;
                let slots = u32::try_from(slots).map_err(|_| Errno::FBIG)?;
                if slots <= row.slots {
                    return Err(Errno::INVAL);
                }
                let list = list.with_room(member, slots, bytes);
                let row = *list.get(member).ok_or(Errno::INVAL)?;
                self.store.extend_member(member, &row);
                self.membership.want(list);
            }
            MembersChange::Remove(member) => {
                let others = list.iter().filter(|(id, row)| *id != member && row.state == MemberState::InUse).count();
                let state = list.get(member).map(|row| row.state).ok_or(Errno::INVAL)?;
                if others == 0 || state == MemberState::Gone {
                    return Err(Errno::INVAL);
                }
                self.store.empty_member(member);
                if state == MemberState::InUse {
                    self.membership.want(list.with_state(member, MemberState::Emptied));
                }
            }
        }
        Ok(())
    }

    /// Takes back what is under way.
    pub(crate) fn cancel_members_change(&mut self, id: RequestId) {
        let Some(change) = self.membership.asked().filter(|_| self.membership.is_settled()) else {
            return self.answer(id, Reply::Failed(Errno::NOENT));
        };
        if let MembersChange::Remove(member) = change {
            let list = self.membership.wanted().with_state(member, MemberState::InUse);
            self.membership.want(list);
            self.store.admit_member(member);
        }
        if let Some(request) = self.membership.take_asked() {
            self.answer(request, Reply::Failed(Errno::CANCELED));
        }
        self.answer(id, Reply::Done);
    }

    /// Goes on with what was asked for, and with the emptying that an earlier use began.
    pub(crate) fn pump_members(&mut self) {
        if let Some(generation) = self.membership.tell_again(self.now) {
            self.tell_of_members(generation);
        }
        if self.membership.is_idle() || !self.life.has_served() || self.life.is_ending() {
            return;
        }
        let list = self.membership.wanted().clone();
        let emptied = list.iter().find(|(_, row)| row.state == MemberState::Emptied).map(|(id, _)| id);
        if let Some(member) = emptied {
            if self.store.log().is_empty(member) {
                self.store.let_go_of_member(member);
                self.membership.want(list.with_state(member, MemberState::Gone));
            }
            return;
        }
        match self.membership.asked() {
            None => return,
            Some(MembersChange::Add(_)) => {
                let added = list.iter().last().map(|(id, _)| id);
                added.into_iter().for_each(|member| self.store.admit_member(member));
            }
            Some(MembersChange::Grow { member, .. }) => self.store.admit_member(member),
            Some(MembersChange::Remove(_)) => {}
        }
        if let Some(request) = self.membership.take_asked() {
            self.answer(request, Reply::Done);
        }
    }

    /// Dirty blocks that one member has, where two should. None if one is all that is asked for.
    #[must_use]
    pub fn exposed_blocks(&self) -> u64 {
        let log = self.store.log();
        if self.membership.wanted().given() < 2 || self.config.redundancy == Redundancy::None {
            return 0;
        }
        let exposed = log.segments().iter().filter(|(id, _)| log.is_exposed(*id));
        exposed.map(|(_, segment)| u64::from(segment.dirty)).sum()
    }

    /// All members that the pool has had.
    #[must_use]
    pub fn members(&self) -> Vec<MemberShown> {
        let (log, segments) = (self.store.log(), self.store.log().segments());
        let list = self.membership.wanted().iter();
        let mut shown: Vec<MemberShown> = list
            .map(|(member, row)| MemberShown {
                member,
                state: row.state,
                works: log.works(member),
                segments: u64::from(row.slots),
                free_segments: segments.free_on(member) as u64,
                blocks: 0,
                dirty_blocks: 0,
            })
            .collect();
        for (id, segment) in segments.iter() {
            for keeper in segments.keepers(id) {
                let member = segments.addresses().home(keeper).member;
                if let Some(shown) = shown.get_mut(usize::from(member.0)) {
                    shown.blocks += u64::from(segment.live);
                    shown.dirty_blocks += u64::from(segment.dirty);
                }
            }
        }
        shown
    }
}
