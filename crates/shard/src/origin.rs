//! The origin as the shard uses it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use headpond_base::{Buf, ObjectId, Result, UnixNanos};
use headpond_engine::{Room, Space};
use headpond_format::Stamp;

use crate::{LeavingDescriptor, RemovedFile};

/// What is left of a released file. Its drop may block.
pub type Remains = Box<dyn Send>;

/// Opens a file of the origin again, wherever it is now: not all attached files stay open.
pub trait Reopen: Send + Sync {
    /// Opens the file; for writing too if `writes`. Never opens another file that has its name by now.
    ///
    /// # Errors
    /// When it cannot be found or opened.
    fn reopen(&self, writes: bool) -> Result<File>;
}

/// The slow directory that owns the data. Its calls block, and come from several threads at once. The engine never has
/// two under way whose order matters.
///
/// For an object that is not attached, a call fails with [`Errno::BADF`](headpond_base::Errno::BADF).
pub trait Origin: Send + Sync + 'static {
    /// Reads up to `len` bytes; fewer only at the file's end.
    ///
    /// # Errors
    /// The origin's error.
    fn read(&self, object: ObjectId, offset: u64, len: usize) -> Result<Buf>;

    /// Writes all of `data`, piece after piece, with the rights of `user` to the origin's space. Durable only after
    /// [`Origin::sync`]. With `written_out` it returns once the device has the bytes, where the origin can tell.
    ///
    /// # Errors
    /// The origin's error. The content of the range is then unknown.
    fn write(&self, object: ObjectId, offset: u64, data: &[Buf], user: u32, written_out: bool) -> Result<()>;

    /// Makes a range zeros. Never makes the file larger. Gives back whole blocks; with `keep_space` it keeps them if
    /// it can.
    ///
    /// # Errors
    /// The origin's error.
    fn zero(&self, object: ObjectId, offset: u64, len: u64, keep_space: bool) -> Result<()>;

    /// Makes the file end at `size`.
    ///
    /// # Errors
    /// The origin's error.
    fn resize(&self, object: ObjectId, size: u64) -> Result<()>;

    /// Reserves space for ranges, from byte to byte. The file's size and modification time stay. With `insists`, it
    /// fails with [`Errno::OPNOTSUPP`](headpond_base::Errno::OPNOTSUPP) if the file system cannot reserve.
    ///
    /// # Errors
    /// [`Errno::NOSPC`](headpond_base::Errno::NOSPC) without space, [`Errno::DQUOT`](headpond_base::Errno::DQUOT)
    /// beyond the user's quota. Parts of the space may then be reserved.
    fn reserve(&self, object: ObjectId, ranges: &[(u64, u64)], user: u32, insists: bool) -> Result<Space>;

    /// Bytes that this file's file system has free for everybody, and in all. With `settles`, the figure contains all
    /// writes.
    ///
    /// # Errors
    /// The origin's error.
    fn free(&self, object: ObjectId, settles: bool) -> Result<Room>;

    /// Makes data, size and noted name changes ([`Origin::name_changed`]) durable.
    ///
    /// # Errors
    /// The origin's error. Any write since the last good sync may then be lost.
    fn sync(&self, object: ObjectId) -> Result<()>;

    /// Like [`Origin::sync`], for callers other than the engine. The engine's own next sync gets the error as well.
    ///
    /// # Errors
    /// The origin's error.
    fn sync_aside(&self, object: ObjectId) -> Result<()> {
        self.sync(object)
    }

    /// Sets the modification time. Returns the size and the times after that.
    ///
    /// # Errors
    /// The origin's error.
    fn stamp(&self, object: ObjectId, mtime: UnixNanos) -> Result<Stamp>;

    /// Finds data, or a hole, at or after an offset.
    ///
    /// # Errors
    /// [`Errno::NXIO`](headpond_base::Errno::NXIO) when there is none.
    fn seek(&self, object: ObjectId, offset: u64, data: bool) -> Result<u64>;

    /// Writes durably beside the origin that the flash failed in use: from now on the origin is newer than the pool.
    /// The origin does not change before this succeeds.
    ///
    /// # Errors
    /// When it cannot be written. The engine then refuses changes.
    fn pool_failed(&self) -> Result<()>;

    /// Writes durably beside the origin which generation of the list of the pool's members counts from now on: a start
    /// with an older list is refused.
    ///
    /// # Errors
    /// When it cannot be written. The engine asks again, and makes nothing durable meanwhile.
    fn members_changed(&self, generation: u64) -> Result<()>;

    /// Checks that the origin may be changed now, as far as the claim decides. Call it before each change that does
    /// not use the calls above; those check by themselves. May block.
    ///
    /// # Errors
    /// [`Gate::BARRED`](crate::Gate::BARRED) when the claim is lost, or the reason why that is unknown.
    fn may_change(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the claim is known to be lost. Looks at nothing.
    fn is_barred(&self) -> bool {
        false
    }

    /// Attaches the file of an object. It replaces an earlier one only if that was read-only and this one is not.
    fn attach(&self, object: ObjectId, file: File);

    /// Like [`Origin::attach`], for a file that need not stay open.
    fn attach_lasting(&self, object: ObjectId, file: File, again: Arc<dyn Reopen>) {
        let _ = again;
        self.attach(object, file);
    }

    /// Keeps the attached file of an object open, if there is one, until a file is attached that need not stay open.
    /// For a file that could not be opened again as it was.
    fn keep_open(&self, object: ObjectId) {
        let _ = object;
    }

    /// From now on `again` opens the attached file of an object again, if there is one.
    fn reopened_by(&self, object: ObjectId, again: Arc<dyn Reopen>) {
        let _ = (object, again);
    }

    /// Closes an object's file whose last name is about to be removed, while no application has it open. So its space
    /// is free when the name is gone. Waits for a call under way. Later calls fail once the name is gone.
    fn leaving(&self, object: ObjectId) -> Option<LeavingDescriptor> {
        let _ = object;
        None
    }

    /// Takes out the file of an object, at once. Only this call comes on the shard's thread: so it is in order with
    /// the answers, and never takes a file that was attached after a later open. It must not block. Return what may
    /// take long, such as the close of a file without a name; another thread drops it.
    #[must_use]
    fn release(&self, object: ObjectId) -> Option<Remains>;

    /// Notes that a name of the object's file was made in this directory, or removed from it.
    fn name_changed(&self, object: ObjectId, directory: OwnedFd) {
        let _ = (object, directory);
    }

    /// Notes that a file has lost its last name. Its object, if the engine has one, is not released yet. Keep the
    /// result as long as you have the file open: until then its space may not be free, and changes that need space
    /// wait.
    fn removed(&self, object: Option<ObjectId>) -> Option<RemovedFile> {
        let _ = object;
        None
    }
}
