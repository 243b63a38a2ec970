//! Times as the engine, the kernel and FUSE count them, turned into each other.
//!
//! Invariant: a time in the years 1677 to 2262 survives every conversion to the nanosecond. A time outside becomes
//! the end of that range, and never wraps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headpond_base::UnixNanos;
use headpond_names::Moment;
use rustix::fs::Timespec;
use rustix::time::ClockId;

const SECOND: i64 = 1_000_000_000;

/// Now, by the coarse clock that the kernel stamps files with. So a file written through the engine is never newer
/// than one that the origin's kernel stamps a moment later. Build tools compare the two.
pub(crate) fn now() -> UnixNanos {
    from_timespec(rustix::time::clock_gettime(ClockId::RealtimeCoarse))
}

/// Seconds since 1970, by the same clock.
pub(crate) fn unix_seconds() -> u64 {
    u64::try_from(now().0 / SECOND).unwrap_or(0)
}

/// A time given in seconds and nanoseconds.
pub(crate) fn from_timespec(time: Timespec) -> UnixNanos {
    from_parts(time.tv_sec, time.tv_nsec)
}

fn from_parts(seconds: i64, nanos: i64) -> UnixNanos {
    let exact = i128::from(seconds) * i128::from(SECOND) + i128::from(nanos);
    UnixNanos(i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX }))
}

/// The time so long before 1970, as seconds and the nanoseconds after them.
pub(crate) fn before_epoch(before: Duration) -> (i64, u32) {
    let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
    match before.subsec_nanos() {
        0 => (seconds, 0),
        nanos => (seconds.saturating_sub(1), 1_000_000_000 - nanos),
    }
}

/// A time that an application asks for, exactly as the kernel sent it.
///
/// fuser 0.18 reads the kernel's pair (-s, n) as "s seconds and n nanoseconds *before* 1970". The kernel means n
/// nanoseconds after the second -s. This undoes fuser's reading.
pub(crate) fn requested(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(after.subsec_nanos()),
        },
        Err(error) => {
            let before = error.duration();
            Timespec {
                tv_sec: i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds),
                tv_nsec: i64::from(before.subsec_nanos()),
            }
        }
    }
}

/// A time for fuser's attributes.
pub(crate) fn system_time(time: UnixNanos) -> SystemTime {
    from_epoch(time.0.div_euclid(SECOND), u32::try_from(time.0.rem_euclid(SECOND)).unwrap_or(0))
}

/// A time of the origin, for fuser's attributes. It may be of any year.
pub(crate) fn moment(time: Moment) -> SystemTime {
    from_epoch(time.seconds, time.nanos)
}

fn from_epoch(seconds: i64, nanos: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    second.and_then(|time| time.checked_add(Duration::from_nanos(u64::from(nanos)))).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let time = from_timespec(Timespec { tv_sec: -2, tv_nsec: 800_000_000 });
        assert_eq!(time, UnixNanos(-1_200_000_000));
        assert_eq!(system_time(time), UNIX_EPOCH - Duration::from_millis(1200));
    }

    #[test]
    fn a_requested_time_before_1970_is_what_the_kernel_sent() {
        // What fuser 0.18 reads for the kernel's (-2, 800000000).
        let as_fuser_reads_it = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(requested(as_fuser_reads_it), Timespec { tv_sec: -2, tv_nsec: 800_000_000 });
    }

    #[test]
    fn times_out_of_range_are_held_at_its_end() {
        assert_eq!(from_timespec(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }), UnixNanos(i64::MAX));
        assert_eq!(from_timespec(Timespec { tv_sec: i64::MIN, tv_nsec: 0 }), UnixNanos(i64::MIN));
    }
}
