//! What a target is given, and what it tells.

use headpond_engine::Mutation;

use crate::seals::Seal;

/// A bug that is planted in recovery, to show that it would be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// None.
    None,
    /// See [`Mutation::ReplayOutOfOrder`].
    ReplayOutOfOrder,
    /// See [`Mutation::AcceptTornBatch`].
    AcceptTornBatch,
}

impl PlantedBug {
    pub(crate) const fn mutation(self) -> Option<Mutation> {
        match self {
            Self::None => None,
            Self::ReplayOutOfOrder => Some(Mutation::ReplayOutOfOrder),
            Self::AcceptTornBatch => Some(Mutation::AcceptTornBatch),
        }
    }
}

/// How a target took an input.
pub(crate) struct Told {
    /// The kind of verdict.
    pub(crate) verdict: &'static str,
    /// The verdict in its words. Inputs that bring out new ones are worth going on from.
    pub(crate) words: String,
}

/// Valid bytes of a target, made once.
pub(crate) struct Base {
    pub(crate) bytes: Vec<u8>,
    pub(crate) seals: Vec<Seal>,
}
