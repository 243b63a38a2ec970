//! Which of the devices that a start was given are members of the pool, and whom of them it believes.
//!
//! Invariants:
//! - The superblock with the largest epoch, then counter, counts. Its list says who is a member.
//! - A device that this list calls gone, or whose name it lacks, is old: nothing is read from it.
//! - Two devices that were used without each other are never both believed.
//! - What a device shows and does not make durable is not relied on while the other members suffice.

use std::collections::BTreeSet;

use headpond_base::{BLOCK, Buf, Errno, MemberId, Result as IoResult, SegmentId};
use headpond_format::{
    Address, Addresses, Damage, Geometry, Member, MemberState, SUPERBLOCK_SLOTS, Superblock, decode_superblock,
    encode_superblock,
};

use crate::flash_read::{FlashRead, ScanError, damaged};
use crate::mutation::Mutation;

/// A device that a start was given.
pub struct Device<'a> {
    /// Reads it.
    pub flash: &'a mut dyn FlashRead,
    /// Bytes of the device.
    pub bytes: u64,
}

/// The members of a pool that are present.
pub struct Present<'a> {
    devices: Vec<Device<'a>>,
    /// The superblock of each device that could be read.
    found: Vec<Option<Superblock>>,
    believed: Believed,
    /// The devices that refused to make durable what they show.
    doubted: BTreeSet<usize>,
    /// The members that are here and refused to show what may lie in one of their slots.
    unread: BTreeSet<MemberId>,
}

/// Whom the superblocks of some devices make members.
struct Believed {
    /// The device of each member.
    of_member: Vec<Option<usize>>,
    /// The superblock that counts, as the first of its members has it.
    superblock: Superblock,
}

impl<'a> Present<'a> {
    /// Finds out which of these devices are members.
    ///
    /// # Errors
    /// [`ScanError`]: no device is of a pool, they are of different pools, or two were used without each other.
    pub fn muster(devices: Vec<Device<'a>>) -> Result<Self, ScanError> {
        Self::muster_mutated(devices, None)
    }

    /// [`Self::muster`] with a planted bug, for tests of the tests.
    ///
    /// # Errors
    /// As [`Self::muster`].
    pub fn muster_mutated(mut devices: Vec<Device<'a>>, mutation: Option<Mutation>) -> Result<Self, ScanError> {
        let mut found = Vec::with_capacity(devices.len());
        let mut refusal = None;
        for device in &mut devices {
            found.push(match newest_superblock(device.flash, device.bytes) {
                Ok(superblock) => Some(superblock),
                // A device that cannot be read at all is as good as missing, if another says what the pool is.
                Err(error @ ScanError::Read { .. }) => {
                    refusal.get_or_insert(error);
                    None
                }
                Err(error) => return Err(error),
            });
        }
        let Some(believed) = believe(&found, mutation)? else { return Err(refusal.unwrap_or(ScanError::NotAPool)) };
        Ok(Self { devices, found, believed, doubted: BTreeSet::new(), unread: BTreeSet::new() })
    }

    /// The one device of a pool whose superblock was read before.
    pub(crate) fn alone(flash: &'a mut dyn FlashRead, bytes: u64, superblock: Superblock) -> Self {
        let mut of_member = vec![None; superblock.members.given()];
        of_member[usize::from(superblock.member.0)] = Some(0);
        let (devices, found) = (vec![Device { flash, bytes }], vec![Some(superblock.clone())]);
        let believed = Believed { of_member, superblock };
        Self { devices, found, believed, doubted: BTreeSet::new(), unread: BTreeSet::new() }
    }

    /// The superblock that counts.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.believed.superblock
    }

    /// The member that a device is, by its place among those given. `None`: it is old, and nothing on it counts.
    #[must_use]
    pub fn member_of(&self, device: usize) -> Option<MemberId> {
        let members = (0..).map(MemberId).zip(&self.believed.of_member);
        members.filter(|(_, found)| **found == Some(device)).map(|(id, _)| id).next()
    }

    /// This device, by its place among those given, refused to make durable what it shows: that may be in its cache
    /// alone, and be lost by then. To be said before the pool is read.
    pub fn doubt(&mut self, device: usize) {
        self.doubted.insert(device);
    }

    /// Reads the pool: if that is possible, as if the devices that are doubted were not here. If it is not, they are
    /// believed after all. The pool then fails with its first sync, and what can be read of it goes to the origin.
    ///
    /// # Errors
    /// Those of `read`, with all devices.
    pub fn sure_ones_first<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, ScanError>) -> Result<T, ScanError> {
        if let Some(without) = self.without_doubted() {
            let all = std::mem::replace(&mut self.believed, without);
            let result = read(self);
            if result.is_ok() {
                return result;
            }
            self.believed = all;
            self.unread.clear();
        }
        read(self)
    }

    /// What is believed without the devices that are doubted. `None` if there are none, if no other belongs to the pool,
    /// or if the pool went on without those.
    fn without_doubted(&self) -> Option<Believed> {
        if self.doubted.is_empty() {
            return None;
        }
        let places = self.found.iter().enumerate();
        let sure: Vec<_> = places.map(|(at, found)| found.clone().filter(|_| !self.doubted.contains(&at))).collect();
        let without = believe(&sure, None).ok().flatten()?;
        let newest = &without.superblock;
        let own = newest.members.get(newest.member);
        let listed = self.believed.superblock.members.get(newest.member).filter(|listed| is_same(listed, own));
        listed.is_some_and(|listed| listed.state != MemberState::Gone).then_some(without)
    }

    /// The members that are not gone, and not here.
    #[must_use]
    pub fn missing(&self) -> Vec<MemberId> {
        let needed = self.believed.superblock.members.iter().filter(|(_, member)| member.state != MemberState::Gone);
        needed.map(|(id, _)| id).filter(|id| !self.has(*id)).collect()
    }

    /// Whether a member is here.
    pub(crate) fn has(&self, member: MemberId) -> bool {
        self.believed.of_member.get(usize::from(member.0)).is_some_and(Option::is_some)
    }

    /// The members that are here.
    pub(crate) fn members(&self) -> Vec<MemberId> {
        (0..)
            .map(MemberId)
            .zip(&self.believed.of_member)
            .filter(|(_, found)| found.is_some())
            .map(|(id, _)| id)
            .collect()
    }

    /// A member did not show what may lie in one of its slots.
    pub(crate) fn cannot_read(&mut self, member: MemberId) {
        self.unread.insert(member);
    }

    /// A member of those that did not show all that may lie in their slots, if all copies of a host batch may be with
    /// them, and with those that are not here.
    pub(crate) fn first_unread(&self) -> Option<MemberId> {
        let first = self.unread.first().copied()?;
        let unseen: Vec<MemberId> = self.missing().into_iter().chain(self.unread.iter().copied()).collect();
        (!self.superblock().has_batches_without(&unseen)).then_some(first)
    }

    /// Reads from a member.
    ///
    /// # Errors
    /// [`Errno::NODEV`] if the member is not here; else the device's error.
    pub fn read(&mut self, at: Address, len: usize) -> IoResult<Buf> {
        let device = self.believed.of_member.get(usize::from(at.member.0)).copied().flatten().ok_or(Errno::NODEV)?;
        self.devices[device].flash.read(at.offset, len)
    }

    /// A member, read by the bytes of its own device.
    pub(crate) const fn member(&mut self, member: MemberId) -> OnMember<'_, 'a> {
        OnMember { present: self, start: Address { member, offset: 0 }, before: 0 }
    }

    /// The slot in which `keeper` is at home, read as if it were that of `segment` in a pool of one device.
    pub(crate) fn slot(
        &mut self,
        addresses: &Addresses,
        geometry: &Geometry,
        segment: SegmentId,
        keeper: SegmentId,
    ) -> OnMember<'_, 'a> {
        let before = geometry.byte_of(geometry.first_location(segment));
        OnMember { present: self, start: addresses.of_segment(keeper), before }
    }
}

/// Finds out by their superblocks which devices are members. `None` if no device has one.
fn believe(found: &[Option<Superblock>], mutation: Option<Mutation>) -> Result<Option<Believed>, ScanError> {
    let newest = found.iter().flatten().max_by_key(|superblock| (superblock.epoch, superblock.counter));
    let Some(newest) = newest.cloned() else { return Ok(None) };
    let mut of_member = vec![None; newest.members.given()];
    for (index, found) in found.iter().enumerate() {
        let Some(found) = found else { continue };
        if found.pool != newest.pool {
            return Err(ScanError::OtherPool { device: index });
        }
        let own = found.members.get(found.member);
        let listed = newest.members.get(found.member).filter(|listed| is_same(listed, own));
        match listed {
            Some(listed) if listed.state != MemberState::Gone || Mutation::BelieveOldMember.is_planted(mutation) => {
                let place = &mut of_member[usize::from(found.member.0)];
                if place.replace(index).is_some() {
                    return Err(ScanError::SameMember { device: index });
                }
            }
            _ => {
                // Under its number the old list may have had another device.
                let known = found.members.get(newest.member);
                let newest_own = newest.members.get(newest.member);
                let is_known = newest_own.is_some_and(|own| is_same(own, known));
                if is_known && known.is_some_and(|known| known.state == MemberState::Gone) {
                    return Err(ScanError::UsedApart { device: index });
                }
            }
        }
    }
    Ok(Some(Believed { of_member, superblock: newest }))
}

fn is_same(listed: &Member, own: Option<&Member>) -> bool {
    own.is_some_and(|own| own.name == listed.name)
}

/// Part of one member.
pub(crate) struct OnMember<'p, 'a> {
    present: &'p mut Present<'a>,
    start: Address,
    /// The offset that means the first byte.
    before: u64,
}

impl FlashRead for OnMember<'_, '_> {
    fn read(&mut self, offset: u64, len: usize) -> IoResult<Buf> {
        self.present.read(self.start.plus(offset - self.before), len)
    }
}

/// Reads the superblock of one device that counts: of those that are whole, the newest.
///
/// # Errors
/// [`ScanError`].
pub fn newest_superblock(flash: &mut dyn FlashRead, device_bytes: u64) -> Result<Superblock, ScanError> {
    let mut best: Option<Superblock> = None;
    let (mut worst, mut refusal) = (ScanError::NotAPool, None);
    for offset in SUPERBLOCK_SLOTS {
        if offset + BLOCK as u64 > device_bytes {
            continue;
        }
        match flash.read(offset, BLOCK).map_err(|errno| ScanError::Read { offset, errno }) {
            Ok(bytes) => match decode_superblock(&bytes) {
                Ok(superblock) if best.as_ref().is_none_or(|best| best.counter < superblock.counter) => {
                    best = Some(superblock);
                }
                Ok(_) | Err(Damage::Missing(_)) => {}
                Err(Damage::Version { found }) => refusal = Some(ScanError::Version { found }),
                Err(damage @ Damage::Unsupported(..)) => refusal = Some(damaged("superblock", offset, damage)),
                Err(damage) if worst == ScanError::NotAPool => worst = damaged("superblock", offset, damage),
                Err(_) => {}
            },
            Err(error) => worst = error,
        }
    }
    // The use that wrote this slot is later than the use that wrote the other.
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    let superblock = best.ok_or(worst)?;
    let own = superblock.members.get(superblock.member);
    let segment_bytes = u64::from(superblock.geometry.segment_bytes);
    let wanted = own.map_or(0, |own| own.start + u64::from(own.used) * segment_bytes);
    if wanted > device_bytes {
        return Err(ScanError::CutShort { wanted, found: device_bytes });
    }
    Ok(superblock)
}

/// If one of the two superblocks of a device is damaged: its offset, and what to write there, the other one. To be done
/// before the next one is written: that may go to the slot of the intact one, where the newest of the pool is on
/// another member, and the crash that tears it would leave none.
///
/// # Errors
/// When the device cannot be read.
pub fn heal_superblock(flash: &mut dyn FlashRead) -> IoResult<Option<(u64, Vec<u8>)>> {
    let [first, second] = SUPERBLOCK_SLOTS;
    let (damaged, intact) =
        match (decode_superblock(&flash.read(first, BLOCK)?), decode_superblock(&flash.read(second, BLOCK)?)) {
            (Ok(intact), Err(damage)) if !matches!(damage, Damage::Version { .. }) => (second, intact),
            (Err(damage), Ok(intact)) if !matches!(damage, Damage::Version { .. }) => (first, intact),
            _ => return Ok(None),
        };
    Ok(Some((damaged, encode_superblock(&intact))))
}
