//! Runs of a job that go to the origin in one write, and reads of what lies between them.

use std::ops::Range;

use headpond_base::{Block, Buf};

/// Runs of a job that go to the origin in one write.
pub(super) struct Group {
    /// Their numbers in the job.
    pub(super) runs: Range<usize>,
    /// Reads of what lies between them that are under way.
    pub(super) reading: u32,
    /// What lies between them, as far as it is there. May go over the runs themselves.
    pub(super) filled: Vec<(Block, Buf)>,
    /// They must go one by one.
    pub(super) apart: bool,
}

impl Group {
    /// These runs, with nothing read yet.
    pub(super) const fn of(runs: Range<usize>) -> Self {
        Self { runs, reading: 0, filled: Vec::new(), apart: false }
    }

    /// Whether it is one run.
    pub(super) fn alone(&self) -> bool {
        self.runs.len() == 1
    }
}
