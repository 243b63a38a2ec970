//! Whether a file has anything that a write takes away, if the mount knows.

use std::sync::atomic::{AtomicU32, Ordering};

/// The mount knows that there is nothing.
const NONE: u32 = 1;

/// What the mount knows of a file's set-user-id, set-group-id and program capabilities, which a write takes away.
#[derive(Default)]
pub(crate) struct Seen {
    /// Twice the number of changes that may have given it something; and [`NONE`], if a look that began after the last of
    /// them has found nothing. Writes need not look then.
    state: AtomicU32,
}

/// A look at the file that has begun.
#[derive(Clone, Copy)]
pub(crate) struct Look(u32);

impl Seen {
    /// Whether the file surely has nothing that a write takes away.
    pub(crate) fn is_none(&self) -> bool {
        self.state.load(Ordering::Acquire) & NONE != 0
    }

    /// The file was changed so that it may have something. The next write looks.
    ///
    /// To be called after each try to change it, before anybody hears how that ended: looks that are under way may have
    /// seen the file as it was before.
    pub(crate) fn set_unknown(&self) {
        let next = |state: u32| Some((state & !NONE).wrapping_add(2));
        // The function always has a next state.
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// To be called before the mount looks at the file.
    pub(crate) fn look(&self) -> Look {
        Look(self.state.load(Ordering::Acquire) & !NONE)
    }

    /// The look has found nothing. It is worth nothing if the file was changed since it began.
    pub(crate) fn set_none(&self, look: Look) {
        // If the state has changed meanwhile, another look or a change was noted, and that counts.
        let _ = self.state.compare_exchange(look.0, look.0 | NONE, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_finds_nothing_counts_until_the_next_change() {
        let seen = Seen::default();
        assert!(!seen.is_none());
        seen.set_none(seen.look());
        assert!(seen.is_none());
        seen.set_none(seen.look());
        assert!(seen.is_none());
        seen.set_unknown();
        assert!(!seen.is_none());
    }

    /// A write looks at the file. Then somebody sets its set-user-id bit. Only then does the write note what it saw.
    #[test]
    fn a_look_from_before_a_change_is_worth_nothing() {
        let seen = Seen::default();
        let look = seen.look();
        seen.set_unknown();
        seen.set_none(look);
        assert!(!seen.is_none());
        seen.set_none(seen.look());
        assert!(seen.is_none());
    }
}
