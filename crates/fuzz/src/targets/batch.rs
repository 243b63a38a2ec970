//! A batch's head block, and the entries in it.

use headpond_base::{
    BLOCK, BatchNumber, Block, Class, Epoch, Generation, ObjectId, OwnerNumber, PoolId, SegmentId, Sequence, Stream,
    UnixNanos,
};
use headpond_format::{
    BATCH_ENTRY_BYTES, BatchHead, Codec, Entry, FileIdentity, Identity, ObjectFlags, ObjectState, Stamp, Witness,
    decode_batch, encode_batch,
};

use super::{same, told};
use crate::seals::Seal;
use crate::seed::Seed;
use crate::subject::{Base, Told};

pub(super) fn base(seed: u64) -> Base {
    let mut seed = Seed(seed);
    let entries = entries(&mut seed);
    let number = 1 + seed.below(1 << 40);
    let head = BatchHead {
        pool: PoolId([7; 16]),
        epoch: Epoch(seed.below(50)),
        segment: SegmentId(3),
        generation: Generation(seed.below(1000)),
        stream: Stream::ALL[seed.index(3)],
        number: BatchNumber(number),
        previous_host: BatchNumber(number - 1),
        owner: OwnerNumber(1 + seed.below(9)),
        synced_through: BatchNumber(number - 1),
        synced_host: BatchNumber(number / 2),
        payload_blocks: u32::try_from(seed.below(257)).unwrap_or(0),
    };
    let mut bytes = vec![0; BLOCK];
    encode_batch(&head, &entries, &mut bytes);
    Base {
        bytes,
        devices: 1,
        seals: vec![Seal::new(0..BLOCK, 4, 8..128), Seal::new(0..BLOCK, 4, 128..128 + entries.len().max(1))],
    }
}

/// Some entries of every kind, as bytes.
pub(super) fn entries(seed: &mut Seed) -> Vec<u8> {
    let mut bytes = Vec::new();
    for sequence in 0..1 + seed.below(20) {
        let (object, first, blocks) = (ObjectId(1 + seed.below(9)), Block(seed.below(1 << 30)), 1 + seed.below(100));
        let mtime = UnixNanos(seed.next().cast_signed());
        let without_birth = seed.one_in(8);
        let mut path = vec![b'p'; seed.index(200)];
        seed.fill(&mut path);
        let entry = match seed.below(11) {
            0 => Entry::Object {
                object,
                state: ObjectState {
                    identity: Identity::File(FileIdentity {
                        inode: seed.next(),
                        birth: if without_birth { UnixNanos(0) } else { mtime },
                    }),
                    made_at: if without_birth { mtime } else { UnixNanos(0) },
                    flags: ObjectFlags { destaging: seed.one_in(2), ..ObjectFlags::default() },
                    size: seed.below(1 << 50),
                    origin_valid: u64::MAX,
                    mtime,
                    ctime: UnixNanos(seed.next().cast_signed()),
                    witness: Witness::File(Stamp { size: seed.next(), mtime, ctime: mtime }),
                    path,
                },
            },
            1 | 2 => Entry::Data {
                object,
                first,
                dirty: seed.one_in(2),
                grown: seed.one_in(2).then_some((1 << 40, mtime)),
                class: Class::from_bits(seed.below(16) as u8),
                checksums: (0..1 + seed.below(30)).map(|at| u32::try_from(at).unwrap_or(0)).collect(),
            },
            9 => {
                let few = 1 + seed.below(16) as u32;
                Entry::Packed {
                    object,
                    first,
                    blocks: few,
                    dirty: seed.one_in(2),
                    grown: seed.one_in(2).then_some((1 << 40, mtime)),
                    class: Class::from_bits(seed.below(16) as u8),
                    codec: if seed.one_in(2) { Codec::Lz4 } else { Codec::Zstd },
                    units: 1 + seed.below(u64::from(few) * 7) as u32,
                    checksum: seed.next() as u32,
                }
            }
            10 => Entry::Blank {
                object,
                first,
                blocks: 1 + seed.below(257) as u32,
                dirty: seed.one_in(2),
                grown: seed.one_in(2).then_some((1 << 40, mtime)),
                class: Class::from_bits(seed.below(16) as u8),
            },
            3 => Entry::Zero { object, first, blocks, mtime },
            4 => Entry::Drop { object, first, blocks },
            5 => Entry::Clean { object, first, blocks },
            6 => Entry::Truncate { object, size: seed.below(1 << 50), mtime },
            7 => Entry::Rename { from: path.clone(), to: path },
            _ => Entry::Forget { object },
        };
        let before = bytes.len();
        entry.encode(Sequence(1 + sequence), &mut bytes);
        if bytes.len() > BATCH_ENTRY_BYTES {
            bytes.truncate(before);
            break;
        }
    }
    bytes
}

/// Decodes entries, encodes them, and compares.
pub(super) fn check_entries(bytes: &[u8]) -> Result<(), String> {
    let Ok(entries) = Entry::decode_all(bytes) else { return Ok(()) };
    let mut again = Vec::new();
    for (sequence, entry) in &entries {
        entry.encode(*sequence, &mut again);
    }
    same("entries", &Ok(entries), &Entry::decode_all(&again))
}

pub(super) fn run(bytes: &[u8]) -> Result<Told, String> {
    let decoded = decode_batch(bytes);
    let Ok((head, entries)) = &decoded else { return Ok(told(decoded)) };
    let mut block = vec![0; BLOCK];
    encode_batch(head, entries, &mut block);
    same("a batch", &decoded, &decode_batch(&block))?;
    check_entries(entries)?;
    Ok(told(Entry::decode_all(entries)))
}
