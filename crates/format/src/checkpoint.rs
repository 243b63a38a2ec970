//! A checkpoint: the map, the objects and the segment table, as a stream of frames.
//!
//! The engine takes it while the pool is in use, so it may already show the effect of entries that come after its
//! start. Replay from that start makes it exact: entries set whole states.

use headpond_base::{BLOCK, BatchNumber, Epoch, Generation, PoolId, Sequence, Stream};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::number::{counted, counted_from_one};
use crate::{Damage, Layout, bytes_checksum};

const MAGIC: [u8; 4] = *b"HPch";
const FRAME_MAGIC: [u8; 4] = *b"HPcf";
const HEAD: &str = "checkpoint head";
const FRAME: &str = "checkpoint frame";

/// Bytes of one map slot in a chunk frame: position and flags, location, checksum.
pub const SLOT_BYTES: usize = 11;

/// Bytes of a frame before its payload.
pub const FRAME_HEAD: usize = size_of::<RawFrame>();

/// What a checkpoint starts with. It is written last, into the first block of the checkpoint's area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHead {
    /// The pool that the checkpoint belongs to.
    pub pool: PoolId,
    /// The superblock that names this checkpoint has the same counter. Defends against remains of an older checkpoint
    /// in the same area.
    pub counter: u64,
    /// The use of the pool in which the checkpoint was taken. Only batches of this epoch are replayed on it.
    pub epoch: Epoch,
    /// Replay starts with this entry.
    pub replay_from: Sequence,
    /// The last host batch before the replay. The chain goes on from it.
    pub last_host: BatchNumber,
    /// The next batch number when the checkpoint began.
    pub next_batch: BatchNumber,
    /// The next object to be made.
    pub next_object: u64,
    /// The next segment generation.
    pub next_generation: Generation,
    /// Bytes of frames that follow the head block.
    pub frame_bytes: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    checksum: U32,
    pool: [u8; 16],
    counter: U64,
    epoch: U64,
    replay_from: U64,
    last_host: U64,
    next_batch: U64,
    next_object: U64,
    next_generation: U64,
    frame_bytes: U64,
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Rows of the segment table.
    Segments = 1,
    /// Object entries.
    Objects = 2,
    /// Chunks of the map.
    Chunks = 3,
    /// The end. A stream without it was cut short.
    End = 4,
    /// Extents of zeros.
    Zeros = 5,
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it holds.
    pub kind: FrameKind,
    /// The bytes.
    pub payload: &'a [u8],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawFrame {
    magic: [u8; 4],
    /// Over the payload and all other bytes of this head.
    checksum: U32,
    counter: U64,
    len: U32,
    kind: u8,
    reserved: [u8; 3],
}

/// The state of a segment when the checkpoint was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentState {
    /// Holds nothing that counts.
    Free = 0,
    /// Being filled.
    Open = 1,
    /// Full.
    Sealed = 2,
}

/// One row of the segment table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    /// The segment's life. A map slot that points into a segment counts only in this life.
    pub generation: Generation,
    /// The segment's state.
    pub state: SegmentState,
    /// The stream whose batches the segment holds.
    pub stream: Stream,
    /// Where the segment lies; of a free one, its home. Pools of one device were made without homes of free segments.
    pub layout: Option<Layout>,
    /// Of a segment in use with two places: some bytes may be in one of them only.
    pub copies_differ: bool,
}

/// Beside the state, in its byte.
const COPIES_DIFFER: u8 = 1 << 7;

impl SegmentRow {
    /// The most bytes of one row.
    pub const BYTES_MAX: usize = 10 + Layout::BYTES_MAX;

    /// Appends the row.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.generation.0.to_le_bytes());
        let differ = if self.copies_differ { COPIES_DIFFER } else { 0 };
        out.extend_from_slice(&[self.state as u8 | differ, self.stream as u8]);
        match &self.layout {
            Some(layout) => layout.encode(out),
            None => out.extend_from_slice(&[0, 0]),
        }
    }

    /// Reads rows up to the end of `bytes`.
    ///
    /// # Errors
    /// [`Damage`] when a row makes no sense.
    pub fn decode_all(mut bytes: &[u8]) -> Result<Vec<Self>, Damage> {
        let mut rows = Vec::new();
        while !bytes.is_empty() {
            let (row, rest) = Self::decode(bytes)?;
            rows.push(row);
            bytes = rest;
        }
        Ok(rows)
    }

    fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Damage> {
        const WHAT: &str = "segment row";
        let senseless = |why| Damage::Senseless(WHAT, why);
        let (generation, rest) = bytes.split_first_chunk::<8>().ok_or(Damage::Short(WHAT))?;
        let ([state, stream], rest) = rest.split_first_chunk().ok_or(Damage::Short(WHAT))?;
        let copies_differ = state & COPIES_DIFFER != 0;
        let state = match state & !COPIES_DIFFER {
            0 => SegmentState::Free,
            1 => SegmentState::Open,
            2 => SegmentState::Sealed,
            _ => return Err(senseless("unknown state")),
        };
        let stream = Stream::from_number(*stream).ok_or(senseless("unknown stream"))?;
        let generation = Generation(counted(WHAT, u64::from_le_bytes(*generation))?);
        let (layout, rest) = Layout::decode(rest)?;
        match (&layout, state) {
            (None, SegmentState::Free) | (Some(Layout::Single(_)), _) => {}
            (None, _) => return Err(senseless("a segment in use with no place")),
            (Some(_), SegmentState::Free) => return Err(senseless("a free segment with a copy")),
            (Some(_), _) => {}
        }
        if copies_differ && !matches!(layout, Some(Layout::Mirror(_) | Layout::Parity(_))) {
            return Err(senseless("copies that differ, of a segment without a copy"));
        }
        Ok((Self { generation, state, stream, layout, copies_differ }, rest))
    }
}

/// Encodes the head block of a checkpoint.
#[must_use]
pub fn encode_checkpoint_head(head: &CheckpointHead) -> Vec<u8> {
    let raw = Raw {
        magic: MAGIC,
        checksum: 0.into(),
        pool: head.pool.0,
        counter: head.counter.into(),
        epoch: head.epoch.0.into(),
        replay_from: head.replay_from.0.into(),
        last_host: head.last_host.0.into(),
        next_batch: head.next_batch.0.into(),
        next_object: head.next_object.into(),
        next_generation: head.next_generation.0.into(),
        frame_bytes: head.frame_bytes.into(),
    };
    let mut block = vec![0; BLOCK];
    block[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
    let checksum = bytes_checksum(&block);
    block[4..8].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// Reads the head block of a checkpoint.
///
/// # Errors
/// [`Damage`].
pub fn decode_checkpoint_head(block: &[u8]) -> Result<CheckpointHead, Damage> {
    let block = block.get(..BLOCK).ok_or(Damage::Short(HEAD))?;
    let (raw, _) = Raw::ref_from_prefix(block).map_err(|_| Damage::Short(HEAD))?;
    if raw.magic != MAGIC {
        return Err(Damage::Missing(HEAD));
    }
    let mut unsigned = block.to_vec();
    unsigned[4..8].fill(0);
    if bytes_checksum(&unsigned) != raw.checksum.get() {
        return Err(Damage::Checksum(HEAD));
    }
    Ok(CheckpointHead {
        pool: PoolId(raw.pool),
        counter: counted(HEAD, raw.counter.get())?,
        epoch: Epoch(counted(HEAD, raw.epoch.get())?),
        replay_from: Sequence(counted_from_one(HEAD, raw.replay_from.get())?),
        last_host: BatchNumber(counted(HEAD, raw.last_host.get())?),
        next_batch: BatchNumber(counted_from_one(HEAD, raw.next_batch.get())?),
        next_object: counted_from_one(HEAD, raw.next_object.get())?,
        next_generation: Generation(counted_from_one(HEAD, raw.next_generation.get())?),
        frame_bytes: raw.frame_bytes.get(),
    })
}

/// Appends one frame of the checkpoint `counter` to `out`.
pub fn encode_frame(kind: FrameKind, counter: u64, payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let mut raw = RawFrame::new_zeroed();
    raw.magic = FRAME_MAGIC;
    raw.counter = counter.into();
    raw.len = u32::try_from(payload.len()).expect("frames are at most a few MiB").into();
    raw.kind = kind as u8;
    out.extend_from_slice(raw.as_bytes());
    out.extend_from_slice(payload);
    let checksum = bytes_checksum(&out[start..]);
    out[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads the frame at the start of `bytes`. Returns the frame and the bytes it took.
///
/// # Errors
/// [`Damage`], `Foreign` for a frame of another checkpoint.
pub fn decode_frame(bytes: &[u8], counter: u64) -> Result<(Frame<'_>, usize), Damage> {
    let (raw, rest) = RawFrame::ref_from_prefix(bytes).map_err(|_| Damage::Short(FRAME))?;
    if raw.magic != FRAME_MAGIC {
        return Err(Damage::Missing(FRAME));
    }
    let len = raw.len.get() as usize;
    let payload = rest.get(..len).ok_or(Damage::Short(FRAME))?;
    let mut unsigned = bytes[..FRAME_HEAD + len].to_vec();
    unsigned[4..8].fill(0);
    if bytes_checksum(&unsigned) != raw.checksum.get() {
        return Err(Damage::Checksum(FRAME));
    }
    if raw.counter.get() != counter {
        return Err(Damage::Foreign(FRAME));
    }
    let kind = match raw.kind {
        1 => FrameKind::Segments,
        2 => FrameKind::Objects,
        3 => FrameKind::Chunks,
        4 => FrameKind::End,
        5 => FrameKind::Zeros,
        _ => return Err(Damage::Senseless(FRAME, "unknown kind")),
    };
    Ok((Frame { kind, payload }, FRAME_HEAD + len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use headpond_base::MemberId;

    #[test]
    fn heads_frames_and_rows_read_back() {
        let head = CheckpointHead {
            pool: PoolId([1; 16]),
            counter: 2,
            epoch: Epoch(3),
            replay_from: Sequence(4),
            last_host: BatchNumber(5),
            next_batch: BatchNumber(6),
            next_object: 7,
            next_generation: Generation(8),
            frame_bytes: 9,
        };
        assert_eq!(decode_checkpoint_head(&encode_checkpoint_head(&head)), Ok(head));
        let layout = Layout::Single(Place { member: MemberId(3), slot: 4 });
        let (generation, stream) = (Generation(5), Stream::Hot);
        let copies_differ = false;
        let sealed =
            SegmentRow { generation, state: SegmentState::Sealed, stream, layout: Some(layout), copies_differ };
        let free = SegmentRow { state: SegmentState::Free, layout: None, ..sealed.clone() };
        let both = Layout::Mirror([0, 1].map(|member| Place { member: MemberId(member), slot: 4 }).to_vec());
        let differing = SegmentRow { layout: Some(both), copies_differ: true, ..sealed.clone() };
        let mut payload = Vec::new();
        [&sealed, &free, &differing].into_iter().for_each(|row| row.encode(&mut payload));
        assert_eq!(SegmentRow::decode_all(&payload), Ok(vec![sealed.clone(), free, differing]));
        let nowhere = SegmentRow { layout: None, ..sealed.clone() };
        let from_itself = SegmentRow { copies_differ: true, ..sealed };
        for (row, why) in [(nowhere, "in use, and nowhere"), (from_itself, "differs from itself")] {
            let mut wrong = Vec::new();
            row.encode(&mut wrong);
            assert!(matches!(SegmentRow::decode_all(&wrong), Err(Damage::Senseless(..))), "{why}");
        }
        let mut bytes = Vec::new();
        encode_frame(FrameKind::Segments, 2, &payload, &mut bytes);
        let frame = Frame { kind: FrameKind::Segments, payload: &payload };
        assert_eq!(decode_frame(&bytes, 2), Ok((frame, bytes.len())));
        assert_eq!(decode_frame(&bytes, 1), Err(Damage::Foreign(FRAME)));
    }
}
