//! The clock of all engines in the process: monotonic.

use std::sync::OnceLock;
use std::time::Instant;

use headpond_base::Nanos;

/// Nanoseconds since the first call in this process. Give this to an engine when you make it: the shard goes on with
/// the same clock.
#[must_use]
pub fn now() -> Nanos {
    at(Instant::now())
}

/// Like [`now`], for an earlier moment.
pub(crate) fn at(instant: Instant) -> Nanos {
    static START: OnceLock<Instant> = OnceLock::new();
    let passed = instant.saturating_duration_since(*START.get_or_init(Instant::now));
    passed.into()
}
