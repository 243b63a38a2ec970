//! headpond's own directory in the origin, `.headpond`, by descriptor.
//!
//! The origin may belong to another user than the daemon, and the daemon may be root. That user can plant anything
//! there. So:
//!
//! Invariants:
//! - Before it opens the directory or a file in it, headpond checks three things: what it is (a directory, or a
//!   regular file with one name), whose it is (the daemon's user's or root's), and that no other user may write it.
//!   It refuses what fails, and does not follow, read, change or remove it.
//! - What headpond makes here is new (`O_EXCL`), and never goes through an existing name.
//! - headpond replaces a file whole: it writes beside, syncs, renames, and syncs the directory. What lies beside is new, or
//!   room that was kept for this, with the same checks.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use headpond_mount::MARKER_NAME;
use headpond_shard::reopen;
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Statx, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::root::{OriginRoot, Owner, identity, look_at};
use crate::refusal::Refusal;

/// How often to look again if other processes come and go at the same moment.
pub(crate) const ATTEMPTS: usize = 16;

/// The most that is read of a file here. headpond writes a few hundred bytes, and a path or two.
const READ_MAX: u64 = 64 << 10;

/// The room that is kept for the next content: a block of most file systems. A marker with a few devices has some 1,000 bytes.
const SPARE: u64 = 4096;

/// The unit of a file's space in its status, in bytes.
const STAT_BLOCK: u64 = 512;

/// The open directory. The origin's owner may rename or remove it: see [`Self::is_in_place`].
#[derive(Debug)]
pub(crate) struct BesideDir {
    root: Arc<OriginRoot>,
    dir: OwnedFd,
    identity: (u32, u32, u64),
}

impl BesideDir {
    /// Opens the directory, and makes it if it is missing.
    pub(crate) fn make(root: &Arc<OriginRoot>) -> Result<Self, Refusal> {
        let failed = |error: Errno| Refusal::from_io("make the marker directory", &whole_path(root), error);
        // The last holder may remove it at any moment. Then make it again.
        for _ in 0..ATTEMPTS {
            match rustix::fs::mkdirat(root.as_ref(), MARKER_NAME, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
            if let Some(made) = Self::open(root)? {
                return Ok(made);
            }
        }
        Err(failed(Errno::NOENT))
    }

    /// Opens the directory, if there is one.
    pub(crate) fn open(root: &Arc<OriginRoot>) -> Result<Option<Self>, Refusal> {
        let path = whole_path(root);
        let failed = |error: Errno| Refusal::from_io("open the marker directory", &path, error);
        let place = match openat(root.as_ref(), MARKER_NAME, LOOK, Mode::empty()) {
            Ok(place) => place,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let found = look_at(&place, c"").map_err(failed)?;
        check(root, &path, &found, FileType::Directory)?;
        let dir = reopen(&place, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)?;
        Ok(Some(Self { root: root.clone(), dir, identity: identity(&found) }))
    }

    /// The origin that it lies in.
    pub(crate) const fn root(&self) -> &Arc<OriginRoot> {
        &self.root
    }

    /// The path of a file in it, for messages.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        whole_path(&self.root).join(name)
    }

    /// Whether the origin's `.headpond` still is this directory.
    pub(crate) fn is_in_place(&self) -> bool {
        look_at(self.root.as_ref(), MARKER_NAME).is_ok_and(|found| identity(&found) == self.identity)
    }

    /// Whether a name in it still leads to this file.
    pub(crate) fn names(&self, name: &str, file: impl AsFd) -> bool {
        let (there, held) = (look_at(&self.dir, name), look_at(file, c""));
        there.is_ok_and(|there| held.is_ok_and(|held| identity(&there) == identity(&held)))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        look_at(&self.dir, name).is_ok()
    }

    /// Opens an existing file.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> Result<Option<File>, Refusal> {
        let path = self.path(name);
        let failed = |error: Errno| Refusal::from_io("open", &path, error);
        let place = match openat(&self.dir, name, LOOK, Mode::empty()) {
            Ok(place) => place,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        check(&self.root, &path, &look_at(&place, c"").map_err(failed)?, FileType::RegularFile)?;
        reopen(&place, flags).map(|file| Some(file.into())).map_err(failed)
    }

    /// A file's content, if the file exists.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(file) = self.open_file(name, OFlags::RDONLY)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = file.take(READ_MAX).read_to_end(&mut bytes);
        read.map_err(|error| Refusal::from_io("read", &self.path(name), error))?;
        Ok(Some(bytes))
    }

    /// Makes a new file.
    pub(crate) fn create(&self, name: &str, flags: OFlags, mode: u32) -> Result<File, Errno> {
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.dir, name, flags, Mode::from_raw_mode(mode)).map(File::from)
    }

    /// Gives a file a new content, durably.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let next = next_of(name);
        // A crash may have left the name. This never writes through it, whatever it is.
        self.remove(&next)?;
        let file = self.create(&next, OFlags::WRONLY, 0o644)?;
        self.put(file, bytes, name, RenameFlags::empty())
    }

    /// The same, and there is room for the next content from then on, as far as the origin gives it: see
    /// [`BesideDir::replace_again`].
    pub(crate) fn replace_first(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.replace(name, bytes)?;
        self.keep_room(&next_of(name));
        Ok(())
    }

    /// The same as [`BesideDir::replace`] for a file of which this mount has written the last content, itself or by a worker
    /// that is dead. It takes no new space where there is room from the last time: an origin may be full by now.
    ///
    /// Nobody else may have the file open: two contents take turns in two files. So another host's first one is made anew.
    pub(crate) fn replace_again(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let found = self.open_file(&next_of(name), OFlags::WRONLY).ok().flatten();
        let has_room =
            |file: &File| file.metadata().is_ok_and(|found| found.blocks() * STAT_BLOCK >= bytes.len() as u64);
        match found.filter(has_room) {
            Some(file) if self.has(name) => self.put(file, bytes, name, RenameFlags::EXCHANGE),
            _ => self.replace_first(name, bytes),
        }
    }

    /// Puts a file with this content, which is beside the one of this name, in its place.
    fn put(&self, mut file: File, bytes: &[u8], name: &str, how: RenameFlags) -> io::Result<()> {
        let next = next_of(name);
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
        file.sync_all()?;
        if !self.names(&next, &file) {
            return Err(io::Error::other(format!("another process replaced {next}")));
        }
        match rustix::fs::renameat_with(&self.dir, &next, &self.dir, name, how) {
            // NFS and others exchange no names.
            Err(Errno::INVAL | Errno::NOSYS) if how == RenameFlags::EXCHANGE => {
                rustix::fs::renameat(&self.dir, &next, &self.dir, name)?;
                self.keep_room(&next);
            }
            renamed => renamed?,
        }
        self.sync()?;
        if self.is_in_place() {
            return Ok(());
        }
        Err(io::Error::other(format!("another process moved {MARKER_NAME} away from the origin")))
    }

    /// Has a file with room and no content, if the origin gives it.
    fn keep_room(&self, next: &str) {
        // Where a file system reserves nothing on request, only the content itself will have space.
        let reserve = |file: File| rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, SPARE);
        if self.create(next, OFlags::WRONLY, 0o644).and_then(reserve).is_err() {
            // One without room is of no use.
            let _ = self.remove(next);
        }
    }

    /// Removes a file, if it exists.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.dir, name, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes changes here durable, and the directory itself.
    pub(crate) fn sync(&self) -> io::Result<()> {
        rustix::fs::fsync(&self.dir)?;
        Ok(rustix::fs::fsync(self.root.as_ref())?)
    }

    /// Removes the directory if it is empty, so no file of any user is at stake.
    pub(crate) fn remove_if_empty(&self) {
        if self.is_in_place() {
            let _ = unlinkat(self.root.as_ref(), MARKER_NAME, AtFlags::REMOVEDIR);
        }
    }
}

/// The content and owner of a file beside an origin, no matter who made it. It follows no link, and opens only regular
/// files.
pub(crate) fn peek(origin: impl AsFd, name: &str) -> Option<(Vec<u8>, Owner)> {
    let dir = openat(origin, MARKER_NAME, LOOK | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let place = openat(&dir, name, LOOK, Mode::empty()).ok()?;
    let found = look_at(&place, c"").ok()?;
    if FileType::from_raw_mode(found.stx_mode.into()) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    // A file that may not be read still exists.
    if let Ok(file) = reopen(&place, OFlags::RDONLY) {
        let _ = File::from(file).take(READ_MAX).read_to_end(&mut bytes);
    }
    Some((bytes, Owner::of(&found)))
}

/// The name under which a file's next content is written before it takes its place.
pub(crate) fn next_of(name: &str) -> String {
    format!("{name}.next")
}

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn whole_path(root: &OriginRoot) -> PathBuf {
    root.path().join(MARKER_NAME)
}

/// Refuses what headpond would not make.
fn check(root: &OriginRoot, path: &std::path::Path, found: &Statx, wanted: FileType) -> Result<(), Refusal> {
    let refuse = |what: String, advice: String| Err(Refusal::BesideNotOurs { path: path.to_owned(), what, advice });
    let shown = path.display();
    let kind = FileType::from_raw_mode(found.stx_mode.into());
    if kind != wanted {
        let advice = format!("headpond did not make it. Find out what did, then remove it: rm -r '{shown}'");
        return refuse(format!("is {}", in_words(kind)), advice);
    }
    if kind == FileType::RegularFile && found.stx_nlink != 1 {
        let advice = format!("headpond makes no hard links. Find out what did, then remove this one: rm '{shown}'");
        return refuse("has other names elsewhere (hard links)".to_owned(), advice);
    }
    if (found.stx_dev_major, found.stx_dev_minor) != root.device() {
        return refuse("has something mounted on it".to_owned(), format!("To unmount it: umount '{shown}'"));
    }
    let (own, owner) = (geteuid().as_raw(), Owner::of(found));
    let is_ours = owner.writable == 0 && (owner.user == own || owner.user == 0);
    // Asked last: it makes a file for a moment, and matters on hardly any file system.
    if is_ours || root.newborn().is_some_and(|newborn| as_made(owner, newborn)) {
        return Ok(());
    }
    let whose = if owner.user == own || owner.user == 0 {
        "is writable by other users than its owner".to_owned()
    } else {
        format!("belongs to user {}, but this headpond runs as user {own}", owner.user)
    };
    let top = root.path().join(MARKER_NAME);
    let top = top.display();
    let advice = format!(
        "A forged marker could make headpond lose data. If another user's headpond left it, mount and unmount as that user, or \
         take it over: chown -hR {own} '{top}' && chmod -R go-w '{top}'. If no headpond made it: rm -r '{top}'"
    );
    refuse(whose, advice)
}

/// Whether this process may have made a file. Where every file has the same owner and mode, owner and mode say no
/// more.
const fn as_made(owner: Owner, newborn: Owner) -> bool {
    owner.user == newborn.user && owner.writable & !newborn.writable == 0
}

const fn in_words(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        FileType::RegularFile => "a file",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_gives_every_file_one_owner_and_mode_is_no_stranger() {
        let owner = |user, writable| Owner { user, writable };
        // NFS that maps root to another user; FAT that lets all users write.
        assert!(as_made(owner(65534, 0), owner(65534, 0)));
        assert!(as_made(owner(1234, 0o022), owner(1234, 0o022)));
        // An ordinary file system. Another process made the file.
        assert!(!as_made(owner(1234, 0), owner(0, 0)));
        assert!(!as_made(owner(0, 0o020), owner(0, 0)));
        assert!(!as_made(owner(65534, 0o002), owner(65534, 0)));
    }

    #[test]
    fn what_a_new_file_becomes_is_tried_without_leaving_one() {
        let origin = tempfile::tempdir().unwrap();
        let root = OriginRoot::open(origin.path()).unwrap();
        assert_eq!(root.newborn(), Some(Owner { user: geteuid().as_raw(), writable: 0 }));
        assert_eq!(std::fs::read_dir(origin.path()).unwrap().count(), 0);
    }
}
