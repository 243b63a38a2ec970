//! A superblock: what decodes has a geometry with which one can compute.

use headpond_base::{BLOCK, BatchNumber, CacheMode, Epoch, Location, MemberId, OwnerNumber, PoolId};
use headpond_format::{
    Geometry, HostCopies, MEMBERS_MAX, Member, MemberName, MemberState, Members, ORIGIN_PATH_MAX, OriginName,
    Superblock, decode_superblock, encode_superblock,
};

use super::{same, told};
use crate::seals::Seal;
use crate::seed::Seed;
use crate::subject::{Base, Told};

/// The limit of any number.
const NUMBER_END: u64 = 1 << 63;

pub(super) fn base(seed: u64) -> Base {
    let mut seed = Seed(seed);
    let geometry = Geometry::with_segment_bytes(4096 * (1000 + seed.below(1 << 28)), 64 << (10 + seed.below(11)));
    let counter = 1 + seed.below(1 << 40);
    let mut path = vec![0; seed.index(ORIGIN_PATH_MAX)];
    seed.fill(&mut path);
    let own = geometry.member(MemberName([5; 16]));
    let mut members = Members::first(own);
    for name in 0..seed.index(MEMBERS_MAX) {
        let other = Member { name: MemberName([100 + name as u8; 16]), ..own };
        members = members.with(other).map_or(members, |(longer, _)| longer);
        if seed.one_in(4) {
            members = members.with_state(MemberId(0), MemberState::Emptied);
        }
    }
    let bytes = encode_superblock(&Superblock {
        member: MemberId(0),
        members,
        owner: OwnerNumber(1 + seed.below(9)),
        pool: PoolId(seed.next().to_le_bytes().repeat(2).try_into().unwrap_or_default()),
        geometry,
        counter,
        epoch: Epoch(seed.below(1000)),
        origin: seed.one_in(2).then_some(OriginName { key: [9; 16], path }),
        checkpoint_area: u8::from(seed.one_in(2)),
        checkpoint_bytes: 4096 + seed.below(geometry.area_bytes - 4096),
        synced_through: BatchNumber(counter),
        synced_host: BatchNumber(counter / 2),
        mode: CacheMode::ALL[seed.index(4)],
        clean_stop: seed.one_in(2),
        dirty_blocks: seed.next(),
        boot: [0; 16],
        claim: [0; 16],
        host_copies: HostCopies::of(1 + seed.index(3), []),
        may_have_packed: seed.one_in(2),
        may_have_blanks: seed.one_in(2),
    });
    Base { bytes, devices: 1, seals: vec![Seal::new(0..BLOCK, 8, 12..3328)] }
}

pub(super) fn run(bytes: &[u8]) -> Result<Told, String> {
    let decoded = decode_superblock(bytes);
    if let Ok(superblock) = &decoded {
        let geometry = &superblock.geometry;
        let sums = [superblock.counter, superblock.epoch.0, superblock.synced_through.0, superblock.synced_host.0];
        if sums.iter().any(|number| *number >= NUMBER_END) {
            return Err(format!("a number that nobody counts up to is taken: {superblock:?}"));
        }
        let whole = superblock.members.needed() <= 1;
        if whole && geometry.segments_end() > geometry.pool_bytes
            || geometry.checkpoint_start(1) + geometry.area_bytes > geometry.segments_start
            || u64::from(geometry.segments) * u64::from(geometry.segment_blocks()) > Location::END.0
        {
            return Err(format!("a geometry that does not fit itself is taken: {geometry:?}"));
        }
        let again = decode_superblock(&encode_superblock(superblock)).map_err(|damage| damage.to_string())?;
        // Without an origin, the remains of one are no part of the pool.
        same("a superblock", superblock, &again)?;
    }
    Ok(told(decoded))
}
