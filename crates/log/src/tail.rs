//! The tail of the log: what was appended after the checkpoint, as far as it counts.
//!
//! What counts is decided here, and only here:
//! - Host batches count in the order of their chain, up to the first that is missing or torn.
//!   Promise 2: what survives is a prefix.
//! - A batch that was known to be durable needs no look at its payload: if that has rotted since,
//!   reads will tell. Any other batch counts only if all its payload matches its checksums.
//! - Batches of other streams hold copies of what the origin has. They count each for itself,
//!   but no entry beyond the last host entry that counts: they may rest on host entries that are lost.
//! - A durable host batch that is missing is no crash but damage, and is told as such.

use headpond_base::{
    BLOCK, BatchNumber, Block, Epoch, Generation, Location, ObjectId, PoolId, SegmentId, Sequence, Stream,
};
use headpond_format::{
    Damage, Entry, FOOTER_TAIL_BYTES, Geometry, SummaryBatch, decode_batch, decode_footer, decode_footer_tail,
    verify_block,
};

use crate::log::bound_generation;
use crate::mutation::Mutation;
use crate::scan::{FlashRead, ScanError};

/// One entry of the tail, with the place of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailEntry {
    /// Its place in the order.
    pub sequence: Sequence,
    /// What it says.
    pub entry: Entry,
    /// Where its payload starts on flash, if it has any.
    pub location: Option<Location>,
}

/// A batch found in the tail.
pub(crate) struct FoundBatch {
    pub(crate) segment: SegmentId,
    pub(crate) generation: Generation,
    pub(crate) stream: Stream,
    pub(crate) summary: SummaryBatch,
}

/// A segment that may hold part of the tail.
#[derive(Clone, Copy)]
pub(crate) struct TailSegment {
    pub(crate) pool: PoolId,
    pub(crate) epoch: Epoch,
    pub(crate) id: SegmentId,
    pub(crate) generation: Generation,
    pub(crate) stream: Stream,
}

/// How much of a segment's end is read first, in search of its footer.
const FOOTER_GUESS: usize = 64 << 10;

impl TailSegment {
    /// All batches of the segment: from its footer if it has one, else one after the other.
    pub(crate) fn batches(&self, flash: &mut dyn FlashRead, geometry: &Geometry) -> Result<Vec<FoundBatch>, ScanError> {
        let summary = match self.read_footer(flash, geometry)? {
            Some(summary) => summary,
            None => self.walk(flash, geometry)?,
        };
        Ok(summary
            .into_iter()
            .map(|summary| FoundBatch { segment: self.id, generation: self.generation, stream: self.stream, summary })
            .collect())
    }

    fn read_footer(
        &self,
        flash: &mut dyn FlashRead,
        geometry: &Geometry,
    ) -> Result<Option<Vec<SummaryBatch>>, ScanError> {
        let end = geometry.byte_of(geometry.first_location(self.id)) + u64::from(geometry.segment_bytes);
        let guess = FOOTER_GUESS.min(geometry.segment_bytes as usize);
        let Ok(mut bytes) = flash.read(end - guess as u64, guess) else { return Ok(None) };
        let Ok((_, len)) = decode_footer_tail(&bytes) else { return Ok(None) };
        if len > guess {
            let whole = len.next_multiple_of(BLOCK);
            if whole > geometry.segment_bytes as usize {
                return Ok(None);
            }
            bytes = flash
                .read(end - whole as u64, whole)
                .map_err(|errno| ScanError::Read { offset: end - whole as u64, errno })?;
        }
        debug_assert!(bytes.len() >= FOOTER_TAIL_BYTES);
        match decode_footer(&bytes) {
            Ok((head, summary))
                if (head.pool, head.segment, head.generation, head.epoch)
                    == (self.pool, self.id, self.generation, self.epoch) =>
            {
                Ok(Some(summary))
            }
            // Torn, of an earlier life, or rotten: the batches speak for themselves.
            Ok(_) | Err(_) => Ok(None),
        }
    }

    fn walk(&self, flash: &mut dyn FlashRead, geometry: &Geometry) -> Result<Vec<SummaryBatch>, ScanError> {
        let start = geometry.byte_of(geometry.first_location(self.id));
        let mut found = Vec::new();
        let mut block = 1;
        while block < geometry.segment_blocks() {
            let offset = start + u64::from(block) * BLOCK as u64;
            let bytes = flash.read(offset, BLOCK).map_err(|errno| ScanError::Read { offset, errno })?;
            let Ok((head, entries)) = decode_batch(&bytes) else { break };
            let ours = (head.pool, head.epoch, head.segment, head.generation, head.stream)
                == (self.pool, self.epoch, self.id, self.generation, self.stream);
            if !ours || block + 1 + head.payload_blocks > geometry.segment_blocks() {
                break;
            }
            found.push(SummaryBatch {
                number: head.number,
                previous_host: head.previous_host,
                synced_through: head.synced_through,
                synced_host: head.synced_host,
                start: block,
                entries: entries.to_vec(),
            });
            block += 1 + head.payload_blocks;
        }
        Ok(found)
    }
}

/// What is known to have been durable.
#[derive(Clone, Copy)]
pub(crate) struct Durable {
    /// All batches up to this one.
    pub(crate) batch: BatchNumber,
    /// The last of them in the host stream.
    pub(crate) host: BatchNumber,
}

/// What the tail came to.
pub(crate) struct Tail {
    /// The entries that count, in order.
    pub(crate) entries: Vec<TailEntry>,
    /// Batches that were there but do not count.
    pub(crate) dropped: u64,
}

/// Decides what counts. `last_host` is the host batch before the tail.
pub(crate) fn judge(
    mut found: Vec<FoundBatch>,
    flash: &mut dyn FlashRead,
    geometry: &Geometry,
    replay_from: Sequence,
    last_host: BatchNumber,
    durable: Durable,
    mutation: Option<Mutation>,
) -> Result<Tail, ScanError> {
    found.sort_by_key(|batch| batch.summary.number);
    let total = found.len() as u64;
    let (host, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|batch| batch.stream == Stream::Host);

    let mut entries = Vec::new();
    let (mut chain, mut last) = (last_host, Sequence(replay_from.0.saturating_sub(1)));
    let mut counted = 0;
    for batch in host.into_iter().filter(|batch| batch.summary.number > last_host) {
        if batch.summary.previous_host != chain {
            break;
        }
        let Some(read) = read_batch(&batch, flash, geometry, durable, mutation) else { break };
        chain = batch.summary.number;
        counted += 1;
        last = read.last().map_or(last, |entry| entry.sequence.max(last));
        entries.extend(read);
    }
    if chain < durable.host {
        return Err(ScanError::LostHistory { after: chain, durable: durable.host });
    }
    for batch in others {
        if let Some(read) = read_batch(&batch, flash, geometry, durable, mutation) {
            counted += 1;
            entries.extend(read.into_iter().filter(|entry| entry.sequence <= last));
        }
    }
    entries.retain(|entry| entry.sequence >= replay_from);
    match mutation {
        Some(Mutation::ReplayOutOfOrder) => entries.sort_by_key(|entry| entry.location.map(|location| location.0)),
        _ => entries.sort_by_key(|entry| entry.sequence),
    }
    Ok(Tail { entries, dropped: total - counted })
}

/// A batch's entries, if it counts for itself.
fn read_batch(
    batch: &FoundBatch,
    flash: &mut dyn FlashRead,
    geometry: &Geometry,
    durable: Durable,
    mutation: Option<Mutation>,
) -> Option<Vec<TailEntry>> {
    let first = geometry.first_location(batch.segment).plus(batch.summary.start + 1);
    let mut next = 0;
    let mut read = Vec::new();
    let mut payload = Vec::new();
    for (sequence, entry) in Entry::decode_all(&batch.summary.entries).ok()? {
        let blocks = entry.payload_blocks();
        let location = (blocks > 0).then(|| first.plus(next));
        if let Entry::Data { object, first, ref checksums, .. } = entry {
            payload.extend((first.0..).map(Block).zip(checksums).map(|(block, checksum)| (object, block, *checksum)));
        }
        next += blocks;
        if batch.summary.start + 1 + next > geometry.segment_blocks() {
            return None;
        }
        read.push(TailEntry { sequence, entry, location });
    }
    let generation = bound_generation(batch.generation, mutation);
    let whole = batch.summary.number <= durable.batch
        || mutation == Some(Mutation::AcceptTornBatch)
        || payload_matches(&payload, first, generation, flash, geometry);
    whole.then_some(read)
}

fn payload_matches(
    expected: &[(ObjectId, Block, u32)],
    first: Location,
    generation: Generation,
    flash: &mut dyn FlashRead,
    geometry: &Geometry,
) -> bool {
    if expected.is_empty() {
        return true;
    }
    let Ok(bytes) = flash.read(geometry.byte_of(first), expected.len() * BLOCK) else { return false };
    expected
        .iter()
        .zip(bytes.as_chunks::<BLOCK>().0)
        .all(|((object, block, checksum), bytes)| verify_block(bytes, *checksum, *object, *block, generation))
}

/// Says what is wrong with a structure at a place.
pub(crate) const fn damaged(what: &'static str, offset: u64, damage: Damage) -> ScanError {
    ScanError::Damaged { what, offset, damage }
}
