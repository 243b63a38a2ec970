//! A batch: a head block that lists entries, then their payload. One write carries data and its map entry. The head's
//! checksum and the checksums of the payload make the batch whole or nothing.

use headpond_base::{BLOCK, BatchNumber, Epoch, Generation, OwnerNumber, PoolId, RECORD_BLOCKS_MAX, SegmentId, Stream};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::number::{counted, counted_from_one};
use crate::{Damage, bytes_checksum};

const MAGIC: [u8; 4] = *b"HPba";
const WHAT: &str = "batch";

/// The most blocks of payload in one batch: one record of the largest size.
pub const BATCH_PAYLOAD_BLOCKS_MAX: usize = RECORD_BLOCKS_MAX;

/// Bytes for entries in a batch's head block.
pub const BATCH_ENTRY_BYTES: usize = BLOCK - size_of::<Raw>();

/// What a batch's head says, without the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHead {
    /// The pool that the batch belongs to. Defends against a segment of another pool.
    pub pool: PoolId,
    /// The use of the pool in which the batch was written. Defends against batches that an earlier recovery dropped.
    pub epoch: Epoch,
    /// The segment that the batch lies in. Defends against misdirected writes.
    pub segment: SegmentId,
    /// The life of that segment. Defends against batches of an earlier life.
    pub generation: Generation,
    /// The batch's stream.
    pub stream: Stream,
    /// The batch's place in the order of submission.
    pub number: BatchNumber,
    /// The last host batch before this one. This chain shows when a batch is missing.
    pub previous_host: BatchNumber,
    /// The owner that made the batch.
    pub owner: OwnerNumber,
    /// Everything up to this batch was durable when the present one was made.
    pub synced_through: BatchNumber,
    /// The last host batch up to `synced_through`. If the chain ends before it, synced writes are lost.
    pub synced_host: BatchNumber,
    /// Blocks of payload that follow.
    pub payload_blocks: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    /// Over all bytes of the block, with this field as zero.
    checksum: U32,
    pool: [u8; 16],
    epoch: U64,
    generation: U64,
    number: U64,
    previous_host: U64,
    synced_through: U64,
    synced_host: U64,
    segment: U32,
    payload_blocks: U32,
    entry_bytes: U16,
    stream: u8,
    reserved: [u8; 5],
    owner: U64,
    more: [u8; 32],
}

const _: () = assert!(size_of::<Raw>() == 128);

/// Fills `block` with the head of a batch. `entries` are its entries, encoded.
///
/// # Panics
/// When `block` is not one block long, or the entries do not fit. The writer closes a batch before that.
pub fn encode_batch(head: &BatchHead, entries: &[u8], block: &mut [u8]) {
    assert_eq!(block.len(), BLOCK, "a batch head is one block");
    let mut raw = Raw::new_zeroed();
    raw.magic = MAGIC;
    raw.pool = head.pool.0;
    raw.epoch = head.epoch.0.into();
    raw.generation = head.generation.0.into();
    raw.number = head.number.0.into();
    raw.previous_host = head.previous_host.0.into();
    raw.synced_through = head.synced_through.0.into();
    raw.synced_host = head.synced_host.0.into();
    raw.segment = head.segment.0.into();
    raw.payload_blocks = head.payload_blocks.into();
    raw.entry_bytes = u16::try_from(entries.len()).expect("entries fit a block").into();
    raw.stream = head.stream as u8;
    raw.owner = head.owner.0.into();
    let (front, rest) = block.split_at_mut(size_of::<Raw>());
    front.copy_from_slice(raw.as_bytes());
    rest[..entries.len()].copy_from_slice(entries);
    rest[entries.len()..].fill(0);
    let checksum = bytes_checksum(block);
    block[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads a batch's head block. Returns the head and the bytes of the entries.
///
/// # Errors
/// [`Damage`]; `Missing` when no batch starts here.
pub fn decode_batch(block: &[u8]) -> Result<(BatchHead, &[u8]), Damage> {
    let block = block.get(..BLOCK).ok_or(Damage::Short(WHAT))?;
    let (raw, rest) = Raw::ref_from_prefix(block).map_err(|_| Damage::Short(WHAT))?;
    if raw.magic != MAGIC {
        return Err(Damage::Missing(WHAT));
    }
    let mut unsigned = block.to_vec();
    unsigned[4..8].fill(0);
    if bytes_checksum(&unsigned) != raw.checksum.get() {
        return Err(Damage::Checksum(WHAT));
    }
    let senseless = |why| Damage::Senseless(WHAT, why);
    let entries = rest.get(..usize::from(raw.entry_bytes.get())).ok_or(senseless("entries longer than the block"))?;
    if raw.payload_blocks.get() as usize > BATCH_PAYLOAD_BLOCKS_MAX {
        return Err(senseless("payload larger than any batch"));
    }
    let head = BatchHead {
        pool: PoolId(raw.pool),
        epoch: Epoch(counted(WHAT, raw.epoch.get())?),
        segment: SegmentId(raw.segment.get()),
        generation: Generation(counted(WHAT, raw.generation.get())?),
        stream: Stream::from_number(raw.stream).ok_or(senseless("unknown stream"))?,
        number: BatchNumber(counted(WHAT, raw.number.get())?),
        previous_host: BatchNumber(counted(WHAT, raw.previous_host.get())?),
        synced_through: BatchNumber(counted(WHAT, raw.synced_through.get())?),
        synced_host: BatchNumber(counted(WHAT, raw.synced_host.get())?),
        owner: OwnerNumber(counted_from_one(WHAT, raw.owner.get())?),
        payload_blocks: raw.payload_blocks.get(),
    };
    Ok((head, entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;
    use headpond_base::{ObjectId, Sequence};

    #[test]
    fn a_batch_reads_back_and_no_flipped_bit_goes_unnoticed() {
        let head = BatchHead {
            pool: PoolId([1; 16]),
            epoch: Epoch(2),
            segment: SegmentId(3),
            generation: Generation(4),
            stream: Stream::Hot,
            number: BatchNumber(5),
            previous_host: BatchNumber(4),
            synced_through: BatchNumber(3),
            synced_host: BatchNumber(2),
            owner: OwnerNumber(7),
            payload_blocks: 6,
        };
        let mut entries = Vec::new();
        Entry::Forget { object: ObjectId(8) }.encode(Sequence(9), &mut entries);
        let mut block = vec![0xff; BLOCK];
        encode_batch(&head, &entries, &mut block);
        assert_eq!(decode_batch(&block), Ok((head, &entries[..])));
        for bit in 0..BLOCK * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_batch(&block).is_err(), "bit {bit} flipped unnoticed");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
