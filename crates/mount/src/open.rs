//! Opening, creating and closing regular files.
//!
//! Invariants
//! - Each open of a managed file is one `Open` of the engine, and each release one `Close`.
//! - While a file is opened in the engine its names stay what they are, and while those are changed nobody opens it
//!   (`turns.rs`).
//! - The origin's file is attached before the application has its handle, writable where that is
//!   possible at all, so that destage can write what some other handle wrote.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use fuser::{FileAttr, Request};
use headpond_engine::{Namespace, OpenFile as Opened, Reply, Request as Ask};
use headpond_shard::{Reopen, SpaceKind};
use rustix::fs::{Mode, OFlags, RawMode, SeekFrom, Statx};
use rustix::io::Errno;

use crate::caller::Rights;
use crate::front::{Front, Outcome, engine_errno, errno, has_default_list, stamp, unexpected};
use crate::handles::{OpenFile, Pinned, Way};
use crate::inodes::{Inode, stat};
use crate::places::{Hold, Home};
use crate::pond::call_with;
use crate::turns::{Changing, Opening};
use crate::{caller, privileges};

/// How often a file is opened in the engine for one open, when it is changed meanwhile each time. Somebody who
/// has it open writes to it, so the engine keeps to its own of it anyway.
const OPENS_MAX: u32 = 3;

/// One count of `Open` in the engine, given back when dropped.
pub(crate) struct Counted<'a> {
    front: &'a Front,
    object: headpond_base::ObjectId,
    kept: bool,
    _pinned: Pinned,
}

impl Counted<'_> {
    /// The count goes over to a handle.
    fn keep(mut self) -> headpond_base::ObjectId {
        self.kept = true;
        self.object
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.front.pond.submit(Ask::Close { object: self.object }, Box::new(|_| {}));
        }
    }
}

impl Front {
    /// Opens a file that exists. `flags` are the application's.
    pub(crate) fn open(&self, request: &Request, inode: &Arc<Inode>, flags: OFlags) -> Outcome<OpenFile> {
        let writes = is_for_writing(flags);
        let pinned = if writes { Pinned::for_writing(inode)? } else { Pinned::of(inode)? };
        let truncates = flags.contains(OFlags::TRUNC);
        if truncates {
            self.drop_privileges(inode, || Some(Rights::of(request)))?;
        }
        if !inode.managed {
            let passed = OFlags::ACCMODE | OFlags::TRUNC | OFlags::SYNC | OFlags::DSYNC;
            let file = File::from(inode.open(flags & passed)?);
            return Ok(OpenFile::new(pinned, Way::Straight(file), writes));
        }
        let file = self.open_at_origin(inode, writes || truncates)?;
        let counted = self.open_in_engine(inode, file, false)?;
        if truncates {
            self.truncate_known(inode, 0)?;
        }
        self.handle(pinned, counted, writes)
    }

    /// Creates a file and opens it.
    pub(crate) fn create(
        &self,
        request: &Request,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: OFlags,
    ) -> Outcome<(FileAttr, OpenFile)> {
        if Self::is_marker(parent, name) {
            return Err(Errno::PERM);
        }
        let writes = is_for_writing(flags);
        caller::without_umask();
        let mode = privileges::of_new_file(parent, mode, || Rights::of(request))?;
        let mode = creation_mode(parent, mode, umask);
        let directory = parent.path()?;
        let file = {
            let _as = caller::AsCaller::of(request)?;
            // Exclusive: the kernel has looked and found nothing. Should somebody else have been faster,
            // permissions of what is there now are unchecked, so the kernel is made to look again.
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOATIME | OFlags::CLOEXEC;
            let made = self.inodes.home.with_room(|| rustix::fs::openat(&directory, name, flags, mode));
            made.map_err(|error| match error {
                Errno::EXIST => Errno::STALE,
                other => other,
            })?
        };
        let path = path_descriptor(&file)?;
        let found = stat(&path, c"")?;
        let inode = self.take_in(path, &found, (parent, name))?;
        let opened = Pinned::for_writing(&inode).and_then(|pinned| {
            if !inode.managed {
                return Ok(OpenFile::new(pinned, Way::Straight(File::from(file)), writes));
            }
            let counted = self.open_in_engine(&inode, File::from(file), true)?;
            self.handle(pinned, counted, writes)
        });
        match opened {
            Ok(opened) => Ok((self.attributes_from(&inode, &found), opened)),
            Err(error) => {
                self.forget(inode.node, 1);
                Err(error)
            }
        }
    }

    /// Makes a new regular file known to the engine without keeping it open, so that its first
    /// sync also makes its name durable.
    pub(crate) fn introduce(&self, inode: &Arc<Inode>) -> Outcome<()> {
        if inode.managed {
            let file = self.open_at_origin(inode, false)?;
            self.open_in_engine(inode, file, true)?;
        }
        Ok(())
    }

    /// Opens a managed file in the engine for a change by its path, for as long as the result
    /// lives.
    pub(crate) fn open_for_change(&self, inode: &Arc<Inode>) -> Outcome<Counted<'_>> {
        let file = self.open_at_origin(inode, true)?;
        self.open_in_engine(inode, file, false)
    }

    /// The last descriptor of a handle is gone.
    pub(crate) fn release(&self, number: u64) {
        if let Some(file) = self.files.remove(number) {
            if file.is_whole() {
                self.whole.closed(file.inode.key, number);
            }
            self.abort(&file);
            self.close(&file);
            let inode = file.inode.clone();
            drop(file);
            if let Some(removed) = inode.removed() {
                removed.is_let_go();
                self.end_removed(&inode);
            }
        }
    }

    /// Gives back a handle's count in the engine.
    pub(crate) fn close(&self, file: &OpenFile) {
        if let Way::Pond { object, .. } = file.way {
            self.pond.submit(Ask::Close { object }, Box::new(|_| {}));
        }
    }

    fn handle(&self, pinned: Pinned, counted: Counted<'_>, writes: bool) -> Outcome<OpenFile> {
        let known = pinned.known().ok_or(Errno::IO)?;
        Ok(OpenFile::new(pinned, Way::Pond { object: counted.keep(), known }, writes))
    }

    /// Opens the origin's file.
    fn open_at_origin(&self, inode: &Inode, writes: bool) -> Outcome<File> {
        let opened = open_as_may_be(inode, self.read_only, writes)?;
        if let Some(file) = opened {
            return Ok(file);
        }
        let _change = self.changing_status(inode)?;
        as_owner(inode).map(File::from)
    }

    /// Opens a file in the engine, which is told what the origin says of it. Should the file be changed,
    /// renamed or removed between that look and the engine's answer, the engine would take it for a
    /// stranger's doing later: so it is looked at once more, and the engine told.
    fn open_in_engine(&self, inode: &Arc<Inode>, file: File, created: bool) -> Outcome<Counted<'_>> {
        // Others of the mount wait with the names; who comes past it does not.
        let _turn = self.opening_turn(inode, created);
        let mut tries = 0;
        loop {
            let before = stat(&file, c"")?;
            let counted = self.open_once(inode, &file, &before, created && tries == 0)?;
            let after = stat(&file, c"")?;
            let (before, now) = (stamp(&before), stamp(&after));
            tries += 1;
            let is_lost = inode.is_lost();
            if (before.size, before.mtime) != (now.size, now.mtime) && tries < OPENS_MAX && !is_lost {
                // Its bytes may be others: what the engine has counts only against the stamp of now.
                continue;
            }
            if after.stx_nlink == 0 {
                let change = Namespace::Unlink { object: counted.object };
                self.pond.namespace(Some(change), Box::new(|| Ok(None))).map_err(errno)?;
            } else if before.ctime != now.ctime {
                self.pond.submit(Ask::Restamp { object: counted.object, stamp: now, seen: false }, Box::new(|_| {}));
            }
            if is_opened_untouched(&after) {
                self.pond.attach_lasting(counted.object, file, Again::of(&self.inodes.home, inode, self.read_only));
            } else {
                self.pond.attach(counted.object, file);
            }
            return if is_lost { Err(Errno::STALE) } else { Ok(counted) };
        }
    }

    /// The turn to open a file: with others who do, but for one that the engine is to take for new. It would take it for
    /// another one the second time.
    fn opening_turn(&self, inode: &Inode, created: bool) -> Turn<'_> {
        if created || inode.is_newcomer() {
            return Turn::Alone(self.turns.change([Some(inode.key), None]));
        }
        Turn::WithOthers(self.turns.open(inode.key))
    }

    fn open_once(&self, inode: &Arc<Inode>, file: &File, found: &Statx, created: bool) -> Outcome<Counted<'_>> {
        let opening = Opened {
            inode: inode.key.inode,
            birth: inode.key.birth,
            path: self.path_of(inode),
            stamp: stamp(found),
            created: created || inode.is_newcomer(),
            // Only a file that is new to the engine is asked about.
            allocated: if inode.known().is_some() { 0 } else { allocated(file, found) },
        };
        let pinned = Pinned::of(inode)?;
        let path = opening.path.clone();
        let (files, opened) = (self.known.clone(), inode.clone());
        let is_gone = found.stx_nlink == 0;
        let taken_over = move |answer: &Reply| {
            if let Reply::Opened { object, attributes } = answer {
                // Its last name went while it was not open, and with that what only the engine had of it.
                if is_gone && files.find(opened.key).is_some_and(|earlier| earlier.object() != *object) {
                    opened.set_lost();
                }
                let known = files.opened(opened.key, *object, *attributes, attributes.ctime);
                known.rename(path);
                opened.set_known(&known);
                opened.set_settled();
            }
        };
        match call_with(&*self.pond, Ask::Open(opening), taken_over) {
            Reply::Opened { object, .. } => Ok(Counted { front: self, object, kept: false, _pinned: pinned }),
            other => Err(unexpected(&other)),
        }
    }
}

/// Held while a file is opened in the engine.
enum Turn<'a> {
    WithOthers(#[expect(dead_code, reason = "held")] Opening<'a>),
    Alone(#[expect(dead_code, reason = "held")] Changing<'a>),
}

/// Whether an open file may be written.
fn is_for_writing(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// Whether a file can be opened again without a change of its mode, which would move its status change time unseen.
fn is_opened_untouched(found: &Statx) -> bool {
    let own = (Mode::RUSR | Mode::WUSR).bits();
    rustix::process::geteuid().is_root() || RawMode::from(found.stx_mode) & own == own
}

/// Opens the origin's file, for reading and writing where that is possible.
/// `None` if only its owner can, by changing its mode.
fn open_as_may_be(inode: &Inode, read_only: bool, writes: bool) -> Outcome<Option<File>> {
    let opened = if read_only { Err(Errno::ROFS) } else { quietly(inode, OFlags::RDWR) };
    let file = match opened {
        Ok(file) => file,
        Err(Errno::ROFS | Errno::PERM | Errno::ACCESS | Errno::TXTBSY) if !writes => quietly(inode, OFlags::RDONLY)?,
        Err(Errno::ACCESS) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(File::from(file)))
}

/// Opens a file again of which the engine still has something to do at the origin, though its descriptor was closed.
pub(crate) struct Again {
    inode: Hold,
    /// Destage goes on when the mount is gone.
    _home: Arc<Home>,
    read_only: bool,
}

impl Again {
    /// Of an inode that the kernel holds at this moment.
    pub(crate) fn of(home: &Arc<Home>, inode: &Arc<Inode>, read_only: bool) -> Arc<Self> {
        Arc::new(Self { inode: Hold::of(inode), _home: home.clone(), read_only })
    }
}

impl Reopen for Again {
    fn reopen(&self, writes: bool) -> headpond_base::Result<File> {
        let inode = self.inode.inode();
        // Only for destage, before which the log has said that the file is changing.
        let opened = open_as_may_be(inode, self.read_only, writes).transpose();
        opened.unwrap_or_else(|| as_owner(inode).map(File::from)).map_err(engine_errno)
    }
}

/// The mode of something new: the umask counts unless the directory has an access list to give.
pub(crate) fn creation_mode(parent: &Inode, mode: u32, umask: u32) -> Mode {
    let mode = if umask & mode != 0 && !has_default_list(parent) { mode & !umask } else { mode };
    Mode::from_raw_mode(RawMode::from(mode) & 0o7777)
}

/// A second descriptor for an open file, one that only names it.
pub(crate) fn path_descriptor(file: &OwnedFd) -> Outcome<OwnedFd> {
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Opens without moving the file's access time at each read by the cache, where that is allowed.
fn quietly(inode: &Inode, access: OFlags) -> Outcome<OwnedFd> {
    match inode.open(access | OFlags::NOATIME) {
        Err(Errno::PERM) => inode.open(access),
        other => other,
    }
}

/// Opens a file that its owner may not read and write as it stands: an ordinary user's daemon,
/// which has no other way to a file that the user made read-only while writing it. The mode is
/// back before anything else happens to the file through the mount.
fn as_owner(inode: &Inode) -> Outcome<OwnedFd> {
    let found = inode.stat()?;
    if found.stx_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::ACCESS);
    }
    let mode = Mode::from_raw_mode(RawMode::from(found.stx_mode) & 0o7777);
    rustix::fs::chmod(inode.proc_path()?, mode | Mode::RUSR | Mode::WUSR)?;
    let opened = quietly(inode, OFlags::RDWR);
    rustix::fs::chmod(inode.proc_path()?, mode)?;
    opened
}

/// How many bytes from the start have space at the origin, so that writes there need not ask for any. A hole ends them; and
/// there are none where a write may take new space all the same.
fn allocated(file: &File, found: &Statx) -> u64 {
    // Without a block its bytes lie in the inode.
    if found.stx_size == 0 || found.stx_blocks == 0 || SpaceKind::of(file) != SpaceKind::Keeps {
        return 0;
    }
    let end = rustix::fs::seek(file, SeekFrom::Hole(0)).unwrap_or(0);
    end.next_multiple_of(u64::from(found.stx_blksize).max(1))
}
