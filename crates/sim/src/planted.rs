//! Bugs of the name layer that histories must find. They are planted between the layer and its world: the layer has
//! none of them.

use headpond_engine::{Namespace, Request};

/// A bug planted in a history of uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedUse {
    /// The claim beside the origin is not compared with the pool's.
    ClaimIgnored,
    /// How far the log was durable is not compared.
    NoteIgnored,
    /// No daemon checks again whether it still has the origin.
    NeverLooks,
    /// A start writes its marker over one that another daemon wrote meanwhile.
    MarkerWrittenBlindly,
}

impl PlantedUse {
    /// All bugs.
    pub const ALL: [Self; 4] = [Self::ClaimIgnored, Self::NoteIgnored, Self::NeverLooks, Self::MarkerWrittenBlindly];
}

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// Directories in which names of a file changed are not synced with it.
    DirectoryNotNoted,
    /// The log does not learn that a last name goes.
    UnlinkUntold,
    /// The log does not learn of a rename.
    RenameUntold,
    /// The engine does not learn that a change of status begins.
    StatusUntold,
    /// The engine does not learn that a handle is closed.
    CloseForgotten,
    /// Changes at the origin alone are not synced there.
    SyncSkipped,
    /// The same for files that the kernel has forgotten.
    ForgottenUnsynced,
    /// A name is taken for the last one without a look.
    LinksBelieved,
    /// A number in use again is taken for its earlier file.
    BirthsAlike,
}

impl Planted {
    /// All bugs, by their names on the command line.
    pub const ALL: [(&'static str, Self); 9] = [
        ("directory-not-noted", Self::DirectoryNotNoted),
        ("unlink-untold", Self::UnlinkUntold),
        ("rename-untold", Self::RenameUntold),
        ("status-untold", Self::StatusUntold),
        ("close-forgotten", Self::CloseForgotten),
        ("sync-skipped", Self::SyncSkipped),
        ("forgotten-unsynced", Self::ForgottenUnsynced),
        ("links-believed", Self::LinksBelieved),
        ("births-alike", Self::BirthsAlike),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, planted)| *planted == self).map_or("unknown", |(name, _)| name)
    }

    /// Whether this request does not reach the engine.
    pub(crate) const fn swallows(self, request: &Request) -> bool {
        match self {
            Self::StatusUntold => matches!(request, Request::StatusBegins { .. }),
            Self::CloseForgotten => matches!(request, Request::Close { .. }),
            _ => false,
        }
    }

    /// Whether the log does not learn of this change.
    pub(crate) const fn hides(self, change: &Namespace) -> bool {
        match self {
            Self::UnlinkUntold => matches!(change, Namespace::Unlink { .. }),
            Self::RenameUntold => matches!(change, Namespace::Rename { .. }),
            _ => false,
        }
    }
}
