//! Which host may own a pool, by what a registry says of it.
//!
//! Invariants
//! - Who may take a pool says a number that is not smaller than the one in the registry; a larger one, unless it was the
//!   owner.
//! - While a node has a lease, no other may take.
//! - A copy whose list of members is older than the registry's is never taken over: the owner went on without it.

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
    /// Nodes that owned the pool before, and that may still write to the origin: whoever took it from them was to fence
    /// them, and has not got that far. Who serves has fenced them all.
    pub unfenced: Vec<String>,
}

impl OwnerRecord {
    /// The record of a node that takes the pool over from this one. It names all that are to be fenced, however often
    /// that was begun: a take-over may end at any step, and another host, or the same one, begins it again.
    #[must_use]
    pub fn taken_over(&self, node: &Node, owner: u64, in_order: bool) -> Self {
        let mut unfenced = self.unfenced.clone();
        if !in_order && !unfenced.contains(&self.node.name) {
            unfenced.push(self.node.name.clone());
        }
        // A node does not fence itself: what it has begun before is its own.
        unfenced.retain(|old| *old != node.name);
        Self { node: node.clone(), owner, left: false, handed_to: None, unfenced, ..self.clone() }
    }
}

/// What was read in a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordSeen {
    /// The record.
    pub record: OwnerRecord,
    /// Whether its owner has a lease.
    pub leased: bool,
}

/// Whether a host with the pool may go on as its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerVerdict {
    /// It may take the lease.
    Take,
    /// Another has it. It may be over soon.
    Held,
    /// Another took the pool over, or was given it.
    Deposed,
    /// The pool went on with other members than this host has.
    OlderMembers,
}

/// Judges a host that has the pool, with this owner's number and list of members.
#[must_use]
pub fn judge_owner(node: &Node, owner: u64, members: u64, seen: Option<&RecordSeen>) -> OwnerVerdict {
    let Some(RecordSeen { record, leased }) = seen else { return OwnerVerdict::Take };
    let own = record.node == *node;
    if record.owner > owner {
        OwnerVerdict::Deposed
    } else if *leased && !(own && record.owner == owner) {
        OwnerVerdict::Held
    } else if record.handed_to.as_ref().is_some_and(|to| *to != node.name) {
        OwnerVerdict::Deposed
    } else if record.owner == owner && record.members > members {
        OwnerVerdict::OlderMembers
    } else {
        OwnerVerdict::Take
    }
}

/// Whether a host with a copy may become the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeirVerdict {
    /// It may take the lease, with this number.
    Take {
        /// The owner's number from then on.
        owner: u64,
        /// The owner before ended in order, and writes nothing any more.
        in_order: bool,
    },
    /// There is an owner.
    Held,
    /// The owner ended in order, and gave the pool to nobody. An operator may take it over; nobody does by himself.
    Left,
    /// The owner has given the pool to another.
    GivenToAnother,
    /// The owner went on without this copy.
    NotInTheSet,
    /// The registry knows no owner.
    Unknown,
}

/// Judges a host whose copy has this list of members. By hand: an operator asks.
#[must_use]
pub fn judge_heir(node: &Node, members: u64, by_hand: bool, seen: Option<&RecordSeen>) -> HeirVerdict {
    let Some(RecordSeen { record, leased }) = seen else { return HeirVerdict::Unknown };
    let given = record.handed_to.as_ref().map(|to| *to == node.name);
    if *leased && record.node != *node {
        HeirVerdict::Held
    } else if given == Some(false) {
        HeirVerdict::GivenToAnother
    } else if record.members > members {
        HeirVerdict::NotInTheSet
    } else if record.left && given.is_none() && !by_hand {
        HeirVerdict::Left
    } else {
        // What this host took before is its own, under the same number.
        let owner = record.owner + u64::from(record.node.name != node.name);
        HeirVerdict::Take { owner, in_order: record.left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, boot: &str) -> Node {
        Node { name: name.to_owned(), boot: boot.to_owned() }
    }

    fn seen(name: &str, owner: u64, members: u64, leased: bool, handed_to: Option<&str>) -> RecordSeen {
        let record = OwnerRecord {
            node: node(name, "1"),
            owner,
            members,
            left: handed_to.is_some(),
            handed_to: handed_to.map(str::to_owned),
            unfenced: Vec::new(),
        };
        RecordSeen { record, leased }
    }

    #[test]
    fn an_owner_goes_on_unless_another_has_the_pool() {
        use OwnerVerdict::{Deposed, Held, OlderMembers, Take};
        let here = node("a", "1");
        let judged = |seen| judge_owner(&here, 2, 5, Some(&seen));
        assert_eq!(judge_owner(&here, 2, 5, None), Take);
        assert_eq!(judged(seen("a", 2, 5, true, None)), Take, "the worker before this one had it");
        assert_eq!(judge_owner(&node("a", "2"), 2, 5, Some(&seen("a", 2, 5, true, None))), Held, "the boot before");
        assert_eq!(judged(seen("b", 2, 5, true, None)), Held);
        assert_eq!(judged(seen("b", 1, 9, true, None)), Held, "the old owner, while it may still act");
        assert_eq!(judged(seen("b", 2, 5, false, None)), Take, "the flash was carried here");
        assert_eq!(judged(seen("b", 3, 5, false, None)), Deposed);
        assert_eq!(judged(seen("b", 3, 5, true, None)), Deposed);
        assert_eq!(judged(seen("a", 2, 6, false, None)), OlderMembers);
        assert_eq!(judged(seen("b", 1, 9, false, None)), Take);
        assert_eq!(judged(seen("a", 2, 5, false, Some("b"))), Deposed, "it was given away");
        assert_eq!(judged(seen("a", 2, 5, false, Some("a"))), Take);
    }

    #[test]
    fn a_copy_is_taken_over_once_the_lease_is_gone_and_if_it_is_in_the_set() {
        use HeirVerdict::{GivenToAnother, Held, Left, NotInTheSet, Take, Unknown};
        let here = node("b", "1");
        let judged = |seen| judge_heir(&here, 5, false, Some(&seen));
        assert_eq!(judge_heir(&here, 5, false, None), Unknown);
        assert_eq!(judged(seen("a", 2, 5, true, None)), Held);
        assert_eq!(judged(seen("a", 2, 5, true, Some("b"))), Held, "it is given once the owner has let go");
        assert_eq!(judged(seen("a", 2, 5, false, None)), Take { owner: 3, in_order: false });
        assert_eq!(judged(seen("a", 2, 6, false, None)), NotInTheSet);
        assert_eq!(judged(seen("a", 2, 6, false, Some("b"))), NotInTheSet);
        assert_eq!(judged(seen("a", 2, 5, false, Some("b"))), Take { owner: 3, in_order: true });
        assert_eq!(judged(seen("a", 2, 5, false, Some("c"))), GivenToAnother);
        assert_eq!(judged(seen("b", 3, 5, true, None)), Take { owner: 3, in_order: false }, "it died before it served");
        let mut left = seen("a", 2, 5, false, None);
        left.record.left = true;
        assert_eq!(judged(left.clone()), Left);
        assert_eq!(judge_heir(&here, 5, true, Some(&left)), Take { owner: 3, in_order: true });
    }

    #[test]
    fn who_was_to_be_fenced_still_is_when_a_take_over_begins_again() {
        let old = seen("a", 2, 5, false, None).record;
        assert!(old.taken_over(&node("b", "1"), 3, true).unfenced.is_empty(), "it ended in order");
        let taken = old.taken_over(&node("b", "1"), 3, false);
        assert_eq!((taken.owner, &taken.unfenced[..]), (3, &["a".to_owned()][..]));
        // The answer was lost, or the host died: it begins again.
        assert_eq!(taken.taken_over(&node("b", "2"), 3, false).unfenced, ["a"]);
        assert_eq!(taken.taken_over(&node("c", "1"), 4, false).unfenced, ["a", "b"]);
        assert_eq!(taken.taken_over(&node("a", "2"), 4, false).unfenced, ["b"]);
    }
}
