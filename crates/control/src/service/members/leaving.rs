//! Devices that leave a pool: those that failed, and those that were emptied.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use headpond_base::{BLOCK, BufMut, MemberId};
use headpond_engine::MemberShown;
use headpond_format::{MemberState, SUPERBLOCK_SLOTS};
use headpond_shard::{ShardStats, TermState};

use super::{PoolMembers, name_devices};
use crate::devices::DeviceFile;
use crate::pool::Superblocks;
use crate::process::log::log_line;
use crate::settings::Loss;

impl PoolMembers {
    /// Lets go of devices that are gone from the list that counts: those that failed, and one whose emptying an
    /// earlier worker began. On a thread of its own: flash and origin may be stuck.
    pub(crate) fn look(&self, stats: &ShardStats) {
        let gone = stats.members.iter().filter(|shown| shown.state == MemberState::Gone);
        // Who takes one offline lets go of it.
        let offline = self.offline().clone();
        let leaves = |shown: &&MemberShown| self.devices.has(shown.member) && !offline.contains(&shown.member);
        let leaving: Vec<MemberId> = gone.filter(leaves).map(|shown| shown.member).collect();
        if leaving.is_empty() || self.letting_go.swap(true, Ordering::SeqCst) {
            return;
        }
        let members = self.clone();
        let work = move || {
            members.let_go_of(&leaving);
            members.letting_go.store(false, Ordering::SeqCst);
        };
        if std::thread::Builder::new().name("pool-leave".to_owned()).spawn(work).is_err() {
            self.letting_go.store(false, Ordering::SeqCst);
        }
    }

    fn let_go_of(&self, leaving: &[MemberId]) {
        for member in leaving.iter().copied().filter(|member| self.is_gone(*member)) {
            if !self.leaving().contains(&member) {
                let path = self.devices.path_of(member);
                log_line(format_args!(
                    "DEGRADED: {} failed, and is out of the pool. Nothing is lost that another device, or the origin, has. \
                     To see what to do: headpond pool status",
                    path.display()
                ));
                self.events.lost(&path, "refused a write or a sync");
                self.misses(member, Loss::Faulted);
                self.let_go(member);
            } else if self.list_counts_without(member) {
                self.left(member);
            }
        }
    }

    /// Whether a device that is here is gone from the pool. In this order: one that has just joined is in use by the time
    /// that the pool is asked.
    fn is_gone(&self, member: MemberId) -> bool {
        if self.joining().contains(&member) || !self.devices.has(member) {
            return false;
        }
        let members = self.handle.stats().members;
        members.iter().any(|shown| shown.member == member && shown.state == MemberState::Gone)
    }

    pub(super) fn joining(&self) -> MutexGuard<'_, BTreeSet<MemberId>> {
        self.joining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the list on flash and beside the origin is one without this member.
    fn list_counts_without(&self, member: MemberId) -> bool {
        let newest = Superblocks::of(self.devices.clone()).newest();
        newest.is_some_and(|superblock| {
            let list = &superblock.members;
            let is_gone = list.get(member).is_some_and(|row| row.state == MemberState::Gone);
            is_gone && self.marker.now().members_generation >= list.generation()
        })
    }

    /// A member has left in order.
    pub(super) fn left(&self, member: MemberId) {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).insert(member);
        if let Some(device) = self.devices.of(member) {
            if let Err(error) = wipe(&device.file) {
                log_line(format_args!(
                    "{}: cannot write to it that it has left the pool: {error}. Do not mount with it",
                    device.path.display()
                ));
            } else if let Err(error) = device.file.let_go() {
                log_line(format_args!("{}: the room of the copy there is not free: {error}", device.path.display()));
            }
            self.events.left(member, &device.path);
        }
        self.let_go(member);
    }

    /// Closes a device, here and with the holder.
    pub(super) fn let_go(&self, member: MemberId) {
        // A shard that has ended drives nothing.
        let _ = self.handle.remove_disk(member);
        // Two may notice that it is gone.
        if self.devices.leave(member).is_none() {
            return;
        }
        if let Err(error) = self.keeper.let_go(member, &self.devices) {
            log_line(format_args!("the holder keeps a device that has left: {error}"));
        }
        // The marker names the device until the flash does.
        self.keep_missed();
        // What lies beside the origin is another's once this host was deposed, and the start there refuses what changes
        // under it. The next change names the devices anyway.
        if self.deposed.term().state() == TermState::Stands {
            let _ = self.marker.change(|marker| name_devices(marker, &self.devices));
        }
    }
}

/// Wipes the superblocks of a device that has left.
fn wipe(file: &DeviceFile) -> std::io::Result<()> {
    let zeros = BufMut::zeroed(BLOCK).freeze();
    SUPERBLOCK_SLOTS.into_iter().try_for_each(|offset| file.write_at(&zeros, offset))?;
    file.sync()
}
