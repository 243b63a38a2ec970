//! Used memory, kept for the next buffer of its size.
//!
//! Fresh memory costs a page fault and the zeroing of each block; returned memory costs a change of the page
//! table. For a read of 4 KiB, both together took a seventh of the shard's time.
//!
//! Invariants:
//! - Memory is in a buffer or kept, never both. It comes here when its last owner drops it.
//! - Bounded: the process keeps at most [`KEPT_BYTES`] of each size, or what [`keep_up_to`] allows.
//!
//! The price: two uncontended locks in a buffer's life, and up to 18 MiB that the system does not get back.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zerocopy::FromZeros;

use super::Page;
use crate::RECORD_BLOCKS_MAX;

/// The kept sizes, in blocks. A buffer gets the next larger one. The last has room for the largest record.
const SIZES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, RECORD_BLOCKS_MAX];

/// The most bytes kept of each size: enough for all small reads under way at a usual depth, and for more batches than
/// are under way.
const KEPT_BYTES: usize = 2 << 20;

static KEPT_MOST: AtomicUsize = AtomicUsize::new(KEPT_BYTES);

static KEPT: [Mutex<Vec<Box<[Page]>>>; SIZES.len()] = [const { Mutex::new(Vec::new()) }; SIZES.len()];

/// Lets this process keep up to `bytes` of each size, if that is more than now. For a process with many buffers that
/// stay in use for long and come back together.
pub fn keep_up_to(bytes: usize) {
    KEPT_MOST.fetch_max(bytes, Ordering::Relaxed);
}

/// The memory of one buffer.
pub(super) struct KeptPages(Box<[Page]>);

fn kept(size: usize) -> MutexGuard<'static, Vec<Box<[Page]>>> {
    KEPT[size].lock().unwrap_or_else(PoisonError::into_inner)
}

impl KeptPages {
    /// No memory.
    pub(super) fn none() -> Self {
        Self(Box::default())
    }

    /// Room for `blocks` blocks, and whether it was used before. Unused memory is zeros.
    pub(super) fn take(blocks: usize) -> (Self, bool) {
        let size = if blocks == 0 { None } else { SIZES.iter().position(|size| blocks <= *size) };
        if let Some(pages) = size.and_then(|size| kept(size).pop()) {
            return (Self(pages), true);
        }
        let blocks = size.map_or(blocks, |size| SIZES[size]);
        (Self(<[Page]>::new_box_zeroed_with_elems(blocks).expect("out of memory for an I/O buffer")), false)
    }
}

impl Drop for KeptPages {
    fn drop(&mut self) {
        let Some(size) = SIZES.iter().position(|size| self.0.len() == *size) else { return };
        let most = KEPT_MOST.load(Ordering::Relaxed) / size_of_val(&*self.0);
        let mut kept = kept(size);
        if kept.len() < most {
            kept.push(std::mem::take(&mut self.0));
        }
    }
}

impl Deref for KeptPages {
    type Target = [Page];

    #[inline]
    fn deref(&self) -> &[Page] {
        &self.0
    }
}

impl DerefMut for KeptPages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Page] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use crate::{BLOCK, BufMut};

    #[test]
    fn used_memory_is_zeros_again_where_zeros_are_asked_for() {
        for len in [1, BLOCK, 3 * BLOCK, 257 * BLOCK, 300 * BLOCK] {
            let mut used = BufMut::unwritten(len);
            used.fill(7);
            drop(used.freeze().slice(0..1));
            for _ in 0..100 {
                let again = BufMut::zeroed(len);
                assert!(again.len() == len && again.iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let many: Vec<_> = (0..3000).map(|_| BufMut::unwritten(BLOCK)).collect();
        drop(many);
        assert!(super::kept(0).len() * BLOCK <= super::KEPT_BYTES);
    }
}
