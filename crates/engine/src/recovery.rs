//! From a pool on flash to an engine: scan, replay, and the comparison with the origin.
//!
//! Recovery has a store of its own, and nothing of an engine: that begins when the pool is taken into use.
//!
//! Invariants:
//! - It writes nothing: a recovery that was stopped is repeated.
//! - What differs from the origin is dropped if it is clean. Where it is dirty, the operator decides.

use headpond_base::{
    BatchNumber, Block, Buf, BufMut, CacheMode, Epoch, Generation, MemberId, Nanos, ObjectId, OwnerNumber, PoolId,
    Sequence, Stream,
};
use headpond_format::{
    Address, CheckpointHead, FrameKind, Geometry, HostCopies, MemberName, Members, ObjectState, OriginName,
    SUPERBLOCK_SLOTS, SegmentRow, SegmentState, Superblock, Witness, encode_checkpoint_head, encode_frame,
    encode_superblock,
};
use headpond_log::{
    FlashRead, FoundObject, Log, Mutation, Present, ScanError, Scanned, SecondTail, Segments, scan, scan_members,
};
use headpond_map::Slot;

use crate::config::Config;
use crate::engine::Engine;
use crate::renames::kept_path;
use crate::request::{Attributes, OpenObject};
use crate::store::Store;
use crate::store::object::Object;
use crate::witness::{Verdict, conflict, keep_volume, reconcile_volume};

/// What to write on a device, and where, so that it is an empty pool of its own. Both superblocks must be durable
/// before it is used. The two names are random.
#[must_use]
pub fn format_pool(
    pool: PoolId,
    member: MemberName,
    geometry: Geometry,
    origin: Option<OriginName>,
    mode: CacheMode,
) -> Vec<(u64, Buf)> {
    let members = Members::first(geometry.member(member));
    let written = format_members(pool, &members, geometry, origin, mode);
    written.into_iter().map(|(at, bytes)| (at.offset, bytes)).collect()
}

/// What to write on each of several devices, so that together they are an empty pool. [`Geometry::for_members`] divides
/// them. All of it must be durable before the pool is used.
#[must_use]
pub fn format_members(
    pool: PoolId,
    members: &Members,
    geometry: Geometry,
    origin: Option<OriginName>,
    mode: CacheMode,
) -> Vec<(Address, Buf)> {
    let first = Sequence(1);
    let mut rows = Vec::new();
    let (generation, state, stream) = (Generation(0), SegmentState::Free, Stream::Host);
    let free = SegmentRow { generation, state, stream, layout: None, copies_differ: false };
    (0..geometry.segments).for_each(|_| free.encode(&mut rows));
    let mut frames = Vec::new();
    encode_frame(FrameKind::Segments, 1, &rows, &mut frames);
    encode_frame(FrameKind::End, 1, &[], &mut frames);
    let head = CheckpointHead {
        pool,
        counter: 1,
        epoch: Epoch(0),
        replay_from: first,
        last_host: BatchNumber(0),
        next_batch: BatchNumber(1),
        next_object: 1,
        next_generation: Generation(1),
        frame_bytes: frames.len() as u64,
    };
    let superblock = Superblock {
        pool,
        member: MemberId(0),
        members: members.clone(),
        owner: OwnerNumber(1),
        geometry,
        counter: 1,
        epoch: Epoch(0),
        origin,
        checkpoint_area: 0,
        checkpoint_bytes: frames.len() as u64 + headpond_base::BLOCK_U64,
        synced_through: BatchNumber(0),
        synced_host: BatchNumber(0),
        mode,
        clean_stop: true,
        dirty_blocks: 0,
        boot: [0; 16],
        claim: [0; 16],
        host_copies: HostCopies::ONE,
        may_have_packed: false,
        may_have_blanks: false,
    };
    frames.resize(frames.len().next_multiple_of(headpond_base::BLOCK), 0);
    let block = |bytes: &[u8]| BufMut::copy_of(bytes).freeze();
    let start = geometry.checkpoint_start(0);
    let mut written = Vec::new();
    for (member, _) in members.iter() {
        let own = block(&encode_superblock(&Superblock { member, ..superblock.clone() }));
        written.extend(
            [
                (start, block(&encode_checkpoint_head(&head))),
                (start + headpond_base::BLOCK_U64, block(&frames)),
                (SUPERBLOCK_SLOTS[0], own.clone()),
                (SUPERBLOCK_SLOTS[1], own),
            ]
            .map(|(offset, bytes)| (Address { member, offset }, bytes)),
        );
    }
    written
}

/// Why a pool cannot be used.
pub type RecoverError = ScanError;

/// A pool that was read, and not changed yet.
pub struct Recovered {
    superblock: Superblock,
    store: Store,
    last_host: BatchNumber,
    dropped_batches: u64,
    beyond_gap: u64,
    /// The origin's host has been up since the pool was last used.
    origin_stood: bool,
    /// Members that are not here, and are not needed.
    missing: Vec<MemberId>,
}

/// An object that the pool remembers.
#[derive(Clone, Debug)]
pub struct RecoveredObject {
    /// Its name in the pool.
    pub object: ObjectId,
    /// What is remembered.
    pub state: ObjectState,
    /// Blocks that the origin has not got; a range of zeros counts as one.
    pub dirty_blocks: u64,
    /// Blocks that the pool has, counted alike.
    pub cached_blocks: u64,
    /// Data, size or time that the origin has not got, or may have got without it being known how it is left.
    pub dirty: bool,
}

/// Reads the pool on a device of `device_bytes`. Changes nothing: it can be repeated.
///
/// # Errors
/// [`RecoverError`].
pub fn recover(flash: &mut dyn FlashRead, device_bytes: u64) -> Result<Recovered, RecoverError> {
    recover_mutated(flash, device_bytes, None)
}

/// [`recover`] with a planted bug, for tests of the tests.
///
/// # Errors
/// [`RecoverError`].
pub fn recover_mutated(
    flash: &mut dyn FlashRead,
    device_bytes: u64,
    mutation: Option<Mutation>,
) -> Result<Recovered, RecoverError> {
    replayed(scan(flash, device_bytes, mutation)?, Vec::new())
}

/// Reads a pool from those of its members that are here, without those that are [doubted](Present::doubt) if the others
/// suffice. `mutation` is a planted bug, for tests of the tests.
///
/// # Errors
/// [`RecoverError`]. [`ScanError::MissingMember`] if one that is not here may have what no other has.
pub fn recover_members(present: &mut Present<'_>, mutation: Option<Mutation>) -> Result<Recovered, RecoverError> {
    present.sure_ones_first(|present| {
        let missing = present.missing();
        replayed(scan_members(present, mutation)?, missing)
    })
}

/// The state of the pool after what the log says.
fn replayed(scanned: Scanned, missing: Vec<MemberId>) -> Result<Recovered, RecoverError> {
    let mut store = Store::new(Log::new(scanned.start), ObjectId(scanned.next_object));
    for FoundObject { object, state, map, zeros } in scanned.objects {
        store.adopt(object, Object::from_state(state, map, zeros));
    }
    for entry in scanned.tail {
        store.replay(entry);
    }
    store.part_zeros();
    store.settle_paths();
    let lost = store.drop_what_no_member_has(!missing.is_empty());
    if let Some((member, dirty_blocks)) = lost {
        return Err(ScanError::MissingMember { member, dirty_blocks });
    }
    Ok(Recovered {
        superblock: scanned.superblock,
        store,
        last_host: scanned.last_host,
        dropped_batches: scanned.dropped_batches,
        beyond_gap: scanned.beyond_gap,
        origin_stood: false,
        missing,
    })
}

impl Recovered {
    /// The superblock that counts.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The members that are not here. The pool goes on without them: their generation of the list is over.
    #[must_use]
    pub fn missing(&self) -> &[MemberId] {
        &self.missing
    }

    /// The last host batch that counts. Never before [`Stats::durable_host_batch`] of the use that a crash ended.
    ///
    /// [`Stats::durable_host_batch`]: crate::Stats::durable_host_batch
    #[must_use]
    pub const fn last_host_batch(&self) -> BatchNumber {
        self.last_host
    }

    /// Batches behind the last complete one: writes that nobody had synced.
    #[must_use]
    pub const fn dropped_batches(&self) -> u64 {
        self.dropped_batches
    }

    /// Of those, batches of host writes behind the first that is missing or torn.
    #[must_use]
    pub const fn beyond_gap(&self) -> u64 {
        self.beyond_gap
    }

    /// Blocks that the origin has not got.
    #[must_use]
    pub const fn dirty_blocks(&self) -> u64 {
        self.store.sums().dirty_blocks()
    }

    /// All objects that the pool remembers.
    #[must_use]
    pub fn objects(&self) -> Vec<RecoveredObject> {
        let describe = |(id, object): (&ObjectId, &Object)| RecoveredObject {
            object: *id,
            state: object.said(),
            dirty_blocks: object.dirty_blocks(),
            cached_blocks: object.cached_blocks(),
            dirty: object.is_dirty() || !object.trust.is_trusted(),
        };
        self.store.objects().iter().map(describe).collect()
    }

    /// What applications see of an object, once it was compared with its file; `None` if it is forgotten.
    #[must_use]
    pub fn attributes(&self, object: ObjectId) -> Option<Attributes> {
        self.store.get(object).map(Object::attributes)
    }

    /// The blocks that the pool has of an object, in order.
    pub fn blocks(&self, object: ObjectId) -> impl Iterator<Item = (Block, Slot)> {
        let map = self.store.get(object).map(Object::map);
        map.into_iter().flat_map(|map| map.range(Block(0), Block(u64::MAX)))
    }

    /// Which of an object's neighbouring blocks, with these slots, are what was written for them. They are of one
    /// packed record, block after block, or one that is stored as it is; none is blank. `bytes` is what was read from
    /// the location of the first on, as many blocks as [`Slot::extent`] tells.
    #[must_use]
    pub fn verify(&self, object: ObjectId, first: Block, slots: &[Slot], bytes: &Buf) -> Vec<bool> {
        self.store.read_back(object, first, slots, Some(bytes)).good
    }

    /// How many dirty blocks none of the members here has as they were written. There are some only after a crash left
    /// batches on some of the members that were to have them, and one of those is not here: the log does not tell that. So
    /// each block that may be such is read, from an address, with so many bytes; `None` where that fails.
    pub fn lacking_blocks(&self, read: impl FnMut(Address, usize) -> Option<Buf>) -> u64 {
        self.store.lacking_blocks(read)
    }

    /// The segments, as they are before the pool is taken into use.
    #[must_use]
    pub const fn segments(&self) -> &Segments {
        self.store.log().segments()
    }

    /// The file of an object that [`Recovered::reconcile`] kept has lost its last name, and a program has it open. Its
    /// data goes when the program closes it.
    pub fn has_no_name(&mut self, id: ObjectId) {
        if let Some(object) = self.store.get_mut(id) {
            object.state.flags.unlinked = true;
            object.name.note_removed();
        }
    }

    /// Compares an object with the origin as it is now; `None` if there is none that it can be. One that tells its birth time
    /// for the first time, or no more, is known by that from then on.
    pub fn reconcile(&mut self, id: ObjectId, found: Option<&OpenObject>) -> Verdict {
        let origin_stood = self.origin_stood;
        let Some(object) = self.store.get_mut(id) else { return Verdict::Forgotten };
        let found = found.filter(|found| found.identity().may_be(object.state.identity));
        if !object.is_file() {
            return reconcile_volume(&mut self.store, id, found.map(OpenObject::witness), origin_stood);
        }
        let is_it = |found: &&OpenObject| origin_stood || !had_the_number_before(object, found.witness());
        let Some(found) = found.filter(is_it) else {
            let flags = object.state.flags;
            // A time alone is no loss; it may also be what is left of an object whose end was not durable yet.
            let lacks = object.data_dirty_against(object.state.witness.size());
            if flags.unlinked || flags.unanchored || !lacks {
                self.store.remove(id);
                return Verdict::Forgotten;
            }
            return Verdict::Conflict(conflict(object, None));
        };
        let flags = object.state.flags;
        let (left, now) = (object.state.witness, found.witness());
        let same = left.shows_the_same(now);
        let lacks_birth = object.state.identity.lacks_birth();
        let told_no_more = !lacks_birth && found.identity().lacks_birth();
        if flags.unlinked && object.trust.is_trusted() && !same && (lacks_birth || told_no_more) {
            // It was about to go, and an origin without birth times has given its inode number to
            // another file since: headpond itself had not touched it.
            self.store.remove(id);
            return Verdict::Forgotten;
        }
        object.is_now(found.identity());
        if told_no_more && flags.unlinked && !object.trust.is_trusted() {
            // While birth times were told, the number of a removed file could go to another one at once. headpond may have moved
            // the times itself, so nothing says which of the two this is.
            return Verdict::Conflict(conflict(object, Some(now)));
        }
        if !found.path().is_empty() {
            object.state.path = kept_path(found.path());
        }
        object.state.flags.unlinked = false;
        // The last use ended in order: a time that was put back after a change shows by the one that nobody puts back.
        // After a crash, by one that headpond cannot have given it.
        let status_changed = object.state.status_changed(now);
        object.state.flags.ctime_counts &= !status_changed;
        if object.trust.is_changed_directly() && object.dirty_blocks() == 0 {
            // Being changed at the origin, where the size and the time are; what was on flash of the
            // changed blocks was dropped before. What came in since was never synced at the
            // origin: it may be newer than what the origin has after a power cut.
            if object.trust.own_size_counts() {
                object.meets_own(now);
            } else {
                object.follow_origin(now);
            }
            let had = object.map().blocks();
            if !self.origin_stood {
                self.store.clear_range(id, Block(0), Block(u64::MAX));
            }
            return if had > 0 && !self.origin_stood { Verdict::Dropped } else { Verdict::Kept };
        }
        if !object.trust.is_trusted() {
            // headpond itself was writing there when it was stopped.
            object.meets_own(now);
            return Verdict::Kept;
        }
        if object.data_dirty_against(left.size()) {
            if !same || status_changed {
                return Verdict::Conflict(conflict(object, Some(now)));
            }
            object.note_found(now);
            return Verdict::Kept;
        }
        if same && (left.ctime() == now.ctime() || object.is_dirty()) {
            object.note_found(now);
            return Verdict::Kept;
        }
        let had = object.map().blocks();
        object.state.flags.attributes_dirty = false;
        object.follow_origin(now);
        self.store.clear_range(id, Block(0), Block(u64::MAX));
        // The bound holds for files with dirty data alone: of others headpond changes the status without a word before.
        match had {
            0 => Verdict::Kept,
            _ if same && !(flags.ctime_counts && status_changed) => Verdict::Doubted,
            _ => Verdict::Dropped,
        }
    }

    /// Resolves a conflict: the pool's dirty data goes over the file as it is now.
    pub fn keep(&mut self, id: ObjectId, found: &OpenObject) {
        if self.store.get(id).is_some_and(|object| !object.is_file()) {
            return keep_volume(&mut self.store, id, found.witness());
        }
        // What the pool has as clean was a copy of the file before.
        self.store.clear_clean(id);
        if let Some(object) = self.store.get_mut(id) {
            object.has_status_of(found.witness().ctime());
            object.is_now(found.identity());
            object.meets(found.witness());
            object.trust.begin_change();
            object.state.path = kept_path(found.path());
        }
    }

    /// Resolves a conflict: the origin's file counts, and all that the pool has of it is dropped.
    pub fn discard(&mut self, id: ObjectId) {
        self.store.remove(id);
    }

    /// Says during which boot of the host the pool is taken into use; zeros if that is not known.
    /// To be called before [`Recovered::reconcile`]: if it is the boot of the last use, the origin
    /// still has what was written there and never synced.
    pub fn booted(&mut self, boot: [u8; 16]) {
        self.origin_stood = boot != [0; 16] && boot == self.superblock.boot;
        self.superblock.boot = boot;
    }

    /// What the use that begins acknowledges survives its process, in this memory. To be called before
    /// [`Recovered::reconcile`]. What an earlier process left there must be durable on flash by now.
    pub fn survive_in(&mut self, second_tail: SecondTail) {
        self.store.survive_in(second_tail);
    }

    /// Names the origin that the pool belongs to from now on.
    pub fn adopt(&mut self, origin: OriginName) {
        self.superblock.origin = Some(origin);
    }

    /// The epoch of the use that begins.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.store.log().epoch()
    }

    /// Gives that use a claim of its own, which the pool has from the first checkpoint on.
    pub fn claim(&mut self, claim: [u8; 16]) {
        self.superblock.claim = claim;
    }

    /// Gives the use that begins a larger owner's number: another host has the pool from now on. A smaller one changes
    /// nothing.
    pub fn owned_by(&mut self, owner: OwnerNumber) {
        self.superblock.owner = self.superblock.owner.max(owner);
        self.store.owned_by(self.superblock.owner);
    }

    /// Takes the pool into use. The first thing that the engine does is to write a checkpoint
    /// of a new epoch; requests wait for it.
    #[must_use]
    pub fn into_engine(self, config: Config, now: Nanos) -> Engine {
        Engine::of_recovered(self.store, self.superblock, &self.missing, config, now)
    }
}

/// Whether an origin without birth times has lost power, and shows an older file under the inode number that this
/// object's had.
///
/// The origin may forget that a file was removed, and with it the new one that got its number and was not synced there
/// yet. The status of the older one was last changed before the new one was made. Where both happened within one step
/// of the origin's clock, this does not tell.
fn had_the_number_before(object: &Object, found: Witness) -> bool {
    let state = &object.state;
    state.identity.lacks_birth() && state.flags.unanchored && found.ctime() < state.made_at
}
