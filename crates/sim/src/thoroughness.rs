//! How much of the files a look at them reads, and whether a start recovers its pool twice.
//!
//! Of files that cannot have changed it reads one in eight. One look of four at all files reads everything; with `--whole-looks`
//! each one does, for a third more time.
//!
//! Keeps true: it is drawn by itself. Of a seed nothing else depends on it but what the reads bring about.

use crate::rng::Rng;

/// Decides what is looked at.
pub(crate) struct Thoroughness {
    rng: Rng,
    whole: bool,
}

impl Thoroughness {
    /// With `whole` it is everything.
    pub(crate) fn new(seed: u64, whole: bool) -> Self {
        Self { rng: Rng::for_part(seed, u64::MAX - 12), whole }
    }

    fn one_in(&mut self, looks: u64) -> bool {
        self.whole || self.rng.below(looks) == 0
    }

    /// Whether this start recovers its pool a second time.
    pub(crate) fn second_recovery(&mut self) -> bool {
        self.one_in(4)
    }

    /// Whether this look at all files reads everything.
    pub(crate) fn all_files(&mut self) -> bool {
        self.one_in(4)
    }

    /// Whether this look at a file reads all of it.
    pub(crate) fn whole_file(&mut self) -> bool {
        self.one_in(8)
    }
}
