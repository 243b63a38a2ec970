//! Reads a pool at start: superblock, checkpoint, segment heads, tail.
//!
//! The scan writes nothing, so you can interrupt and repeat it with the same result.

use headpond_base::{BLOCK, BatchNumber, Block, Epoch, Generation, SegmentId, Stream};
use headpond_format::{
    Addresses, BLOCK_UNITS, Damage, Entry, Geometry, SUPERBLOCK_SLOTS, SegmentHead, SegmentState, Superblock,
    decode_checkpoint_head, decode_superblock,
};

use crate::batches::{WantedBatches, life_at, walk, was_head};
use crate::checkpoint::{Checkpoint, FoundObject, read_checkpoint};
use crate::flash_read::{FlashRead, NUMBER_MAX, ScanError, damaged};
use crate::mutation::Mutation;
use crate::segments::Segment;
use crate::start::LogStart;
use crate::tail::{FoundBatch, KnownDurable, TailEntry, batches_of, judge};

/// The result of a scan.
pub struct Scanned {
    /// The superblock that counts.
    pub superblock: Superblock,
    /// Objects of the checkpoint, with their blocks.
    pub objects: Vec<FoundObject>,
    /// The entries to replay on them, in order.
    pub tail: Vec<TailEntry>,
    /// Where the log goes on.
    pub start: LogStart,
    /// The next object to be made, without counting those of the tail.
    pub next_object: u64,
    /// The last host batch that counts. Nothing that survived comes after it.
    pub last_host: BatchNumber,
    /// Batches after the checkpoint that do not count: torn, or behind a torn one.
    pub dropped_batches: u64,
    /// Of those, host batches behind the first that is missing or torn.
    pub beyond_gap: u64,
}

/// Reads a pool from a device of `device_bytes`. `mutation` is for tests of the tests.
///
/// # Errors
/// [`ScanError`].
pub fn scan(flash: &mut dyn FlashRead, device_bytes: u64, mutation: Option<Mutation>) -> Result<Scanned, ScanError> {
    let superblock = newest_superblock(flash, device_bytes)?;
    let refusal = match scan_from(flash, superblock.clone(), mutation) {
        Err(refusal) => refusal,
        scanned => return scanned,
    };
    match lost_successor(flash, &superblock, &refusal) {
        Some(successor) => {
            let mut scanned = scan_from(flash, successor, mutation).map_err(|_| refusal)?;
            // The next superblock goes into the damaged slot. Until it is durable, the intact one stays.
            scanned.superblock.counter += 1;
            Ok(scanned)
        }
        None => Err(refusal),
    }
}

fn scan_from(
    flash: &mut dyn FlashRead,
    superblock: Superblock,
    mutation: Option<Mutation>,
) -> Result<Scanned, ScanError> {
    let geometry = superblock.geometry;
    let mut checkpoint = read_checkpoint(flash, &superblock)?;
    let head = checkpoint.head;
    let layouts = checkpoint.rows.iter().map(|row| row.layout.as_ref());
    let addresses = Addresses::new(geometry, &superblock.members, layouts).map_err(|damage| {
        damaged("checkpoint", geometry.checkpoint_start(usize::from(superblock.checkpoint_area)), damage)
    })?;

    let mut segments = Vec::with_capacity(checkpoint.rows.len());
    let mut found: Vec<FoundBatch> = Vec::new();
    let (mut next_generation, mut lives) = (head.next_generation, Vec::new());
    for (index, row) in (0_u32..).zip(&checkpoint.rows) {
        let id = SegmentId(index);
        let life = find_life(flash, &superblock, &checkpoint, id)?;
        // Opened after the checkpoint began, in the epoch that goes on.
        let reopened = life.filter(|life| life.generation >= head.next_generation && life.epoch == head.epoch);
        next_generation = next_generation.max(life.map_or(Generation(0), |life| life.generation.next()));
        let (generation, state, stream) = match reopened {
            Some(life) => (life.generation, SegmentState::Sealed, life.stream),
            None if row.state == SegmentState::Free => (row.generation, SegmentState::Free, row.stream),
            None => (row.generation, SegmentState::Sealed, row.stream),
        };
        lives.push(Life { generation, counts: state != SegmentState::Free });
        segments.push(Segment::new(generation, state, stream));
        if reopened.is_some() || row.state == SegmentState::Open {
            let life = SegmentHead { pool: superblock.pool, epoch: head.epoch, segment: id, generation, stream };
            found.extend(batches_of(flash, &geometry, &life, mutation)?);
        }
    }
    // A crash may destroy the head and the first batch of a segment that was opened last, and keep what came later,
    // its footer too. The generation of such a segment must not come again. There are at most as many as segments,
    // because each segment was opened at most once since the last sync.
    let unseen = if superblock.clean_stop { 0 } else { u64::from(geometry.segments) };
    let next_generation = Generation(next_generation.0 + unseen);
    drop_foreign_slots(&mut checkpoint, &lives, &geometry, &superblock)?;

    let mut durable = KnownDurable { batch: superblock.synced_through, host: superblock.synced_host };
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
    let last_object = checkpoint.objects.last().map_or(0, |last| last.object.0);
    let next_object = head.next_object.max(last_object + 1);
    let epoch = Epoch(head.epoch.0.max(superblock.epoch.0) + 1);
    if [next_batch.0, next_sequence.0, next_generation.0, next_object, epoch.0, superblock.counter]
        .iter()
        .any(|number| *number >= NUMBER_MAX)
    {
        let offset = geometry.checkpoint_start(usize::from(superblock.checkpoint_area));
        return Err(damaged("the log", offset, Damage::Senseless("the log", "numbers that nobody counts up to")));
    }
    Ok(Scanned {
        start: LogStart {
            pool: superblock.pool,
            geometry,
            addresses,
            owner: superblock.owner,
            epoch,
            next_sequence,
            next_batch,
            next_generation,
            segments,
            mutation,
        },
        objects: checkpoint.objects,
        tail: tail.entries,
        next_object,
        last_host: tail.last_host,
        dropped_batches: tail.dropped,
        beyond_gap: tail.beyond_gap,
        superblock,
    })
}

/// The last life of a segment that left traces.
fn find_life(
    flash: &mut dyn FlashRead,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    id: SegmentId,
) -> Result<Option<SegmentHead>, ScanError> {
    let (geometry, head) = (&superblock.geometry, &checkpoint.head);
    let offset = geometry.byte_of(geometry.first_location(id));
    let bytes = flash.read(offset, 2 * BLOCK).map_err(|errno| ScanError::Read { offset, errno })?;
    let place = SegmentHead {
        pool: superblock.pool,
        epoch: head.epoch,
        segment: id,
        generation: head.next_generation,
        stream: Stream::Host,
    };
    let mut life = life_at(&bytes, &place);
    let known = checkpoint.rows.get(id.0 as usize).is_some_and(|row| row.state != SegmentState::Free);
    if life.is_none() && !known && was_head(&bytes[..BLOCK], &place) {
        // Head and first batch are damaged. If the segment was in use, later batches say its life.
        (_, life) = walk(flash, geometry, &WantedBatches::Since(place))?;
    }
    match life {
        // No segment is opened in a new epoch before the superblock of that epoch is durable.
        Some(life) if life.epoch > head.epoch.max(superblock.epoch) => {
            Err(ScanError::LostSuperblock { segment: id, found: life.epoch, known: head.epoch.max(superblock.epoch) })
        }
        life => Ok(life),
    }
}

/// A segment's present life, and whether slots that point into the segment can count.
struct Life {
    generation: Generation,
    counts: bool,
}

/// Removes slots that point into an earlier life of their segment. Their blocks were evicted or moved, and that is
/// durable: otherwise the segment would not have been reused.
fn drop_foreign_slots(
    checkpoint: &mut Checkpoint,
    lives: &[Life],
    geometry: &Geometry,
    superblock: &Superblock,
) -> Result<(), ScanError> {
    for FoundObject { map, .. } in &mut checkpoint.objects {
        let mut foreign: Vec<Block> = Vec::new();
        for (block, slot) in map.range(Block(0), Block(u64::MAX)) {
            let index = geometry.segment_of(slot.location).0 as usize;
            let (Some(row), Some(life)) = (checkpoint.rows.get(index), lives.get(index)) else {
                let offset = geometry.checkpoint_start(usize::from(superblock.checkpoint_area));
                let damage = Damage::Senseless("checkpoint", "a block beyond the last segment");
                return Err(damaged("checkpoint", offset, damage));
            };
            // A read of the slot ends with its segment.
            let end = geometry.first_location(geometry.segment_of(slot.location)).plus(geometry.segment_blocks()).0;
            if slot.extent().1 > end * u64::from(BLOCK_UNITS) {
                let offset = geometry.checkpoint_start(usize::from(superblock.checkpoint_area));
                let damage = Damage::Senseless("checkpoint", "a packed record beyond the end of its segment");
                return Err(damaged("checkpoint", offset, damage));
            }
            // Free at the checkpoint's start: the slot was made later, in the new life. In use then: the slot is of
            // the life in the row, and counts while that life lasts.
            let same = row.state == SegmentState::Free || row.generation == life.generation;
            if !(life.counts && same) {
                foreign.push(block);
            }
        }
        for block in foreign {
            map.remove(block);
        }
    }
    Ok(())
}

/// Reads the superblock that counts: of those that are whole, the newest.
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
    if superblock.members.needed() > 1 {
        let damage = Damage::Unsupported("superblock", "the pool has several devices");
        return Err(damaged("superblock", SUPERBLOCK_SLOTS[0], damage));
    }
    let wanted = superblock.geometry.segments_end();
    if wanted > device_bytes {
        return Err(ScanError::CutShort { wanted, found: device_bytes });
    }
    Ok(superblock)
}

/// The superblock after `left`, if there is proof that it was durable. Then the checkpoint that it named is whole in
/// the other area, and says all that the superblock said.
///
/// The proof: `left` does not account for what is on the device. Something was written in a later epoch, or segments
/// were reused that only a later checkpoint made superfluous, or the area of `left`'s checkpoint was overwritten. None
/// of this happens before a superblock is durable. A crash may tear the slot and leave no such traces; then the pool
/// is as `left` says.
fn lost_successor(flash: &mut dyn FlashRead, left: &Superblock, refusal: &ScanError) -> Option<Superblock> {
    let counter = left.counter + 1;
    let slot = flash.read(SUPERBLOCK_SLOTS[usize::from(counter % 2 == 1)], BLOCK).ok()?;
    // A start that ended before its own first superblock may have put `left` there.
    let damaged = decode_superblock(&slot).map_or(true, |found| found.counter == left.counter);
    let shown = match refusal {
        ScanError::LostSuperblock { .. } => true,
        ScanError::LostHistory { .. } | ScanError::Damaged { .. } => damaged,
        _ => false,
    };
    let area = 1 - left.checkpoint_area;
    let offset = left.geometry.checkpoint_start(usize::from(area));
    let head = decode_checkpoint_head(&flash.read(offset, BLOCK).ok()?).ok()?;
    let follows = head.pool == left.pool && head.counter == counter && head.epoch >= left.epoch;
    (shown && follows).then(|| Superblock {
        counter,
        epoch: head.epoch,
        checkpoint_area: area,
        checkpoint_bytes: head.frame_bytes + BLOCK as u64,
        clean_stop: false,
        ..left.clone()
    })
}
