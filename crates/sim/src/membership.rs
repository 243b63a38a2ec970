//! Histories of members (`--members`): they are lost, missing at a start and back as old ones, and the pool's list of
//! them changes, all in the midst of load and of crashes.
//!
//! What is judged, beside everything that other histories judge:
//! - A pool that mirrors loses one member at any moment, and no application notices: no error, and nothing that a sync
//!   covered is gone. No second member is lost until the pool says that all is mirrored again (`world/losses.rs`).
//! - With `--parity` the same holds of pools that make rows, whose segments then have one copy and a parity.
//! - Without a mirror a loss excuses errors, and a refused start, if the member alone had dirty data. No answer is wrong.
//! - A member that the pool went on without is not believed: not beside the others, and not by itself.
//! - After a crash the list of members is the old one or the new one, and a change that was answered is in it.

use headpond_base::{BatchNumber, BufMut, MemberId};
use headpond_engine::{MembersChange, Request, heal_superblock};
use headpond_format::{Address, Member, MemberName, MemberState};
use headpond_timed::Rng;

use crate::devices::{AsIs, Device, Health};
use crate::flash::{Layout, WriteFate};
use crate::outliving::OutlivingMemory;
use crate::roster::Change;
use crate::scenario::{NUMBERS, POOL};
use crate::sim::{Asked, Sim};
use crate::takeover::outliving_is_lost;
use crate::under_test::{Refusal, Restored};

/// The most members that a pool has here at once.
const MEMBERS_MOST: usize = 5;

impl Sim<'_> {
    /// Now and then something happens to the members.
    pub(crate) fn disturb_members(&mut self, rng: &mut Rng) -> Result<(), String> {
        self.world.notice_repair();
        if self.world.core.is_none() || !rng.chance(self.scenario.disturbances) {
            return Ok(());
        }
        match rng.below(3) {
            0 => self.lose_one(rng),
            _ => self.change_members(rng),
        }
    }

    /// A member vanishes, or refuses writes from now on.
    fn lose_one(&mut self, rng: &mut Rng) -> Result<(), String> {
        let members = self.world.flash.members();
        let member = *rng.pick(&members);
        let device = self.world.flash.device_of(member)?;
        if self.world.flash.all()[device].health != Health::Well || !self.world.lose(device) {
            return Ok(());
        }
        if rng.chance(500) {
            self.world.trace(|| format!("{member:?} vanishes"));
            self.world.flash.vanish(device, rng);
        } else {
            self.world.trace(|| format!("{member:?} refuses writes"));
            self.world.flash.all_mut()[device].health = Health::RefusesWrites;
        }
        Ok(())
    }

    /// Asks for another list of members.
    fn change_members(&mut self, rng: &mut Rng) -> Result<(), String> {
        let busy = self.requests.values().any(|asked| matches!(asked, Asked::Members { .. }));
        if busy && rng.chance(200) {
            return self.ask_members(Change::TakeBack, Request::CancelMembersChange);
        }
        let Some(core) = self.world.core.as_ref().filter(|_| !busy && !self.stopping) else { return Ok(()) };
        let states = core.members();
        let in_use: Vec<MemberId> = (0..)
            .map(MemberId)
            .zip(&states)
            .filter(|(_, member)| member.state == MemberState::InUse)
            .map(|(id, _)| id)
            .collect();
        // To remove a member while another is lost unnoticed is to lose two.
        let lost = self.world.has_lost();
        // With fewer there are no rows.
        let least = if self.options.parity { 3 } else { 1 };
        let numbers = if self.options.reuse { NUMBERS } else { 20 };
        match rng.below(9) {
            0..3 if in_use.len() < MEMBERS_MOST => {
                let spare: Vec<usize> = (0..states.len()).filter(|member| states[*member].is_spare).collect();
                match spare.is_empty() || !self.options.reuse || rng.chance(200) {
                    true if states.len() < numbers => self.add_member(states.len(), rng),
                    true => Ok(()),
                    false => self.add_member(*rng.pick(&spare), rng),
                }
            }
            3..6 if in_use.len() > least && !lost => {
                let member = *rng.pick(&in_use);
                self.ask_change(Change::Remove { member }, MembersChange::Remove(member))
            }
            6 if !in_use.is_empty() && !lost => {
                let member = *rng.pick(&in_use);
                let layout = self.layout(member)?;
                let bytes = layout.start + rng.between(1, layout.slots) * layout.segment_bytes;
                self.ask_change(Change::Shrink { member, bytes }, MembersChange::Shrink { member, bytes })
            }
            7.. if !in_use.is_empty() => {
                let member = *rng.pick(&in_use);
                let device = self.world.flash.device_of(member)?;
                let flash = &mut self.world.flash.all_mut()[device].flash;
                flash.grow(rng.between(1, 10));
                let bytes = flash.bytes();
                self.ask_change(Change::Grow { member }, MembersChange::Grow { member, bytes })
            }
            _ => Ok(()),
        }
    }

    fn layout(&self, member: MemberId) -> Result<Layout, String> {
        self.world.flash.of(member)?.flash.layout().ok_or_else(|| format!("{member:?} has no segments"))
    }

    pub(crate) fn ask_change(&mut self, change: Change, asked: MembersChange) -> Result<(), String> {
        self.ask_members(change, Request::ChangeMembers(asked))
    }

    fn ask_members(&mut self, change: Change, request: Request) -> Result<(), String> {
        self.ask(Asked::Members { change }, request).map(drop)
    }

    /// Adds a device: a new one, or an old one with all that is on it.
    fn add_member(&mut self, given: usize, rng: &mut Rng) -> Result<(), String> {
        let first = self.layout(*self.world.flash.members().first().ok_or("a pool without a member")?)?;
        let member = MemberId(given as u16);
        let old = self.world.flash.unused(rng).filter(|_| rng.chance(500));
        let device = old.unwrap_or_else(|| {
            let pool = self.scenario.geometry.pool_bytes;
            let bytes = first.start + rng.between(pool / 4, pool) / first.segment_bytes * first.segment_bytes;
            let mut device = Device::new(bytes, *rng.pick(&[1, 1, 8]));
            device.flash.set_layout(first);
            self.world.flash.plug_in(device)
        });
        self.world.is_given(device);
        let flash = &mut self.world.flash.all_mut()[device].flash;
        let (bytes, start) = (flash.bytes(), first.start);
        let slots = ((bytes - start) / first.segment_bytes) as u32;
        flash.set_layout(Layout { slots: u64::from(slots), ..first });
        if self.options.reuse {
            // As control does: under a number that another had, its heads would be plausible.
            self.world.flash.all_mut()[device].flash.wipe_heads();
            self.world.joins(device);
            if let Some(settled) = self.roster.settled.get_mut(given) {
                *settled = MemberState::InUse;
            }
        }
        self.world.flash.name(member, device);
        self.roster.names += 1;
        let name = MemberName([100 + self.roster.names; 16]);
        let copies_only = self.options.copies && rng.chance(500);
        let row = Member { copies_only, ..Member::in_use(name, slots, bytes, start) };
        self.ask_change(Change::Add { member }, MembersChange::Add { member, row, instead_of: None })
    }

    /// A change of the list is answered.
    pub(crate) fn members_changed(&mut self, change: Change) -> Result<(), String> {
        self.world.none_joins();
        let Some(core) = &self.world.core else { return Ok(()) };
        let states: Vec<MemberState> = core.members().iter().map(|member| member.state).collect();
        let state = |member: MemberId| states.get(usize::from(member.0)).copied();
        match change {
            Change::Add { member } if state(member).is_none() => Err(format!("{member:?} was added, and is not there")),
            Change::Remove { member } if state(member) != Some(MemberState::Gone) => {
                Err(format!("{member:?} was removed, and is {:?}", state(member)))
            }
            Change::Remove { member } => {
                // Nothing needs it any more: whatever is done to it.
                let device = self.world.flash.device_of(member)?;
                self.world.flash.take_out(member)?;
                self.world.losses.left_behind.remove(&device);
                self.roster.settled = states;
                Ok(())
            }
            Change::Offline { member } if state(member) != Some(MemberState::Gone) => {
                Err(format!("{member:?} was taken offline, and is {:?}", state(member)))
            }
            Change::Offline { member } => {
                // It is pulled out.
                let device = self.world.flash.device_of(member)?;
                self.world.flash.all_mut()[device].health = Health::Away;
                self.roster.settled = states;
                Ok(())
            }
            Change::Shrink { member, bytes } => {
                // The rest of the device is of no use to the pool.
                self.world.flash.of_mut(member)?.flash.scribble_from(bytes);
                self.roster.settled = states;
                Ok(())
            }
            // The emptying that an earlier life began goes on, and its list may be on its way.
            Change::TakeBack => Ok(()),
            _ => {
                self.roster.settled = states;
                Ok(())
            }
        }
    }

    /// A change of the list was refused, or taken back.
    pub(crate) fn members_not_changed(&mut self, change: Change) {
        self.world.none_joins();
        let Some(core) = &self.world.core else { return };
        let members = core.members();
        match change {
            Change::Add { member } if members.len() <= usize::from(member.0) => self.world.flash.forget(member),
            Change::Offline { member } => {
                let stays = members.get(usize::from(member.0)).is_some_and(|now| now.state == MemberState::InUse);
                if let Some(device) = self.world.flash.device_of(member).ok().filter(|_| stays) {
                    self.world.is_kept(device);
                }
            }
            _ => {}
        }
    }

    /// After an end: which devices the next start is given.
    pub(crate) fn replug(&mut self, rng: &mut Rng) {
        let count = self.world.flash.all().len();
        for index in 0..count {
            let may_be_back = self.world.may_be_back(index);
            let device = &mut self.world.flash.all_mut()[index];
            let back = match device.health {
                Health::Well => false,
                Health::RefusesWrites => rng.chance(500),
                Health::Away if device.taken_out => false,
                Health::Away => rng.chance(400),
            };
            if back && may_be_back {
                device.health = Health::Well;
                self.world.trace(|| format!("device {index} is back"));
            }
        }
        if self.options.copies && self.host_deaths.chance(150) {
            let host = self.world.lose_host(&mut self.host_deaths);
            if !host.is_empty() {
                // Nothing that outlives a daemon outlives its host.
                outliving_is_lost(self);
            }
            for device in host {
                self.world.flash.all_mut()[device].health = Health::Away;
            }
        }
        let here = self.world.flash.here();
        if here.len() > 1 && rng.chance(200) {
            let index = *rng.pick(&here);
            if self.world.lose(index) {
                self.world.trace(|| format!("device {index} is missing at the next start"));
                self.world.flash.all_mut()[index].health = Health::Away;
            }
        }
    }

    /// A start was refused. Returns whether that is right, because a member is missing whose loss costs data: the
    /// operator then brings the device back.
    pub(crate) fn brings_back_missing(&mut self, why: &str) -> bool {
        self.plugs_in_anew(why, |device| device.is_away() && !device.taken_out)
    }

    /// A start was refused, because no device takes what an earlier life left in memory. Returns whether some refuse
    /// writes: they take them again, once the operator has plugged them in anew.
    pub(crate) fn mends_refusing(&mut self, why: &str) -> bool {
        self.plugs_in_anew(why, |device| device.health == Health::RefusesWrites)
    }

    /// A start was refused, because all devices are there, and none has what the last process acknowledged: the only one
    /// with it refused the sync, and forgot it. Returns whether that is right: the operator then unmounts and mounts
    /// again, as after a power failure.
    pub(crate) fn goes_on_without_memory(&mut self, why: &str) -> bool {
        let named = self.world.outliving.as_mut().map(OutlivingMemory::last_acknowledged);
        if !self.world.losses.uncovered || !matches!(named, Some(Ok(Some(_)))) {
            return false;
        }
        self.world.trace(|| format!("refused; mounted anew: {why}"));
        outliving_is_lost(self);
        true
    }

    fn plugs_in_anew(&mut self, why: &str, which: impl Fn(&Device) -> bool) -> bool {
        let all = self.world.flash.all();
        let found: Vec<usize> = (0..all.len()).filter(|index| which(&all[*index])).collect();
        if !self.world.losses.uncovered || found.is_empty() {
            return false;
        }
        self.world.trace(|| format!("refused; devices {found:?} are plugged in anew: {why}"));
        for index in found {
            self.world.flash.all_mut()[index].health = Health::Well;
        }
        true
    }

    /// A member vanishes in the midst of a start. What the start has found, if it goes on without it.
    pub(crate) fn lose_in_recovery(&mut self) -> Option<Box<dyn Restored>> {
        let here = self.world.flash.here();
        if !self.options.members || here.len() < 2 || !self.deaths.chance(100) {
            return None;
        }
        let device = *self.deaths.pick(&here);
        let reads = self.deaths.below_one_of(&[3, 30, 300]);
        let (vanished, result) = self.recover_losing(&here, device, reads);
        if !vanished || !self.world.lose(device) {
            return None;
        }
        self.world.trace(|| format!("device {device} vanished during recovery: {:?}", result.as_ref().err()));
        self.world.flash.vanish(device, &mut self.deaths);
        self.roster.given = here;
        result.and_then(|found| self.judged(found)).ok()
    }

    /// The pool, if it is the one that the origin waits for, and has what the last process acknowledged.
    pub(crate) fn judged(&mut self, found: Box<dyn Restored>) -> Result<Box<dyn Restored>, Refusal> {
        if self.options.members {
            self.world.marker.judge(&*found).map_err(Refusal)?;
        }
        let acknowledged = self.world.outliving.as_mut().map(OutlivingMemory::last_acknowledged).transpose();
        let ends = BatchNumber(found.last_host_batch());
        match acknowledged.map_err(Refusal)?.flatten() {
            Some(last) if last.is_lost_in(POOL, ends) => {
                Err(Refusal(format!("{last:?} is lost: the log ends at {ends:?}")))
            }
            _ => Ok(found),
        }
    }

    /// What a start found of the members.
    pub(crate) fn meet_members(&mut self, restored: &dyn Restored) -> Result<(), String> {
        self.world.none_joins();
        let here = std::mem::take(&mut self.roster.given);
        let places = restored.places();
        self.world.trace(|| format!("members {places:?} of devices {here:?}, list {:?}", restored.members()));
        for (device, place) in here.iter().zip(&places) {
            if place.is_some() && self.world.losses.left_behind.contains(device) && !self.damaged {
                return Err(format!("device {device} is {place:?}, and the pool durably went on without it"));
            }
        }
        self.world.flash.meet(&here, &places);
        let states = restored.members();
        for (index, settled) in self.roster.settled.iter().enumerate() {
            match states.get(index) {
                None if !self.damaged => return Err(format!("member {index} was added, and the list lost it")),
                Some(state) if *settled == MemberState::Gone && *state != MemberState::Gone && !self.damaged => {
                    return Err(format!("member {index} was removed, and is {state:?} again"));
                }
                _ => {}
            }
        }
        self.world.meet_lost();
        let all_well = self.world.flash.all().iter().all(|device| device.health == Health::Well);
        if self.world.losses.uncovered && !(all_well && self.world.losses.left_behind.is_empty()) {
            // What one life excuses, the next meets again.
            self.world.injected.flash_write += 1;
        }
        Ok(())
    }

    /// As control does before it notes a use beside the origin: each member has two superblocks.
    pub(crate) fn heal_members(&mut self) -> Result<(), String> {
        const TICKET: u64 = u64::MAX;
        for member in self.world.flash.members() {
            let device = self.world.flash.of(member)?;
            let healed = heal_superblock(&mut AsIs(&device.flash)).ok().flatten();
            if let Some((offset, bytes)) = healed {
                let at = Address { member, offset };
                self.world.flash.start_write(at, TICKET, BufMut::copy_of(&bytes).freeze())?;
                // One that fails now fails the engine's first sync, too.
                let _ = self.world.flash.finish_write(member, TICKET, WriteFate::Done, &mut self.deaths)?;
                self.world.flash.start_sync(member, TICKET)?;
                let _ = self.world.flash.finish_sync(member, TICKET, false, &mut self.deaths)?;
            }
        }
        Ok(())
    }

    /// A device that the pool went on without, alone: it must not pass for the pool.
    pub(crate) fn try_one_left_behind(&mut self) -> Result<(), String> {
        let left: Vec<usize> = self.world.losses.left_behind.iter().copied().collect();
        if left.is_empty() || self.damaged || !self.deaths.chance(300) {
            return Ok(());
        }
        let device = *self.deaths.pick(&left);
        if let Ok(found) = self.recover_from(&[device])
            && self.world.marker.judge(&*found).is_ok()
        {
            return Err(format!("device {device} alone passes for the pool, which durably went on without it"));
        }
        Ok(())
    }

    /// A start that is given some of the devices, and nothing else: refused, or it has each batch of which a request heard
    /// that it is durable. Nobody goes on from it.
    pub(crate) fn try_fewer(&mut self) -> Result<(), String> {
        if self.damaged {
            return Ok(());
        }
        (0..2).try_for_each(|_| self.try_some())
    }

    fn try_some(&mut self) -> Result<(), String> {
        let here = self.world.flash.here();
        let some: Vec<usize> = here.iter().copied().filter(|_| self.fewer.chance(500)).collect();
        if some.is_empty() || some.len() == here.len() {
            return Ok(());
        }
        let Ok(found) = self.recover_from(&some).and_then(|found| self.judged(found)) else { return Ok(()) };
        let (durable, ends) = (self.durable_host_batch, found.last_host_batch());
        // After a stop in good order only words that something is clean came behind the checkpoint.
        if ends < durable && !found.clean_stop() {
            return Err(format!(
                "a start from devices {some:?} of {here:?} misses batches {ends} to {durable}, and is not refused"
            ));
        }
        Ok(())
    }
}
