//! Files that the log was told to forget, and not durably yet. A crash brings what it knew of them back: the file must not be
//! changed before, or the next start takes headpond's own change for one by others.
//!
//! Invariant: what is durable of the log names a file that it was told to forget only while that file is in here.

use std::collections::{BTreeMap, VecDeque};

use headpond_base::Sequence;

/// Owned by the store. Files by their inode numbers.
#[derive(Default)]
pub(crate) struct Forgotten {
    in_order: VecDeque<(Sequence, u64)>,
    last: BTreeMap<u64, Sequence>,
}

impl Forgotten {
    /// The log forgets the file with the entry `at`, and is durable up to `durable`.
    pub(crate) fn add(&mut self, inode: u64, at: Sequence, durable: Sequence) {
        self.settle(durable);
        self.in_order.push_back((at, inode));
        self.last.insert(inode, at);
    }

    /// Whether the log may still bring back what it knew of a file, where it is durable up to this entry.
    pub(crate) fn may_come_back(&mut self, inode: u64, durable: Sequence) -> bool {
        self.settle(durable);
        self.last.contains_key(&inode)
    }

    fn settle(&mut self, durable: Sequence) {
        while let Some((at, inode)) = self.in_order.front().copied().filter(|(at, _)| *at <= durable) {
            self.in_order.pop_front();
            if self.last.get(&inode) == Some(&at) {
                self.last.remove(&inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_come_back_until_the_last_word_of_it_is_durable() {
        let mut forgotten = Forgotten::default();
        forgotten.add(7, Sequence(3), Sequence(2));
        forgotten.add(8, Sequence(4), Sequence(2));
        forgotten.add(7, Sequence(5), Sequence(2));
        assert!(forgotten.may_come_back(7, Sequence(4)) && !forgotten.may_come_back(8, Sequence(4)));
        assert!(!forgotten.may_come_back(7, Sequence(5)) && forgotten.in_order.is_empty());
    }
}
