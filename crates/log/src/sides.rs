//! Where something is durable, and who syncs together.

/// Where something must be durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Durability {
    /// On the members of this host.
    Here,
    /// On each member that works, those on other hosts included.
    #[default]
    Everywhere,
}

impl Durability {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Here, Self::Everywhere];
}

/// The members that sync together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitSide {
    /// Those of this host.
    Here,
    /// Those with copies only, which lie on other hosts.
    Apart,
}

impl CommitSide {
    pub(crate) const BOTH: [Self; 2] = [Self::Here, Self::Apart];
}
