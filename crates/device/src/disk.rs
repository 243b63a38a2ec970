//! A flash device as a reactor has it: the open file, who it is, and its trims.
//!
//! Invariant: what comes out of [`Disk::admit`] may go to the kernel: it is aligned, inside, and touches nothing whose
//! trim is under way.

use std::sync::Arc;

use headpond_base::{Errno, MemberId};

use crate::reactor::no_such_disk;
use crate::trim::{TrimLane, TrimPolicy};
use crate::{Completion, DiskOp, Flash, Waker};

/// One disk.
pub(crate) struct Disk {
    name: MemberId,
    flash: Arc<Flash>,
    trim: TrimLane,
}

/// What becomes of an operation.
pub(crate) enum Disposition {
    /// It goes to the kernel, for the disk at this place.
    Now(usize, DiskOp),
    /// Later, or it is a trim.
    Kept,
    /// It is refused.
    Ended(Completion),
}

impl Disk {
    /// Makes disks of flashes, each with its name.
    pub(crate) fn all(flashes: Vec<(MemberId, Flash)>, trim: TrimPolicy, waker: &Waker) -> Vec<Self> {
        let disk = |(name, flash): (MemberId, Flash)| {
            let flash = Arc::new(flash);
            Self { name, trim: TrimLane::new(flash.clone(), trim, waker.clone()), flash }
        };
        flashes.into_iter().map(disk).collect()
    }

    pub(crate) const fn name(&self) -> MemberId {
        self.name
    }

    pub(crate) const fn flash(&self) -> &Arc<Flash> {
        &self.flash
    }

    /// Usable bytes of the disk with a name.
    pub(crate) fn bytes_of(disks: &[Self], name: MemberId) -> u64 {
        disks.iter().find(|disk| disk.name == name).map_or(0, |disk| disk.flash.bytes())
    }

    /// Looks at an operation for the disk with a name.
    pub(crate) fn admit(disks: &mut [Self], name: MemberId, op: DiskOp) -> Disposition {
        // A pool has few members: looking through them costs less than hashing.
        let Some(place) = disks.iter().position(|disk| disk.name == name) else {
            return no_such_disk(name, &op).map_or(Disposition::Kept, Disposition::Ended);
        };
        let disk = &mut disks[place];
        if let Err(errno) = op.check(disk.flash.bytes()) {
            return disk.refuse(&op, errno);
        }
        disk.trim.admit(op).map_or(Disposition::Kept, |op| Disposition::Now(place, op))
    }

    /// Writes that waited for a trim which is over.
    pub(crate) fn released(&mut self) -> impl Iterator<Item = DiskOp> {
        self.trim.released().into_iter()
    }

    fn refuse(&self, op: &DiskOp, errno: Errno) -> Disposition {
        op.failed(self.name, errno).map_or(Disposition::Kept, Disposition::Ended)
    }
}
