//! Reading, writing and syncing open files. No thread waits here for a managed file: the reply
//! goes along with the request and is sent on the shard's thread.
//!
//! Cost of a read hit: no copy if the engine's answer is in one piece, else one to put the pieces
//! together. Cost of a write: one copy, out of the buffer in which the kernel's next request will
//! arrive.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use fuser::{ReplyData, ReplyEmpty, ReplyWrite, Request, WriteFlags};
use headpond_base::{Buf, BufMut, RECORD_BYTES_MAX};
use headpond_engine::{Reply, Request as Ask};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::caller::Rights;
use crate::file_system::fuse_errno;
use crate::front::{Front, Outcome, errno, unexpected};
use crate::handles::{OpenFile, Way};
use crate::privileges;

/// What is to be written, and how.
pub(crate) struct Writing<'a> {
    pub(crate) offset: u64,
    pub(crate) data: &'a [u8],
    pub(crate) write_flags: WriteFlags,
    /// The open file's flags now; those of a single write are among them.
    pub(crate) flags: OFlags,
}

impl Front {
    /// Reads `size` bytes, fewer at the file's end.
    pub(crate) fn read(&self, file: &OpenFile, offset: u64, size: u32, reply: ReplyData) {
        match &file.way {
            Way::Pond { object, .. } => {
                if size as usize > RECORD_BYTES_MAX {
                    // The kernel was told how many pages a request has; more is no kernel's request. A
                    // shorter answer would be taken for the end of the file.
                    reply.error(fuse_errno(Errno::INVAL));
                    return;
                }
                let request = Ask::Read { object: *object, offset, len: size };
                self.pond.submit(request, Box::new(move |answer| answer_data(reply, &answer)));
            }
            Way::Straight(file) => match read_straight(file, offset, size as usize) {
                Ok(data) => reply.data(&data),
                Err(error) => reply.error(fuse_errno(error)),
            },
        }
    }

    /// Writes, whole.
    pub(crate) fn write(&self, request: &Request, file: &OpenFile, writing: &Writing<'_>, reply: ReplyWrite) {
        let Writing { offset, data, write_flags, flags } = *writing;
        // The kernel says when a caller keeps no bits. (A page of a shared mapping comes later and on
        // nobody's behalf: then it says nothing.)
        let kills = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match privileges::drop_before_change(&file.inode, || kills.then(|| Rights::of(request))) {
            Ok(true) => self.changed_at_origin(&file.inode),
            Ok(false) => {}
            Err(error) => return reply.error(fuse_errno(error)),
        }
        let Some(room) = self.file_bytes_max.checked_sub(offset).filter(|room| *room > 0 || data.is_empty()) else {
            return reply.error(fuse_errno(Errno::FBIG));
        };
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX)).min(RECORD_BYTES_MAX)];
        let Ok(written) = u32::try_from(data.len()) else {
            return reply.error(fuse_errno(Errno::INVAL));
        };
        if written == 0 {
            return reply.written(0);
        }
        match &file.way {
            Way::Pond { object, known } => {
                let mtime = known.now();
                let known = known.clone();
                let durable = flags.intersects(OFlags::SYNC | OFlags::DSYNC);
                let data = BufMut::copy_of(data).freeze();
                let request = Ask::Write { object: *object, offset, data, mtime, durable };
                let done = move |answer| match answer {
                    Reply::Changed(attributes) => {
                        known.changed(attributes, mtime);
                        reply.written(written);
                    }
                    other => reply.error(fuse_errno(unexpected(&other))),
                };
                self.pond.submit(request, Box::new(done));
            }
            Way::Straight(file) => match file.write_all_at(data, offset) {
                Ok(()) => reply.written(written),
                Err(error) => reply.error(error.into()),
            },
        }
    }

    /// Makes a file durable: everything acknowledged before, and unless only data is asked for,
    /// what was changed at the origin alone.
    pub(crate) fn sync(&self, file: &OpenFile, data_only: bool, reply: ReplyEmpty) {
        match &file.way {
            Way::Pond { object, .. } => {
                if !data_only && let Err(error) = self.sync_attributes(file) {
                    return reply.error(fuse_errno(error));
                }
                let done = move |answer| match answer {
                    Reply::Done => reply.ok(),
                    other => reply.error(fuse_errno(unexpected(&other))),
                };
                self.pond.submit(Ask::Sync { object: *object }, Box::new(done));
            }
            Way::Straight(file) => match if data_only { file.sync_data() } else { file.sync_all() } {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(error.into()),
            },
        }
    }

    /// Mode, owner, links and extended attributes are nowhere but at the origin. The one case in
    /// which an fsync waits for it, and only if there was such a change.
    fn sync_attributes(&self, file: &OpenFile) -> Outcome<()> {
        if let Way::Pond { object, .. } = file.way
            && file.inode.unsynced.swap(false, Ordering::AcqRel)
            && let Err(error) = self.pond.sync_origin(object)
        {
            file.inode.unsynced.store(true, Ordering::Release);
            return Err(errno(error));
        }
        Ok(())
    }
}

fn answer_data(reply: ReplyData, answer: &Reply) {
    match answer {
        Reply::Data(pieces) => match &pieces[..] {
            [] => reply.data(&[]),
            [one] => reply.data(one),
            several => reply.data(&joined(several)),
        },
        other => reply.error(fuse_errno(unexpected(other))),
    }
}

fn joined(pieces: &[Buf]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
    for piece in pieces {
        whole.extend_from_slice(piece);
    }
    whole
}

fn read_straight(file: &File, offset: u64, size: usize) -> Outcome<Vec<u8>> {
    let mut data = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match rustix::io::pread(file, &mut data[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(_) if filled > 0 => break,
            Err(error) => return Err(error),
        }
    }
    data.truncate(filled);
    Ok(data)
}
