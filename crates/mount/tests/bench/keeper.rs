//! What a process above the server would keep: descriptors, and the words of a ledger.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use headpond_mount::{DescriptorKeeper, LastingMount, LedgerRoom, MountLedger};

/// LedgerRoom for what tests use.
pub const ROOM: LedgerRoom = LedgerRoom { inodes: 8192, handles: 256 };

/// Keeps descriptors.
#[derive(Default)]
pub struct Kept(Mutex<BTreeMap<u64, OwnedFd>>);

impl Kept {
    /// How many it keeps.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Copies of all.
    fn copies(&self) -> BTreeMap<u64, OwnedFd> {
        let kept = self.0.lock().unwrap();
        kept.iter().map(|(number, file)| (*number, file.try_clone().unwrap())).collect()
    }
}

impl DescriptorKeeper for Kept {
    fn keep(&self, number: u64, file: BorrowedFd<'_>) -> io::Result<()> {
        self.0.lock().unwrap().insert(number, file.as_fd().try_clone_to_owned()?);
        Ok(())
    }

    fn let_go(&self, number: u64) {
        self.0.lock().unwrap().remove(&number);
    }
}

/// Words for a new ledger.
pub fn words() -> &'static [AtomicU64] {
    let words: Vec<AtomicU64> = (0..ROOM.words()).map(|_| AtomicU64::new(0)).collect();
    Box::leak(words.into_boxed_slice())
}

/// The words as they are now: what is left of a dead server writes to its own.
pub fn copy_of(words: &[AtomicU64]) -> &'static [AtomicU64] {
    let words: Vec<AtomicU64> = words.iter().map(|word| AtomicU64::new(word.load(Ordering::SeqCst))).collect();
    Box::leak(words.into_boxed_slice())
}

/// What outlives a server.
pub fn lasting(ledger: &Arc<MountLedger>, keeper: &Arc<Kept>) -> LastingMount {
    LastingMount { ledger: ledger.clone(), keeper: keeper.clone(), kept: keeper.copies(), journal: None }
}
