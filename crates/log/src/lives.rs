//! The present life of each segment, and the slots that have its bytes: by the heads in all slots, and by the
//! checkpoint.
//!
//! A slot belongs to the newest life that left traces in it since the checkpoint; else to the segment that was opened
//! since and is at home in it, if its copy left traces; else to whom the checkpoint says. So a segment that lost a slot to
//! another was released, and is free: all slots of a mirrored one are released at once.
//!
//! Nothing is looked for on a member that is not here. A segment that has no slot left on any other keeps its life, and
//! has no keeper: what the map says of it decides whether the pool can be used.

use std::collections::BTreeSet;

use headpond_base::{BLOCK, Generation, MemberId, SegmentId, Stream};
use headpond_format::{Addresses, Layout, SegmentHead, SegmentState, Superblock};

use crate::batches::{WantedBatches, life_at, walk, was_head};
use crate::checkpoint::Checkpoint;
use crate::flash_read::{FlashRead, ScanError};
use crate::lenders::Lenders;
use crate::muster::Present;

/// The present life of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Life {
    pub(crate) generation: Generation,
    pub(crate) state: SegmentState,
    pub(crate) stream: Stream,
    /// It began after the checkpoint.
    pub(crate) reopened: bool,
    /// Its bytes are in its home.
    pub(crate) home: bool,
    /// Its bytes are in the homes of these segments.
    pub(crate) lenders: Lenders,
    /// Its home has the copy of another.
    pub(crate) lent: bool,
}

/// A row of which all slots are as the checkpoint found them.
#[derive(Clone, Debug)]
pub struct FoundRow {
    pub(crate) segments: Vec<SegmentId>,
    /// The segment that lends its home to the parity.
    pub(crate) parity: SegmentId,
}

/// What the slots of a pool say.
pub(crate) struct Lives {
    /// Of all segments, in order.
    pub(crate) lives: Vec<Life>,
    pub(crate) rows: Vec<FoundRow>,
    /// The next generation that no trace has.
    pub(crate) next_generation: Generation,
}

/// The lives of all segments, and their rows.
pub(crate) fn find_lives(
    present: &mut Present<'_>,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    addresses: &Addresses,
) -> Result<Lives, ScanError> {
    let (rows, head) = (&checkpoint.rows, &checkpoint.head);
    let here: Vec<bool> = (0..superblock.members.given())
        .map(|index| present.has(MemberId(u16::try_from(index).unwrap_or(u16::MAX))))
        .collect();
    let used: Vec<u32> = superblock.members.iter().map(|(_, member)| member.used).collect();
    let is_here = |segment: SegmentId| {
        let home = addresses.home(segment);
        let member = usize::from(home.member.0);
        here[member] && home.slot < used[member]
    };
    let ids = || (0..rows.len()).map(|index| SegmentId(u32::try_from(index).unwrap_or(u32::MAX)));
    let mut next_generation = head.next_generation;
    // Of each slot, by the segment that is at home in it: who took it since the checkpoint.
    let mut taken = Vec::with_capacity(rows.len());
    for id in ids() {
        let life = if is_here(id) { life_in_slot(present, superblock, checkpoint, addresses, id)? } else { None };
        next_generation = next_generation.max(life.map_or(Generation(0), |life| life.generation.next()));
        // Opened after the checkpoint began, in the epoch that goes on.
        taken.push(life.filter(|life| life.generation >= head.next_generation && life.epoch == head.epoch));
    }
    let mut newest: Vec<Option<SegmentHead>> = vec![None; rows.len()];
    for life in taken.iter().flatten() {
        let newest = &mut newest[life.segment.0 as usize];
        *newest = (*newest).filter(|known| known.generation >= life.generation).or(Some(*life));
    }
    let taken_by = |slot: SegmentId| taken[slot.0 as usize];
    let mut lives = Vec::with_capacity(rows.len());
    for (id, row) in ids().zip(rows) {
        let free = Life {
            generation: row.generation,
            state: SegmentState::Free,
            stream: row.stream,
            reopened: false,
            home: false,
            lenders: Lenders::NONE,
            lent: false,
        };
        let home_is_taken = taken_by(id).filter(|life| life.segment != id);
        lives.push(match newest[id.0 as usize] {
            Some(life) if home_is_taken.is_some_and(|other| other.generation > life.generation) => {
                Life { generation: life.generation, ..free }
            }
            Some(life) => {
                let is_its = |slot: SegmentId| taken_by(slot) == Some(life);
                Life {
                    generation: life.generation,
                    state: SegmentState::Sealed,
                    stream: life.stream,
                    reopened: true,
                    // A crash may have left no head there, but later batches.
                    home: is_here(id) && (taken_by(id).is_none() || is_its(id)),
                    lenders: ids().filter(|slot| *slot != id && is_its(*slot)).collect(),
                    lent: false,
                }
            }
            None if row.state == SegmentState::Free => free,
            None => {
                let lenders: Lenders = match &row.layout {
                    Some(Layout::Mirror(places)) => {
                        places.iter().skip(1).filter_map(|copy| addresses.at_home(*copy)).collect()
                    }
                    _ => Lenders::NONE,
                };
                // A segment is opened in its home as well. If that has no head after a crash, its copy tells of the new life.
                let is_another = |slot: SegmentId| taken_by(slot).is_some() || newest[slot.0 as usize].is_some();
                let was_released = home_is_taken.is_some() || lenders.iter().any(is_another);
                let (home, (lenders, _)) = (is_here(id), lenders.split(|slot| is_here(*slot)));
                if was_released { free } else { Life { state: SegmentState::Sealed, home, lenders, ..free } }
            }
        });
    }
    let lenders: Vec<SegmentId> = lives.iter().flat_map(|life| life.lenders.iter()).collect();
    for slot in lenders {
        lives[slot.0 as usize].lent = true;
    }
    let rows = find_rows(checkpoint, addresses, &lives, |slot| taken_by(slot).is_some());
    for FoundRow { segments, parity } in &rows {
        lives[parity.0 as usize].lent = true;
        for id in segments.iter().filter(|id| is_here(**id)) {
            // One that was emptied waits there for the end of the row.
            lives[id.0 as usize].home = true;
        }
    }
    Ok(Lives { lives, rows, next_generation })
}

/// The rows that the checkpoint has. No slot of one is written while a checkpoint has it. If there is a later life in
/// one all the same, the flash does not keep what was synced: then the row protects nothing.
fn find_rows(
    checkpoint: &Checkpoint,
    addresses: &Addresses,
    lives: &[Life],
    is_taken: impl Fn(SegmentId) -> bool,
) -> Vec<FoundRow> {
    let mut used: BTreeSet<SegmentId> = lives.iter().flat_map(|life| life.lenders.iter()).collect();
    let mut rows = Vec::new();
    for row in &checkpoint.rows {
        let Some(Layout::Parity(row)) = &row.layout else { continue };
        let Some(parity) = addresses.at_home(row.parity) else { continue };
        let segments: Vec<SegmentId> = row.segments.iter().map(|(id, _)| *id).collect();
        // A forged pool may say anything.
        let says_so = |id: &SegmentId| {
            let of = &checkpoint.rows[id.0 as usize];
            of.state == SegmentState::Free || matches!(&of.layout, Some(Layout::Parity(own)) if own == row)
        };
        let is_free = |id: SegmentId| lives[id.0 as usize].state == SegmentState::Free;
        let is_reopened = segments.iter().any(|id| lives[id.0 as usize].reopened);
        let sound = segments.iter().all(says_so) && is_free(parity) && !is_reopened;
        let keepers = || segments.iter().copied().chain([parity]);
        if sound && !keepers().any(|keeper| used.contains(&keeper) || is_taken(keeper)) {
            used.extend(keepers());
            rows.push(FoundRow { segments, parity });
        }
    }
    rows
}

/// The last life that left traces in the slot where `id` is at home: of that segment, or of one that has its copy here.
fn life_in_slot(
    present: &mut Present<'_>,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    addresses: &Addresses,
    id: SegmentId,
) -> Result<Option<SegmentHead>, ScanError> {
    let (geometry, head) = (&superblock.geometry, &checkpoint.head);
    let several = superblock.members.given() > 1;
    let offset = geometry.byte_of(geometry.first_location(id));
    let mut slot = present.slot(addresses, geometry, id, id);
    let bytes = match slot.read(offset, 2 * BLOCK) {
        Ok(bytes) => bytes,
        // Another member may have a copy.
        Err(_) if several => {
            present.cannot_read(addresses.home(id).member);
            return Ok(None);
        }
        Err(errno) => return Err(ScanError::Read { offset, errno }),
    };
    let place = SegmentHead {
        pool: superblock.pool,
        epoch: head.epoch,
        segment: id,
        generation: head.next_generation,
        stream: Stream::Host,
    };
    // A copy never lies on the member of its segment's home: such a head is forged.
    let may_lend = |segment: SegmentId| {
        several && segment.0 < geometry.segments && addresses.home(segment).member != addresses.home(id).member
    };
    let is_segment = |life: &SegmentHead| life.segment == id || may_lend(life.segment);
    let mut life = life_at(&bytes, superblock.pool, id, addresses.home(id)).filter(is_segment);
    let known = checkpoint.rows.get(id.0 as usize).is_some_and(|row| row.state != SegmentState::Free);
    if life.is_none() && !known && was_head(&bytes[..BLOCK], &place) {
        // Head and first batch are damaged. If the segment was in use, later batches say its life.
        (_, life) = walk(&mut slot, geometry, &WantedBatches::Since(place))?;
    }
    match life {
        // No segment is opened in a new epoch before the superblock of that epoch is durable.
        Some(life) if life.epoch > head.epoch.max(superblock.epoch) => {
            Err(ScanError::LostSuperblock { segment: id, found: life.epoch, known: head.epoch.max(superblock.epoch) })
        }
        life => Ok(life),
    }
}
