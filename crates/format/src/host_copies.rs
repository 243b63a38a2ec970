//! How many members have each host batch, and which of those apart have all.

use headpond_base::MemberId;

use crate::{MEMBERS_MAX, Members};

/// On how many members each host batch after the checkpoint is, at least, and which members with copies only have each.
///
/// A start after a crash has each batch if fewer members are missing than have it, or if one that has all is there: if
/// all flashes of a host are gone, the copy on another host is enough. (And if all ordinary members are there, whatever is
/// said here: [`Members::have_homes_without`].)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCopies {
    all: u8,
    /// A bit for each member with copies only that has all.
    whole: u32,
}

const _: () = assert!(MEMBERS_MAX <= u32::BITS as usize);

impl HostCopies {
    /// One member has each, and nobody says which.
    pub const ONE: Self = Self { all: 1, whole: 0 };

    /// Two members, of whichever kind.
    pub const TWO: Self = Self { all: 2, whole: 0 };

    /// No pool has more: one at home, and two on members with copies only, whichever these are.
    pub const MOST: Self = Self { all: 3, whole: u32::MAX };

    /// As far as a superblock can say it: `own` ordinary members have each, and all of `apart`, which have copies only.
    /// At least one has.
    #[must_use]
    pub fn of(own: usize, apart: impl IntoIterator<Item = MemberId>) -> Self {
        let whole = apart.into_iter().fold(0, |whole, member| whole | bit(member));
        let all = (own + whole.count_ones() as usize).clamp(1, usize::from(Self::MOST.all));
        Self { all: all as u8, whole }
    }

    /// How many members have each: 1 to 3.
    #[must_use]
    pub const fn all(self) -> u8 {
        self.all
    }

    /// Whether this member has copies only, and has each.
    #[must_use]
    pub const fn is_whole(self, member: MemberId) -> bool {
        self.whole & bit(member) != 0
    }

    /// Whether any member with copies only is said to have each.
    #[must_use]
    pub const fn are_apart(self) -> bool {
        self.whole != 0
    }

    /// What holds if either of two may.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { all: self.all.min(other.all), whole: self.whole & other.whole }
    }

    /// What is said if either of two may count.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { all: self.all.max(other.all), whole: self.whole | other.whole }
    }

    /// Whether this says no less than `other`.
    #[must_use]
    pub const fn reach(self, other: Self) -> bool {
        self.all >= other.all && self.reach_apart(other)
    }

    /// Whether each member of which `other` says that it has all has all by this, too.
    #[must_use]
    pub const fn reach_apart(self, other: Self) -> bool {
        self.whole & other.whole == other.whole
    }

    /// Whether each batch is on some member that is not among those that are missing.
    #[must_use]
    pub fn last_without(self, missing: impl IntoIterator<Item = MemberId>) -> bool {
        let (mut all, mut whole) = (0, self.whole);
        for member in missing {
            all += 1;
            whole &= !bit(member);
        }
        all < usize::from(self.all) || whole != 0
    }

    /// The numbers that a superblock has.
    pub(crate) const fn numbers(self) -> (u8, u32) {
        (self.all, self.whole)
    }

    /// The same again. `None` for numbers that no pool with this list has.
    pub(crate) fn from_numbers(all: u8, whole: u32, list: &Members) -> Option<Self> {
        let keep_copies = list.iter().filter(|(_, member)| member.keeps_copies());
        let known = keep_copies.fold(0, |known, (member, _)| known | bit(member));
        let is_known = (1..=Self::MOST.all).contains(&all) && whole.count_ones() <= u32::from(all);
        (is_known && whole & !known == 0).then_some(Self { all, whole })
    }
}

/// 0 for a number that no member has.
const fn bit(member: MemberId) -> u32 {
    if (member.0 as usize) < MEMBERS_MAX { 1 << member.0 } else { 0 }
}

#[cfg(test)]
mod tests {
    use crate::{Member, MemberName};

    use super::*;

    fn members(ids: &[u16]) -> impl Iterator<Item = MemberId> {
        ids.iter().map(|id| MemberId(*id))
    }

    #[test]
    fn a_batch_is_there_while_fewer_members_are_missing_than_have_it_or_one_that_has_all_is_not() {
        let lasts = |own: usize, apart: &[u16], missing: &[u16]| {
            HostCopies::of(own, members(apart)).last_without(members(missing))
        };
        assert!(lasts(1, &[], &[]) && !lasts(1, &[], &[1]));
        assert!(lasts(2, &[], &[0]) && !lasts(2, &[], &[0, 1]));
        // Members 0 and 1 are flashes of a host, 2 is a copy on another.
        assert!(lasts(1, &[2], &[0, 1]), "the copy has everything");
        assert!(!lasts(2, &[], &[0, 1]), "not if some batches are on both flashes alone");
        assert!(!lasts(1, &[2], &[0, 2]), "the other flash may lack what is missing");
        // Copies on two hosts, 2 and 3.
        assert!(lasts(1, &[2, 3], &[0, 1, 2]) && lasts(1, &[2, 3], &[2, 3]) && !lasts(1, &[2, 3], &[0, 2, 3]));
        assert!(lasts(1, &[2], &[0, 1, 3]), "of two, one that has everything is there");
        assert!(!lasts(1, &[2], &[0, 1, 2]), "and one that joins is not enough");
    }

    #[test]
    fn what_holds_of_two_is_what_both_say() {
        let of = |own, apart: &[u16]| HostCopies::of(own, members(apart));
        assert_eq!(of(1, &[2, 3]).min(of(1, &[3])), of(1, &[3]));
        assert_eq!(of(1, &[2]).min(of(1, &[3])), of(2, &[]));
        assert!(of(1, &[2, 3]).reach(of(1, &[3])) && !of(1, &[2]).reach(of(1, &[3])));
        assert!(of(2, &[2]).reach_apart(of(2, &[])) && HostCopies::MOST.reach(of(1, &[31])));
    }

    #[test]
    fn numbers_that_no_pool_has_are_none() {
        let row = |copies_only: bool, name: u8| Member {
            copies_only,
            ..Member::in_use(MemberName([name; 16]), 20, 64 << 20, 1 << 20)
        };
        let list = Members::first(row(false, 1)).with(row(true, 2)).unwrap().0;
        let read = |all, whole| HostCopies::from_numbers(all, whole, &list);
        assert_eq!(read(2, 0b10), Some(HostCopies::of(1, members(&[1]))));
        for (all, whole) in [(0, 0), (4, 0), (2, 0b1), (2, 0b110)] {
            assert_eq!(read(all, whole), None, "{all} {whole}");
        }
    }
}
