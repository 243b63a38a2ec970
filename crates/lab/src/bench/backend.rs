//! The ways to the flash. Both are measured: many systems refuse io_uring, and have `psync` alone.

use headpond_device::Backend;

/// In the order in which they stand in the table.
pub const BACKENDS: [Backend; 2] = [Backend::Uring, Backend::Psync];

/// What `headpond mount --backend` calls it.
pub const fn argument(backend: Backend) -> &'static str {
    match backend {
        Backend::Auto => "auto",
        Backend::Uring => "uring",
        Backend::Psync => "psync",
    }
}

/// The name of a work that is done by this backend. The ring's is the plain one.
pub fn work(backend: Backend, work: &str) -> String {
    match backend {
        Backend::Psync => format!("{work}, psync"),
        Backend::Auto | Backend::Uring => work.to_owned(),
    }
}

/// The name of its pool, for a work of this name.
pub fn pool(backend: Backend, work: &str) -> String {
    match backend {
        Backend::Psync => format!("{work}-psync"),
        Backend::Auto | Backend::Uring => work.to_owned(),
    }
}
