//! The kernel forgets files that nobody uses before the ledger is full: what has no row there, no successor knows.
//!
//! Invariants
//! - Nothing is forgotten that a program has open, and no directory: a program may work in one.
//! - The kernel locks the directory of a name that it forgets. So a thread of its own asks, and no request waits for
//!   it.
//!
//! Price: a name that a program asks for again costs one more request.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use headpond_door::Workers;
use headpond_ledger::MountLedger;

use crate::front::Front;
use crate::fuse::wire::forget_name_message;

/// How many inodes are looked at while requests that take one in wait.
const LOOKS: usize = 4096;

/// How long it waits after a round, and after one that found nobody unused: everything that the kernel holds is in use.
const PAUSE: Duration = Duration::from_millis(2);
const REST: Duration = Duration::from_millis(100);

/// The thread that asks the kernel.
pub(crate) struct Pruning {
    device: Arc<OwnedFd>,
    front: Weak<Front>,
    thread: Workers,
    is_at_work: Arc<AtomicBool>,
    /// The node behind which the next look begins.
    next: Arc<AtomicU64>,
}

impl Pruning {
    /// Starts the thread.
    pub(crate) fn start(device: Arc<OwnedFd>, front: Weak<Front>) -> io::Result<Self> {
        let thread = Workers::start(1)?;
        Ok(Self { device, front, thread, is_at_work: Arc::default(), next: Arc::default() })
    }

    /// Begins, if the ledger is nearly full.
    pub(crate) fn look(&self, ledger: &MountLedger) {
        if !ledger.is_crowded() || self.is_at_work.swap(true, Ordering::AcqRel) {
            return;
        }
        let (device, front) = (self.device.clone(), self.front.clone());
        let (is_at_work, next) = (self.is_at_work.clone(), self.next.clone());
        self.thread.push(move || {
            while let Some(front) = front.upgrade().filter(|front| front.is_crowded()) {
                let asked = front.prune(&device, &next);
                drop(front);
                // The kernel's word that it has forgotten comes as requests.
                std::thread::sleep(if asked == 0 { REST } else { PAUSE });
                if asked == 0 {
                    break;
                }
            }
            is_at_work.store(false, Ordering::Release);
        });
    }
}

impl Front {
    /// Whether the ledger has little room, even without what the kernel forgot last.
    fn is_crowded(&self) -> bool {
        let is_crowded = || self.ledger.as_ref().is_some_and(|ledger| ledger.is_crowded());
        is_crowded() && {
            self.names.inodes.forget_all();
            is_crowded()
        }
    }

    /// Asks the kernel to forget as many files as it takes. Returns how many.
    fn prune(&self, device: &OwnedFd, next: &AtomicU64) -> usize {
        let Some(ledger) = &self.ledger else { return 0 };
        let (wanted, first) = (ledger.wanted_room(), next.load(Ordering::Relaxed));
        let (mut asked, mut from, mut turned) = (0, first, false);
        while asked < wanted {
            let (names, last) = self.names.inodes.unused_after(from, LOOKS);
            for (directory, name) in &names {
                asked += usize::from(forget_name(device, *directory, name));
            }
            match last {
                Some(last) => from = last,
                None if turned => break,
                None => (from, turned) = (0, true),
            }
            if turned && from >= first {
                break;
            }
        }
        next.store(from, Ordering::Relaxed);
        asked
    }
}

/// Makes the kernel forget a name. Whether it knew it.
fn forget_name(device: &OwnedFd, directory: u64, name: &OsString) -> bool {
    rustix::io::write(device, &forget_name_message(directory, name)).is_ok()
}
