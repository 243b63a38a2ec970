//! Entries: the lines of the log. A batch holds some, with their payload. A segment's footer repeats them all.
//!
//! Invariant: an entry sets the whole state of what it touches. So replay in the order of sequences ends in the same
//! state from any checkpoint on, however often you repeat it.

use std::ops::Range;

use headpond_base::{Block, Class, ObjectId, RECORD_BLOCKS_MAX, Sequence, UnixNanos};
use zerocopy::little_endian::{I64, U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::Damage;
use crate::number::counted;
use crate::object::{OBJECT_PATH_MAX, ObjectState};
use crate::packed::{BLANK, BLOCK_UNITS, Codec, PACKED_BLOCKS_MAX, packed_units_max};

const WHAT: &str = "entry";

/// One line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The object has this state now.
    Object {
        /// The object.
        object: ObjectId,
        /// Its whole state.
        state: ObjectState,
    },
    /// These blocks have the payload that comes with the entry.
    Data {
        /// The object.
        object: ObjectId,
        /// The first block.
        first: Block,
        /// `true`: newer than the origin. `false`: a copy of what the origin has.
        dirty: bool,
        /// The object's size and time after this write. `None` for clean data and for data that reclaim moved.
        grown: Option<(u64, UnixNanos)>,
        /// The class of the blocks.
        class: Class,
        /// A checksum for each block: see [`crate::block_checksum`].
        checksums: Vec<u32>,
    },
    /// Like `Data`, as a packed record: see `packed.rs`.
    Packed {
        /// The object.
        object: ObjectId,
        /// The first block.
        first: Block,
        /// How many, up to [`PACKED_BLOCKS_MAX`].
        blocks: u32,
        /// `true`: newer than the origin. `false`: a copy of what the origin has.
        dirty: bool,
        /// The object's size and time after this write. `None` for clean data and for data that reclaim moved.
        grown: Option<(u64, UnixNanos)>,
        /// The class of the blocks.
        class: Class,
        /// The codec. For people: the record itself says it, too.
        codec: Codec,
        /// Payload in units of 512 bytes.
        units: u32,
        /// The record's checksum: see [`crate::finish_packed`].
        checksum: u32,
    },
    /// Like `Data`, as a blank record: the blocks are zeros, and the entry has no payload.
    Blank {
        /// The object.
        object: ObjectId,
        /// The first block.
        first: Block,
        /// How many, up to [`RECORD_BLOCKS_MAX`].
        blocks: u32,
        /// `true`: newer than the origin. `false`: a copy of what the origin has.
        dirty: bool,
        /// The object's size and time after this write. `None` for clean data and for data that reclaim moved.
        grown: Option<(u64, UnixNanos)>,
        /// The class of the blocks.
        class: Class,
    },
    /// These blocks are zeros, newer than the origin.
    Zero {
        /// The object.
        object: ObjectId,
        /// The first block.
        first: Block,
        /// How many.
        blocks: u64,
        /// The object's modification time after this.
        mtime: UnixNanos,
    },
    /// The copies of these blocks on flash no longer count. The origin has what counts.
    Drop {
        /// The object.
        object: ObjectId,
        /// The first block.
        first: Block,
        /// How many.
        blocks: u64,
    },
    /// The origin has these blocks now, as they are on flash.
    Clean {
        /// The object.
        object: ObjectId,
        /// The first block.
        first: Block,
        /// How many.
        blocks: u64,
    },
    /// The object ends here. Blocks beyond are gone.
    Truncate {
        /// The object.
        object: ObjectId,
        /// The new size in bytes, smaller or larger than before.
        size: u64,
        /// The object's modification time after this.
        mtime: UnixNanos,
    },
    /// A file, or a directory with all below it, has another path.
    Rename {
        /// The old path.
        from: Vec<u8>,
        /// The new path.
        to: Vec<u8>,
    },
    /// The object and its blocks are gone.
    Forget {
        /// The object.
        object: ObjectId,
    },
    /// Nothing changed. Carries the chain of the host stream over batches of other streams.
    Mark,
}

mod kind {
    pub const OBJECT: u8 = 1;
    pub const DATA: u8 = 2;
    pub const ZERO: u8 = 3;
    pub const DROP: u8 = 4;
    pub const CLEAN: u8 = 5;
    pub const TRUNCATE: u8 = 6;
    pub const RENAME: u8 = 7;
    pub const FORGET: u8 = 8;
    pub const MARK: u8 = 9;
}

const DIRTY: u8 = 1;
const GROWN: u8 = 2;

/// The fixed part of an entry.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    kind: u8,
    flags: u8,
    /// How the payload is stored: 0 as it is, else a [`Codec`] or [`BLANK`]. In entries of data only.
    codec: u8,
    /// The class of a record, in the lower four bits.
    class: u8,
    /// Bytes of the whole entry, its tail included: a multiple of 4.
    len: U16,
    /// Payload in units of 512 bytes: eight a block, unless the record is packed or blank.
    stored: U16,
    object: U64,
    first: U64,
    blocks: U64,
    sequence: U64,
    size: U64,
    mtime: I64,
}

const HEAD: usize = size_of::<Raw>();
const _: () = assert!(HEAD == 56);

impl Raw {
    /// Sets what all records of data have, however they are stored.
    fn set_record(
        &mut self,
        (object, first, blocks): (ObjectId, Block, u64),
        dirty: bool,
        grown: Option<(u64, UnixNanos)>,
        class: Class,
    ) {
        self.kind = kind::DATA;
        self.flags = if dirty { DIRTY } else { 0 } | if grown.is_some() { GROWN } else { 0 };
        self.class = class.number();
        (self.object, self.first, self.blocks) = (object.0.into(), first.0.into(), blocks.into());
        if let Some((size, mtime)) = grown {
            (self.size, self.mtime) = (size.into(), mtime.0.into());
        }
    }
}

impl Entry {
    /// Appends the entry, with its place in the order, to `out`.
    ///
    /// # Panics
    /// When a path is longer than [`OBJECT_PATH_MAX`] or a record larger than [`RECORD_BLOCKS_MAX`]. The writer bounds
    /// both.
    pub fn encode(&self, sequence: Sequence, out: &mut Vec<u8>) {
        let start = out.len();
        let mut raw = Raw::new_zeroed();
        raw.sequence = sequence.0.into();
        out.resize(start + HEAD, 0);
        match self {
            Self::Object { object, state } => {
                raw.kind = kind::OBJECT;
                raw.object = object.0.into();
                raw.size = state.size.into();
                raw.mtime = state.mtime.0.into();
                (raw.first, raw.blocks) = halves(state.ctime);
                state.encode_tail(out);
            }
            Self::Data { object, first, dirty, grown, class, checksums } => {
                assert!(checksums.len() <= RECORD_BLOCKS_MAX, "a record of {} blocks", checksums.len());
                raw.set_record((*object, *first, checksums.len() as u64), *dirty, *grown, *class);
                raw.stored = u16::try_from(checksums.len() * 8).expect("bounded by RECORD_BLOCKS_MAX").into();
                for checksum in checksums {
                    out.extend_from_slice(&checksum.to_le_bytes());
                }
            }
            Self::Packed { object, first, blocks, dirty, grown, class, codec, units, checksum } => {
                assert!(fits_packed(*blocks, *units), "a packed record of {blocks} blocks in {units} units");
                raw.set_record((*object, *first, (*blocks).into()), *dirty, *grown, *class);
                raw.codec = codec.number();
                raw.stored = u16::try_from(*units).expect("bounded by packed_units_max").into();
                out.extend_from_slice(&checksum.to_le_bytes());
            }
            Self::Blank { object, first, blocks, dirty, grown, class } => {
                assert!(fits_blank((*blocks).into(), 0), "a blank record of {blocks} blocks");
                raw.set_record((*object, *first, (*blocks).into()), *dirty, *grown, *class);
                raw.codec = BLANK;
            }
            Self::Zero { object, first, blocks, mtime } => {
                raw.kind = kind::ZERO;
                (raw.object, raw.first, raw.blocks) = (object.0.into(), first.0.into(), (*blocks).into());
                raw.mtime = mtime.0.into();
            }
            Self::Drop { object, first, blocks } => {
                raw.kind = kind::DROP;
                (raw.object, raw.first, raw.blocks) = (object.0.into(), first.0.into(), (*blocks).into());
            }
            Self::Clean { object, first, blocks } => {
                raw.kind = kind::CLEAN;
                (raw.object, raw.first, raw.blocks) = (object.0.into(), first.0.into(), (*blocks).into());
            }
            Self::Truncate { object, size, mtime } => {
                raw.kind = kind::TRUNCATE;
                (raw.object, raw.size, raw.mtime) = (object.0.into(), (*size).into(), mtime.0.into());
            }
            Self::Rename { from, to } => {
                assert!(from.len().max(to.len()) <= OBJECT_PATH_MAX, "a path longer than its room");
                raw.kind = kind::RENAME;
                raw.first = (from.len() as u64).into();
                raw.blocks = (to.len() as u64).into();
                out.extend_from_slice(from);
                out.extend_from_slice(to);
            }
            Self::Forget { object } => {
                raw.kind = kind::FORGET;
                raw.object = object.0.into();
            }
            Self::Mark => raw.kind = kind::MARK,
        }
        out.resize((out.len() - start).next_multiple_of(4) + start, 0);
        raw.len = u16::try_from(out.len() - start).expect("entries are at most a few KiB").into();
        out[start..start + HEAD].copy_from_slice(raw.as_bytes());
    }

    /// The most bytes that [`Entry::encode`] appends for a record of `blocks` blocks.
    #[must_use]
    pub const fn data_len(blocks: usize) -> usize {
        HEAD + 4 * blocks
    }

    /// The most bytes that [`Entry::encode`] appends for an entry that is not data.
    pub const LEN_MAX: usize = HEAD + 2 * OBJECT_PATH_MAX;

    /// Bytes that [`Entry::encode`] appends for a packed record: never more than for the same blocks stored as they
    /// are.
    pub const PACKED_LEN: usize = HEAD + 4;

    /// Bytes that [`Entry::encode`] appends for a blank record.
    pub const BLANK_LEN: usize = HEAD;

    /// Where the payload of this entry lies in its batch, in units. `from` is the end of the payload before it.
    /// Without payload the range is empty and at `from`. Payload that is stored as it is begins with a block.
    #[must_use]
    pub fn payload_units(&self, from: u32) -> Range<u32> {
        match self {
            Self::Data { checksums, .. } => {
                let blocks = u32::try_from(checksums.len()).expect("bounded by RECORD_BLOCKS_MAX");
                let start = from.next_multiple_of(BLOCK_UNITS);
                start..start + blocks * BLOCK_UNITS
            }
            Self::Packed { units, .. } => from..from + units,
            _ => from..from,
        }
    }

    /// Reads the entry at the start of `bytes`. The third value is the bytes it took.
    ///
    /// # Errors
    /// [`Damage`] when these bytes are not an entry.
    pub fn decode(bytes: &[u8]) -> Result<(Sequence, Self, usize), Damage> {
        let senseless = |why| Damage::Senseless(WHAT, why);
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| Damage::Short(WHAT))?;
        let len = usize::from(raw.len.get());
        let tail = bytes.get(HEAD..len).ok_or(Damage::Short(WHAT))?;
        let codec = Codec::from_number(raw.codec);
        let blank = raw.codec == BLANK;
        if raw.codec != 0 && (codec.is_none() && !blank || raw.kind != kind::DATA) {
            return Err(senseless("unknown compression"));
        }
        let object = ObjectId(raw.object.get());
        let (first, blocks) = (Block(raw.first.get()), raw.blocks.get());
        let mtime = UnixNanos(raw.mtime.get());
        let grown = (raw.flags & GROWN != 0).then_some((raw.size.get(), mtime));
        let (dirty, class) = (raw.flags & DIRTY != 0, Class::from_bits(raw.class));
        // This bounds every later sum of a position and a count: files end below 2^63 bytes.
        if raw.kind != kind::RENAME && (first.0 >= 1 << 51 || blocks > 1 << 51) || raw.size.get() >= 1 << 63 {
            return Err(senseless("position beyond any file"));
        }
        let entry = match raw.kind {
            kind::OBJECT => {
                let ctime = from_halves(first.0, blocks).ok_or(senseless("status change time of more than 64 bits"))?;
                let state = ObjectState::decode((raw.size.get(), mtime, ctime), tail)?;
                Self::Object { object, state }
            }
            kind::DATA if codec.is_some() => {
                let codec = codec.ok_or(senseless("unknown compression"))?;
                let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
                let units = u32::from(raw.stored.get());
                let checksum = <&[u8; 4]>::try_from(tail).ok().filter(|_| fits_packed(blocks, units));
                let checksum = u32::from_le_bytes(*checksum.ok_or(senseless("packed record of impossible size"))?);
                Self::Packed { object, first, blocks, dirty, grown, class, codec, units, checksum }
            }
            kind::DATA if blank => {
                if !fits_blank(blocks, raw.stored.get()) || !tail.is_empty() {
                    return Err(senseless("blank record of impossible size"));
                }
                let blocks = u32::try_from(blocks).expect("bounded by RECORD_BLOCKS_MAX");
                Self::Blank { object, first, blocks, dirty, grown, class }
            }
            kind::DATA => {
                let count = usize::try_from(blocks).unwrap_or(usize::MAX);
                if count == 0 || count > RECORD_BLOCKS_MAX || tail.len() != 4 * count {
                    return Err(senseless("record of impossible size"));
                }
                let checksums = tail.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four)).collect();
                Self::Data { object, first, dirty, grown, class, checksums }
            }
            kind::ZERO => Self::Zero { object, first, blocks, mtime },
            kind::DROP => Self::Drop { object, first, blocks },
            kind::CLEAN => Self::Clean { object, first, blocks },
            kind::TRUNCATE => Self::Truncate { object, size: raw.size.get(), mtime },
            kind::RENAME => {
                let from_len = usize::try_from(raw.first.get()).unwrap_or(usize::MAX);
                let to_len = usize::try_from(blocks).unwrap_or(usize::MAX);
                if from_len.max(to_len) > OBJECT_PATH_MAX {
                    return Err(senseless("path longer than its room"));
                }
                let from = tail.get(..from_len).ok_or(Damage::Short(WHAT))?;
                let to = tail.get(from_len..from_len + to_len).ok_or(Damage::Short(WHAT))?;
                Self::Rename { from: from.to_vec(), to: to.to_vec() }
            }
            kind::FORGET => Self::Forget { object },
            kind::MARK => Self::Mark,
            _ => return Err(senseless("unknown kind")),
        };
        Ok((Sequence(counted(WHAT, raw.sequence.get())?), entry, len))
    }

    /// Reads all entries of `bytes`. `bytes` may hold nothing else.
    ///
    /// # Errors
    /// [`Damage`] of the first that cannot be decoded.
    pub fn decode_all(mut bytes: &[u8]) -> Result<Vec<(Sequence, Self)>, Damage> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            let (sequence, entry, len) = Self::decode(bytes)?;
            entries.push((sequence, entry));
            bytes = &bytes[len..];
        }
        Ok(entries)
    }
}

/// Whether a packed record can have this many blocks and units.
fn fits_packed(blocks: u32, units: u32) -> bool {
    let (blocks, units) = (blocks as usize, units as usize);
    (1..=PACKED_BLOCKS_MAX).contains(&blocks) && (1..=packed_units_max(blocks)).contains(&units)
}

/// Whether a blank record can have this many blocks and units.
fn fits_blank(blocks: u64, units: u16) -> bool {
    (1..=RECORD_BLOCKS_MAX as u64).contains(&blocks) && units == 0
}

/// Splits a time into its lower and its upper half: each field that takes one holds less than 64 bits.
fn halves(time: UnixNanos) -> (U64, U64) {
    let bits = time.0.cast_unsigned();
    ((bits & u64::from(u32::MAX)).into(), (bits >> 32).into())
}

fn from_halves(lower: u64, upper: u64) -> Option<UnixNanos> {
    let (lower, upper) = (u32::try_from(lower).ok()?, u32::try_from(upper).ok()?);
    Some(UnixNanos((u64::from(upper) << 32 | u64::from(lower)).cast_signed()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileIdentity, Identity, ObjectFlags, Stamp, VolumeId, VolumeWitness, Witness};
    use proptest::prelude::*;

    fn any_state() -> impl Strategy<Value = ObjectState> {
        let file = (
            any::<u64>(),
            0..1_u64 << 62,
            any::<u64>(),
            any::<i64>(),
            any::<u8>(),
            proptest::collection::vec(any::<u8>(), 0..OBJECT_PATH_MAX),
        )
            .prop_map(|(inode, size, origin_valid, time, bits, path)| ObjectState {
                identity: Identity::File(FileIdentity {
                    inode,
                    birth: UnixNanos(if inode % 2 == 0 { time ^ 5 } else { 0 }),
                }),
                made_at: UnixNanos(if inode % 2 == 0 { 0 } else { time ^ 6 }),
                flags: ObjectFlags::from_bits(bits),
                size,
                origin_valid,
                mtime: UnixNanos(time),
                ctime: UnixNanos(time ^ 3),
                witness: Witness::File(Stamp {
                    size: size ^ 1,
                    mtime: UnixNanos(time ^ 1),
                    ctime: UnixNanos(time ^ 2),
                }),
                path,
            });
        let volume = (any::<[u8; 16]>(), 0..1_u64 << 62, any::<u64>(), any::<bool>()).prop_map(
            |(id, size, generation, destaging)| ObjectState {
                identity: Identity::Volume(VolumeId(id)),
                witness: Witness::Volume(VolumeWitness { size, generation }),
                flags: ObjectFlags { destaging, ..ObjectFlags::default() },
                size,
                origin_valid: u64::MAX,
                ..ObjectState::default()
            },
        );
        prop_oneof![file, volume]
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        let path = || proptest::collection::vec(any::<u8>(), 0..OBJECT_PATH_MAX);
        let span = || (any::<u64>().prop_map(ObjectId), (0..1_u64 << 50).prop_map(Block), 0..1_u64 << 50);
        prop_oneof![
            (any::<u64>(), any_state()).prop_map(|(object, state)| Entry::Object { object: ObjectId(object), state }),
            (
                span(),
                any::<bool>(),
                proptest::option::of((0..1_u64 << 62, any::<i64>())),
                any::<u8>(),
                proptest::collection::vec(any::<u32>(), 1..RECORD_BLOCKS_MAX)
            )
                .prop_map(|((object, first, _), dirty, grown, class, checksums)| Entry::Data {
                    object,
                    first,
                    dirty,
                    grown: grown.map(|(size, mtime)| (size, UnixNanos(mtime))),
                    class: Class::from_bits(class),
                    checksums
                }),
            (
                span(),
                any::<bool>(),
                proptest::option::of((0..1_u64 << 62, any::<i64>())),
                any::<u8>(),
                1..=RECORD_BLOCKS_MAX as u32
            )
                .prop_map(|((object, first, _), dirty, grown, class, blocks)| Entry::Blank {
                    object,
                    first,
                    blocks,
                    dirty,
                    grown: grown.map(|(size, mtime)| (size, UnixNanos(mtime))),
                    class: Class::from_bits(class),
                }),
            (span(), any::<i64>()).prop_map(|((object, first, blocks), mtime)| Entry::Zero {
                object,
                first,
                blocks,
                mtime: UnixNanos(mtime)
            }),
            span().prop_map(|(object, first, blocks)| Entry::Drop { object, first, blocks }),
            span().prop_map(|(object, first, blocks)| Entry::Clean { object, first, blocks }),
            (any::<u64>(), 0..1_u64 << 62, any::<i64>()).prop_map(|(object, size, mtime)| Entry::Truncate {
                object: ObjectId(object),
                size,
                mtime: UnixNanos(mtime)
            }),
            (path(), path()).prop_map(|(from, to)| Entry::Rename { from, to }),
            any::<u64>().prop_map(|object| Entry::Forget { object: ObjectId(object) }),
            Just(Entry::Mark),
        ]
    }

    #[test]
    fn a_blank_record_with_a_payload_and_a_packed_one_without_are_damage() {
        const CODEC: usize = 2;
        const LEN: usize = 4;
        const STORED: usize = 6;
        const BLOCKS: usize = 24;
        let (object, first, dirty, grown, class) = (ObjectId(1), Block(2), true, None, Class::EVERYBODY);
        let mut blank = Vec::new();
        Entry::Blank { object, first, blocks: 9, dirty, grown, class }.encode(Sequence(3), &mut blank);
        assert_eq!(blank.len(), Entry::BLANK_LEN);
        let mut packed = Vec::new();
        let (codec, units, checksum) = (Codec::Lz4, 5, 7);
        Entry::Packed { object, first, blocks: 9, dirty, grown, class, codec, units, checksum }
            .encode(Sequence(3), &mut packed);
        let forged = |bytes: &[u8], at: usize, byte: u8| {
            let mut forged = bytes.to_vec();
            forged[at] = byte;
            Entry::decode_all(&forged).is_ok()
        };
        assert!(forged(&blank, CODEC, BLANK) && forged(&packed, STORED, 1), "as they are");
        for (at, byte, why) in [
            (STORED, 1, "a payload of one unit"),
            (STORED + 1, 1, "one of 256"),
            (BLOCKS, 0, "no blocks"),
            (BLOCKS + 1, 2, "more blocks than a record has"),
            (CODEC, 0, "as it is, without checksums"),
            (CODEC, 1, "packed into nothing"),
            (CODEC, 4, "a codec that nobody knows"),
            (0, kind::ZERO, "another kind"),
        ] {
            assert!(!forged(&blank, at, byte), "{why}");
        }
        for (at, byte, why) in [(STORED, 0, "packed into nothing"), (CODEC, BLANK, "blank with a payload")] {
            assert!(!forged(&packed, at, byte), "{why}");
        }
        let mut longer = [&blank[..], &[0; 4]].concat();
        longer[LEN] += 4;
        assert!(Entry::decode_all(&longer).is_err(), "with a tail");
    }

    proptest! {
        #[test]
        fn entries_read_back_in_order_as_they_were_written(entries in proptest::collection::vec((0..1_u64 << 63, any_entry()), 0..6)) {
            let mut bytes = Vec::new();
            for (sequence, entry) in &entries {
                entry.encode(Sequence(*sequence), &mut bytes);
            }
            let read = Entry::decode_all(&bytes).unwrap();
            let written: Vec<_> = entries.into_iter().map(|(sequence, entry)| (Sequence(sequence), entry)).collect();
            prop_assert_eq!(read, written);
        }

        #[test]
        fn any_bytes_decode_to_an_entry_or_a_verdict(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Entry::decode_all(&bytes);
        }
    }
}
