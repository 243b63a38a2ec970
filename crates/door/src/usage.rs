//! Counts by file and by process.
//!
//! A file's counts lie with its visible state, so they are exact as long as the door knows the file. Counts of
//! processes lie in a table of bounded size that the door owns.
//!
//! Each request costs two clones of a pointer, some additions, and one look-up in the table of processes under a short
//! lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use headpond_base::BLOCK_U64;
use headpond_engine::Served;

/// The bytes of one request, by where reads came from.
#[derive(Clone, Copy, Default, Debug)]
pub struct Amount {
    hit: u64,
    miss: u64,
    bypassed: u64,
    written: u64,
}

impl Amount {
    /// A read.
    #[must_use]
    pub fn read(served: Served) -> Self {
        let (hit, miss) = (u64::from(served.hit_blocks) * BLOCK_U64, u64::from(served.miss_blocks) * BLOCK_U64);
        if served.bypassed {
            Self { hit, bypassed: miss, ..Self::default() }
        } else {
            Self { hit, miss, ..Self::default() }
        }
    }

    /// A write.
    #[must_use]
    pub fn write(bytes: u64) -> Self {
        Self { written: bytes, ..Self::default() }
    }
}

/// Totals in bytes. Reads count whole blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Read from flash or memory.
    pub hit_bytes: u64,
    /// Read from the origin.
    pub miss_bytes: u64,
    /// Read from the origin, past the cache.
    pub bypassed_bytes: u64,
    /// Written.
    pub written_bytes: u64,
}

impl Totals {
    /// All bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.hit_bytes + self.miss_bytes + self.bypassed_bytes + self.written_bytes
    }

    /// Counts a request.
    pub const fn add(&mut self, done: Amount) {
        self.hit_bytes += done.hit;
        self.miss_bytes += done.miss;
        self.bypassed_bytes += done.bypassed;
        self.written_bytes += done.written;
    }

    /// Adds other counts.
    pub const fn merge(&mut self, other: Self) {
        self.hit_bytes += other.hit_bytes;
        self.miss_bytes += other.miss_bytes;
        self.bypassed_bytes += other.bypassed_bytes;
        self.written_bytes += other.written_bytes;
    }
}

/// The counts of one file. The shard's thread counts; any thread reads.
#[derive(Default, Debug)]
pub struct Tally {
    hit: AtomicU64,
    miss: AtomicU64,
    bypassed: AtomicU64,
    written: AtomicU64,
    before: AtomicU64,
    recent: AtomicU64,
    /// The next tick looks at it.
    active: AtomicBool,
}

impl Tally {
    /// Counts a request. True for the first one since a tick found the file idle: then a tick must look at it again.
    #[allow(clippy::must_use_candidate)] // a count alone is of use
    pub fn count(&self, done: Amount) -> bool {
        for (counter, more) in [
            (&self.hit, done.hit),
            (&self.miss, done.miss),
            (&self.bypassed, done.bypassed),
            (&self.written, done.written),
        ] {
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
        !self.active.load(Ordering::Relaxed) && !self.active.swap(true, Ordering::AcqRel)
    }

    /// Ends a second. False if no request came in it: then no tick needs to look at it before the next request.
    #[allow(clippy::must_use_candidate)] // the same
    pub fn tick(&self) -> bool {
        // In this order: a request in between counts for the next second, and asks for a tick.
        let bytes = self.totals().bytes();
        let before = self.before.swap(bytes, Ordering::Relaxed);
        let recent = bytes.saturating_sub(before);
        self.recent.store(recent, Ordering::Relaxed);
        if recent == 0 {
            self.active.store(false, Ordering::Release);
        }
        recent > 0
    }

    /// Bytes between the last two ticks.
    #[must_use]
    pub fn recent(&self) -> u64 {
        self.recent.load(Ordering::Relaxed)
    }

    /// All counts so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            hit_bytes: self.hit.load(Ordering::Relaxed),
            miss_bytes: self.miss.load(Ordering::Relaxed),
            bypassed_bytes: self.bypassed.load(Ordering::Relaxed),
            written_bytes: self.written.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_since_the_last_tick_is_what_was_done_lately() {
        let tally = Tally::default();
        assert!(tally.count(Amount::write(4)), "the first one asks for a tick");
        assert!(!tally.count(Amount::write(6)), "and the others need not");
        assert!(tally.tick());
        assert_eq!(tally.recent(), 10);
        tally.count(Amount::read(Served { hit_blocks: 1, miss_blocks: 1, bypassed: true }));
        tally.tick();
        assert_eq!(tally.recent(), 8192);
        assert!(!tally.tick(), "nothing came");
        assert_eq!((tally.recent(), tally.totals().bypassed_bytes), (0, 4096));
        assert!(tally.count(Amount::write(1)), "it is looked at again");
    }
}
