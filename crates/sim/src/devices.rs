//! The devices of a pool. Each has a size, a cache, a speed and faults of its own.
//!
//! Keeps true:
//! - While a daemon runs, a member's number means one device: the one that its start found, or that was added.
//! - A device that vanished answers ENODEV until another daemon starts: descriptors of a device that was pulled out do
//!   not come back to life. With it goes its cache, as in a power cut. It may be back at a later start, and is old then.
//! - A device that refuses writes does so until another daemon starts. It keeps what it had, and reads go on.
//! - A removed device holds bytes that mean nothing.

use std::collections::BTreeMap;

use headpond_base::{Buf, Errno, MemberId};
use headpond_engine::{FlashRead, newest_superblock};
use headpond_format::Address;
use headpond_timed::Rng;

use crate::flash::{Cut, SimFlash, WriteFate};

/// What a device does with what it is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    /// Everything.
    Well,
    /// Reads.
    RefusesWrites,
    /// Nothing.
    Away,
}

/// A device, plugged in or not.
#[derive(Clone)]
pub(crate) struct Device {
    pub(crate) flash: SimFlash,
    pub(crate) health: Health,
    /// How many times as long everything takes.
    slowness: u64,
    /// It was removed, and nobody gives it to a start again.
    pub(crate) taken_out: bool,
}

impl Device {
    pub(crate) fn new(bytes: u64, slowness: u64) -> Self {
        Self { flash: SimFlash::new(bytes), health: Health::Well, slowness, taken_out: false }
    }

    pub(crate) fn is_away(&self) -> bool {
        self.health == Health::Away
    }

    fn is_usable(&self) -> bool {
        self.taken_out || self.health == Health::Well
    }

    /// Its error for a request, if it refuses that.
    pub(crate) const fn refuses(&self, writes: bool) -> Option<Errno> {
        match self.health {
            Health::Away => Some(Errno::NODEV),
            Health::RefusesWrites if writes => Some(Errno::IO),
            Health::Well | Health::RefusesWrites => None,
        }
    }
}

/// All devices.
#[derive(Clone)]
pub(crate) struct Devices {
    all: Vec<Device>,
    /// The device of each member that the present daemon knows.
    members: BTreeMap<MemberId, usize>,
}

impl Devices {
    /// Devices for the first members of a pool, in the order of their numbers.
    pub(crate) fn new(all: Vec<Device>) -> Self {
        let members = (0..).map(MemberId).zip(0..all.len()).collect();
        Self { all, members }
    }

    /// All of them, plugged in or not.
    pub(crate) fn all(&self) -> &[Device] {
        &self.all
    }

    /// All of them, to change them.
    pub(crate) fn all_mut(&mut self) -> &mut [Device] {
        &mut self.all
    }

    /// The device of a member. That an effect names another is a bug.
    pub(crate) fn of(&self, member: MemberId) -> Result<&Device, String> {
        let index = self.members.get(&member).ok_or_else(|| no_such(member))?;
        Ok(&self.all[*index])
    }

    /// The same, to change it.
    pub(crate) fn of_mut(&mut self, member: MemberId) -> Result<&mut Device, String> {
        let index = self.members.get(&member).ok_or_else(|| no_such(member))?;
        Ok(&mut self.all[*index])
    }

    /// The members that the present daemon knows.
    pub(crate) fn members(&self) -> Vec<MemberId> {
        self.members.keys().copied().collect()
    }

    /// The number of a member's device.
    pub(crate) fn device_of(&self, member: MemberId) -> Result<usize, String> {
        self.members.get(&member).copied().ok_or_else(|| no_such(member))
    }

    /// The member that a device is.
    pub(crate) fn member_of(&self, device: usize) -> Option<MemberId> {
        self.members.iter().find(|(_, of)| **of == device).map(|(member, _)| *member)
    }

    /// The devices that a start is given: those that say which pool they belong to.
    pub(crate) fn here(&self) -> Vec<usize> {
        let says = |device: &Device| newest_superblock(&mut AsIs(&device.flash), device.flash.bytes()).is_ok();
        (0..self.all.len()).filter(|index| !self.all[*index].is_away() && says(&self.all[*index])).collect()
    }

    /// As control does before it reads the pool: each device that a start is given is synced. One that refuses it loses
    /// some of what its cache alone has.
    pub(crate) fn sync_before_start(&mut self, here: &[usize], rng: &mut Rng) {
        const TICKET: u64 = u64::MAX;
        for index in here {
            let device = &mut self.all[*index];
            device.flash.start_sync(TICKET);
            match device.refuses(true) {
                Some(_) => device.flash.fail_sync(TICKET, rng),
                None => device.flash.finish_sync(TICKET),
            }
        }
    }

    /// Those of these devices, by their places, that refused that.
    pub(crate) fn refusing(&self, given: &[usize]) -> Vec<usize> {
        (0..given.len()).filter(|place| self.all[given[*place]].refuses(true).is_some()).collect()
    }

    /// The devices that are away, and might come back.
    pub(crate) fn missing(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|index| self.all[*index].is_away() && !self.all[*index].taken_out).collect()
    }

    /// A device that is there and is no member.
    pub(crate) fn unused(&self, rng: &mut Rng) -> Option<usize> {
        let unused: Vec<usize> =
            (0..self.all.len()).filter(|at| self.member_of(*at).is_none() && self.all[*at].is_usable()).collect();
        if unused.is_empty() { None } else { Some(*rng.pick(&unused)) }
    }

    /// One device more.
    pub(crate) fn plug_in(&mut self, device: Device) -> usize {
        self.all.push(device);
        self.all.len() - 1
    }

    /// From now on a member's number means this device.
    pub(crate) fn name(&mut self, member: MemberId, device: usize) {
        self.all[device].taken_out = false;
        self.all[device].health = Health::Well;
        self.members.insert(member, device);
    }

    /// A member's number means nothing.
    pub(crate) fn forget(&mut self, member: MemberId) {
        self.members.remove(&member);
    }

    /// What a start has found: the member of each of these devices.
    pub(crate) fn meet(&mut self, devices: &[usize], places: &[Option<MemberId>]) {
        let found = places.iter().zip(devices).filter_map(|(member, device)| Some(((*member)?, *device)));
        self.members = found.collect();
    }

    /// A member was removed. Its device goes, with bytes that mean nothing.
    pub(crate) fn take_out(&mut self, member: MemberId) -> Result<(), String> {
        let device = self.of_mut(member)?;
        device.flash.scribble_from(0);
        device.taken_out = true;
        device.health = Health::Away;
        self.members.remove(&member);
        Ok(())
    }

    /// How many times as long this member takes.
    pub(crate) fn slowness(&self, member: MemberId) -> u64 {
        self.of(member).map_or(1, |device| device.slowness)
    }

    /// Writes and makes durable at once: for formatting.
    pub(crate) fn put(&mut self, at: Address, data: &Buf) -> Result<(), String> {
        self.of_mut(at.member)?.flash.put(at.offset, data);
        Ok(())
    }

    /// Segments that were opened, their copies included.
    pub(crate) fn segments_opened(&self) -> u64 {
        self.all.iter().map(|device| device.flash.segments_opened()).sum()
    }

    /// Writes that a power cut may drop.
    pub(crate) fn unsynced_writes(&self) -> usize {
        self.all.iter().map(|device| device.flash.unsynced_writes()).sum()
    }

    /// The power fails. Devices that were away have lost theirs before.
    pub(crate) fn power_cut(&mut self, cut: Cut, rng: &mut Rng) {
        self.all.iter_mut().for_each(|device| device.flash.power_cut(cut, rng));
    }

    /// The daemon dies, and the devices go on.
    pub(crate) fn daemon_killed(&mut self, rng: &mut Rng) {
        self.all.iter_mut().for_each(|device| device.flash.daemon_killed(rng));
    }

    /// A device is pulled out.
    pub(crate) fn vanish(&mut self, device: usize, rng: &mut Rng) {
        self.all[device].health = Health::Away;
        self.all[device].flash.power_cut(Cut::Random, rng);
    }

    /// Flips one bit of one device.
    pub(crate) fn rot(&mut self, clean_only: bool, rng: &mut Rng) -> Option<u64> {
        // With one device there is nothing to draw, so seeds with one keep their histories.
        let index = if self.all.len() > 1 { rng.below(self.all.len() as u64) as usize } else { 0 };
        self.all[index].flash.rot(clean_only, rng)
    }

    /// A read is issued. Of a member that is gone, as a reactor does: it fails.
    pub(crate) fn start_read(&mut self, at: Address, ticket: u64, len: u64) -> Result<(), String> {
        let Ok(device) = self.of_mut(at.member) else { return Ok(()) };
        if device.is_away() { Ok(()) } else { device.flash.start_read(ticket, at.offset, len) }
    }

    /// A read completes.
    pub(crate) fn finish_read(&mut self, member: MemberId, ticket: u64) -> Result<Buf, Errno> {
        let device = self.of_mut(member).map_err(|_| Errno::NXIO)?;
        device.refuses(false).map_or_else(|| Ok(device.flash.finish_read(ticket)), Err)
    }

    /// A write is issued.
    pub(crate) fn start_write(&mut self, at: Address, ticket: u64, data: Buf) -> Result<(), String> {
        let device = self.of_mut(at.member)?;
        if device.is_away() { Ok(()) } else { device.flash.start_write(ticket, at.offset, data) }
    }

    /// A write completes.
    pub(crate) fn finish_write(
        &mut self,
        member: MemberId,
        ticket: u64,
        fate: WriteFate,
        rng: &mut Rng,
    ) -> Result<Result<(), Errno>, String> {
        let device = self.of_mut(member)?;
        let refused = device.refuses(true);
        let fate = if refused.is_some() { WriteFate::Lost } else { fate };
        device.flash.finish_write(ticket, fate, rng);
        Ok(match refused {
            Some(errno) => Err(errno),
            None if fate == WriteFate::Failed => Err(Errno::IO),
            None => Ok(()),
        })
    }

    /// A sync is issued.
    pub(crate) fn start_sync(&mut self, member: MemberId, ticket: u64) -> Result<(), String> {
        let device = self.of_mut(member)?;
        if !device.is_away() {
            device.flash.start_sync(ticket);
        }
        Ok(())
    }

    /// A sync completes.
    pub(crate) fn finish_sync(
        &mut self,
        member: MemberId,
        ticket: u64,
        fails: bool,
        rng: &mut Rng,
    ) -> Result<Result<(), Errno>, String> {
        let device = self.of_mut(member)?;
        if let Some(errno) = device.refuses(true).or(fails.then_some(Errno::IO)) {
            device.flash.fail_sync(ticket, rng);
            return Ok(Err(errno));
        }
        device.flash.finish_sync(ticket);
        Ok(Ok(()))
    }
}

fn no_such(member: MemberId) -> String {
    format!("an effect for a member that there is not: {member:?}")
}

/// Reads one device as it is now.
pub(crate) struct AsIs<'a>(pub(crate) &'a SimFlash);

impl FlashRead for AsIs<'_> {
    fn read(&mut self, offset: u64, len: usize) -> headpond_base::Result<Buf> {
        Ok(self.0.read(offset, len))
    }
}
