//! Checksums. CRC-32C (RFC 3720, section 12.1), because the CPU computes it at memory speed and
//! its 32 bits fit into a map slot, where they guard every read.

use headpond_base::{BLOCK, Block, Generation, ObjectId};

use crc_fast::{CrcAlgorithm, checksum};

/// Checksum of some bytes, without any binding.
#[must_use]
pub fn bytes_checksum(bytes: &[u8]) -> u32 {
    let crc = checksum(CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("a 32-bit CRC has 32 bits")
}

/// Checksum of one block's bytes, bound to the object, the position in it, and the life of the
/// segment it is written to. Defends against misdirected and lost writes: bytes that were
/// written for another place or time do not match, whatever they contain.
///
/// # Panics
/// When `bytes` is not one block long.
#[must_use]
pub fn block_checksum(bytes: &[u8], object: ObjectId, block: Block, generation: Generation) -> u32 {
    assert_eq!(bytes.len(), BLOCK, "a checksum is over one whole block");
    bytes_checksum(bytes) ^ binding(object, block, generation)
}

/// Whether `bytes` are what was written for this object, position and generation.
#[must_use]
pub fn verify_block(bytes: &[u8], expected: u32, object: ObjectId, block: Block, generation: Generation) -> bool {
    bytes.len() == BLOCK && block_checksum(bytes, object, block, generation) == expected
}

/// Mixes the identity into 32 bits. Two different identities agree with probability 2^-32
/// (the finaliser of SplitMix64: Steele, Lea and Flood, OOPSLA 2014). XOR-ing it onto the CRC
/// costs a few instructions instead of a second pass over a prefix.
pub(crate) fn binding(object: ObjectId, block: Block, generation: Generation) -> u32 {
    let mut mixed = 0x9e37_79b9_7f4a_7c15_u64;
    for part in [object.0, block.0, generation.0] {
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
    fn a_block_verifies_only_in_its_own_place_and_life() {
        let bytes = [3_u8; BLOCK];
        let sum = block_checksum(&bytes, ObjectId(1), Block(2), Generation(3));
        assert!(verify_block(&bytes, sum, ObjectId(1), Block(2), Generation(3)));
        assert!(!verify_block(&bytes, sum, ObjectId(9), Block(2), Generation(3)), "another object");
        assert!(!verify_block(&bytes, sum, ObjectId(1), Block(9), Generation(3)), "another position");
        assert!(!verify_block(&bytes, sum, ObjectId(1), Block(2), Generation(9)), "another life");
        let mut rotten = bytes;
        rotten[100] ^= 1;
        assert!(!verify_block(&rotten, sum, ObjectId(1), Block(2), Generation(3)), "one bit flipped");
    }
}
