//! A checkpoint area, read as recovery reads it: whole or not at all.

use headpond_base::{
    BLOCK, BatchNumber, Block, Buf, BufMut, CacheMode, Class, Epoch, Errno, Generation, Location, MemberId, ObjectId,
    OwnerNumber, PoolId, Sequence, Stream,
};
use headpond_engine::FlashRead;
use headpond_format::{
    CheckpointHead, Entry, FileIdentity, FrameKind, Geometry, HostCopies, Identity, Layout, MemberName, Members,
    ObjectState, Place, SegmentRow, SegmentState, Superblock, encode_checkpoint_head, encode_frame,
};
use headpond_log::{FoundObject, ScanError, read_checkpoint};
use headpond_map::{ObjectMap, Slot, Zeros};

use super::without_numbers;
use crate::seals;
use crate::seed::Seed;
use crate::subject::{Base, Told};

const COUNTER: u64 = 5;

/// A superblock that names the checkpoint in area 0.
fn superblock() -> Superblock {
    let geometry = Geometry::with_segment_bytes(4 << 20, 128 << 10);
    Superblock {
        pool: PoolId([7; 16]),
        member: MemberId(0),
        members: Members::first(geometry.member(MemberName([5; 16]))),
        owner: OwnerNumber(1),
        geometry,
        counter: COUNTER,
        epoch: Epoch(3),
        origin: None,
        checkpoint_area: 0,
        checkpoint_bytes: 0,
        synced_through: BatchNumber(0),
        synced_host: BatchNumber(0),
        mode: CacheMode::WriteBack,
        clean_stop: false,
        dirty_blocks: 0,
        boot: [0; 16],
        claim: [0; 16],
        host_copies: HostCopies::ONE,
        may_have_packed: false,
        may_have_blanks: false,
    }
}

/// Only the area.
struct Area<'a>(&'a [u8]);

impl FlashRead for Area<'_> {
    fn read(&mut self, offset: u64, len: usize) -> headpond_base::Result<Buf> {
        let at = offset.checked_sub(superblock().geometry.checkpoint_start(0)).ok_or(Errno::IO)?;
        let at = usize::try_from(at).map_err(|_| Errno::IO)?;
        let bytes = at.checked_add(len).and_then(|end| self.0.get(at..end)).ok_or(Errno::IO)?;
        Ok(BufMut::copy_of(bytes).freeze())
    }
}

pub(super) fn base(seed: u64) -> Base {
    let mut seed = Seed(seed);
    let superblock = superblock();
    let mut frames = Vec::new();
    let mut rows = Vec::new();
    for slot in 0..superblock.geometry.segments {
        let state = [SegmentState::Free, SegmentState::Open, SegmentState::Sealed][seed.index(3)];
        let place = Layout::Single(Place { member: MemberId(0), slot });
        let layout = (state != SegmentState::Free).then_some(place);
        SegmentRow {
            generation: Generation(seed.below(99)),
            state,
            stream: Stream::ALL[seed.index(3)],
            layout,
            copies_differ: false,
        }
        .encode(&mut rows);
    }
    encode_frame(FrameKind::Segments, COUNTER, &rows, &mut frames);
    for object in 1..=seed.below(5) {
        let mut entry = Vec::new();
        let file = Identity::File(FileIdentity { inode: object, ..FileIdentity::default() });
        let state = ObjectState { identity: file, size: 1 << 20, path: b"db/table".to_vec(), ..ObjectState::default() };
        Entry::Object { object: ObjectId(object), state }.encode(Sequence(0), &mut entry);
        encode_frame(FrameKind::Objects, COUNTER, &entry, &mut frames);
        let mut zeros = Zeros::default();
        for _ in 0..seed.below(9) {
            let first = Block(seed.below(3000));
            zeros.add(first, first.plus(seed.below(1 << 30)));
        }
        if !zeros.is_empty() {
            let mut payload = object.to_le_bytes().to_vec();
            zeros.encode(Block(0), usize::MAX, &mut payload);
            encode_frame(FrameKind::Zeros, COUNTER, &payload, &mut frames);
        }
        let mut map = ObjectMap::default();
        for _ in 0..seed.below(300) {
            let at = u32::try_from(seed.below(1000)).unwrap_or(0);
            let location = Location(at.into());
            let (dirty, kept, class) = (seed.one_in(2), false, Class::EVERYBODY);
            let slot = if seed.one_in(9) {
                Slot::blank(location, dirty, kept, class)
            } else {
                Slot { location, checksum: at, packed: false, dirty, kept, class }
            };
            map.insert(Block(seed.below(3000)), slot);
        }
        let (mut payload, mut next) = (object.to_le_bytes().to_vec(), 0);
        while let Some(number) = map.encode_chunk(next, &mut payload) {
            next = number + 1;
        }
        if payload.len() > 8 {
            encode_frame(FrameKind::Chunks, COUNTER, &payload, &mut frames);
        }
    }
    encode_frame(FrameKind::End, COUNTER, &[], &mut frames);
    let head = CheckpointHead {
        pool: superblock.pool,
        counter: COUNTER,
        epoch: superblock.epoch,
        replay_from: Sequence(100),
        last_host: BatchNumber(20),
        next_batch: BatchNumber(22),
        next_object: 9,
        next_generation: Generation(100),
        frame_bytes: frames.len() as u64,
    };
    let mut bytes = encode_checkpoint_head(&head);
    bytes.extend_from_slice(&frames);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    let seals = seals::of_area(&bytes, 0);
    Base { bytes, devices: 1, seals }
}

pub(super) fn run(bytes: &[u8]) -> Result<Told, String> {
    match read_checkpoint(&mut Area(bytes), &superblock()) {
        Ok(checkpoint) => {
            if checkpoint.rows.len() != superblock().geometry.segments as usize
                || !checkpoint.objects.is_sorted_by(|one, next| one.object < next.object)
            {
                return Err("a checkpoint is taken that is not whole".to_owned());
            }
            for FoundObject { map, zeros, .. } in &checkpoint.objects {
                let counted = map
                    .range(Block(0), Block(u64::MAX))
                    .fold((0, 0), |(blocks, dirty), (_, slot)| (blocks + 1, dirty + u64::from(slot.dirty)));
                if counted != (map.blocks(), map.dirty()) {
                    return Err(format!("a map of {counted:?} blocks counts ({}, {})", map.blocks(), map.dirty()));
                }
                let extents: Vec<_> = zeros.within(Block(0), Block(u64::MAX)).collect();
                if !extents.is_sorted_by(|(_, end), (first, _)| end < first)
                    || extents.iter().any(|(first, end)| first >= end || *end > Zeros::END)
                {
                    return Err(format!("extents of zeros are not apart: {extents:?}"));
                }
            }
            Ok(Told { verdict: "taken", words: "taken".to_owned() })
        }
        Err(ScanError::Read { .. }) => Ok(Told { verdict: "cannot be read", words: "read".to_owned() }),
        Err(error) => Ok(Told { verdict: "refused", words: without_numbers(&error.to_string()) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_nobody_spoiled_is_taken() {
        for seed in 0..20 {
            assert_eq!(run(&base(seed).bytes).map(|told| told.verdict), Ok("taken"));
        }
    }
}
