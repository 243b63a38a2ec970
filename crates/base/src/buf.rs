//! Memory for I/O, aligned to a block, so that it can go to O_DIRECT files without a copy.
//!
//! When the last owner drops a buffer, its memory waits for the next one (see `kept`), or goes back to its [`Lender`].

mod kept;
mod lent;

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::BLOCK;
use kept::KeptPages;
pub use kept::keep_up_to;
pub use lent::Lender;
use lent::LentPages;

/// One aligned block of memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK]);

/// The memory of one buffer.
enum Pages {
    /// The process's own.
    Kept(KeptPages),
    /// A slot of a lender's.
    Lent(LentPages),
}

impl Pages {
    /// The number of the slot, if it is one.
    const fn slot(&self) -> Option<usize> {
        match self {
            Self::Kept(_) => None,
            Self::Lent(lent) => Some(lent.number()),
        }
    }
}

impl Deref for Pages {
    type Target = [Page];

    #[inline]
    fn deref(&self) -> &[Page] {
        match self {
            Self::Kept(kept) => kept,
            Self::Lent(lent) => lent,
        }
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Page] {
        match self {
            Self::Kept(kept) => kept,
            Self::Lent(lent) => lent,
        }
    }
}

/// Bytes that their single owner fills. Block-aligned in memory.
pub struct BufMut {
    pages: Pages,
    len: usize,
}

impl BufMut {
    /// `len` zero bytes. The memory is whole blocks.
    ///
    /// # Panics
    /// When memory is exhausted, as any allocation.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let (pages, used) = KeptPages::take(len.div_ceil(BLOCK));
        let mut buf = Self { pages: Pages::Kept(pages), len };
        if used {
            buf.fill(0);
        }
        buf
    }

    /// `len` bytes to be overwritten. Until then they may be anything that a buffer of this process held. The memory
    /// is whole blocks.
    ///
    /// # Panics
    /// When memory is exhausted, as any allocation.
    #[must_use]
    pub fn unwritten(len: usize) -> Self {
        Self { pages: Pages::Kept(KeptPages::take(len.div_ceil(BLOCK)).0), len }
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::unwritten(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Bytes of memory that it takes, however few are used.
    #[must_use]
    pub fn room(&self) -> usize {
        self.pages.len() * BLOCK
    }

    /// The number of the slot that it lies in, if a [`Lender`] lent its memory.
    #[must_use]
    pub const fn slot(&self) -> Option<usize> {
        self.pages.slot()
    }

    /// Shortens the buffer to `len` bytes. Ignores a larger `len`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Ends the filling: from now on the bytes are shared and do not change.
    #[must_use]
    pub fn freeze(self) -> Buf {
        Buf { range: 0..self.len, pages: Arc::new(self.pages) }
    }
}

impl Deref for BufMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }
}

impl DerefMut for BufMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.pages.as_mut_bytes()[..len]
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} bytes)", self.len)
    }
}

/// A shared, unchanging view of I/O memory. Cloning and slicing copy no bytes.
#[derive(Clone)]
pub struct Buf {
    // Not Arc<[Page]>: that would copy the bytes once more when a BufMut is frozen.
    pages: Arc<Pages>,
    range: Range<usize>,
}

impl Buf {
    /// No bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self { pages: Arc::new(Pages::Kept(KeptPages::none())), range: 0..0 }
    }

    /// The part `range` of this view.
    ///
    /// # Panics
    /// When `range` goes beyond this view.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.range.len(), "slice {range:?} of {self:?}");
        let start = self.range.start;
        Self { pages: self.pages.clone(), range: start + range.start..start + range.end }
    }

    /// Adds the first `len` bytes of `next` to this view, if they lie directly behind it in the same memory. Returns
    /// whether they do.
    ///
    /// # Panics
    /// When `next` has fewer than `len` bytes.
    pub fn extend(&mut self, next: &Self, len: usize) -> bool {
        assert!(len <= next.range.len(), "{len} bytes of {next:?}");
        let behind = Arc::ptr_eq(&self.pages, &next.pages) && self.range.end == next.range.start;
        if behind {
            self.range.end += len;
        }
        behind
    }

    /// Whether both are views of the same bytes in the same memory. Then all that is known of one holds for the other.
    #[must_use]
    pub fn is_same_view(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pages, &other.pages) && self.range == other.range
    }

    /// Bytes of memory that this view keeps in use.
    #[must_use]
    pub fn room(&self) -> usize {
        self.pages.len() * BLOCK
    }

    /// The number of the slot that it lies in, if a [`Lender`] lent its memory.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        self.pages.slot()
    }

    /// Returns the memory to be filled again, with all its room and its present bytes.
    ///
    /// # Errors
    /// When there are other views of it. Returns this one then.
    pub fn reclaim(self) -> Result<BufMut, Self> {
        let Self { pages, range } = self;
        match Arc::try_unwrap(pages) {
            Ok(pages) => Ok(BufMut { len: pages.len() * BLOCK, pages }),
            Err(pages) => Err(Self { pages, range }),
        }
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.pages.as_bytes()[self.range.clone()]
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reclaimed_only_by_its_last_view() {
        let whole = BufMut::copy_of(&[9; 5000]).freeze();
        let part = whole.slice(0..10);
        let whole = whole.reclaim().expect_err("there is another view");
        drop(part);
        assert_eq!(whole.reclaim().expect("the last view").len(), 2 * BLOCK);
    }

    #[test]
    fn buffers_are_block_aligned_and_slices_share_their_bytes() {
        let mut buf = BufMut::zeroed(5000);
        assert_eq!(buf.as_ptr() as usize % BLOCK, 0);
        buf[4097] = 7;
        let whole = buf.freeze();
        let part = whole.slice(4096..5000);
        assert_eq!((part.len(), part[1], part.as_ptr() as usize % BLOCK), (904, 7, 0));
        assert_eq!(part.slice(1..2)[..], [7]);
    }

    #[test]
    fn views_are_joined_only_where_their_bytes_lie_behind_each_other() {
        let whole = BufMut::copy_of(&[3; 5000]).freeze();
        let (front, back) = (whole.slice(0..100), whole.slice(100..5000));
        let mut joined = front.clone();
        assert!(joined.extend(&back, 10) && joined.is_same_view(&whole.slice(0..front.len() + 10)));
        assert!(front.clone().extend(&back, back.len()));
        assert!(!back.clone().extend(&front, 1) && !front.clone().extend(&front, 1));
        let other = BufMut::copy_of(&[3; 5000]).freeze();
        assert!(!front.clone().extend(&other.slice(100..5000), 1) && !other.is_same_view(&whole));
    }
}
