//! The pool that the hosts own in turn, as its devices have it: the real format, read by the real recovery.

use headpond_base::{CacheMode, MemberId, PoolId};
use headpond_claim::ownership::{Allowed, Awaited, Drawn, Held, Ownership, Use, Whose, judge};
use headpond_engine::{
    Device as Given, FlashRead, Mutation, Present, RecoverError, Recovered, format_members, newest_superblock,
    recover_members,
};
use headpond_format::{Geometry, Member, MemberName, Members, OriginName, Superblock};

use crate::devices::AsIs;
use crate::flash::{Layout, SimFlash};

/// The pool's name, and the key of its origin.
pub(crate) const POOL: PoolId = PoolId([7; 16]);
pub(crate) const KEY: Drawn = [8; 16];

/// Bytes of each device.
pub(crate) const BYTES: u64 = 4 << 20;

/// Bytes of a segment: so few that reclaim and checkpoints never rest.
const SEGMENT: u64 = 64 << 10;

/// The areas have room for the checkpoints of so many devices.
const DEVICES_MOST: usize = 6;

/// How the first device is divided, and its row.
fn divided() -> (Geometry, Member) {
    let name = |index: usize| MemberName([index as u8 + 1; 16]);
    let devices: Vec<_> = (0..DEVICES_MOST).map(|index| (name(index), BYTES)).collect();
    let (all, rows) = Geometry::for_members(&devices, Some(SEGMENT)).expect("its size is fixed");
    let row = rows[0];
    (Geometry { pool_bytes: BYTES, segments: row.slots, ..all }, row)
}

/// The row of another device.
pub(crate) fn copy_row(name: MemberName) -> Member {
    let (_, row) = divided();
    Member { copies_only: true, ..Member::in_use(name, row.slots, row.bytes, row.start) }
}

/// A device of zeros.
pub(crate) fn blank() -> SimFlash {
    let (_, row) = divided();
    let mut flash = SimFlash::new(BYTES);
    flash.set_layout(Layout { start: row.start, segment_bytes: SEGMENT, slots: u64::from(row.slots) });
    flash
}

/// A device that is an empty pool.
pub(crate) fn formatted() -> SimFlash {
    let (geometry, row) = divided();
    let mut flash = blank();
    let origin = OriginName { key: KEY, path: b"origin".to_vec() };
    for (at, data) in format_members(POOL, &Members::first(row), geometry, Some(origin), CacheMode::WriteBack) {
        flash.put(at.offset, &data);
    }
    flash
}

/// The superblock of a device, if it has one.
pub(crate) fn superblock_of(flash: &SimFlash) -> Option<Superblock> {
    newest_superblock(&mut AsIs(flash), BYTES).ok()
}

/// `known_members` of `control/src/pool/recovery.rs`.
pub(crate) fn known_members(superblock: &Superblock) -> u64 {
    if superblock.members.given() > 1 { superblock.members.generation() } else { 0 }
}

/// `is_copy` of `control/src/pool/flashes.rs`: whether by this list of members a device is a copy that counts.
pub(crate) fn is_copy(list: &Members, there: &Superblock) -> bool {
    let name = |list: &Members| list.get(there.member).filter(|row| row.keeps_copies()).map(|row| row.name);
    name(list).is_some() && name(list) == name(&there.members)
}

/// A pool that was read, and which of these devices are members of it.
pub(crate) struct Read {
    pub(crate) recovered: Recovered,
    pub(crate) members: Vec<Option<MemberId>>,
}

/// Reads the pool from these devices. With a planted bug, for a use that has it.
pub(crate) fn read(devices: &[&SimFlash], planted: Option<Mutation>) -> Result<Read, RecoverError> {
    let mut reads: Vec<AsIs<'_>> = devices.iter().map(|flash| AsIs(flash)).collect();
    let given = reads.iter_mut().map(|flash| Given { flash: flash as &mut dyn FlashRead, bytes: BYTES });
    let mut present = Present::muster(given.collect())?;
    let recovered = recover_members(&mut present, planted)?;
    let members = (0..devices.len()).map(|device| present.member_of(device)).collect();
    Ok(Read { recovered, members })
}

/// What a start from this device alone would find, if it has all that is dirty: as a guard looks at it.
pub(crate) fn read_whole(flash: &SimFlash) -> Option<Recovered> {
    let Read { recovered, .. } = read(&[flash], None).ok()?;
    let lacking = recovered.lacking_blocks(|at, len| Some(flash.read(at.offset, len)));
    (lacking == 0).then_some(recovered)
}

/// Whether a device with this superblock is as this use of the pool left it: `whose` of `control/src/pool/recovery.rs`.
pub(crate) fn is_of(superblock: &Superblock, last: Use) -> bool {
    let awaited = Awaited { pool: Some(POOL), key: Some(KEY), claim: Some(last), durable: None };
    let origin = Some(Whose { key: KEY, same_path: true });
    let (epoch, claim) = (superblock.epoch.0, superblock.claim);
    let held = Held { pool: POOL, origin, epoch, claim, counter: superblock.counter, host_batch: 1, dirty: true };
    let allowed = Allowed { format: false, discard_dirty: false };
    judge(Some(&awaited), Some(&held), allowed) == Ok(Ownership::Same(KEY))
}
