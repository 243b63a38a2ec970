//! Golden bytes of each structure. What is written today is bit for bit what the version says, and what was written
//! once in the version is read as it was meant.
//!
//! For a new version, raise `VERSION` and run once `cargo test -p headpond-format --test golden -- --ignored`: it
//! writes `fixtures/v<VERSION>`. Of version 1, which no released program wrote, one superblock is left: it is refused.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod sparse;

use std::path::PathBuf;

use headpond_base::{
    BLOCK, BatchNumber, Block, CacheMode, Class, Compression, Epoch, Generation, MemberId, ObjectId, OwnerNumber,
    PoolId, SegmentId, Sequence, Stream, UnixNanos,
};
use headpond_format::{
    BatchHead, CheckpointHead, Codec, Damage, Entry, FRAME_HEAD, FileIdentity, Frame, FrameKind, Geometry, HostCopies,
    Identity, Layout, MemberName, Members, ObjectFlags, ObjectState, OriginName, ParityRow, Place, Placement,
    SegmentHead, SegmentRow, SegmentState, Stamp, SummaryBatch, Superblock, VERSION, VolumeId, VolumeWitness, Witness,
    Writer, block_checksum, bytes_checksum, decode_batch, decode_checkpoint_head, decode_footer, decode_frame,
    decode_segment_head, decode_superblock, encode_batch, encode_checkpoint_head, encode_footer, encode_frame,
    encode_segment_head, encode_superblock, finish_packed, pack, verify_packed,
};

fn path(version: u32, name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/v{version}/{name}.hex"))
}

const POOL: PoolId =
    PoolId([0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf]);

const GEOMETRY: Geometry = Geometry {
    pool_bytes: 0x4000_0000,
    segment_bytes: 0x20_0000,
    segments: 0x1ef,
    area_bytes: 0x0101_2000,
    segments_start: 0x0210_0000,
};

fn superblock(origin: bool) -> Superblock {
    Superblock {
        pool: POOL,
        member: MemberId(0),
        members: Members::first(GEOMETRY.member(MemberName(*b"name of a device"))),
        owner: OwnerNumber(0x5152_5354_5556_5758),
        geometry: GEOMETRY,
        counter: 0x0102_0304_0506_0708,
        epoch: Epoch(0x1112_1314_1516_1718),
        origin: origin.then(|| OriginName { key: *b"key of an origin", path: b"/slow/mysql".to_vec() }),
        checkpoint_area: u8::from(origin),
        checkpoint_bytes: 0x3000,
        synced_through: BatchNumber(0x2122_2324_2526_2728),
        synced_host: BatchNumber(0x3132_3334_3536_3738),
        mode: if origin { CacheMode::WriteAround } else { CacheMode::WriteBack },
        clean_stop: origin,
        dirty_blocks: 0x4142_4344_4546_4748,
        boot: [0; 16],
        claim: [0; 16],
        host_copies: HostCopies::ONE,
        may_have_packed: false,
        may_have_blanks: false,
    }
}

fn checkpoint_head() -> CheckpointHead {
    CheckpointHead {
        pool: POOL,
        counter: 0x0102_0304_0506_0708,
        epoch: Epoch(0x1112_1314_1516_1718),
        replay_from: Sequence(0x2122_2324_2526_2728),
        last_host: BatchNumber(0x3132_3334_3536_3738),
        next_batch: BatchNumber(0x4142_4344_4546_4748),
        next_object: 0x5152_5354_5556_5758,
        next_generation: Generation(0x6162_6364_6566_6768),
        frame_bytes: 0x7172_7374_7576_7778,
    }
}

const COUNTER: u64 = 0x0102_0304_0506_0708;

fn place(member: u16, slot: u32) -> Place {
    Place { member: MemberId(member), slot }
}

fn rows() -> Vec<SegmentRow> {
    let row = |generation, state, stream, layout| SegmentRow {
        generation: Generation(generation),
        state,
        stream,
        layout,
        copies_differ: false,
    };
    let parity = ParityRow {
        segments: vec![(SegmentId(0x31), place(2, 0x41)), (SegmentId(3), place(3, 0x51))],
        parity: place(4, 0x61),
    };
    vec![
        row(0x0102_0304_0506_0708, SegmentState::Free, Stream::Host, None),
        row(2, SegmentState::Open, Stream::Hot, Some(Layout::Single(place(0, 0x0102_0304)))),
        row(3, SegmentState::Open, Stream::Host, Some(Layout::Mirror(vec![place(0, 0x11), place(1, 0x21)]))),
        row(4, SegmentState::Sealed, Stream::Cold, Some(Layout::Parity(Box::new(parity)))),
    ]
}

/// One frame of each kind.
fn frames() -> Vec<u8> {
    let (mut table, mut object, mut out) = (Vec::new(), Vec::new(), Vec::new());
    rows().iter().for_each(|row| row.encode(&mut table));
    entries()[0].encode(Sequence(0), &mut object);
    encode_frame(FrameKind::Segments, COUNTER, &table, &mut out);
    encode_frame(FrameKind::Objects, COUNTER, &object, &mut out);
    encode_frame(FrameKind::Zeros, COUNTER, &zeros(), &mut out);
    encode_frame(FrameKind::Chunks, COUNTER, &chunks(), &mut out);
    encode_frame(FrameKind::End, COUNTER, &[], &mut out);
    out
}

/// Object, and two extents: where each begins and how many blocks it has.
fn zeros() -> Vec<u8> {
    let extents = [[5, 0x0000_0100_0000_0000], [0x0000_0111_2233_4455, 1]];
    let words = [0x8182_8384_8586_8788].into_iter().chain(extents.into_iter().flatten());
    words.flat_map(u64::to_le_bytes).collect()
}

/// Object, chunk number, count, and two slots: dirty, and kept in another place.
fn chunks() -> Vec<u8> {
    let mut out = 0x8182_8384_8586_8788_u64.to_le_bytes().to_vec();
    out.extend_from_slice(&0x0102_0304_u32.to_le_bytes());
    out.extend_from_slice(&2_u16.to_le_bytes());
    out.extend_from_slice(&[0x05, 0x02, 0x55, 0x44, 0x33, 0x22, 0x11, 0x99, 0x88, 0x77, 0x66]);
    out.extend_from_slice(&[0xff, 0x05, 0x5a, 0x4a, 0x3a, 0x2a, 0x1a, 0x9a, 0x8a, 0x7a, 0x6a]);
    out
}

fn segment_head() -> SegmentHead {
    SegmentHead {
        pool: POOL,
        epoch: Epoch(0x1112_1314_1516_1718),
        segment: SegmentId(0x0a0b_0c0d),
        generation: Generation(0x6162_6364_6566_6768),
        stream: Stream::Cold,
    }
}

fn placement() -> Placement {
    let here = place(1, 0x0102_0304);
    Placement {
        owner: OwnerNumber(0x5152_5354_5556_5758),
        here,
        layout: Layout::Mirror(vec![place(0, 0x0506_0708), here]),
        writer: WRITER,
        writer_segment: SegmentId(0x1a1b_1c1d),
    }
}

fn batch_head() -> BatchHead {
    BatchHead {
        pool: POOL,
        epoch: Epoch(0x1112_1314_1516_1718),
        segment: SegmentId(0x0a0b_0c0d),
        generation: Generation(0x6162_6364_6566_6768),
        stream: Stream::Hot,
        number: BatchNumber(0x0102_0304_0506_0708),
        previous_host: BatchNumber(0x2122_2324_2526_2728),
        owner: OwnerNumber(0x5152_5354_5556_5758),
        synced_through: BatchNumber(0x3132_3334_3536_3738),
        synced_host: BatchNumber(0x4142_4344_4546_4748),
        payload_blocks: 5,
    }
}

/// One entry of each kind, with its variants.
fn entries() -> Vec<Entry> {
    let (object, first, blocks) =
        (ObjectId(0x8182_8384_8586_8788), Block(0x0001_0203_0405_0607), 0x0002_0304_0506_0708);
    let mtime = UnixNanos(-0x0102_0304_0506_0708);
    let state = ObjectState {
        identity: Identity::File(FileIdentity {
            inode: 0x9192_9394_9596_9798,
            birth: UnixNanos(0x1112_1314_1516_1718),
        }),
        made_at: UnixNanos(0),
        flags: ObjectFlags {
            unanchored: true,
            destaging: false,
            unlinked: true,
            attributes_dirty: false,
            direct: true,
            size_counts: false,
            ctime_counts: false,
            ctime_bounds: false,
        },
        size: 0x2122_2324_2526_2728,
        origin_valid: u64::MAX,
        mtime,
        ctime: UnixNanos(0),
        witness: Witness::File(Stamp { size: 0x3132, mtime: UnixNanos(0x4142), ctime: UnixNanos(0x5152) }),
        path: b"db/ibdata1".to_vec(),
    };
    let other = ObjectFlags { destaging: true, attributes_dirty: true, ..ObjectFlags::default() };
    vec![
        Entry::Object { object, state: state.clone() },
        Entry::Object { object, state: ObjectState { flags: other, path: Vec::new(), ..state } },
        Entry::Data {
            object,
            first,
            dirty: true,
            grown: Some((0x2122_2324_2526_2728, mtime)),
            class: Class::EVERYBODY,
            checksums: vec![0x0102_0304, 0x1112_1314, 0x2122_2324],
        },
        Entry::Data { object, first, dirty: true, grown: None, class: Class::EVERYBODY, checksums: vec![7] },
        Entry::Data { object, first, dirty: false, grown: None, class: Class::EVERYBODY, checksums: vec![8] },
        Entry::Zero { object, first, blocks, mtime },
        Entry::Drop { object, first, blocks },
        Entry::Clean { object, first, blocks },
        Entry::Truncate { object, size: 0x2122_2324_2526_2728, mtime },
        Entry::Rename { from: b"old/name".to_vec(), to: b"new".to_vec() },
        Entry::Forget { object },
        Entry::Mark,
    ]
}

fn numbered() -> Vec<(Sequence, Entry)> {
    (0x0102_0304_0506_0700..).map(Sequence).zip(entries()).collect()
}

fn entry_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    numbered().iter().for_each(|(sequence, entry)| entry.encode(*sequence, &mut bytes));
    bytes
}

fn summary() -> Vec<SummaryBatch> {
    let head = batch_head();
    let batch = |start, entries| SummaryBatch {
        number: head.number,
        previous_host: head.previous_host,
        synced_through: head.synced_through,
        synced_host: head.synced_host,
        start,
        entries,
    };
    vec![batch(1, entry_bytes()), batch(0x0102_0304, Vec::new())]
}

fn block(fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut block = vec![0xee; BLOCK];
    fill(&mut block);
    block
}

/// Checksums of a block in different places and lives: the binding is part of the format.
fn block_checksums() -> Vec<u8> {
    let bytes: Vec<u8> = (0..BLOCK).map(|at| (at % 251) as u8).collect();
    [(1, 2, 3), (0, 0, 0), (u64::MAX, 1 << 50, 7)]
        .into_iter()
        .flat_map(|(object, at, life)| {
            block_checksum(&bytes, ObjectId(object), Block(at), Writer { pool: POOL, generation: Generation(life) })
                .to_le_bytes()
        })
        .collect()
}

/// Entries of packed records.
fn packed_entries() -> Vec<(Sequence, Entry)> {
    let (object, first) = (ObjectId(0x8182_8384_8586_8788), Block(0x0001_0203_0405_0607));
    let entry = |blocks, dirty, grown, codec, units| Entry::Packed {
        object,
        first,
        blocks,
        dirty,
        grown,
        class: Class::from_bits(9),
        codec,
        units,
        checksum: 0x5152_5354,
    };
    let grown = Some((0x2122_2324_2526_2728, UnixNanos(-0x0102_0304_0506_0708)));
    let entries = [entry(4, true, grown, Codec::Lz4, 13), entry(16, false, None, Codec::Zstd, 112)];
    (0x0102_0304_0506_0700..).map(Sequence).zip(entries).collect()
}

fn packed_entry_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    packed_entries().iter().for_each(|(sequence, entry)| entry.encode(*sequence, &mut bytes));
    bytes
}

/// Entries of blank records.
fn blank_entries() -> Vec<(Sequence, Entry)> {
    let (object, first, class) = (ObjectId(0x8182_8384_8586_8788), Block(0x0001_0203_0405_0607), Class::from_bits(9));
    let grown = Some((0x2122_2324_2526_2728, UnixNanos(-0x0102_0304_0506_0708)));
    let entries = [
        Entry::Blank { object, first, blocks: 257, dirty: true, grown, class },
        Entry::Blank { object, first, blocks: 1, dirty: false, grown: None, class: Class::EVERYBODY },
    ];
    (0x0102_0304_0506_0700..).map(Sequence).zip(entries).collect()
}

fn blank_entry_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    blank_entries().iter().for_each(|(sequence, entry)| entry.encode(*sequence, &mut bytes));
    bytes
}

/// An object whose status change time is not the origin's.
fn ctime_entries() -> Vec<(Sequence, Entry)> {
    let mut entries = numbered();
    entries.retain(|(_, entry)| matches!(entry, Entry::Object { .. }));
    for (at, (_, entry)) in (0..).zip(&mut entries) {
        if let Entry::Object { state, .. } = entry {
            state.ctime = [UnixNanos(0x0102_0304_0506_0708), UnixNanos(-0x0102_0304_0506_0708)][at];
            state.flags.ctime_counts = at == 0;
            state.flags.ctime_bounds = at == 1;
        }
    }
    entries
}

fn ctime_entry_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    ctime_entries().iter().for_each(|(sequence, entry)| entry.encode(*sequence, &mut bytes));
    bytes
}

/// A volume.
fn volume_entries() -> Vec<(Sequence, Entry)> {
    let size = 0x2122_2324_2526_2728;
    let state = ObjectState {
        identity: Identity::Volume(VolumeId(*b"a volume's name.")),
        witness: Witness::Volume(VolumeWitness { size, generation: 0x3132_3334_3536_3738 }),
        flags: ObjectFlags { destaging: true, attributes_dirty: true, direct: true, ..ObjectFlags::default() },
        size,
        origin_valid: u64::MAX,
        ..ObjectState::default()
    };
    vec![(Sequence(0x0102_0304_0506_0700), Entry::Object { object: ObjectId(0x8182_8384_8586_8788), state })]
}

fn volume_entry_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    volume_entries().iter().for_each(|(sequence, entry)| entry.encode(*sequence, &mut bytes));
    bytes
}

const WRITER: Writer = Writer { pool: POOL, generation: Generation(3) };
const RECORD: (ObjectId, Block, Writer) = (ObjectId(7), Block(40), WRITER);

/// What the golden records hold.
fn plain_record() -> Vec<u8> {
    let line = |at: usize| format!("a row of a table, number {}\n", at * 7919 % 10_007);
    (0..).flat_map(|at| line(at).into_bytes()).take(4 * BLOCK).collect()
}

/// A record by each codec. Another release of a codec may pack otherwise: what counts is that these are read.
fn packed_records() -> Vec<(&'static str, Vec<u8>)> {
    let record = |compression| {
        let mut packed = pack(compression, &plain_record()).unwrap();
        finish_packed(&mut packed, RECORD.0, RECORD.1, RECORD.2);
        packed
    };
    vec![("packed-record-lz4", record(Compression::Lz4)), ("packed-record-zstd", record(Compression::Zstd(3)))]
}

/// Every structure as it is written today.
fn written() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("superblock", encode_superblock(&superblock(true))),
        ("superblock-without-origin", encode_superblock(&superblock(false))),
        ("checkpoint-head", encode_checkpoint_head(&checkpoint_head())),
        ("frames", frames()),
        ("segment-head", block(|block| encode_segment_head(&segment_head(), &placement(), block))),
        ("batch", block(|block| encode_batch(&batch_head(), &entry_bytes(), block))),
        ("entries", entry_bytes()),
        ("footer", encode_footer(&segment_head(), &summary())),
        ("block-checksums", block_checksums()),
        ("packed-superblock", encode_superblock(&Superblock { may_have_packed: true, ..superblock(true) })),
        ("packed-entries", packed_entry_bytes()),
        (
            "blank-superblock",
            encode_superblock(&Superblock { may_have_packed: true, may_have_blanks: true, ..superblock(true) }),
        ),
        ("blank-entries", blank_entry_bytes()),
        ("ctime-entries", ctime_entry_bytes()),
        ("volume-entries", volume_entry_bytes()),
    ]
}

#[test]
fn what_is_written_today_is_what_the_version_says_bit_for_bit() {
    for (name, bytes) in written() {
        sparse::assert_same(name, &bytes, &sparse::read(&path(VERSION, name)));
    }
}

#[test]
fn what_version_2_wrote_is_read_as_it_was_meant() {
    let golden = |name| sparse::read(&path(VERSION, name));
    assert_eq!(decode_superblock(&golden("superblock")), Ok(superblock(true)));
    assert_eq!(decode_superblock(&golden("superblock-without-origin")), Ok(superblock(false)));
    assert_eq!(decode_checkpoint_head(&golden("checkpoint-head")), Ok(checkpoint_head()));
    assert_eq!(decode_segment_head(&golden("segment-head")), Ok((segment_head(), placement())));
    let batch = golden("batch");
    let (head, entries) = decode_batch(&batch).unwrap();
    assert_eq!(head, batch_head());
    assert_eq!(Entry::decode_all(entries), Ok(numbered()));
    assert_eq!(Entry::decode_all(&golden("entries")), Ok(numbered()));
    assert_eq!(decode_footer(&golden("footer")), Ok((segment_head(), summary())));
}

#[test]
fn a_pool_of_version_1_is_told_from_others() {
    assert_eq!(decode_superblock(&sparse::read(&path(1, "superblock"))), Err(Damage::Version { found: 1 }));
}

#[test]
fn the_frames_that_version_2_wrote_are_read_as_they_were_meant() {
    let golden = sparse::read(&path(VERSION, "frames"));
    let mut rest = &golden[..];
    let mut next = || {
        let (Frame { kind, payload }, used) = decode_frame(rest, COUNTER).unwrap();
        assert_eq!(used, FRAME_HEAD + payload.len());
        rest = &rest[used..];
        (kind, payload)
    };
    let (kind, table) = next();
    assert_eq!((kind, SegmentRow::decode_all(table)), (FrameKind::Segments, Ok(rows())));
    let (kind, object) = next();
    assert_eq!((kind, Entry::decode_all(object)), (FrameKind::Objects, Ok(vec![(Sequence(0), entries()[0].clone())])));
    assert_eq!(next(), (FrameKind::Zeros, &zeros()[..]));
    assert_eq!(next(), (FrameKind::Chunks, &chunks()[..]));
    assert_eq!(next(), (FrameKind::End, &[][..]));
    assert!(rest.is_empty());
}

#[test]
fn packed_records_are_read_as_they_were_meant() {
    let golden = |name| sparse::read(&path(VERSION, name));
    let superblock = Superblock { may_have_packed: true, ..superblock(true) };
    assert_eq!(decode_superblock(&golden("packed-superblock")), Ok(superblock));
    assert_eq!(Entry::decode_all(&golden("packed-entries")), Ok(packed_entries()));
    for name in ["packed-record-lz4", "packed-record-zstd"] {
        let bytes = golden(name);
        let record = verify_packed(&bytes, RECORD.0, RECORD.1, RECORD.2).unwrap();
        let mut plain = vec![0; record.blocks * BLOCK];
        assert!(record.unpack(&mut plain) && plain == plain_record(), "{name}");
    }
}

#[test]
fn blank_records_are_read_as_they_were_meant() {
    let golden = |name| sparse::read(&path(VERSION, name));
    let superblock = Superblock { may_have_packed: true, may_have_blanks: true, ..superblock(true) };
    assert_eq!(decode_superblock(&golden("blank-superblock")), Ok(superblock));
    assert_eq!(Entry::decode_all(&golden("blank-entries")), Ok(blank_entries()));
}

#[test]
fn status_change_times_are_read_as_they_were_meant() {
    assert_eq!(Entry::decode_all(&sparse::read(&path(VERSION, "ctime-entries"))), Ok(ctime_entries()));
}

#[test]
fn volumes_are_read_as_they_were_meant() {
    assert_eq!(Entry::decode_all(&sparse::read(&path(VERSION, "volume-entries"))), Ok(volume_entries()));
}

#[test]
fn the_checksum_is_the_one_that_everybody_calls_crc_32c() {
    // The check value of CRC-32C: RFC 3720, and every catalogue of CRCs.
    assert_eq!(bytes_checksum(b"123456789"), 0xe306_9283);
}

#[test]
#[ignore = "writes the fixtures of a new version, once"]
fn write_the_fixtures_of_a_new_version() {
    for (name, bytes) in written().into_iter().chain(packed_records()) {
        sparse::write_new(&path(VERSION, name), &bytes);
    }
}

#[test]
fn the_text_of_a_fixture_holds_every_byte() {
    for len in [0, 1, 31, 32, 33, 64, 100] {
        let bytes: Vec<u8> = (0..len).map(|at| (at / 40) as u8).collect();
        assert_eq!(sparse::from_text(&sparse::to_text(&bytes)), bytes);
    }
}
