//! Reads a pool at start: superblock, checkpoint, segment heads, tail.
//!
//! The scan writes nothing, so you can interrupt and repeat it with the same result.

use headpond_base::{BLOCK, BatchNumber, Block, Epoch, Generation, SegmentId};
use headpond_format::{
    Addresses, BLOCK_UNITS, Damage, Entry, Geometry, MemberState, SUPERBLOCK_SLOTS, SegmentHead, SegmentState,
    Superblock, decode_checkpoint_head, decode_superblock,
};

use crate::checkpoint::{Checkpoint, FoundObject, read_checkpoint};
use crate::flash_read::{FlashRead, NUMBER_MAX, ScanError, damaged};
use crate::lives::{Life, Lives, find_lives};
use crate::muster::{Present, newest_superblock};
use crate::mutation::Mutation;
use crate::segments::Segment;
use crate::start::LogStart;
use crate::tail::{FoundBatch, KnownDurable, Slots, TailEntry, batches_of_all, judge};

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

/// Reads a pool of one device of `device_bytes`. `mutation` is for tests of the tests.
///
/// # Errors
/// [`ScanError`].
pub fn scan(flash: &mut dyn FlashRead, device_bytes: u64, mutation: Option<Mutation>) -> Result<Scanned, ScanError> {
    let superblock = newest_superblock(flash, device_bytes)?;
    if superblock.members.needed() > 1 {
        let damage = Damage::Unsupported("superblock", "the pool has several devices");
        return Err(damaged("superblock", SUPERBLOCK_SLOTS[0], damage));
    }
    scan_members(&mut Present::alone(flash, device_bytes, superblock), mutation)
}

/// Reads a pool from those of its members that are here. `mutation` is for tests of the tests.
///
/// # Errors
/// [`ScanError`].
pub fn scan_members(present: &mut Present<'_>, mutation: Option<Mutation>) -> Result<Scanned, ScanError> {
    let superblock = present.superblock().clone();
    let refusal = match scan_from(present, superblock.clone(), mutation) {
        Err(refusal) => refusal,
        scanned => return scanned,
    };
    match lost_successor(present, &superblock, &refusal) {
        Some(successor) => {
            let mut scanned = scan_from(present, successor, mutation).map_err(|_| refusal)?;
            // The next superblock goes into the damaged slot. Until it is durable, the intact one stays.
            scanned.superblock.counter += 1;
            Ok(scanned)
        }
        None => Err(refusal),
    }
}

fn scan_from(
    present: &mut Present<'_>,
    superblock: Superblock,
    mutation: Option<Mutation>,
) -> Result<Scanned, ScanError> {
    let geometry = superblock.geometry;
    let missing = present.missing();
    if let Some(member) = missing.first().filter(|_| !superblock.clean_stop)
        && !superblock.has_batches_without(&missing)
        && !Mutation::StartWithFewer.is_planted(mutation)
    {
        // It may have host batches that no other has, and that nothing else tells of.
        return Err(ScanError::MissingAfterCrash { member: *member });
    }
    let mut checkpoint = any_checkpoint(present, &superblock)?;
    let head = checkpoint.head;
    let layouts = checkpoint.rows.iter().map(|row| row.layout.as_ref());
    let addresses = Addresses::new(geometry, &superblock.members, layouts).map_err(|damage| {
        damaged("checkpoint", geometry.checkpoint_start(usize::from(superblock.checkpoint_area)), damage)
    })?;

    let Lives { lives, rows, mut next_generation } = find_lives(present, &superblock, &checkpoint, &addresses)?;
    let mut segments = Vec::with_capacity(lives.len());
    let mut found: Vec<FoundBatch> = Vec::new();
    for ((index, row), life) in (0_u32..).zip(&checkpoint.rows).zip(&lives) {
        let Life { generation, state, stream, home, lenders, lent, .. } = *life;
        let mut segment = Segment { home, lenders, lent, ..Segment::new(generation, state, stream) };
        // Only what is replayed is looked at; a start before this one may have seen more.
        segment.copies_differ = row.copies_differ && row.generation == generation && state != SegmentState::Free;
        if life.reopened || row.state == SegmentState::Open && state != SegmentState::Free {
            let (pool, epoch, id) = (superblock.pool, head.epoch, SegmentId(index));
            let life = SegmentHead { pool, epoch, segment: id, generation, stream };
            let keepers: Vec<SegmentId> = home.then_some(id).into_iter().chain(lenders.iter()).collect();
            let (batches, differ) = batches_of_all(present, &addresses, &geometry, &life, &keepers, mutation)?;
            segment.copies_differ |= differ;
            found.extend(batches);
        }
        segments.push(segment);
    }
    // A crash may destroy the head and the first batch of a segment that was opened last, and keep what came later,
    // its footer too. The generation of such a segment must not come again. There are at most as many as segments,
    // because each segment was opened at most once since the last sync.
    let unseen = if superblock.clean_stop { 0 } else { u64::from(geometry.segments) };
    next_generation = Generation(next_generation.0 + unseen);
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
    let mut slots = Slots { present, addresses: &addresses, geometry: &geometry };
    let tail = judge(found, &mut slots, head.replay_from, head.last_host, durable, mutation)?;
    if let Some(member) = present.first_unread().filter(|_| !superblock.clean_stop) {
        return Err(ScanError::UnreadAfterCrash { member });
    }
    for segment in &tail.differing {
        segments[segment.0 as usize].copies_differ = true;
    }
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
    let here = present.members();
    let in_use = superblock.members.iter().filter(|(id, row)| row.state == MemberState::InUse && here.contains(id));
    let take_new = in_use.map(|(id, row)| (id, row.used)).collect();
    // Without those that are missing, as the list will be.
    let list = superblock.members.clone();
    let list = missing.iter().fold(list, |list, member| list.with_state(*member, MemberState::Gone));
    let copies_only = list.iter().filter(|(_, row)| row.copies_only).map(|(id, _)| id).collect();
    Ok(Scanned {
        start: LogStart {
            pool: superblock.pool,
            geometry,
            addresses,
            members: here,
            take_new,
            copies_only,
            owner: superblock.owner,
            epoch,
            next_sequence,
            next_batch,
            next_generation,
            segments,
            rows,
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

/// The checkpoint that the superblock names, from any member that has it.
fn any_checkpoint(present: &mut Present<'_>, superblock: &Superblock) -> Result<Checkpoint, ScanError> {
    let mut refusal = ScanError::NotAPool;
    for member in present.members() {
        match read_checkpoint(&mut present.member(member), superblock) {
            Ok(checkpoint) => return Ok(checkpoint),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
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
            if life.state == SegmentState::Free || !same {
                foreign.push(block);
            }
        }
        for block in foreign {
            map.remove(block);
        }
    }
    Ok(())
}

/// The superblock after `left`, if there is proof that it was durable. Then the checkpoint that it named is whole in
/// the other area, and says all that the superblock said.
///
/// The proof: `left` does not account for what is on the device. Something was written in a later epoch, or segments
/// were reused that only a later checkpoint made superfluous, or the area of `left`'s checkpoint was overwritten. None
/// of this happens before a superblock is durable. A crash may tear the slot and leave no such traces; then the pool
/// is as `left` says.
fn lost_successor(present: &mut Present<'_>, left: &Superblock, refusal: &ScanError) -> Option<Superblock> {
    let members = present.members();
    members.into_iter().find_map(|member| lost_on(&mut present.member(member), left, refusal))
}

fn lost_on(flash: &mut dyn FlashRead, left: &Superblock, refusal: &ScanError) -> Option<Superblock> {
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
