//! The present bytes of some blocks, as a request gathers them: views of the memory that they came in, and zeros where
//! nothing came. So what flash or the origin gave is what the application gets, without a copy.
//!
//! The price: until the request is answered it keeps all of the memory that any of its blocks lies in.

use headpond_base::{BLOCK, Buf, BufMut};

/// An answer in more pieces is copied into one: half of what the mount hands to the kernel at once, for a read of its
/// may be two requests.
const PIECES_MOST: usize = 8;

static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Bytes of so many blocks, in whole blocks.
#[derive(Default)]
pub(crate) struct Gathered {
    blocks: usize,
    /// In order, each with the block where it begins. None is empty, and none overlaps another.
    pieces: Vec<(usize, Buf)>,
}

impl Gathered {
    /// There are so many blocks.
    pub(crate) const fn expect(&mut self, blocks: usize) {
        self.blocks = blocks;
    }

    /// Puts whole blocks to their place, to which nothing came yet.
    pub(crate) fn put(&mut self, at: usize, bytes: Buf) {
        let index = self.pieces.partition_point(|(other, _)| *other < at);
        if let Some((before, last)) = index.checked_sub(1).and_then(|index| self.pieces.get_mut(index))
            && *before + last.len() / BLOCK == at
            && last.extend(&bytes, bytes.len())
        {
            return;
        }
        self.pieces.insert(index, (at, bytes));
    }

    /// The bytes of one block.
    pub(crate) fn block(&self, index: usize) -> &[u8] {
        let next = self.pieces.partition_point(|(at, _)| *at <= index);
        let piece = next.checked_sub(1).and_then(|found| self.pieces.get(found));
        piece.and_then(|(at, bytes)| bytes.as_chunks::<BLOCK>().0.get(index - at)).unwrap_or(&ZEROS)
    }

    /// So many bytes from byte `skip` of the first block on. They end in the last block.
    pub(crate) fn into_bytes(self, skip: usize, len: usize) -> Vec<Buf> {
        let all = self.blocks * BLOCK;
        let mut whole: Vec<Buf> = Vec::with_capacity(self.pieces.len());
        let mut end = 0;
        for (at, bytes) in self.pieces {
            if at > end {
                whole.push(BufMut::zeroed((at - end) * BLOCK).freeze());
            }
            end = at + bytes.len() / BLOCK;
            if !whole.last_mut().is_some_and(|last| last.extend(&bytes, bytes.len())) {
                whole.push(bytes);
            }
        }
        if end < self.blocks {
            whole.push(BufMut::zeroed((self.blocks - end) * BLOCK).freeze());
        }
        if whole.len() > PIECES_MOST {
            whole = vec![joined(&whole, all)];
        }
        if let Some(last) = whole.last_mut() {
            *last = last.slice(0..last.len() - (all - skip - len));
        }
        if let Some(first) = whole.first_mut() {
            *first = first.slice(skip..first.len());
        }
        whole
    }
}

fn joined(pieces: &[Buf], len: usize) -> Buf {
    let mut bytes = BufMut::unwritten(len);
    let mut at = 0;
    for piece in pieces {
        bytes[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(bytes: &[u8]) -> Buf {
        let mut buf = BufMut::zeroed(bytes.len() * BLOCK);
        for (block, byte) in buf.chunks_mut(BLOCK).zip(bytes) {
            block.fill(*byte);
        }
        buf.freeze()
    }

    fn flat(pieces: &[Buf]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
    }

    #[test]
    fn what_came_in_any_order_is_answered_in_the_order_of_the_file_with_zeros_between() {
        let mut gathered = Gathered::default();
        gathered.expect(6);
        gathered.put(4, blocks(&[5]));
        gathered.put(1, blocks(&[2, 3]));
        let seen: Vec<u8> = (0..6).map(|index| gathered.block(index)[100]).collect();
        assert_eq!(seen, [0, 2, 3, 0, 5, 0]);
        let expected = flat(&[blocks(&[0, 2, 3, 0, 5, 0])]);
        assert_eq!(flat(&gathered.into_bytes(7, 5 * BLOCK)), expected[7..7 + 5 * BLOCK]);
    }

    #[test]
    fn what_lies_together_in_memory_is_answered_without_a_copy() {
        let whole = blocks(&[1, 2, 3]);
        let mut gathered = Gathered::default();
        gathered.expect(3);
        gathered.put(2, whole.slice(2 * BLOCK..3 * BLOCK));
        gathered.put(0, whole.slice(0..BLOCK));
        gathered.put(1, whole.slice(BLOCK..2 * BLOCK));
        let pieces = gathered.into_bytes(1, 3 * BLOCK - 2);
        assert!(pieces.len() == 1 && pieces[0].is_same_view(&whole.slice(1..3 * BLOCK - 1)));
    }

    #[test]
    fn scattered_blocks_are_answered_in_one_piece() {
        let bytes: Vec<u8> = (1..=20).collect();
        let mut gathered = Gathered::default();
        gathered.expect(bytes.len());
        bytes.iter().enumerate().for_each(|(at, byte)| gathered.put(at, blocks(&[*byte])));
        let pieces = gathered.into_bytes(0, bytes.len() * BLOCK);
        assert_eq!((pieces.len(), flat(&pieces)), (1, flat(&[blocks(&bytes)])));
    }
}
