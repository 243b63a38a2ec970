//! Several writes of one object as one: all of them or none.
//!
//! They are records of one batch of the log, and a batch counts after a crash as a whole (docs/format.md, *What
//! recovery accepts*): so nothing new is on flash, and nothing is done twice. What bounds them is the batch:
//! [`fits_together`].
//!
//! Only the log can do that: where changes go to the origin directly they are refused, and nothing is changed.

use std::ops::Range;

use headpond_base::{BLOCK, BLOCK_U64, Block, Buf, Class, RECORD_BLOCKS_MAX, UnixNanos};
use headpond_format::{BATCH_ENTRY_BYTES, Entry};
use headpond_log::{DataRecord, Mutation};

use crate::engine::Engine;
use crate::locks::Span;
use crate::op::Op;
use crate::store::Store;

/// Pieces by their first bytes: in order, none empty, none touching another.
pub(crate) type Pieces = [(u64, Buf)];

/// Pieces in neighbouring blocks, which are one record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PieceRun {
    pub(crate) span: Span,
    /// Which pieces.
    pub(crate) pieces: Range<usize>,
}

impl PieceRun {
    /// A record's blocks.
    pub(crate) fn blocks(&self) -> u32 {
        u32::try_from(self.span.blocks()).expect("what fits a batch is bounded")
    }

    /// Puts the pieces into the record's payload, over what the blocks hold now.
    pub(crate) fn fill<'a>(&self, pieces: &Pieces, payload: &mut [u8], present: impl Fn(Block) -> Option<&'a [u8]>) {
        payload.fill(0);
        for (block, room) in (self.span.first.0..).map(Block).zip(payload.chunks_exact_mut(BLOCK)) {
            if let Some(bytes) = present(block) {
                room.copy_from_slice(bytes);
            }
        }
        for (offset, data) in &pieces[self.pieces.clone()] {
            let at = usize::try_from(offset - self.span.first.byte()).expect("within a record");
            payload[at..at + data.len()].copy_from_slice(data);
        }
    }
}

impl Engine {
    /// Puts all pieces into one batch of the log, and into the map. `present` has what blocks hold now that are covered
    /// in part.
    pub(super) fn apply_together<'a>(
        &mut self,
        op: &Op,
        pieces: &Pieces,
        grown: Option<(u64, UnixNanos)>,
        present: impl Fn(Block) -> Option<&'a [u8]>,
    ) {
        let (object, class) = (op.object, op.how.class);
        let runs = runs(pieces);
        let (entry_bytes, blocks) = room(&runs);
        let blocks = u32::try_from(blocks).expect("what fits a batch is bounded");
        let mut before = Vec::with_capacity(runs.len());
        self.store.keep_together(entry_bytes, blocks);
        let batch = self.store.log().next_batch();
        // Only these records may be appended meanwhile, so nothing learns of one before all are there.
        for run in &runs {
            let classes = self.keep.classes_before(&self.store, object, run.span.first, run.span.blocks());
            let record = DataRecord {
                class: self.keeping().class_of_record(&classes, class),
                ..Store::dirty_record(object, run.span.first, run.blocks(), grown)
            };
            self.store.append_data(record, true, Class::EVERYBODY, |payload| run.fill(pieces, payload, &present));
            before.push(classes);
            if Mutation::SplitTogether.is_planted(self.config.mutation) {
                self.store.close_host_batch();
            }
        }
        let split = Mutation::SplitTogether.is_planted(self.config.mutation);
        assert!(split || batch == self.store.log().next_batch(), "writes that are one have become several batches");
        for (run, before) in runs.iter().zip(&before) {
            self.poison(object, run.span);
            self.keeping().note_written(object, (run.span.first, run.span.blocks()), before, class);
        }
    }
}

/// The ranges of bytes that pieces have.
fn ranges(pieces: &Pieces) -> impl Iterator<Item = Range<u64>> {
    pieces.iter().map(|(offset, data)| *offset..offset.saturating_add(data.len() as u64))
}

/// The records that pieces become, by the ranges of their bytes.
fn runs_of(ranges: impl Iterator<Item = Range<u64>>) -> Vec<PieceRun> {
    let mut runs: Vec<PieceRun> = Vec::new();
    for (index, range) in ranges.enumerate() {
        let span = Span::of_bytes(range.start, range.end - range.start);
        match runs.last_mut() {
            Some(run) if span.first <= run.span.end => {
                run.span.end = run.span.end.max(span.end);
                run.pieces.end = index + 1;
            }
            _ => runs.push(PieceRun { span, pieces: index..index + 1 }),
        }
    }
    runs
}

/// The records that pieces become.
pub(crate) fn runs(pieces: &Pieces) -> Vec<PieceRun> {
    runs_of(ranges(pieces))
}

/// Bytes of entries, and blocks of payload, of these records.
pub(crate) fn room(runs: &[PieceRun]) -> (usize, u64) {
    let entries = runs.iter().map(|run| Entry::data_len(usize::try_from(run.span.blocks()).unwrap_or(usize::MAX / 8)));
    (entries.fold(0, usize::saturating_add), runs.iter().map(|run| run.span.blocks()).sum())
}

/// Whether pieces are as [`Pieces`] says.
pub(crate) fn are_apart(pieces: &Pieces) -> bool {
    !pieces.is_empty()
        && pieces.iter().all(|(_, data)| !data.is_empty())
        && ranges(pieces).zip(ranges(pieces).skip(1)).all(|(one, next)| one.end < next.start)
}

/// Whether writes to these ranges of bytes, in order and apart from each other, can be made as one: 1 MiB, and
/// about 64 places.
pub fn fits_together(ranges: impl Iterator<Item = Range<u64>>) -> bool {
    let (entry_bytes, blocks) = room(&runs_of(ranges));
    entry_bytes <= BATCH_ENTRY_BYTES && blocks <= RECORD_BLOCKS_MAX as u64
}

/// The blocks that pieces cover only in part and that hold bytes of the object, once each, in order.
pub(crate) fn partial(pieces: &Pieces, size: u64) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for range in ranges(pieces) {
        let (first, last) = (Block::holding(range.start), Block::holding(range.end));
        if !range.start.is_multiple_of(BLOCK_U64) && first.byte() < size && blocks.last() != Some(&first) {
            blocks.push(first);
        }
        if !range.end.is_multiple_of(BLOCK_U64) && range.end < size && blocks.last() != Some(&last) {
            blocks.push(last);
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::BufMut;

    fn pieces(of: &[(u64, usize)]) -> Vec<(u64, Buf)> {
        of.iter().map(|(offset, len)| (*offset, BufMut::copy_of(&vec![7; *len]).freeze())).collect()
    }

    #[test]
    fn pieces_in_neighbouring_blocks_are_one_record() {
        let pieces = pieces(&[(100, 50), (4000, 200), (8192 + 10, 4), (40960, 4096)]);
        let runs = runs(&pieces);
        let spans: Vec<_> = runs.iter().map(|run| (run.span.first.0, run.span.end.0, run.pieces.clone())).collect();
        assert_eq!(spans, [(0, 3, 0..3), (10, 11, 3..4)]);
        let blocks = |size| partial(&pieces, size).iter().map(|block| block.0).collect::<Vec<_>>();
        assert_eq!(blocks(1 << 20), [0, 1, 2]);
        assert_eq!(blocks(5000), [0, 1], "what lies beyond the end is zeros");
    }

    #[test]
    fn a_record_has_the_pieces_over_what_was_there_and_zeros_else() {
        let pieces = pieces(&[(10, 5), (4096 + 20, 5)]);
        let mut payload = vec![0xa5; 8192];
        let present = [1; BLOCK];
        runs(&pieces)[0].fill(&pieces, &mut payload, |block| (block == Block(0)).then_some(&present[..]));
        assert_eq!((payload[9], payload[10], payload[15], payload[4095]), (1, 7, 1, 1));
        assert_eq!((payload[4096], payload[4116], payload[4121], payload[8191]), (0, 7, 0, 0));
    }

    #[test]
    fn what_is_too_much_for_a_batch_is_told() {
        let apart = |count: u64| (0..count).map(|at| at * 65536..at * 65536 + 4096);
        assert!(fits_together(apart(66)) && !fits_together(apart(67)));
        let together = |bytes| std::iter::once(0..bytes);
        assert!(fits_together(together(1 << 20)) && !fits_together(together(2 << 20)));
    }

    #[test]
    fn pieces_that_touch_or_are_out_of_order_are_none() {
        assert!(are_apart(&pieces(&[(0, 10), (11, 5)])));
        for wrong in [&[(0, 10), (10, 5)][..], &[(5, 1), (0, 1)], &[(0, 0)], &[]] {
            assert!(!are_apart(&pieces(wrong)), "{wrong:?}");
        }
    }
}
