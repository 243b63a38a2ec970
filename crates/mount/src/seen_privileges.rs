//! Whether a file has anything that a write takes away, as far as that is known.

use std::sync::atomic::{AtomicBool, Ordering};

/// What is known of a file: whether it has set-user-id, set-group-id or a program's capabilities, which a write takes away.
#[derive(Default)]
pub(crate) struct Seen {
    /// It has none: writes need not look.
    none: AtomicBool,
}

impl Seen {
    /// There is nothing that a write would have to take away.
    pub(crate) fn is_none(&self) -> bool {
        self.none.load(Ordering::Acquire)
    }

    /// Not looked at since there may be something.
    pub(crate) fn set_unknown(&self) {
        self.none.store(false, Ordering::Release);
    }

    /// It was looked at, and there is nothing.
    pub(crate) fn set_none(&self) {
        self.none.store(true, Ordering::Release);
    }
}
