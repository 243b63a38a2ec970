//! Whether a file has anything that a write takes away, if the mount knows.

use std::sync::atomic::{AtomicBool, Ordering};

/// What the mount knows of a file's set-user-id, set-group-id and program capabilities, which a write takes away.
#[derive(Default)]
pub(crate) struct Seen {
    /// It has none: writes need not look.
    none: AtomicBool,
}

impl Seen {
    /// Whether the file surely has nothing that a write takes away.
    pub(crate) fn is_none(&self) -> bool {
        self.none.load(Ordering::Acquire)
    }

    /// The file may have something from now on. The next write looks.
    pub(crate) fn set_unknown(&self) {
        self.none.store(false, Ordering::Release);
    }

    /// The mount has looked, and the file has nothing.
    pub(crate) fn set_none(&self) {
        self.none.store(true, Ordering::Release);
    }
}
