//! Checkpoints: the map, the objects and the segment table written down while all goes on.
//!
//! A checkpoint is begun at a sequence and walks over the objects a piece at a time, as fast as
//! the flash takes the pieces and no faster. What it finds may already be newer than its beginning;
//! replay from there makes that exact. It counts once three things are durable, in this order:
//! every entry that it may show, its own bytes, and the superblock that names it.
//!
//! Invariant: a checkpoint that counts has every slot that is dirty, and all zeros. Where room is short, clean slots
//! are left out, one by one as it is written ([`Selection`]); one that becomes too long all the same, because much
//! became dirty before and behind the walk, is given up, and begun again with what is dirty alone while changes wait.

use headpond_base::{BLOCK, Block, Buf, BufMut, Compression, MemberId, ObjectId, Sequence};
use headpond_format::{
    Address, BLOCK_UNITS, CheckpointHead, Entry, FrameKind, Geometry, HostCopies, MemberState, Members,
    SUPERBLOCK_SLOTS, Superblock, encode_checkpoint_head, encode_frame, encode_superblock,
};
use headpond_map::{EXTENT_BYTES, SLOT_BYTES, Slot};

use crate::config::Config;
use crate::locks::OpId;
use crate::store::Store;
use crate::store::object::PATH_ROOM;

/// Bytes of checkpoint that are written at a time, at most two of them at once.
const PIECE: usize = 256 << 10;
const PIECES_AT_ONCE: u32 = 2;
/// While second copies are made anew, and in a checkpoint with a new list: reads wait for it, as they do for the copies.
const SMALL_PIECE: usize = 64 << 10;
/// The same of the first checkpoint: all requests wait for it, so it takes what the flash can.
const FIRST_PIECE: usize = 2 << 20;
const FIRST_PIECES_AT_ONCE: u32 = 4;
/// What may be appended between two checkpoints, and so has to be replayed after a crash: this many
/// bytes, or so many times what the last checkpoint took, whichever is more. The first keeps a restart well
/// below a second: half a GiB is 130,000 entries of 4 KiB. The second bounds what checkpoints add to what is
/// written at 6 %.
const TAIL_BYTES: u64 = 512 << 20;
const TAIL_CHECKPOINTS: u64 = 16;
/// The share of its room that clean slots leave free in a checkpoint that is short of it when it is begun, as a
/// fraction: what becomes dirty while it is written comes on top.
const MAP_SPARE: u64 = 8;
/// The same for one that is not. Unpacked, a full pool with each block in a chunk of its own leaves so much: the
/// checkpoint areas themselves take more than a 128th of the pool. The frames of long objects need a 16th of it.
const MAP_LEAST_SPARE: u64 = 128;
/// Bytes of map slots in one frame.
const FRAME: usize = 64 << 10;
/// Bytes before the slots of each chunk.
const CHUNK_HEAD: u64 = 6;

/// Where in an object a walk is.
#[derive(Clone, Copy)]
enum At {
    /// Before its own entry.
    Entry,
    /// At this block of its zeros.
    Zeros(Block),
    /// At this chunk of its map.
    Chunk(u64),
}

enum CheckpointStage {
    /// Goes on with this object, here.
    Walking(ObjectId, At),
    /// Is given up for its length or its list, and begun again once nothing of it is under way.
    GivenUp,
    /// Waits for everything up to here to be durable.
    Settling(Sequence),
    /// Waits for its own bytes to be durable.
    SyncingBody,
    /// Its superblock goes to new members first: no other may name one that does not know it.
    WritingToNew,
    SyncingNew,
    WritingSuperblock,
    SyncingSuperblock,
    /// Writes the other slot the same, so that either may rot.
    Copying,
}

/// A checkpoint being written.
struct Running {
    head: CheckpointHead,
    area: u8,
    stage: CheckpointStage,
    buffer: Vec<u8>,
    /// Bytes of frames submitted.
    written: u64,
    /// What paths may still take, and grows with each object.
    path_room: u64,
    under_way: u32,
    superblock: Option<Superblock>,
    selection: Selection,
    /// The list of members that it brings.
    list: Members,
    /// How many segments it has rows for.
    segments: u32,
    /// How many members have each host batch from here on.
    host_copies: HostCopies,
}

/// Which blocks a checkpoint has. If blocks are packed, a pool can hold more than a checkpoint has room for. Clean ones
/// that are left out are, after a start, as if they had been evicted.
struct Selection {
    /// Bytes of map of which clean slots may fill what dirty ones, here or to come, do not.
    for_map: u64,
    /// At most so many bytes go before chunks that are still to come.
    heads: u64,
    /// Whether clean slots that are not worth keeping are left out.
    short: bool,
    /// Only what is dirty is written.
    bare: bool,
    /// Bytes of map that were written.
    used: u64,
    /// Dirty slots, and extents of zeros, that were written.
    dirty: u64,
}

impl Selection {
    /// Whether a slot is written, in a pool with so many dirty blocks. Some of those may have been written already and
    /// be clean by now, so what is to come is an estimate; too much is noticed in [`Checkpoints::walk`].
    fn wants(&mut self, slot: &Slot, dirty_blocks: u64) -> bool {
        let slot_bytes = SLOT_BYTES as u64;
        let wanted = slot.dirty || {
            let to_come = dirty_blocks.saturating_sub(self.dirty);
            let reserved = to_come * slot_bytes + self.heads.min(to_come * CHUNK_HEAD);
            !self.bare && (slot.kept || !self.short) && self.used + slot_bytes + CHUNK_HEAD + reserved <= self.for_map
        };
        self.dirty += u64::from(slot.dirty);
        self.used += if wanted { slot_bytes } else { 0 };
        wanted
    }

    /// So many bytes of zeros were written.
    const fn note_zeros(&mut self, bytes: usize) {
        self.used += bytes as u64;
        self.dirty += (bytes / EXTENT_BYTES) as u64;
    }
}

/// What of the engine a checkpoint is written of, and when.
pub(crate) struct Of<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) config: &'a Config,
    /// No more than the last one is wanted.
    pub(crate) stopping: bool,
    /// Segments that should be free: while there are fewer, one is written for those that wait for it.
    pub(crate) free_wanted: usize,
    /// Some slots are to be emptied, and wait for segments to be free.
    pub(crate) empties: bool,
    /// The list of members that is wanted.
    pub(crate) list: &'a Members,
}

/// What is asked of the flash; each is answered.
pub(crate) enum Ask {
    Write {
        at: Address,
        data: Buf,
    },
    /// Of each member: they all have the checkpoints and their superblocks.
    Sync,
}

/// What an answer ended.
#[derive(Default)]
pub(crate) struct CheckpointEnd {
    /// A checkpoint counts.
    pub(crate) counts: bool,
    /// The list of members that it brought.
    pub(crate) list: Option<Members>,
    /// The request that waited for the last one.
    pub(crate) op: Option<OpId>,
}

/// The checkpoint that counts, and the one being written. Owned by the engine, which carries out what is asked.
pub(crate) struct Checkpoints {
    superblock: Superblock,
    replay_from: Sequence,
    /// The next generation when the last checkpoint was begun: how long the tail is.
    begun_generation: u64,
    running: Option<Running>,
    /// The first one of this epoch is not written yet: there is no log to append to.
    starting: bool,
    /// The last one: this request waits for it.
    last: Option<OpId>,
    asks: Vec<Ask>,
}

impl Checkpoints {
    pub(crate) const fn new(superblock: Superblock) -> Self {
        Self {
            superblock,
            replay_from: Sequence(0),
            begun_generation: 0,
            running: None,
            starting: true,
            last: None,
            asks: Vec::new(),
        }
    }

    pub(crate) const fn starting(&self) -> bool {
        self.starting
    }

    pub(crate) const fn idle(&self) -> bool {
        self.running.is_none()
    }

    /// Whether the superblock that counts says that there may be packed records, and blank ones.
    pub(crate) const fn may_pack(&self) -> bool {
        self.superblock.may_have_packed && self.superblock.may_have_blanks
    }

    /// Where the replay of the checkpoint that counts begins, and of one being written.
    pub(crate) fn bounds(&self) -> (Sequence, Option<Sequence>) {
        (self.replay_from, self.running.as_ref().map(|running| running.head.replay_from))
    }

    /// Writes the last checkpoint of this use of the pool; the request is stepped after it.
    pub(crate) fn write_last(&mut self, op: OpId) {
        self.last = Some(op);
    }

    /// Goes on as far as it can without an answer. Gives the request that waits in vain, because the flash has failed.
    pub(crate) fn pump(&mut self, mut of: Of<'_>) -> Option<OpId> {
        let of = &mut of;
        if !of.store.takes_writes() {
            return self.give_up();
        }
        if self.running.is_none() && self.is_due(of) {
            self.begin(of, false);
        }
        self.go_on_until_answered(of);
        let given_up = |running: &Running| matches!(running.stage, CheckpointStage::GivenUp) && running.under_way == 0;
        if self.running.as_ref().is_some_and(given_up) {
            self.begin(of, true);
            self.go_on_until_answered(of);
        }
        None
    }

    fn go_on_until_answered(&mut self, of: &mut Of<'_>) {
        while let Some(mut running) = self.running.take() {
            let before = running.under_way;
            self.go_on(of, &mut running);
            let stuck = running.under_way == before;
            let more =
                matches!(running.stage, CheckpointStage::Walking(..)) && running.under_way < self.pieces_at_once();
            self.running = Some(running);
            if stuck || !more {
                break;
            }
        }
    }

    /// What is to be asked of the flash since the last call, in order.
    pub(crate) fn take_asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }

    fn is_due(&self, of: &Of<'_>) -> bool {
        if self.starting || self.last.is_some() || self.superblock.members != *of.list {
            return true;
        }
        // The superblock must say first that host batches have fewer copies from now on; or that they have more: only
        // then may members be missing after a crash.
        let log = of.store.log();
        if self.superblock.host_copies != log.host_copies(of.config.redundancy) {
            return true;
        }
        if of.stopping {
            return false;
        }
        if is_to_pack(of.store, of.config) && !self.may_pack() {
            // The superblock must tell first.
            return true;
        }
        let segments = of.store.log().segments();
        let tail = of.store.log().next_generation().0 - self.begun_generation;
        let geometry = of.store.log().geometry();
        let checkpoint_bytes = self.superblock.checkpoint_bytes;
        let long = tail >= tail_max(segments.len() as u64, u64::from(geometry.segment_bytes), checkpoint_bytes);
        let waited_for = segments.wait_for_checkpoint(self.replay_from) > 0;
        // A row alone is not worth one: several share it, unless room is needed at once. While they come to less than is
        // wanted, reclaim empties more.
        let rows = segments.rows_for_checkpoint() > 0
            && (of.empties || of.store.is_nearly_short() || of.store.free_soon() >= of.free_wanted);
        let needed = of.empties || log.free_segments() < of.free_wanted || log.lacks_room_for_a_loss(false);
        long || (waited_for || rows) && needed
    }

    /// The store learns how many copies of host batches a superblock says, or is about to.
    pub(crate) fn claim_copies(&self, store: &mut Store) {
        let running = self.running.as_ref().map(|running| running.host_copies);
        store.claim_copies(
            running.map_or(self.superblock.host_copies, |running| self.superblock.host_copies.max(running)),
        );
    }

    /// How many members have each host batch, at least, by the superblock that a crash would leave.
    pub(crate) fn host_copies(&self) -> HostCopies {
        let running = self.running.as_ref().map_or(HostCopies::MOST, |running| running.host_copies);
        self.superblock.host_copies.min(running)
    }

    /// Packs records as the settings say, as soon as the superblock allows it.
    pub(crate) fn settle_packing(&self, store: &mut Store, config: &Config) {
        let units = store.log().data_blocks() * u64::from(BLOCK_UNITS);
        let from_units = units * u64::from(config.compression_from) / 100;
        store.set_packing(config.compression, from_units, self.may_pack());
    }

    /// Host batches get as many copies as the settings say, as soon as the superblock allows fewer.
    pub(crate) fn settle_redundancy(&self, store: &mut Store, config: &Config) {
        if config.redundancy.survives_a_loss() || self.superblock.host_copies == HostCopies::ONE {
            store.set_redundancy(config.redundancy);
        }
    }

    /// Begins one; `bare` with what is dirty alone.
    fn begin(&mut self, of: &mut Of<'_>, bare: bool) {
        if self.last.is_some() {
            of.store.mark_and_seal();
        }
        of.store.close_host_batch();
        of.store.checkpoint_begins();
        let log = &of.store.log();
        let counter = self.superblock.counter + 1;
        let head = CheckpointHead {
            pool: self.superblock.pool,
            counter,
            epoch: log.epoch(),
            replay_from: log.next_sequence(),
            last_host: log.last_host(),
            next_batch: log.next_batch(),
            next_object: of.store.identities().next().0,
            next_generation: log.next_generation(),
            frame_bytes: 0,
        };
        self.begun_generation = log.next_generation().0;
        let mut rows = Vec::new();
        for (id, _) in log.segments().iter() {
            log.segments().row(id).encode(&mut rows);
        }
        let mut buffer = Vec::with_capacity(PIECE + FRAME);
        encode_frame(FrameKind::Segments, counter, &rows, &mut buffer);
        self.running = Some(Running {
            head,
            area: 1 - self.superblock.checkpoint_area,
            stage: CheckpointStage::Walking(ObjectId(0), At::Entry),
            buffer,
            written: 0,
            path_room: 0,
            under_way: 0,
            superblock: None,
            selection: select(of.store, bare),
            list: of.list.clone(),
            segments: u32::try_from(of.store.log().segments().len()).expect("a location bounds it"),
            host_copies: of.store.log().host_copies(of.config.redundancy),
        });
        self.claim_copies(of.store);
    }

    /// Whether changes have to wait, so that what is dirty does not change while all of it is written down.
    pub(crate) fn hold_changes(&self) -> bool {
        self.running.as_ref().is_some_and(|running| {
            matches!(running.stage, CheckpointStage::GivenUp)
                || running.selection.bare && matches!(running.stage, CheckpointStage::Walking(..))
        })
    }

    /// Takes the next step that needs no answer.
    fn go_on(&mut self, of: &mut Of<'_>, running: &mut Running) {
        match running.stage {
            CheckpointStage::Walking(..) => self.walk(of, running),
            CheckpointStage::Settling(last) if running.under_way == 0 && of.store.log().durable_all() >= last => {
                running.stage = CheckpointStage::SyncingBody;
                running.under_way = 1;
                self.asks.push(Ask::Sync);
            }
            CheckpointStage::SyncingBody if running.under_way == 0 => {
                let superblock = self.next_superblock(of, running);
                let new: Vec<MemberId> = running.members(of.store);
                let new: Vec<MemberId> = new.into_iter().filter(|id| self.is_new(&running.list, *id)).collect();
                running.stage = CheckpointStage::WritingToNew;
                self.write_superblock(running, &new, &superblock, superblock_slot(&superblock));
                running.superblock = Some(superblock);
                if new.is_empty() {
                    self.write_to_all(of, running);
                }
            }
            CheckpointStage::WritingToNew if running.under_way == 0 => {
                running.stage = CheckpointStage::SyncingNew;
                running.under_way = 1;
                self.asks.push(Ask::Sync);
            }
            CheckpointStage::SyncingNew if running.under_way == 0 => self.write_to_all(of, running),
            CheckpointStage::WritingSuperblock if running.under_way == 0 => {
                running.stage = CheckpointStage::SyncingSuperblock;
                running.under_way = 1;
                self.asks.push(Ask::Sync);
            }
            CheckpointStage::SyncingSuperblock if running.under_way == 0 => {
                // Not synced: it counts for nothing but as a copy, and any later sync covers it.
                running.stage = CheckpointStage::Copying;
                if let Some(superblock) = running.superblock.clone() {
                    let other = SUPERBLOCK_SLOTS[usize::from(superblock.counter % 2 == 0)];
                    let members = running.members(of.store);
                    self.write_superblock(running, &members, &superblock, other);
                }
            }
            _ => {}
        }
    }

    /// Whether the last superblock that counts does not have this member of `list`: not its number, or another device
    /// under it.
    fn is_new(&self, list: &Members, member: MemberId) -> bool {
        let name = |list: &Members| list.get(member).map(|row| row.name);
        name(&self.superblock.members) != name(list)
    }

    /// All new members have the superblock: the others get it.
    fn write_to_all(&mut self, of: &Of<'_>, running: &mut Running) {
        let is_lost = |member| self.is_new(&running.list, member) && !of.store.log().works(member);
        if running.list.iter().any(|(member, row)| row.state != MemberState::Gone && is_lost(member)) {
            // A new member is lost already. What its superblock names must not be mistaken for what comes.
            self.superblock.counter += 2;
            running.stage = CheckpointStage::GivenUp;
            return;
        }
        running.stage = CheckpointStage::WritingSuperblock;
        if let Some(superblock) = running.superblock.clone() {
            let members = running.members(of.store);
            self.write_superblock(running, &members, &superblock, superblock_slot(&superblock));
        }
    }

    fn next_superblock(&self, of: &Of<'_>, running: &Running) -> Superblock {
        let to_pack = is_to_pack(of.store, of.config);
        Superblock {
            counter: running.head.counter,
            epoch: running.head.epoch,
            checkpoint_area: running.area,
            checkpoint_bytes: running.head.frame_bytes + BLOCK as u64,
            synced_through: of.store.log().synced_batch(),
            synced_host: of.store.log().synced_host(),
            mode: of.config.mode,
            clean_stop: self.last.is_some(),
            dirty_blocks: of.store.sums().dirty_blocks(),
            members: running.list.clone(),
            geometry: Geometry { segments: running.segments, ..self.superblock.geometry },
            host_copies: running.host_copies,
            may_have_packed: self.superblock.may_have_packed || to_pack || of.store.sums().packed_blocks() > 0,
            may_have_blanks: self.superblock.may_have_blanks || to_pack || of.store.sums().blank_blocks() > 0,
            ..self.superblock.clone()
        }
    }

    const fn pieces_at_once(&self) -> u32 {
        if self.starting { FIRST_PIECES_AT_ONCE } else { PIECES_AT_ONCE }
    }

    /// Bytes that are written at a time.
    fn piece(&self, of: &Of<'_>, running: &Running) -> usize {
        if self.starting {
            FIRST_PIECE
        } else if of.store.log().restores_copies() || running.list != self.superblock.members {
            SMALL_PIECE
        } else {
            PIECE
        }
    }

    /// Gathers frames until there is a piece to write, or all is walked over.
    fn walk(&mut self, of: &mut Of<'_>, running: &mut Running) {
        if running.under_way >= self.pieces_at_once() {
            return;
        }
        let piece = self.piece(of, running);
        let dirty = of.store.sums().dirty_blocks();
        while running.buffer.len() < piece {
            let CheckpointStage::Walking(id, at) = running.stage else { break };
            let Some((&found, object)) = of.store.objects().range(id..).next() else {
                encode_frame(FrameKind::End, running.head.counter, &[], &mut running.buffer);
                return if is_too_long(of.store, running) {
                    running.stage = CheckpointStage::GivenUp
                } else {
                    self.end_walk(of, running)
                };
            };
            let at = if found == id { at } else { At::Entry };
            let id = found;
            let mut payload = id.0.to_le_bytes().to_vec();
            let head = payload.len();
            let chunk = match at {
                // Objects that the log never named need not be remembered.
                At::Entry if !object.persisted => {
                    running.stage = CheckpointStage::Walking(id.next(), At::Entry);
                    continue;
                }
                At::Entry => {
                    let mut entry = Vec::with_capacity(256);
                    let mut state = object.said();
                    state.path = of.store.path_of(object);
                    running.path_room += PATH_ROOM;
                    if state.path.len() as u64 > running.path_room {
                        state.path.clear();
                    }
                    running.path_room -= state.path.len() as u64;
                    Entry::Object { object: id, state }.encode(Sequence(0), &mut entry);
                    encode_frame(FrameKind::Objects, running.head.counter, &entry, &mut running.buffer);
                    running.stage = CheckpointStage::Walking(id, At::Zeros(Block(0)));
                    continue;
                }
                At::Zeros(from) => {
                    let next = object.zeros().encode(from, FRAME / EXTENT_BYTES, &mut payload);
                    if payload.len() > head {
                        running.selection.note_zeros(payload.len() - head);
                        encode_frame(FrameKind::Zeros, running.head.counter, &payload, &mut running.buffer);
                    }
                    running.stage = CheckpointStage::Walking(id, next.map_or(At::Chunk(0), At::Zeros));
                    continue;
                }
                At::Chunk(chunk) => chunk,
            };
            let (mut next, mut all) = (chunk, true);
            let mut before = head;
            while payload.len() < FRAME
                && let Some(number) =
                    object.map().encode_some(next, &mut payload, |slot| running.selection.wants(slot, dirty))
            {
                all = false;
                next = number + 1;
                running.selection.used += CHUNK_HEAD * u64::from(payload.len() > before);
                before = payload.len();
            }
            // Of what was left out altogether there is no frame.
            if payload.len() > head {
                encode_frame(FrameKind::Chunks, running.head.counter, &payload, &mut running.buffer);
            }
            running.stage = if all {
                CheckpointStage::Walking(id.next(), At::Entry)
            } else {
                CheckpointStage::Walking(id, At::Chunk(next))
            };
        }
        if is_too_long(of.store, running) {
            running.stage = CheckpointStage::GivenUp;
            return;
        }
        let rest = running.buffer.split_off(running.buffer.len() / BLOCK * BLOCK);
        let piece = std::mem::replace(&mut running.buffer, rest);
        self.write_frames(of.store, running, &piece);
    }

    fn end_walk(&mut self, of: &mut Of<'_>, running: &mut Running) {
        running.head.frame_bytes = running.written + running.buffer.len() as u64;
        let mut piece = std::mem::take(&mut running.buffer);
        piece.resize(piece.len().next_multiple_of(BLOCK), 0);
        self.write_frames(of.store, running, &piece);
        let start = of.store.log().geometry().checkpoint_start(usize::from(running.area));
        let head = BufMut::copy_of(&encode_checkpoint_head(&running.head)).freeze();
        self.write(of.store, running, start, &head);
        // Entries that the walk may have shown must be durable before the checkpoint counts.
        running.stage = CheckpointStage::Settling(Sequence(of.store.log().next_sequence().0 - 1));
        if of.store.log().has_unsynced() {
            of.store.want_sync_of_all();
        }
    }

    fn write_frames(&mut self, store: &Store, running: &mut Running, piece: &[u8]) {
        let geometry = store.log().geometry();
        // `walk` gives up what does not fit.
        assert!(running.written + piece.len() as u64 <= frames_max(store), "a checkpoint fits its area");
        let offset = geometry.checkpoint_start(usize::from(running.area)) + BLOCK as u64 + running.written;
        running.written += piece.len() as u64;
        let piece = BufMut::copy_of(piece).freeze();
        self.write(store, running, offset, &piece);
    }

    /// Writes the same bytes to each member.
    fn write(&mut self, store: &Store, running: &mut Running, offset: u64, data: &Buf) {
        for member in running.members(store) {
            running.under_way += 1;
            self.asks.push(Ask::Write { at: Address { member, offset }, data: data.clone() });
        }
    }

    /// Writes to each of these members the superblock that names it.
    fn write_superblock(&mut self, running: &mut Running, members: &[MemberId], superblock: &Superblock, offset: u64) {
        for &member in members {
            let bytes = encode_superblock(&Superblock { member, ..superblock.clone() });
            running.under_way += 1;
            self.asks.push(Ask::Write { at: Address { member, offset }, data: BufMut::copy_of(&bytes).freeze() });
        }
    }

    /// A write or sync of the checkpoint is completed. If it failed, the log knows.
    pub(crate) fn answered(&mut self, store: &mut Store, config: &Config) -> CheckpointEnd {
        let Some(running) = self.running.as_mut() else { return CheckpointEnd::default() };
        running.under_way -= 1;
        if !store.takes_writes() || running.under_way > 0 || !matches!(running.stage, CheckpointStage::Copying) {
            return CheckpointEnd::default();
        }
        let Some(running) = self.running.take() else { return CheckpointEnd::default() };
        self.replay_from = running.head.replay_from;
        store.checkpoint_counts();
        if let Some(superblock) = running.superblock {
            self.superblock = superblock;
        }
        self.settle_packing(store, config);
        self.settle_redundancy(store, config);
        self.claim_copies(store);
        self.starting = false;
        CheckpointEnd { counts: true, list: Some(running.list), op: self.last.take() }
    }

    /// The flash failed: no checkpoint will ever be complete.
    fn give_up(&mut self) -> Option<OpId> {
        if self.running.as_ref().is_some_and(|running| running.under_way == 0) {
            self.running = None;
        }
        self.starting = false;
        self.last.take()
    }
}

/// The slot for a superblock of this counter.
fn superblock_slot(superblock: &Superblock) -> u64 {
    SUPERBLOCK_SLOTS[usize::from(superblock.counter % 2 == 1)]
}

impl Running {
    /// The members that it is written to: those of its list that work.
    fn members(&self, store: &Store) -> Vec<MemberId> {
        let listed = |member: &MemberId| self.list.get(*member).is_some_and(|row| row.state != MemberState::Gone);
        store.log().working().into_iter().filter(listed).collect()
    }
}

/// Whether the settings or a request asked for packed records since the start.
fn is_to_pack(store: &Store, config: &Config) -> bool {
    config.compression != Compression::Off || store.packing().is_asked_for()
}

/// Bytes of frames that an area has room for.
fn frames_max(store: &Store) -> u64 {
    store.log().geometry().area_bytes - BLOCK as u64
}

/// Whether what is gathered does not fit any more.
fn is_too_long(store: &Store, running: &Running) -> bool {
    running.written + (running.buffer.len() as u64).next_multiple_of(BLOCK as u64) > frames_max(store)
}

/// What the checkpoint that is begun now has room for.
fn select(store: &Store, bare: bool) -> Selection {
    let all = store.log().geometry().map_bytes();
    let least = all - all / MAP_LEAST_SPARE;
    let ample = Selection { for_map: least, heads: u64::MAX, short: false, bare, used: 0, dirty: 0 };
    let room = all - all / MAP_SPARE;
    // As they are, all blocks that lie on flash fit, each in a chunk of its own; extents of zeros, which take less,
    // come on top.
    // A pool that has grown may have more blocks than its areas were made for.
    let blocks = store.log().geometry().data_blocks().min(store.log().geometry().map_slots_sure());
    let plain = store.sums().packed_blocks() == 0 && store.sums().cached_blocks() <= blocks;
    if plain || store.sums().cached_blocks() * (SLOT_BYTES as u64 + CHUNK_HEAD) <= room {
        return ample;
    }
    let heads = store.objects().values().map(|object| object.map().chunks()).sum::<u64>() * CHUNK_HEAD;
    let short = heads + store.sums().cached_blocks() * SLOT_BYTES as u64 > room;
    if short { Selection { for_map: room, heads, short, ..ample } } else { Selection { heads, ..ample } }
}

/// After how many opened segments a checkpoint is due.
fn tail_max(segments: u64, segment_bytes: u64, checkpoint_bytes: u64) -> u64 {
    let bytes = TAIL_BYTES.max(TAIL_CHECKPOINTS * checkpoint_bytes);
    // Never so many that most of a small pool waits for the next checkpoint before it is used again.
    (bytes / segment_bytes).min(segments / 4).max(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_to_be_replayed_after_a_crash_does_not_grow_with_the_pool() {
        let (segment, small_map) = (8 << 20, 1 << 20);
        let of_pool = |bytes: u64| tail_max(bytes / segment, segment, small_map) * segment;
        assert_eq!(of_pool(1 << 30), 256 << 20, "a quarter of a small pool");
        assert_eq!((of_pool(12 << 30), of_pool(1 << 40)), (TAIL_BYTES, TAIL_BYTES));
        assert_eq!(tail_max(8, segment, small_map), 4);
        let large_map = 250 << 20;
        let tail = tail_max(1 << 20, segment, large_map) * segment;
        assert!(tail >= 15 * large_map && tail <= 16 * large_map, "checkpoints are a small share of what is written");
    }
}
