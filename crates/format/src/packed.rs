//! Packed records: the data of one request, compressed.
//!
//! A packed record is a head of 8 bytes and the codec's output for the record's blocks, filled up with zeros to units
//! of 512 bytes. It is read, verified and unpacked as a whole.
//!
//! Invariants:
//! - The checksum covers the head and the packed bytes. Like a block's checksum, it is bound to the object, the
//!   record's first block and the life of the segment. It is compared before the record is unpacked.
//! - Unpacking writes into the room it is given and nowhere else, whatever the bytes. A record that does not fill that
//!   room exactly is damage.
//! - A record is packed only if that saves an eighth of it or more. So packing never makes a record larger on flash.
//!
//! Where blank records are allowed, a record of zeros is not packed: its entry says all (see [`is_blank`]).

use std::cell::RefCell;

use headpond_base::{BLOCK, Block, Compression, ObjectId, ZSTD_LEVEL_MAX};

use crate::checksum::{Writer, binding, bytes_checksum};

/// Bytes of a unit. Packed records begin and end with one.
pub const UNIT: usize = 512;

/// Units of a block.
pub const BLOCK_UNITS: u32 = (BLOCK / UNIT) as u32;

/// Blocks of the largest packed record. A larger one would cost a small read more than it saves.
pub const PACKED_BLOCKS_MAX: usize = 16;

/// The most units of a packed record of `blocks` blocks: packing must save an eighth.
#[must_use]
pub const fn packed_units_max(blocks: usize) -> usize {
    blocks * (BLOCK_UNITS as usize - 1)
}

/// Checksum, codec, blocks, length of what follows.
const HEAD: usize = 8;

/// The codec of an entry whose record is blank. No record's head has it.
pub(crate) const BLANK: u8 = 3;

/// Whether all bytes are zeros. The search ends at the first other byte.
#[must_use]
pub fn is_blank(plain: &[u8]) -> bool {
    // Each byte equals the one before it. This compares as fast as memory is read.
    plain.first() == Some(&0) && plain[1..] == plain[..plain.len() - 1]
}

/// How a record is packed on flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// LZ4, block format.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Codec {
    /// The number on flash; 0 is no codec.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    /// The codec with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Zstandard's working memory: some hundred KiB of tables, made once for each thread. Each record is packed by itself:
/// the result does not depend on earlier ones.
struct Tables {
    level: u8,
    packer: Option<zstd::bulk::Compressor<'static>>,
    unpacker: Option<zstd::bulk::Decompressor<'static>>,
}

thread_local! {
    static TABLES: RefCell<Tables> = const { RefCell::new(Tables { level: 0, packer: None, unpacker: None }) };
}

/// Packs whole blocks: a head that is not sealed yet, and the packed bytes. `None` where that saves less than an
/// eighth, in whole units.
///
/// # Panics
/// When there are no blocks, or more than [`PACKED_BLOCKS_MAX`].
#[must_use]
pub fn pack(compression: Compression, plain: &[u8]) -> Option<Vec<u8>> {
    let blocks = plain.len() / BLOCK;
    assert!(
        plain.len().is_multiple_of(BLOCK) && (1..=PACKED_BLOCKS_MAX).contains(&blocks),
        "a record of {blocks} blocks"
    );
    if compression == Compression::Off || !worth_a_try(plain) {
        return None;
    }
    // The codec gives up as soon as the output does not fit: then it is not worth it.
    let mut packed = vec![0; packed_units_max(blocks) * UNIT];
    let room = &mut packed[HEAD..];
    let (codec, len) = match compression {
        Compression::Off => return None,
        Compression::Lz4 => (Codec::Lz4, lz4_into(plain, room)?),
        Compression::Zstd(level) => (Codec::Zstd, zstd_into(level.clamp(1, ZSTD_LEVEL_MAX), plain, room)?),
    };
    packed.truncate((HEAD + len).next_multiple_of(UNIT));
    // A codec may write to more of its room than its output fills.
    packed[HEAD + len..].fill(0);
    packed[4] = codec.number();
    packed[5] = u8::try_from(blocks).expect("at most PACKED_BLOCKS_MAX");
    packed[6..8].copy_from_slice(&u16::try_from(len).expect("less than 64 KiB").to_le_bytes());
    Some(packed)
}

fn lz4_into(plain: &[u8], room: &mut [u8]) -> Option<usize> {
    lz4::block::compress_to_buffer(plain, None, false, room).ok()
}

fn zstd_into(level: u8, plain: &[u8], room: &mut [u8]) -> Option<usize> {
    TABLES.with_borrow_mut(|tables| {
        if tables.level != level || tables.packer.is_none() {
            let mut packer = zstd::bulk::Compressor::new(i32::from(level)).ok()?;
            // The record's head says all of this.
            packer.include_checksum(false).ok()?;
            packer.include_contentsize(false).ok()?;
            (tables.level, tables.packer) = (level, Some(packer));
        }
        tables.packer.as_mut()?.compress_to_buffer(plain, room).ok()
    })
}

/// Whether a codec is likely to make the bytes smaller, by a sample of 1 KiB in 16 pieces from all over. In packed or
/// encrypted bytes all values are equally frequent. The sample costs a microsecond; an attempt to pack costs tens.
fn worth_a_try(plain: &[u8]) -> bool {
    const PIECES: usize = 16;
    const PIECE: usize = 64;
    let mut counts = [0_u32; 256];
    for (index, chunk) in plain.chunks_exact(plain.len() / PIECES).enumerate() {
        // A different place in each chunk: noise may come in step with the chunks, for example in the first half of
        // each sector.
        let at = index * (chunk.len() - PIECE) / (PIECES - 1);
        for byte in &chunk[at..at + PIECE] {
            counts[usize::from(*byte)] += 1;
        }
    }
    // Counts the pairs of equal bytes in the sample. Noise has 1/256 of all pairs: 5,116, counting each byte with
    // itself. The limit is where some 150 values are in use.
    let pairs: u32 = counts.iter().map(|count| count * count).sum();
    pairs > 8_000
}

/// Writes the checksum of a packed record, for its place and writer. Returns it.
///
/// # Panics
/// When [`pack`] did not make the bytes.
pub fn finish_packed(packed: &mut [u8], object: ObjectId, first: Block, writer: Writer) -> u32 {
    let checksum = checksum_of(packed, object, first, writer).expect("a record that was packed here");
    packed[..4].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

fn checksum_of(packed: &[u8], object: ObjectId, first: Block, writer: Writer) -> Option<u32> {
    let len = usize::from(u16::from_le_bytes(*packed.get(6..8)?.first_chunk()?));
    Some(bytes_checksum(packed.get(4..HEAD + len)?) ^ binding(object, first, writer))
}

/// A packed record that is proved to be what its writer wrote for this object and block.
#[derive(Clone, Copy, Debug)]
pub struct Intact<'a> {
    /// The record's checksum.
    pub checksum: u32,
    /// The record's blocks.
    pub blocks: usize,
    codec: Codec,
    packed: &'a [u8],
}

/// Verifies a packed record; `None` if these bytes are not what was written.
#[must_use]
pub fn verify_packed(bytes: &[u8], object: ObjectId, first: Block, writer: Writer) -> Option<Intact<'_>> {
    let checksum = checksum_of(bytes, object, first, writer)?;
    let told = u32::from_le_bytes(*bytes.first_chunk()?);
    let (codec, blocks) = (Codec::from_number(bytes[4])?, usize::from(bytes[5]));
    let len = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
    let fits = (1..=PACKED_BLOCKS_MAX).contains(&blocks);
    (told == checksum && fits).then(|| Intact { checksum, blocks, codec, packed: &bytes[HEAD..HEAD + len] })
}

impl Intact<'_> {
    /// Unpacks the record. `false` unless it fills `plain` exactly; then the content of `plain` is undefined.
    #[must_use]
    pub fn unpack(&self, plain: &mut [u8]) -> bool {
        let len = match self.codec {
            Codec::Lz4 => {
                let most = i32::try_from(plain.len()).ok();
                most.and_then(|most| lz4::block::decompress_to_buffer(self.packed, Some(most), plain).ok())
            }
            Codec::Zstd => TABLES.with_borrow_mut(|tables| {
                if tables.unpacker.is_none() {
                    tables.unpacker = Some(zstd::bulk::Decompressor::new().ok()?);
                }
                tables.unpacker.as_mut()?.decompress_to_buffer(self.packed, plain).ok()
            }),
        };
        plain.len() == self.blocks * BLOCK && len == Some(plain.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::{Generation, PoolId};
    use proptest::prelude::*;

    const ALL: [Compression; 4] =
        [Compression::Lz4, Compression::Zstd(1), Compression::Zstd(3), Compression::Zstd(ZSTD_LEVEL_MAX)];
    const WRITER: Writer = Writer { pool: PoolId([4; 16]), generation: Generation(3) };
    const PLACE: (ObjectId, Block, Writer) = (ObjectId(1), Block(2), WRITER);

    fn noise(len: usize, mut state: u64) -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn text(blocks: usize) -> Vec<u8> {
        let line = |at: usize| format!("record {at} of a table that is much like any other, {}\n", at * 7919 % 1013);
        (0..).flat_map(|at| line(at).into_bytes()).take(blocks * BLOCK).collect()
    }

    fn sealed(compression: Compression, plain: &[u8]) -> Option<Vec<u8>> {
        let mut packed = pack(compression, plain)?;
        finish_packed(&mut packed, PLACE.0, PLACE.1, PLACE.2);
        Some(packed)
    }

    fn read_back(packed: &[u8]) -> Option<Vec<u8>> {
        let intact = verify_packed(packed, PLACE.0, PLACE.1, PLACE.2)?;
        let mut plain = vec![0xa5; intact.blocks * BLOCK];
        intact.unpack(&mut plain).then_some(plain)
    }

    #[test]
    fn a_packed_record_reads_back_only_in_its_place_and_life() {
        for compression in ALL {
            for blocks in 1..=PACKED_BLOCKS_MAX {
                let plain = text(blocks);
                let packed = sealed(compression, &plain).unwrap();
                assert!(packed.len().is_multiple_of(UNIT) && packed.len() <= packed_units_max(blocks) * UNIT);
                assert_eq!(read_back(&packed).as_deref(), Some(&plain[..]), "{compression}, {blocks} blocks");
                let (object, first, writer) = PLACE;
                assert!(verify_packed(&packed, ObjectId(9), first, writer).is_none(), "another object");
                assert!(verify_packed(&packed, object, Block(9), writer).is_none(), "another position");
                assert!(
                    verify_packed(&packed, object, first, Writer { generation: Generation(9), ..writer }).is_none(),
                    "another life"
                );
            }
        }
    }

    #[test]
    fn noise_is_left_alone_and_noise_that_is_in_step_with_sectors_or_blocks_hides_nothing() {
        assert_eq!(ALL.map(|compression| pack(compression, &noise(4 * BLOCK, 7))), [const { None }; 4]);
        for step in [128, 512, 1024, BLOCK] {
            for first in [true, false] {
                let mut plain = noise(4 * BLOCK, 7);
                for sector in plain.chunks_exact_mut(step) {
                    let (one, other) = sector.split_at_mut(step / 2);
                    if first { one.fill(0) } else { other.fill(0) }
                }
                for compression in ALL {
                    let packed = pack(compression, &plain).map(|packed| packed.len());
                    assert!(
                        packed.is_some_and(|len| len < 3 * BLOCK),
                        "{compression}, half of each {step}: {packed:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_flipped_bit_of_a_packed_record_goes_unnoticed() {
        for compression in ALL {
            let mut packed = sealed(compression, &text(4)).unwrap();
            let len = HEAD + usize::from(u16::from_le_bytes([packed[6], packed[7]]));
            for bit in 0..len * 8 {
                packed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read_back(&packed), None, "bit {bit} flipped unnoticed");
                packed[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn what_would_not_shrink_is_left_as_it_is() {
        for compression in ALL {
            assert_eq!(pack(compression, &noise(4 * BLOCK, 7)), None);
            let mut mostly_noise = noise(16 * BLOCK, 8);
            mostly_noise[..BLOCK].fill(0);
            assert_eq!(pack(compression, &mostly_noise), None, "a sixteenth is no gain");
        }
        assert_eq!(pack(Compression::Off, &text(4)), None);
        let digits: Vec<u8> = noise(4 * BLOCK, 9).iter().map(|byte| b'0' + byte % 10).collect();
        assert!(
            pack(Compression::Zstd(1), &digits).is_some_and(|packed| packed.len() <= 2 * BLOCK),
            "half of it is air"
        );
    }

    #[test]
    fn only_zeros_are_blank() {
        let mut plain = vec![0; 4 * BLOCK];
        assert!(is_blank(&plain) && !is_blank(&[]));
        for at in [0, 1, 7, 8, BLOCK - 1, BLOCK, 4 * BLOCK - 1] {
            plain[at] = 1;
            assert!(!is_blank(&plain), "byte {at} is none");
            plain[at] = 0;
        }
        assert!(!is_blank(&[7; BLOCK]));
    }

    #[test]
    fn zeros_that_are_packed_all_the_same_take_one_unit() {
        for compression in ALL {
            assert_eq!(pack(compression, &[0; 16 * BLOCK]).map(|packed| packed.len()), Some(UNIT), "{compression}");
        }
    }

    #[test]
    fn a_record_that_unpacks_to_another_length_is_damage() {
        for compression in ALL {
            for (told, blocks) in [(3, 4), (5, 4), (16, 1), (0, 1), (17, 1)] {
                let mut packed = pack(compression, &text(blocks)).unwrap();
                packed[5] = told;
                finish_packed(&mut packed, PLACE.0, PLACE.1, PLACE.2);
                assert_eq!(read_back(&packed), None);
            }
        }
    }

    proptest! {
        #[test]
        fn forged_bytes_under_a_right_checksum_write_no_further_than_their_room(
            codec in 0_u8..4,
            blocks in 0_u8..20,
            body in proptest::collection::vec(any::<u8>(), 0..700),
        ) {
            let mut packed = vec![0; HEAD];
            packed.extend_from_slice(&body);
            (packed[4], packed[5]) = (codec, blocks);
            packed[6..8].copy_from_slice(&(body.len() as u16).to_le_bytes());
            finish_packed(&mut packed, PLACE.0, PLACE.1, PLACE.2);
            read_back(&packed);
        }
    }
}
