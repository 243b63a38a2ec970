//! Appending, closing batches, and their way to the members. `commit` says when they are durable.
//!
//! Group commit: a sync closes the host batch, waits for the writes up to it, and then syncs all
//! members once. Meanwhile changes gather in the next batch, which closes when that sync ends. So a
//! busy pool makes few large commits, and an idle one makes small ones at once.
//!
//! Without a sync, the log submits a batch once it is large enough to be worth a write and the flash has little to do.
//! Then little is left to write when the sync comes. The price: a head block for each such batch, 3 % of the bytes. If
//! the flash does not keep up, batches grow instead. Where a sync is to be expected ([`SyncRhythm`]), the log writes
//! and syncs before a request asks.
//!
//! The host stream may fill several segments with its batches ([`OpenSegments`]); `place` says which is next. A sync
//! waits for every earlier write, in whichever segment it lies, so what is durable is always a prefix.
//!
//! With a [`SecondTail`], host batches lie in memory that outlives the process. [`Log::take_io`] and [`Log::close`],
//! which come between requests, publish them there.

mod commit;
mod early;
mod place;

pub use place::MemberSpeed;

use commit::Commits;

use std::ops::Range;

use headpond_base::{
    BLOCK, BatchNumber, Block, Buf, BufMut, Epoch, Generation, Location, MemberId, ObjectId, OwnerNumber, PoolId,
    Redundancy, SegmentId, Sequence, Stream,
};
use headpond_format::{
    Address, BLOCK_UNITS, BatchHead, Codec, Entry, Geometry, HostCopies, Placement, SegmentHead, SegmentState,
    SummaryBatch, UNIT, Writer, block_checksum, encode_batch, encode_footer, encode_segment_head, finish_packed,
    verify_block, verify_packed,
};
use headpond_map::PackedPlace;
use smallvec::SmallVec;

use crate::buffers::Buffers;
use crate::health::Health;
use crate::lenders::Lenders;
use crate::mutation::Mutation;
use crate::open::{OpenBatch, OpenSegment};
use crate::open_segments::{FillPolicy, OpenSegments};
use crate::record::{DataRecord, Placed, PlacedPacked, bound_writer};
use crate::second_tail::SecondTail;
use crate::segments::{Segment, Segments};
use crate::start::{LogIo, LogStart, WriteId};
use crate::sync_rhythm::SyncRhythm;
use crate::writes::Writes;

/// What requests hear meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    durable: Sequence,
    host: BatchNumber,
    /// What is durable on this host alone is held as well.
    here: bool,
}

/// The log of one pool.
pub struct Log {
    pool: PoolId,
    pub(crate) geometry: Geometry,
    pub(crate) owner: OwnerNumber,
    epoch: Epoch,
    pub(crate) segments: Segments,
    pub(crate) open: OpenSegments,
    filling: FillPolicy,
    speeds: Vec<MemberSpeed>,
    rhythm: SyncRhythm,
    pub(crate) buffers: Buffers,
    pub(crate) second_tail: Option<SecondTail>,
    next_sequence: Sequence,
    last_host_sequence: Sequence,
    pub(crate) next_batch: BatchNumber,
    next_generation: Generation,
    last_host: BatchNumber,
    writes: Writes,
    commits: Commits,
    /// Since a member was lost, and until its loss is known elsewhere: what requests hear.
    pub(crate) held: Option<Held>,
    pub(crate) redundancy: Redundancy,
    pub(crate) may_have_weak: bool,
    /// Second copies are made anew.
    restores_copies: bool,
    /// What the superblock that a crash would leave may say of the copies of host batches.
    pub(crate) claimed_copies: HostCopies,
    /// They have no more than these, and no superblock says so.
    pub(crate) untold_copies: Option<HostCopies>,
    /// A member that is gone, whose number another is to have: what lies in segments of its slots moves.
    pub(crate) number_wanted: Option<MemberId>,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) health: Health,
    io: Vec<LogIo>,
}

impl Log {
    /// Makes a log that goes on from `start`.
    #[must_use]
    pub fn new(start: LogStart) -> Self {
        let before = Sequence(start.next_sequence.0 - 1);
        let last_batch = BatchNumber(start.next_batch.0 - 1);
        let health = Health::new(&start.members);
        let may_have_weak = !start.addresses.is_of_one_member();
        let mut segments =
            Segments::new(start.addresses, start.segments, start.rows, &start.take_new, &start.copies_only);
        segments.plant(start.mutation);
        Self {
            pool: start.pool,
            geometry: start.geometry,
            owner: start.owner,
            epoch: start.epoch,
            segments,
            open: OpenSegments::new(),
            filling: FillPolicy::default(),
            speeds: Vec::new(),
            rhythm: SyncRhythm::default(),
            buffers: Buffers::default(),
            second_tail: None,
            next_sequence: start.next_sequence,
            last_host_sequence: before,
            next_batch: start.next_batch,
            next_generation: start.next_generation,
            last_host: last_batch,
            writes: Writes::new(),
            commits: Commits::new(before, last_batch),
            held: None,
            redundancy: Redundancy::None,
            may_have_weak,
            restores_copies: false,
            claimed_copies: HostCopies::ONE,
            untold_copies: None,
            number_wanted: None,
            mutation: start.mutation,
            health,
            io: Vec::new(),
        }
    }

    /// Sets how the host stream is filled, if not by default. Call it before the first append.
    pub fn fill(&mut self, filling: FillPolicy) {
        self.open.host_at_once(filling.host_segments);
        self.filling = filling;
    }

    /// Lets the host stream fill at least so many segments at once from now on: there are more members to keep busy.
    pub fn widen(&mut self, host_segments: usize) {
        self.open.widen(host_segments);
    }

    /// The division of the pool.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The present use of the pool.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The segment table.
    #[must_use]
    pub const fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The segment table. Keep it in step with the map.
    pub const fn segments_mut(&mut self) -> &mut Segments {
        &mut self.segments
    }

    /// The next entry's sequence.
    #[must_use]
    pub const fn next_sequence(&self) -> Sequence {
        self.next_sequence
    }

    /// The next batch's number.
    #[must_use]
    pub const fn next_batch(&self) -> BatchNumber {
        self.next_batch
    }

    /// The next segment generation.
    #[must_use]
    pub const fn next_generation(&self) -> Generation {
        self.next_generation
    }

    /// The last host batch that was submitted.
    #[must_use]
    pub const fn last_host(&self) -> BatchNumber {
        self.last_host
    }

    /// All entries of all streams up to this one are durable.
    #[must_use]
    pub fn durable_all(&self) -> Sequence {
        self.commits.durable_all()
    }

    /// All batches up to this one are durable.
    #[must_use]
    pub fn synced_batch(&self) -> BatchNumber {
        self.commits.batch()
    }

    /// The last host batch that is durable on every member that works. Nobody outside may hear of it before
    /// [`Log::durable_host`] says so.
    #[must_use]
    pub fn synced_host(&self) -> BatchNumber {
        self.commits.host()
    }

    /// Bytes that are submitted but not durable.
    #[must_use]
    pub const fn unsynced_bytes(&self) -> usize {
        self.buffers.unsynced_bytes()
    }

    /// Whether a block is durable on flash. The head block of an open or unsynced batch is not.
    #[must_use]
    pub fn is_durable(&self, location: Location) -> bool {
        self.open_batch(location).is_none() && !self.buffers.unsynced(location)
    }

    /// Whether memory has a block's bytes, or a packed record that begins in it.
    #[must_use]
    pub fn is_in_memory(&self, location: Location) -> bool {
        self.open_payload(location).is_some() || self.buffers.has(location)
    }

    /// The bytes of some units, if they are in memory. The first unit of `location` is 0.
    #[must_use]
    pub fn in_memory(&self, location: Location, units: Range<u32>) -> Option<Buf> {
        match self.open_payload(location) {
            Some((batch, index)) => {
                let first = index * BLOCK_UNITS;
                let bytes = batch.payload(first + units.start..first + units.end)?;
                Some(BufMut::copy_of(bytes).freeze())
            }
            None => self.buffers.bytes(location, units.start as usize * UNIT, units.len() * UNIT),
        }
    }

    /// Whether `bytes` are those that were appended at `location`.
    #[must_use]
    pub fn verify(&self, object: ObjectId, block: Block, location: Location, checksum: u32, bytes: &[u8]) -> bool {
        Mutation::AcceptTornBatch.is_planted(self.mutation)
            || Mutation::RowUnverified.is_planted(self.mutation) && self.is_read_out_of_row(location)
            || verify_block(bytes, checksum, object, block, self.writer_of(location))
    }

    /// Unpacks a record of `object` that begins in the block `location`. `place` is that of any of its blocks; `first`
    /// is its first block. `false` if the bytes are not those that were appended there.
    #[must_use]
    pub fn unpack(
        &self,
        (object, first): (ObjectId, Block),
        location: Location,
        place: PackedPlace,
        bytes: &[u8],
        plain: &mut [u8],
    ) -> bool {
        let record = verify_packed(bytes, object, first, self.writer_of(location));
        record.is_some_and(|record| {
            record.blocks == usize::from(place.blocks) && place.agrees(record.checksum) && record.unpack(plain)
        })
    }

    /// The writer of the bytes at a location.
    fn writer_of(&self, location: Location) -> Writer {
        self.writer(self.segments.get(self.geometry.segment_of(location)).generation)
    }

    /// This pool as a writer, in the life `generation` of one of its segments.
    fn writer(&self, generation: Generation) -> Writer {
        bound_writer(Writer { pool: self.pool, generation }, self.mutation)
    }

    /// The open batch that holds a block, and the block's number in it. The batch's head is block 0.
    fn open_batch(&self, location: Location) -> Option<(&OpenBatch, u32)> {
        let segment = self.geometry.segment_of(location);
        let open = self.open.all().find(|open| open.id == segment)?;
        let batch = open.batch.as_ref()?;
        let block = self.geometry.block_in_segment(location);
        let index = block.checked_sub(batch.start)?;
        (index <= batch.payload_blocks()).then_some((batch, index))
    }

    /// The open batch that holds a block, and the block's number in the payload.
    fn open_payload(&self, location: Location) -> Option<(&OpenBatch, u32)> {
        let (batch, index) = self.open_batch(location)?;
        Some((batch, index.checked_sub(1)?))
    }

    /// Makes sure that the next appends to `stream` go into one batch, whole or not at all: entries of `entry_bytes`
    /// bytes with `blocks` blocks of payload.
    ///
    /// # Panics
    /// When they fit into no batch, or no segment is free. Callers keep a reserve.
    pub fn together(&mut self, stream: Stream, entry_bytes: usize, blocks: u32) {
        if self.open.current(stream).is_some_and(|open| open.batch_fits(entry_bytes, blocks))
            && self.slot_fits(stream, blocks)
        {
            return;
        }
        self.close(stream);
        self.make_room(stream, entry_bytes, blocks);
        let memory = self.memory(stream, blocks);
        let open = self.open.current_mut(stream).expect("just opened");
        open.begin_batch(memory);
        assert!(
            open.batch_fits(entry_bytes, blocks),
            "{entry_bytes} bytes of entries with {blocks} blocks fit no batch"
        );
    }

    /// Memory for a new batch: of the second tail, if the stream is the host's and there is one with a free slot.
    fn memory(&mut self, stream: Stream, blocks: u32) -> BufMut {
        let tail = self.second_tail.as_mut().filter(|_| stream == Stream::Host);
        let lent = tail.and_then(|tail| tail.lend(OpenBatch::bytes_for(blocks), &mut self.buffers));
        lent.unwrap_or_else(OpenBatch::memory)
    }

    /// Makes room in the open batch's slot, if it lies in one. `false` if it must end here for want of a larger slot.
    fn slot_fits(&mut self, stream: Stream, blocks: u32) -> bool {
        let Some(batch) = self.open.current_mut(stream).and_then(|open| open.batch.as_mut()) else { return true };
        let Some(tail) = self.second_tail.as_mut().filter(|_| batch.slot().is_some() && !batch.has_memory(blocks))
        else {
            return true;
        };
        let larger = tail.lend(OpenBatch::bytes_for(batch.payload_blocks() + blocks), &mut self.buffers);
        let Some(larger) = larger else { return false };
        let before = batch.move_to(larger);
        tail.moved(&before, batch);
        true
    }

    /// Goes on to a segment with room for a new batch. Opens one if none has room. Seals segments on the
    /// way that are too full.
    fn make_room(&mut self, stream: Stream, entry_bytes: usize, blocks: u32) {
        self.choose_place(stream);
        for _ in 0..self.open.at_once(stream) {
            if let Some(open) = self.open.current(stream) {
                if open.new_batch_fits(entry_bytes, blocks) {
                    return;
                }
                self.seal_current(stream);
            }
            if self.may_open_another(stream) {
                return self.open_segment(stream);
            }
            self.open.pass(stream);
        }
    }

    /// Appends an entry without payload to the host stream.
    pub fn append(&mut self, entry: &Entry) -> Sequence {
        let sequence = self.next_sequence;
        let mut bytes = Vec::with_capacity(128);
        entry.encode(sequence, &mut bytes);
        self.together(Stream::Host, bytes.len(), 0);
        self.push(Stream::Host, &bytes);
        sequence
    }

    /// Appends a record. `fill` writes the payload into the batch. If the record is not `whole`, its first and last
    /// block start as zeros, and `fill` may write parts of them. `fill` must write every byte between them.
    pub fn append_data(&mut self, record: DataRecord, fill: impl FnOnce(&mut [u8])) -> Placed {
        let DataRecord { stream, object, first, blocks, dirty, grown, class, whole } = record;
        self.together(stream, Entry::data_len(blocks as usize), blocks);
        let sequence = self.next_sequence;
        let open = self.open.current_mut(stream).expect("together opened it");
        let id = open.id;
        let writer = bound_writer(Writer { pool: self.pool, generation: open.generation }, self.mutation);
        let batch = open.batch();
        let in_segment = batch.start + 1 + batch.payload_blocks();
        let payload = batch.extend(blocks, whole);
        fill(payload);
        let checksums: Vec<u32> = (first.0..)
            .zip(payload.as_chunks::<BLOCK>().0)
            .map(|(block, bytes)| block_checksum(bytes, object, Block(block), writer))
            .collect();
        let entry = Entry::Data { object, first, dirty, grown, class, checksums };
        let mut bytes = Vec::with_capacity(Entry::data_len(blocks as usize));
        entry.encode(sequence, &mut bytes);
        self.push(stream, &bytes);
        let Entry::Data { checksums, .. } = entry else { unreachable!("made as data above") };
        Placed { sequence, location: self.geometry.first_location(id).plus(in_segment), checksums }
    }

    /// Appends a packed record, and gives it its checksum. It takes no more of a batch than its blocks would as they
    /// are, in payload and in entries, and asks for no more. So records whose room was made together stay together.
    pub fn append_packed(&mut self, record: DataRecord, packed: &mut [u8]) -> PlacedPacked {
        let DataRecord { stream, object, first, blocks, dirty, grown, class, .. } = record;
        self.together(stream, Entry::PACKED_LEN, blocks);
        let sequence = self.next_sequence;
        let open = self.open.current_mut(stream).expect("together opened it");
        let id = open.id;
        let checksum = finish_packed(
            packed,
            object,
            first,
            bound_writer(Writer { pool: self.pool, generation: open.generation }, self.mutation),
        );
        let batch = open.batch();
        let (start, from) = (batch.start + 1, batch.next_unit());
        batch.append_packed(packed);
        let codec = Codec::from_number(packed[4]).expect("packed by a codec");
        let units = batch.next_unit() - from;
        let entry = Entry::Packed { object, first, blocks, dirty, grown, class, codec, units, checksum };
        let mut bytes = Vec::with_capacity(Entry::PACKED_LEN);
        entry.encode(sequence, &mut bytes);
        self.push(stream, &bytes);
        let (block, unit) = (start + from / BLOCK_UNITS, from % BLOCK_UNITS);
        let small = |units: u32| u8::try_from(units).expect("a packed record is bounded");
        let location = self.geometry.first_location(id).plus(block);
        PlacedPacked { sequence, location, unit: small(unit), units: small(units), checksum }
    }

    /// Appends a blank record: the batch has only its entry. Returns the location of the batch's head. Like
    /// [`Log::append_packed`] it takes no more room than was made.
    pub fn append_blank(&mut self, record: DataRecord) -> Location {
        let DataRecord { stream, object, first, blocks, dirty, grown, class, .. } = record;
        self.together(stream, Entry::BLANK_LEN, 0);
        let open = self.open.current_mut(stream).expect("together opened it");
        let (id, start) = (open.id, open.batch().start);
        let mut bytes = Vec::with_capacity(Entry::BLANK_LEN);
        Entry::Blank { object, first, blocks, dirty, grown, class }.encode(self.next_sequence, &mut bytes);
        self.push(stream, &bytes);
        self.geometry.first_location(id).plus(start)
    }

    fn push(&mut self, stream: Stream, entry: &[u8]) {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.next();
        if stream == Stream::Host {
            self.last_host_sequence = sequence;
            self.rhythm.changed();
        }
        if stream == Stream::Host && Mutation::PublishLate.is_planted(self.mutation) {
            self.publish();
        }
        let open = self.open.current_mut(stream).expect("together opened it");
        open.batch().push(entry, sequence);
        self.segments.get_mut(open.id).last_sequence = sequence;
        if stream == Stream::Host && Mutation::PublishInPart.is_planted(self.mutation) {
            self.publish();
        }
    }

    /// The head that the open batch would have now.
    pub(crate) fn batch_head(&self, open: &OpenSegment, batch: &OpenBatch) -> BatchHead {
        BatchHead {
            pool: self.pool,
            epoch: self.epoch,
            segment: open.id,
            generation: open.generation,
            stream: open.stream,
            number: self.next_batch,
            previous_host: self.last_host,
            owner: self.owner,
            synced_through: self.synced_batch(),
            synced_host: self.synced_host(),
            payload_blocks: batch.payload_blocks(),
        }
    }

    /// Submits the open batch of the stream, if there is one.
    pub fn close(&mut self, stream: Stream) {
        let Some(batch) = self.open.current_mut(stream).and_then(|open| open.batch.take()) else { return };
        let Some(open) = self.open.current(stream) else { return };
        let head = self.batch_head(open, &batch);
        let (id, start, number, payload_blocks) = (open.id, batch.start, head.number, head.payload_blocks);
        self.next_batch = number.next();
        if stream == Stream::Host {
            self.last_host = number;
        }
        let (mut buffer, entries) = batch.into_buffer();
        encode_batch(&head, &entries, &mut buffer[..BLOCK]);
        let summary = SummaryBatch {
            number,
            previous_host: head.previous_host,
            synced_through: head.synced_through,
            synced_host: head.synced_host,
            start,
            entries,
        };
        self.open.current_mut(stream).expect("it had the batch").submitted(summary, payload_blocks);
        let at = self.geometry.first_location(id).plus(start);
        let data = buffer.freeze();
        self.buffers.keep(at, number, data.clone());
        let places = self.places_to_write(id, at);
        if stream == Stream::Host
            && let Some(tail) = &mut self.second_tail
        {
            tail.closed(self.writes.next(), &places, &head, &data);
        }
        self.write(id, &places, &data);
    }

    /// Seals the present segment. It has no open batch.
    fn seal_current(&mut self, stream: Stream) {
        if let Some(open) = self.open.take(stream) {
            self.seal(&open);
        }
    }

    /// Submits the footer of a segment, which then takes no more batches.
    pub(crate) fn seal(&mut self, open: &OpenSegment) {
        assert!(open.batch.is_none(), "a segment is sealed with its last batch open");
        let footer = encode_footer(&self.segment_head(open), &open.summary);
        #[allow(clippy::cast_possible_truncation)] // a footer is smaller than its segment
        let footer_blocks = (footer.len() / BLOCK) as u32;
        self.segments.get_mut(open.id).state = SegmentState::Sealed;
        let at = self.geometry.first_location(open.id).plus(self.geometry.segment_blocks() - footer_blocks);
        let places = self.places_to_write(open.id, at);
        self.write(open.id, &places, &BufMut::copy_of(&footer).freeze());
    }

    /// Seals every open segment, so that the pool can be closed.
    pub fn seal_all(&mut self) {
        for stream in Stream::ALL {
            self.close(stream);
            for open in self.open.take_all(stream) {
                self.seal(&open);
            }
        }
    }

    fn open_segment(&mut self, stream: Stream) {
        let mirrored = stream == Stream::Host && self.mirrors();
        let spread = self.makes_rows();
        let with_copies = if mirrored { self.segments.take_free_with_copies(spread) } else { None };
        let opened = with_copies.or_else(|| self.take_free(mirrored).map(|id| (id, Lenders::NONE)));
        let (id, lenders) = opened.expect("no free segment: appends went beyond the reserve");
        let generation = self.next_generation;
        self.next_generation = generation.next();
        *self.segments.get_mut(id) = Segment {
            under_way: self.segments.get(id).under_way,
            lenders,
            ..Segment::new(generation, SegmentState::Open, stream)
        };
        if stream == Stream::Host {
            // After the loss of a member its room may be what is missing for pairs.
            self.note_copies(id);
        }
        let first = self.geometry.first_location(id);
        self.buffers.forget(first, self.geometry.segment_blocks());
        let open = OpenSegment::new(id, generation, stream, self.geometry.segment_blocks());
        let (places, heads): (SmallVec<[Address; 2]>, SmallVec<[Buf; 2]>) = self
            .segments
            .keepers(id)
            .map(|keeper| {
                let mut head = BufMut::zeroed(BLOCK);
                encode_segment_head(&self.segment_head(&open), &self.placement(&open, keeper), &mut head);
                (self.segments.addresses().within(keeper, first), head.freeze())
            })
            .unzip();
        self.open.put(open);
        let written = self.write_each(id, &places, |which| heads[which].clone());
        if stream == Stream::Host
            && !lenders.are_none()
            && let Some(tail) = &mut self.second_tail
        {
            tail.waits_for(written);
        }
    }

    const fn segment_head(&self, open: &OpenSegment) -> SegmentHead {
        SegmentHead {
            pool: self.pool,
            epoch: self.epoch,
            segment: open.id,
            generation: open.generation,
            stream: open.stream,
        }
    }

    /// What the head of a segment says in the home of `keeper`.
    fn placement(&self, open: &OpenSegment, keeper: SegmentId) -> Placement {
        let here = self.segments.addresses().home(keeper);
        let writer = Writer { pool: self.pool, generation: open.generation };
        let layout = self.segments.layout(open.id);
        Placement { owner: self.owner, here, layout, writer, writer_segment: open.id }
    }

    fn write(&mut self, segment: SegmentId, places: &[Address], data: &Buf) {
        self.write_each(segment, places, |_| data.clone());
    }

    /// The places of a block on members that work. At least one while the pool takes writes.
    pub(crate) fn places_to_write(&self, segment: SegmentId, at: Location) -> SmallVec<[Address; 2]> {
        self.segments.places(segment, at).filter(|place| self.health.works(place.member)).collect()
    }

    /// One write that goes to several places. Without any it is as good as done: its member is lost, and others have
    /// what counts.
    fn write_each(&mut self, segment: SegmentId, places: &[Address], data: impl Fn(usize) -> Buf) -> WriteId {
        let data: SmallVec<[Buf; 2]> = (0..places.len()).map(data).collect();
        let bytes = data.first().map_or(0, |data| data.len() as u64);
        let id = self.writes.begin(segment, bytes, places);
        self.segments.get_mut(segment).under_way += u32::from(!places.is_empty());
        self.io.extend(places.iter().zip(data).map(|(at, data)| LogIo::Write { id, at: *at, data }));
        id
    }

    /// Carries the chain of the host stream over the entries of other streams. After a crash those count only up to
    /// the last host entry: see `tail`.
    pub fn mark(&mut self) {
        if self.last_host_sequence.next() < self.next_sequence {
            self.append(&Entry::Mark);
        }
    }

    /// Whether a sync would have something to do: some entry is not durable.
    #[must_use]
    pub fn has_unsynced(&self) -> bool {
        self.durable_all().next() < self.next_sequence
    }

    /// Whether a write of a segment is under way.
    #[must_use]
    pub fn is_being_written(&self, segment: SegmentId) -> bool {
        self.writes.any_of(segment)
    }

    /// Whether an entry of the host stream is not durable. Requests ask for these entries.
    #[must_use]
    pub fn has_unsynced_changes(&self) -> bool {
        self.durable() < self.last_host_sequence
    }

    /// Frees emptied segments that nothing durable needs; see [`Segments`]. Returns how many. `is_read`: whether a read of
    /// something in the slot that begins there is under way.
    pub fn release(
        &mut self,
        replay_from: Sequence,
        checkpoint_begun: Option<Sequence>,
        is_read: impl Fn(Address) -> bool,
    ) -> usize {
        let mut released = self.settle_rows(is_read);
        released.extend(self.segments.release(self.commits.durable(), replay_from, checkpoint_begun));
        for id in &released {
            let at = self.segments.addresses().of_segment(*id);
            if self.health.works(at.member) {
                self.io.push(LogIo::Trim { at, len: u64::from(self.geometry.segment_bytes) });
            }
        }
        released.len()
    }

    /// Takes the I/O to be done, in order. Call it between changes, not in the middle of one: it may submit an open
    /// batch.
    pub fn take_io(&mut self) -> Vec<LogIo> {
        self.submit_early();
        self.submit_small();
        self.cover();
        std::mem::take(&mut self.io)
    }
}
