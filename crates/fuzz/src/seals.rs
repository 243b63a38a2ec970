//! Where some bytes have their structures, and how to make the checksum of each right again.

use std::ops::Range;

use headpond_base::BLOCK;
use headpond_format::{
    FOOTER_TAIL_BYTES, FRAME_HEAD, SUPERBLOCK_SLOTS, Superblock, bytes_checksum, decode_batch, decode_checkpoint_head,
    decode_footer_tail, decode_frame, decode_segment_head, decode_superblock,
};

/// A structure and its checksum.
#[derive(Clone, Debug)]
pub(crate) struct Seal {
    /// The bytes that the checksum covers.
    pub(crate) covers: Range<usize>,
    /// The place of its four bytes, which count as zero.
    pub(crate) at: usize,
    /// The place of the most important fields.
    pub(crate) fields: Range<usize>,
}

impl Seal {
    pub(crate) fn new(covers: Range<usize>, at: usize, fields: Range<usize>) -> Self {
        Self { covers, at, fields }
    }

    /// The same, so many bytes further on.
    pub(crate) fn moved(&self, by: usize) -> Self {
        let moved = |range: &Range<usize>| range.start + by..range.end + by;
        Self { covers: moved(&self.covers), at: self.at + by, fields: moved(&self.fields) }
    }

    /// Makes the checksum right.
    pub(crate) fn repair(&self, bytes: &mut [u8]) {
        if self.covers.end > bytes.len() || self.at + 4 > bytes.len() {
            return;
        }
        bytes[self.at..self.at + 4].fill(0);
        let checksum = bytes_checksum(&bytes[self.covers.clone()]);
        bytes[self.at..self.at + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// All structures of a pool's image.
pub(crate) fn of_image(image: &[u8]) -> Vec<Seal> {
    let mut seals = Vec::new();
    let mut superblocks: Vec<Superblock> = Vec::new();
    for at in SUPERBLOCK_SLOTS.map(|offset| usize::try_from(offset).unwrap_or(usize::MAX)) {
        if let Some(Ok(superblock)) = image.get(at..at + BLOCK).map(decode_superblock) {
            seals.push(Seal::new(at..at + BLOCK, at + 8, at + 12..at + 152));
            superblocks.push(superblock);
        }
    }
    for superblock in &superblocks {
        let area = superblock.geometry.checkpoint_start(usize::from(superblock.checkpoint_area));
        seals.extend(of_area(image, usize::try_from(area).unwrap_or(usize::MAX)));
    }
    let Some(geometry) = superblocks.first().map(|superblock| superblock.geometry) else { return seals };
    let start = usize::try_from(geometry.segments_start).unwrap_or(usize::MAX);
    for at in (start..image.len()).step_by(BLOCK) {
        let Some(block) = image.get(at..at + BLOCK) else { break };
        if let Ok((_, entries)) = decode_batch(block) {
            seals.push(Seal::new(at..at + BLOCK, at + 4, at + 8..at + 128 + entries.len()));
        } else if decode_segment_head(block).is_ok() {
            seals.push(Seal::new(at..at + BLOCK, at + 4, at + 8..at + 64));
        } else if let Ok((_, len)) = decode_footer_tail(block) {
            let end = at + BLOCK;
            seals.push(Seal::new(end - len..end, end - FOOTER_TAIL_BYTES + 4, end - len..end));
        }
    }
    seals
}

/// The structures of a checkpoint area.
pub(crate) fn of_area(image: &[u8], area: usize) -> Vec<Seal> {
    let mut seals = Vec::new();
    let Some(Ok(head)) = image.get(area..area + BLOCK).map(decode_checkpoint_head) else { return seals };
    seals.push(Seal::new(area..area + BLOCK, area + 4, area + 8..area + 88));
    let mut at = area + BLOCK;
    while let Some(Ok((frame, len))) = image.get(at..).map(|rest| decode_frame(rest, head.counter)) {
        seals.push(Seal::new(at..at + len, at + 4, at + 8..at + len));
        at += len;
        if frame.payload.is_empty() && len == FRAME_HEAD {
            break;
        }
    }
    seals
}
