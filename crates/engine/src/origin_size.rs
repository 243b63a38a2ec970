//! The size of an object's file at the origin, as far as the engine knows it.
//!
//! ```text
//!  Known ── a change, a resize or a sync of the file failed ──> Unknown
//!  Known <── destage resized the file, or took its stamp ─────── Unknown
//! ```
//!
//! While it is unknown, a write that succeeds says nothing: an earlier one may have made the file longer.

/// What the engine knows of that size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OriginSize {
    /// So many bytes.
    Known(u64),
    /// A change failed, and may have left any size.
    Unknown,
}

impl OriginSize {
    pub(crate) const fn is_known(self) -> bool {
        matches!(self, Self::Known(_))
    }

    /// The most bytes that the file may have.
    pub(crate) const fn most(self) -> u64 {
        match self {
            Self::Known(size) => size,
            Self::Unknown => u64::MAX,
        }
    }

    /// A change past the pool left this size, unless an earlier one failed.
    pub(crate) const fn changed_to(&mut self, size: u64) {
        if let Self::Known(known) = self {
            *known = size;
        }
    }

    /// A write succeeded up to here.
    pub(crate) fn reaches(&mut self, end: u64) {
        if let Self::Known(known) = self {
            *known = end.max(*known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_no_write_makes_the_size_known() {
        let mut size = OriginSize::Known(10);
        size.reaches(8);
        assert_eq!(size.most(), 10);
        size.reaches(20);
        assert_eq!(size, OriginSize::Known(20));
        size.changed_to(5);
        assert_eq!(size, OriginSize::Known(5));
        size = OriginSize::Unknown;
        size.reaches(8);
        size.changed_to(9);
        assert!(!size.is_known());
        assert_eq!(size.most(), u64::MAX, "the file may have any length");
    }
}
