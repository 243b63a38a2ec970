//! Whether a mount is being recorded, and whether that must end.
//!
//! Invariant: there is one recording at a time, and none begins once the mount ends.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::refusal::Refusal;

/// How long the end of a mount waits for the end of a recording.
const MOUNT_ENDS: Duration = Duration::from_secs(1);

/// How long a recording waits for the end of the one before it. Its client may have gone, and this not yet been heard.
const OTHER_ENDS: Duration = Duration::from_secs(3);

/// The recording of a mount, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Recordings(Arc<(Mutex<Stage>, Condvar)>);

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Stage {
    #[default]
    None,
    Runs,
    /// The mount ends: it must end, too, or must not begin.
    MustEnd,
    Over,
}

impl Recordings {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a recording, if there is none, or once the one under way is over. Waits a moment for that.
    pub(super) fn begin(&self) -> Result<(), Refusal> {
        let stage = self.stage();
        let waited = self.0.1.wait_timeout_while(stage, OTHER_ENDS, |stage| *stage == Stage::Runs);
        let (mut stage, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *stage != Stage::None {
            let why = "another recording of this mount is under way. Only one can run at a time".to_owned();
            return Err(Refusal::Usage(why));
        }
        *stage = Stage::Runs;
        Ok(())
    }

    /// Whether the recording must end.
    pub(super) fn must_end(&self) -> bool {
        *self.stage() == Stage::MustEnd
    }

    /// The recording is over.
    pub(super) fn over(&self) {
        let mut stage = self.stage();
        *stage = if *stage == Stage::Runs { Stage::None } else { Stage::Over };
        self.0.1.notify_all();
    }

    /// Ends the recording, if there is one, and waits a moment until its trace is complete. No other one begins.
    pub(crate) fn end(&self) {
        let mut stage = self.stage();
        if *stage == Stage::None {
            *stage = Stage::Over;
        } else if *stage == Stage::Runs {
            *stage = Stage::MustEnd;
            let _ = self.0.1.wait_timeout_while(stage, MOUNT_ENDS, |stage| *stage == Stage::MustEnd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_recording_at_a_time_and_none_after_the_end_of_the_mount() {
        let recordings = Recordings::default();
        recordings.begin().unwrap();
        assert!(recordings.begin().is_err() && !recordings.must_end());
        // The next one waits for its end.
        let first = recordings.clone();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            first.over();
        });
        recordings.begin().unwrap();
        ends.join().unwrap();
        let other = recordings.clone();
        let recording = std::thread::spawn(move || {
            while !other.must_end() {
                std::thread::yield_now();
            }
            other.over();
        });
        recordings.end();
        recording.join().unwrap();
        assert!(recordings.begin().is_err());
        recordings.end();
    }
}
