//! Two clocks that must not be mixed: one for intervals, one for file times.

use std::time::Duration;

/// Monotonic time in nanoseconds from any fixed start. The shard passes it in; the engine reads no clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// One millisecond.
    pub const MILLISECOND: Self = Self(1_000_000);
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);

    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// This time and `more`.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self(self.0 + more.0)
    }
}

/// A longer time than fits, of centuries, is the longest that does.
impl From<Duration> for Nanos {
    fn from(time: Duration) -> Self {
        Self(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Wall-clock time of a file, in nanoseconds from 1970, negative before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixNanos(pub i64);
