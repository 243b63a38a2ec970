//! How many members have each host batch.

use headpond_base::MemberId;

use crate::{Member, Members};

/// How many members have each host batch after the checkpoint, at least.
///
/// A start after a crash has each of them while fewer members are missing: of all, or of those with copies only. The
/// second counts by itself: if all flashes of a host are gone, the copy on another host is enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCopies {
    all: u8,
    apart: u8,
}

impl HostCopies {
    /// One member has each, and nobody says which.
    pub const ONE: Self = Self { all: 1, apart: 0 };

    /// Two members, of whichever kind.
    pub const TWO: Self = Self { all: 2, apart: 0 };

    /// The most that there are: one at home, and two on members with copies only.
    pub const MOST: Self = Self { all: 3, apart: 2 };

    /// `all` members have each batch, of these `apart` have copies only. `None` for numbers that no pool has.
    #[must_use]
    pub const fn new(all: u8, apart: u8) -> Option<Self> {
        let is_known = all > apart && all <= Self::MOST.all && apart <= Self::MOST.apart;
        if is_known { Some(Self { all, apart }) } else { None }
    }

    /// As far as a superblock can say it: `own` ordinary members have each, and `apart` that have copies only. At least
    /// one has.
    #[must_use]
    pub fn of(own: usize, apart: usize) -> Self {
        let all = (own + apart).clamp(1, usize::from(Self::MOST.all));
        let apart = apart.min(all - 1).min(usize::from(Self::MOST.apart));
        Self { all: all as u8, apart: apart as u8 }
    }

    /// How many members have each: 1 to 3.
    #[must_use]
    pub const fn all(self) -> u8 {
        self.all
    }

    /// How many of those have copies only: 0 to 2.
    #[must_use]
    pub const fn apart(self) -> u8 {
        self.apart
    }

    /// What holds if either of two may.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { all: self.all.min(other.all), apart: self.apart.min(other.apart) }
    }

    /// What is said if either of two may count.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { all: self.all.max(other.all), apart: self.apart.max(other.apart) }
    }

    /// Whether this says no less than `other`, in both numbers.
    #[must_use]
    pub const fn reach(self, other: Self) -> bool {
        self.all >= other.all && self.apart >= other.apart
    }

    /// Whether each batch is on some member of `list` that is not among those that are missing.
    #[must_use]
    pub fn last_without(self, list: &Members, missing: impl IntoIterator<Item = MemberId>) -> bool {
        let (mut all, mut apart) = (0, 0);
        for member in missing {
            all += 1;
            apart += usize::from(list.get(member).is_some_and(Member::keeps_copies));
        }
        all < usize::from(self.all) || apart < usize::from(self.apart)
    }

    /// Whether `list` has as many members with copies only.
    pub(crate) fn fit(self, list: &Members) -> bool {
        list.iter().filter(|(_, member)| member.keeps_copies()).count() >= usize::from(self.apart)
    }
}

#[cfg(test)]
mod tests {
    use crate::MemberName;

    use super::*;

    fn list(own: u8, copies: u8) -> Members {
        let row = |name: u8, copies_only: bool| Member {
            copies_only,
            ..Member::in_use(MemberName([name; 16]), 20, 64 << 20, 1 << 20)
        };
        let first = Members::first(row(0, false));
        (1..own + copies).fold(first, |list, name| list.with(row(name, name >= own)).unwrap().0)
    }

    #[test]
    fn a_batch_is_there_while_fewer_members_are_missing_than_have_it_of_all_or_of_those_apart() {
        let lasts = |copies: (u8, u8), list: &Members, missing: &[u16]| {
            let copies = HostCopies::new(copies.0, copies.1).unwrap();
            copies.last_without(list, missing.iter().map(|id| MemberId(*id)))
        };
        let mirrored = list(2, 0);
        assert!(lasts((1, 0), &mirrored, &[]) && !lasts((1, 0), &mirrored, &[1]));
        assert!(lasts((2, 0), &mirrored, &[0]) && !lasts((2, 0), &mirrored, &[0, 1]));
        // Members 0 and 1 are flashes of a host, 2 is a copy on another.
        let copied = list(2, 1);
        assert!(lasts((2, 1), &copied, &[0, 1]), "the copy has everything");
        assert!(!lasts((2, 0), &copied, &[0, 1]), "not if some batches are on both flashes alone");
        assert!(!lasts((2, 1), &copied, &[0, 2]), "the other flash may lack what is missing");
        // Copies on two hosts, 2 and 3.
        let twice = list(2, 2);
        assert!(lasts((3, 2), &twice, &[0, 1, 2]) && lasts((3, 2), &twice, &[2, 3]));
        assert!(!lasts((3, 2), &twice, &[0, 2, 3]) && !lasts((2, 1), &twice, &[0, 1, 3, 2]));
    }

    #[test]
    fn numbers_that_no_pool_has_are_none() {
        for (all, apart) in [(0, 0), (1, 1), (4, 0), (3, 3)] {
            assert_eq!(HostCopies::new(all, apart), None);
        }
        assert!(HostCopies::new(2, 1).unwrap().fit(&list(1, 1)) && !HostCopies::new(3, 2).unwrap().fit(&list(1, 1)));
    }
}
