//! Reading directories, and making them durable.
//!
//! Invariant: headpond's own directory at the origin's root is never listed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{INodeNo, ReplyDirectory};
use headpond_names::FileKind;
use rustix::fs::{Dir, OFlags};
use rustix::io::Errno;

use crate::front::Front;
use crate::front::attributes::fuse_type;
use crate::handles::{DirectoryStream, OpenDirectory};
use crate::outcome::ReplyOutcome;
use crate::reached::Reached;
use crate::stat::{kind_of, stat};
use crate::tree::Inode;

impl Front {
    /// Opens a directory for reading.
    pub(crate) fn open_directory(&self, inode: &Arc<Inode>, user: u32) -> ReplyOutcome<OpenDirectory> {
        let share = self.held_by(user)?;
        let entries = Dir::new(inode.open(OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        let stream = Mutex::new(DirectoryStream { entries, position: 0 });
        Ok(OpenDirectory { inode: inode.clone(), stream, _share: share })
    }

    /// Fills `reply` with entries from `offset` on. An earlier entry gave this offset.
    pub(crate) fn read_directory(
        &self,
        directory: &OpenDirectory,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> ReplyOutcome<()> {
        let mut stream = directory.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            // Also after the end: an application that rewinds wants to see newer entries.
            stream.entries.rewind();
        } else if offset != stream.position {
            stream.entries.seek(i64::try_from(offset).map_err(|_| Errno::INVAL)?)?;
        }
        stream.position = offset;
        while let Some(entry) = stream.entries.read() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let next = entry.offset().cast_unsigned();
            if !Self::is_marker(&directory.inode, name) {
                let kind = match kind_of(entry.file_type()) {
                    FileKind::Unknown => match directory.inode.path().and_then(|path| stat(path, name)) {
                        Ok(found) => found.kind,
                        Err(_) => FileKind::Unknown,
                    },
                    kind => kind,
                };
                if reply.add(INodeNo(entry.ino()), next, fuse_type(kind), name) {
                    // No room: this entry is the first of the next answer.
                    let position = stream.position;
                    if position == 0 {
                        stream.entries.rewind();
                    } else {
                        stream.entries.seek(position.cast_signed())?;
                    }
                    return Ok(());
                }
            }
            stream.position = next;
        }
        Ok(())
    }

    /// Makes a directory durable at the origin. Only the origin has it.
    pub(crate) fn sync_directory(&self, directory: &OpenDirectory, data_only: bool) -> ReplyOutcome<()> {
        let stream = directory.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let descriptor = stream.entries.fd()?;
        if data_only { rustix::fs::fdatasync(descriptor) } else { rustix::fs::fsync(descriptor) }
    }
}
