//! Objects that the log was told to forget, and not durably yet. A crash brings what it knew of them back: a file must
//! not be changed before, or the next start takes headpond's own change for one by others.
//!
//! Invariant: what is durable of the log names an object that it was told to forget only while that is in here.

use std::collections::{BTreeMap, VecDeque};

use headpond_base::Sequence;

use crate::origin_number::OriginNumber;

/// Owned by the store.
#[derive(Default)]
pub(crate) struct Forgotten {
    in_order: VecDeque<(Sequence, OriginNumber)>,
    last: BTreeMap<OriginNumber, Sequence>,
}

impl Forgotten {
    /// The log forgets the object with the entry `at`, and is durable up to `durable`.
    pub(crate) fn add(&mut self, number: OriginNumber, at: Sequence, durable: Sequence) {
        self.settle(durable);
        self.in_order.push_back((at, number));
        self.last.insert(number, at);
    }

    /// Whether the log may still bring back what it knew of an object, where it is durable up to this entry.
    pub(crate) fn may_come_back(&mut self, number: OriginNumber, durable: Sequence) -> bool {
        self.settle(durable);
        self.last.contains_key(&number)
    }

    fn settle(&mut self, durable: Sequence) {
        while let Some((at, number)) = self.in_order.front().copied().filter(|(at, _)| *at <= durable) {
            self.in_order.pop_front();
            if self.last.get(&number) == Some(&at) {
                self.last.remove(&number);
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
        let (one, other) = (OriginNumber::Inode(7), OriginNumber::Inode(8));
        forgotten.add(one, Sequence(3), Sequence(2));
        forgotten.add(other, Sequence(4), Sequence(2));
        forgotten.add(one, Sequence(5), Sequence(2));
        assert!(forgotten.may_come_back(one, Sequence(4)) && !forgotten.may_come_back(other, Sequence(4)));
        assert!(!forgotten.may_come_back(one, Sequence(5)) && forgotten.in_order.is_empty());
    }
}
