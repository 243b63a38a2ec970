//! Reading, writing and syncing open files. No thread waits here for a managed file: the answer travels with the
//! request, and the shard's thread gives it.
//!
//! Cost of a read hit: no copy; the kernel takes the bytes from where flash put them. Cost of a write: none here; its
//! data goes on in the memory in which it arrived.
//!
//! The engine takes at most a mebibyte at once. The kernel counts pages and may ask for up to a page more (see
//! `WRITE_BYTES_MAX`). The rest goes as a second request.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use headpond_base::{Buf, RECORD_BYTES_MAX};
use headpond_door::{Amount, Done};
use headpond_engine::{Reply, Request as Ask, Treatment};
use headpond_names::block_on;
use headpond_shard::as_user;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::caller::{Caller, Rights};
use crate::front::Front;
use crate::fuse::answer::Answer;
use crate::fuse::join::Join;
use crate::handles::{ContentWay, OpenHandle};
use crate::outcome::outcome;
use crate::outcome::{ReplyOutcome, unexpected};
use crate::reached::Reached;
use crate::times;

/// Takes a request for the engine: on the shard's own thread straight into the engine, on others through the pond.
pub(crate) type Send<'a> = &'a mut dyn FnMut(Ask, Done);

/// A write and its circumstances.
pub(crate) struct Writing {
    pub(crate) offset: u64,
    pub(crate) data: Buf,
    /// The caller, if that caller keeps no set-id bits; otherwise none. (A page of a shared mapping comes later and
    /// on behalf of no caller.)
    pub(crate) kills: Option<Caller>,
    /// The open file's flags now, including those of this single write.
    pub(crate) flags: OFlags,
    /// Who writes.
    pub(crate) caller: Caller,
}

/// A read and its circumstances.
#[derive(Clone, Copy)]
pub(crate) struct ReadPlan {
    pub(crate) offset: u64,
    pub(crate) size: u32,
    /// Who reads.
    pub(crate) caller: Caller,
}

impl Front {
    /// Reads `size` bytes, fewer at the file's end. Does not block for a managed file.
    pub(crate) fn read(&self, file: &OpenHandle, reading: ReadPlan, how: Treatment, answer: Answer, send: Send<'_>) {
        let ReadPlan { offset, size, caller } = reading;
        match &file.way {
            ContentWay::Pond { object, known } => {
                let object = *object;
                let Ok(first) = u32::try_from((size as usize).min(RECORD_BYTES_MAX)) else { return };
                let mut join = if first == size { Join::One(answer) } else { Join::new(answer, 2) };
                let mut part = |at, len, join: Join| {
                    let request = Ask::Read { object, offset: offset + u64::from(at), len, how };
                    let number = usize::from(at > 0);
                    let counted = self.insight.counted(known, caller.pid);
                    let done = move |reply| match reply {
                        Reply::Data(pieces, served) => {
                            join.data(number, pieces);
                            counted.done(Amount::read(served));
                        }
                        other => join.error(unexpected(&other)),
                    };
                    send(request, Box::new(done));
                };
                if first < size {
                    part(first, size - first, join.share());
                }
                part(0, first, join.share());
            }
            ContentWay::Straight(file, _) => match read_straight(file, offset, size as usize) {
                Ok(data) => answer.bytes(&data),
                Err(error) => answer.error(error),
            },
        }
    }

    /// Takes set-id bits and capabilities from a file, then writes. May block.
    pub(crate) fn write(&self, file: &OpenHandle, writing: Writing, how: Treatment, answer: Answer, send: Send<'_>) {
        if let Err(error) = self.drop_privileges(&file.inode, || writing.kills.map(Rights::of_unprivileged)) {
            return answer.error(error);
        }
        self.write_data(file, writing, how, answer, send);
    }

    /// Writes all of the data or fails. Does not block for a managed file.
    pub(crate) fn write_data(
        &self,
        file: &OpenHandle,
        writing: Writing,
        how: Treatment,
        answer: Answer,
        send: Send<'_>,
    ) {
        let Writing { offset, data, flags, caller, .. } = writing;
        let Some(room) = self.file_bytes_max.checked_sub(offset).filter(|room| *room > 0 || data.is_empty()) else {
            return answer.error(Errno::FBIG);
        };
        let len = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let Ok(written) = u32::try_from(len) else {
            return answer.error(Errno::INVAL);
        };
        if written == 0 {
            return answer.written(0);
        }
        match &file.way {
            ContentWay::Pond { object, known } => {
                let mtime = known.not_before(times::now());
                let durable = flags.intersects(OFlags::SYNC | OFlags::DSYNC);
                let first = len.min(RECORD_BYTES_MAX);
                let mut join = if first == len { Join::One(answer) } else { Join::new(answer, 2) };
                let mut part = |range: Range<usize>, join: Join| {
                    let at = offset + range.start as u64;
                    let bytes = range.len() as u64;
                    let request =
                        Ask::Write { object: *object, offset: at, data: data.slice(range), mtime, durable, how };
                    let (counted, known) = (self.insight.counted(known, caller.pid), known.clone());
                    let forgetting = self.forgetting.get().filter(|_| durable).cloned();
                    let done = move |reply| match reply {
                        Reply::Changed(attributes) => {
                            known.changed(attributes, mtime);
                            join.written(written);
                            counted.done(Amount::write(bytes));
                        }
                        other => match forgetting {
                            Some(forgetting) => forgetting.then(move || join.error(unexpected(&other))),
                            None => join.error(unexpected(&other)),
                        },
                    };
                    send(request, Box::new(done));
                };
                part(0..first, join.share());
                if first < len {
                    part(first..len, join.share());
                }
            }
            ContentWay::Straight(file, _) => {
                if let Err(error) = self.may_change() {
                    return answer.error(error);
                }
                match as_user(caller.uid, || file.write_all_at(&data[..len], offset)) {
                    Ok(()) => answer.written(written),
                    Err(error) => answer.error(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
                }
            }
        }
    }

    /// Makes a file durable: all acknowledged writes, and what the origin alone has. May block.
    pub(crate) fn sync(&self, file: &OpenHandle, caller: Caller, data_only: bool, answer: Answer, send: Send<'_>) {
        match &file.way {
            ContentWay::Pond { known, .. } => match self.sync_attributes(file) {
                Ok(()) => self.sync_data(file, self.copies_after_look(known, caller), answer, send),
                Err(error) => answer.error(error),
            },
            ContentWay::Straight(file, _) => {
                if let Err(error) = self.may_change() {
                    return answer.error(error);
                }
                match if data_only { file.sync_data() } else { file.sync_all() } {
                    Ok(()) => answer.ok(),
                    Err(error) => answer.error(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
                }
            }
        }
    }

    /// Makes all acknowledged writes durable, on so many other hosts. Does not block; for managed files only.
    pub(crate) fn sync_data(&self, file: &OpenHandle, copies: Option<u8>, answer: Answer, send: Send<'_>) {
        let ContentWay::Pond { object, .. } = file.way else { return answer.error(Errno::INVAL) };
        let forgetting = self.forgetting.get().cloned();
        let done = move |reply| match (reply, forgetting) {
            (Reply::Done, _) => answer.ok(),
            // The error goes out after the kernel has forgotten what the origin may have lost.
            (other, Some(forgetting)) => forgetting.then(move || answer.error(unexpected(&other))),
            (other, None) => answer.error(unexpected(&other)),
        };
        send(Ask::Sync { object, copies }, Box::new(done));
    }

    /// Makes all files durable, acknowledged writes and what the origin alone has: `sync` and `syncfs`. Waits for the
    /// origin. The kernel asks this only of mounts over block devices and of virtual machines' mounts (`fuseblk`,
    /// virtiofs), not of a mount like this one.
    pub(crate) fn sync_all(&self, answer: Answer) {
        let root = self.names.root().open(OFlags::RDONLY | OFlags::DIRECTORY);
        match root.and_then(rustix::fs::syncfs) {
            Ok(()) => {}
            Err(error) => return answer.error(error),
        }
        let done = move |reply| match reply {
            Reply::Done => answer.ok(),
            other => answer.error(unexpected(&other)),
        };
        self.pond.submit(Ask::SyncAll, Box::new(done));
    }

    /// Only the origin has mode, owner, links and extended attributes. This is the one case in which an fsync waits
    /// for the origin, and only after such a change.
    pub(crate) fn sync_attributes(&self, file: &OpenHandle) -> ReplyOutcome<()> {
        let ContentWay::Pond { object, .. } = file.way else { return Ok(()) };
        outcome(block_on(self.names.sync_status(&file.inode, object)))
    }
}

fn read_straight(file: &File, offset: u64, size: usize) -> ReplyOutcome<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beside::Beside;
    use crate::fuse::wire::answer_head;
    use crate::pond::{Operation, Pond};
    use headpond_base::ObjectId;
    use headpond_engine::Namespace;
    use rustix::fs::Mode;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts what is made durable.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Pond for Counting {
        fn submit(&self, request: Ask, done: Done) {
            assert!(matches!(request, Ask::SyncAll), "{request:?}");
            self.0.fetch_add(1, Ordering::Relaxed);
            done(Reply::Done);
        }

        fn namespace(&self, _: Option<Namespace>, _: Operation) -> headpond_base::Result<()> {
            unreachable!("no name changes")
        }

        fn attach(&self, _: ObjectId, _: File) {}

        fn sync_origin(&self, _: ObjectId) -> headpond_base::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn where_the_kernel_asks_for_all_to_be_durable_the_pool_and_the_origin_are() {
        let origin = tempfile::tempdir().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = rustix::fs::open(origin.path(), flags, Mode::empty()).unwrap();
        let pond = Arc::new(Counting::default());
        let front = Front::new(root, false, pond.clone(), &[], Beside::default()).unwrap();
        let (mut told, device) = std::io::pipe().unwrap();
        front.sync_all(Answer::new(Arc::new(OwnedFd::from(device)), 7));
        assert_eq!(pond.0.load(Ordering::Relaxed), 1);
        let mut answer = Vec::new();
        told.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, answer_head(7, 0, 0));
    }
}
