//! How fast bytes that are to become none become fewer, and how long the rest still takes.

use std::time::Instant;

/// Bytes that are to become none, as they are seen now and then.
#[derive(Debug, Default)]
pub(crate) struct Countdown {
    /// The most that was seen, and when it was first seen.
    most: Option<(u64, Instant)>,
}

/// The pace of a [`Countdown`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Pace {
    /// The most bytes that there were.
    pub(crate) total_bytes: u64,
    /// Bytes less in a second, from that moment on.
    pub(crate) bytes_per_second: f64,
    /// How long the rest takes at this pace, if there is one to speak of.
    pub(crate) left_seconds: Option<f64>,
}

impl Countdown {
    /// Notes how many bytes are left. If they have become more than ever, the pace is taken anew from here.
    pub(crate) fn look(&mut self, now: Instant, left_bytes: u64) -> Pace {
        let (total_bytes, since) = match self.most {
            Some((most, at)) if left_bytes <= most => (most, at),
            _ => (left_bytes, now),
        };
        self.most = Some((total_bytes, since));
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        let bytes_per_second = (total_bytes - left_bytes) as f64 / seconds.max(0.001);
        Pace { total_bytes, bytes_per_second, left_seconds: seconds_left(left_bytes, bytes_per_second) }
    }

    /// Nothing is to become fewer any more.
    pub(crate) fn end(&mut self) {
        self.most = None;
    }
}

/// How long so many bytes take at a rate, if there is one to speak of.
pub(super) fn seconds_left(bytes: u64, bytes_per_second: f64) -> Option<f64> {
    (bytes_per_second >= 1.0).then(|| bytes as f64 / bytes_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_pace_is_that_since_there_was_most() {
        let (start, mut countdown) = (Instant::now(), Countdown::default());
        let mut at = |second: u64, left| {
            let pace = countdown.look(start + Duration::from_secs(second), left);
            (pace.total_bytes, pace.bytes_per_second, pace.left_seconds)
        };
        assert_eq!(at(0, 1000), (1000, 0.0, None), "nothing is known of its pace yet");
        assert_eq!(at(2, 1000), (1000, 0.0, None));
        assert_eq!(at(4, 600), (1000, 100.0, Some(6.0)));
        // Another loss meanwhile: what it adds does not count as a standstill.
        assert_eq!(at(10, 5000), (5000, 0.0, None));
        assert_eq!(at(20, 1000), (5000, 400.0, Some(2.5)));
        assert_eq!(at(25, 0), (5000, 5000.0 / 15.0, Some(0.0)));
        countdown.end();
        assert_eq!(countdown.look(start + Duration::from_secs(90), 7).total_bytes, 7, "the next one begins anew");
    }
}
