//! Reads the checkpoint that a superblock names.
//!
//! Invariant: a checkpoint is taken whole or not at all. One that is taken is safe to compute with: each object once
//! and in order, each block once, a row for each segment.

use headpond_base::{BLOCK, ObjectId};
use headpond_format::{
    CheckpointHead, Damage, Entry, FrameKind, ObjectState, SegmentRow, Superblock, decode_checkpoint_head, decode_frame,
};
use headpond_map::{ObjectMap, SLOT_BYTES, Zeros};

use crate::flash_read::{FlashRead, NUMBER_MAX, ScanError, damaged};

/// All of a checkpoint.
pub struct Checkpoint {
    /// What it starts with.
    pub head: CheckpointHead,
    /// One row for each segment.
    pub rows: Vec<SegmentRow>,
    /// The objects in order, each once.
    pub objects: Vec<FoundObject>,
}

/// An object as a checkpoint has it. Until the tail is replayed, a block may be one of zeros and have a slot.
pub struct FoundObject {
    /// Its name in the pool.
    pub object: ObjectId,
    /// What is remembered.
    pub state: ObjectState,
    /// Its blocks on flash.
    pub map: ObjectMap,
    /// Its blocks of zeros that the origin has not got.
    pub zeros: Zeros,
}

/// Reads and checks the whole checkpoint.
///
/// # Errors
/// When a part of it is missing, or makes no sense.
pub fn read_checkpoint(flash: &mut dyn FlashRead, superblock: &Superblock) -> Result<Checkpoint, ScanError> {
    const WHAT: &str = "checkpoint";
    let geometry = &superblock.geometry;
    let start = geometry.checkpoint_start(usize::from(superblock.checkpoint_area));
    let fail = |damage| damaged(WHAT, start, damage);
    let read = |flash: &mut dyn FlashRead, offset, len| {
        flash.read(offset, len).map_err(|errno| ScanError::Read { offset, errno })
    };
    let head = decode_checkpoint_head(&read(flash, start, BLOCK)?).map_err(fail)?;
    if head.pool != superblock.pool || head.counter != superblock.counter {
        return Err(fail(Damage::Foreign(WHAT)));
    }
    if head.frame_bytes > geometry.area_bytes - BLOCK as u64 {
        return Err(fail(Damage::Senseless(WHAT, "longer than its area")));
    }
    let len = usize::try_from(head.frame_bytes).map_err(|_| fail(Damage::Senseless(WHAT, "too long")))?;
    let mut frames = Vec::with_capacity(len.next_multiple_of(BLOCK));
    while frames.len() < len {
        let piece = (len - frames.len()).next_multiple_of(BLOCK).min(4 << 20);
        frames.extend_from_slice(&read(flash, start + BLOCK as u64 + frames.len() as u64, piece)?);
    }
    frames.truncate(len);

    let (mut rows, mut objects, mut ended) = (Vec::new(), Vec::new(), false);
    let mut rest = &frames[..];
    while !ended {
        let (frame, used) = decode_frame(rest, head.counter).map_err(fail)?;
        rest = &rest[used..];
        match frame.kind {
            FrameKind::Segments => rows.extend(SegmentRow::decode_all(frame.payload).map_err(fail)?),
            FrameKind::Objects => {
                for (_, entry) in Entry::decode_all(frame.payload).map_err(fail)? {
                    let Entry::Object { object, state } = entry else {
                        return Err(fail(Damage::Senseless(WHAT, "no object among objects")));
                    };
                    objects.push(FoundObject { object, state, map: ObjectMap::default(), zeros: Zeros::default() });
                }
            }
            FrameKind::Zeros => read_zeros(frame.payload, &mut objects)
                .ok_or_else(|| fail(Damage::Senseless(WHAT, "zeros that make no sense")))?,
            FrameKind::Chunks => read_chunks(frame.payload, &mut objects)
                .ok_or_else(|| fail(Damage::Senseless(WHAT, "chunks that make no sense")))?,
            FrameKind::End if rest.is_empty() => ended = true,
            FrameKind::End => return Err(fail(Damage::Senseless(WHAT, "an end before its last byte"))),
        }
    }
    let last = objects.last().map_or(ObjectId(0), |last| last.object);
    if !objects.is_sorted_by(|one, next| one.object < next.object) || last.0 >= NUMBER_MAX {
        return Err(fail(Damage::Senseless(WHAT, "objects that are not in order")));
    }
    if rows.len() != geometry.segments as usize {
        return Err(fail(Damage::Senseless(WHAT, "not a row for each segment")));
    }
    Ok(Checkpoint { head, rows, objects })
}

/// The object that zeros or chunks are of, and the rest of their payload. They begin with `object (u64)`, and follow
/// their object at once, so it is the last.
fn owner<'a>(payload: &'a [u8], objects: &'a mut [FoundObject]) -> Option<(&'a mut FoundObject, &'a [u8])> {
    let (object, rest) = payload.split_first_chunk::<8>()?;
    let object = ObjectId(u64::from_le_bytes(*object));
    objects.last_mut().filter(|last| last.object == object).map(|last| (last, rest))
}

/// As many extents as fit: `first (u64), blocks (u64)`.
fn read_zeros(payload: &[u8], objects: &mut [FoundObject]) -> Option<()> {
    let (owner, extents) = owner(payload, objects)?;
    owner.zeros.decode(extents).then_some(())
}

/// As many times as fit `number (u32), count (u16), slots`.
fn read_chunks(payload: &[u8], objects: &mut [FoundObject]) -> Option<()> {
    let (FoundObject { map, .. }, mut rest) = owner(payload, objects)?;
    while !rest.is_empty() {
        let (number, after) = rest.split_first_chunk::<4>()?;
        let (count, after) = after.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_le_bytes(*count)) * SLOT_BYTES;
        let slots = after.get(..len)?;
        if !map.decode_chunk(u32::from_le_bytes(*number), slots) {
            return None;
        }
        rest = &after[len..];
    }
    Some(())
}
