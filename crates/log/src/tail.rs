//! The tail of the log: what was appended after the checkpoint, as far as it counts.
//!
//! This file, and no other, decides what counts:
//! - Host batches count in the order of their chain, up to the first that is missing or torn, in whichever segments
//!   they lie. Promise 2: what survives is a prefix.
//! - The payload of a batch that was durable is not verified here: if it has rotted since, reads find out. Any other
//!   batch counts only if all its payload matches its checksums.
//! - Two copies of a segment may show one batch in different blocks: the device misdirected a write. Then the batch lies
//!   where its payload is whole.
//! - Batches of other streams hold copies of what the origin has. Each counts by itself, but no entry of theirs counts
//!   beyond the last host entry that counts: it may rest on host entries that are lost.
//! - A missing batch that was durable is damage and not a crash. The scan reports it as damage.

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{BLOCK, BatchNumber, Block, Location, Result as IoResult, SegmentId, Sequence, Stream};
use headpond_format::{
    Addresses, BLOCK_UNITS, Damage, Entry, Geometry, SegmentHead, SummaryBatch, UNIT, Writer, verify_block,
    verify_packed,
};
use headpond_map::CHUNK_BLOCKS;

use crate::batches::{WantedBatches, read_footer, walk};
use crate::flash_read::{FlashRead, NUMBER_MAX, ScanError, damaged};
use crate::muster::Present;
use crate::mutation::Mutation;
use crate::record::bound_writer;

/// One entry of the tail, with the place of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailEntry {
    /// The entry's place in the order.
    pub sequence: Sequence,
    /// The entry.
    pub entry: Entry,
    /// The block on flash in which its payload starts, if it has any. For a blank record, the head of its batch.
    pub location: Option<Location>,
    /// The unit of that block with which the payload starts.
    pub unit: u8,
}

/// Where the tail is read: the slots of all segments.
pub(crate) struct Slots<'s, 'a> {
    pub(crate) present: &'s mut Present<'a>,
    pub(crate) addresses: &'s Addresses,
    pub(crate) geometry: &'s Geometry,
}

/// A batch found in the tail.
pub(crate) struct FoundBatch {
    /// The segments whose homes have it.
    pub(crate) keepers: Vec<SegmentId>,
    pub(crate) segment: SegmentId,
    pub(crate) writer: Writer,
    pub(crate) stream: Stream,
    pub(crate) summary: SummaryBatch,
}

/// All batches of a segment that may hold part of the tail, from its footers or by walks over the slots that have its
/// bytes, and whether those differ.
pub(crate) fn batches_of_all(
    present: &mut Present<'_>,
    addresses: &Addresses,
    geometry: &Geometry,
    life: &SegmentHead,
    keepers: &[SegmentId],
    mutation: Option<Mutation>,
) -> Result<(Vec<FoundBatch>, bool), ScanError> {
    let writer = Writer { pool: life.pool, generation: life.generation };
    let mut found: BTreeMap<BatchNumber, Vec<FoundBatch>> = BTreeMap::new();
    for keeper in keepers {
        let summaries =
            match batches_of(&mut present.slot(addresses, geometry, life.segment, *keeper), geometry, life, mutation) {
                // Another slot may have them all.
                Err(ScanError::Read { .. }) if keepers.len() > 1 => {
                    present.cannot_read(addresses.home(*keeper).member);
                    Vec::new()
                }
                summaries => summaries?,
            };
        for summary in summaries {
            let versions = found.entry(summary.number).or_default();
            match versions.iter_mut().find(|known| known.summary == summary) {
                Some(known) => known.keepers.push(*keeper),
                None => {
                    let (segment, stream, keepers) = (life.segment, life.stream, vec![*keeper]);
                    versions.push(FoundBatch { keepers, segment, writer, stream, summary });
                }
            }
        }
    }
    let differ = found.values().flatten().any(|batch| batch.keepers.len() < keepers.len());
    let mut slots = Slots { present, addresses, geometry };
    let batches = found.into_values().filter_map(|versions| the_whole_one(versions, &mut slots, mutation));
    Ok((batches.collect(), differ))
}

/// Of the versions of one batch that its copies show, the one whose payload is where it says.
fn the_whole_one(
    mut versions: Vec<FoundBatch>,
    slots: &mut Slots<'_, '_>,
    mutation: Option<Mutation>,
) -> Option<FoundBatch> {
    let mut is_whole = |batch: &FoundBatch| match located(batch, slots.geometry) {
        Ok(Some(read)) => whole_copies(batch, &read, slots, mutation).contains(&Ok(true)),
        _ => false,
    };
    let whole = if versions.len() > 1 { versions.iter().position(&mut is_whole) } else { None };
    (!versions.is_empty()).then(|| versions.swap_remove(whole.unwrap_or(0)))
}

/// All batches of a segment that may hold part of the tail, from its footer or by a walk.
fn batches_of(
    flash: &mut dyn FlashRead,
    geometry: &Geometry,
    life: &SegmentHead,
    mutation: Option<Mutation>,
) -> Result<Vec<SummaryBatch>, ScanError> {
    match read_footer(flash, geometry, life)? {
        Ok(summary) => Ok(summary),
        Err(_) if forgets_lives(mutation) => Ok(walk(flash, geometry, &WantedBatches::AnyLife(*life))?.0.batches),
        // The footer is torn, of an earlier life, or rotten: read the batches themselves.
        Err(_) => Ok(walk(flash, geometry, &WantedBatches::Life(*life))?.0.batches),
    }
}

/// What is known to have been durable.
#[derive(Clone, Copy)]
pub(crate) struct KnownDurable {
    /// All batches up to this one.
    pub(crate) batch: BatchNumber,
    /// The last durable host batch.
    pub(crate) host: BatchNumber,
}

/// The tail, judged.
pub(crate) struct Tail {
    /// The entries that count, in order.
    pub(crate) entries: Vec<TailEntry>,
    /// The last host batch that counts.
    pub(crate) last_host: BatchNumber,
    /// Batches that were found but do not count.
    pub(crate) dropped: u64,
    /// Host batches among them, behind the first that is missing or torn.
    pub(crate) beyond_gap: u64,
    /// Segments of which one slot lacks a batch that counts.
    pub(crate) differing: BTreeSet<SegmentId>,
}

/// Decides what counts. `last_host` is the host batch before the tail.
pub(crate) fn judge(
    mut found: Vec<FoundBatch>,
    slots: &mut Slots<'_, '_>,
    replay_from: Sequence,
    last_host: BatchNumber,
    durable: KnownDurable,
    mutation: Option<Mutation>,
) -> Result<Tail, ScanError> {
    let forgets = forgets_lives(mutation);
    // The checkpoint contains what comes before it: that is neither replayed nor missed.
    found.retain(|batch| batch.summary.number > last_host || forgets);
    found.sort_by_key(|batch| batch.summary.number);
    let total = found.len() as u64;
    let (host, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|batch| batch.stream == Stream::Host);

    let (mut entries, mut differing) = (Vec::new(), BTreeSet::new());
    let (mut chain, mut last) = (last_host, Sequence(replay_from.0 - 1));
    let mut counted = 0;
    let by_segment = Mutation::ChainBySegment.is_planted(mutation);
    let mut torn_in = Vec::new();
    let mut host = host.into_iter();
    let mut beyond_gap = 0;
    while let Some(batch) = host.next() {
        let earlier = forgets && batch.summary.number <= last_host;
        let forgets_chain = by_segment || Mutation::ForgetChain.is_planted(mutation);
        let missing = batch.summary.previous_host != chain && !forgets_chain;
        if missing && !earlier {
            beyond_gap = 1 + host.len() as u64;
            break;
        }
        if torn_in.contains(&batch.segment) {
            continue;
        }
        let Some(read) = read_batch(&batch, slots, durable, &mut differing, mutation)? else {
            if by_segment {
                torn_in.push(batch.segment);
                continue;
            }
            beyond_gap = host.len() as u64;
            break;
        };
        chain = chain.max(batch.summary.number);
        counted += 1;
        last = read.last().map_or(last, |entry| entry.sequence.max(last));
        entries.extend(read);
    }
    if chain < durable.host {
        return Err(ScanError::LostHistory { after: chain, durable: durable.host });
    }
    for batch in others {
        if let Some(read) = read_batch(&batch, slots, durable, &mut differing, mutation)? {
            counted += 1;
            entries.extend(read.into_iter().filter(|entry| entry.sequence <= last));
        }
    }
    entries.retain(|entry| entry.sequence >= replay_from || forgets);
    if Mutation::ReplayOutOfOrder.is_planted(mutation) {
        entries.sort_by_key(|entry| entry.location.map(|location| location.0));
    } else {
        entries.sort_by_key(|entry| entry.sequence);
    }
    Ok(Tail { entries, last_host: chain, dropped: total - counted, beyond_gap, differing })
}

/// The entries of a batch, if the batch by itself counts.
///
/// # Errors
/// As [`located`].
fn read_batch(
    batch: &FoundBatch,
    slots: &mut Slots<'_, '_>,
    durable: KnownDurable,
    differing: &mut BTreeSet<SegmentId>,
    mutation: Option<Mutation>,
) -> Result<Option<Vec<TailEntry>>, ScanError> {
    let Some(read) = located(batch, slots.geometry)? else { return Ok(None) };
    if batch.summary.number <= durable.batch || Mutation::AcceptTornBatch.is_planted(mutation) {
        return Ok(Some(read.entries));
    }
    let mut whole = 0;
    for (keeper, matches) in batch.keepers.iter().zip(whole_copies(batch, &read, slots, mutation)) {
        match matches {
            Ok(matches) => whole += usize::from(matches),
            // A write that lost power may leave a block that cannot be read: where one device is left, it is torn.
            Err(_) if slots.present.members().len() > 1 => {
                slots.present.cannot_read(slots.addresses.home(*keeper).member);
            }
            Err(_) => {}
        }
    }
    if whole > 0 && whole < batch.keepers.len() {
        differing.insert(batch.segment);
    }
    Ok((whole > 0).then_some(read.entries))
}

/// The entries of a batch, each with its place, and where their payload lies.
struct LocatedEntries {
    entries: Vec<TailEntry>,
    first: Location,
    units: u32,
}

/// The entries of a batch with their places; `None` if they make no sense.
///
/// # Errors
/// When the batch is whole, and says what this program does not know. That is no crash, so nothing may be dropped for
/// it.
fn located(batch: &FoundBatch, geometry: &Geometry) -> Result<Option<LocatedEntries>, ScanError> {
    let first = geometry.first_location(batch.segment).plus(batch.summary.start + 1);
    let mut next = 0;
    let mut read = Vec::new();
    let entries = match Entry::decode_all(&batch.summary.entries) {
        Ok(entries) => entries,
        Err(damage @ Damage::Unsupported(..)) => {
            let head = geometry.first_location(batch.segment).plus(batch.summary.start);
            return Err(damaged("a batch of the log", geometry.byte_of(head), damage));
        }
        Err(_) => return Ok(None),
    };
    for (sequence, entry) in entries {
        if !fits_a_map(&entry) {
            return Ok(None);
        }
        let units = entry.payload_units(next);
        next = units.end;
        if batch.summary.start + 1 + next.div_ceil(BLOCK_UNITS) > geometry.segment_blocks() {
            return Ok(None);
        }
        let location = match entry {
            Entry::Blank { .. } => Some(geometry.first_location(batch.segment).plus(batch.summary.start)),
            _ => (!units.is_empty()).then(|| first.plus(units.start / BLOCK_UNITS)),
        };
        let unit = u8::try_from(units.start % BLOCK_UNITS).expect("a block has few units");
        read.push(TailEntry { sequence, entry, location, unit });
    }
    Ok(Some(LocatedEntries { entries: read, first, units: next }))
}

/// Of each slot that has a batch, whether all its payload matches there.
fn whole_copies(
    batch: &FoundBatch,
    read: &LocatedEntries,
    slots: &mut Slots<'_, '_>,
    mutation: Option<Mutation>,
) -> Vec<IoResult<bool>> {
    let writer = bound_writer(batch.writer, mutation);
    let Slots { present, addresses, geometry } = slots;
    let matches = |keeper: &SegmentId| {
        let mut slot = present.slot(addresses, geometry, batch.segment, *keeper);
        payload_matches(&read.entries, (read.first, read.units), writer, &mut slot, geometry)
    };
    batch.keepers.iter().map(matches).collect()
}

/// Whether a map can hold what the entry names. A chunk's number has 32 bits, in memory and in a checkpoint.
fn fits_a_map(entry: &Entry) -> bool {
    const BLOCKS_MAX: u64 = CHUNK_BLOCKS << 32;
    match entry {
        Entry::Object { object, .. } => object.0 < NUMBER_MAX,
        Entry::Data { first, checksums, .. } => first.plus(checksums.len() as u64).0 <= BLOCKS_MAX,
        Entry::Packed { first, blocks, .. } | Entry::Blank { first, blocks, .. } => {
            first.plus(u64::from(*blocks)).0 <= BLOCKS_MAX
        }
        Entry::Zero { first, blocks, .. } => first.plus(*blocks).0 <= BLOCKS_MAX,
        _ => true,
    }
}

/// Whether a planted bug makes recovery forget that segments have lives.
fn forgets_lives(mutation: Option<Mutation>) -> bool {
    Mutation::ForgetGeneration.is_planted(mutation)
}

/// Whether each record of a batch has the bytes that its entry names. The payload takes `units` units.
fn payload_matches(
    entries: &[TailEntry],
    (first, units): (Location, u32),
    writer: Writer,
    flash: &mut dyn FlashRead,
    geometry: &Geometry,
) -> IoResult<bool> {
    if units == 0 {
        return Ok(true);
    }
    let payload = units.div_ceil(BLOCK_UNITS) as usize * BLOCK;
    let bytes = flash.read(geometry.byte_of(first), payload)?;
    let mut next = 0;
    let matches = entries.iter().all(|TailEntry { entry, .. }| {
        let units = entry.payload_units(next);
        next = units.end;
        let Some(bytes) = bytes.get(units.start as usize * UNIT..units.end as usize * UNIT) else { return false };
        match entry {
            Entry::Data { object, first, checksums, .. } => {
                let mut blocks = (first.0..).map(Block).zip(checksums).zip(bytes.as_chunks::<BLOCK>().0);
                blocks.all(|((block, checksum), bytes)| verify_block(bytes, *checksum, *object, block, writer))
            }
            Entry::Packed { object, first, blocks, checksum, .. } => {
                let record = verify_packed(bytes, *object, *first, writer);
                record.is_some_and(|record| record.checksum == *checksum && record.blocks == *blocks as usize)
            }
            _ => true,
        }
    });
    Ok(matches)
}
