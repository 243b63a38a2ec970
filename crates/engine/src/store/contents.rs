//! What a segment holds: by its footer, or by the whole map.
//!
//! Invariant: of a footer that is not the one of the segment's present life, nothing counts.

use headpond_base::{BLOCK, Block, Location, SegmentId};
use headpond_format::{BLOCK_UNITS, Entry, decode_footer, decode_footer_tail};

use crate::effect::Outcome;
use crate::piece::{Form, Piece};
use crate::store::Store;

/// How much of a segment's end is read first.
pub(crate) const FOOTER_GUESS: usize = 64 << 10;

/// The last bytes of a segment.
pub(crate) struct End {
    pub(crate) from: Location,
    pub(crate) bytes: usize,
}

/// What a segment holds, as far as its end was read.
pub(crate) enum Contents {
    /// The footer is longer: so many bytes of the segment's end have it.
    Behind(usize),
    Pieces(Vec<Piece>),
}

impl Store {
    /// The last `len` bytes of a segment, or all of it.
    pub(crate) fn end_of(&self, segment: SegmentId, len: usize) -> End {
        let geometry = self.log.geometry();
        let bytes = len.min(geometry.segment_bytes as usize);
        let blocks = u32::try_from(bytes / BLOCK).expect("a segment is at most 64 MiB");
        End { from: geometry.first_location(segment).plus(geometry.segment_blocks() - blocks), bytes }
    }

    /// What a segment holds, by a read of its last `len` bytes.
    pub(crate) fn contents(&self, segment: SegmentId, len: usize, read: &Outcome) -> Contents {
        let bytes =
            if let Outcome::Bytes(bytes) = read { Some(bytes).filter(|bytes| bytes.len() == len) } else { None };
        let most = self.log.geometry().segment_bytes as usize;
        match bytes.map(|bytes| decode_footer_tail(bytes)) {
            Some(Ok((_, needed))) if needed > len && needed <= most => Contents::Behind(needed.next_multiple_of(BLOCK)),
            _ => {
                let by_footer = bytes.and_then(|bytes| self.pieces_of(segment, bytes));
                Contents::Pieces(by_footer.unwrap_or_else(|| self.pieces_by_map(segment)))
            }
        }
    }

    /// What a segment holds, by its footer.
    fn pieces_of(&self, segment: SegmentId, end: &[u8]) -> Option<Vec<Piece>> {
        let (head, summary) = decode_footer(end).ok()?;
        let expected = self.log.segments().get(segment).generation;
        if head.segment != segment || head.generation != expected {
            return None;
        }
        let first_location = self.log.geometry().first_location(segment);
        let mut pieces = Vec::new();
        for batch in summary {
            let start = first_location.plus(batch.start + 1);
            let mut next = 0;
            for (_, entry) in Entry::decode_all(&batch.entries).ok()? {
                let units = entry.payload_units(next);
                next = units.end;
                let at = start.plus(units.start / BLOCK_UNITS);
                let unit = u8::try_from(units.start % BLOCK_UNITS).expect("a block has few units");
                match entry {
                    Entry::Data { object, first, .. } => {
                        let count = units.len() as u32 / BLOCK_UNITS;
                        pieces.push(Piece { object, first, at, form: Form::Plain, count });
                    }
                    Entry::Packed { object, first, blocks, .. } => {
                        pieces.push(Piece { object, first, at, form: Form::Packed(unit, 0), count: blocks });
                    }
                    Entry::Blank { object, first, blocks, .. } => {
                        let at = first_location.plus(batch.start);
                        pieces.push(Piece { object, first, at, form: Form::Blank, count: blocks });
                    }
                    _ => {}
                }
            }
        }
        Some(pieces)
    }

    /// What a segment holds, by searching the whole map: for the few segments without a footer,
    /// which were open at a crash.
    fn pieces_by_map(&self, segment: SegmentId) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (object, known) in self.objects.iter() {
            for (block, slot) in known.map().range(Block(0), Block(u64::MAX)) {
                if self.segment_of(slot.location) != segment {
                    continue;
                }
                let form = match slot.in_record() {
                    Some(place) => Form::Packed(place.unit, place.index),
                    None if slot.is_blank() => Form::Blank,
                    None => Form::Plain,
                };
                let piece = Piece { object: *object, first: block, at: slot.location, form, count: 1 };
                match pieces.last_mut() {
                    Some(last) if last.goes_on_in(&piece) => last.count += 1,
                    _ => pieces.push(piece),
                }
            }
        }
        pieces
    }
}
