//! Where the logs of these tests start from.

use headpond_base::{BatchNumber, Epoch, Generation, MemberId, OwnerNumber, PoolId, Sequence, Stream};
use headpond_format::{Addresses, Geometry, MemberName, Members, SegmentState};
use headpond_log::{LogStart, Segment};

pub const POOL: PoolId = PoolId([5; 16]);

/// An empty pool of one member.
pub fn empty(geometry: Geometry) -> LogStart {
    let free = Segment::new(Generation(0), SegmentState::Free, Stream::Host);
    LogStart {
        pool: POOL,
        geometry,
        addresses: Addresses::of_empty(geometry, &Members::first(geometry.member(MemberName([5; 16])))).unwrap(),
        members: vec![MemberId(0)],
        take_new: vec![(MemberId(0), geometry.segments)],
        copies_only: Vec::new(),
        owner: OwnerNumber(1),
        epoch: Epoch(1),
        next_sequence: Sequence(1),
        next_batch: BatchNumber(1),
        next_generation: Generation(1),
        segments: vec![free; geometry.segments as usize],
        rows: Vec::new(),
        mutation: None,
    }
}
