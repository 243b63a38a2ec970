//! A mount that was unmounted here but goes on: a copy of it is mounted in another mount namespace (a container, a
//! service with mounts of its own), or it was taken from the namespace lazily while in use.
//!
//! ```text
//!   mounted here ──umount──> not here, something open ──closed──> not here, nothing open ──for a second──> the end
//!                     │                     ^                              │
//!                     └─────────────────────┴────────── opened ────────────┘
//! ```
//!
//! Invariant: as long as a program has something open, the mount serves it. A copy that no program uses ends with the
//! mount.

use std::fs::File;
use std::time::{Duration, Instant};

use headpond_mount::Mounted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::mounts;

/// How long nothing may be open before a copy counts as unused: programs come and go.
const UNUSED: Duration = Duration::from_secs(1);

/// Looks now and then whether the mount is still here. A look costs one system call while no mount of the namespace
/// changes.
pub(crate) struct Elsewhere {
    /// Reports a priority event when mounts change.
    mounts: Option<File>,
    here: bool,
    unused_since: Option<Instant>,
    told: bool,
}

/// What the main thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextStep {
    /// Serve on.
    Serve,
    /// Serve on, and say why: nothing of the mount shows here.
    Tell,
    /// End: no program uses the mount any more.
    End,
}

impl Elsewhere {
    /// Begins with a mount that is here.
    pub(crate) fn new() -> Self {
        Self { mounts: File::open("/proc/self/mountinfo").ok(), here: true, unused_since: None, told: false }
    }

    /// Looks at the mount.
    pub(crate) fn look(&mut self, mounted: &Mounted, now: Instant) -> NextStep {
        let Some(number) = mounted.number() else { return NextStep::Serve };
        if self.changed() {
            self.here = mounts::mounts().iter().any(|mount| mount.device == (0, number));
        }
        if self.here { NextStep::Serve } else { self.judge(mounted.is_unused(), now) }
    }

    fn judge(&mut self, unused: bool, now: Instant) -> NextStep {
        if !unused {
            self.unused_since = None;
            return if std::mem::replace(&mut self.told, true) { NextStep::Serve } else { NextStep::Tell };
        }
        let since = *self.unused_since.get_or_insert(now);
        if now.duration_since(since) >= UNUSED { NextStep::End } else { NextStep::Serve }
    }

    fn changed(&self) -> bool {
        let Some(mounts) = &self.mounts else { return true };
        let mut polled = [PollFd::new(mounts, PollFlags::PRI)];
        let looked = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        looked.is_err() || polled[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_ends_when_nobody_has_used_it_for_a_while_and_not_before() {
        let mut left = Elsewhere::new();
        let start = Instant::now();
        assert_eq!(left.judge(false, start), NextStep::Tell);
        assert_eq!(left.judge(false, start + 9 * UNUSED), NextStep::Serve, "told once");
        assert_eq!(left.judge(true, start + 9 * UNUSED), NextStep::Serve, "a program may come back");
        assert_eq!(left.judge(false, start + 10 * UNUSED), NextStep::Serve);
        assert_eq!(left.judge(true, start + 11 * UNUSED), NextStep::Serve, "the second begins anew");
        assert_eq!(left.judge(true, start + 12 * UNUSED), NextStep::End);
    }
}
