//! An open segment and the open batch in it.

use std::ops::Range;

use headpond_base::{BLOCK, BufMut, Generation, SegmentId, Sequence, Stream};
use headpond_format::{BATCH_ENTRY_BYTES, BATCH_PAYLOAD_BLOCKS_MAX, BLOCK_UNITS, SummaryBatch, UNIT, footer_blocks};

/// A batch that is being filled. Its first block is free for the head.
pub(crate) struct OpenBatch {
    /// Block within the segment at which it starts.
    pub(crate) start: u32,
    pub(crate) entries: Vec<u8>,
    buffer: BufMut,
    /// Units of payload so far.
    units: u32,
    pub(crate) last_sequence: Sequence,
}

/// Blocks of memory that a batch starts with. Under many writes, batches are submitted once they fill it (see
/// [`crate::FillPolicy`]), so few must grow.
pub(crate) const BUFFER_BLOCKS: usize = 32;

/// Bytes of a head block before its entries.
pub(crate) const HEAD_BYTES: usize = BLOCK - BATCH_ENTRY_BYTES;

impl OpenBatch {
    fn new(start: u32, buffer: BufMut) -> Self {
        Self { start, entries: Vec::with_capacity(512), buffer, units: 0, last_sequence: Sequence(0) }
    }

    /// Memory of the process's own for a new batch.
    pub(crate) fn memory() -> BufMut {
        BufMut::unwritten(BUFFER_BLOCKS * BLOCK)
    }

    /// Bytes of memory that a new batch with `blocks` blocks of payload asks for.
    pub(crate) fn bytes_for(blocks: u32) -> usize {
        BUFFER_BLOCKS.max(1 + blocks as usize) * BLOCK
    }

    /// The slot of the second tail that the batch lies in.
    pub(crate) const fn slot(&self) -> Option<usize> {
        self.buffer.slot()
    }

    /// Whether its memory has room for `blocks` more blocks of payload.
    pub(crate) fn has_memory(&self, blocks: u32) -> bool {
        Self::bytes_for(self.payload_blocks() + blocks) <= self.buffer.len()
    }

    /// Goes on in other memory. Returns that in which it lay.
    pub(crate) fn move_to(&mut self, memory: BufMut) -> BufMut {
        let used = BLOCK + self.units as usize * UNIT;
        let mut memory = memory;
        memory[HEAD_BYTES..used].copy_from_slice(&self.buffer[HEAD_BYTES..used]);
        std::mem::replace(&mut self.buffer, memory)
    }

    /// Appends an entry. Its bytes go to their place in the head block at once: in a slot of the second tail, a
    /// successor reads them there.
    pub(crate) fn push(&mut self, entry: &[u8], sequence: Sequence) {
        if self.slot().is_some() {
            let at = HEAD_BYTES + self.entries.len();
            self.buffer[at..at + entry.len()].copy_from_slice(entry);
        }
        self.entries.extend_from_slice(entry);
        self.last_sequence = sequence;
    }

    /// Blocks of payload so far. The last may be partly filled.
    pub(crate) const fn payload_blocks(&self) -> u32 {
        self.units.div_ceil(BLOCK_UNITS)
    }

    /// The next unit of payload.
    pub(crate) const fn next_unit(&self) -> u32 {
        self.units
    }

    /// Fills up the last block with zeros, so that the next record begins with a block.
    fn fill_block(&mut self) {
        let whole = self.units.next_multiple_of(BLOCK_UNITS);
        let start = BLOCK + self.units as usize * UNIT;
        self.buffer[start..start + (whole - self.units) as usize * UNIT].fill(0);
        self.units = whole;
    }

    /// Makes the memory large enough for `units` units of payload.
    fn grow_to(&mut self, units: u32) {
        let used = BLOCK + self.units as usize * UNIT;
        let end = (1 + units.div_ceil(BLOCK_UNITS) as usize) * BLOCK;
        if end > self.buffer.len() {
            assert!(self.slot().is_none(), "a batch outgrows its slot: room was made for less");
            let mut larger = BufMut::unwritten((end * 2).min((1 + BATCH_PAYLOAD_BLOCKS_MAX) * BLOCK).max(end));
            larger[BLOCK..used].copy_from_slice(&self.buffer[BLOCK..used]);
            self.buffer = larger;
        }
    }

    /// Appends a packed record. Its length is a multiple of a unit.
    pub(crate) fn append_packed(&mut self, packed: &[u8]) {
        let units = self.units + u32::try_from(packed.len() / UNIT).expect("a packed record is bounded");
        self.grow_to(units);
        let start = BLOCK + self.units as usize * UNIT;
        self.buffer[start..start + packed.len()].copy_from_slice(packed);
        self.units = units;
    }

    /// Room for `blocks` more blocks of payload. If `whole` is false, the first and the last block are zeros, because
    /// the data may begin or end inside them. The caller writes every byte of the others.
    pub(crate) fn extend(&mut self, blocks: u32, whole: bool) -> &mut [u8] {
        self.fill_block();
        let units = self.units + blocks * BLOCK_UNITS;
        self.grow_to(units);
        let start = BLOCK + self.units as usize * UNIT;
        let end = start + blocks as usize * BLOCK;
        self.units = units;
        let room = &mut self.buffer[start..end];
        if whole {
            // In tests this shows a caller that leaves bytes out.
            if cfg!(debug_assertions) {
                room.fill(0xa5);
            }
        } else if let [first, between @ .., last] = room.as_chunks_mut::<BLOCK>().0 {
            if cfg!(debug_assertions) {
                between.as_flattened_mut().fill(0xa5);
            }
            first.fill(0);
            last.fill(0);
        } else {
            room.fill(0);
        }
        room
    }

    /// The payload of some units.
    pub(crate) fn payload(&self, units: Range<u32>) -> Option<&[u8]> {
        let inside = units.end <= self.units;
        inside.then(|| &self.buffer[BLOCK + units.start as usize * UNIT..BLOCK + units.end as usize * UNIT])
    }

    /// The bytes and the entries of the batch, cut to what is used. The head is still to be written.
    pub(crate) fn into_buffer(self) -> (BufMut, Vec<u8>) {
        let mut batch = self;
        batch.fill_block();
        batch.buffer.truncate((1 + batch.payload_blocks() as usize) * BLOCK);
        (batch.buffer, batch.entries)
    }
}

/// A segment that is being filled.
pub(crate) struct OpenSegment {
    pub(crate) id: SegmentId,
    pub(crate) generation: Generation,
    pub(crate) stream: Stream,
    blocks: u32,
    /// Block within the segment at which the next batch starts.
    next: u32,
    pub(crate) summary: Vec<SummaryBatch>,
    summary_bytes: usize,
    pub(crate) batch: Option<OpenBatch>,
}

impl OpenSegment {
    pub(crate) const fn new(id: SegmentId, generation: Generation, stream: Stream, blocks: u32) -> Self {
        Self { id, generation, stream, blocks, next: 1, summary: Vec::new(), summary_bytes: 0, batch: None }
    }

    /// Whether the open batch has room for `entry_bytes` and `blocks`.
    pub(crate) fn batch_fits(&self, entry_bytes: usize, blocks: u32) -> bool {
        self.batch.as_ref().is_some_and(|batch| {
            batch.entries.len() + entry_bytes <= BATCH_ENTRY_BYTES
                && (batch.payload_blocks() + blocks) as usize <= BATCH_PAYLOAD_BLOCKS_MAX
                && self.segment_fits(batch.start, batch.entries.len() + entry_bytes, batch.payload_blocks() + blocks)
        })
    }

    /// Whether the rest of the segment has room for a new batch of this size.
    pub(crate) fn new_batch_fits(&self, entry_bytes: usize, blocks: u32) -> bool {
        self.segment_fits(self.next, entry_bytes, blocks)
    }

    fn segment_fits(&self, start: u32, entry_bytes: usize, payload_blocks: u32) -> bool {
        let footer = footer_blocks(self.summary.len() + 1, self.summary_bytes + entry_bytes);
        start + 1 + payload_blocks + footer <= self.blocks
    }

    /// Begins a batch.
    pub(crate) fn begin_batch(&mut self, memory: BufMut) {
        self.batch = Some(OpenBatch::new(self.next, memory));
    }

    /// The open batch.
    pub(crate) const fn batch(&mut self) -> &mut OpenBatch {
        self.batch.as_mut().expect("a batch is begun before something is appended")
    }

    /// Records that a batch was submitted.
    pub(crate) fn submitted(&mut self, batch: SummaryBatch, payload_blocks: u32) {
        self.next = batch.start + 1 + payload_blocks;
        self.summary_bytes += batch.entries.len();
        self.summary.push(batch);
    }
}
