//! `ioctl` on open files.
//!
//! The mount answers what databases ask of flash that keeps writes untorn. It refuses everything else with ENOTTY, as
//! a file system does for an unknown request. A handle that can only read gets EBADF, as on F2FS: a promise binds the
//! operator, and atomic writes are few.

use fuser::Request;
use headpond_names::FileKind;
use headpond_rules::{Action, Direction};
use rustix::fs::{IFlags, OFlags};
use rustix::io::Errno;

use crate::caller::{Caller, Rights};
use crate::file_flags;
use crate::front::{Front, mask_of};
use crate::handles::{ContentWay, OpenHandle};
use crate::outcome::ReplyOutcome;
use crate::outcome::outcome;
use crate::panel::is_panel;
use crate::reached::Reached;
use crate::times;
use crate::tree::Known;

/// `DFS_IOCTL_ATOMIC_WRITE_SET`, `_IOW(0x95, 2, unsigned)`: "are my writes to this file whole from now on?" MariaDB
/// and MySQL ask this for each tablespace, with 1, and leave out their doublewrite if the answer is yes.
pub const ATOMIC_WRITE_SET: u32 = 0x4004_9502;

/// F2FS's requests. SQLite makes them if it was built for batch-atomic writes: what the file system can do
/// (`_IOR(0xf5, 12, u32)`), and the beginning and the two ends of an atomic write (`_IO(0xf5, 1)`, `2`, `5`).
pub const GET_FEATURES: u32 = 0x8004_f50c;
/// See [`GET_FEATURES`].
pub const START_ATOMIC_WRITE: u32 = 0xf501;
/// See [`GET_FEATURES`].
pub const COMMIT_ATOMIC_WRITE: u32 = 0xf502;
/// See [`GET_FEATURES`].
pub const ABORT_ATOMIC_WRITE: u32 = 0xf505;

/// The feature: atomic writes.
const FEATURE_ATOMIC_WRITE: u32 = 4;

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`: a file's flags, which `lsattr` shows and `chattr` sets. The kernel asks
/// through an open of its own, after it has checked what the caller may set.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`. The kernel asks for it before it sets flags.
const GET_XFLAGS: u32 = file_flags::GET_XFLAGS;

/// The page sizes of databases, in bytes. A rule on the size of a request matters if it decides on one of these.
const PAGES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

impl Front {
    /// Answers a request or refuses it.
    pub(crate) fn ioctl(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        command: u32,
        given: &[u8],
    ) -> ReplyOutcome<Vec<u8>> {
        if !is_panel(node) && matches!(command, GET_FLAGS | SET_FLAGS | GET_XFLAGS) {
            return self.flags(request, node, command, given);
        }
        let known = [ATOMIC_WRITE_SET, GET_FEATURES, START_ATOMIC_WRITE, COMMIT_ATOMIC_WRITE, ABORT_ATOMIC_WRITE];
        if is_panel(node) || !known.contains(&command) {
            return Err(Errno::NOTTY);
        }
        // Directories have handles of their own, with the same numbers.
        let file = self.files.get(handle).map_err(|_| Errno::NOTTY)?;
        if file.inode.node != node {
            return Err(Errno::NOTTY);
        }
        if !file.writes && command != GET_FEATURES {
            return Err(Errno::BADF);
        }
        let caller = Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() };
        match command {
            GET_FEATURES => {
                self.may_write_atomically(&file, caller)?;
                return Ok(FEATURE_ATOMIC_WRITE.to_ne_bytes().to_vec());
            }
            START_ATOMIC_WRITE => {
                self.may_write_atomically(&file, caller)?;
                file.atomic_writing.start(&self.atomic_writes, caller.uid)?;
                self.files.note(handle, |row| row.set_atomic(true));
                return Ok(Vec::new());
            }
            COMMIT_ATOMIC_WRITE => {
                let committed = self.commit(&file, caller);
                self.files.note(handle, |row| row.set_atomic(file.atomic_writing.is_open()));
                return committed.map(|()| Vec::new());
            }
            ABORT_ATOMIC_WRITE => {
                self.abort(&file);
                self.files.note(handle, |row| row.set_atomic(false));
                return Ok(Vec::new());
            }
            _ => {}
        }
        let wanted = given.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Errno::INVAL)?;
        if wanted == 0 {
            self.whole.closed(file.inode.key, handle);
            self.files.note(handle, |row| row.set_promise(0));
            return Ok(Vec::new());
        }
        self.promise_whole(&file, handle, caller)?;
        Ok(Vec::new())
    }

    /// Shows or sets a file's flags at the origin.
    fn flags(&self, request: &Request, node: u64, command: u32, given: &[u8]) -> ReplyOutcome<Vec<u8>> {
        let inode = outcome(self.names.inodes.get(node))?;
        if !matches!(inode.kind, FileKind::File | FileKind::Directory) {
            return Err(Errno::NOTTY);
        }
        let file = inode.open(OFlags::RDONLY | OFlags::NONBLOCK)?;
        if command == GET_XFLAGS {
            return file_flags::extended(&file).map(|flags| flags.to_vec());
        }
        let before = rustix::fs::ioctl_getflags(&file)?;
        if command == GET_FLAGS {
            return Ok(before.bits().to_ne_bytes().to_vec());
        }
        let wanted = given.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Errno::INVAL)?;
        let wanted = IFlags::from_bits_retain(wanted);
        let set = wanted - before;
        // Kernels from 5.13 on have checked the caller. Older ones have not.
        let rights = Rights::of(request);
        if inode.stat()?.uid != request.uid() && !rights.acts_as_owner()
            || (wanted ^ before).intersects(IFlags::APPEND | IFlags::IMMUTABLE) && !rights.fixes_files()
        {
            return Err(Errno::PERM);
        }
        self.may_change()?;
        if inode.managed && set.contains(IFlags::APPEND) {
            // Destage writes anywhere in a file.
            return Err(Errno::OPNOTSUPP);
        }
        if inode.managed && set.contains(IFlags::IMMUTABLE) {
            // Neither dirty data nor writes through open descriptors could reach the origin any more.
            if inode.writers() > 0 {
                return Err(Errno::BUSY);
            }
            self.flush_before_privileges(&inode)?;
        }
        let _change = self.changing_status(&inode)?;
        rustix::fs::ioctl_setflags(&file, wanted)?;
        self.changed_at_origin(&inode);
        // The kernel does not know that these requests move the status change time.
        if let Some(forgetting) = self.forgetting.get() {
            forgetting.attributes(node);
        }
        Ok(Vec::new())
    }

    /// Promises the caller that writes of up to a mebibyte are whole, if they are.
    fn promise_whole(&self, file: &OpenHandle, handle: u64, caller: Caller) -> ReplyOutcome<()> {
        let ContentWay::Pond { known, .. } = &file.way else { return Err(Errno::NOTTY) };
        if self.read_only || !self.goes_through_the_log(known, caller) {
            return Err(Errno::NOTTY);
        }
        let promise = self.whole.promise_lasting(file.inode.key, known, handle, caller.pid, self.ledger.as_ref())?;
        self.files.note(handle, |row| row.set_promise(promise));
        Ok(())
    }

    /// Whether the mount can make several writes of the caller to the file as one.
    fn may_write_atomically(&self, file: &OpenHandle, caller: Caller) -> ReplyOutcome<()> {
        let ContentWay::Pond { known, .. } = &file.way else { return Err(Errno::NOTTY) };
        let may = !self.read_only && self.whole.holds() && self.goes_through_the_log(known, caller);
        if may { Ok(()) } else { Err(Errno::NOTTY) }
    }

    /// Whether no rule sends pages that this caller writes to the file past the log.
    fn goes_through_the_log(&self, known: &Known, caller: Caller) -> bool {
        let Some(rules) = self.rules.any() else { return true };
        let process = self.insight.processes_known().look(caller, &rules);
        let (path, now) = (mask_of(known, &rules), times::unix_seconds());
        PAGES.iter().all(|page| {
            let decided = rules.set.decide(path, process, *page, Direction::Write, now);
            let action = decided.map_or(Action::Cache, |index| rules.set.rules()[index].action);
            matches!(action, Action::Cache | Action::Pin(_) | Action::Share(_))
        })
    }
}
