//! Reading a pool at start: superblock, checkpoint, segment heads, tail.
//!
//! It writes nothing, so it can be cut off and repeated with the same result.

use headpond_base::{BLOCK, BatchNumber, Block, Buf, Epoch, Errno, Generation, ObjectId, Result as IoResult};
use headpond_format::{
    CheckpointHead, Damage, Entry, FrameKind, Geometry, ObjectState, SUPERBLOCK_SLOTS, SegmentHead, SegmentRow,
    SegmentState, Superblock, decode_checkpoint_head, decode_frame, decode_segment_head, decode_superblock,
};
use headpond_map::{ObjectMap, SLOT_BYTES};

use crate::log::LogStart;
use crate::mutation::Mutation;
use crate::segments::Segment;
use crate::tail::{Durable, FoundBatch, TailEntry, TailSegment, damaged, judge};

/// Reading at start, when there is nothing to do but wait.
pub trait FlashRead {
    /// Reads exactly `len` bytes at `offset`, both multiples of a block.
    ///
    /// # Errors
    /// When the device cannot.
    fn read(&mut self, offset: u64, len: usize) -> IoResult<Buf>;
}

/// Why a pool cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// No pool of any version.
    #[error("this is no headpond pool: neither superblock is one")]
    NotAPool,
    /// A pool of a later version.
    #[error("format version {found} is newer than this headpond: use the newer program")]
    Newer {
        /// Its version.
        found: u32,
    },
    /// The device is smaller than the pool on it.
    #[error("the pool has {wanted} bytes but the device only {found}: it was cut short")]
    CutShort {
        /// Bytes that the pool takes.
        wanted: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// A structure without which nothing can be said is damaged.
    #[error("{what} at byte {offset} is damaged: {damage}")]
    Damaged {
        /// Which.
        what: &'static str,
        /// Where.
        offset: u64,
        /// How.
        damage: Damage,
    },
    /// The device cannot be read where it must be.
    #[error("cannot read the flash at byte {offset}: {errno}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        errno: Errno,
    },
    /// Writes that were durable are not there any more.
    #[error("the flash lost synced writes: batches after {after}, up to {durable}, were durable and are gone")]
    LostHistory {
        /// The last batch that is there.
        after: BatchNumber,
        /// The last that must be.
        durable: BatchNumber,
    },
}

/// What was found.
pub struct Scanned {
    /// The superblock that counts.
    pub superblock: Superblock,
    /// Objects of the checkpoint, with their blocks.
    pub objects: Vec<(ObjectId, ObjectState, ObjectMap)>,
    /// What is to be replayed on them, in order.
    pub tail: Vec<TailEntry>,
    /// Where the log goes on.
    pub start: LogStart,
    /// The next object to be made, but for those in the tail.
    pub next_object: u64,
    /// Batches found after the checkpoint that do not count: torn, or behind a torn one.
    pub dropped_batches: u64,
}

/// Reads a pool from a device of `device_bytes`. `mutation` is for tests of the tests.
///
/// # Errors
/// [`ScanError`].
pub fn scan(flash: &mut dyn FlashRead, device_bytes: u64, mutation: Option<Mutation>) -> Result<Scanned, ScanError> {
    let superblock = read_superblock(flash, device_bytes)?;
    let geometry = superblock.geometry;
    let mut checkpoint = read_checkpoint(flash, &superblock)?;
    let head = checkpoint.head;

    let mut segments = Vec::with_capacity(checkpoint.rows.len());
    let mut found: Vec<FoundBatch> = Vec::new();
    let (mut next_generation, mut lives) = (head.next_generation, Vec::new());
    for (index, row) in (0_u32..).zip(&checkpoint.rows) {
        let id = headpond_base::SegmentId(index);
        let offset = geometry.byte_of(geometry.first_location(id));
        let bytes = flash.read(offset, BLOCK).map_err(|errno| ScanError::Read { offset, errno })?;
        let ours = |head: &SegmentHead| head.pool == superblock.pool && head.segment == id;
        let life = decode_segment_head(&bytes).ok().filter(ours);
        // Opened after the checkpoint was begun, in the epoch that goes on.
        let reopened = life.filter(|life| life.generation >= head.next_generation && life.epoch == head.epoch);
        next_generation = next_generation.max(life.map_or(Generation(0), |life| life.generation.next()));
        let (generation, state, stream) = match reopened {
            Some(life) => (life.generation, SegmentState::Sealed, life.stream),
            None if row.state == SegmentState::Free => (row.generation, SegmentState::Free, row.stream),
            None => (row.generation, SegmentState::Sealed, row.stream),
        };
        lives.push(Life {
            generation: reopened.map_or(row.generation, |life| life.generation),
            counts: reopened.is_some() || row.state != SegmentState::Free,
        });
        segments.push(Segment::from_row(SegmentRow { generation, state, stream }));
        if reopened.is_some() || row.state == SegmentState::Open {
            let tail = TailSegment { pool: superblock.pool, epoch: head.epoch, id, generation, stream };
            found.extend(tail.batches(flash, &geometry)?);
        }
    }
    drop_foreign_slots(&mut checkpoint.objects, &checkpoint.rows, &lives, &geometry);

    let mut durable = Durable { batch: superblock.synced_through, host: superblock.synced_host };
    let mut next_batch = head.next_batch;
    let mut next_sequence = head.replay_from;
    for batch in &found {
        durable.batch = durable.batch.max(batch.summary.synced_through);
        durable.host = durable.host.max(batch.summary.synced_host);
        next_batch = next_batch.max(batch.summary.number.next());
        for (sequence, _) in Entry::decode_all(&batch.summary.entries).unwrap_or_default() {
            next_sequence = next_sequence.max(sequence.next());
        }
    }
    let tail = judge(found, flash, &geometry, head.replay_from, head.last_host, durable, mutation)?;
    Ok(Scanned {
        start: LogStart {
            pool: superblock.pool,
            geometry,
            epoch: Epoch(head.epoch.0.max(superblock.epoch.0) + 1),
            next_sequence,
            next_batch,
            next_generation,
            segments,
            mutation,
        },
        objects: checkpoint.objects,
        tail: tail.entries,
        next_object: head.next_object,
        dropped_batches: tail.dropped,
        superblock,
    })
}

/// A segment's present life, and whether slots that point into it can count at all.
struct Life {
    generation: Generation,
    counts: bool,
}

/// Takes away slots that point into an earlier life of their segment: what they pointed to was
/// evicted, or moved, and that is durable, or the segment would not have been reused.
fn drop_foreign_slots(
    objects: &mut [(ObjectId, ObjectState, ObjectMap)],
    rows: &[SegmentRow],
    lives: &[Life],
    geometry: &Geometry,
) {
    for (_, _, map) in objects {
        let foreign: Vec<Block> = map
            .range(Block(0), Block(u64::MAX))
            .filter(|(_, slot)| {
                if slot.location == headpond_base::Location::ZERO {
                    return false;
                }
                let index = geometry.segment_of(slot.location).0 as usize;
                let (Some(row), Some(life)) = (rows.get(index), lives.get(index)) else { return true };
                // Free at the checkpoint's start: the slot was made later, in the new life.
                // In use then: the slot is of that life, and counts while it lasts.
                let same = row.state == SegmentState::Free || row.generation == life.generation;
                !(life.counts && same)
            })
            .map(|(block, _)| block)
            .collect();
        for block in foreign {
            map.remove(block);
        }
    }
}

/// Reads the superblock that counts.
fn read_superblock(flash: &mut dyn FlashRead, device_bytes: u64) -> Result<Superblock, ScanError> {
    let mut best: Option<Superblock> = None;
    let mut worst = ScanError::NotAPool;
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
                Err(Damage::Newer { found }) => worst = ScanError::Newer { found },
                Err(damage) if worst == ScanError::NotAPool => worst = damaged("superblock", offset, damage),
                Err(_) => {}
            },
            Err(error) => worst = error,
        }
    }
    if let ScanError::Newer { .. } = worst {
        return Err(worst);
    }
    let superblock = best.ok_or(worst)?;
    let wanted = superblock.geometry.segments_start
        + u64::from(superblock.geometry.segments) * u64::from(superblock.geometry.segment_bytes);
    if wanted > device_bytes {
        return Err(ScanError::CutShort { wanted, found: device_bytes });
    }
    Ok(superblock)
}

struct Checkpoint {
    head: CheckpointHead,
    rows: Vec<SegmentRow>,
    objects: Vec<(ObjectId, ObjectState, ObjectMap)>,
}

/// Reads and checks all of the checkpoint that the superblock names.
fn read_checkpoint(flash: &mut dyn FlashRead, superblock: &Superblock) -> Result<Checkpoint, ScanError> {
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
    if head.frame_bytes > geometry.checkpoint_bytes - BLOCK as u64 {
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
            FrameKind::Segments => {
                for row in frame.payload.as_chunks::<{ SegmentRow::BYTES }>().0 {
                    rows.push(SegmentRow::decode(row).map_err(fail)?);
                }
            }
            FrameKind::Objects => {
                for (_, entry) in Entry::decode_all(frame.payload).map_err(fail)? {
                    let Entry::Object { object, state } = entry else {
                        return Err(fail(Damage::Senseless(WHAT, "no object among objects")));
                    };
                    objects.push((object, state, ObjectMap::default()));
                }
            }
            FrameKind::Chunks => read_chunks(frame.payload, &mut objects)
                .ok_or_else(|| fail(Damage::Senseless(WHAT, "chunks that make no sense")))?,
            FrameKind::End => ended = true,
        }
    }
    if rows.len() != geometry.segments as usize {
        return Err(fail(Damage::Senseless(WHAT, "not a row for each segment")));
    }
    Ok(Checkpoint { head, rows, objects })
}

/// Chunks of the object that came last in the objects' frames before: `object (u64)`, then as
/// many times as fit `number (u32), count (u16), slots`.
fn read_chunks(payload: &[u8], objects: &mut [(ObjectId, ObjectState, ObjectMap)]) -> Option<()> {
    let (object, mut rest) = payload.split_first_chunk::<8>()?;
    let object = ObjectId(u64::from_le_bytes(*object));
    // Chunks follow their object at once, so it is the last.
    let (_, _, map) = objects.last_mut().filter(|(last, _, _)| *last == object)?;
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
