//! The cached data: every block that the map points to, compared with its checksum.
//!
//! Blocks are read in the order of their place on flash, a part of the pool at a time, so that the
//! memory for sorting them is bounded and a large pool is read once, from front to back.

use std::collections::BTreeMap;

use headpond_base::{BLOCK, Block, Location, ObjectId};
use headpond_engine::{FlashRead, Recovered, RecoveredObject};
use headpond_map::Slot;

use crate::report::{Blocks, Findings, Progress, Severity};

/// Blocks that are sorted at a time: 32 bytes each.
const PART: u64 = 1 << 21;

/// Blocks that are read at a time.
const RUN: usize = 256;

#[derive(Clone, Copy)]
struct Place {
    object: ObjectId,
    block: Block,
    slot: Slot,
}

/// Verifies all blocks; answers also with the number of dirty ones that are damaged, by object.
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
            let there = recovered.blocks(object.object).filter(|(_, slot)| {
                slot.location != Location::ZERO && (from..to).contains(&u64::from(slot.location.0))
            });
            places.extend(there.map(|(block, slot)| Place { object: object.object, block, slot }));
        }
        places.sort_unstable_by_key(|place| place.slot.location);
        for run in
            places.chunk_by(|one, next| next.slot.location.0 == one.slot.location.0 + 1).flat_map(|run| run.chunks(RUN))
        {
            let bytes = read_run(flash, geometry.byte_of(run[0].slot.location), run.len());
            for (place, bytes) in run.iter().zip(bytes) {
                blocks.verified += 1;
                let wrong = match bytes {
                    Ok(bytes) if recovered.verify(place.object, place.block, place.slot, &bytes) => continue,
                    Ok(_) => "its checksum does not match".to_owned(),
                    Err(errno) => format!("cannot be read: {errno}"),
                };
                let (severity, kind, meaning) = if place.slot.dirty {
                    blocks.damaged_dirty += 1;
                    *lost.entry(place.object).or_default() += 1;
                    (Severity::Loss, "dirty", "It is lost: reads of it are answered with an error.")
                } else {
                    blocks.damaged_clean += 1;
                    (Severity::Harmless, "clean", "It comes from the origin when it is read.")
                };
                let offset = geometry.byte_of(place.slot.location);
                let name = names.get(&place.object).map_or("", String::as_str);
                let structure = format!("{kind} block {} of {name}", place.block);
                findings.add(severity, structure, offset, format!("{wrong}. {meaning}"));
            }
            done += run.len() as u64;
            progress(Progress { doing: "data", done, of: blocks.cached });
        }
        from = to;
    }
    (blocks, lost)
}

/// A file's name for people.
pub(crate) fn name(object: &RecoveredObject) -> String {
    if object.state.path.is_empty() {
        format!("inode {}", object.state.inode)
    } else {
        String::from_utf8_lossy(&object.state.path).into_owned()
    }
}

/// Reads neighbouring blocks in one go or, where that fails, each for itself.
fn read_run(flash: &mut dyn FlashRead, offset: u64, blocks: usize) -> Vec<headpond_base::Result<headpond_base::Buf>> {
    match flash.read(offset, blocks * BLOCK) {
        Ok(bytes) => (0..blocks).map(|block| Ok(bytes.slice(block * BLOCK..(block + 1) * BLOCK))).collect(),
        Err(_) => (0..blocks).map(|block| flash.read(offset + (block * BLOCK) as u64, BLOCK)).collect(),
    }
}
