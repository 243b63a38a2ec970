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

/// Direct writes that forget their own range only. With one more, all of the file is forgotten, and further ones need not look:
/// few enough that a backup which came by once is not paid for long, many enough that one which is under way keeps what was read ahead.
const LIKELY: u32 = 64;

/// All of the file is being forgotten.
const FORGETTING: u32 = u32::MAX;

/// See the module.
#[derive(Default)]
pub(crate) struct KernelPages(AtomicU32);

/// What the kernel is to forget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forget {
    /// What was written.
    Range,
    /// The whole file; then [`KernelPages::forgotten`] is called.
    All,
}

impl KernelPages {
    /// A request came whose bytes go into, or come from, the kernel's pages.
    pub(crate) fn used(&self) {
        if self.0.load(Ordering::Acquire) != LIKELY {
            self.0.store(LIKELY, Ordering::Release);
        }
    }

    /// A direct write was made.
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

    /// The kernel has forgotten all that it had when [`KernelPages::passed`] said so.
    pub(crate) fn forgotten(&self) {
        // Fails if a request came meanwhile: then there is something again.
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
