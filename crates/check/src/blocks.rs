//! The cached data: every block that the map points to, and each copy of it, compared with its checksum.
//!
//! Blocks are read in the order of their places on flash, one part of the pool at a time. So the memory for sorting
//! is bounded, and a large pool is read once, from front to back.

use std::collections::BTreeMap;
use std::ops::Range;

use headpond_base::{BLOCK, Block, Buf, BufMut, Errno, Location, ObjectId};
use headpond_engine::{FlashRead, Recovered, RecoveredObject};
use headpond_format::BLOCK_UNITS;
use headpond_format::Identity;
use headpond_map::Slot;

use crate::report::{Blocks, Findings, Progress, Severity};
use crate::whole::{COPIES, Copies};

/// Blocks sorted at a time: 64 bytes each, with what is found of them.
const PART: u64 = 1 << 21;

/// Blocks read at a time.
const RUN: usize = 256;

/// A block that the map points to.
#[derive(Clone, Copy)]
struct Mapped {
    object: ObjectId,
    block: Block,
    slot: Slot,
}

/// One copy of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// There is no such copy.
    Nowhere,
    Good,
    Different,
    Unreadable(Errno),
}

impl Found {
    /// What is wrong with it.
    fn wrong(self) -> Option<String> {
        match self {
            Self::Nowhere | Self::Good => None,
            Self::Different => Some("its checksum does not match".to_owned()),
            Self::Unreadable(errno) => Some(format!("unreadable: {errno}")),
        }
    }
}

/// Verifies all blocks. Also returns the number of damaged dirty ones, by object.
pub(crate) fn verify(
    flash: &mut dyn Copies,
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
        let mut mapped: Vec<Mapped> = Vec::new();
        for object in objects {
            let there = recovered
                .blocks(object.object)
                .filter(|(_, slot)| !slot.is_blank() && (from..to).contains(&slot.location.0));
            mapped.extend(there.map(|(block, slot)| Mapped { object: object.object, block, slot }));
        }
        mapped.sort_unstable_by_key(|of| (of.slot.extent(), of.object, of.block));
        let cached = blocks.cached;
        let mut found = vec![[Found::Nowhere; COPIES]; mapped.len()];
        for copy in 0..COPIES {
            let of_copy = |blocks: usize| {
                let done = if copy == 0 { done + blocks as u64 } else { done };
                progress(Progress { doing: "data", done, of: cached });
            };
            look_at_copy(flash, copy, recovered, &mapped, &mut found, of_copy);
        }
        done += mapped.len() as u64;
        for (of, found) in mapped.iter().zip(&found) {
            blocks.verified += 1;
            let name = names.get(&of.object).map_or("", String::as_str);
            if tell(flash, recovered, of, found, name, findings) {
                continue;
            }
            if of.slot.dirty {
                blocks.damaged_dirty += 1;
                *lost.entry(of.object).or_default() += 1;
            } else {
                blocks.damaged_clean += 1;
            }
        }
        from = to;
    }
    (blocks, lost)
}

/// Compares one copy of all blocks with their checksums, in the order of their places.
fn look_at_copy(
    flash: &mut dyn Copies,
    copy: usize,
    recovered: &Recovered,
    mapped: &[Mapped],
    found: &mut [[Found; COPIES]],
    mut done: impl FnMut(usize),
) {
    let geometry = recovered.superblock().geometry;
    flash.choose(copy);
    let mut groups: Vec<(usize, &[Mapped])> = Vec::new();
    let mut index = 0;
    for group in mapped.chunk_by(in_one_record) {
        // What has no copy at all is looked for where the first should be.
        if copy == 0 || flash.has(geometry.segment_of(group[0].slot.location)) {
            groups.push((index, group));
        }
        index += group.len();
    }
    for run in groups.chunk_by(|one, next| lies_behind(one.1, next.1)).flat_map(|run| run.chunks(RUN)) {
        let first = locations(run[0].1).start;
        let end = run.last().map_or(first, |last| locations(last.1).end);
        let run_bytes = read_run(flash, geometry.byte_of(Location(first)), (end - first) as usize);
        for (index, group) in run {
            let there = locations(group);
            let slots: Vec<Slot> = group.iter().map(|of| of.slot).collect();
            let verdicts = match gathered(&run_bytes[(there.start - first) as usize..(there.end - first) as usize]) {
                Ok(bytes) => {
                    let good = recovered.verify(group[0].object, group[0].block, &slots, &bytes);
                    good.into_iter().map(|good| if good { Found::Good } else { Found::Different }).collect()
                }
                Err(errno) => vec![Found::Unreadable(errno); group.len()],
            };
            found[*index..].iter_mut().zip(verdicts).for_each(|(found, verdict)| found[copy] = verdict);
        }
        done(run.last().map_or(0, |(index, group)| index + group.len()));
    }
}

/// Reports what is wrong with the copies of a block. Returns whether one is good.
fn tell(
    flash: &mut dyn Copies,
    recovered: &Recovered,
    of: &Mapped,
    found: &[Found; COPIES],
    name: &str,
    findings: &mut Findings,
) -> bool {
    let has_good = found.contains(&Found::Good);
    // Both copies of a clean block, or of a lost one, are one finding.
    let wrong = (0..COPIES).filter_map(|copy| Some((copy, found[copy].wrong()?)));
    for (copy, wrong) in wrong.take(if has_good { COPIES } else { 1 }) {
        flash.choose(copy);
        let segment = recovered.superblock().geometry.segment_of(of.slot.location);
        let (severity, meaning) = if has_good && recovered.segments().get(segment).copies_differ {
            (Severity::Note, "The other copy is good. A crash leaves one so if it comes before the sync.")
        } else if has_good {
            (Severity::Harmless, "The other copy is good: a read gets that.")
        } else if of.slot.dirty {
            (Severity::Loss, "It is lost: a read of it gets an error.")
        } else {
            (Severity::Harmless, "A read gets it from the origin.")
        };
        let kind = if of.slot.dirty { "dirty" } else { "clean" };
        let place = flash.place(of.slot.location);
        let block = format!("{kind} block {} of {name}", of.block);
        if copy > 0 && has_good && flash.is_of_row(segment) {
            // Which part of a row is damaged is known of the blocks in it, not of its parity.
            let what = format!("{wrong}: of the rest of its row, with the parity here. The block itself is good.");
            findings.add(severity, place.named(&format!("row of {block}")), place.offset, what);
            continue;
        }
        findings.add(severity, place.named(&block), place.offset, format!("{wrong}. {meaning}"));
    }
    has_good
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
fn in_one_record(one: &Mapped, next: &Mapped) -> bool {
    one.object == next.object && one.block.next() == next.block && one.slot.goes_on_in(&next.slot)
}

/// The locations to read for blocks of one record.
fn locations(group: &[Mapped]) -> Range<u64> {
    let (start, end) = group[0].slot.extent();
    start / u64::from(BLOCK_UNITS)..end.div_ceil(u64::from(BLOCK_UNITS))
}

/// Whether one read can take both.
fn lies_behind(one: &[Mapped], next: &[Mapped]) -> bool {
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
