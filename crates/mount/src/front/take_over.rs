//! Going on with what a process before this one had open.
//!
//! Invariants
//! - A successor has all inodes and handles that the kernel holds before it takes the first request. What it cannot
//!   open again it reports, and requests for that fail.
//! - Files open again as their handles had them. Nobody's permission is checked anew: the kernel has let the program
//!   open them.
//!
//! What memory alone had, and what its loss means:
//! - Which pages the kernel keeps (`kernel_pages.rs`): it may keep some of every file.
//! - Whether a file has privileges that a write takes away (`seen_privileges.rs`): the next write looks.
//! - The pieces of an atomic write: later writes of the handle fail, and its commit. SQLite then makes the transaction
//!   again with its journal.
//! - Locks of programs are the kernel's, and stay.
//! - Where a directory was read: the kernel sends a position with each request, and the origin can seek there.
//! - The rest is in the name layer's part ([`headpond_names::Lasting`]).

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headpond_ledger::{HandleKind, HandleRow, MountLedger};
use headpond_names::{FileHandle, block_on};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::front::Front;
use crate::handles::{ContentWay, OpenHandle};
use crate::lasting::TakenOver;
use crate::outcome::{ReplyOutcome, outcome};
use crate::reached::{Reached, pin};
use crate::telling::tell;
use crate::tree::Inode;

impl Front {
    /// Goes on with what the process before had open. Returns how many handles could not be opened again.
    pub(crate) fn take_over(&self, inodes: &TakenOver) -> usize {
        let Some(ledger) = &self.ledger else { return 0 };
        // The kernel may keep pages of any of them.
        self.names.inodes.each(|inode| inode.beside.pages.used());
        let promises = ledger.stored_promises();
        let mut promised: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut lost = 0;
        for (row, entry) in ledger.stored_handles() {
            let number = row.number;
            if row.promise != 0 {
                promised.entry(row.promise).or_default().push(number);
            }
            let opened = inodes.get(&row.inode).ok_or(Errno::STALE).and_then(|inode| match row.kind {
                HandleKind::Directory => {
                    let directory = self.open_directory(inode, row.opener)?;
                    self.directories.put(number, directory, Some(entry));
                    self.before.opened_directory(row.unique, number);
                    Ok(())
                }
                HandleKind::File | HandleKind::Sheet => {
                    let file = self.open_as_before(inode, &row)?;
                    self.files.put(number, file, Some(entry));
                    self.before.opened_file(row.unique, number);
                    Ok(())
                }
            });
            lost += usize::from(opened.is_err());
        }
        for (row, entry) in promises {
            let handles = promised.remove(&entry.number()).unwrap_or_default();
            self.whole.take_over(&self.names.known, row, entry, handles);
        }
        lost
    }

    /// Makes room in the ledger while there is some. Says once that there is none, and again when it had room and has none.
    pub(crate) fn says_what_it_lacks(&self, ledger: &MountLedger) {
        if let Some(pruning) = self.pruning.get() {
            pruning.look(ledger);
        }
        let lacks = ledger.missing() > 0;
        if self.said.load(Ordering::Relaxed) != lacks && self.said.swap(lacks, Ordering::Relaxed) != lacks && lacks {
            tell(
                "more files are in use than can be noted. If this process ends before some are closed or forgotten, no other can \
                 go on with the mount",
            );
        }
    }

    fn open_as_before(&self, inode: &Arc<Inode>, row: &HandleRow) -> ReplyOutcome<OpenHandle> {
        let pinned = pin(inode, row.writes)?;
        let file = if inode.managed {
            let FileHandle { inode, object, known, writes } = outcome(block_on(self.names.open(pinned, false)))?;
            OpenHandle::new(inode, ContentWay::Pond { object, known }, writes, row.opener)
        } else {
            let share = self.held_by(row.opener)?;
            let file = File::from(inode.open(OFlags::from_bits_retain(row.flags))?);
            OpenHandle::new(pinned, ContentWay::Straight(file, share), row.writes, row.opener)
        };
        if row.atomic {
            file.atomic_writing.start_broken(&self.atomic_writes, row.opener)?;
        }
        Ok(file)
    }
}
