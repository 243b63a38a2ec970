//! Requests that the kernel sends again: a process before this one took them, and ended before it answered. It may have
//! done what they ask, in full, in part or not at all.
//!
//! The kernel marks such a request by bit 63 of its number. It holds the locks of the directories and files meanwhile,
//! and only this mount changes the origin. So what the origin shows now tells what was done:
//!
//! | request                     | was done if                                     | the answer then           |
//! | --------------------------- | ----------------------------------------------- | ------------------------- |
//! | mkdir, mknod, symlink       | EEXIST, and such a one has the name             | the one that has the name |
//! | link                        | EEXIST, and the same inode has the name         | the inode                 |
//! | create                      | its handle has a row; or an empty file is there | that handle; or a new one |
//! | open, opendir               | its handle has a row                            | that handle               |
//! | a file without a name       | its handle has a row                            | that handle               |
//! | unlink, rmdir               | ENOENT                                          | done                      |
//! | rename                      | ENOENT, and the new name is there               | done                      |
//! | exchange, whiteout          | the file that it noted before has the new name  | done                      |
//! | setxattr that only creates  | EEXIST, and the value is the same               | done                      |
//! | removexattr                 | ENODATA                                         | done                      |
//! | lookup, and all that enter  | -                                               | the lookup counts once    |
//! | all others                  | doing it twice is as doing it once              | as the second time        |
//!
//! A release is answered whether there is such a handle or not. A forget has no answer, and is not sent again: one that
//! was lost leaves an inode in the table until the unmount, as does a lookup that was counted and not noted.
//!
//! A commit of an atomic write fails when it is sent again. SQLite makes the transaction again with its journal then.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{FileAttr, Request};
use headpond_base::UnixNanos;
use headpond_ledger::{ExchangeRow, MountLedger};
use headpond_names::{FileKey, FileKind, ROOT, RenameFlags as Flags, block_on};
use rustix::fs::{OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::front::Front;
use crate::fuse::wire::AGAIN;
use crate::handles::{OpenDirectory, OpenHandle};
use crate::outcome::{ReplyOutcome, outcome};
use crate::panel::is_panel;
use crate::reached::Reached;
use crate::tree::Inode;

/// A request by its number.
#[derive(Clone, Copy)]
pub(crate) struct Asked(u64);

impl Asked {
    /// By the number that the kernel gave.
    pub(crate) const fn by(unique: u64) -> Self {
        Self(unique)
    }

    /// By fuser's request.
    pub(crate) fn of(request: &Request) -> Self {
        Self(request.unique().0)
    }

    /// Its number, the same however often it is sent.
    pub(crate) const fn unique(self) -> u64 {
        self.0 & !AGAIN
    }

    const fn is_again(self) -> bool {
        self.0 & AGAIN != 0
    }
}

/// What was done for requests by the process before.
#[derive(Default)]
pub(crate) struct AskedBefore(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    /// The nodes of which lookups were counted.
    counted: BTreeMap<u64, u64>,
    /// The handles that were opened.
    files: HashMap<u64, u64>,
    directories: HashMap<u64, u64>,
    /// The files that were about to move.
    exchanges: BTreeMap<u64, ExchangeRow>,
}

impl AskedBefore {
    /// What the ledger has of requests. Handles come when they are open again.
    pub(crate) fn of(ledger: &MountLedger) -> Self {
        let noted = Noted { counted: ledger.counted(), exchanges: ledger.exchanges(), ..Noted::default() };
        Self(Mutex::new(noted))
    }

    /// A file was opened for a request.
    pub(crate) fn opened_file(&self, unique: u64, number: u64) {
        self.noted().files.insert(unique, number);
    }

    /// A directory was opened for a request.
    pub(crate) fn opened_directory(&self, unique: u64, number: u64) {
        self.noted().directories.insert(unique, number);
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        // Each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Front {
    /// A request has ended, with one more lookup of a node if there is one. A lookup that was counted for it before is
    /// taken back.
    pub(crate) fn counted(&self, asked: Asked, node: Option<u64>) {
        let Some(ledger) = &self.ledger else { return };
        self.says_what_it_lacks(ledger);
        if let Some(node) = node.filter(|node| *node != ROOT && !is_panel(*node)) {
            ledger.note_counted(asked.unique(), node);
        }
        if asked.is_again() {
            let before = self.before.noted().counted.remove(&asked.unique());
            before.into_iter().for_each(|node| self.forget(node, 1));
        }
    }

    /// The handle that was opened for a request, with its number.
    pub(crate) fn opened_before(&self, asked: Asked) -> Option<(u64, Arc<OpenHandle>)> {
        let number = asked.is_again().then(|| self.before.noted().files.get(&asked.unique()).copied())??;
        self.files.get(number).ok().map(|file| (number, file))
    }

    /// The same, with its inode: the lookup that was counted along with it stays.
    pub(crate) fn created_before(&self, asked: Asked) -> Option<(u64, Arc<OpenHandle>, FileAttr)> {
        let (number, file) = self.opened_before(asked)?;
        let attributes = self.attributes(&file.inode).ok()?;
        self.before.noted().counted.remove(&asked.unique());
        Some((number, file, attributes))
    }

    /// The directory that was opened for a request.
    pub(crate) fn directory_opened_before(&self, asked: Asked) -> Option<(u64, Arc<OpenDirectory>)> {
        let number = asked.is_again().then(|| self.before.noted().directories.get(&asked.unique()).copied())??;
        self.directories.get(number).ok().map(|directory| (number, directory))
    }

    /// The result of an operation. If it was sent again and failed like this, `was` finds what was done before.
    pub(crate) fn done<R>(
        &self,
        asked: Asked,
        result: ReplyOutcome<R>,
        failed: Errno,
        was: impl FnOnce() -> ReplyOutcome<R>,
    ) -> ReplyOutcome<R> {
        match result {
            Err(error) if error == failed && asked.is_again() => was().map_err(|_| error),
            result => result,
        }
    }

    /// What was made under a name.
    pub(crate) fn was_made(
        &self,
        parent: &Arc<Inode>,
        name: &OsStr,
        kind: FileKind,
        target: Option<&Path>,
    ) -> ReplyOutcome<FileAttr> {
        let (inode, found) = outcome(block_on(self.names.was_made(parent, name, kind)))?;
        if let Some(target) = target
            && self.read_link(&inode).is_ok_and(|there| there != target)
        {
            self.forget(inode.node, 1);
            return Err(Errno::EXIST);
        }
        Ok(self.attributes_from(&inode, &found))
    }

    /// The file that was created under a name, opened.
    pub(crate) fn was_created(
        &self,
        request: &Request,
        parent: &Arc<Inode>,
        name: &OsStr,
        flags: OFlags,
    ) -> ReplyOutcome<(FileAttr, OpenHandle)> {
        let held = self.held_for_new(parent, request.uid())?;
        let writes = crate::front::open::is_for_writing(flags);
        let created = outcome(block_on(self.names.was_created(parent, name, writes)))?;
        self.opened_new(created, writes, request.uid(), held)
    }

    /// The inode that got a name.
    pub(crate) fn was_linked(&self, inode: &Arc<Inode>, parent: &Arc<Inode>, name: &OsStr) -> ReplyOutcome<FileAttr> {
        let found = outcome(block_on(self.names.was_linked(inode, parent, name)))?;
        Ok(self.attributes_from(inode, &found))
    }

    /// Renames for a request.
    pub(crate) fn rename_asked(
        &self,
        asked: Asked,
        from: (&Arc<Inode>, &OsStr),
        to: (&Arc<Inode>, &OsStr),
        flags: RenameFlags,
    ) -> ReplyOutcome<()> {
        let was = |moved| match outcome(block_on(self.names.was_renamed(from, to, Flags(flags.bits()), moved)))? {
            true => Ok(()),
            false => Err(Errno::NOENT),
        };
        if !flags.intersects(RenameFlags::EXCHANGE | RenameFlags::WHITEOUT) {
            let renamed = self.rename(from.0, from.1, to.0, to.1, flags);
            return self.done(asked, renamed, Errno::NOENT, || was(None));
        }
        let Some(ledger) = &self.ledger else { return self.rename(from.0, from.1, to.0, to.1, flags) };
        let noted = asked.is_again().then(|| self.before.noted().exchanges.get(&asked.unique()).copied()).flatten();
        if let Some(ExchangeRow { inode, birth }) = noted
            && was(Some(FileKey { inode, birth: UnixNanos(birth) })).is_ok()
        {
            return Ok(());
        }
        let FileKey { inode, birth } = outcome(block_on(self.names.key_at(from.0, from.1)))?;
        ledger.note_exchange(asked.unique(), ExchangeRow { inode, birth: birth.0 });
        self.rename(from.0, from.1, to.0, to.1, flags)
    }

    /// Whether an attribute has this value.
    pub(crate) fn has_attribute(&self, inode: &Inode, name: &OsStr, value: &[u8]) -> ReplyOutcome<()> {
        let mut there = vec![0; value.len() + 1];
        let length = rustix::fs::getxattr(inode.proc_path()?, name, &mut there[..])?;
        if there[..length] == *value { Ok(()) } else { Err(Errno::EXIST) }
    }
}

/// The error of a request for an attribute that was set before, if that tells anything.
pub(crate) fn set_before(flags: i32) -> Errno {
    let creates = XattrFlags::from_bits(flags.cast_unsigned()).is_some_and(|flags| flags.contains(XattrFlags::CREATE));
    // Without the flag it is set again, and this error never comes.
    if creates { Errno::EXIST } else { Errno::ALREADY }
}
