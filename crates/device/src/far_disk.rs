//! A disk that lies elsewhere, such as on another host: what one must do, and how its flash waits for it.
//!
//! Invariant: its contract is that of every disk. It also carries out operations in the order in which it gets them.

use std::fmt::Debug;
use std::sync::mpsc::channel;

use headpond_base::{Buf, Errno, Result};

use crate::op::{DiskOp, End};

/// Hears the end of one operation, on any thread.
pub type FarEnd = Box<dyn FnOnce(End) + Send>;

/// A disk that lies elsewhere.
pub trait FarDisk: Send + Sync + Debug {
    /// Usable bytes, a multiple of a block.
    fn bytes(&self) -> u64;

    /// Takes an operation, which was checked against the disk's bytes. `end` is called once; never for a trim.
    fn submit(&self, op: DiskOp, end: FarEnd);

    /// The owner does not need the disk any more. Its host frees the room. `end` is called once, as for a sync.
    /// No operation is under way, and none follows.
    fn let_go(&self, end: FarEnd);
}

/// Carries out one operation, and waits.
pub(crate) fn wait_for(disk: &dyn FarDisk, op: DiskOp) -> Result<End> {
    op.check(disk.bytes())?;
    let (sender, ended) = channel();
    disk.submit(op, Box::new(move |end| drop(sender.send(end))));
    ended.recv().map_err(|_| Errno::IO)
}

/// Lets a disk go, and waits.
pub(crate) fn let_go(disk: &dyn FarDisk) -> Result<()> {
    let (sender, ended) = channel();
    disk.let_go(Box::new(move |end| drop(sender.send(end))));
    ended.recv().map_err(|_| Errno::IO).and_then(plain_result)
}

/// The result of a read that was waited for.
pub(crate) fn read_result(end: End) -> Result<Buf> {
    match end {
        End::Read(result) => result,
        End::Write(_) | End::Sync(_) => Err(Errno::IO),
    }
}

/// The result of a write or a sync that was waited for.
pub(crate) fn plain_result(end: End) -> Result<()> {
    match end {
        End::Write(result) | End::Sync(result) => result,
        End::Read(_) => Err(Errno::IO),
    }
}
