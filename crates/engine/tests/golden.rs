//! A whole pool of version 2, as it was written: an empty one, and one in use that was cut off, with a checkpoint and a
//! tail in several streams. Recovery must find in it what was put in. The same of two mirrored members, by both and by
//! either alone, and of three members with a row that has a parity, by all and by any two. An empty pool of version 1 is
//! refused.
//!
//! For a new version, raise `VERSION` and run once `cargo test -p headpond-engine --test golden -- --ignored`.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

#[path = "../../format/tests/sparse/mod.rs"]
mod sparse;

use std::path::PathBuf;

use headpond_base::{
    BLOCK, Block, Buf, BufMut, CacheMode, Class, Errno, MemberId, ObjectId, PoolId, Redundancy, Result, SegmentId,
    Stream, UnixNanos,
};
use headpond_engine::{
    Device, FlashRead, Present, RecoverError, Recovered, format_members, format_pool, recover, recover_members,
};
use headpond_format::{
    Address, BLOCK_UNITS, CheckpointHead, Entry, FileIdentity, FrameKind, Geometry, HostCopies, Identity, Member,
    MemberName, Members, ObjectState, OriginName, SUPERBLOCK_SLOTS, SegmentState, Stamp, Superblock, VERSION, Witness,
    Writer, combined, encode_checkpoint_head, encode_frame, encode_superblock,
};
use headpond_log::{DataRecord, Log, LogIo, scan, scan_members};
use headpond_map::{ObjectMap, Slot};

const POOL_BYTES: u64 = 2 << 20;
/// Sixteen slots beside the areas: enough pairs for a mirror.
const MEMBER_BYTES: u64 = 3 << 19;
const MIRRORED: [&str; 2] = ["mirrored-pool-in-use-member-0", "mirrored-pool-in-use-member-1"];
const PARITY: [&str; 3] = ["parity-pool-in-use-member-0", "parity-pool-in-use-member-1", "parity-pool-in-use-member-2"];
const KEPT: ObjectId = ObjectId(1);
const GONE: ObjectId = ObjectId(2);

struct Flash(Vec<u8>);

impl FlashRead for Flash {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        Ok(BufMut::copy_of(self.0.get(offset as usize..offset as usize + len).ok_or(Errno::IO)?).freeze())
    }
}

impl Flash {
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        self.0[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }
}

/// The devices of the members `given`, in this order, as they muster at a start.
fn present<'a>(flashes: &'a mut [Flash], given: &[usize]) -> Present<'a> {
    let mut rest: Vec<Option<&mut Flash>> = flashes.iter_mut().map(Some).collect();
    let given = given.iter().map(|index| rest[*index].take().unwrap());
    let devices = given.map(|flash| Device { bytes: flash.0.len() as u64, flash });
    Present::muster(devices.collect()).unwrap()
}

fn put(flashes: &mut [Flash], at: Address, bytes: &[u8]) {
    flashes[usize::from(at.member.0)].put(at.offset, bytes);
}

fn path(version: u32, name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v{version}/{name}.hex"))
}

fn origin() -> OriginName {
    OriginName { key: *b"key of an origin", path: b"/slow/mysql".to_vec() }
}

fn empty() -> Flash {
    let mut flash = Flash(vec![0; POOL_BYTES as usize]);
    let geometry = Geometry::with_segment_bytes(POOL_BYTES, 128 << 10);
    for (offset, bytes) in
        format_pool(PoolId([7; 16]), MemberName([7; 16]), geometry, Some(origin()), CacheMode::WriteThrough)
    {
        flash.put(offset, &bytes);
    }
    flash
}

fn empty_of_several(count: u8) -> Vec<Flash> {
    let devices: Vec<_> = (7..7 + count).map(|name| (MemberName([name; 16]), MEMBER_BYTES)).collect();
    let (geometry, members) = Geometry::for_members(&devices, Some(64 << 10)).unwrap();
    let with = |list: Members, member: &Member| list.with(*member).unwrap().0;
    let members = members[1..].iter().fold(Members::first(members[0]), with);
    let mut flashes: Vec<Flash> = devices.iter().map(|(_, bytes)| Flash(vec![0; *bytes as usize])).collect();
    for (at, bytes) in format_members(PoolId([7; 16]), &members, geometry, Some(origin()), CacheMode::WriteBack) {
        put(&mut flashes, at, &bytes);
    }
    flashes
}

fn state(path: &[u8], size: u64) -> ObjectState {
    ObjectState {
        identity: Identity::File(FileIdentity { inode: 77, birth: UnixNanos(1_000) }),
        size,
        origin_valid: u64::MAX,
        mtime: UnixNanos(2_000),
        witness: Witness::File(Stamp { size: 4096, mtime: UnixNanos(1_500), ctime: UnixNanos(1_600) }),
        path: path.to_vec(),
        ..ObjectState::default()
    }
}

/// Carries out what the log wants, at once.
fn settle(log: &mut Log, flashes: &mut [Flash]) {
    log.want_sync_of_all();
    loop {
        let io = log.take_io();
        if io.is_empty() {
            return;
        }
        for io in io {
            match io {
                LogIo::Write { id, at, data } => {
                    put(flashes, at, &data);
                    log.wrote(id, at.member);
                }
                LogIo::Sync { side, .. } => log.synced(side),
                LogIo::Trim { at, len } => put(flashes, at, &vec![0; len as usize]),
            }
        }
    }
}

/// Appends blocks that each hold one byte all over, and gives them their slots.
fn write(log: &mut Log, map: &mut ObjectMap, stream: Stream, first: u64, fill: &[u8]) {
    let dirty = stream == Stream::Host;
    let record = DataRecord {
        stream,
        object: KEPT,
        first: Block(first),
        blocks: fill.len() as u32,
        dirty,
        grown: dirty.then_some((40_000, UnixNanos(3_000))),
        class: Class::EVERYBODY,
        whole: false,
    };
    let placed = log.append_data(record, |payload| {
        payload.chunks_exact_mut(BLOCK).zip(fill).for_each(|(block, byte)| block.fill(*byte));
    });
    for (index, checksum) in (0_u32..).zip(placed.checksums) {
        let slot = Slot {
            location: placed.location.plus(index),
            checksum,
            packed: false,
            dirty,
            kept: false,
            class: Class::EVERYBODY,
        };
        map.insert(Block(first + u64::from(index)), slot);
        if dirty {
            let id = log.geometry().segment_of(slot.location);
            let segment = log.segments_mut().get_mut(id);
            (segment.dirty, segment.dirty_units) = (segment.dirty + 1, segment.dirty_units + BLOCK_UNITS);
        }
    }
}

/// Makes a row with a parity of all that is sealed and mirrored.
fn make_row(log: &mut Log, flashes: &mut [Flash]) {
    let row = log.choose_row(false, |_| true).expect("a segment on each of two members, and room on the third");
    let (addresses, len) = (log.segments().addresses(), log.geometry().segment_bytes as usize);
    let home = |id: &SegmentId| addresses.of_segment(*id);
    let read = |at: Address| flashes[usize::from(at.member.0)].0[at.offset as usize..][..len].to_vec();
    let parts: Vec<Vec<u8>> = row.segments.iter().map(home).map(read).collect();
    let (at, parity) = (home(&row.parity), combined(parts.iter().map(Vec::as_slice), len));
    put(flashes, at, &parity);
    log.add_row(row);
}

/// Segments with a footer, a checkpoint that points into them, and a tail. With parity the checkpoint names a row.
fn in_use(mut flashes: Vec<Flash>, redundancy: Redundancy) -> Vec<Flash> {
    let members: Vec<usize> = (0..flashes.len()).collect();
    let before = scan_members(&mut present(&mut flashes, &members), None).unwrap();
    let (mut log, mut map) = (Log::new(before.start), ObjectMap::default());
    log.set_redundancy(redundancy);
    let kept = state(b"db/kept", 40_000);
    log.append(&Entry::Object { object: KEPT, state: kept.clone() });
    write(&mut log, &mut map, Stream::Host, 0, &[0x10, 0x11, 0x12]);
    write(&mut log, &mut map, Stream::Cold, 600, &[0x20, 0x21]);
    log.seal_all();
    settle(&mut log, &mut flashes);
    if redundancy == Redundancy::Parity {
        write(&mut log, &mut map, Stream::Host, 3, &[0x13, 0x14]);
        log.seal_all();
        settle(&mut log, &mut flashes);
        make_row(&mut log, &mut flashes);
    }
    log.checkpoint_begins();

    let (mut rows, mut entry, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    log.segments().iter().for_each(|(id, _)| log.segments().row(id).encode(&mut rows));
    Entry::Object { object: KEPT, state: kept }.encode(headpond_base::Sequence(0), &mut entry);
    let mut chunks = KEPT.0.to_le_bytes().to_vec();
    // Blocks 8 and 9.
    let zeros: Vec<u8> = [KEPT.0, 8, 2].into_iter().flat_map(u64::to_le_bytes).collect();
    let mut next = 0;
    while let Some(number) = map.encode_chunk(next, &mut chunks) {
        next = number + 1;
    }
    encode_frame(FrameKind::Segments, 2, &rows, &mut frames);
    encode_frame(FrameKind::Objects, 2, &entry, &mut frames);
    encode_frame(FrameKind::Zeros, 2, &zeros, &mut frames);
    encode_frame(FrameKind::Chunks, 2, &chunks, &mut frames);
    encode_frame(FrameKind::End, 2, &[], &mut frames);
    let head = CheckpointHead {
        pool: before.superblock.pool,
        counter: 2,
        epoch: log.epoch(),
        replay_from: log.next_sequence(),
        last_host: log.last_host(),
        next_batch: log.next_batch(),
        next_object: GONE.0,
        next_generation: log.next_generation(),
        frame_bytes: frames.len() as u64,
    };
    let superblock = Superblock {
        counter: 2,
        epoch: log.epoch(),
        checkpoint_area: 1,
        checkpoint_bytes: (BLOCK + frames.len()) as u64,
        synced_through: log.synced_batch(),
        synced_host: log.synced_host(),
        clean_stop: false,
        dirty_blocks: map.dirty(),
        boot: [0; 16],
        claim: [0; 16],
        host_copies: HostCopies::of(1 + usize::from(log.mirrors()), []),
        may_have_packed: false,
        may_have_blanks: false,
        ..before.superblock
    };
    let start = superblock.geometry.checkpoint_start(1);
    for (member, flash) in (0..).map(MemberId).zip(&mut flashes) {
        flash.put(start, &encode_checkpoint_head(&head));
        flash.put(start + BLOCK as u64, &frames);
        flash.put(SUPERBLOCK_SLOTS[0], &encode_superblock(&Superblock { member, ..superblock.clone() }));
    }
    log.checkpoint_counts();
    // What the copies of the row took is free again.
    log.release(head.replay_from, None, |_| false);

    write(&mut log, &mut map, Stream::Host, 1, &[0x31]);
    write(&mut log, &mut map, Stream::Hot, 700, &[0x41]);
    log.append(&Entry::Zero { object: KEPT, first: Block(5), blocks: 2, mtime: UnixNanos(4_000) });
    log.append(&Entry::Clean { object: KEPT, first: Block(2), blocks: 1 });
    log.append(&Entry::Drop { object: KEPT, first: Block(601), blocks: 1 });
    log.append(&Entry::Object { object: GONE, state: state(b"db/gone", 0) });
    log.append(&Entry::Forget { object: GONE });
    log.append(&Entry::Rename { from: b"db".to_vec(), to: b"data".to_vec() });
    settle(&mut log, &mut flashes);
    flashes
}

fn images() -> Vec<(&'static str, Flash)> {
    let names = ["empty-pool", "pool-in-use"].into_iter().chain(MIRRORED).chain(PARITY);
    let one = [empty()].into_iter().chain(in_use(vec![empty()], Redundancy::Mirror));
    let several = in_use(empty_of_several(2), Redundancy::Mirror).into_iter();
    names.zip(one.chain(several).chain(in_use(empty_of_several(3), Redundancy::Parity))).collect()
}

#[test]
fn a_pool_that_is_made_today_is_what_the_version_says_bit_for_bit() {
    for (name, image) in images() {
        sparse::assert_same(name, &image.0, &sparse::read(&path(VERSION, name)));
    }
}

#[test]
fn a_pool_of_version_1_is_refused_for_what_it_is() {
    let refused = recover(&mut Flash(sparse::read(&path(1, "empty-pool"))), POOL_BYTES).err().unwrap();
    assert_eq!(refused, RecoverError::Version { found: 1 });
    assert!(refused.to_string().contains("older"), "{refused}");
}

#[test]
fn an_empty_pool_of_version_2_is_recovered() {
    let recovered = recover(&mut Flash(sparse::read(&path(VERSION, "empty-pool"))), POOL_BYTES).unwrap();
    assert!(recovered.objects().is_empty());
    assert_eq!(recovered.superblock().origin, Some(origin()));
    assert_eq!(recovered.superblock().mode, CacheMode::WriteThrough);
}

#[test]
fn a_pool_of_version_2_that_was_cut_off_is_recovered_by_checkpoint_and_replay() {
    let mut flash = Flash(sparse::read(&path(VERSION, "pool-in-use")));
    let recovered = recover(&mut flash, POOL_BYTES).unwrap();
    let objects = recovered.objects();
    assert_eq!(objects.len(), 1, "the other one was forgotten");
    let kept = &objects[0];
    assert_eq!((kept.object, &kept.state.path[..]), (KEPT, &b"data/kept"[..]));
    assert_eq!((kept.state.size, kept.state.mtime), (40_000, UnixNanos(4_000)));
    // By hand: blocks 0 to 2, 600, 700; 601 was dropped, 2 became clean. And zeros in 5 and 6, by the tail, and in 8
    // and 9, by the checkpoint: each range counts as a block.
    assert_eq!((kept.cached_blocks, kept.dirty_blocks), (7, 4));
}

#[test]
fn the_blocks_of_a_pool_of_version_2_hold_what_was_written() {
    let mut flash = Flash(sparse::read(&path(VERSION, "pool-in-use")));
    let scanned = scan(&mut flash, POOL_BYTES, None).unwrap();
    let (geometry, epoch) = (scanned.start.geometry, scanned.start.epoch);
    assert_eq!((scanned.next_object, epoch.0), (GONE.0, 2));
    let states: Vec<_> = scanned.start.segments.iter().map(|segment| segment.state).collect();
    assert_eq!(states.iter().filter(|state| **state == SegmentState::Sealed).count(), 4);
    let mut holds = |block: u64, slot: Slot, byte: u8| {
        let bytes = flash.read(geometry.byte_of(slot.location), BLOCK).unwrap();
        assert!(bytes.iter().all(|found| *found == byte), "block {block}");
        let SegmentId(segment) = geometry.segment_of(slot.location);
        let generation = scanned.start.segments[segment as usize].generation;
        let life = Writer { pool: scanned.superblock.pool, generation };
        assert!(headpond_format::verify_block(&bytes, slot.checksum, KEPT, Block(block), life), "block {block}");
    };
    let map = &scanned.objects[0].map;
    for (block, byte) in [(0, 0x10), (1, 0x11), (2, 0x12), (600, 0x20), (601, 0x21)] {
        holds(block, map.get(Block(block)).unwrap(), byte);
    }
    let mut data = scanned.tail.iter().filter_map(|tail| match &tail.entry {
        Entry::Data { first, dirty, checksums, .. } => {
            let location = tail.location.unwrap();
            Some((
                first.0,
                Slot {
                    location,
                    checksum: checksums[0],
                    packed: false,
                    dirty: *dirty,
                    kept: false,
                    class: Class::EVERYBODY,
                },
            ))
        }
        _ => None,
    });
    for (block, byte) in [(1, 0x31), (700, 0x41)] {
        let (first, slot) = data.next().unwrap();
        assert_eq!(first, block);
        holds(block, slot, byte);
    }
    assert!(data.next().is_none());
}

/// The blocks of the file that a start finds on flash, each with the members that have it as it was written.
fn found_in(recovered: &Recovered, flashes: &mut [Flash], here: &[usize]) -> Vec<(u64, u8, Vec<u16>)> {
    let mut found = Vec::new();
    for (block, slot) in recovered.blocks(KEPT) {
        let segment = recovered.superblock().geometry.segment_of(slot.location);
        let (mut byte, mut members) = (None, Vec::new());
        for place in recovered.segments().places(segment, slot.location) {
            let member = usize::from(place.member.0);
            assert!(here.contains(&member), "block {block} lies on a member that is not here");
            let bytes = flashes[member].read(place.offset, BLOCK).unwrap();
            assert_eq!(recovered.verify(KEPT, block, &[slot], &bytes), [true], "block {block} of member {member}");
            assert!(bytes.iter().all(|other| *other == *byte.get_or_insert(bytes[0])), "block {block}");
            members.push(place.member.0);
        }
        members.sort_unstable();
        found.push((block.0, byte.unwrap(), members));
    }
    found
}

#[test]
fn a_mirrored_pool_of_version_2_is_recovered_by_its_members_and_by_either_alone() {
    let mut flashes: Vec<Flash> = MIRRORED.map(|name| Flash(sparse::read(&path(VERSION, name)))).into();
    // Dirty blocks and the clean block 2 lie in the host stream, so twice. What was read from the origin lies once:
    // block 600 on one member, block 700 on the other. Block 601 was dropped.
    let all = [(0, 0x10, None), (1, 0x31, None), (2, 0x12, None), (600, 0x20, Some(0)), (700, 0x41, Some(1))];
    for given in [&[0, 1][..], &[1, 0], &[0], &[1]] {
        let recovered = recover_members(&mut present(&mut flashes, given), None).unwrap();
        let missing: Vec<u16> = (0..2).filter(|member| !given.contains(&usize::from(*member))).collect();
        assert_eq!(recovered.missing().iter().map(|member| member.0).collect::<Vec<_>>(), missing);
        let objects = recovered.objects();
        let [kept] = &objects[..] else { panic!("{objects:?}") };
        assert_eq!((kept.object, &kept.state.path[..]), (KEPT, &b"data/kept"[..]));
        assert_eq!((kept.state.size, kept.state.mtime), (40_000, UnixNanos(4_000)));
        let here = |member: &u16| !missing.contains(member);
        let expected: Vec<_> = all
            .iter()
            .map(|(block, byte, lone)| {
                let members: Vec<u16> = lone.map_or(vec![0, 1], |lone| vec![lone]).into_iter().filter(here).collect();
                (*block, *byte, members)
            })
            .filter(|(_, _, members)| !members.is_empty())
            .collect();
        assert_eq!(found_in(&recovered, &mut flashes, given), expected, "of the members {given:?}");
        // Two ranges of zeros count as a block each.
        assert_eq!((kept.cached_blocks, kept.dirty_blocks), (expected.len() as u64 + 2, 4));
    }
}

#[test]
fn a_mirrored_pool_of_version_2_is_refused_without_a_member_if_dirty_data_may_lie_there_alone() {
    let mut flashes: Vec<Flash> = MIRRORED.map(|name| Flash(sparse::read(&path(VERSION, name)))).into();
    let newest = flashes[0].read(SUPERBLOCK_SLOTS[0], BLOCK).unwrap();
    let lone = headpond_format::decode_superblock(&newest).unwrap();
    flashes[0].put(SUPERBLOCK_SLOTS[0], &encode_superblock(&Superblock { host_copies: HostCopies::ONE, ..lone }));
    let refused = recover_members(&mut present(&mut flashes, &[0]), None).err().unwrap();
    assert_eq!(refused, RecoverError::MissingAfterCrash { member: MemberId(1) });
}

/// The blocks of the file that a start finds, each in how many ways: in its places, and out of the rest of its row.
fn ways_in(recovered: &Recovered, flashes: &mut [Flash], here: &[usize]) -> Vec<(u64, u8, usize)> {
    let (geometry, segments) = (recovered.superblock().geometry, recovered.segments());
    let mut found = Vec::new();
    for (block, slot) in recovered.blocks(KEPT) {
        let segment = geometry.segment_of(slot.location);
        let mut read = |at: Address| flashes[usize::from(at.member.0)].read(at.offset, BLOCK).unwrap();
        let mut ways: Vec<Buf> = segments.places(segment, slot.location).map(&mut read).collect();
        let rest = segments.row_without(segment).unwrap_or_default();
        let rest: Vec<Address> =
            rest.into_iter().map(|keeper| segments.addresses().within(keeper, slot.location)).collect();
        if !rest.is_empty() && rest.iter().all(|at| here.contains(&usize::from(at.member.0))) {
            let parts: Vec<Buf> = rest.into_iter().map(&mut read).collect();
            ways.push(combined(parts.iter().map(|part| &part[..]), BLOCK));
        }
        for bytes in &ways {
            assert_eq!(recovered.verify(KEPT, block, &[slot], bytes), [true], "block {block}");
            assert!(bytes.iter().all(|byte| *byte == ways[0][0]), "block {block}");
        }
        found.extend(ways.first().map(|bytes| (block.0, bytes[0], ways.len())));
    }
    found
}

#[test]
fn a_pool_of_version_2_with_a_row_is_recovered_by_its_members_and_by_any_two() {
    let mut flashes: Vec<Flash> = PARITY.map(|name| Flash(sparse::read(&path(VERSION, name)))).into();
    // Blocks 0, 2, 3 and 4 are in the row, 1 in the tail. 600 and 700, from the origin, lie once.
    let (in_row, in_tail) = ([(0, 0x10), (2, 0x12), (3, 0x13), (4, 0x14)], (1, 0x31));
    let mut alone = Vec::new();
    for given in [&[0, 1, 2][..], &[2, 0, 1], &[0, 1], &[2, 0], &[1, 2]] {
        let recovered = recover_members(&mut present(&mut flashes, given), None).unwrap();
        let ways = ways_in(&recovered, &mut flashes, given);
        let of = |block: u64, byte: u8| ways.iter().find(|way| (way.0, way.1) == (block, byte)).map_or(0, |way| way.2);
        for (block, byte) in in_row {
            assert_eq!(of(block, byte), given.len() - 1, "block {block} of the members {given:?}");
        }
        assert!((given.len() - 1..=2).contains(&of(in_tail.0, in_tail.1)), "{ways:?} of the members {given:?}");
        let clean = [(600, 0x20), (700, 0x41)].map(|(block, byte)| of(block, byte));
        assert_eq!(ways.len(), in_row.len() + 1 + clean.iter().sum::<usize>());
        alone.push(clean);
        let [kept] = &recovered.objects()[..] else { panic!("one file") };
        // Two ranges of zeros count as a block each.
        assert_eq!((kept.cached_blocks, kept.dirty_blocks), (ways.len() as u64 + 2, 6));
    }
    assert_eq!(alone[..2], [[1, 1]; 2]);
    assert!(alone[2..].iter().flatten().any(|ways| *ways == 0), "none is lost with its member");
}

#[test]
fn a_pool_of_version_2_with_a_row_is_refused_without_two_of_its_members() {
    let mut flashes: Vec<Flash> = PARITY.map(|name| Flash(sparse::read(&path(VERSION, name)))).into();
    for given in [[0], [1], [2]] {
        assert!(recover_members(&mut present(&mut flashes, &given), None).is_err(), "{given:?}");
    }
}

#[test]
#[ignore = "writes the fixtures of a new version, once"]
fn write_the_fixtures_of_a_new_version() {
    for (name, image) in images().into_iter().filter(|(name, _)| !path(VERSION, name).exists()) {
        sparse::write_new(&path(VERSION, name), &image.0);
    }
}
