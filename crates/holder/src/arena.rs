//! The arena: memory that outlives the worker.
//!
//! It is an anonymous file of a fixed size that holder and worker share. Its words hold counts and ledgers, its bytes
//! hold batches. What they mean is the business of those who write them.
//!
//! ```text
//! | 4 KiB: version, beat, sizes | words of the log's tail | words of the ledger | words of the journal
//! | bytes of the log's tail | bytes of the journal |
//! ```
//!
//! Invariants:
//! - Each process maps the arena once, and never unmaps it. So its memory lives as long as the process.
//! - Words change by atomic stores only. After a kill, a word has its old or its new value.
//! - The bytes have one owner in a process.
//!
//! The file is sparse: it takes the memory that was ever used, not its size.

// rustix gives the address of a mapping; only this module turns it into a slice.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Bytes of the head, and what each part is a multiple of.
const PAGE: usize = 4096;

const WORD: usize = size_of::<u64>();

/// Grows with each change to the head.
const VERSION: u64 = 1;

/// The words of the head.
const VERSION_WORD: usize = 0;
const BEAT_WORD: usize = 1;
const SIZES_WORD: usize = 2;

/// How large the parts are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Words of the log's tail.
    pub tail_words: usize,
    /// Words of the ledger of inodes and handles.
    pub ledger_words: usize,
    /// Words of the journal of requests.
    pub journal_words: usize,
    /// Bytes of the log's tail.
    pub tail_bytes: usize,
    /// Bytes of the journal of requests.
    pub journal_bytes: usize,
}

impl Sizes {
    const fn numbers(self) -> [u64; 5] {
        let Self { tail_words, ledger_words, journal_words, tail_bytes, journal_bytes } = self;
        [tail_words as u64, ledger_words as u64, journal_words as u64, tail_bytes as u64, journal_bytes as u64]
    }

    /// Where the parts begin, and the end, in bytes.
    const fn places(self) -> [usize; 6] {
        let ledger = PAGE + (self.tail_words * WORD).next_multiple_of(PAGE);
        let journal = ledger + (self.ledger_words * WORD).next_multiple_of(PAGE);
        let tail_bytes = journal + (self.journal_words * WORD).next_multiple_of(PAGE);
        let journal_bytes = tail_bytes + self.tail_bytes.next_multiple_of(PAGE);
        [PAGE, ledger, journal, tail_bytes, journal_bytes, journal_bytes + self.journal_bytes.next_multiple_of(PAGE)]
    }
}

/// Why an arena cannot be used.
#[derive(Debug)]
pub enum ArenaError {
    /// The system refuses.
    Io(io::Error),
    /// It was laid out by another version of headpond.
    OtherLayout,
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the memory shared with the holder: {error}"),
            Self::OtherLayout => f.write_str("the memory shared with the holder has another version's layout"),
        }
    }
}

impl std::error::Error for ArenaError {}

impl From<rustix::io::Errno> for ArenaError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// The arena of this process.
#[derive(Debug)]
pub struct Arena {
    head: &'static [AtomicU64],
    /// Words of the log's tail.
    pub tail_words: &'static [AtomicU64],
    /// Words of the ledger.
    pub ledger_words: &'static [AtomicU64],
    /// Words of the journal of requests.
    pub journal_words: &'static [AtomicU64],
    /// Bytes of the log's tail, taken once.
    pub tail_bytes: Option<&'static mut [u8]>,
    /// Bytes of the journal of requests, taken once.
    pub journal_bytes: Option<&'static mut [u8]>,
}

impl Arena {
    /// Makes an arena's file: all zeros, of a size that no process can change.
    ///
    /// # Errors
    /// If memory is short.
    pub fn make(sizes: Sizes) -> io::Result<OwnedFd> {
        let file = memfd_create("headpond-arena", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, sizes.places()[5] as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    /// Maps an arena for the rest of this process's life. The first process to do so lays it out.
    ///
    /// # Errors
    /// [`ArenaError::OtherLayout`] if it was laid out with other sizes.
    ///
    /// # Panics
    /// Never: the parts of the map are whole pages.
    pub fn map(file: impl AsFd, sizes: Sizes) -> Result<Self, ArenaError> {
        let [tail, ledger, journal, tail_bytes, journal_bytes, end] = sizes.places();
        if usize::try_from(fstat(&file)?.st_size) != Ok(end) {
            return Err(ArenaError::OtherLayout);
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice. It is never unmapped, and the file keeps its
        // size (sealed, and compared above), so all of it stays readable and writable.
        let base = unsafe { mmap(null_mut(), end, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0) }?;
        let words = |from: usize, count: usize| {
            // SAFETY: the words lie in the mapping, whose parts begin with a page, so they are aligned. They are only
            // ever used as atomics, by every process.
            unsafe { std::slice::from_raw_parts(base.byte_add(from).cast::<AtomicU64>(), count) }
        };
        let head = words(0, PAGE / WORD);
        let bytes = |from: usize, count: usize| {
            // SAFETY: a part of the mapping, which overlaps no other. The one mapping in this process hands it out once.
            // Other processes read it only after this one has ended.
            unsafe { std::slice::from_raw_parts_mut(base.byte_add(from).cast::<u8>(), count) }
        };
        let arena = Self {
            head,
            tail_words: words(tail, sizes.tail_words),
            ledger_words: words(ledger, sizes.ledger_words),
            journal_words: words(journal, sizes.journal_words),
            tail_bytes: Some(bytes(tail_bytes, sizes.tail_bytes)),
            journal_bytes: Some(bytes(journal_bytes, sizes.journal_bytes)),
        };
        arena.agree(sizes)?;
        Ok(arena)
    }

    fn agree(&self, sizes: Sizes) -> Result<(), ArenaError> {
        let stored = &self.head[SIZES_WORD..];
        if self.head[VERSION_WORD].load(Ordering::Acquire) == 0 {
            stored.iter().zip(sizes.numbers()).for_each(|(word, number)| word.store(number, Ordering::Relaxed));
            self.head[VERSION_WORD].store(VERSION, Ordering::Release);
        }
        let same = stored.iter().zip(sizes.numbers()).all(|(word, number)| word.load(Ordering::Relaxed) == number);
        if same && self.head[VERSION_WORD].load(Ordering::Acquire) == VERSION {
            Ok(())
        } else {
            Err(ArenaError::OtherLayout)
        }
    }

    /// Where the worker counts its signs of life.
    #[must_use]
    pub fn beat(&self) -> &'static AtomicU64 {
        &self.head[BEAT_WORD]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes =
        Sizes { tail_words: 10, ledger_words: 600, journal_words: 3, tail_bytes: 3 * PAGE, journal_bytes: PAGE };

    #[test]
    fn what_one_map_wrote_the_next_one_reads() {
        let file = Arena::make(SIZES).unwrap();
        let mut first = Arena::map(&file, SIZES).unwrap();
        first.tail_words[9].store(7, Ordering::Release);
        first.ledger_words[599].store(8, Ordering::Release);
        first.beat().fetch_add(1, Ordering::Relaxed);
        first.tail_bytes.take().unwrap().fill(9);
        let mut second = Arena::map(&file, SIZES).unwrap();
        let word = |words: &[AtomicU64], at: usize| words[at].load(Ordering::Acquire);
        assert_eq!((word(second.tail_words, 9), word(second.ledger_words, 599)), (7, 8));
        assert_eq!(second.beat().load(Ordering::Relaxed), 1);
        let bytes = second.tail_bytes.take().unwrap();
        assert!(
            bytes.len() == 3 * PAGE
                && (bytes.as_ptr() as usize).is_multiple_of(PAGE)
                && bytes.iter().all(|byte| *byte == 9)
        );
    }

    #[test]
    fn another_layout_is_refused_and_no_process_can_shrink_the_file() {
        let file = Arena::make(SIZES).unwrap();
        let _first = Arena::map(&file, SIZES).unwrap();
        // One with the same length, and one with another.
        for other in [Sizes { tail_words: 11, ..SIZES }, Sizes { tail_bytes: PAGE, ..SIZES }] {
            assert!(matches!(Arena::map(&file, other), Err(ArenaError::OtherLayout)), "{other:?}");
        }
        assert!(ftruncate(&file, 0).is_err());
    }
}
