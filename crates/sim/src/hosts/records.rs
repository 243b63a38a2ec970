//! What applications write: numbered records, each in a block of one file, over and over again.
//!
//! Keeps true: the file's content tells by itself which record was the last, whether the ones before it are there, and
//! whether each is whole.

use std::collections::BTreeMap;

use headpond_base::{BLOCK, Buf, BufMut};
use headpond_timed::mix;

/// Blocks of the file.
pub(crate) const SLOTS: u64 = 20;

/// A record: its number, its name, and the name of the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) id: u64,
    pub(crate) before: u64,
}

impl Record {
    /// Where it lies, in bytes.
    pub(crate) const fn offset(self) -> u64 {
        (self.number % SLOTS) * BLOCK as u64
    }

    /// Its block.
    pub(crate) fn block(self) -> Buf {
        let mut block = BufMut::zeroed(BLOCK);
        for (index, bytes) in (0..).zip(block.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&self.word(index).to_le_bytes());
        }
        block.freeze()
    }

    const fn word(self, index: u64) -> u64 {
        match index {
            0 => self.number,
            1 => self.id,
            2 => self.before,
            _ => mix(self.id ^ index),
        }
    }

    /// The record of a block. None in a block of zeros.
    fn of(block: &[u8]) -> Result<Option<Self>, String> {
        let word = |index: usize| u64::from_le_bytes(block[8 * index..][..8].try_into().expect("eight bytes"));
        let record = Self { number: word(0), id: word(1), before: word(2) };
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if (0..BLOCK / 8).all(|index| word(index) == record.word(index as u64)) {
            return Ok(Some(record));
        }
        Err(format!("a block is not what was written for it: it begins with {record:?}"))
    }
}

/// What the file has: the last record, and as many before it as there are blocks.
#[derive(Clone, Default, Debug)]
pub(crate) struct Records {
    by_number: BTreeMap<u64, Record>,
}

impl Records {
    /// Reads the whole file.
    ///
    /// # Errors
    /// It is not what some number of records leave.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut by_number = BTreeMap::new();
        for (slot, block) in (0..).zip(bytes.chunks_exact(BLOCK)) {
            if let Some(record) = Record::of(block)? {
                if record.number % SLOTS != slot {
                    return Err(format!("block {slot} has {record:?}"));
                }
                by_number.insert(record.number, record);
            }
        }
        let records = Self { by_number };
        let last = records.last().number;
        let first = last.saturating_sub(SLOTS - 1).max(1);
        let mut before = None;
        for number in first..=last {
            let record = records.by_number.get(&number);
            let record = record.ok_or_else(|| format!("record {last} is there, and {number} is not"))?;
            if before.is_some_and(|id| id != record.before) {
                return Err(format!(
                    "{record:?} follows another record than the one that is there: {:?}",
                    records.by_number
                ));
            }
            before = Some(record.id);
        }
        if records.by_number.len() as u64 > last + 1 - first {
            return Err(format!("records of several times: {:?}", records.by_number));
        }
        Ok(records)
    }

    /// The last record.
    pub(crate) fn last(&self) -> Record {
        let none = Record { number: 0, id: 0, before: 0 };
        self.by_number.last_key_value().map_or(none, |(_, record)| *record)
    }

    /// The name of a record, if the file still has it.
    pub(crate) fn id(&self, number: u64) -> Option<u64> {
        self.by_number.get(&number).map(|record| record.id)
    }

    /// Whether a record with this name was written here, as far as can be told: it may be overwritten by now.
    pub(crate) fn may_have(&self, number: u64, id: u64) -> bool {
        let last = self.last().number;
        number <= last && self.by_number.get(&number).map_or(number + SLOTS <= last, |record| record.id == id)
    }

    /// A record is written.
    pub(crate) fn push(&mut self, record: Record) {
        if let Some(over) = record.number.checked_sub(SLOTS) {
            self.by_number.remove(&over);
        }
        self.by_number.insert(record.number, record);
    }

    /// The record that a block has.
    ///
    /// # Errors
    /// The block has another one.
    pub(crate) fn check(&self, slot: u64, block: &[u8]) -> Result<(), String> {
        let found = Record::of(block)?;
        let expected = self.by_number.values().find(|record| record.number % SLOTS == slot).copied();
        if found == expected { Ok(()) } else { Err(format!("block {slot} has {found:?} in the place of {expected:?}")) }
    }
}
