//! How much of the files a look reads, and whether a start recovers its pool twice.
//!
//! A look reads one in eight of the files that cannot have changed. One look in four at all files reads everything.
//! With `--whole-looks` each one does, which takes a third more time.
//!
//! Keeps true: it is drawn separately. Nothing else of a seed depends on it, except through the reads.

use headpond_timed::Rng;

/// Decides what a look reads.
pub(crate) struct Thoroughness {
    rng: Rng,
    whole: bool,
}

impl Thoroughness {
    /// With `whole` a look reads everything.
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
