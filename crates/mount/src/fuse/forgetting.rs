//! Invalidation of the kernel's pages of a file: pages of writes that programs must not see yet (`atomic_write.rs`),
//! pages that a direct write bypassed (`kernel_pages.rs`), and pages of a file of which the origin lost something.
//!
//! Invariants
//! - No thread that serves reads or writes invalidates. In that call the kernel waits for every user of the pages,
//!   and those users may wait for such a thread.
//! - Before a sync or a durable write fails because the origin lost data, the pages of that data are gone.
//! - Only answers to direct writes wait for the invalidation, because the kernel holds no page for these. At most
//!   [`WAITING_MAX`] wait at once: the kernel limits its asynchronous requests, and if all of them waited here, it
//!   could not send the reads that the invalidation waits for. A further write gets its answer first, and its range
//!   goes right after that.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use headpond_door::Workers;

use crate::fuse::wire::forget_message;
use crate::handles::OpenHandle;
use crate::kernel_pages::Forget;

/// Answers that may wait at once, for other users' mounts and root's. The kernel's own bound is 512 for a mount of
/// root's. For others the administrator sets it, to no less than 12.
const WAITING_MAX: [usize; 2] = [8, 64];

/// Invalidation, on a thread of its own.
pub(crate) struct Forgetting {
    device: Arc<OwnedFd>,
    thread: Workers,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// A direct write under way. Its answer may have to wait for the invalidation.
pub(crate) struct Passing {
    forgetting: Arc<Forgetting>,
    file: Arc<OpenHandle>,
    offset: u64,
    bytes: u32,
}

impl Forgetting {
    /// Starts the thread.
    pub(crate) fn start(device: Arc<OwnedFd>) -> io::Result<Arc<Self>> {
        let waiting_max = WAITING_MAX[usize::from(rustix::process::geteuid().is_root())];
        Ok(Arc::new(Self { device, thread: Workers::start(1)?, waiting: AtomicUsize::new(0), waiting_max }))
    }

    /// Makes the kernel forget, soon, what a program wrote into the handle's atomic write.
    pub(crate) fn soon(&self, file: &Arc<OpenHandle>) {
        if file.atomic_writing.note_forgetting() {
            let (device, file) = (self.device.clone(), file.clone());
            self.thread.push(move || {
                for range in file.atomic_writing.take_visible() {
                    forget(&device, file.inode.node, &range);
                }
            });
        }
    }

    /// Makes the kernel forget, soon, all of a file: the origin may have lost some of it.
    pub(crate) fn all_of(&self, node: u64) {
        let device = self.device.clone();
        self.thread.push(move || forget(&device, node, &(0..0)));
    }

    /// Does something after the kernel has forgotten all that was asked before.
    pub(crate) fn then(&self, done: impl FnOnce() + Send + 'static) {
        self.thread.push(done);
    }

    /// Makes the kernel forget ranges of a file, and its size. Waits.
    pub(crate) fn now(&self, node: u64, ranges: Vec<Range<u64>>) {
        for range in ranges {
            forget(&self.device, node, &range);
        }
    }

    /// Makes the kernel forget a file's attributes. Never waits, so any thread may call it.
    pub(crate) fn attributes(&self, node: u64) {
        let _ = rustix::io::write(&self.device, &forget_message(node, None));
    }
}

impl Passing {
    /// A direct write of `bytes` at `offset` to this file.
    pub(crate) fn new(forgetting: &Arc<Forgetting>, file: &Arc<OpenHandle>, offset: u64, bytes: u32) -> Self {
        Self { forgetting: forgetting.clone(), file: file.clone(), offset, bytes }
    }

    /// Call it when the write is done, in part or failed. The answer goes out once the kernel keeps no older bytes of
    /// the range.
    pub(crate) fn answer(self, answer: impl FnOnce() + Send + 'static) {
        let Some(what) = self.file.inode.beside.pages.passed() else { return answer() };
        let forgetting = self.forgetting.clone();
        if forgetting.waiting.fetch_add(1, Ordering::AcqRel) >= forgetting.waiting_max {
            answer();
            forgetting.thread.push(move || self.forget(what));
        } else {
            forgetting.thread.push(move || {
                self.forget(what);
                answer();
            });
        }
    }

    fn forget(&self, what: Forget) {
        let range = match what {
            Forget::Range => self.offset..self.offset.saturating_add(self.bytes.into()),
            Forget::All => 0..0,
        };
        forget(&self.forgetting.device, self.file.inode.node, &range);
        if what == Forget::All {
            self.file.inode.beside.pages.forgotten();
        }
        self.forgetting.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Makes the kernel forget a range; an empty one at the start is all of the file.
fn forget(device: &OwnedFd, node: u64, range: &Range<u64>) {
    // The kernel refuses if it has let go of the file. It keeps nothing of it then.
    let _ = rustix::io::write(device, &forget_message(node, Some(range)));
}
