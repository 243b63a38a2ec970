//! Telling the kernel to forget what it keeps of a file's bytes.
//!
//! The kernel puts what is written into its cache before it hands it over, and does not ask. Where a write is not to be seen yet
//! (`batch.rs`), it has to be told to drop those pages again.
//!
//! Invariant: it is never told by a thread that serves reads or writes. The kernel waits, within that word, for everybody
//! who uses one of the pages, and those may wait for such a thread.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::handles::OpenFile;
use crate::wire::forget_message;
use crate::workers::Workers;

/// The way to the kernel, and a thread that goes it.
pub(crate) struct Forgetting {
    device: Arc<OwnedFd>,
    thread: Workers,
}

impl Forgetting {
    /// Starts the thread.
    pub(crate) fn start(device: Arc<OwnedFd>) -> io::Result<Self> {
        Ok(Self { device, thread: Workers::start(1)? })
    }

    /// Has the kernel forget, soon, what was written into the handle's batch.
    pub(crate) fn soon(&self, file: &Arc<OpenFile>) {
        if file.batching.note_forgetting() {
            let (device, file) = (self.device.clone(), file.clone());
            self.thread.push(move || {
                for range in file.batching.take_visible() {
                    forget(&device, file.inode.node, &range);
                }
            });
        }
    }

    /// Has the kernel forget ranges of a file, and its size. Waits.
    pub(crate) fn now(&self, node: u64, ranges: Vec<Range<u64>>) {
        for range in ranges {
            forget(&self.device, node, &range);
        }
    }
}

fn forget(device: &OwnedFd, node: u64, range: &Range<u64>) {
    // Refused if the kernel has let go of the file: then it keeps nothing.
    let _ = rustix::io::write(device, &forget_message(node, range));
}
