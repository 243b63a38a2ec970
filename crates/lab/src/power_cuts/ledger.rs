//! The ledger outside the guest: the acknowledged records, and what the checks have found so far.
//!
//! Invariants
//! - A record counts once its line has come over the console. Lines come in order, one number after the other.
//! - What a check found after a cut, later checks must find, too: recovery may not come to another result later.

use crate::failure::{Failure, Result};
use std::path::Path;

/// A writer of one load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedgerEntry {
    /// Which load: each guest has one.
    pub load: u64,
    /// Which of its writers.
    pub writer: u64,
    /// Records that it was told are durable.
    pub acknowledged: u64,
    /// How many steps of the next record were found after the cut, once that is known.
    pub steps: Option<usize>,
}

/// All writers whose directories must still be there.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Ledger(pub Vec<LedgerEntry>);

impl Ledger {
    /// Enters the writers of a load.
    pub fn begin(&mut self, load: u64, writers: u64) {
        self.0.extend((0..writers).map(|writer| LedgerEntry { load, writer, acknowledged: 0, steps: None }));
    }

    /// Forgets the loads before `load`, whose directories may go; but none that was never compared: cuts that came
    /// before the check may have been in between.
    pub fn forget_before(&mut self, load: u64) {
        self.0.retain(|entry| entry.load >= load || entry.steps.is_none());
    }

    /// Enters a record.
    pub fn acknowledge(&mut self, load: u64, writer: u64, record: u64) -> Result<()> {
        let entry = self.entry(load, writer)?;
        if record != entry.acknowledged + 1 {
            let why = format!("record {record} of writer {writer} came after record {}", entry.acknowledged);
            return Err(Failure::Other(why));
        }
        entry.acknowledged = record;
        Ok(())
    }

    /// Enters what was found of the record that was under way. Fails if something else was found before.
    pub fn found(&mut self, load: u64, writer: u64, steps: usize) -> Result<std::result::Result<(), String>> {
        let entry = self.entry(load, writer)?;
        let before = *entry.steps.get_or_insert(steps);
        let other = || format!("load {load}, writer {writer}: {before} steps were there, and now {steps} are");
        Ok(if before == steps { Ok(()) } else { Err(other()) })
    }

    fn entry(&mut self, load: u64, writer: u64) -> Result<&mut LedgerEntry> {
        let found = self.0.iter_mut().find(|entry| (entry.load, entry.writer) == (load, writer));
        found.ok_or_else(|| Failure::Other(format!("the guest speaks of writer {writer} of load {load}")))
    }

    /// Writes it to a file, which the guest reads.
    pub fn write(&self, path: &Path) -> Result<()> {
        let line = |entry: &LedgerEntry| {
            let steps = entry.steps.map_or("-".to_owned(), |steps| steps.to_string());
            format!("{} {} {} {steps}\n", entry.load, entry.writer, entry.acknowledged)
        };
        let text: String = self.0.iter().map(line).collect();
        std::fs::write(path, text).map_err(Failure::io(format!("writing {}", path.display())))
    }

    /// Reads it from a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Failure::io(format!("reading {}", path.display())))?;
        let entries: Option<Vec<LedgerEntry>> = text.lines().map(entry).collect();
        entries.map(Self).ok_or_else(|| Failure::Other(format!("{} is no ledger", path.display())))
    }
}

fn entry(line: &str) -> Option<LedgerEntry> {
    let words: Vec<&str> = line.split(' ').collect();
    let [load, writer, acknowledged, steps] = words[..] else { return None };
    let number = |word: &str| word.parse().ok();
    let steps = if steps == "-" { None } else { Some(steps.parse().ok()?) };
    Some(LedgerEntry { load: number(load)?, writer: number(writer)?, acknowledged: number(acknowledged)?, steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger");
        let mut ledger = Ledger::default();
        ledger.begin(3, 2);
        ledger.acknowledge(3, 1, 1).expect("the first");
        ledger.found(3, 0, 4).expect("known").expect("the first finding");
        ledger.write(&path).expect("room");
        assert_eq!(Ledger::read(&path).expect("a ledger"), ledger);
        std::fs::write(&path, "3 1 x -\n").expect("room");
        assert!(Ledger::read(&path).is_err());
    }

    #[test]
    fn a_load_that_was_never_compared_is_not_forgotten() {
        let mut ledger = Ledger::default();
        ledger.begin(1, 2);
        ledger.found(1, 0, 0).expect("known").expect("the first finding");
        ledger.forget_before(9);
        assert_eq!(ledger.0.iter().map(|entry| entry.writer).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_record_that_is_skipped_and_a_finding_that_changes_are_noticed() {
        let mut ledger = Ledger::default();
        ledger.begin(1, 1);
        assert!(ledger.acknowledge(1, 0, 2).is_err());
        assert!(ledger.acknowledge(1, 5, 1).is_err());
        assert!(ledger.found(1, 0, 2).expect("known").is_ok() && ledger.found(1, 0, 2).expect("known").is_ok());
        assert!(ledger.found(1, 0, 1).expect("known").is_err());
    }
}
