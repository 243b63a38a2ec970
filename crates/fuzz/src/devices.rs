//! The devices of a pool, in memory. What was not synced may be lost or torn at a crash.

use std::collections::BTreeMap;

use headpond_base::{Buf, BufMut, Errno, MemberId, Result as IoResult};
use headpond_engine::{Device, FlashRead, Present, RecoverError, Recovered, recover_members};
use headpond_format::Address;

use crate::seed::Seed;

/// A device in memory.
#[derive(Clone, Debug)]
pub(crate) struct MemoryFlash(pub(crate) Vec<u8>);

impl FlashRead for MemoryFlash {
    fn read(&mut self, offset: u64, len: usize) -> IoResult<Buf> {
        let at = usize::try_from(offset).map_err(|_| Errno::IO)?;
        let bytes = at.checked_add(len).and_then(|end| self.0.get(at..end)).ok_or(Errno::IO)?;
        Ok(BufMut::copy_of(bytes).freeze())
    }
}

/// The unit that a device writes whole or not at all.
const SECTOR: usize = 512;

struct Unsynced {
    member: MemberId,
    at: usize,
    before: Vec<u8>,
    data: Vec<u8>,
}

/// The devices by member, and what was written to them since their last syncs.
pub(crate) struct Devices {
    of_member: BTreeMap<MemberId, MemoryFlash>,
    unsynced: Vec<Unsynced>,
}

impl Devices {
    pub(crate) fn new(devices: impl IntoIterator<Item = (MemberId, MemoryFlash)>) -> Self {
        Self { of_member: devices.into_iter().collect(), unsynced: Vec::new() }
    }

    /// Recovers the pool from all of them.
    pub(crate) fn recover(&mut self) -> Result<Recovered, RecoverError> {
        recover_members(&mut Present::muster(given(self.of_member.values_mut()))?, None)
    }

    /// Takes one out.
    pub(crate) fn take(&mut self, member: MemberId) -> Option<MemoryFlash> {
        self.of_member.remove(&member)
    }

    /// The bytes of each.
    pub(crate) fn images(&self) -> Vec<Vec<u8>> {
        self.of_member.values().map(|flash| flash.0.clone()).collect()
    }

    pub(crate) fn read(&mut self, at: Address, len: usize) -> IoResult<Buf> {
        self.of_member.get_mut(&at.member).ok_or(Errno::NODEV)?.read(at.offset, len)
    }

    /// # Errors
    /// When the engine writes where there is nothing.
    pub(crate) fn write(&mut self, at: Address, data: &[u8]) -> Result<(), String> {
        let (member, offset) = (at.member, usize::try_from(at.offset).unwrap_or(usize::MAX));
        let flash = self.of_member.get_mut(&member);
        let place = flash.and_then(|flash| flash.0.get_mut(offset..offset.checked_add(data.len())?));
        let place =
            place.ok_or_else(|| format!("a write of {} bytes at {offset} of member {}", data.len(), member.0))?;
        let before = place.to_vec();
        place.copy_from_slice(data);
        self.unsynced.push(Unsynced { member, at: offset, before, data: data.to_vec() });
        Ok(())
    }

    /// Makes all writes to a member durable.
    pub(crate) fn sync(&mut self, member: MemberId) {
        self.unsynced.retain(|write| write.member != member);
    }

    /// Keeps, drops or tears each unsynced write.
    pub(crate) fn crash(&mut self, seed: &mut Seed) {
        let unsynced = std::mem::take(&mut self.unsynced);
        for write in unsynced.iter().rev() {
            self.put(write.member, write.at, &write.before);
        }
        let kept = seed.below(5);
        for write in &unsynced {
            let (whole, torn) = (seed.below(4) < kept, seed.one_in(3));
            for (index, sector) in write.data.chunks(SECTOR).enumerate() {
                if whole && !(torn && seed.one_in(2)) {
                    self.put(write.member, write.at + index * SECTOR, sector);
                }
            }
        }
    }

    fn put(&mut self, member: MemberId, at: usize, bytes: &[u8]) {
        if let Some(flash) = self.of_member.get_mut(&member) {
            flash.0[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// Devices as a start is given them.
pub(crate) fn given<'a>(flashes: impl IntoIterator<Item = &'a mut MemoryFlash>) -> Vec<Device<'a>> {
    flashes.into_iter().map(|flash| Device { bytes: flash.0.len() as u64, flash }).collect()
}
