//! A packed record: it is verified, and unpacked into the space that it claims and no further.

use headpond_base::{BLOCK, Block, Compression, Generation, ObjectId, PoolId};
use headpond_format::{PACKED_BLOCKS_MAX, Writer, finish_packed, pack, verify_packed};

use crate::seed::Seed;
use crate::subject::{Base, Told};

const WRITER: Writer = Writer { pool: PoolId([7; 16]), generation: Generation(3) };
const PLACE: (ObjectId, Block, Writer) = (ObjectId(5), Block(77), WRITER);

/// Bytes that must not be overwritten.
const BEHIND: [u8; 64] = [0xd7; 64];

pub(super) fn base(seed: u64) -> Base {
    let mut seed = Seed(seed);
    let compression =
        [Compression::Lz4, Compression::Lz4, Compression::Zstd(1), Compression::Zstd(5), Compression::Zstd(9)];
    let mut plain = vec![0; (1 + seed.index(PACKED_BLOCKS_MAX)) * BLOCK];
    let repeats = 1 + seed.index(5000).min(plain.len() - 1);
    seed.fill(&mut plain[..repeats]);
    let values = [0x03, 0x0f, 0x7f][seed.index(3)];
    for at in 0..plain.len() {
        plain[at] = if seed.one_in(50) { seed.below(256) as u8 } else { plain[at % repeats] } & values;
    }
    let mut bytes = pack(compression[seed.index(5)], &plain).unwrap_or_else(|| vec![0; 512]);
    finish_packed(&mut bytes, PLACE.0, PLACE.1, PLACE.2);
    // A checksum covers no range here: `run` makes forged ones right.
    Base { bytes, devices: 1, seals: Vec::new() }
}

pub(super) fn run(bytes: &[u8], forged: bool) -> Result<Told, String> {
    let (object, first, writer) = PLACE;
    let mut bytes = bytes.to_vec();
    let len = bytes.get(6..8).map_or(usize::MAX, |len| 8 + usize::from(u16::from_le_bytes([len[0], len[1]])));
    if forged && len <= bytes.len() {
        finish_packed(&mut bytes, object, first, writer);
    }
    let refused = |words: &str| Ok(Told { verdict: "refused", words: words.to_owned() });
    let Some(record) = verify_packed(&bytes, object, first, writer) else { return refused("none") };
    if record.blocks > PACKED_BLOCKS_MAX {
        return Err(format!("a record of {} blocks is taken", record.blocks));
    }
    let mut taken = false;
    for blocks in [record.blocks, record.blocks - 1, record.blocks + 1] {
        let mut room = vec![0; blocks * BLOCK];
        room.extend_from_slice(&BEHIND);
        let filled = record.unpack(&mut room[..blocks * BLOCK]);
        if room[blocks * BLOCK..] != BEHIND {
            return Err("unpacking wrote beyond its room".to_owned());
        }
        if filled && blocks != record.blocks {
            return Err(format!("a record of {} blocks fills {blocks}", record.blocks));
        }
        taken |= filled;
    }
    if taken { Ok(Told { verdict: "taken", words: "taken".to_owned() }) } else { refused("not unpacked") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_nobody_spoiled_is_taken() {
        let taken = (0..100).filter(|seed| run(&base(*seed).bytes, false).is_ok_and(|told| told.verdict == "taken"));
        assert!(taken.count() > 90, "hardly anything is packed");
    }
}
