//! The origin as the shard uses it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use headpond_base::{Buf, ObjectId, Result, UnixNanos};
use headpond_engine::{Room, Space};
use headpond_format::Stamp;

use crate::{LeavingDescriptor, RemovedFile};

/// What is left of a released file.
pub type Remains = Box<dyn Send>;

/// Opens a file of the origin again, wherever it is now: not all that are attached stay open.
pub trait Reopen: Send + Sync {
    /// Opens it; for writing too if `writes`. Never another file that has its name by now.
    ///
    /// # Errors
    /// When it cannot be found or opened.
    fn reopen(&self, writes: bool) -> Result<File>;
}

/// The slow place that owns the data. Its calls block, and come from several threads at once;
/// the engine never has two under way that depend on each other's order.
///
/// An object that was not attached, or was released, is [`Errno::BADF`](headpond_base::Errno::BADF).
pub trait Origin: Send + Sync + 'static {
    /// Reads up to `len` bytes, fewer only at the file's end.
    ///
    /// # Errors
    /// The origin's.
    fn read(&self, object: ObjectId, offset: u64, len: usize) -> Result<Buf>;

    /// Writes all of `data`, piece after piece, with the rights of a user to the origin's space. Not durable before [`Origin::sync`].
    ///
    /// # Errors
    /// The origin's. What was written is then unknown.
    fn write(&self, object: ObjectId, offset: u64, data: &[Buf], user: u32) -> Result<()>;

    /// Makes a range zeros. Never makes the file larger. Gives whole blocks back, or keeps them if that can be.
    ///
    /// # Errors
    /// The origin's.
    fn zero(&self, object: ObjectId, offset: u64, len: u64, keep_space: bool) -> Result<()>;

    /// Makes the file end at `size`.
    ///
    /// # Errors
    /// The origin's.
    fn resize(&self, object: ObjectId, size: u64) -> Result<()>;

    /// Makes sure of space for ranges, from byte to byte, without changing the file's size or its modification time. One who
    /// `insists` gets [`Errno::OPNOTSUPP`](headpond_base::Errno::OPNOTSUPP) if the file system cannot.
    ///
    /// # Errors
    /// [`Errno::NOSPC`](headpond_base::Errno::NOSPC) when there is none,
    /// [`Errno::DQUOT`](headpond_base::Errno::DQUOT) when the user may not have it. Parts of it may be there.
    fn reserve(&self, object: ObjectId, ranges: &[(u64, u64)], user: u32, insists: bool) -> Result<Space>;

    /// What the file system of this file has free for everybody, and in all, in bytes. If it `settles`, all that was written
    /// is in the figure.
    ///
    /// # Errors
    /// The origin's.
    fn free(&self, object: ObjectId, settles: bool) -> Result<Room>;

    /// Makes data, size, and what was told of its names ([`Origin::name_changed`]) durable.
    ///
    /// # Errors
    /// The origin's. Nothing is known then of any write since the last good sync.
    fn sync(&self, object: ObjectId) -> Result<()>;

    /// The same for others than the engine. What the origin refuses them the engine hears with its own next sync.
    ///
    /// # Errors
    /// The origin's.
    fn sync_aside(&self, object: ObjectId) -> Result<()> {
        self.sync(object)
    }

    /// Sets the modification time and says what size and times are then.
    ///
    /// # Errors
    /// The origin's.
    fn stamp(&self, object: ObjectId, mtime: UnixNanos) -> Result<Stamp>;

    /// Finds data, or a hole, at or after an offset.
    ///
    /// # Errors
    /// [`Errno::NXIO`](headpond_base::Errno::NXIO) when there is none.
    fn seek(&self, object: ObjectId, offset: u64, data: bool) -> Result<u64>;

    /// Says durably, beside the origin's data, that the flash failed while in use: from now on the
    /// origin is newer than the pool. Nothing is changed at the origin before this succeeds.
    ///
    /// # Errors
    /// When it cannot be said; the engine then refuses changes.
    fn pool_failed(&self) -> Result<()>;

    /// Whether the origin may be changed now, as far as that is not the file system's to say. To be asked before each change that
    /// does not come through the calls above, which ask by themselves. May block.
    ///
    /// # Errors
    /// [`Gate::BARRED`](crate::Gate::BARRED) when the origin is another's by now, or why that cannot be told.
    fn may_change(&self) -> Result<()> {
        Ok(())
    }

    /// Whether it is known that the origin may not be changed any more. Asks nobody.
    fn is_barred(&self) -> bool {
        false
    }

    /// Gives the file of an object. It takes the place of an earlier one only if that was for
    /// reading only and this one is not.
    fn attach(&self, object: ObjectId, file: File);

    /// The same of a file that need not stay open.
    fn attach_lasting(&self, object: ObjectId, file: File, again: Arc<dyn Reopen>) {
        let _ = again;
        self.attach(object, file);
    }

    /// The attached file of an object, if there is one, could not be opened again as it was: it is open from now on, and stays so
    /// until the object is given a file that need not.
    fn keep_open(&self, object: ObjectId) {
        let _ = object;
    }

    /// The attached file of an object, if there is one, is opened again like this from now on.
    fn reopened_by(&self, object: ObjectId, again: Arc<dyn Reopen>) {
        let _ = (object, again);
    }

    /// The last name of an object's file is about to be removed, and no application has it open: closes it, so that its space
    /// is free when the name is gone. Waits for a call that is under way; what is asked later fails once it is gone.
    fn leaving(&self, object: ObjectId) -> Option<LeavingDescriptor> {
        let _ = object;
        None
    }

    /// Takes the file of an object out, at once: the only call that comes on the shard's thread, so that it is
    /// in order with the answers, and a file attached after a later open is never the one that goes.
    /// It must not block. What may take long, as closing a file does when its last name is gone, is to be
    /// returned: it is dropped elsewhere.
    #[must_use]
    fn release(&self, object: ObjectId) -> Option<Remains>;

    /// A name of the object's file was made in this directory, or has gone from it.
    fn name_changed(&self, object: ObjectId, directory: OwnedFd) {
        let _ = (object, directory);
    }

    /// A file has lost its last name; its object, if the engine has one for it, is not released yet. What is returned is to
    /// be kept as long as the caller has the file open: until then its space may not be free, and those who need it wait.
    fn removed(&self, object: Option<ObjectId>) -> Option<RemovedFile> {
        let _ = object;
        None
    }
}
