//! Which host may own a pool, by what a registry says of it.
//!
//! Two things are written: a record, which stays, and who has the lease, which ends. The record names the owner, and
//! changes only when there is another one. So a host that has the lease and is not the owner yet can fail, and nothing
//! has changed.
//!
//! Invariants
//! - Who may take a pool says a number that is not smaller than the one in the registry; a larger one, unless it was the
//!   owner.
//! - While a node has a lease, no other may take.
//! - A copy whose list of members is older than the registry's is never taken over: the owner went on without it.
//! - Until a node is the owner itself, the record names the owner before it, which is to be fenced.

/// A host, in one boot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its name. Each host that may own the pool has another.
    pub name: String,
    /// The boot. Two hosts that were given one name by mistake differ in it.
    pub boot: String,
}

/// What a registry has of a pool's owner. It stays when the lease is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerRecord {
    /// Who owns the pool, or did.
    pub node: Node,
    /// The owner's number. It is larger after each take-over.
    pub owner: u64,
    /// The generation of the list of members.
    pub members: u64,
    /// The owner ended in order, and keeps nobody from the pool.
    pub left: bool,
    /// The node to which the owner has given the pool.
    pub handed_to: Option<String>,
}

/// What was read in a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordSeen {
    /// The record.
    pub record: OwnerRecord,
    /// Who has a lease: the owner, or a host that is about to follow it.
    pub leased: Option<Node>,
}

/// Whether a host with the pool may go on as its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerVerdict {
    /// It may take the lease.
    Take,
    /// Another has it. It may be over soon.
    Held,
    /// Another took the pool over.
    Deposed,
    /// The pool went on with other members than this host has.
    OlderMembers,
}

/// Judges a host that has the pool, with this owner's number and list of members.
#[must_use]
pub fn judge_owner(node: &Node, owner: u64, members: u64, seen: Option<&RecordSeen>) -> OwnerVerdict {
    let Some(RecordSeen { record, leased }) = seen else { return OwnerVerdict::Take };
    if record.owner > owner {
        OwnerVerdict::Deposed
    } else if leased.as_ref().is_some_and(|by| by != node) {
        OwnerVerdict::Held
    } else if record.owner == owner && record.members > members {
        OwnerVerdict::OlderMembers
    } else {
        OwnerVerdict::Take
    }
}

/// A copy, and what its store says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeirCopy {
    /// The generation of its list of members.
    pub members: u64,
    /// The owner's number in the store, if this host has taken the pool over.
    pub taken_over: Option<u64>,
    /// An operator asks, and no guard.
    pub by_hand: bool,
}

/// Whether a host with a copy may become the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeirVerdict {
    /// It may take the lease, and become the owner with this number.
    Take {
        /// The owner's number from then on.
        owner: u64,
        /// Whether the owner before is to be kept from the origin first: it was another host, and did not end in order.
        fence: bool,
    },
    /// There is an owner.
    Held,
    /// The owner has given the pool to another.
    GivenToAnother,
    /// Another host was the owner, ended in order, and gave the pool to nobody. An operator may take it over; no guard
    /// does.
    Left,
    /// The owner went on without this copy.
    NotInTheSet,
    /// The registry knows no owner.
    Unknown,
    /// The owner has this host's name, and is not this host.
    SameName,
}

/// Judges a host with a copy.
#[must_use]
pub fn judge_heir(node: &Node, copy: HeirCopy, seen: Option<&RecordSeen>) -> HeirVerdict {
    let Some(RecordSeen { record, leased }) = seen else { return HeirVerdict::Unknown };
    let given = record.handed_to.as_ref().map(|to| *to == node.name);
    // What this host took over before is its own, under the same number. Its own writes need no fence.
    let own = copy.taken_over == Some(record.owner) && record.node.name == node.name;
    if leased.as_ref().is_some_and(|by| by != node) {
        HeirVerdict::Held
    } else if record.node.name == node.name && !own {
        HeirVerdict::SameName
    } else if given == Some(false) {
        HeirVerdict::GivenToAnother
    } else if record.members > copy.members {
        HeirVerdict::NotInTheSet
    } else if record.left && given.is_none() && !copy.by_hand && !own {
        HeirVerdict::Left
    } else {
        HeirVerdict::Take { owner: record.owner + u64::from(!own), fence: !own && !record.left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, boot: &str) -> Node {
        Node { name: name.to_owned(), boot: boot.to_owned() }
    }

    /// The record of a node in its first boot, and who has the lease, in its first boot, too.
    fn seen(name: &str, owner: u64, members: u64, leased: Option<&str>) -> RecordSeen {
        let record = OwnerRecord { node: node(name, "1"), owner, members, left: false, handed_to: None };
        RecordSeen { record, leased: leased.map(|name| node(name, "1")) }
    }

    fn left(to: Option<&str>) -> RecordSeen {
        let mut seen = seen("a", 2, 5, None);
        (seen.record.left, seen.record.handed_to) = (true, to.map(str::to_owned));
        seen
    }

    #[test]
    fn an_owner_goes_on_unless_another_has_the_pool() {
        use OwnerVerdict::{Deposed, Held, OlderMembers, Take};
        let here = node("a", "1");
        let judged = |seen| judge_owner(&here, 2, 5, Some(&seen));
        assert_eq!(judge_owner(&here, 2, 5, None), Take);
        assert_eq!(judged(seen("a", 2, 5, Some("a"))), Take, "the worker before this one had it");
        assert_eq!(judge_owner(&node("a", "2"), 2, 5, Some(&seen("a", 2, 5, Some("a")))), Held, "the boot before");
        assert_eq!(judged(seen("b", 2, 5, Some("b"))), Held);
        assert_eq!(judged(seen("a", 2, 5, Some("b"))), Held, "who is about to follow may fail");
        assert_eq!(judged(seen("b", 1, 9, Some("b"))), Held, "the old owner, while it may still act");
        assert_eq!(judged(seen("b", 2, 5, None)), Take, "the flash was carried here");
        assert_eq!(judged(seen("b", 3, 5, None)), Deposed);
        assert_eq!(judged(seen("b", 3, 5, Some("b"))), Deposed);
        assert_eq!(judged(seen("a", 2, 6, None)), OlderMembers);
        assert_eq!(judged(seen("b", 1, 9, None)), Take);
        assert_eq!(judged(left(Some("b"))), Take, "it was given away, and nobody took it");
    }

    #[test]
    fn a_copy_is_taken_over_once_the_lease_is_gone_and_if_it_is_in_the_set() {
        use HeirVerdict::{GivenToAnother, Held, Left, NotInTheSet, SameName, Take, Unknown};
        let here = node("b", "1");
        let copy = HeirCopy { members: 5, taken_over: None, by_hand: false };
        let judged = |copy, seen| judge_heir(&here, copy, Some(&seen));
        assert_eq!(judge_heir(&here, copy, None), Unknown);
        assert_eq!(judged(copy, seen("a", 2, 5, Some("a"))), Held);
        assert_eq!(judged(copy, seen("a", 2, 5, Some("c"))), Held, "another is about to follow");
        assert_eq!(judged(copy, seen("a", 2, 5, None)), Take { owner: 3, fence: true });
        assert_eq!(
            judged(copy, seen("a", 2, 5, Some("b"))),
            Take { owner: 3, fence: true },
            "the guard died on its way"
        );
        assert_eq!(judged(copy, seen("a", 2, 6, None)), NotInTheSet);
        assert_eq!(judged(copy, left(Some("b"))), Take { owner: 3, fence: false });
        assert_eq!(judged(HeirCopy { members: 4, ..copy }, left(Some("b"))), NotInTheSet);
        assert_eq!(judged(copy, left(Some("c"))), GivenToAnother);
        assert_eq!(judged(copy, left(None)), Left);
        assert_eq!(judged(HeirCopy { by_hand: true, ..copy }, left(None)), Take { owner: 3, fence: false });
        assert_eq!(judged(copy, seen("b", 3, 5, None)), SameName, "two hosts of one name");
        let own = HeirCopy { taken_over: Some(3), ..copy };
        assert_eq!(judged(own, seen("b", 3, 5, None)), Take { owner: 3, fence: false }, "its mount has died");
        let mut rebooted = seen("b", 3, 5, None);
        rebooted.record.left = true;
        assert_eq!(judged(own, rebooted.clone()), Take { owner: 3, fence: false }, "this host was rebooted in order");
        assert_eq!(
            judged(copy, RecordSeen { record: OwnerRecord { node: node("a", "1"), ..rebooted.record }, ..rebooted }),
            Left
        );
        assert_eq!(
            judged(own, seen("a", 2, 5, None)),
            Take { owner: 3, fence: true },
            "the record was not written yet"
        );
    }
}
