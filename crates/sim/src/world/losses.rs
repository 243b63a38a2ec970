//! Which member may be lost when, so that the pool has to hide it: at most one, until the pool says that all dirty data
//! has two copies again. A few histories lose more. Then errors are excused, unless the second had no dirty block.

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::MemberId;
use headpond_format::MemberState;
use headpond_timed::Rng;

use super::World;
use crate::devices::Health;
use crate::scenario::Scenario;
use crate::under_test::{MemberNow, UnderTest};

/// The one device of a pool that mirrors whose reads fail and whose bits rot.
const FRAIL: usize = 0;

/// The last loss, until the pool has made up for it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Of these devices: of one, or of all flashes of the host.
    Devices(BTreeSet<usize>),
    /// Of one that the pool was given anew since. To lose that once more is another loss.
    GivenAnew,
}

/// Devices by whose they are.
#[derive(Clone, Default)]
struct Hosts {
    /// The flashes of the host.
    own: BTreeSet<usize>,
    /// Those of other hosts.
    others: Vec<usize>,
    /// Of these, each that is enough for a start, without any other.
    enough: Vec<usize>,
}

/// What may be lost, and what is.
#[derive(Clone)]
pub(crate) struct Losses {
    /// Members are lost only as this file allows it.
    family: bool,
    mirrors: bool,
    /// What the pool has not made up for.
    lost: Option<Lost>,
    /// How the last daemon left the pool, as `is_covered` says it.
    was_covered: bool,
    /// The devices when the last daemon ended, if a start needed none of the host's.
    hosts: Hosts,
    /// Devices of a host that was lost while no other loss would have been made up for. They stay away until the pool has
    /// gone on without them: with some of them back, it needs all.
    stay_away: BTreeSet<usize>,
    /// How many losses may still cost data.
    uncovered_left: u64,
    /// A loss cost data.
    pub(crate) uncovered: bool,
    /// Bits have rotted that only other members still have.
    rotten: bool,
    /// Devices that the pool durably went on without: nobody must believe them again.
    pub(crate) left_behind: BTreeSet<usize>,
    /// Losses, repairs, lists that were told, and losses in the middle of a repair that must cost nothing.
    pub(crate) counts: [u64; 4],
    /// How often each device was lost, or lost a part of what it had.
    times: BTreeMap<usize, u64>,
    /// Those that a list which is being told leaves behind, by its generation.
    leaving: (u64, Vec<usize>),
    /// A device that was given the number of a member that is gone, and may be a member soon.
    joining: Option<usize>,
}

impl Losses {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            family: scenario.disturbances > 0,
            mirrors: scenario.mirrors,
            lost: None,
            was_covered: scenario.mirrors && has_room_without_any_one(scenario),
            hosts: Hosts::default(),
            stay_away: BTreeSet::new(),
            uncovered_left: scenario.uncovered_losses,
            uncovered: false,
            rotten: false,
            left_behind: BTreeSet::new(),
            counts: [0; 4],
            times: BTreeMap::new(),
            leaving: (0, Vec::new()),
            joining: None,
        }
    }
}

impl Losses {
    fn note_time(&mut self, device: usize) {
        *self.times.entry(device).or_default() += 1;
    }

    fn times_lost(&self, device: usize) -> u64 {
        self.times.get(&device).copied().unwrap_or_default()
    }

    /// Of what the last daemon left nothing more may be lost.
    pub(super) fn is_covered_no_more(&mut self) {
        self.was_covered = false;
        self.hosts = Hosts::default();
    }
}

/// Segments that a log needs.
const SEGMENTS_LEAST: u64 = 12;

/// Whether a new pool can go on after the loss of any one member.
fn has_room_without_any_one(scenario: &Scenario) -> bool {
    scenario.list().is_some_and(|list| {
        list.iter().all(|(lost, _)| {
            let left = || list.iter().filter(|(id, _)| *id != lost).map(|(_, member)| member);
            let only_copies = left().all(|member| member.copies_only);
            let counts = left().filter(|member| only_copies || !member.copies_only);
            counts.map(|member| u64::from(member.slots)).sum::<u64>() >= SEGMENTS_LEAST
        })
    })
}

impl World {
    /// The daemon ends: what may be lost before the next start is what it leaves.
    pub(crate) fn note_covered(&mut self) {
        self.losses.was_covered = self.is_covered();
        self.losses.hosts = self.hosts();
    }

    fn hosts(&self) -> Hosts {
        let Some(core) = self.core.as_ref().filter(|_| self.losses.mirrors) else { return Hosts::default() };
        let members = core.members();
        let devices = |which: &dyn Fn(&MemberNow) -> bool| {
            let here = (0..).map(MemberId).zip(&members).filter(|(_, member)| member.state != MemberState::Gone);
            let those = here.filter(|(_, member)| which(member));
            those.filter_map(|(id, _)| self.flash.device_of(id).ok()).collect::<Vec<_>>()
        };
        Hosts {
            own: devices(&|member| !member.copies_only).into_iter().collect(),
            others: devices(&|member| member.copies_only),
            enough: devices(&|member| member.is_enough),
        }
    }

    /// The host is lost with all its flashes before the next start, unless this history must keep it; now and then others
    /// with it, but for one that is enough. Their flashes.
    pub(crate) fn lose_host(&mut self, rng: &mut Rng) -> BTreeSet<usize> {
        let Hosts { own, others, mut enough } = std::mem::take(&mut self.losses.hosts);
        enough.retain(|device| {
            let rots = self.losses.rotten && *device == FRAIL;
            self.flash.all()[*device].health == Health::Well && !self.is_lost(*device) && !rots
        });
        if enough.is_empty() || own.is_empty() {
            return BTreeSet::new();
        }
        let stays = *rng.pick(&enough);
        let mut lost = own;
        lost.extend(others.into_iter().filter(|device| *device != stays && rng.chance(500)));
        self.trace(|| format!("the host is lost, with devices {lost:?}; {stays} has everything"));
        self.losses.stay_away = if self.is_covered() { BTreeSet::new() } else { lost.clone() };
        if let Some(Lost::Devices(before)) = &self.losses.lost {
            lost.extend(before);
        }
        self.losses.lost = Some(Lost::Devices(lost.clone()));
        self.losses.counts[0] += 1;
        lost.iter().for_each(|device| self.losses.note_time(*device));
        lost
    }

    /// The flashes of this host, with how often each was lost.
    pub(crate) fn own_flashes(&self) -> BTreeMap<usize, u64> {
        let own = self.hosts().own.into_iter();
        own.map(|device| (device, self.losses.times_lost(device))).collect()
    }

    /// Whether there were such, and none was lost since, nor anything that costs data.
    pub(crate) fn has_all_along(&self, flashes: &BTreeMap<usize, u64>) -> bool {
        let kept = |(device, times): (&usize, &u64)| self.losses.times_lost(*device) == *times;
        !flashes.is_empty() && flashes.iter().all(kept) && !self.losses.uncovered
    }

    /// Whether a loss is one that the pool has not made up for.
    pub(crate) const fn has_lost(&self) -> bool {
        self.losses.lost.is_some()
    }

    /// Whether this device is one of those.
    fn is_lost(&self, device: usize) -> bool {
        matches!(&self.losses.lost, Some(Lost::Devices(lost)) if lost.contains(&device))
    }

    /// Whether a lost device may be back at the next start.
    pub(crate) fn may_be_back(&self, device: usize) -> bool {
        !self.losses.stay_away.contains(&device) || !self.is_lost(device)
    }

    /// Devices that were lost are back before the pool went on without them. To lose one of these is another loss.
    pub(crate) fn meet_lost(&mut self) {
        let Some(Lost::Devices(lost)) = &self.losses.lost else { return };
        let is_away = |device: &usize| {
            self.flash.member_of(*device).is_none() || self.flash.all()[*device].health != Health::Well
        };
        let away: BTreeSet<usize> = lost.iter().copied().filter(is_away).collect();
        self.losses.lost = (!away.is_empty()).then_some(Lost::Devices(away));
    }

    /// Whether any one member can be lost without any loss of data.
    pub(crate) fn is_covered(&self) -> bool {
        let Some(core) = &self.core else { return self.losses.was_covered && self.losses.lost.is_none() };
        let in_use = core.members().iter().filter(|member| member.state != MemberState::Gone).count();
        self.losses.mirrors && self.losses.lost.is_none() && in_use > 1 && core.exposed_blocks() == 0
    }

    /// Whether the loss of this member may cost dirty data, though the pool has not made up for another loss. It must
    /// not, if all dirty blocks are elsewhere, and two members are left with room enough: else the pool ends. Without copies
    /// there are entries of one member alone: a new size is one, and has no block. A start after a crash cannot know whether
    /// the missing one had some; nor whether two had, if the list names both, as the pool has noticed neither.
    fn may_cost(&self, device: usize) -> bool {
        let mirrors = |core: &&dyn UnderTest| self.losses.mirrors && core.host_copies().all() > 1;
        let Some(core) = self.core.as_deref().filter(mirrors) else { return true };
        let members = core.members();
        let is_lost = |id| self.flash.device_of(id).is_ok_and(|other| self.is_lost(other));
        let lost_now = self.flash.member_of(device);
        let in_use = (0..).map(MemberId).zip(&members).filter(|(_, member)| member.state == MemberState::InUse);
        let (unnoticed, in_use): (Vec<_>, Vec<_>) = in_use.partition(|(id, _)| is_lost(*id));
        let left = in_use.into_iter().filter(|(id, _)| Some(*id) != lost_now).map(|(_, member)| member);
        let left: Vec<_> = left.collect();
        let only_copies = left.iter().all(|member| member.copies_only);
        let counts = left.iter().filter(|member| only_copies || !member.copies_only);
        let of = |member: &MemberId| members.get(usize::from(member.0));
        !unnoticed.is_empty()
            || left.len() < 2
            || counts.map(|member| member.segments).sum::<u64>() < SEGMENTS_LEAST
            || lost_now.as_ref().and_then(of).is_none_or(|member| member.dirty > 0)
    }

    /// A member is lost, unless this history must keep it. Returns whether it is.
    pub(crate) fn lose(&mut self, device: usize) -> bool {
        if !self.losses.family || self.is_lost(device) {
            return self.losses.family;
        }
        // What has rotted on one is good on the others.
        let covered = self.is_covered() && (!self.losses.rotten || device == FRAIL);
        if !covered {
            if self.losses.uncovered_left == 0 {
                return false;
            }
            self.losses.uncovered_left -= 1;
            let costs = self.may_cost(device);
            self.trace(|| format!("a second loss, which may cost dirty data: {costs}"));
            if costs {
                self.losses.uncovered = true;
                self.injected.flash_write += 1;
            } else {
                self.losses.counts[3] += 1;
            }
        }
        if self.faults.flash_read > 0 {
            // The other copy may be the one that cannot be read just now.
            self.injected.flash_read += 1;
        }
        self.trace(|| format!("device {device} is lost"));
        self.losses.note_time(device);
        self.losses.lost = Some(Lost::Devices(BTreeSet::from([device])));
        self.losses.counts[0] += 1;
        true
    }

    /// A read of this member is about to fail. Of mirrored data only one copy may be hard to read.
    pub(crate) fn may_fail_a_read(&mut self, member: MemberId) -> bool {
        if self.losses.mirrors && self.losses.family {
            let frail = self.flash.device_of(member) == Ok(FRAIL);
            self.injected.flash_read += u64::from(frail && !self.is_covered());
            return frail;
        }
        self.injected.flash_read += 1;
        true
    }

    /// A write or a sync of this member is about to fail. In histories of members that is its loss.
    pub(crate) fn may_fail_a_write(&mut self, member: MemberId) -> Result<bool, String> {
        let device = self.flash.device_of(member)?;
        if self.losses.family {
            return Ok(self.lose(device));
        }
        self.injected.flash_write += 1;
        Ok(true)
    }

    /// Bits rot, of dirty data too. Of mirrored data only one copy does.
    pub(crate) fn rot_anywhere(&mut self) {
        if self.losses.mirrors && self.losses.family {
            if !self.is_covered() || self.flash.member_of(FRAIL).is_none() {
                return;
            }
            if self.flash.all_mut()[FRAIL].flash.rot(false, &mut self.rng).is_some() {
                self.injected.hidden += 1;
                self.losses.rotten = true;
                self.losses.note_time(FRAIL);
            }
        } else if self.flash.rot(false, &mut self.rng).is_some() {
            self.injected.any_rot += 1;
        }
    }

    /// The pool is given a device, which may be one that it lost.
    pub(crate) fn is_given(&mut self, device: usize) {
        self.losses.left_behind.remove(&device);
        if let Some(Lost::Devices(lost)) = &mut self.losses.lost
            && lost.remove(&device)
            && lost.is_empty()
        {
            self.losses.lost = Some(Lost::GivenAnew);
        }
    }

    /// The engine has a list of members with this generation, and wants it to be known beside the origin.
    pub(crate) fn list_is_told(&mut self, generation: u64) {
        let Some(core) = &self.core else { return };
        let members = (0..).map(MemberId).zip(core.members());
        let gone = members.filter(|(_, member)| member.state == MemberState::Gone);
        let devices = gone.filter_map(|(id, _)| self.flash.device_of(id).ok());
        let devices = devices.filter(|device| self.losses.joining != Some(*device)).collect();
        self.losses.leaving = (generation, devices);
    }

    /// A device has the number of a member that is gone: what leaves the list under that number is not this one.
    pub(crate) fn joins(&mut self, device: usize) {
        self.losses.leaving.1.retain(|other| *other != device);
        self.losses.joining = Some(device);
    }

    /// The last change of the list is answered, or forgotten.
    pub(crate) const fn none_joins(&mut self) {
        self.losses.joining = None;
    }

    /// It is known there.
    pub(crate) fn list_was_told(&mut self, generation: u64) {
        self.marker.told(generation);
        self.losses.counts[2] += 1;
        if self.losses.leaving.0 == generation {
            self.losses.left_behind.extend(self.losses.leaving.1.drain(..));
        }
    }

    /// A member that was to be lost is not.
    pub(crate) fn is_kept(&mut self, device: usize) {
        if matches!(&self.losses.lost, Some(Lost::Devices(lost)) if lost.iter().eq([&device])) {
            self.losses.lost = None;
        }
    }

    /// The pool says that it has made up for the last loss.
    pub(crate) fn notice_repair(&mut self) {
        let (Some(lost), Some(core)) = (&self.losses.lost, &self.core) else { return };
        let members = core.members();
        let is_gone = |device: &usize| {
            let state = self.flash.member_of(*device).and_then(|id| members.get(usize::from(id.0)));
            state.is_none_or(|member| member.state == MemberState::Gone)
        };
        let is_left = match lost {
            Lost::Devices(lost) => lost.iter().all(is_gone),
            Lost::GivenAnew => true,
        };
        if is_left && core.exposed_blocks() == 0 {
            self.trace(|| "the pool has made up for the loss".into());
            self.losses.lost = None;
            self.losses.counts[1] += 1;
        }
    }
}
