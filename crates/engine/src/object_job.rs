//! What destage does, and did, with one object.
//!
//! Invariants
//! - One job at a time works on an object.
//! - A cut that comes while a job works is known to it: behind the shortest one nothing that it wrote counts.

use headpond_base::{Errno, Nanos, Sequence};

/// Of one object. Owned by it.
#[derive(Default)]
pub(crate) struct ObjectJob {
    is_running: bool,
    /// The shortest size that the object was cut to since the job began.
    cut: Option<u64>,
    /// A job changed the size of the origin's file, which was not synced since: a size that looks right may be lost.
    has_unsynced_size: bool,
    /// The log's last entry when a job last ended: an object that is clean now is clean in the log behind that.
    ended_at: Sequence,
    /// Why the last one failed, and when the next may begin.
    failed: Option<(Errno, Nanos)>,
}

impl ObjectJob {
    /// A job begins.
    pub(crate) const fn begins(&mut self) {
        (self.is_running, self.cut) = (true, None);
    }

    /// The job is over, and this is the log's last entry.
    pub(crate) const fn ends(&mut self, last: Sequence) {
        (self.is_running, self.cut, self.ended_at) = (false, None, last);
    }

    /// Whether a job works on the object.
    pub(crate) const fn is_running(&self) -> bool {
        self.is_running
    }

    /// The log's last entry when a job last ended.
    pub(crate) const fn ended_at(&self) -> Sequence {
        self.ended_at
    }

    /// The object was cut to this size.
    pub(crate) fn was_cut(&mut self, to: u64) {
        if self.is_running {
            self.cut = Some(self.cut.map_or(to, |cut| cut.min(to)));
        }
    }

    /// The shortest size that the object was cut to since the job began.
    pub(crate) const fn cut(&self) -> Option<u64> {
        self.cut
    }

    /// The job sets the size of the origin's file.
    pub(crate) const fn resizes(&mut self) {
        self.has_unsynced_size = true;
    }

    /// The origin has synced what jobs did.
    pub(crate) const fn note_synced(&mut self) {
        self.has_unsynced_size = false;
    }

    /// Whether a power cut could take back the size that a job has set.
    pub(crate) const fn has_unsynced_size(&self) -> bool {
        self.has_unsynced_size
    }

    /// The job failed; the next one may begin then.
    pub(crate) const fn fails(&mut self, errno: Errno, again: Nanos) {
        self.failed = Some((errno, again));
    }

    /// The job did not fail, or a request asks that another is tried now.
    pub(crate) const fn may_begin(&mut self) {
        self.failed = None;
    }

    /// Why the last job failed.
    pub(crate) fn failed(&self) -> Option<Errno> {
        self.failed.map(|(errno, _)| errno)
    }

    /// Whether the next job has to wait after a failure.
    pub(crate) fn waits(&self, now: Nanos) -> bool {
        self.failed.is_some_and(|(_, again)| again > now)
    }
}
