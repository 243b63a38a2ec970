//! Buffers into which the kernel puts requests.
//!
//! A write's data goes to the engine in the buffer in which it arrived. The next request gets another
//! buffer, and this one comes back when the engine drops it. So a write needs no copy on its way to the
//! log's batch, and no zeroed memory.
//!
//! Bounded: the engine has at most [`LENT_MAX`] buffers. With more under way, the mount copies further writes.

use std::collections::VecDeque;

use headpond_base::{BLOCK, Buf, BufMut, RECORD_BYTES_MAX};

/// Room for a request's data: the most that the kernel sends at once.
pub(crate) const DATA_BYTES: usize = RECORD_BYTES_MAX + BLOCK;

/// The most buffers that the engine may have: enough for every queue depth at which a database writes. They take
/// about as many mebibytes.
const LENT_MAX: usize = 32;

/// Up to this many bytes a copy costs less than lending.
const COPIED_MAX: usize = 2048;

/// The memory for the next request, and the lent buffers.
pub(crate) struct RequestBuffers {
    next: BufMut,
    lent: VecDeque<Buf>,
}

impl RequestBuffers {
    pub(crate) fn new() -> Self {
        Self { next: BufMut::zeroed(DATA_BYTES), lent: VecDeque::new() }
    }

    /// The buffer for the next request's data.
    pub(crate) fn next(&mut self) -> &mut BufMut {
        &mut self.next
    }

    /// Takes the first `len` bytes that have arrived.
    pub(crate) fn take(&mut self, len: usize) -> Buf {
        let fresh = if len < COPIED_MAX { None } else { self.fresh() };
        let Some(fresh) = fresh else { return BufMut::copy_of(&self.next[..len]).freeze() };
        let whole = std::mem::replace(&mut self.next, fresh).freeze();
        self.lent.push_back(whole.clone());
        whole.slice(0..len)
    }

    /// A buffer that came back, or a new one.
    fn fresh(&mut self) -> Option<BufMut> {
        // The oldest buffers are the most likely to be back.
        for _ in 0..self.lent.len().min(4) {
            match self.lent.pop_front()?.reclaim() {
                Ok(buffer) => return Some(buffer),
                Err(still) => self.lent.push_back(still),
            }
        }
        (self.lent.len() < LENT_MAX).then(|| BufMut::zeroed(DATA_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_memory_is_not_written_to_until_it_has_come_back() {
        let mut buffers = RequestBuffers::new();
        let mut taken = Vec::new();
        for number in 0..100 {
            buffers.next()[..5000].fill(number);
            taken.push(buffers.take(5000));
            if number % 3 == 2 {
                taken.remove(0);
            }
            assert!(buffers.lent.len() <= LENT_MAX);
            let first = taken[0][0];
            assert!(taken.iter().zip(first..).all(|(taken, number)| taken.iter().all(|byte| *byte == number)));
        }
    }
}
