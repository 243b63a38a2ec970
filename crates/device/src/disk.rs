//! A flash device inside a reactor: the open file, its name, and its trims.
//!
//! Invariant: what [`Disk::admit`] lets through may go to the kernel. It is aligned, inside the device, and touches no
//! bytes whose trim is under way.

use std::sync::Arc;

use headpond_base::{Errno, MemberId, Result};

use crate::reactor::no_such_disk;
use crate::trim::{TrimLane, TrimPolicy};
use crate::{Completion, DiskOp, Flash, FlashError, Waker};

/// One disk.
pub(crate) struct Disk {
    name: MemberId,
    flash: Arc<Flash>,
    trim: TrimLane,
}

/// What [`Disk::admit`] decides.
pub(crate) enum Disposition {
    /// The operation goes to the kernel, for the disk at this place.
    Now(usize, DiskOp),
    /// The disk keeps the operation: it is a trim, or a write that waits for one.
    Kept,
    /// The operation is refused.
    Ended(Completion),
}

impl Disk {
    pub(crate) fn new(name: MemberId, flash: Flash, trim: TrimPolicy, waker: &Waker) -> Self {
        let flash = Arc::new(flash);
        Self { name, trim: TrimLane::new(flash.clone(), trim, waker.clone()), flash }
    }

    /// Makes a disk of each flash. The member is its name.
    pub(crate) fn all(flashes: Vec<(MemberId, Flash)>, trim: TrimPolicy, waker: &Waker) -> Vec<Self> {
        flashes.into_iter().map(|(name, flash)| Self::new(name, flash, trim, waker)).collect()
    }

    /// The place of the disk `name`. A pool has few members: a search through them costs less than a hash.
    pub(crate) fn place_of(disks: &[Self], name: MemberId) -> Option<usize> {
        disks.iter().position(|disk| disk.name == name)
    }

    /// Lets the disk go, and returns the ends of the operations that waited for its trims.
    pub(crate) fn let_go(self) -> Vec<Completion> {
        let Self { name, trim, .. } = self;
        trim.let_go().iter().filter_map(|op| op.failed(name, Errno::NXIO)).collect()
    }

    /// Measures the disk `name`.
    pub(crate) fn measure(disks: &[Self], name: MemberId) -> Result<u64> {
        let place = Self::place_of(disks, name).ok_or(Errno::NXIO)?;
        disks[place].flash.measure().map_err(|error| match error {
            FlashError::Io { source, .. } => source.into(),
            _ => Errno::IO,
        })
    }

    pub(crate) const fn name(&self) -> MemberId {
        self.name
    }

    pub(crate) const fn flash(&self) -> &Arc<Flash> {
        &self.flash
    }

    /// Usable bytes of the disk `name`; 0 if there is none.
    pub(crate) fn bytes_of(disks: &[Self], name: MemberId) -> u64 {
        disks.iter().find(|disk| disk.name == name).map_or(0, |disk| disk.flash.bytes())
    }

    /// Checks an operation for the disk `name`.
    pub(crate) fn admit(disks: &mut [Self], name: MemberId, op: DiskOp) -> Disposition {
        let Some(place) = Self::place_of(disks, name) else {
            return no_such_disk(name, &op).map_or(Disposition::Kept, Disposition::Ended);
        };
        let disk = &mut disks[place];
        if let Err(errno) = op.check(disk.flash.bytes()) {
            return disk.refuse(&op, errno);
        }
        disk.trim.admit(op).map_or(Disposition::Kept, |op| Disposition::Now(place, op))
    }

    /// The writes whose trim is over.
    pub(crate) fn released(&mut self) -> impl Iterator<Item = DiskOp> {
        self.trim.released().into_iter()
    }

    fn refuse(&self, op: &DiskOp, errno: Errno) -> Disposition {
        op.failed(self.name, errno).map_or(Disposition::Kept, Disposition::Ended)
    }
}
