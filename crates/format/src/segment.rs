//! A segment: a head block and batches. Once it is full, a footer repeats their entries, so that start and reclaim
//! read one place instead of every batch.

use headpond_base::{BLOCK, BatchNumber, Epoch, Generation, MemberId, OwnerNumber, PoolId, SegmentId, Stream};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::number::{counted, counted_from_one};
use crate::{Damage, Layout, Place, Writer, bytes_checksum};

const HEAD_MAGIC: [u8; 4] = *b"HPsh";
const FOOTER_MAGIC: [u8; 4] = *b"HPsf";
const HEAD: &str = "segment head";
const FOOTER: &str = "segment footer";

/// A segment's head or, with `body_bytes`, the tail of its footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// The pool that the segment belongs to.
    pub pool: PoolId,
    /// The use of the pool in which this life of the segment began.
    pub epoch: Epoch,
    /// Which segment: defends against misdirected writes.
    pub segment: SegmentId,
    /// The segment's life.
    pub generation: Generation,
    /// The stream whose batches the segment holds.
    pub stream: Stream,
}

/// The rest of a segment's head block. With it a start finds a segment that was opened after the checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The owner that opened it.
    pub owner: OwnerNumber,
    /// Where this copy of the head lies. Defends against misdirected writes.
    pub here: Place,
    /// Where the whole segment lies.
    pub layout: Layout,
    /// The writer of its batches.
    pub writer: Writer,
    /// The segment of the writer's pool that they belong to.
    pub writer_segment: SegmentId,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawPlacement {
    owner: U64,
    slot: U32,
    member: U16,
    reserved: [u8; 2],
    writer_pool: [u8; 16],
    writer_generation: U64,
    writer_segment: U32,
    more: [u8; 4],
}

/// Where the layout begins in a head block.
const LAYOUT_AT: usize = FOOTER_TAIL_BYTES + size_of::<RawPlacement>();
const _: () = assert!(LAYOUT_AT == 112);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    /// Head: over all other bytes of the block. Footer: over the body and all other bytes of the tail.
    checksum: U32,
    pool: [u8; 16],
    epoch: U64,
    generation: U64,
    segment: U32,
    /// Footer: bytes of the body. The body ends where this tail starts, and zeros before it fill whole blocks.
    body_bytes: U32,
    stream: u8,
    reserved: [u8; 15],
}

/// Bytes of a footer's tail, which are the last bytes of the segment.
pub const FOOTER_TAIL_BYTES: usize = size_of::<Raw>();
const _: () = assert!(FOOTER_TAIL_BYTES == 64);

impl SegmentHead {
    fn raw(&self, magic: [u8; 4], body_bytes: usize) -> Raw {
        let mut raw = Raw::new_zeroed();
        raw.magic = magic;
        raw.pool = self.pool.0;
        raw.epoch = self.epoch.0.into();
        raw.generation = self.generation.0.into();
        raw.segment = self.segment.0.into();
        raw.body_bytes = u32::try_from(body_bytes).expect("a footer is smaller than its segment").into();
        raw.stream = self.stream as u8;
        raw
    }

    fn from_raw(raw: &Raw, what: &'static str) -> Result<Self, Damage> {
        Ok(Self {
            pool: PoolId(raw.pool),
            epoch: Epoch(counted(what, raw.epoch.get())?),
            segment: SegmentId(raw.segment.get()),
            generation: Generation(counted(what, raw.generation.get())?),
            stream: Stream::from_number(raw.stream).ok_or(Damage::Senseless(what, "unknown stream"))?,
        })
    }
}

/// Fills `block` with a segment's head.
///
/// # Panics
/// When `block` is not one block long.
pub fn encode_segment_head(head: &SegmentHead, placement: &Placement, block: &mut [u8]) {
    assert_eq!(block.len(), BLOCK, "a segment head is one block");
    block.fill(0);
    block[..FOOTER_TAIL_BYTES].copy_from_slice(head.raw(HEAD_MAGIC, 0).as_bytes());
    let mut raw = RawPlacement::new_zeroed();
    raw.owner = placement.owner.0.into();
    raw.slot = placement.here.slot.into();
    raw.member = placement.here.member.0.into();
    raw.writer_pool = placement.writer.pool.0;
    raw.writer_generation = placement.writer.generation.0.into();
    raw.writer_segment = placement.writer_segment.0.into();
    block[FOOTER_TAIL_BYTES..LAYOUT_AT].copy_from_slice(raw.as_bytes());
    let mut layout = Vec::with_capacity(Layout::BYTES_MAX);
    placement.layout.encode(&mut layout);
    block[LAYOUT_AT..LAYOUT_AT + layout.len()].copy_from_slice(&layout);
    let checksum = bytes_checksum(block);
    block[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads a segment's head block.
///
/// # Errors
/// [`Damage`]; `Missing` for a segment that was never used.
pub fn decode_segment_head(block: &[u8]) -> Result<(SegmentHead, Placement), Damage> {
    let block = block.get(..BLOCK).ok_or(Damage::Short(HEAD))?;
    let (raw, _) = Raw::ref_from_prefix(block).map_err(|_| Damage::Short(HEAD))?;
    if raw.magic != HEAD_MAGIC {
        return Err(Damage::Missing(HEAD));
    }
    let mut unsigned = block.to_vec();
    unsigned[4..8].fill(0);
    if bytes_checksum(&unsigned) != raw.checksum.get() {
        return Err(Damage::Checksum(HEAD));
    }
    let head = SegmentHead::from_raw(raw, HEAD)?;
    let (raw, layout) = RawPlacement::ref_from_prefix(&block[FOOTER_TAIL_BYTES..]).map_err(|_| Damage::Short(HEAD))?;
    let here = Place { member: MemberId(raw.member.get()), slot: raw.slot.get() };
    let layout = Layout::decode(layout)?.0.filter(|layout| layout.copies(head.segment).contains(&here));
    let placement = Placement {
        owner: OwnerNumber(counted_from_one(HEAD, raw.owner.get())?),
        here,
        layout: layout.ok_or(Damage::Senseless(HEAD, "a head that lies where its segment does not"))?,
        writer: Writer {
            pool: PoolId(raw.writer_pool),
            generation: Generation(counted(HEAD, raw.writer_generation.get())?),
        },
        writer_segment: SegmentId(raw.writer_segment.get()),
    };
    Ok((head, placement))
}

/// One batch, as a footer describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryBatch {
    /// The batch's place in the order of submission.
    pub number: BatchNumber,
    /// The host batch before it.
    pub previous_host: BatchNumber,
    /// Everything up to this batch was durable when the present one was made.
    pub synced_through: BatchNumber,
    /// The last host batch up to `synced_through`.
    pub synced_host: BatchNumber,
    /// The block of its head, within the segment.
    pub start: u32,
    /// Its entries, encoded.
    pub entries: Vec<u8>,
}

/// All batches of a segment.
pub type SegmentSummary = Vec<SummaryBatch>;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawBatch {
    number: U64,
    previous_host: U64,
    synced_through: U64,
    synced_host: U64,
    start: U32,
    entry_bytes: U32,
}

/// Blocks of a footer for `batches` batches with `entry_bytes` bytes of entries.
#[must_use]
pub const fn footer_blocks(batches: usize, entry_bytes: usize) -> u32 {
    let bytes = batches * size_of::<RawBatch>() + entry_bytes + FOOTER_TAIL_BYTES;
    bytes.div_ceil(BLOCK) as u32
}

/// The footer's blocks. Write them so that they end where the segment ends.
#[must_use]
pub fn encode_footer(head: &SegmentHead, summary: &[SummaryBatch]) -> Vec<u8> {
    let mut body = Vec::new();
    for batch in summary {
        let raw = RawBatch {
            number: batch.number.0.into(),
            previous_host: batch.previous_host.0.into(),
            synced_through: batch.synced_through.0.into(),
            synced_host: batch.synced_host.0.into(),
            start: batch.start.into(),
            entry_bytes: u32::try_from(batch.entries.len()).expect("entries fit a block").into(),
        };
        body.extend_from_slice(raw.as_bytes());
        body.extend_from_slice(&batch.entries);
    }
    let mut tail = head.raw(FOOTER_MAGIC, body.len());
    let mut blocks = vec![0; (body.len() + FOOTER_TAIL_BYTES).next_multiple_of(BLOCK)];
    let tail_at = blocks.len() - FOOTER_TAIL_BYTES;
    let body_at = tail_at - body.len();
    blocks[body_at..tail_at].copy_from_slice(&body);
    blocks[tail_at..].copy_from_slice(tail.as_bytes());
    tail.checksum = bytes_checksum(&blocks[body_at..]).into();
    blocks[tail_at..].copy_from_slice(tail.as_bytes());
    blocks
}

/// Reads the tail of a footer from the last bytes of a segment. Returns the life it belongs to, and the bytes of the
/// whole footer with this tail.
///
/// # Errors
/// [`Damage`]; `Missing` when the segment was never filled.
pub fn decode_footer_tail(segment_end: &[u8]) -> Result<(SegmentHead, usize), Damage> {
    let at = segment_end.len().checked_sub(FOOTER_TAIL_BYTES).ok_or(Damage::Short(FOOTER))?;
    let raw = Raw::ref_from_bytes(&segment_end[at..]).map_err(|_| Damage::Short(FOOTER))?;
    if raw.magic != FOOTER_MAGIC {
        return Err(Damage::Missing(FOOTER));
    }
    Ok((SegmentHead::from_raw(raw, FOOTER)?, raw.body_bytes.get() as usize + FOOTER_TAIL_BYTES))
}

/// Reads a footer. `segment_end` ends where the segment ends and holds the whole footer.
///
/// # Errors
/// [`Damage`].
pub fn decode_footer(segment_end: &[u8]) -> Result<(SegmentHead, SegmentSummary), Damage> {
    let (head, len) = decode_footer_tail(segment_end)?;
    let from = segment_end.len().checked_sub(len).ok_or(Damage::Short(FOOTER))?;
    let mut unsigned = segment_end[from..].to_vec();
    let tail_at = unsigned.len() - FOOTER_TAIL_BYTES;
    let expected = unsigned[tail_at + 4..tail_at + 8].to_vec();
    unsigned[tail_at + 4..tail_at + 8].fill(0);
    if bytes_checksum(&unsigned).to_le_bytes() != expected[..] {
        return Err(Damage::Checksum(FOOTER));
    }
    let mut summary = Vec::new();
    let mut body = &unsigned[..tail_at];
    while !body.is_empty() {
        let (raw, rest) = RawBatch::ref_from_prefix(body).map_err(|_| Damage::Short(FOOTER))?;
        let entry_bytes = raw.entry_bytes.get() as usize;
        let entries = rest.get(..entry_bytes).ok_or(Damage::Short(FOOTER))?;
        summary.push(SummaryBatch {
            number: BatchNumber(counted(FOOTER, raw.number.get())?),
            previous_host: BatchNumber(counted(FOOTER, raw.previous_host.get())?),
            synced_through: BatchNumber(counted(FOOTER, raw.synced_through.get())?),
            synced_host: BatchNumber(counted(FOOTER, raw.synced_host.get())?),
            start: raw.start.get(),
            entries: entries.to_vec(),
        });
        body = &rest[entry_bytes..];
    }
    Ok((head, summary))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: SegmentHead = SegmentHead {
        pool: PoolId([1; 16]),
        epoch: Epoch(2),
        segment: SegmentId(3),
        generation: Generation(4),
        stream: Stream::Cold,
    };

    fn placement(layout: Layout, here: Place) -> Placement {
        let writer = Writer { pool: PoolId([8; 16]), generation: Generation(9) };
        Placement { owner: OwnerNumber(5), here, layout, writer, writer_segment: SegmentId(6) }
    }

    fn place(member: u16, slot: u32) -> Place {
        Place { member: MemberId(member), slot }
    }

    #[test]
    fn a_head_reads_back_on_each_member_that_has_a_copy_and_nowhere_else() {
        let mirror = Layout::Mirror(vec![place(0, 3), place(4, 77)]);
        let mut block = vec![9; BLOCK];
        for here in [place(0, 3), place(4, 77)] {
            let placement = placement(mirror.clone(), here);
            encode_segment_head(&HEAD, &placement, &mut block);
            assert_eq!(decode_segment_head(&block), Ok((HEAD, placement)));
        }
        encode_segment_head(&HEAD, &placement(mirror, place(4, 78)), &mut block);
        assert!(matches!(decode_segment_head(&block), Err(Damage::Senseless(..))));
    }

    #[test]
    fn heads_and_footers_read_back() {
        let placement = placement(Layout::Single(place(0, 3)), place(0, 3));
        let mut block = vec![9; BLOCK];
        encode_segment_head(&HEAD, &placement, &mut block);
        assert_eq!(decode_segment_head(&block), Ok((HEAD, placement)));
        let summary: SegmentSummary = (0..300)
            .map(|n| SummaryBatch {
                number: BatchNumber(n),
                previous_host: BatchNumber(n / 2),
                synced_through: BatchNumber(n / 3),
                synced_host: BatchNumber(n / 4),
                start: 7,
                entries: vec![n as u8; (n % 70) as usize * 4],
            })
            .collect();
        let footer = encode_footer(&HEAD, &summary);
        let entry_bytes = summary.iter().map(|batch| batch.entries.len()).sum();
        assert_eq!(footer.len(), footer_blocks(summary.len(), entry_bytes) as usize * BLOCK);
        assert_eq!(decode_footer(&footer), Ok((HEAD, summary)));
    }

    #[test]
    fn a_footer_notices_every_flipped_byte() {
        let summary = vec![SummaryBatch {
            number: BatchNumber(1),
            previous_host: BatchNumber(0),
            synced_through: BatchNumber(0),
            synced_host: BatchNumber(0),
            start: 1,
            entries: vec![5; 1000],
        }];
        let mut footer = encode_footer(&HEAD, &summary);
        let used = footer.len() - (1000 + size_of::<RawBatch>() + FOOTER_TAIL_BYTES);
        for at in used..footer.len() {
            footer[at] ^= 0x10;
            assert!(decode_footer(&footer).is_err(), "byte {at} changed unnoticed");
            footer[at] ^= 0x10;
        }
    }
}
