//! Whether a sync is to be expected after the next change.
//!
//! A database's log writes once and syncs, again and again. The log can then write and sync the change while the
//! application is still about to ask for it. If the application does not ask, that costs one head block and one sync,
//! once.

/// Syncs in a row that each had one change to make durable, before the next is expected to be like them.
const ENOUGH: u32 = 2;

/// Counts the changes of the host stream from one sync to the next.
#[derive(Default, Debug)]
pub(crate) struct SyncRhythm {
    changes: u32,
    /// How many of the last syncs, in a row, came after one change.
    single: u32,
}

impl SyncRhythm {
    /// Notes a change.
    pub(crate) const fn changed(&mut self) {
        self.changes = self.changes.saturating_add(1);
    }

    /// Notes that a request asked for a sync.
    pub(crate) const fn asked(&mut self) {
        match self.changes {
            0 => return,
            1 => self.single = self.single.saturating_add(1),
            _ => self.single = 0,
        }
        self.changes = 0;
    }

    /// Whether the last change came as a sync is to be expected.
    pub(crate) const fn expects_sync(&self) -> bool {
        self.changes == 1 && self.single >= ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After each of `syncs` syncs with as many changes before, and one change more: is a sync expected?
    fn expects(syncs: &[u32]) -> bool {
        let mut rhythm = SyncRhythm::default();
        for changes in syncs {
            (0..*changes).for_each(|_| rhythm.changed());
            rhythm.asked();
        }
        rhythm.changed();
        rhythm.expects_sync()
    }

    #[test]
    fn a_sync_after_each_change_is_expected_to_go_on() {
        assert!(!expects(&[1]));
        assert!(expects(&[1, 1]));
        assert!(expects(&[9, 1, 1]));
        assert!(expects(&[1, 0, 1]), "a sync with nothing to do tells nothing");
        assert!(!expects(&[1, 1, 2]));
        assert!(!expects(&[]));
    }

    #[test]
    fn a_second_change_in_a_row_ends_the_expectation() {
        let mut rhythm = SyncRhythm::default();
        for _ in 0..3 {
            rhythm.changed();
            rhythm.asked();
        }
        rhythm.changed();
        rhythm.changed();
        assert!(!rhythm.expects_sync());
    }
}
