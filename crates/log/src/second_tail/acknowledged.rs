//! The last batch of which something may have been acknowledged, named beside the rows.
//!
//! A row is freed once its batch is written, and then only devices have the batch, maybe in a cache that no sync has
//! reached. If the process and the only device with it are lost together, the log that is left ends before it, and looks
//! as if it were whole. These words tell a successor that it is not.
//!
//! ```text
//!  title:   2-3 pool   4 number of the batch; 0: nothing was acknowledged
//! ```
//!
//! Within one pool the number only grows, by one store. For another pool it is 0 while the pool's words change.
//!
//! The price: one store for each host batch.

use std::sync::atomic::{AtomicU64, Ordering};

use headpond_base::{BatchNumber, PoolId};

use super::rows::{pool_of, pool_words};

/// Words of the title.
pub(super) const POOL: [usize; 2] = [2, 3];
pub(super) const NUMBER: usize = 4;

/// The last host batch that a process may have acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastAcknowledged {
    /// The pool that it belongs to.
    pub pool: PoolId,
    /// Its number.
    pub number: BatchNumber,
}

impl LastAcknowledged {
    /// What these words name, which have the layout of this program.
    pub(super) fn in_title(words: &[AtomicU64]) -> Option<Self> {
        let word = |at: usize| words.get(at).map_or(0, |word| word.load(Ordering::Acquire));
        let number = BatchNumber(word(NUMBER));
        (number.0 > 0).then(|| Self { pool: pool_of(POOL.map(word)), number })
    }

    /// Whether the batch is lost if the host batches of `pool` end with `last`. Numbers of a pool only grow, whichever
    /// use they are from.
    #[must_use]
    pub fn is_lost_in(&self, pool: PoolId, last: BatchNumber) -> bool {
        self.pool == pool && self.number > last
    }

    /// Calls `store` for each word that must change for this to follow `before`, in order.
    pub(super) fn follow(self, before: Option<Self>, mut store: impl FnMut(usize, u64)) {
        if before.is_none_or(|before| before.pool != self.pool) {
            store(NUMBER, 0);
            POOL.into_iter().zip(pool_words(self.pool)).for_each(|(at, word)| store(at, word));
        }
        store(NUMBER, self.number.0);
    }
}
