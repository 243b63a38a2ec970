//! Checksums. CRC-32C (RFC 3720, section 12.1): the CPU computes it at memory speed, and its 32 bits fit into a map
//! slot, where they guard every read.

use headpond_base::{BLOCK, Block, Generation, ObjectId, PoolId};

use crc_fast::{CrcAlgorithm, checksum};

/// Checksum of some bytes, bound to nothing.
#[must_use]
pub fn bytes_checksum(bytes: &[u8]) -> u32 {
    let crc = checksum(CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("a 32-bit CRC has 32 bits")
}

/// The pool that made a batch, and the life of its segment at that time. A pool's own segments name the pool itself. A
/// replica names the pool that it copies, so its bytes verify unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writer {
    /// The pool.
    pub pool: PoolId,
    /// The life of the pool's segment.
    pub generation: Generation,
}

/// Checksum of one block, bound to its object, its position in the object and the writer. Defends against misdirected
/// and lost writes: bytes written for another place or time do not match, even if they are equal.
///
/// # Panics
/// When `bytes` is not one block long.
#[must_use]
pub fn block_checksum(bytes: &[u8], object: ObjectId, block: Block, writer: Writer) -> u32 {
    assert_eq!(bytes.len(), BLOCK, "a checksum is over one whole block");
    bytes_checksum(bytes) ^ binding(object, block, writer)
}

/// Whether `bytes` are what this writer wrote for this object and position.
#[must_use]
pub fn verify_block(bytes: &[u8], expected: u32, object: ObjectId, block: Block, writer: Writer) -> bool {
    bytes.len() == BLOCK && block_checksum(bytes, object, block, writer) == expected
}

/// Mixes the identity into 32 bits. Two different identities agree with probability 2^-32 (the finaliser of
/// SplitMix64: Steele, Lea and Flood, OOPSLA 2014). One XOR with the CRC costs a few instructions; a prefix would cost
/// a second pass. The first eight bytes of the pool's name are the start: the name is random.
pub(crate) fn binding(object: ObjectId, block: Block, writer: Writer) -> u32 {
    let [a, b, c, d, e, f, g, h, ..] = writer.pool.0;
    let mut mixed = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    for part in [object.0, block.0, writer.generation.0] {
        mixed = (mixed ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
    }
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_verifies_only_in_its_own_place_and_for_its_writer() {
        let bytes = [3_u8; BLOCK];
        let (object, block, writer) =
            (ObjectId(1), Block(2), Writer { pool: PoolId([4; 16]), generation: Generation(3) });
        let sum = block_checksum(&bytes, object, block, writer);
        assert!(verify_block(&bytes, sum, object, block, writer));
        assert!(!verify_block(&bytes, sum, ObjectId(9), block, writer), "another object");
        assert!(!verify_block(&bytes, sum, object, Block(9), writer), "another position");
        let later = Writer { generation: Generation(9), ..writer };
        assert!(!verify_block(&bytes, sum, object, block, later), "another life");
        let other = Writer { pool: PoolId([9; 16]), ..writer };
        assert!(!verify_block(&bytes, sum, object, block, other), "another pool");
        let mut rotten = bytes;
        rotten[100] ^= 1;
        assert!(!verify_block(&rotten, sum, object, block, writer), "one bit flipped");
    }
}
