//! The files below a path, for a flush of a part of the mount.
//!
//! It reads the origin's directories, not the names that the mount remembers: only the directories are right after
//! every rename.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use headpond_base::{ObjectId, UnixNanos};
use headpond_names::{FileKey, FileKind, block_on};
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::MARKER_NAME;
use crate::front::Front;
use crate::insight::Files;
use crate::outcome::ReplyOutcome;
use crate::reached::Reached;
use crate::tree::Known;

impl Files for Front {
    fn each_known(&self, show: &mut dyn FnMut(FileKey, &Known)) {
        self.names.known.each(|key, known| show(key, known));
    }

    fn path_of_file(&self, inode: u64, birth: UnixNanos) -> Vec<u8> {
        let key = FileKey { inode, birth };
        let held = self.names.inodes.get(inode).ok().filter(|inode| inode.key == key);
        let now = held.map(|inode| block_on(self.names.path_of(&inode))).filter(|path| !path.is_empty());
        now.unwrap_or_else(|| self.names.known.find(key).map_or_else(Vec::new, |known| known.path()))
    }

    fn objects_below(&self, path: &Path) -> ReplyOutcome<BTreeSet<ObjectId>> {
        self.known_below(path)
    }

    fn nested_origins(&self) -> Vec<Vec<u8>> {
        self.names.tree().nested()
    }
}

impl Front {
    /// The files at or below a path that the engine knows.
    fn known_below(&self, path: &Path) -> ReplyOutcome<BTreeSet<ObjectId>> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // No link leads out of the origin.
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let top = rustix::fs::openat2(self.names.root().path()?, path, flags, Mode::empty(), within)?;
        let mut found = BTreeSet::new();
        let kind = self.note(&top, OsStr::new(""), &mut found)?;
        let mut directories = if kind == FileKind::Directory { vec![top] } else { Vec::new() };
        let at_root = self.names.root().key;
        while let Some(directory) = directories.pop() {
            let is_root = self.names.tree().stat(&directory, c"")?.key() == at_root;
            for entry in Dir::new(open_directory(&directory)?)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if matches!(name.as_bytes(), b"." | b"..") || is_root && name == MARKER_NAME {
                    continue;
                }
                match self.note(&directory, name, &mut found) {
                    Ok(FileKind::Directory) => match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
                        Ok(below) => directories.push(below),
                        Err(Errno::NOENT) => {}
                        Err(error) => return Err(error),
                    },
                    // Removed since the directory was listed.
                    Ok(_) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(found)
    }

    /// Adds a file to `found`, if the engine knows it. The engine knows no file of other file systems below the
    /// origin.
    fn note(&self, directory: &OwnedFd, name: &OsStr, found: &mut BTreeSet<ObjectId>) -> ReplyOutcome<FileKind> {
        let seen = self.names.tree().stat(directory, name)?;
        if !self.names.inodes.same_device(&seen) {
            return Ok(FileKind::Unknown);
        }
        found.extend(self.names.known.find(seen.key()).map(|known| known.object()));
        Ok(seen.kind)
    }
}

fn open_directory(path: &OwnedFd) -> ReplyOutcome<OwnedFd> {
    rustix::fs::openat(path, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
