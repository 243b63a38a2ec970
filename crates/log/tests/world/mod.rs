//! A log on a flash that completes writes in any order and, at a crash, keeps, drops or tears
//! each write that no sync covered; and the oracle: a list of all that was appended.

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{
    BLOCK, Block, Buf, BufMut, CacheMode, Class, Compression, Errno, Generation, Location, MemberId, ObjectId,
    OwnerNumber, Result, SegmentId, Sequence, Stream, UnixNanos,
};
use headpond_format::{
    CheckpointHead, Codec, Entry, FrameKind, Geometry, HostCopies, MemberName, Members, PACKED_BLOCKS_MAX,
    SUPERBLOCK_SLOTS, SegmentState, Superblock, UNIT, Writer, decode_batch, encode_checkpoint_head, encode_frame,
    encode_superblock, is_blank, pack, verify_packed,
};
use headpond_log::{
    CommitSide, DataRecord, Durability, FillPolicy, FlashRead, Log, LogIo, LogStart, Mutation, Scanned, TailEntry,
    WriteId, scan,
};

use crate::start::{self, POOL};

pub const POOL_BYTES: u64 = 4 << 20;
pub const SEGMENT_BYTES: usize = 128 << 10;
const SECTOR: usize = 512;
/// Appends stop below this: one for each stream, and one more for the footers' sake.
const RESERVE: usize = 6;

/// SplitMix64: one number decides a whole case.
pub struct Seed(pub u64);

impl Seed {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// What is on the device.
pub struct Flash(pub Vec<u8>);

impl FlashRead for Flash {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        let at = usize::try_from(offset).map_err(|_| Errno::IO)?;
        let end = at.checked_add(len).ok_or(Errno::IO)?;
        Ok(BufMut::copy_of(self.0.get(at..end).ok_or(Errno::IO)?).freeze())
    }
}

struct Unsynced {
    id: WriteId,
    offset: usize,
    data: Buf,
    completed: bool,
}

struct Appended {
    sequence: Sequence,
    stream: Stream,
    entry: Entry,
}

pub struct World {
    number: u64,
    /// How many segments of the host stream are filled at once.
    host_segments: usize,
    seed: Seed,
    log: Log,
    flash: Flash,
    unsynced: Vec<Unsynced>,
    /// The writes that the sync under way covers.
    syncing: Option<Vec<WriteId>>,
    oracle: Vec<Appended>,
    replay_from: Sequence,
    counter: u64,
    lives: BTreeSet<(u32, Generation)>,
    /// Where blank records went.
    blanks: BTreeMap<Sequence, Location>,
    /// A planted bug of recovery.
    pub mutation: Option<Mutation>,
}

fn geometry() -> Geometry {
    Geometry::with_segment_bytes(POOL_BYTES, SEGMENT_BYTES as u64)
}

fn filling(host_segments: usize) -> FillPolicy {
    FillPolicy { host_segments, spare: RESERVE, ..FillPolicy::default() }
}

/// Every block tells which append wrote it.
fn content(sequence: Sequence, object: ObjectId, block: Block, bytes: &mut [u8]) {
    let mut seed = Seed(sequence.0 ^ object.0 << 40 ^ block.0 << 20);
    // Half of it can be packed, and some of that is zeros.
    let first = if sequence.0 % 8 == 7 { 0 } else { seed.next() };
    for eight in bytes.as_chunks_mut::<8>().0 {
        let next = if sequence.0.is_multiple_of(2) { seed.next() } else { first };
        *eight = next.to_le_bytes();
    }
}

impl World {
    pub fn new(number: u64) -> Self {
        Self::filling(1, number)
    }

    /// A log with so many open host segments.
    pub fn filling(host_segments: usize, number: u64) -> Self {
        let mut world = Self {
            number,
            host_segments,
            seed: Seed(number.wrapping_mul(0x1234_5678_9abc_def1)),
            log: Log::new(start::empty(geometry())),
            flash: Flash(vec![0; POOL_BYTES as usize]),
            unsynced: Vec::new(),
            syncing: None,
            oracle: Vec::new(),
            replay_from: Sequence(1),
            counter: 0,
            lives: BTreeSet::new(),
            blanks: BTreeMap::new(),
            mutation: None,
        };
        world.log.fill(filling(host_segments));
        world.checkpoint();
        world
    }

    pub fn image(&self) -> &[u8] {
        &self.flash.0
    }

    /// The sequences that were appended after the checkpoint.
    pub fn appended(&self) -> Vec<Sequence> {
        self.oracle.iter().map(|appended| appended.sequence).collect()
    }

    /// How many lives of segments came after another one.
    pub fn reused(&self) -> usize {
        let segments: BTreeSet<_> = self.lives.iter().map(|(segment, _)| segment).collect();
        self.lives.len() - segments.len()
    }

    /// Random appends, syncs and completions.
    pub fn live(&mut self, steps: u64) {
        for _ in 0..steps {
            let room = self.log.segments().free() > RESERVE;
            match self.seed.below(20) {
                0..8 if room => self.append_data(),
                8..12 if room => self.append_entry(),
                12 if room => self.append_together(),
                13 => self.log.close(Stream::ALL[self.seed.below(3) as usize]),
                14 => self.log.want_sync(Durability::Everywhere),
                15 => self.log.want_sync_of_all(),
                16 if room && self.seed.below(4) == 0 => self.log.seal_all(),
                _ => self.complete_one(),
            }
            self.note_marks();
            self.take_io();
        }
    }

    fn pick(&mut self) -> (ObjectId, Block) {
        (ObjectId(1 + self.seed.below(3)), Block(self.seed.below(40)))
    }

    fn append_data(&mut self) {
        let stream = [Stream::Host, Stream::Host, Stream::Hot, Stream::Cold][self.seed.below(4) as usize];
        let (object, first) = self.pick();
        let most = u64::from(geometry().record_blocks_max());
        let few = self.seed.below(5) > 0;
        let blocks = 1 + self.seed.below(if few { 4 } else { most });
        let grown =
            (stream == Stream::Host && self.seed.below(2) == 0).then(|| (self.seed.below(1 << 20), UnixNanos(7)));
        self.append_record(stream, object, first, blocks as u32, grown);
    }

    fn append_record(
        &mut self,
        stream: Stream,
        object: ObjectId,
        first: Block,
        blocks: u32,
        grown: Option<(u64, UnixNanos)>,
    ) {
        let dirty = stream == Stream::Host;
        let record = DataRecord { stream, object, first, blocks, dirty, grown, class: Class::EVERYBODY, whole: false };
        let sequence = self.log.next_sequence();
        let mut plain = vec![0; blocks as usize * BLOCK];
        for (block, bytes) in (first.0..).zip(plain.chunks_exact_mut(BLOCK)) {
            content(sequence, object, Block(block), bytes);
        }
        if is_blank(&plain) && self.seed.below(4) > 0 {
            let location = self.log.append_blank(record);
            assert!(!self.log.is_durable(location), "seed {}: durable before it is submitted", self.number);
            self.blanks.insert(sequence, location);
            let entry = Entry::Blank { object, first, blocks, dirty, grown, class: Class::EVERYBODY };
            return self.oracle.push(Appended { sequence, stream, entry });
        }
        let compression = [Compression::Off, Compression::Lz4, Compression::Zstd(1)][self.seed.below(3) as usize];
        if blocks as usize <= PACKED_BLOCKS_MAX
            && let Some(mut packed) = pack(compression, &plain)
        {
            let codec = Codec::from_number(packed[4]).unwrap();
            let placed = self.log.append_packed(record, &mut packed);
            assert_eq!(placed.sequence, sequence, "seed {}", self.number);
            let (class, checksum, units) = (Class::EVERYBODY, placed.checksum, u32::from(placed.units));
            let entry = Entry::Packed { object, first, blocks, dirty, grown, class, codec, units, checksum };
            return self.oracle.push(Appended { sequence, stream, entry });
        }
        let placed = self.log.append_data(record, |payload| {
            for (block, bytes) in (first.0..).zip(payload.chunks_exact_mut(BLOCK)) {
                content(sequence, object, Block(block), bytes);
            }
        });
        assert_eq!(placed.sequence, sequence, "seed {}", self.number);
        let entry = Entry::Data { object, first, dirty, grown, class: Class::EVERYBODY, checksums: placed.checksums };
        self.oracle.push(Appended { sequence, stream, entry });
    }

    fn append_entry(&mut self) {
        let (object, first) = self.pick();
        let blocks = 1 + self.seed.below(20);
        let entry = match self.seed.below(6) {
            0 => Entry::Zero { object, first, blocks, mtime: UnixNanos(3) },
            1 => Entry::Drop { object, first, blocks },
            2 => Entry::Clean { object, first, blocks },
            3 => Entry::Truncate { object, size: self.seed.below(1 << 18), mtime: UnixNanos(4) },
            4 => Entry::Rename { from: vec![b'a'; self.seed.below(1024) as usize], to: vec![b'b'; 900] },
            _ => Entry::Forget { object },
        };
        self.append(entry);
    }

    fn append(&mut self, entry: Entry) {
        let sequence = self.log.append(&entry);
        self.oracle.push(Appended { sequence, stream: Stream::Host, entry });
    }

    /// Two entries that must be in one batch.
    fn append_together(&mut self) {
        let (object, first) = self.pick();
        self.log.together(Stream::Host, 2 * Entry::LEN_MAX.min(200), 0);
        self.append(Entry::Drop { object, first, blocks: 1 });
        self.append(Entry::Forget { object });
    }

    /// The log appends marks by itself.
    fn note_marks(&mut self) {
        let next = self.oracle.last().map_or(self.replay_from, |last| last.sequence.next());
        for sequence in next.0..self.log.next_sequence().0 {
            let (sequence, stream) = (Sequence(sequence), Stream::Host);
            self.oracle.push(Appended { sequence, stream, entry: Entry::Mark });
        }
    }

    fn take_io(&mut self) {
        for io in self.log.take_io() {
            match io {
                LogIo::Write { id, at, data } => {
                    let offset = at.offset;
                    let segment = (offset - geometry().segments_start) / SEGMENT_BYTES as u64;
                    let life = self.log.segments().get(SegmentId(segment as u32)).generation;
                    self.lives.insert((segment as u32, life));
                    self.unsynced.push(Unsynced { id, offset: offset as usize, data, completed: false });
                }
                LogIo::Sync { .. } => {
                    assert!(self.syncing.is_none(), "seed {}: two syncs at once", self.number);
                    let covered = self.unsynced.iter().filter(|write| write.completed).map(|write| write.id);
                    self.syncing = Some(covered.collect());
                }
                LogIo::Trim { .. } => {}
            }
        }
    }

    /// Completes a random write, or the sync.
    fn complete_one(&mut self) {
        let waiting: Vec<_> = (0..self.unsynced.len()).filter(|index| !self.unsynced[*index].completed).collect();
        let choice = self.seed.below(waiting.len() as u64 + 1) as usize;
        if let Some(index) = waiting.get(choice) {
            let write = &mut self.unsynced[*index];
            write.completed = true;
            let id = write.id;
            self.log.wrote(id, MemberId(0));
        } else if let Some(covered) = self.syncing.take() {
            let Flash(bytes) = &mut self.flash;
            self.unsynced.retain(|write| {
                let keep = !covered.contains(&write.id);
                if !keep {
                    bytes[write.offset..write.offset + write.data.len()].copy_from_slice(&write.data);
                }
                keep
            });
            self.log.synced(CommitSide::Here);
        }
        self.note_marks();
        self.take_io();
    }

    /// Syncs everything.
    pub fn finish(&mut self) {
        while self.log.has_unsynced() || self.syncing.is_some() {
            self.log.want_sync_of_all();
            self.note_marks();
            self.take_io();
            for _ in 0..20 {
                self.complete_one();
            }
        }
    }

    /// Each unsynced write is kept, dropped or torn by sectors; what was in memory is gone.
    pub fn crash(&mut self) {
        for write in std::mem::take(&mut self.unsynced) {
            let fate = self.seed.below(4);
            for (index, sector) in write.data.chunks(SECTOR).enumerate() {
                if fate == 0 || fate > 1 && self.seed.below(2 + 8 * (fate - 2)) > 0 {
                    let at = write.offset + index * SECTOR;
                    self.flash.0[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        self.syncing = None;
    }

    fn scan(&mut self) -> Scanned {
        scan(&mut self.flash, POOL_BYTES, self.mutation).unwrap_or_else(|error| panic!("seed {}: {error}", self.number))
    }

    /// Host batches on flash that come after one that is missing or torn.
    pub fn beyond_gap(&mut self) -> u64 {
        self.scan().beyond_gap
    }

    /// The log has a planted bug from the next start on.
    pub fn plant_in_log(&mut self, mutation: Mutation) {
        let scanned = self.scan();
        self.log = Log::new(LogStart { mutation: Some(mutation), ..scanned.start });
        self.log.fill(filling(self.host_segments));
        self.checkpoint();
    }

    /// The promises; answers with the sequences that were found.
    pub fn check_what_a_scan_finds(&mut self) -> Vec<Sequence> {
        let number = self.number;
        let found = self.scan();
        let again = self.scan();
        assert_eq!(found.tail, again.tail, "seed {number}: a second scan finds something else");
        assert!(found.tail.is_sorted_by(|one, next| one.sequence < next.sequence), "seed {number}: not in order");

        let by_sequence: BTreeMap<_, _> = self.oracle.iter().map(|appended| (appended.sequence, appended)).collect();
        for TailEntry { sequence, entry, .. } in &found.tail {
            let appended = by_sequence.get(sequence).unwrap_or_else(|| panic!("seed {number}: {entry:?} from nowhere"));
            assert_eq!(&appended.entry, entry, "seed {number}: entry {sequence}");
        }

        let there: BTreeSet<_> = found.tail.iter().map(|entry| entry.sequence).collect();
        let host = self.oracle.iter().filter(|appended| appended.stream == Stream::Host);
        let prefix: Vec<_> = host.clone().take_while(|appended| there.contains(&appended.sequence)).collect();
        let found_host = host.filter(|appended| there.contains(&appended.sequence)).count();
        assert_eq!(prefix.len(), found_host, "seed {number}: a later host entry without an earlier one");
        let last = prefix.last().map_or(Sequence(0), |appended| appended.sequence);
        assert!(there.last().is_none_or(|found| *found <= last), "seed {number}: an entry beyond the last host entry");
        for appended in &self.oracle {
            let synced = match appended.stream {
                Stream::Host => self.log.durable(),
                Stream::Hot | Stream::Cold => self.log.durable_all(),
            };
            let kept = appended.sequence > synced || there.contains(&appended.sequence);
            assert!(kept, "seed {number}: synced entry {} is gone", appended.sequence);
        }

        assert!(there.last().is_none_or(|last| *last < found.start.next_sequence), "seed {number}: a sequence twice");
        assert!(found.start.next_batch > self.log.synced_batch(), "seed {number}: a batch number twice");
        let lives = self.lives.iter().map(|(_, generation)| *generation);
        assert!(lives.max() < Some(found.start.next_generation), "seed {number}: a generation twice");
        self.check_content(&found.tail);
        there.into_iter().collect()
    }

    /// Replays what was found on an empty array, by the bytes on flash and by the oracle's.
    fn check_content(&mut self, tail: &[TailEntry]) {
        let number = self.number;
        let (mut blocks, mut expected) = (BTreeMap::new(), BTreeMap::new());
        for TailEntry { sequence, entry, location, unit } in tail {
            let gone = match *entry {
                Entry::Packed { object, first, blocks: count, units, checksum, .. } => {
                    let location = location.unwrap_or_else(|| panic!("seed {number}: data {sequence} without a place"));
                    let plain = self.unpacked(object, first, (location, *unit, units), checksum);
                    for (index, block) in (0..).zip(first.0..first.0 + u64::from(count)) {
                        let mut wanted = vec![0; BLOCK];
                        content(*sequence, object, Block(block), &mut wanted);
                        let found = &plain[index * BLOCK..(index + 1) * BLOCK];
                        assert!(*found == wanted[..], "seed {number}: other bytes in block {block} of object {object}");
                        blocks.remove(&(object, block));
                        expected.remove(&(object, block));
                    }
                    continue;
                }
                Entry::Blank { object, first, blocks: count, .. } => {
                    let location =
                        location.unwrap_or_else(|| panic!("seed {number}: blank {sequence} without a place"));
                    assert_eq!(location, self.blanks[sequence], "seed {number}: blank {sequence} in another place");
                    for block in first.0..first.0 + u64::from(count) {
                        let mut wanted = vec![0; BLOCK];
                        content(*sequence, object, Block(block), &mut wanted);
                        assert!(is_blank(&wanted), "seed {number}: zeros in block {block} of object {object}");
                        blocks.remove(&(object, block));
                        expected.remove(&(object, block));
                    }
                    continue;
                }
                Entry::Data { object, first, ref checksums, .. } => {
                    let location = location.unwrap_or_else(|| panic!("seed {number}: data {sequence} without a place"));
                    for (index, block) in (0..).zip(first.0..first.0 + checksums.len() as u64) {
                        blocks.insert((object, block), location.plus(index));
                        expected.insert((object, block), *sequence);
                    }
                    continue;
                }
                Entry::Zero { object, first, blocks, .. } | Entry::Drop { object, first, blocks } => {
                    (object, first.0, first.0 + blocks)
                }
                Entry::Truncate { object, size, .. } => (object, size.div_ceil(BLOCK as u64), u64::MAX),
                Entry::Forget { object } => (object, 0, u64::MAX),
                _ => continue,
            };
            let lives = |object: ObjectId, block: u64| object != gone.0 || block < gone.1 || block >= gone.2;
            blocks.retain(|(object, block), _| lives(*object, *block));
            expected.retain(|(object, block), _| lives(*object, *block));
        }
        let mut wanted = vec![0; BLOCK];
        for ((object, block), location) in blocks {
            content(expected[&(object, block)], object, Block(block), &mut wanted);
            let read = self.flash.read(geometry().byte_of(location), BLOCK).unwrap();
            assert!(read[..] == wanted[..], "seed {number}: other bytes in block {block} of object {object}");
        }
    }

    fn unpacked(&mut self, object: ObjectId, first: Block, place: (Location, u8, u32), checksum: u32) -> Vec<u8> {
        let (location, unit, units) = place;
        let offset = geometry().byte_of(location);
        let from = usize::from(unit) * UNIT;
        let len = from + units as usize * UNIT;
        let read = self.flash.read(offset, len.next_multiple_of(BLOCK)).unwrap();
        let generation = self.lives.iter().filter(|(segment, _)| *segment == geometry().segment_of(location).0);
        let mut records = generation.filter_map(|(_, life)| {
            verify_packed(&read[from..len], object, first, Writer { pool: POOL, generation: *life })
        });
        let record =
            records.next_back().unwrap_or_else(|| panic!("seed {}: a packed record that is none", self.number));
        assert_eq!(record.checksum, checksum, "seed {}", self.number);
        let mut plain = vec![0; record.blocks * BLOCK];
        assert!(record.unpack(&mut plain), "seed {}", self.number);
        plain
    }

    /// Takes the pool into use again, as recovery does: a checkpoint of a new epoch first.
    pub fn start_again(&mut self) {
        let scanned = self.scan();
        self.log = Log::new(scanned.start);
        self.log.fill(filling(self.host_segments));
        self.checkpoint();
    }

    /// A checkpoint of the present state, at once and whole: how one is written with the log in
    /// use is the engine's business. Everything must be durable, or have been lost.
    fn checkpoint(&mut self) {
        let geometry = geometry();
        self.counter += 1;
        let mut frames = Vec::new();
        let mut rows = Vec::new();
        self.log.segments().iter().for_each(|(id, _)| self.log.segments().row(id).encode(&mut rows));
        encode_frame(FrameKind::Segments, self.counter, &rows, &mut frames);
        encode_frame(FrameKind::End, self.counter, &[], &mut frames);
        let head = CheckpointHead {
            pool: POOL,
            counter: self.counter,
            epoch: self.log.epoch(),
            replay_from: self.log.next_sequence(),
            last_host: self.log.last_host(),
            next_batch: self.log.next_batch(),
            next_object: 1,
            next_generation: self.log.next_generation(),
            frame_bytes: frames.len() as u64,
        };
        let area = (self.counter % 2) as u8;
        let superblock = Superblock {
            pool: POOL,
            member: MemberId(0),
            members: Members::first(geometry.member(MemberName([5; 16]))),
            owner: OwnerNumber(1),
            geometry,
            counter: self.counter,
            epoch: head.epoch,
            origin: None,
            checkpoint_area: area,
            checkpoint_bytes: (BLOCK + frames.len()) as u64,
            synced_through: self.log.synced_batch(),
            synced_host: self.log.synced_host(),
            mode: CacheMode::WriteBack,
            clean_stop: false,
            dirty_blocks: 0,
            boot: [0; 16],
            claim: [0; 16],
            host_copies: HostCopies::ONE,
            may_have_packed: false,
            may_have_blanks: false,
        };
        let start = geometry.checkpoint_start(usize::from(area)) as usize;
        let mut put = |at: usize, bytes: &[u8]| self.flash.0[at..at + bytes.len()].copy_from_slice(bytes);
        put(start, &encode_checkpoint_head(&head));
        put(start + BLOCK, &frames);
        for slot in SUPERBLOCK_SLOTS {
            put(slot as usize, &encode_superblock(&superblock));
        }
        self.replay_from = head.replay_from;
        self.oracle.clear();
    }

    /// A checkpoint, after which every full segment is reused: the map points nowhere.
    pub fn checkpoint_and_release(&mut self) {
        self.checkpoint();
        let full = self.log.segments().iter().filter(|(_, segment)| segment.state == SegmentState::Sealed);
        let full: Vec<_> = full.map(|(id, _)| id).collect();
        let next = self.log.next_sequence();
        for id in full {
            self.log.segments_mut().empty(id, next);
        }
        self.log.release(self.replay_from, None, |_| false);
    }

    /// So many host records, each made durable by itself.
    pub fn write_and_sync(&mut self, records: u64) {
        for block in 0..records {
            self.append_record(Stream::Host, ObjectId(1), Block(block), 1, None);
            self.finish();
        }
    }

    /// Where the heads of host batches are on flash, in order of their numbers.
    pub fn host_batches(&self) -> Vec<usize> {
        let blocks = (geometry().segments_start as usize..POOL_BYTES as usize).step_by(BLOCK);
        let heads = blocks.filter_map(|at| Some((decode_batch(&self.flash.0[at..at + BLOCK]).ok()?.0, at)));
        let host: BTreeMap<_, _> =
            heads.filter(|(head, _)| head.stream == Stream::Host).map(|(head, at)| (head.number, at)).collect();
        host.into_values().collect()
    }

    /// A byte where damage is likely to matter.
    pub fn interesting(&self, seed: &mut Seed) -> usize {
        let geometry = geometry();
        let segments = geometry.segments_start + seed.below(u64::from(geometry.segments)) * SEGMENT_BYTES as u64;
        let place = match seed.below(8) {
            0 => SUPERBLOCK_SLOTS[seed.below(2) as usize] + seed.below(300),
            1 => geometry.checkpoint_start(seed.below(2) as usize) + seed.below(8192),
            2 => segments + SEGMENT_BYTES as u64 - 1 - seed.below(200),
            3 => segments + seed.below(64),
            4..7 => segments + seed.below((SEGMENT_BYTES / BLOCK) as u64) * BLOCK as u64 + seed.below(200),
            _ => seed.below(POOL_BYTES),
        };
        place as usize
    }
}
