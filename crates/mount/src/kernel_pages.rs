//! Whether the kernel may keep old bytes of a file after a direct write.
//!
//! A direct write bypasses the kernel's pages. The kernel drops the pages of that range before it sends the write,
//! and again after the answer if the caller waits for it. After an asynchronous write (AIO, io_uring) it does not.
//! Then a page that a buffered request or a page fault brought in meanwhile would stay, with old bytes. So the mount
//! makes the kernel drop the range after the write and before its answer.
//!
//! ```text
//!            buffered request                direct write                direct write
//!   nothing ─────────────────> likely (64) ─────────────> ... likely (1) ─────────────> all is being forgotten
//!      ^                           ^  forget its range                    forget all │       │
//!      │                           └────────── buffered request, at any time ────────┴───────┤
//!      └───────────────────────────────────────── forgotten, and none came meanwhile ────────┘
//! ```
//!
//! Invariants
//! - The mount notes a buffered request before it asks the engine. A direct write looks for notes after the engine
//!   has made it. So the write always sees a request that got the old bytes.
//! - The kernel enters its pages before it asks for their bytes, and keeps them until the bytes are there. So the
//!   drop after a write covers all that was asked for before.
//!
//! Price without buffered readers: each direct write looks at a number. With them: one store for the first request of
//! a kind, and a hand-over and a system call for each direct write, until 64 of these met no buffered request.

use std::sync::atomic::{AtomicU32, Ordering};

/// After so many direct writes that each forget their own range, the next one forgets the whole file, and further
/// ones need not look. Few enough that a single backup does not cost for long. Many enough that a running backup
/// keeps its readahead.
const LIKELY: u32 = 64;

/// The kernel is forgetting the whole file.
const FORGETTING: u32 = u32::MAX;

/// See the module.
#[derive(Default)]
pub(crate) struct KernelPages(AtomicU32);

/// What the kernel must forget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forget {
    /// The range of the write.
    Range,
    /// The whole file; then [`KernelPages::forgotten`] is called.
    All,
}

impl KernelPages {
    /// Notes a request whose bytes go into the kernel's pages, or come from them.
    pub(crate) fn used(&self) {
        if self.0.load(Ordering::Acquire) != LIKELY {
            self.0.store(LIKELY, Ordering::Release);
        }
    }

    /// Notes a direct write, and says what the kernel must forget.
    pub(crate) fn passed(&self) -> Option<Forget> {
        let next = |left| match left {
            0 | FORGETTING => None,
            1 => Some(FORGETTING),
            left => Some(left - 1),
        };
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Err(0) => None,
            Ok(1) => Some(Forget::All),
            _ => Some(Forget::Range),
        }
    }

    /// The kernel has forgotten all that it had when [`KernelPages::passed`] returned [`Forget::All`].
    pub(crate) fn forgotten(&self) {
        // Fails if a buffered request came meanwhile: the kernel has pages again.
        let _ = self.0.compare_exchange(FORGETTING, 0, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_reads_nothing_is_forgotten_and_after_a_while_where_somebody_did() {
        let pages = KernelPages::default();
        assert_eq!(pages.passed(), None);
        pages.used();
        for _ in 1..LIKELY {
            assert_eq!(pages.passed(), Some(Forget::Range));
        }
        assert_eq!(pages.passed(), Some(Forget::All));
        assert_eq!(pages.passed(), Some(Forget::Range), "up to there its page may still be kept");
        pages.forgotten();
        assert_eq!(pages.passed(), None);
    }

    #[test]
    fn who_comes_while_all_is_forgotten_is_not_forgotten() {
        let pages = KernelPages::default();
        pages.used();
        while pages.passed() != Some(Forget::All) {}
        pages.used();
        pages.forgotten();
        assert_eq!(pages.passed(), Some(Forget::Range));
    }
}
