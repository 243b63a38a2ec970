//! The free segments that lend their homes to copies of another one.

use headpond_base::SegmentId;

/// The most copies beside the first: on two other hosts.
pub const LENDERS_MAX: usize = 2;

/// The segments in whose homes the copies of a segment are: two at most.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lenders([Option<SegmentId>; LENDERS_MAX]);

impl Lenders {
    /// None.
    pub const NONE: Self = Self([None; LENDERS_MAX]);

    /// Each of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = SegmentId> + use<> {
        self.0.into_iter().flatten()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn are_none(&self) -> bool {
        self.0[0].is_none()
    }

    /// Those that `keep` wants. The others come second.
    #[must_use]
    pub(crate) fn split(&self, keep: impl FnMut(&SegmentId) -> bool) -> (Self, Self) {
        let (kept, others): (Vec<_>, Vec<_>) = self.iter().partition(keep);
        (kept.into_iter().collect(), others.into_iter().collect())
    }
}

impl FromIterator<SegmentId> for Lenders {
    /// Those beyond the most that there can be are left out.
    fn from_iter<I: IntoIterator<Item = SegmentId>>(lenders: I) -> Self {
        let mut all = Self::NONE;
        all.0.iter_mut().zip(lenders).for_each(|(place, lender)| *place = Some(lender));
        all
    }
}
