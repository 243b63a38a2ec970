//! The superblock: what the pool is, whose data it holds, and which checkpoint counts.
//!
//! Two slots are written in turn. A checkpoint becomes the pool's state when its superblock is written. If that write
//! tears, the other slot still names the checkpoint before.

use headpond_base::{BLOCK, BLOCK_U64, BatchNumber, CacheMode, Epoch, Location, MemberId, OwnerNumber, PoolId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::members::RawMember;
use crate::number::{counted, counted_from_one};
use crate::{Damage, Geometry, HostCopies, MEMBERS_MAX, Members, VERSION, bytes_checksum};

const MAGIC: [u8; 8] = *b"HEADPOND";
const WHAT: &str = "superblock";

/// Byte offsets of the two slots. They lie a page of any device apart, so one torn or misdirected write cannot hit
/// both.
pub const SUPERBLOCK_SLOTS: [u64; 2] = [0, 32 << 10];

/// The longest origin path that a superblock keeps, in bytes. A longer one is cut: the path is only shown.
pub const ORIGIN_PATH_MAX: usize = 1024;

/// The origin that a pool belongs to. headpond compares `key`; `path` is for people.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OriginName {
    /// Names the origin for good. The marker beside the origin has the same key.
    pub key: [u8; 16],
    /// The origin's path when it was last mounted.
    pub path: Vec<u8>,
}

/// The decoded superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The pool's own name.
    pub pool: PoolId,
    /// The member that this device is.
    pub member: MemberId,
    /// All members of the pool, this one included.
    pub members: Members,
    /// The owner that may write to the pool.
    pub owner: OwnerNumber,
    /// How the bytes of the device are divided.
    pub geometry: Geometry,
    /// Grows by one with each write of a superblock; the larger one counts.
    pub counter: u64,
    /// The pool's present use.
    pub epoch: Epoch,
    /// The origin whose data the pool holds; `None` for a new pool.
    pub origin: Option<OriginName>,
    /// The area, 0 or 1, of the checkpoint that counts.
    pub checkpoint_area: u8,
    /// Bytes of that checkpoint, its head included.
    pub checkpoint_bytes: u64,
    /// Everything up to this batch was durable when the superblock was written.
    pub synced_through: BatchNumber,
    /// The last host batch up to `synced_through`.
    pub synced_host: BatchNumber,
    /// The cache mode in force. It survives restarts.
    pub mode: CacheMode,
    /// Whether the pool was left in good order, with nothing after the checkpoint.
    pub clean_stop: bool,
    /// Dirty blocks when the superblock was written. For people: the log may hold more.
    pub dirty_blocks: u64,
    /// The boot of the host during which the pool was last taken into use; zeros if unknown. During that boot the
    /// origin has lost nothing, synced or not.
    pub boot: [u8; 16],
    /// Drawn at random at each start, and written to the marker beside the origin as well. Two copies of a pool that
    /// were both used since have different claims. Zeros if no headpond that draws claims has used the pool.
    pub claim: [u8; 16],
    /// How many members have each host batch after the checkpoint.
    pub host_copies: HostCopies,
    /// The log may have packed records. Set durably before the first is written, and never cleared.
    pub may_have_packed: bool,
    /// The log may have blank records; set like `may_have_packed`. A headpond that knew packed records only did not set
    /// it.
    pub may_have_blanks: bool,
}

impl Superblock {
    /// Whether each host batch that was ever acknowledged as durable is on a member that is not among these, which a start
    /// after a crash cannot read.
    #[must_use]
    pub fn has_batches_without(&self, unseen: &[MemberId]) -> bool {
        self.members.have_homes_without(unseen) || self.host_copies.last_without(unseen.iter().copied())
    }
}

/// The incompatible feature of packed records. A program that does not know them would misread their slots.
const PACKED: u64 = 1;

/// The incompatible feature of blank records. A program that does not know them takes their entries and slots for
/// damage.
const BLANKS: u64 = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    /// Over all bytes of the block, with this field as zero.
    checksum: U32,
    version: U32,
    /// Features that a program must know to use the pool: see [`PACKED`] and [`BLANKS`].
    incompatible: U64,
    /// Features that an older headpond may ignore. This version has none.
    compatible: U64,
    pool: [u8; 16],
    counter: U64,
    epoch: U64,
    list_generation: U64,
    owner: U64,
    area_bytes: U64,
    checkpoint_bytes: U64,
    synced_through: U64,
    synced_host: U64,
    dirty_blocks: U64,
    segment_bytes: U32,
    segments: U32,
    member: U16,
    members_given: U16,
    /// Copies of host batches beside the first.
    more_copies: u8,
    reserved: [u8; 3],
    /// A bit for each member with copies only that has all host batches.
    whole_copies: U32,
    reserved_more: [u8; 4],
    checkpoint_area: u8,
    mode: u8,
    clean_stop: u8,
    has_origin: u8,
    path_len: U32,
    origin_key: [u8; 16],
    path: [u8; ORIGIN_PATH_MAX],
    boot: [u8; 16],
    claim: [u8; 16],
    more: [u8; 56],
    members: [RawMember; MEMBERS_MAX],
}

const _: () = assert!(size_of::<Raw>() == 3328);

/// Encodes a superblock.
#[must_use]
pub fn encode_superblock(superblock: &Superblock) -> Vec<u8> {
    let geometry = &superblock.geometry;
    let mut raw = Raw::new_zeroed();
    raw.magic = MAGIC;
    raw.version = VERSION.into();
    raw.pool = superblock.pool.0;
    raw.counter = superblock.counter.into();
    raw.epoch = superblock.epoch.0.into();
    raw.list_generation = superblock.members.generation().into();
    raw.owner = superblock.owner.0.into();
    raw.area_bytes = geometry.area_bytes.into();
    raw.checkpoint_bytes = superblock.checkpoint_bytes.into();
    raw.synced_through = superblock.synced_through.0.into();
    raw.synced_host = superblock.synced_host.0.into();
    raw.dirty_blocks = superblock.dirty_blocks.into();
    raw.segment_bytes = geometry.segment_bytes.into();
    raw.segments = geometry.segments.into();
    raw.member = superblock.member.0.into();
    raw.members_given = u16::try_from(superblock.members.given()).expect("bounded by MEMBERS_MAX").into();
    raw.members = superblock.members.raw();
    let (copies, whole_copies) = superblock.host_copies.numbers();
    raw.more_copies = copies - 1;
    raw.whole_copies = whole_copies.into();
    raw.checkpoint_area = superblock.checkpoint_area;
    raw.mode = superblock.mode as u8;
    raw.clean_stop = superblock.clean_stop.into();
    if let Some(origin) = &superblock.origin {
        let kept = origin.path.len().min(ORIGIN_PATH_MAX);
        raw.has_origin = 1;
        raw.origin_key = origin.key;
        raw.path_len = u32::try_from(kept).expect("bounded by ORIGIN_PATH_MAX").into();
        raw.path[..kept].copy_from_slice(&origin.path[..kept]);
    }
    raw.boot = superblock.boot;
    raw.claim = superblock.claim;
    let feature = |is: bool, bit: u64| if is { bit } else { 0 };
    raw.incompatible =
        (feature(superblock.may_have_packed, PACKED) | feature(superblock.may_have_blanks, BLANKS)).into();
    let mut block = vec![0; BLOCK];
    block[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
    let checksum = bytes_checksum(&block);
    block[8..12].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// Reads one superblock slot.
///
/// # Errors
/// [`Damage`]; `Missing` when the device is not a headpond pool.
pub fn decode_superblock(block: &[u8]) -> Result<Superblock, Damage> {
    let block = block.get(..BLOCK).ok_or(Damage::Short(WHAT))?;
    let (raw, _) = Raw::ref_from_prefix(block).map_err(|_| Damage::Short(WHAT))?;
    if raw.magic != MAGIC {
        return Err(Damage::Missing(WHAT));
    }
    let mut unsigned = block.to_vec();
    unsigned[8..12].fill(0);
    if bytes_checksum(&unsigned) != raw.checksum.get() {
        return Err(Damage::Checksum(WHAT));
    }
    let senseless = |why| Damage::Senseless(WHAT, why);
    match raw.version.get() {
        0 => return Err(senseless("version 0, which no headpond ever wrote")),
        found if found != VERSION => return Err(Damage::Version { found }),
        _ if raw.incompatible.get() & !(PACKED | BLANKS) != 0 => {
            return Err(Damage::Unsupported(WHAT, "features are in use that are unknown here"));
        }
        _ => {}
    }
    let (member, segment_bytes) = (MemberId(raw.member.get()), raw.segment_bytes.get());
    let members = Members::from_raw(raw.list_generation.get(), raw.members_given.get(), &raw.members, segment_bytes)?;
    let own = members.get(member).ok_or(senseless("a member that is not in its own list"))?;
    let geometry = Geometry {
        pool_bytes: members.bytes(),
        segment_bytes,
        segments: raw.segments.get(),
        area_bytes: raw.area_bytes.get(),
        segments_start: own.start,
    };
    check_geometry(&geometry, &members)?;
    let path_len = raw.path_len.get() as usize;
    let path = raw.path.get(..path_len).ok_or(senseless("path longer than its room"))?;
    if raw.checkpoint_bytes.get() > geometry.area_bytes || raw.checkpoint_area > 1 {
        return Err(senseless("checkpoint outside its area"));
    }
    let copies = raw.more_copies.saturating_add(1);
    let host_copies = HostCopies::from_numbers(copies, raw.whole_copies.get(), &members);
    let host_copies = host_copies.ok_or(senseless("copies that the pool has no members for"))?;
    Ok(Superblock {
        pool: PoolId(raw.pool),
        member,
        members,
        owner: OwnerNumber(counted_from_one(WHAT, raw.owner.get())?),
        geometry,
        counter: counted(WHAT, raw.counter.get())?,
        epoch: Epoch(counted(WHAT, raw.epoch.get())?),
        origin: (raw.has_origin != 0).then(|| OriginName { key: raw.origin_key, path: path.to_vec() }),
        checkpoint_area: raw.checkpoint_area,
        checkpoint_bytes: raw.checkpoint_bytes.get(),
        synced_through: BatchNumber(counted(WHAT, raw.synced_through.get())?),
        synced_host: BatchNumber(counted(WHAT, raw.synced_host.get())?),
        mode: CacheMode::from_number(raw.mode).ok_or(senseless("unknown cache mode"))?,
        clean_stop: raw.clean_stop != 0,
        dirty_blocks: raw.dirty_blocks.get(),
        boot: raw.boot,
        claim: raw.claim,
        host_copies,
        may_have_packed: raw.incompatible.get() & PACKED != 0,
        may_have_blanks: raw.incompatible.get() & BLANKS != 0,
    })
}

/// Every later computation with the geometry relies on these bounds, and on those of the list of members.
fn check_geometry(geometry: &Geometry, members: &Members) -> Result<(), Damage> {
    let whole = u64::from(geometry.segments) * u64::from(geometry.segment_bytes);
    let areas_end = geometry.area_bytes.checked_mul(2).and_then(|both| both.checked_add(geometry.checkpoint_start(0)));
    // Each slot that the pool ever had is the home of a segment.
    let slots: u64 = members.iter().map(|(_, member)| u64::from(member.slots)).sum();
    let fits = geometry.segment_bytes.is_power_of_two()
        && geometry.segment_bytes as usize >= 16 * BLOCK
        && geometry.segments_start.is_multiple_of(BLOCK as u64)
        && geometry.segments > 0
        && geometry.area_bytes.is_multiple_of(BLOCK as u64)
        && geometry.area_bytes >= 2 * BLOCK as u64
        && whole <= Location::END.0 * BLOCK_U64
        && areas_end.is_some_and(|areas_end| areas_end <= geometry.segments_start)
        && u64::from(geometry.segments) <= slots;
    if fits { Ok(()) } else { Err(Damage::Senseless(WHAT, "geometry does not fit the device")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Member, MemberName};

    fn example() -> Superblock {
        let geometry = Geometry::for_bytes(1 << 30).unwrap();
        Superblock {
            pool: PoolId([7; 16]),
            member: MemberId(0),
            members: Members::first(geometry.member(MemberName([5; 16]))),
            owner: OwnerNumber(4),
            geometry,
            counter: 12,
            epoch: Epoch(3),
            origin: Some(OriginName { key: [9; 16], path: b"/slow/mysql".to_vec() }),
            checkpoint_area: 1,
            checkpoint_bytes: 8192,
            synced_through: BatchNumber(77),
            synced_host: BatchNumber(75),
            mode: CacheMode::WriteThrough,
            clean_stop: true,
            dirty_blocks: 5,
            boot: [6; 16],
            claim: [8; 16],
            host_copies: HostCopies::ONE,
            may_have_packed: false,
            may_have_blanks: false,
        }
    }

    #[test]
    fn a_superblock_reads_back_as_it_was_written() {
        assert_eq!(decode_superblock(&encode_superblock(&example())), Ok(example()));
    }

    #[test]
    fn each_feature_has_a_bit_of_its_own() {
        for (may_have_packed, may_have_blanks) in [(false, false), (true, false), (false, true), (true, true)] {
            let superblock = Superblock { may_have_packed, may_have_blanks, ..example() };
            let block = encode_superblock(&superblock);
            assert_eq!(block[16], u8::from(may_have_packed) | u8::from(may_have_blanks) << 1);
            assert_eq!(decode_superblock(&block), Ok(superblock));
        }
    }

    #[test]
    fn every_single_flipped_bit_is_noticed() {
        let block = encode_superblock(&example());
        for bit in 0..BLOCK * 8 {
            let mut rotten = block.clone();
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_superblock(&rotten).is_err(), "bit {bit} flipped unnoticed");
        }
    }

    /// Some bytes replaced, under a checksum that is right again.
    fn forged(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut block = encode_superblock(&example());
        block[at..at + bytes.len()].copy_from_slice(bytes);
        block[8..12].fill(0);
        let checksum = bytes_checksum(&block);
        block[8..12].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    #[test]
    fn another_version_is_named_and_refused() {
        for (found, says) in [(1, "older"), (9, "newer")] {
            let refused = decode_superblock(&forged(12, &u32::to_le_bytes(found)));
            assert_eq!(refused, Err(Damage::Version { found }));
            assert!(refused.unwrap_err().to_string().contains(says));
        }
    }

    #[test]
    fn each_member_of_a_pool_has_its_own_place_in_one_list() {
        let first = example();
        let other = Member {
            name: MemberName([6; 16]),
            bytes: 4 << 30,
            start: 96 << 20,
            slots: 1900,
            used: 1900,
            ..*first.members.get(first.member).unwrap()
        };
        let (members, id) = first.members.with(other).unwrap();
        let pool_bytes = (1 << 30) + (4 << 30);
        let geometry = Geometry { pool_bytes, segments_start: 96 << 20, segments: 2000, ..first.geometry };
        let second = Superblock { member: id, members, geometry, ..first };
        let read = decode_superblock(&encode_superblock(&second)).unwrap();
        assert_eq!(read, second);
        assert_eq!((read.geometry.pool_bytes, read.members.needed()), (pool_bytes, 2));
    }

    #[test]
    fn what_this_version_cannot_honour_is_refused_in_words() {
        for (at, bytes, says) in
            [(16, &4_u64.to_le_bytes()[..], "features"), (16, &7_u64.to_le_bytes()[..], "features")]
        {
            let damage = decode_superblock(&forged(at, bytes)).unwrap_err();
            assert!(matches!(damage, Damage::Unsupported(..)), "{damage}");
            assert!(damage.to_string().contains(says), "{damage}");
        }
        assert!(decode_superblock(&forged(24, &[1])).is_ok(), "a feature that may be ignored");
    }

    #[test]
    fn no_block_of_a_pool_lies_at_the_place_of_zeros() {
        let with = |segments| {
            let geometry = Geometry { pool_bytes: 8 << 50, segment_bytes: 64 << 20, segments, ..example().geometry };
            let members = Members::first(geometry.member(MemberName([5; 16])));
            decode_superblock(&encode_superblock(&Superblock { geometry, members, ..example() }))
        };
        assert!(with((1 << 26) - 1).is_ok());
        assert!(matches!(with(1 << 26), Err(Damage::Senseless(..))));
    }

    #[test]
    fn numbers_that_nobody_counts_up_to_are_refused() {
        let senseless = |block: &[u8]| matches!(decode_superblock(block), Err(Damage::Senseless(..)));
        assert!(senseless(&forged(12, &0_u32.to_le_bytes())), "version 0");
        for at in [48, 56, 64, 72, 96, 104] {
            assert!(senseless(&forged(at, &u64::MAX.to_le_bytes())), "at {at}");
            assert!(senseless(&forged(at, &(1_u64 << 63).to_le_bytes())), "at {at}");
        }
    }
}
