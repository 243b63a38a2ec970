//! What the engine does with its members: it goes on without a lost one, takes another in, and empties one that is to
//! go.

use headpond_base::{BLOCK, Errno, MemberId, Nanos, Redundancy};
use headpond_format::{
    Address, Geometry, HostCopies, MEMBERS_MAX, Member, MemberName, MemberState, Members, SETTINGS_SLOTS,
};
use headpond_log::{Log, Mutation, ReadFrom};

use crate::effect::{Effect, Outcome};
use crate::engine::Engine;
use crate::laggard::laggard;
use crate::member_times::{MemberTime, speeds};
use crate::purpose::Purpose;
use crate::request::{MembersChange, Reply, RequestId};
use crate::store::{MOVE_RESERVE, WRITE_RESERVE};

/// How many slots a member has within so many bytes of its device.
fn slots_of(row: &Member, bytes: u64, segment_bytes: u32) -> Option<u32> {
    u32::try_from(bytes.checked_sub(row.start)? / u64::from(segment_bytes)).ok()
}

/// A member, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberShown {
    /// Its number.
    pub member: MemberId,
    /// Its name, which no other member has or had.
    pub name: MemberName,
    /// Its state in the list of members.
    pub state: MemberState,
    /// It is gone, and another device may have its number.
    pub is_spare: bool,
    /// It is gone, not in order, and nobody has come in its place.
    pub missed: bool,
    /// Whether it refused nothing.
    pub works: bool,
    /// Whether its slots are lent only, as homes of second copies.
    pub copies_only: bool,
    /// Bytes of its device that the pool uses, or used last.
    pub bytes: u64,
    /// How many segments have their home there.
    pub segments: u64,
    /// How many of those can be opened.
    pub free_segments: u64,
    /// Blocks that it has, copies included.
    pub blocks: u64,
    /// Dirty ones of those.
    pub dirty_blocks: u64,
    /// How long its syncs took lately; none before the first.
    pub sync_time: Option<Nanos>,
    /// Its syncs take much longer than those of all others.
    pub lags: bool,
    /// Therefore it takes no new segments: the pool can spare it.
    pub is_set_aside: bool,
    /// Whether it could be taken offline now, or why not.
    pub may_go_offline: Result<(), Errno>,
    /// It has copies only, and a start after a crash needs no other member: it has all that is dirty, and each host batch.
    pub is_enough: bool,
}

impl MemberShown {
    /// Whether it is there for copies only.
    #[must_use]
    pub fn keeps_copies(&self) -> bool {
        self.copies_only && self.state != MemberState::Gone
    }
}

/// The missed member in whose place another one comes: the first of its kind. After a take-over the copy of another host
/// is the pool's flash, and what is missed is the flash that it had: the next host with a copy makes the pool whole.
fn stands_in_for(list: &Members, copies_only: bool) -> Option<MemberId> {
    let first = |of: bool| list.iter().find(|(_, row)| row.missed && row.copies_only == of).map(|(id, _)| id);
    first(copies_only).or_else(|| first(false))
}

/// Why no number is free for another device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoNumber {
    /// A member that is gone will leave one: the pool still moves what it had.
    NotYet,
    /// The checkpoints of this pool have no room for a table with so many slots more.
    TooManySlots,
}

/// The numbers of a pool's members, for another device that has so many slots.
struct Numbers<'a> {
    slots: u64,
    known: &'a [MemberShown],
    geometry: &'a Geometry,
    /// How many there are.
    most: usize,
}

impl Numbers<'_> {
    fn has_room_for(&self, more: u64) -> bool {
        let rows: u64 = self.known.iter().map(|shown| shown.segments).sum();
        self.geometry.has_room_for_rows(rows + more)
    }

    /// One that no member had yet.
    fn fresh(&self) -> Option<MemberId> {
        let next = u16::try_from(self.known.len()).ok().filter(|next| usize::from(*next) < self.most.min(MEMBERS_MAX));
        next.filter(|_| self.has_room_for(self.slots)).map(MemberId)
    }

    /// The members that are gone, and whose slots the device could take over.
    fn gone(&self) -> impl Iterator<Item = &MemberShown> {
        let fits = |shown: &&MemberShown| self.has_room_for(self.slots.saturating_sub(shown.segments));
        self.known.iter().filter(|shown| shown.state == MemberState::Gone).filter(fits)
    }
}

/// The number for another device that has so many slots: a new one while there are some of `most`, and the checkpoints
/// have room for its slots beside those of all members that ever were. Else that of a member that is gone, whose slots it
/// takes over. `is_kept` says which of those must keep theirs for now.
///
/// # Errors
/// [`NoNumber`].
pub fn number_for(
    slots: u64,
    known: &[MemberShown],
    geometry: &Geometry,
    most: usize,
    is_kept: impl Fn(&MemberShown) -> bool,
) -> Result<MemberId, NoNumber> {
    let numbers = Numbers { slots, known, geometry, most };
    if let Some(fresh) = numbers.fresh() {
        return Ok(fresh);
    }
    // The one that leaves the smallest table.
    let free = numbers.gone().filter(|shown| shown.is_spare && !is_kept(shown));
    let best = free.min_by_key(|shown| slots.saturating_sub(shown.segments));
    best.map(|shown| shown.member).ok_or(match numbers.gone().next() {
        Some(_) => NoNumber::NotYet,
        None => NoNumber::TooManySlots,
    })
}

/// The member that is gone and has least, if the next device would get no number but that of one that is gone, and none
/// of those is free. `lasts` says of a member whether something stays in its slots.
fn number_to_free(numbers: &Numbers<'_>, lasts: impl Fn(MemberId) -> bool) -> Option<MemberId> {
    let gone = || numbers.gone().filter(|shown| !shown.missed);
    if numbers.fresh().is_some() || gone().any(|shown| shown.is_spare) {
        return None;
    }
    gone().min_by_key(|shown| (lasts(shown.member), shown.blocks)).map(|shown| shown.member)
}

impl Engine {
    /// A member refused a write or a sync.
    pub(crate) fn member_refused(&mut self, member: MemberId, errno: Errno) {
        if self.store.takes_writes() && self.store.log().works(member) {
            // Those that are left may need the one that was set aside: with it the pool may have room to go on.
            self.take_laggard_back();
        }
        self.store.refused(member, errno);
        let untold = Mutation::LossUntold.is_planted(self.config.mutation);
        if self.store.takes_writes() && !self.store.log().works(member) && !untold {
            let segments = self.store.log().segments();
            self.membership.lose(member, |id| segments.has_copies_only(id));
        }
    }

    /// Whether the list that is wanted says of each member what the log does with it.
    pub(crate) fn list_agrees(&self) -> bool {
        let segments = self.store.log().segments();
        let alike = |(id, row): (MemberId, &Member)| {
            row.state == MemberState::Gone || row.copies_only == segments.has_copies_only(id)
        };
        !self.store.takes_writes() || self.membership.wanted().iter().all(alike)
    }

    /// The list of members that is wanted has come to count here.
    pub(crate) fn list_counts(&mut self, list: &Members) {
        if let Some(generation) = self.membership.counts(list) {
            self.tell_of_members(generation);
        }
    }

    fn tell_of_members(&mut self, generation: u64) {
        self.start(Purpose::TellMembers(generation), |ticket| Effect::MembersChanged { ticket, generation });
    }

    /// The origin's side has answered.
    pub(crate) fn told_of_members(&mut self, generation: u64, outcome: &Outcome) {
        let failed = matches!(outcome, Outcome::Failed(_));
        if matches!(outcome, Outcome::Failed(Errno::SHUTDOWN)) {
            // The origin is another host's for good. What waits for the list must not be answered, nor wait for ever.
            self.store.give_up();
        }
        if self.membership.told(generation, failed, self.now) {
            self.size_changed();
        }
    }

    /// A request to change the members.
    pub(crate) fn change_members(&mut self, id: RequestId, change: MembersChange) {
        let begun = if self.membership.is_busy() {
            Err(Errno::BUSY)
        } else if !self.membership.is_settled() {
            // A member was lost just now: the list without it comes first.
            return self.membership.ask(id, change, true);
        } else if !self.store.takes_writes() {
            Err(Errno::IO)
        } else {
            self.begin_members_change(change)
        };
        match begun {
            Ok(()) => self.membership.ask(id, change, false),
            Err(errno) => self.answer(id, Reply::Failed(errno)),
        }
    }

    fn begin_members_change(&mut self, change: MembersChange) -> Result<(), Errno> {
        self.take_laggard_back();
        let list = self.membership.wanted().clone();
        let geometry = *self.store.log().geometry();
        let in_use = |member: MemberId| list.get(member).filter(|row| row.state == MemberState::InUse).copied();
        match change {
            MembersChange::Add { member: id, row: member, instead_of } => {
                let slots_end = u64::from(member.used) * u64::from(geometry.segment_bytes) + member.start;
                let fits = member.used > 0 && member.used == member.slots && slots_end <= member.bytes;
                let known = list.iter().any(|(_, other)| other.name == member.name);
                let areas_fit = member.start >= geometry.checkpoint_start(1) + geometry.area_bytes;
                if !fits || !areas_fit || known || member.state != MemberState::InUse {
                    return Err(Errno::INVAL);
                }
                if list.get(id).is_some() && !self.is_spare(id) {
                    return Err(Errno::INVAL);
                }
                let longer = list.with_number(id, member).ok_or(Errno::NOSPC)?;
                self.outbox.member_times_mut().forget(id);
                self.extend(id, &longer)?;
                self.membership.want(match instead_of.or_else(|| stands_in_for(&list, member.copies_only)) {
                    Some(other) if list.get(other).is_some_and(|row| row.missed) => longer.forgiving(other),
                    _ => longer,
                });
            }
            MembersChange::Grow { member, bytes } => {
                let row = in_use(member).ok_or(Errno::INVAL)?;
                let used = slots_of(&row, bytes, geometry.segment_bytes).ok_or(Errno::INVAL)?;
                if used <= row.used {
                    return Err(Errno::INVAL);
                }
                let larger = list.with_room(member, used, bytes);
                self.extend(member, &larger)?;
                self.membership.want(larger);
            }
            MembersChange::Shrink { member, bytes } => {
                let row = in_use(member).ok_or(Errno::INVAL)?;
                let used = slots_of(&row, bytes, geometry.segment_bytes).ok_or(Errno::INVAL)?;
                if used == 0 || used >= row.used || !self.can_do_without(row.openable().saturating_sub(used)) {
                    return Err(Errno::INVAL);
                }
                self.store.empty_member(member, used);
            }
            MembersChange::Remove(member) if list.get(member).is_some_and(|row| row.missed) => {
                self.membership.want(list.forgiving(member));
            }
            MembersChange::Remove(member) => {
                let row = list.get(member).filter(|row| row.state != MemberState::Gone).ok_or(Errno::INVAL)?;
                let open = if row.state == MemberState::InUse { row.openable() } else { 0 };
                if !self.can_do_without(open) {
                    return Err(Errno::INVAL);
                }
                self.store.empty_member(member, 0);
                if row.state == MemberState::InUse {
                    self.membership.want(list.with_state(member, MemberState::Emptied));
                }
            }
            MembersChange::Offline(member) => {
                self.may_go_offline(member, self.exposed_blocks())?;
                self.member_refused(member, Errno::NODEV);
            }
        }
        Ok(())
    }

    /// Whether a member could be taken offline now. [`Errno::AGAIN`] while some dirty data has one copy.
    fn may_go_offline(&self, member: MemberId, exposed: u64) -> Result<(), Errno> {
        let row = self.membership.wanted().get(member).filter(|row| row.state == MemberState::InUse);
        let openable = row.ok_or(Errno::INVAL)?.openable();
        if !self.store.takes_writes() {
            return Err(Errno::IO);
        }
        if self.config.redundancy == Redundancy::None || !self.can_do_without(openable) {
            return Err(Errno::INVAL);
        }
        if exposed > 0 { Err(Errno::AGAIN) } else { Ok(()) }
    }

    /// Whether another device may have the number of a member that is gone: nothing lies there, or is on its way.
    fn is_spare(&self, member: MemberId) -> bool {
        let is_gone = self.membership.wanted().get(member).is_some_and(|row| row.state == MemberState::Gone);
        is_gone && self.store.log().is_spare(member) && !self.outbox.is_changing(member)
    }

    /// Whether the pool has room to work without so many slots that take new segments.
    fn can_do_without(&self, slots: u32) -> bool {
        self.store.log().segments().usable().saturating_sub(slots as usize) >= Log::SEGMENTS_LEAST
    }

    /// New slots of a member become homes. [`Errno::NOSPC`] if no checkpoint has room for them.
    fn extend(&mut self, member: MemberId, list: &Members) -> Result<(), Errno> {
        let row = list.get(member).ok_or(Errno::INVAL)?;
        let slots = list.iter().map(|(_, member)| u64::from(member.slots)).sum();
        if !self.store.log().geometry().has_room_for_rows(slots) {
            return Err(Errno::NOSPC);
        }
        self.store.extend_member(member, row);
        self.store.set_pool_bytes(list.bytes());
        Ok(())
    }

    /// Sees to it that the next device finds a number: what lies in slots of one that is gone moves, if it must.
    pub(crate) fn pump_numbers(&mut self) {
        if !self.membership.take_numbers_changed() || self.membership.wanted().given() == 1 {
            return;
        }
        let in_use = self.membership.wanted().iter().filter(|(_, row)| row.state == MemberState::InUse);
        let slots = in_use.map(|(_, row)| u64::from(row.slots)).max().unwrap_or(0);
        let (known, geometry) = (self.members(), *self.store.log().geometry());
        let numbers = Numbers { slots, known: &known, geometry: &geometry, most: self.config.numbers };
        let wanted = number_to_free(&numbers, |member| self.store.log().has_unreadable_of(member));
        self.store.want_number(wanted);
    }

    /// Takes back what is under way.
    pub(crate) fn cancel_members_change(&mut self, id: RequestId) {
        let begun = self.membership.asked().filter(|_| self.membership.is_settled());
        if begun.is_none() && !self.membership.waits() {
            return self.answer(id, Reply::Failed(Errno::NOENT));
        }
        if let Some(MembersChange::Remove(member) | MembersChange::Shrink { member, .. }) = begun
            && let Some(row) = self.membership.wanted().get(member).copied()
        {
            if row.state == MemberState::Emptied {
                self.membership.want(self.membership.wanted().with_state(member, MemberState::InUse));
            }
            self.store.admit_member(member, row.used);
        }
        if let Some(request) = self.membership.take_asked() {
            self.answer(request, Reply::Failed(Errno::CANCELED));
        }
        self.answer(id, Reply::Done);
    }

    /// Lets requests hear what is durable, once the origin and the superblock know what has one copy only.
    pub(crate) fn release_syncs(&mut self) {
        let log = self.store.log();
        if log.is_held() && self.membership.is_settled() && !log.has_untold_copies() {
            self.store.go_on_without_lost_members();
        }
    }

    /// Judges the members by their syncs: slower ones get less to write, and one that lags behind all others is set aside.
    pub(crate) fn pump_laggard(&mut self) {
        let timed = self.outbox.member_times_mut().take_timed() && self.outbox.member_times().all().len() > 1;
        if !timed || !self.membership.is_idle() || !self.store.takes_writes() {
            return;
        }
        let times = self.times_of_those_in_use();
        if !self.store.log().mirrors() {
            // Mirrored pairs take turns.
            self.store.set_speeds(speeds(&times));
        }
        let log = self.store.log();
        let needed = if log.is_to_mirror(self.config.redundancy) { 2 } else { 1 };
        let can_spare = |member: MemberId| {
            let segments = log.segments();
            let left = segments.free() - segments.free_on(member);
            times.len() > needed
                && self.membership.wanted().get(member).is_some_and(|row| self.can_do_without(row.openable()))
                && left > self.store.free_wanted()
        };
        let mut laggard = self.laggard;
        if laggard.judge(&times, can_spare) {
            self.laggard = laggard;
            self.lead_past_the_laggard();
        }
    }

    /// How long those members took that take new segments, or could.
    fn times_of_those_in_use(&self) -> Vec<MemberTime> {
        let list = self.membership.wanted();
        // One that has copies only is far away, and there is no other in its place.
        let is_in_use =
            |member: MemberId| list.get(member).is_some_and(|row| row.state == MemberState::InUse && !row.copies_only);
        let is_judged = |time: &&MemberTime| is_in_use(time.member) && self.store.log().works(time.member);
        self.outbox.member_times().all().iter().filter(is_judged).copied().collect()
    }

    /// Takes the member back that is set aside, if there is one.
    fn take_laggard_back(&mut self) {
        if self.laggard.take_back() {
            self.lead_past_the_laggard();
        }
    }

    /// New segments are opened on all members but the one that is set aside.
    fn lead_past_the_laggard(&mut self) {
        self.store.set_aside(self.laggard.aside());
        self.size_changed();
    }

    /// When members are to be asked whether they are there.
    pub(crate) fn next_probe(&self) -> Option<Nanos> {
        let log = self.store.log();
        let serves = log.takes_writes() && self.life.has_served() && !self.life.is_ending();
        let has_others = log.has_had_several_members() && self.membership.wanted().needed() > 1;
        let period = self.config.probe_period.filter(|_| serves && has_others)?;
        self.probes.due(period)
    }

    /// Asks each member whether it is there, once that is due.
    pub(crate) fn pump_probes(&mut self) {
        if self.next_probe().is_none_or(|due| due > self.now) {
            return;
        }
        let members = self.store.log().working();
        self.probes.asks(&members, self.now);
        for member in members {
            let at = Address { member, offset: SETTINGS_SLOTS[1] };
            self.outbox.read_flash(Purpose::Probe(member), &ReadFrom::Place(at), BLOCK as u32);
        }
    }

    /// A member has shown its settings, or not.
    pub(crate) fn probe_answered(&mut self, member: MemberId, outcome: &Outcome) {
        let asks_again = matches!(outcome, Outcome::Failed(_)) && self.store.log().works(member);
        if asks_again && !self.life.is_ending() {
            self.outbox.sync_flash(Purpose::ProbeSync(member), &[member]);
        } else {
            self.probes.answered(member);
        }
    }

    /// Whether the log can do without the slots that were emptied. While few segments are free elsewhere, what it must
    /// write goes to those slots, so they are given back last. With none elsewhere the next entry would find no segment.
    /// With some it waits for those that are on their way, and for no others: what is dirty may never be clean.
    fn can_give_back(&self) -> bool {
        let segments = self.store.log().segments();
        let on_their_way = segments.waiting() > 0 || self.reclaim.is_under_way();
        // Where there is no pair, entries go to a segment alone.
        match segments.free() {
            0 => false,
            free => free > MOVE_RESERVE || !on_their_way,
        }
    }

    /// Goes on with what was asked for, and with the emptying that an earlier use began.
    pub(crate) fn pump_members(&mut self) {
        if let Some(generation) = self.membership.tell_again(self.now) {
            self.tell_of_members(generation);
        }
        if !self.store.takes_writes()
            && let Some(request) = self.membership.take_asked()
        {
            return self.answer(request, Reply::Failed(Errno::IO));
        }
        if let Some((id, change)) = self.membership.take_ready() {
            self.change_members(id, change);
        }
        if self.membership.is_idle() || !self.life.has_served() || self.life.is_ending() {
            return;
        }
        if self.membership.empties() && self.store.log().free_segments() > WRITE_RESERVE {
            self.store.leave_closed_slots();
        }
        let list = self.membership.wanted().clone();
        let emptied = list.iter().find(|(_, row)| row.state == MemberState::Emptied).map(|(id, _)| id);
        if let Some(member) = emptied {
            if self.store.log().is_empty(member, 0) && self.can_give_back() {
                self.store.let_go_of_member(member);
                self.membership.want(list.with_state(member, MemberState::Gone));
            }
            return;
        }
        let row = |member: MemberId| list.get(member).copied();
        let mut works = true;
        match self.membership.asked() {
            None => return,
            Some(MembersChange::Add { member, .. }) => {
                works = row(member).is_some_and(|row| self.store.admit_member(member, row.used));
            }
            Some(MembersChange::Grow { member, .. }) => {
                works = row(member).is_some_and(|row| self.store.admit_member(member, row.used));
            }
            Some(MembersChange::Shrink { member, bytes }) => {
                let segment_bytes = self.store.log().geometry().segment_bytes;
                if let Some(row) = row(member).filter(|row| row.bytes != bytes && row.state == MemberState::InUse)
                    && let Some(used) = slots_of(&row, bytes, segment_bytes)
                {
                    if self.store.log().is_empty(member, used) && self.can_give_back() {
                        let smaller = list.with_room(member, used, bytes);
                        self.store.give_back(member, used);
                        self.store.set_pool_bytes(smaller.bytes());
                        self.membership.want(smaller);
                    }
                    return;
                }
            }
            // Who asked closes the device then.
            Some(MembersChange::Remove(member) | MembersChange::Offline(member)) if self.outbox.is_changing(member) => {
                return;
            }
            Some(MembersChange::Remove(_) | MembersChange::Offline(_)) => {}
        }
        self.size_changed();
        if let Some(request) = self.membership.take_asked() {
            self.answer(request, if works { Reply::Done } else { Reply::Failed(Errno::IO) });
        }
    }

    /// Dirty blocks that one member has, where two should. None if one is all that is asked for. At least 1 while the
    /// loss of a member would be one of more than clean blocks, for whichever reason.
    #[must_use]
    pub fn exposed_blocks(&self) -> u64 {
        let log = self.store.log();
        // One that is being emptied can still be lost.
        let is_one = self.membership.is_one() && self.membership.wanted().needed() < 2;
        if is_one || self.config.redundancy == Redundancy::None {
            return 0;
        }
        let exposed = log.segments().iter().filter(|(id, _)| log.is_exposed(*id));
        let blocks: u64 = exposed.map(|(_, segment)| u64::from(segment.dirty.max(1))).sum();
        let copies = self.checkpoints.host_copies();
        let is_told = copies.all() > 1 && copies.reach(log.copies_to_make(self.config.redundancy));
        let is_known = is_told && self.membership.is_settled() && !log.is_held();
        blocks.max(u64::from(!is_known || !log.is_double()))
    }

    /// Dirty blocks that still move, because slots are to be emptied: of a member that goes, or that becomes smaller.
    pub(crate) fn leaving_blocks(&self) -> u64 {
        if !self.membership.empties() {
            return 0;
        }
        let log = self.store.log();
        let leaving = log.segments().iter().filter(|(id, _)| log.is_leaving(*id));
        leaving.map(|(_, segment)| u64::from(segment.dirty)).sum()
    }

    /// On how many members a start after a crash expects each host batch. It is refused while these may all be among those
    /// that are missing.
    #[must_use]
    pub fn host_copies(&self) -> HostCopies {
        self.checkpoints.host_copies()
    }

    /// Whether a member has copies only, and a start after a crash needs no other. Before the first checkpoint of this
    /// life, what the origin waits for may be on some members only.
    fn is_enough(&self, member: MemberId, row: &Member) -> bool {
        row.keeps_copies()
            && !self.checkpoints.starting()
            && self.host_copies().is_whole(member)
            && self.store.log().is_enough(member)
    }

    /// All members that the pool has had.
    #[must_use]
    pub fn members(&self) -> Vec<MemberShown> {
        let (log, segments) = (self.store.log(), self.store.log().segments());
        let list = self.membership.wanted().iter();
        let exposed = self.exposed_blocks();
        let slow = self.laggard.aside().or_else(|| laggard(&self.times_of_those_in_use()));
        let sync_time = |member| {
            let time = self.outbox.member_times().all().iter().find(|time| time.member == member)?;
            (time.sync.count > 0).then_some(time.sync.mean)
        };
        let mut shown: Vec<MemberShown> = list
            .map(|(member, row)| MemberShown {
                member,
                name: row.name,
                state: row.state,
                missed: row.missed,
                is_spare: self.is_spare(member),
                works: log.works(member),
                copies_only: row.copies_only,
                bytes: row.bytes,
                segments: u64::from(row.slots),
                free_segments: segments.free_on(member) as u64,
                blocks: 0,
                dirty_blocks: 0,
                sync_time: sync_time(member),
                lags: slow == Some(member),
                is_set_aside: self.laggard.aside() == Some(member),
                may_go_offline: self.may_go_offline(member, exposed),
                is_enough: self.is_enough(member, row),
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

#[cfg(test)]
mod tests {
    use headpond_format::MemberName;

    use super::*;

    fn shown(member: u16, row: &Member) -> MemberShown {
        MemberShown {
            member: MemberId(member),
            name: row.name,
            state: row.state,
            is_spare: row.state == MemberState::Gone,
            missed: false,
            works: row.state == MemberState::InUse,
            copies_only: row.copies_only,
            bytes: row.bytes,
            segments: u64::from(row.slots),
            free_segments: 0,
            blocks: 0,
            dirty_blocks: 0,
            sync_time: None,
            lags: false,
            is_set_aside: false,
            may_go_offline: Ok(()),
            is_enough: false,
        }
    }

    /// A chain of take-overs: each owner's flash is lost, its peer's copy goes on, and another peer joins.
    #[test]
    fn members_can_be_replaced_for_ever() {
        for bytes in [64 << 20, 1 << 30, 1 << 40] {
            let (geometry, rows) = Geometry::for_members(&[(MemberName([1; 16]), bytes)], None).unwrap();
            let row = rows[0];
            let mut list = Members::first(row);
            let mut last = MemberId(0);
            for round in 0..3 * MEMBERS_MAX {
                let known: Vec<_> = list.iter().map(|(member, row)| shown(member.0, row)).collect();
                let member = number_for(u64::from(row.slots), &known, &geometry, MEMBERS_MAX, |_| false).unwrap();
                let joined = Member { name: MemberName([2 + round as u8; 16]), ..row };
                list = list.with_number(member, joined).unwrap();
                let slots = list.iter().map(|(_, row)| u64::from(row.slots)).sum();
                assert!(geometry.has_room_for_rows(slots), "{bytes} bytes, round {round}");
                list = list.with_state(last, MemberState::Gone);
                last = member;
            }
        }
    }

    #[test]
    fn a_number_is_not_given_again_while_something_of_the_member_is_wanted() {
        let (geometry, rows) = Geometry::for_members(&[(MemberName([1; 16]), 1 << 30)], None).unwrap();
        // Each device that came later was larger than the pool was when it was made.
        let slots = 3 * u64::from(rows[0].slots);
        let gone = Member { state: MemberState::Gone, slots: 3 * rows[0].slots, ..rows[0] };
        let mut known = vec![shown(0, &rows[0])];
        while geometry.has_room_for_rows(known.iter().map(|shown| shown.segments).sum::<u64>() + slots) {
            known.push(shown(known.len() as u16, &gone));
        }
        assert!(known.len() < MEMBERS_MAX, "the table is what ends first");
        let number = |known: &[MemberShown], slots| {
            number_for(slots, known, &geometry, MEMBERS_MAX, |shown| shown.member.0 == 1)
        };
        assert_eq!(number(&known, slots), Ok(MemberId(2)));
        assert_eq!(number(&known, 100 * slots), Err(NoNumber::TooManySlots));
        known.iter_mut().for_each(|shown| shown.is_spare = false);
        assert_eq!(number(&known, slots), Err(NoNumber::NotYet));
    }
}
