//! Batches in memory: all that are not durable yet, and a few recent ones.
//!
//! The recent ones serve writes that add to a block just written, for example a redo log's tail. Without them such a
//! write would read the block back from flash.

use std::collections::{BTreeMap, VecDeque};

use headpond_base::{BLOCK, BatchNumber, Buf, BufMut, Location};

/// The most memory for durable batches, in bytes.
const RECENT_BYTES: usize = 8 << 20;

struct Kept {
    bytes: Buf,
    number: BatchNumber,
}

impl Kept {
    #[allow(clippy::cast_possible_truncation)] // a batch is at most 1 MiB and two blocks
    fn blocks(&self) -> u32 {
        (self.bytes.len() / BLOCK) as u32
    }
}

/// Submitted batches in memory, by their place on flash.
#[derive(Default)]
pub struct Buffers {
    kept: BTreeMap<Location, Kept>,
    /// The batches that are not durable, in the order of their numbers.
    unsynced: VecDeque<(BatchNumber, Location)>,
    /// Durable ones, oldest first.
    recent: VecDeque<Location>,
    recent_bytes: usize,
    unsynced_bytes: usize,
    synced: BatchNumber,
}

impl Buffers {
    /// Bytes that are not durable yet.
    #[must_use]
    pub const fn unsynced_bytes(&self) -> usize {
        self.unsynced_bytes
    }

    /// Where the batches lie that are not durable.
    pub(crate) fn unsynced_places(&self) -> impl Iterator<Item = Location> {
        self.unsynced.iter().map(|(_, at)| *at)
    }

    pub(crate) fn keep(&mut self, at: Location, number: BatchNumber, bytes: Buf) {
        self.unsynced_bytes += bytes.len();
        self.unsynced.push_back((number, at));
        self.kept.insert(at, Kept { bytes, number });
    }

    fn holding(&self, location: Location) -> Option<(Location, &Kept)> {
        let (at, kept) = self.kept.range(..=location).next_back()?;
        (location.0 - at.0 < u64::from(kept.blocks())).then_some((*at, kept))
    }

    /// Whether a block is in memory.
    pub(crate) fn has(&self, location: Location) -> bool {
        self.holding(location).is_some()
    }

    /// `len` bytes of a batch, from byte `skip` of the block `location` on, if they are in memory.
    pub(crate) fn bytes(&self, location: Location, skip: usize, len: usize) -> Option<Buf> {
        let (at, kept) = self.holding(location)?;
        let start = (location.0 - at.0) as usize * BLOCK + skip;
        (start + len <= kept.bytes.len()).then(|| kept.bytes.slice(start..start + len))
    }

    /// Whether a block's batch was submitted, but is not durable yet.
    pub(crate) fn unsynced(&self, location: Location) -> bool {
        self.holding(location).is_some_and(|(_, kept)| kept.number > self.synced)
    }

    /// Records that all batches up to `number` are durable.
    pub(crate) fn synced(&mut self, number: BatchNumber) {
        self.synced = number;
        while let Some((_, at)) = self.unsynced.front().copied().filter(|(batch, _)| *batch <= number) {
            self.unsynced.pop_front();
            let Some(kept) = self.kept.get(&at) else { continue };
            self.unsynced_bytes -= kept.bytes.len();
            self.recent_bytes += kept.bytes.room();
            self.recent.push_back(at);
        }
        while self.recent_bytes > RECENT_BYTES {
            let Some(at) = self.recent.pop_front() else { break };
            if let Some(kept) = self.kept.remove(&at) {
                self.recent_bytes -= kept.bytes.room();
            }
        }
    }

    /// Makes batches leave slots of the second tail until `lent` gives one: first durable batches, which go, then
    /// batches that are written and not synced, which move to memory of the process's own. Those that `counts` names
    /// stay where they are.
    pub(crate) fn leave_slots<T>(&mut self, counts: impl Fn(usize) -> bool, lent: impl Fn() -> Option<T>) -> Option<T> {
        let in_slot = |kept: &Kept| kept.bytes.slot().is_some_and(|slot| !counts(slot));
        let recent: Vec<Location> =
            self.recent.iter().copied().filter(|at| self.kept.get(at).is_some_and(in_slot)).collect();
        for at in recent {
            if let Some(kept) = self.kept.remove(&at) {
                self.recent_bytes -= kept.bytes.room();
                self.recent.retain(|recent| *recent != at);
            }
            if let Some(lent) = lent() {
                return Some(lent);
            }
        }
        for (_, at) in &self.unsynced {
            let Some(kept) = self.kept.get_mut(at).filter(|kept| in_slot(kept)) else { continue };
            kept.bytes = BufMut::copy_of(&kept.bytes).freeze();
            if let Some(lent) = lent() {
                return Some(lent);
            }
        }
        None
    }

    /// Forgets the batches of a segment that is about to be written anew.
    pub(crate) fn forget(&mut self, first: Location, blocks: u32) {
        let gone: Vec<_> = self.kept.range(first..first.plus(blocks)).map(|(at, _)| *at).collect();
        for at in gone {
            if let Some(kept) = self.kept.remove(&at) {
                assert!(kept.number <= self.synced, "a segment with unsynced data is written anew");
                self.recent_bytes -= kept.bytes.room();
                self.recent.retain(|recent| *recent != at);
            }
        }
    }
}
