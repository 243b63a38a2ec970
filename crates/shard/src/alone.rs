//! When the shard carries out an operation of the flash by itself.
//!
//! A sync, and with blocking calls any operation, needs another thread: two hand-overs, which cost more than the call
//! on fast flash. With at most one request under way the shard has nothing else to do, so it makes the call itself. The
//! price: a request that comes meanwhile waits for the end of the call. So after a call that made a request wait, or
//! the second in a row that took long, the shard hands over for a while, and longer each time it happens again. A
//! single long call may be the fault of a busy machine, where hand-overs take longest.
//!
//! Invariant: of its waits for a single operation, the shard spends at most one in [`PAUSE_MIN`] in a call that makes
//! others wait.

use std::time::Duration;

/// A call that takes longer gains nothing worth a wait of others.
const LONG: Duration = Duration::from_millis(2);

/// Waits for a single operation without a call, after a call that was a mistake.
const PAUSE_MIN: u32 = 16;

/// The most such waits before the shard tries again.
const PAUSE_MAX: u32 = 1024;

/// What the last calls tell about the next.
#[derive(Default, Debug)]
pub(crate) struct Alone {
    /// Waits still to come without a call.
    pause: u32,
    /// The length of the last pause; zero if the last call was no mistake.
    last_pause: u32,
    /// The last call took long.
    was_long: bool,
}

impl Alone {
    /// Whether to carry out the operation, if the reactor can. Ask once for each wait.
    pub(crate) fn try_next(&mut self) -> bool {
        let paused = self.pause > 0;
        self.pause = self.pause.saturating_sub(1);
        !paused
    }

    /// Notes how long a call of the shard took, and whether other work came meanwhile.
    pub(crate) fn called(&mut self, took: Duration, others_waited: bool) {
        let was_long = std::mem::replace(&mut self.was_long, took > LONG);
        let mistake = others_waited || was_long && self.was_long;
        self.last_pause = if mistake { (self.last_pause * 2).clamp(PAUSE_MIN, PAUSE_MAX) } else { 0 };
        self.pause = self.last_pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(100);

    /// How many of `count` operations the shard carries out if each call ends so.
    fn carried_out(alone: &mut Alone, count: u32, took: Duration, others_waited: bool) -> u32 {
        let mut carried_out = 0;
        for _ in 0..count {
            if alone.try_next() {
                carried_out += 1;
                alone.called(took, others_waited);
            }
        }
        carried_out
    }

    #[test]
    fn the_shard_carries_out_every_short_call_for_which_nobody_waits() {
        assert_eq!(carried_out(&mut Alone::default(), 1000, SHORT, false), 1000);
    }

    #[test]
    fn where_others_wait_it_tries_ever_less_often_and_goes_on_once_they_are_gone() {
        let mut alone = Alone::default();
        assert_eq!(carried_out(&mut alone, 17, SHORT, true), 1, "a pause follows the first call");
        assert_eq!(carried_out(&mut alone, 33, SHORT, true), 1, "the next pause is longer");
        let tries = carried_out(&mut alone, 100_000, SHORT, true);
        assert!((90..=110).contains(&tries), "{tries} tries of 100,000");
        let after = carried_out(&mut alone, 3000, SHORT, false);
        assert!(after >= 3000 - PAUSE_MAX, "{after} of 3000");
    }

    #[test]
    fn slow_flash_is_left_to_other_threads() {
        let tries = carried_out(&mut Alone::default(), 100_000, LONG * 2, false);
        assert!(tries <= 111, "{tries} tries of 100,000");
        let mut alone = Alone::default();
        for _ in 0..100 {
            assert_eq!(carried_out(&mut alone, 1, LONG * 2, false), 1);
            assert_eq!(carried_out(&mut alone, 9, SHORT, false), 9, "one long call is no reason");
        }
    }
}
