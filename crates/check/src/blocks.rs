//! The cached data: every block that the map points to, compared with its checksum.
//!
//! Blocks are read in the order of their places on flash, one part of the pool at a time. So the memory for sorting
//! is bounded, and a large pool is read once, from front to back.

use std::collections::BTreeMap;
use std::ops::Range;

use headpond_base::{BLOCK, Block, Buf, BufMut, Location, ObjectId};
use headpond_engine::{FlashRead, Recovered, RecoveredObject};
use headpond_format::BLOCK_UNITS;
use headpond_format::Identity;
use headpond_map::Slot;

use crate::report::{Blocks, Findings, Progress, Severity};

/// Blocks sorted at a time: 32 bytes each.
const PART: u64 = 1 << 21;

/// Blocks read at a time.
const RUN: usize = 256;

#[derive(Clone, Copy)]
struct Place {
    object: ObjectId,
    block: Block,
    slot: Slot,
}

/// Verifies all blocks. Also returns the number of damaged dirty ones, by object.
pub(crate) fn verify(
    flash: &mut dyn FlashRead,
    recovered: &Recovered,
    objects: &[RecoveredObject],
    findings: &mut Findings,
    progress: &mut dyn FnMut(Progress),
) -> (Blocks, BTreeMap<ObjectId, u64>) {
    let geometry = recovered.superblock().geometry;
    let mut blocks = Blocks {
        cached: objects.iter().map(|object| object.cached_blocks).sum(),
        dirty: recovered.dirty_blocks(),
        ..Blocks::default()
    };
    let mut lost = BTreeMap::new();
    let names: BTreeMap<ObjectId, String> = objects.iter().map(|object| (object.object, name(object))).collect();
    let end = u64::from(geometry.segments) * u64::from(geometry.segment_blocks());
    let parts = blocks.cached.div_ceil(PART).max(1);
    let (mut done, mut from) = (0, 0);
    for part in 1..=parts {
        let to = end * part / parts;
        let mut places: Vec<Place> = Vec::new();
        for object in objects {
            let there = recovered
                .blocks(object.object)
                .filter(|(_, slot)| !slot.is_blank() && (from..to).contains(&slot.location.0));
            places.extend(there.map(|(block, slot)| Place { object: object.object, block, slot }));
        }
        places.sort_unstable_by_key(|place| (place.slot.extent(), place.object, place.block));
        let groups: Vec<Vec<Place>> = places.chunk_by(in_one_record).map(<[Place]>::to_vec).collect();
        for run in groups.chunk_by(|one, next| lies_behind(one, next)).flat_map(|run| run.chunks(RUN)) {
            let first = locations(&run[0]).start;
            let end = run.last().map_or(first, |last| locations(last).end);
            let run_bytes = read_run(flash, geometry.byte_of(Location(first)), (end - first) as usize);
            let verdicts = run.iter().flat_map(|group| {
                let there = locations(group);
                let bytes = gathered(&run_bytes[(there.start - first) as usize..(there.end - first) as usize]);
                let slots: Vec<Slot> = group.iter().map(|place| place.slot).collect();
                let (verdicts, failed) = match bytes {
                    Ok(bytes) => (recovered.verify(group[0].object, group[0].block, &slots, &bytes), None),
                    Err(errno) => (vec![false; group.len()], Some(errno)),
                };
                group.iter().copied().zip(verdicts).map(move |(place, good)| (place, good, failed))
            });
            let verdicts: Vec<_> = verdicts.collect();
            for (place, good, failed) in &verdicts {
                blocks.verified += 1;
                let wrong = match failed {
                    None if *good => continue,
                    None => "its checksum does not match".to_owned(),
                    Some(errno) => format!("unreadable: {errno}"),
                };
                let (severity, kind, meaning) = if place.slot.dirty {
                    blocks.damaged_dirty += 1;
                    *lost.entry(place.object).or_default() += 1;
                    (Severity::Loss, "dirty", "It is lost: a read of it gets an error.")
                } else {
                    blocks.damaged_clean += 1;
                    (Severity::Harmless, "clean", "A read gets it from the origin.")
                };
                let offset = geometry.byte_of(place.slot.location);
                let name = names.get(&place.object).map_or("", String::as_str);
                let structure = format!("{kind} block {} of {name}", place.block);
                findings.add(severity, structure, offset, format!("{wrong}. {meaning}"));
            }
            done += verdicts.len() as u64;
            progress(Progress { doing: "data", done, of: blocks.cached });
        }
        from = to;
    }
    (blocks, lost)
}

/// An object's name in messages.
pub(crate) fn name(object: &RecoveredObject) -> String {
    match object.state.identity {
        Identity::Volume(id) => format!("volume {id}"),
        Identity::File(file) if object.state.path.is_empty() => format!("inode {}", file.inode),
        Identity::File(_) => String::from_utf8_lossy(&object.state.path).into_owned(),
    }
}

/// Whether `next` is the block after `one` in the same packed record.
fn in_one_record(one: &Place, next: &Place) -> bool {
    one.object == next.object && one.block.next() == next.block && one.slot.goes_on_in(&next.slot)
}

/// The locations to read for blocks of one record.
fn locations(group: &[Place]) -> Range<u64> {
    let (start, end) = group[0].slot.extent();
    start / u64::from(BLOCK_UNITS)..end.div_ceil(u64::from(BLOCK_UNITS))
}

/// Whether one read can take both.
fn lies_behind(one: &[Place], next: &[Place]) -> bool {
    let (one, next) = (locations(one), locations(next));
    (one.end.saturating_sub(1)..=one.end).contains(&next.start) && next.end >= one.end
}

/// Joins the blocks of a read into one piece.
fn gathered(blocks: &[headpond_base::Result<Buf>]) -> headpond_base::Result<Buf> {
    if let [Ok(block)] = blocks {
        return Ok(block.clone());
    }
    let mut whole = BufMut::zeroed(blocks.len() * BLOCK);
    for (block, room) in blocks.iter().zip(whole.chunks_exact_mut(BLOCK)) {
        room.copy_from_slice(block.as_ref().map_err(|errno| *errno)?);
    }
    Ok(whole.freeze())
}

/// Reads neighbouring blocks in one go. If that fails, it reads each block by itself.
fn read_run(flash: &mut dyn FlashRead, offset: u64, blocks: usize) -> Vec<headpond_base::Result<Buf>> {
    match flash.read(offset, blocks * BLOCK) {
        Ok(bytes) => (0..blocks).map(|block| Ok(bytes.slice(block * BLOCK..(block + 1) * BLOCK))).collect(),
        Err(_) => (0..blocks).map(|block| flash.read(offset + (block * BLOCK) as u64, BLOCK)).collect(),
    }
}
