//! What applications ask of an open file by `ioctl`.
//!
//! Known is what databases ask of flash that keeps writes whole; everything else is refused as by any file system
//! that does not know it (ENOTTY).

use fuser::Request;
use headpond_rules::{Action, Direction};
use rustix::io::Errno;

use crate::front::{Front, Outcome};
use crate::handles::{OpenFile, Way};
use crate::known::Known;
use crate::panel::is_panel;
use crate::times;
use crate::wire::Caller;

/// `DFS_IOCTL_ATOMIC_WRITE_SET`, `_IOW(0x95, 2, unsigned)`: "my writes to this file are whole from now on, are they
/// not?" MariaDB and MySQL ask it of each tablespace, with 1, and leave out their doublewrite if it is answered.
pub const ATOMIC_WRITE_SET: u32 = 0x4004_9502;

/// The pages that databases have, in bytes: a rule on the size of a request counts if it decides on one of these.
const PAGES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

impl Front {
    /// Answers, or refuses.
    pub(crate) fn ioctl(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        command: u32,
        given: &[u8],
    ) -> Outcome<Vec<u8>> {
        if is_panel(node) || command != ATOMIC_WRITE_SET {
            return Err(Errno::NOTTY);
        }
        // Directories have handles of their own, by the same numbers.
        let file = self.files.get(handle).map_err(|_| Errno::NOTTY)?;
        if file.inode.node != node {
            return Err(Errno::NOTTY);
        }
        let wanted = given.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Errno::INVAL)?;
        let caller = Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() };
        if wanted == 0 {
            self.whole.closed(file.inode.key, handle);
            return Ok(Vec::new());
        }
        self.promise_whole(&file, handle, caller)?;
        Ok(Vec::new())
    }

    /// Tells the caller that writes of up to a mebibyte are whole, if they are.
    fn promise_whole(&self, file: &OpenFile, handle: u64, caller: Caller) -> Outcome<()> {
        let Way::Pond { known, .. } = &file.way else { return Err(Errno::NOTTY) };
        if self.read_only || !self.goes_through_the_log(known, caller) {
            return Err(Errno::NOTTY);
        }
        self.whole.promise(file.inode.key, known, handle, caller.pid)
    }

    /// Whether no rule sends pages that this caller writes to the file past the log.
    fn goes_through_the_log(&self, known: &Known, caller: Caller) -> bool {
        let Some(rules) = self.rules.any() else { return true };
        let process = self.insight.processes_known().look(caller, &rules);
        let (path, now) = (known.mask(&rules), times::unix_seconds());
        PAGES.iter().all(|page| {
            let decided = rules.set.decide(path, process, *page, Direction::Write, now);
            let action = decided.map_or(Action::Cache, |index| rules.set.rules()[index].action);
            matches!(action, Action::Cache | Action::Pin(_) | Action::Share(_))
        })
    }
}
