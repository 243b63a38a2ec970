//! What a history knows of the members of its pool, beside the engine.

use headpond_base::MemberId;
use headpond_format::MemberState;

/// A change of the list of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Add { member: MemberId },
    Grow { member: MemberId },
    Shrink { member: MemberId, bytes: u64 },
    Remove { member: MemberId },
    Offline { member: MemberId },
    TakeBack,
}

/// What a history knows of its members, beside the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    /// States that a change which was answered gave to members, by number.
    pub(crate) settled: Vec<MemberState>,
    /// The devices that the present start was given.
    pub(crate) given: Vec<usize>,
    /// Names given to added devices.
    pub(crate) names: u8,
}
