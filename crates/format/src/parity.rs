//! The parity of a row of segments, byte by byte.
//!
//! Invariants:
//! - What is missing of a row, be it a segment or the parity, is the combination of all the rest.
//! - Where several structures of the format lie above each other, the parity looks like none of them. CRC-32C is linear:
//!   without the inverted bits the exclusive or of three heads would be a head with a valid checksum.

use headpond_base::{Buf, BufMut};

/// Combines `len` bytes of each part: of all segments to the parity, or of the parity and all segments but one to that
/// one. The parts' bytes behind `len` are ignored.
///
/// # Panics
/// When a part is shorter.
pub fn combined<'a>(parts: impl IntoIterator<Item = &'a [u8]>, len: usize) -> Buf {
    let mut sum = BufMut::zeroed(len);
    sum.fill(0xff);
    for part in parts {
        for (sum, byte) in sum.iter_mut().zip(&part[..len]) {
            *sum ^= byte;
        }
    }
    sum.freeze()
}

#[cfg(test)]
mod tests {
    use headpond_base::{BLOCK, Epoch, Generation, MemberId, OwnerNumber, PoolId, SegmentId, Stream};

    use super::*;
    use crate::{Damage, Layout, Place, Placement, SegmentHead, Writer, decode_segment_head, encode_segment_head};

    fn head(number: u32) -> Vec<u8> {
        let pool = PoolId([3; 16]);
        let generation = Generation(u64::from(number) + 100);
        let head = SegmentHead { pool, epoch: Epoch(4), segment: SegmentId(number), generation, stream: Stream::Host };
        let place = |member: u32| Place { member: MemberId(member as u16), slot: number };
        let here = place(number % 4);
        let layout = Layout::Mirror(vec![here, place((number + 1) % 4)]);
        let writer = Writer { pool, generation };
        let placement = Placement { owner: OwnerNumber(1), here, layout, writer, writer_segment: SegmentId(number) };
        let mut block = vec![0; BLOCK];
        encode_segment_head(&head, &placement, &mut block);
        block
    }

    #[test]
    fn each_part_of_a_row_is_what_the_others_come_to() {
        let parts: Vec<Vec<u8>> = (0..5).map(head).collect();
        let parity = combined(parts.iter().map(Vec::as_slice), BLOCK);
        for missing in 0..parts.len() {
            let others = parts.iter().enumerate().filter(|(part, _)| *part != missing).map(|(_, part)| part.as_slice());
            assert_eq!(combined(others.chain([&parity[..]]), BLOCK)[..], parts[missing]);
        }
    }

    #[test]
    fn no_parity_of_heads_is_a_head() {
        for segments in 1..=15 {
            let parts: Vec<Vec<u8>> = (0..segments).map(head).collect();
            let parity = combined(parts.iter().map(Vec::as_slice), BLOCK);
            assert!(matches!(decode_segment_head(&parity), Err(Damage::Missing(_))), "{segments}");
            assert_ne!(parity[8..24], [3; 16], "nor does it name the pool");
        }
    }
}
