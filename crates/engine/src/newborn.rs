//! When files without birth times were made through headpond, of those that the engine has let go of since: one that is
//! opened again is still new. See [`ObjectState::made_at`].
//!
//! Bounded: of more files than [`MOST`] the oldest are forgotten. Of those, and of files that were made past headpond,
//! a loss of power may show another one under their number, and nothing tells.
//!
//! [`ObjectState::made_at`]: headpond_format::ObjectState::made_at

use std::collections::{BTreeMap, VecDeque};

use headpond_base::UnixNanos;

/// Files that are remembered: some 100 KiB of them.
const MOST: usize = 4096;

/// Owned by the store. Files by their inode numbers.
#[derive(Default)]
pub(crate) struct Newborn {
    made: BTreeMap<u64, UnixNanos>,
    in_order: VecDeque<u64>,
}

impl Newborn {
    /// The engine lets go of a file that was made then.
    pub(crate) fn remember(&mut self, inode: u64, made: UnixNanos) {
        if self.made.insert(inode, made).is_none() {
            self.in_order.push_back(inode);
        }
        if self.in_order.len() > MOST
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.made.remove(&oldest);
        }
    }

    /// When a file was made whose status was last changed at `ctime`: a later time is that of another file.
    pub(crate) fn made(&self, inode: u64, ctime: UnixNanos) -> Option<UnixNanos> {
        self.made.get(&inode).copied().filter(|made| *made <= ctime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_no_more_than_the_bound() {
        let mut newborn = Newborn::default();
        for inode in 0..MOST as u64 + 2 {
            newborn.remember(inode, UnixNanos(5));
        }
        newborn.remember(9, UnixNanos(7));
        assert_eq!((newborn.made(0, UnixNanos(9)), newborn.made(1, UnixNanos(9))), (None, None));
        assert_eq!(newborn.made(2, UnixNanos(5)), Some(UnixNanos(5)));
        assert_eq!((newborn.made(9, UnixNanos(7)), newborn.made(9, UnixNanos(6))), (Some(UnixNanos(7)), None));
        assert_eq!((newborn.made.len(), newborn.in_order.len()), (MOST, MOST));
    }
}
