//! The input and the result of a target.

use headpond_engine::Mutation;

use crate::seals::Seal;

/// A bug planted in recovery, or in the reads after it, to show that the fuzzer finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// None.
    None,
    /// See [`Mutation::ReplayOutOfOrder`].
    ReplayOutOfOrder,
    /// See [`Mutation::AcceptTornBatch`].
    AcceptTornBatch,
    /// See [`Mutation::BelieveOldMember`].
    BelieveOldMember,
    /// See [`Mutation::RowUnverified`].
    RowUnverified,
}

impl PlantedBug {
    pub(crate) const fn mutation(self) -> Option<Mutation> {
        match self {
            Self::None => None,
            Self::ReplayOutOfOrder => Some(Mutation::ReplayOutOfOrder),
            Self::AcceptTornBatch => Some(Mutation::AcceptTornBatch),
            Self::BelieveOldMember => Some(Mutation::BelieveOldMember),
            Self::RowUnverified => Some(Mutation::RowUnverified),
        }
    }
}

/// The result of an input.
pub(crate) struct Told {
    /// The kind of verdict.
    pub(crate) verdict: &'static str,
    /// The verdict in its words. Inputs with new words are spoiled further.
    pub(crate) words: String,
}

/// Valid bytes of a target, made once.
pub(crate) struct Base {
    /// Those of its devices, one after the other.
    pub(crate) bytes: Vec<u8>,
    /// How many devices of one size they are.
    pub(crate) devices: usize,
    pub(crate) seals: Vec<Seal>,
}
