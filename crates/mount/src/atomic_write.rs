//! Atomic writes: a handle collects several writes and commits them as one. F2FS has them, and SQLite uses them
//! instead of a journal.
//!
//! ```text
//!            start            write            commit
//!   (none) ─────────> open ──────────> open ──────────> (none)   all writes are durable; or the call fails, and none is there
//!                      │ abort, or the last descriptor is closed, or the daemon ends
//!                      └──────────────────────────────> (none)   none is there
//! ```
//!
//! Invariants
//! - Between start and commit, writes by this handle stay here, in memory. No read through the engine sees them, not
//!   even through this handle. The kernel puts them into its page cache before it sends them. There a program may see
//!   one until the mount has invalidated that page; SQLite holds its lock meanwhile.
//! - Write-back of shared mappings never joins the atomic write, whichever handle it comes by. Any process may have
//!   made those writes, and a sync of them must hold.
//! - A commit is one request to the engine, and one batch of the log; [`headpond_engine::fits_together`] bounds it. A
//!   write that makes the atomic write larger fails (EFBIG). The commit fails then too, and leaves nothing, as an abort
//!   does.
//! - At most [`ATOMIC_WRITES_MAX`] are open at once, each of at most a mebibyte. Users share them ([`Shares`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use headpond_base::{Buf, BufMut};
use headpond_engine::fits_together;
use rustix::io::Errno;

use crate::outcome::ReplyOutcome;
use crate::shares::{Share, Shares};

/// Handles that may have an atomic write open at once.
const ATOMIC_WRITES_MAX: usize = 64;

/// The open atomic writes of a mount.
pub(crate) fn atomic_writes() -> Shares {
    Shares::of(ATOMIC_WRITES_MAX)
}

/// A handle's atomic write, if it has one open.
#[derive(Default)]
pub(crate) struct AtomicWriting {
    /// Each write reads this.
    open: AtomicBool,
    atomic_write: Mutex<Option<AtomicWrite>>,
    /// A request that the kernel forget is on its way.
    forgetting: AtomicBool,
}

/// Writes that wait for their commit.
pub(crate) struct AtomicWrite {
    /// The share of the user who began it.
    _share: Share,
    /// By their first bytes. No two touch.
    pieces: BTreeMap<u64, Vec<u8>>,
    refused: Option<Errno>,
    /// Ranges that the kernel may show.
    visible: Vec<Range<u64>>,
}

/// The most ranges that the kernel invalidates one by one; more become one range.
const VISIBLE_MAX: usize = 128;

impl AtomicWriting {
    /// Whether writes are pieces of an atomic write.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Begins an atomic write.
    pub(crate) fn start(&self, all: &Shares, user: u32) -> ReplyOutcome<()> {
        let mut atomic_write = self.locked();
        if atomic_write.is_some() {
            return Err(Errno::INVAL);
        }
        let share = all.take(user).ok_or(Errno::BUSY)?;
        *atomic_write =
            Some(AtomicWrite { _share: share, pieces: BTreeMap::new(), refused: None, visible: Vec::new() });
        self.open.store(true, Ordering::Release);
        Ok(())
    }

    /// Goes on with an atomic write of which a process before this one had the pieces: it can only fail.
    pub(crate) fn start_broken(&self, all: &Shares, user: u32) -> ReplyOutcome<()> {
        self.start(all, user)?;
        if let Some(atomic_write) = &mut *self.locked() {
            atomic_write.refused = Some(Errno::IO);
        }
        Ok(())
    }

    /// Adds a piece. `None` if no atomic write is open any more.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Option<ReplyOutcome<()>> {
        self.locked().as_mut().map(|atomic_write| atomic_write.write(offset, data))
    }

    /// Ends the atomic write and returns it, if there is one.
    pub(crate) fn end(&self) -> Option<AtomicWrite> {
        let ended = self.locked().take();
        if ended.is_some() {
            self.open.store(false, Ordering::Release);
        }
        ended
    }

    /// Whether the caller must ask the kernel to forget. `false` if such a request is on its way.
    pub(crate) fn note_forgetting(&self) -> bool {
        !self.forgetting.swap(true, Ordering::AcqRel)
    }

    /// The ranges that the kernel may show and must forget.
    pub(crate) fn take_visible(&self) -> Vec<Range<u64>> {
        self.forgetting.store(false, Ordering::Release);
        self.locked().as_mut().map(|atomic_write| std::mem::take(&mut atomic_write.visible)).unwrap_or_default()
    }

    fn locked(&self) -> MutexGuard<'_, Option<AtomicWrite>> {
        // A panic elsewhere leaves the pieces whole.
        self.atomic_write.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AtomicWrite {
    fn write(&mut self, offset: u64, data: &[u8]) -> ReplyOutcome<()> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
        self.see(offset..end);
        if data.is_empty() {
            return Ok(());
        }
        let touching: Vec<u64> = self
            .pieces
            .range(..=end)
            .rev()
            .map(|(start, piece)| (*start, start + piece.len() as u64))
            .take_while(|(_, piece_end)| *piece_end >= offset)
            .map(|(start, _)| start)
            .collect();
        let first = touching.last().copied().unwrap_or(offset).min(offset);
        let mut whole = self.pieces.remove(&first).unwrap_or_default();
        for start in touching.into_iter().rev().filter(|start| *start != first) {
            put(&mut whole, first, start, &self.pieces.remove(&start).unwrap_or_default());
        }
        put(&mut whole, first, offset, data);
        self.pieces.insert(first, whole);
        if !fits_together(self.ranges()) {
            self.refused = Some(Errno::FBIG);
            for (start, piece) in std::mem::take(&mut self.pieces) {
                self.see(start..start + piece.len() as u64);
            }
            return Err(Errno::FBIG);
        }
        Ok(())
    }

    fn see(&mut self, range: Range<u64>) {
        if self.visible.len() == VISIBLE_MAX {
            let start = self.visible.iter().map(|seen| seen.start).fold(range.start, u64::min);
            let end = self.visible.iter().map(|seen| seen.end).fold(range.end, u64::max);
            self.visible.clear();
            self.visible.push(start..end);
        } else {
            self.visible.push(range);
        }
    }

    /// What the kernel must forget when the atomic write ends: what it may show, and its pieces, made or not.
    pub(crate) fn to_forget(&self) -> Vec<Range<u64>> {
        self.visible.iter().cloned().chain(self.ranges()).collect()
    }

    /// The ranges of its pieces.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.pieces.iter().map(|(start, piece)| *start..start + piece.len() as u64)
    }

    /// The pieces to commit, or an error if one was refused.
    pub(crate) fn pieces(&self) -> ReplyOutcome<Vec<(u64, Buf)>> {
        match self.refused {
            Some(refused) => Err(refused),
            None => Ok(self.pieces.iter().map(|(start, piece)| (*start, BufMut::copy_of(piece).freeze())).collect()),
        }
    }
}

/// Puts `data` at `offset` into `whole`, which begins at `first`, over the bytes it has there.
fn put(whole: &mut Vec<u8>, first: u64, offset: u64, data: &[u8]) {
    let at = usize::try_from(offset - first).expect("pieces are bounded");
    if whole.len() < at + data.len() {
        whole.resize(at + data.len(), 0);
    }
    whole[at..at + data.len()].copy_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> AtomicWriting {
        let atomic_writing = AtomicWriting::default();
        atomic_writing.start(&atomic_writes(), 0).unwrap();
        atomic_writing
    }

    #[test]
    fn later_writes_lie_over_earlier_ones_and_neighbours_are_one() {
        let atomic_writing = open();
        for (offset, byte, len) in [(100, 1, 50), (300, 2, 10), (140, 3, 20), (160, 4, 140), (120, 5, 5)] {
            atomic_writing.write(offset, &vec![byte; len]).unwrap().unwrap();
        }
        let atomic_write = atomic_writing.end().unwrap();
        assert!(atomic_write.ranges().eq(std::iter::once(100..310)));
        let bytes = &atomic_write.pieces[&100];
        assert_eq!(
            [bytes[0], bytes[20], bytes[25], bytes[40], bytes[60], bytes[199], bytes[200]],
            [1, 5, 1, 3, 4, 4, 2]
        );
        assert!(!atomic_writing.is_open() && atomic_writing.end().is_none());
    }

    #[test]
    fn writes_in_any_order_are_those_of_an_array() {
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..50 {
            let atomic_writing = open();
            let mut array = vec![None; 2000];
            for number in 0..30_u8 {
                let (offset, len) = (next(1800), 1 + next(150));
                atomic_writing.write(offset, &vec![number; len as usize]).unwrap().unwrap();
                array[offset as usize..(offset + len) as usize].fill(Some(number));
            }
            let atomic_write = atomic_writing.end().unwrap();
            let mut found = vec![None; 2000];
            for (start, piece) in &atomic_write.pieces {
                for (at, byte) in piece.iter().enumerate() {
                    found[*start as usize + at] = Some(*byte);
                }
            }
            assert_eq!(found, array);
            assert!(atomic_write.ranges().zip(atomic_write.ranges().skip(1)).all(|(one, next)| one.end < next.start));
        }
    }

    #[test]
    fn what_is_too_much_is_refused_and_nothing_of_it_is_committed() {
        let atomic_writing = open();
        for page in 0..66 {
            atomic_writing.write(page * 65536, &[1; 4096]).unwrap().unwrap();
        }
        assert_eq!(atomic_writing.write(66 * 65536, &[1; 4096]).unwrap(), Err(Errno::FBIG));
        assert_eq!(atomic_writing.write(0, &[1; 1]).unwrap(), Err(Errno::FBIG), "it stays refused");
        assert_eq!(atomic_writing.end().unwrap().pieces().err(), Some(Errno::FBIG));
    }

    #[test]
    fn atomic_writes_are_bounded_in_number_and_each_handle_has_one() {
        let all = atomic_writes();
        let handles: Vec<AtomicWriting> = (0..=ATOMIC_WRITES_MAX).map(|_| AtomicWriting::default()).collect();
        assert!(handles[1..].iter().all(|handle| handle.start(&all, 0).is_ok()));
        assert_eq!(handles[0].start(&all, 0), Err(Errno::BUSY));
        assert_eq!(handles[1].start(&all, 0), Err(Errno::INVAL));
        handles[1].end().unwrap();
        assert_eq!(handles[0].start(&all, 0), Ok(()));
        assert!(handles[1].write(0, &[1]).is_none());
    }

    #[test]
    fn one_user_leaves_atomic_writes_to_the_others() {
        let all = atomic_writes();
        let of_user = ATOMIC_WRITES_MAX / 4;
        let handles: Vec<AtomicWriting> = (0..=of_user).map(|_| AtomicWriting::default()).collect();
        let begun = handles.iter().filter(|handle| handle.start(&all, 1000).is_ok()).count();
        assert_eq!(begun, of_user);
        let refused = &handles[of_user];
        assert_eq!(refused.start(&all, 1000), Err(Errno::BUSY));
        refused.start(&all, 1001).unwrap();
        handles[0].end().unwrap();
        assert_eq!(handles[0].start(&all, 1000), Ok(()), "what is ended is free again");
    }
}
