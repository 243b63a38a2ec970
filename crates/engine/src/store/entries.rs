//! The log, for all outside of the store: they read it, and what they change of it they change here.
//!
//! Invariants:
//! - Every entry is appended by the store. An entry that makes a map differ is appended in the step in which the map
//!   changes.
//! - A segment is emptied only once no map names a block in it.

use headpond_base::{Block, Errno, MemberId, Nanos, ObjectId, SegmentId, Sequence, Stream, UnixNanos};
use headpond_format::{Entry, OBJECT_PATH_MAX};
use headpond_log::{FillPolicy, LogIo, SecondTail, WriteId};

use crate::locks::Span;
use crate::store::Store;

/// The largest number of blocks that an entry names: all of an object.
const ALL_BLOCKS: u64 = 1 << 50;

impl Store {
    /// Says that the log's version of these blocks no longer counts.
    pub(crate) fn say_dropped(&mut self, object: ObjectId, span: Span) {
        self.log.append(&Entry::Drop { object, first: span.first, blocks: span.blocks().min(ALL_BLOCKS) });
    }

    /// Says that the origin has these blocks.
    pub(crate) fn say_clean(&mut self, object: ObjectId, first: Block, blocks: u64) {
        self.log.append(&Entry::Clean { object, first, blocks });
    }

    /// Says an object's new size.
    pub(crate) fn say_size(&mut self, object: ObjectId, size: u64, mtime: UnixNanos) {
        self.log.append(&Entry::Truncate { object, size, mtime });
    }

    /// Makes blocks zeros, and says so.
    pub(crate) fn make_zeros(&mut self, object: ObjectId, first: Block, blocks: u64, mtime: UnixNanos) {
        self.log.append(&Entry::Zero { object, first, blocks, mtime });
        self.zero_range(object, first, first.plus(blocks));
    }

    /// Gives all objects at or below a path their new one. The log gets an entry if it works and the paths fit one.
    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) {
        self.rename_paths(from, to);
        if from.len().max(to.len()) <= OBJECT_PATH_MAX && self.takes_writes() {
            self.log.append(&Entry::Rename { from: from.to_vec(), to: to.to_vec() });
        }
    }

    /// Makes sure that what is appended next, entries of so many bytes with so many blocks, lies in one batch.
    pub(crate) fn keep_together(&mut self, entry_bytes: usize, blocks: u32) {
        self.log.together(Stream::Host, entry_bytes, blocks);
    }

    /// What changes append from here on goes into another batch.
    pub(crate) fn close_host_batch(&mut self) {
        self.log.close(Stream::Host);
    }

    /// Leaves all open segments, behind an entry that a replay may begin with.
    pub(crate) fn mark_and_seal(&mut self) {
        self.log.mark();
        self.log.seal_all();
    }

    /// Host batches lie in memory that outlives the process from now on.
    pub(crate) fn survive_in(&mut self, second_tail: SecondTail) {
        self.log.survive_in(second_tail);
    }

    /// How the log fills its segments.
    pub(crate) fn fill(&mut self, filling: FillPolicy) {
        self.log.fill(filling);
    }

    /// Wants what changes appended up to now to be durable.
    pub(crate) fn want_sync(&mut self) {
        self.log.want_sync();
    }

    /// Wants all that was appended up to now to be durable, clean blocks included.
    /// Notes that a request asked for a sync and found everything durable.
    pub(crate) fn found_durable(&mut self) {
        self.log.found_durable();
    }

    pub(crate) fn want_sync_of_all(&mut self) {
        self.log.want_sync_of_all();
    }

    /// Wants all to be durable, if something is not and the last time is as long ago as this.
    pub(crate) fn sync_each(&mut self, interval: Nanos, now: Nanos) {
        if self.log.has_unsynced() && now.since(self.sync_asked_at) >= interval {
            self.sync_asked_at = now;
            self.log.want_sync_of_all();
        }
    }

    /// What the log asks of the flash.
    pub(crate) fn take_log_io(&mut self) -> Vec<LogIo> {
        self.log.take_io()
    }

    /// The flash has written a batch of the log.
    pub(crate) fn wrote(&mut self, id: WriteId) {
        self.log.wrote(id);
    }

    /// The flash has synced what the log wrote.
    pub(crate) fn synced(&mut self) {
        self.log.synced();
    }

    /// A member refused a write or a sync.
    pub(crate) fn refused(&mut self, member: MemberId, errno: Errno) {
        self.log.refused(member, errno);
    }

    /// A segment is empty: it is free once what said so is durable and no checkpoint needs what it held.
    pub(crate) fn empty_segment(&mut self, segment: SegmentId) {
        let next = self.log.next_sequence();
        self.log.segments_mut().empty(segment, next);
    }

    /// Frees emptied segments that no checkpoint needs: a replay begins at one of these.
    pub(crate) fn release_segments(&mut self, replay_from: Sequence, checkpoint_begun: Option<Sequence>) {
        self.log.release(replay_from, checkpoint_begun);
    }
}
