//! The batches of one segment, read from its footer or by a walk over the segment.
//!
//! Invariants:
//! - A walk finds only batches of the segment's present life: it compares pool, epoch, segment, generation and stream.
//! - A walk does not end at a damaged head. The length of that batch is unknown, so the walk steps on block by block
//!   to the next head: later batches say what was durable.
//! - Numbers grow along a segment. A head whose number was already passed is payload: a copy of this pool that was
//!   stored inside it.
//!
//! The price: a segment that was open at a crash has no footer. It is read from the first damaged or unused block to
//! its end, 256 KiB at a time.

use std::ops::Range;

use headpond_base::{BLOCK, Buf, Epoch, Generation, PoolId, SegmentId, Stream};
use headpond_format::{
    Damage, Geometry, Place, Placement, SegmentHead, SummaryBatch, decode_batch, decode_footer, decode_footer_tail,
    decode_segment_head,
};

use crate::flash_read::{FlashRead, ScanError};

/// Bytes at the end of a segment that are read first, in search of the footer.
const FOOTER_GUESS: usize = 64 << 10;

/// Blocks that a walk reads at a time.
const WINDOW_BLOCKS: u32 = 64;

const FOOTER: &str = "segment footer";

/// What a walk over a segment found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The batches, in order.
    pub batches: Vec<SummaryBatch>,
    /// Runs of blocks before and between the batches that belong to no batch found: a head was damaged, or never
    /// written.
    pub gaps: Vec<Range<u32>>,
    /// The first block behind the last batch.
    pub end: u32,
}

/// Which batches a walk takes for the segment's own.
#[derive(Clone, Copy)]
pub(crate) enum WantedBatches {
    /// Batches of this life.
    Life(SegmentHead),
    /// Batches of this life or a later one. For a segment whose head is lost.
    Since(SegmentHead),
    /// Batches of this generation, whatever the epoch in which it began.
    Generation(SegmentHead),
    /// A planted bug: batches of any life.
    AnyLife(SegmentHead),
}

impl WantedBatches {
    const fn place(&self) -> &SegmentHead {
        let (Self::Life(place) | Self::Since(place) | Self::Generation(place) | Self::AnyLife(place)) = self;
        place
    }

    fn takes(&self, found: &SegmentHead) -> bool {
        let place = self.place();
        let here = (found.pool, found.segment) == (place.pool, place.segment);
        here && match self {
            Self::Life(life) => found == life,
            Self::Since(first) => found.epoch >= first.epoch && found.generation >= first.generation,
            Self::Generation(life) => found.generation == life.generation,
            Self::AnyLife(life) => found.stream == life.stream,
        }
    }
}

/// Walks over what is left of one life of a segment, with or without its head. Also returns that life, as the first
/// batch gives it.
///
/// # Errors
/// When the device cannot be read.
pub fn walk_segment(
    flash: &mut dyn FlashRead,
    geometry: &Geometry,
    pool: PoolId,
    segment: SegmentId,
    generation: Generation,
) -> Result<(Walk, Option<SegmentHead>), ScanError> {
    let place = SegmentHead { pool, epoch: Epoch(0), segment, generation, stream: Stream::Host };
    walk(flash, geometry, &WantedBatches::Generation(place))
}

/// Walks over a segment. Also returns the life of the first batch that it took.
pub(crate) fn walk(
    flash: &mut dyn FlashRead,
    geometry: &Geometry,
    wanted: &WantedBatches,
) -> Result<(Walk, Option<SegmentHead>), ScanError> {
    let mut window = Window::new(geometry, wanted.place());
    let mut walk = Walk { end: 1, ..Walk::default() };
    let (mut block, mut last, mut first_life) = (1, None, None);
    while block < geometry.segment_blocks() {
        let found = batch_at(window.block(flash, block)?, block).filter(|(life, blocks, batch)| {
            let passed = last.is_some_and(|last| batch.number <= last) && !matches!(wanted, WantedBatches::AnyLife(_));
            wanted.takes(life) && block + 1 + blocks <= geometry.segment_blocks() && !passed
        });
        let Some((life, blocks, batch)) = found else {
            block += 1;
            continue;
        };
        if walk.end < block {
            walk.gaps.push(walk.end..block);
        }
        last = Some(batch.number);
        first_life.get_or_insert(life);
        block += 1 + blocks;
        walk.end = block;
        walk.batches.push(batch);
    }
    Ok((walk, first_life))
}

/// The batch whose head is in `bytes`: its segment's life, its blocks of payload, and its summary.
fn batch_at(bytes: &[u8], start: u32) -> Option<(SegmentHead, u32, SummaryBatch)> {
    let (head, entries) = decode_batch(bytes).ok()?;
    let life = SegmentHead {
        pool: head.pool,
        epoch: head.epoch,
        segment: head.segment,
        generation: head.generation,
        stream: head.stream,
    };
    let batch = SummaryBatch {
        number: head.number,
        previous_host: head.previous_host,
        synced_through: head.synced_through,
        synced_host: head.synced_host,
        start,
        entries: entries.to_vec(),
    };
    in_order(&batch).then_some((life, head.payload_blocks, batch))
}

/// Whether a batch refers only to batches before it.
fn in_order(batch: &SummaryBatch) -> bool {
    batch.previous_host.max(batch.synced_through).max(batch.synced_host) < batch.number
}

/// Some neighbouring blocks of a segment, from one read.
struct Window {
    segment_start: u64,
    segment_blocks: u32,
    first: u32,
    bytes: Option<Buf>,
}

impl Window {
    const fn new(geometry: &Geometry, place: &SegmentHead) -> Self {
        Self {
            segment_start: geometry.byte_of(geometry.first_location(place.segment)),
            segment_blocks: geometry.segment_blocks(),
            first: 0,
            bytes: None,
        }
    }

    fn block(&mut self, flash: &mut dyn FlashRead, block: u32) -> Result<&[u8], ScanError> {
        let there = |bytes: &Buf, first: u32| block >= first && ((block - first) as usize) < bytes.len() / BLOCK;
        let bytes = match self.bytes.take().filter(|bytes| there(bytes, self.first)) {
            Some(bytes) => bytes,
            None => {
                self.first = block;
                let blocks = WINDOW_BLOCKS.min(self.segment_blocks - block);
                let offset = self.segment_start + u64::from(block) * BLOCK as u64;
                flash.read(offset, blocks as usize * BLOCK).map_err(|errno| ScanError::Read { offset, errno })?
            }
        };
        let at = (block - self.first) as usize * BLOCK;
        Ok(&self.bytes.insert(bytes)[at..at + BLOCK])
    }
}

/// Reads the footer of a segment's life.
///
/// # Errors
/// The outer one when the device cannot be read. The inner one says why no footer counts: none was written, or it is
/// torn, of an earlier life, rotten or senseless.
pub fn read_footer(
    flash: &mut dyn FlashRead,
    geometry: &Geometry,
    life: &SegmentHead,
) -> Result<Result<Vec<SummaryBatch>, Damage>, ScanError> {
    let end = geometry.byte_of(geometry.first_location(life.segment)) + u64::from(geometry.segment_bytes);
    let mut read = |len: usize| {
        let offset = end - len as u64;
        flash.read(offset, len).map_err(|errno| ScanError::Read { offset, errno })
    };
    let guess = FOOTER_GUESS.min(geometry.segment_bytes as usize);
    let mut bytes = read(guess)?;
    let len = match decode_footer_tail(&bytes) {
        Ok((_, len)) => len,
        Err(damage) => return Ok(Err(damage)),
    };
    if len > guess {
        let whole = len.next_multiple_of(BLOCK);
        if whole > geometry.segment_bytes as usize {
            return Ok(Err(Damage::Senseless(FOOTER, "longer than its segment")));
        }
        bytes = read(whole)?;
    }
    Ok(decode_footer(&bytes).and_then(|(head, batches)| {
        if head != *life {
            return Err(Damage::Foreign(FOOTER));
        }
        let sensible = batches_fit(&batches, geometry);
        if sensible { Ok(batches) } else { Err(Damage::Senseless(FOOTER, "batches that cannot lie in one segment")) }
    }))
}

/// Whether the batches of a footer follow each other, with growing numbers.
fn batches_fit(batches: &[SummaryBatch], geometry: &Geometry) -> bool {
    let ordered = batches.is_sorted_by(|one, next| one.number < next.number && one.start < next.start);
    ordered && batches.iter().all(|batch| in_order(batch) && (1..geometry.segment_blocks()).contains(&batch.start))
}

/// The newest life of any segment of this pool in the first two blocks of a slot: by its head, or by its first batch if
/// the head is lost. Both are compared, because a head may be left from an earlier life. `own` is the segment that is at
/// home there, in the place `here`.
///
/// A life of another segment counts only by a head that says that it lies here: it has its copy here. Anything else may
/// be a misdirected write.
pub(crate) fn life_at(bytes: &[u8], pool: PoolId, own: SegmentId, here: Place) -> Option<SegmentHead> {
    let (head, batch) = bytes.split_at_checked(BLOCK)?;
    let is_here = |life: &SegmentHead, placement: &Placement| life.segment == own || placement.here == here;
    let by_head = decode_segment_head(head).ok().filter(|(life, placement)| is_here(life, placement));
    let by_batch = batch_at(batch, 1).map(|(life, _, _)| life).filter(|life| life.segment == own);
    // `max_by_key` takes the last of equals: the head's.
    let lives = [by_batch, by_head.map(|(life, _)| life)].into_iter().flatten();
    lives.filter(|life| life.pool == pool).max_by_key(|life| life.generation)
}

/// Whether a block that is not a head of this pool was meant to be one.
pub(crate) fn was_head(bytes: &[u8], place: &SegmentHead) -> bool {
    let named = bytes.get(8..24).is_some_and(|pool| pool == place.pool.0);
    let unread = !matches!(decode_segment_head(bytes), Ok(_) | Err(Damage::Missing(_)));
    named || unread
}
