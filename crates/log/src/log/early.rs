//! Batches that are submitted before they are full.
//!
//! Keeps true: a batch that nobody waits for is submitted early only as far as flash has time for it, or has other work
//! that a large one would hold up. One that the next sync waits for is submitted while others are written, so that all
//! members have a part of it.

use headpond_base::Stream;

use super::Log;

/// Writes under way that keep the flash busy, for each host segment that may be open.
const EARLY_AT_ONCE: usize = 2;

/// Blocks that are worth a write of their own while requests wait for the next sync and several segments are filled: a
/// page of a database. With this much and no more, each of a few writes that are synced together has a member to itself.
const AWAITED_BLOCKS: u32 = 4;

impl Log {
    /// While second copies are made anew, so many blocks move at once, and are worth a write: 32 KiB. A read waits for two
    /// such writes, and they do not add up to one of 128 KiB. The price: a head for each.
    pub const RESTORED_BLOCKS: u32 = 8;

    /// Says whether second copies are made anew.
    pub const fn restore_copies(&mut self, restores: bool) {
        self.restores_copies = restores;
    }

    /// Whether second copies are made anew. Meanwhile what goes to flash goes in small pieces.
    #[must_use]
    pub const fn restores_copies(&self) -> bool {
        self.restores_copies
    }

    /// Whether somebody waits for the sync after the one under way, and the batches for it can be written side by side.
    fn is_awaited(&self) -> bool {
        self.commits.is_wanted() && self.open.at_once(Stream::Host) > 1
    }

    /// How many blocks of a batch are worth a write that the next sync waits for: the more, the more the members have to
    /// do. Heads would take too much of their time then.
    fn worth_an_awaited_write(&self) -> u32 {
        let of_each = self.writes.under_way() / self.open.at_once(Stream::Host);
        let blocks = u32::try_from(of_each).unwrap_or(u32::MAX).max(1).saturating_mul(AWAITED_BLOCKS);
        blocks.min(self.worth_a_write())
    }

    /// How many blocks of a batch are worth a write that nobody waits for.
    fn worth_a_write(&self) -> u32 {
        let early = self.filling.early_blocks;
        if self.restores_copies { early.min(Self::RESTORED_BLOCKS) } else { early }
    }

    /// Whether flash has as many host writes to do as keep it busy. What has time should leave it to others.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let open = self.open.current(Stream::Host).is_some_and(|open| open.batch.is_some());
        self.writes.under_way() + usize::from(open) > self.open.at_once(Stream::Host)
    }

    /// Submits open batches of clean blocks before they are large, while flash is busy: a read waits for a write of 1 MB
    /// eight times as long as for one of 128 KiB.
    pub(super) fn submit_small(&mut self) {
        if !self.is_busy() && !self.restores_copies || !self.takes_writes() {
            return;
        }
        for stream in [Stream::Hot, Stream::Cold] {
            let open = self.open.current(stream).and_then(|open| open.batch.as_ref());
            if open.is_some_and(|batch| batch.payload_blocks() >= self.worth_a_write()) {
                self.close(stream);
            }
        }
    }

    /// Submits the open host batch before a request asks for a sync, if the flash has time for it.
    pub(super) fn submit_early(&mut self) {
        let open = self.open.current(Stream::Host).and_then(|open| open.batch.as_ref());
        let awaited = self.is_awaited();
        let enough = if self.rhythm.expects_sync() {
            0
        } else if awaited {
            self.worth_an_awaited_write()
        } else {
            self.worth_a_write()
        };
        let has_time = awaited || self.writes.under_way() < EARLY_AT_ONCE * self.open.at_once(Stream::Host);
        if open.is_some_and(|batch| batch.payload_blocks() >= enough) && has_time && self.takes_writes() {
            self.close(Stream::Host);
            if self.rhythm.expects_sync() {
                self.expect_sync();
            }
        }
    }
}
