//! Bugs of the name layer that histories must find, planted between it and its world: nothing of them is in the layer.

use headpond_engine::{Namespace, Request};

/// A bug that is planted in a history of uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedUse {
    /// The claim beside the origin is not compared with the pool's.
    ClaimIgnored,
    /// How far the log was durable is not compared.
    NoteIgnored,
    /// Nobody looks again whether the origin is still theirs.
    NeverLooks,
    /// A start writes its marker over one that another daemon wrote meanwhile.
    MarkerWrittenBlindly,
}

impl PlantedUse {
    /// All.
    pub const ALL: [Self; 4] = [Self::ClaimIgnored, Self::NoteIgnored, Self::NeverLooks, Self::MarkerWrittenBlindly];
}

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// Directories in which names of a file changed are not synced with it.
    DirectoryNotNoted,
    /// The log is not told that a last name goes.
    UnlinkUntold,
    /// The log is not told of a rename.
    RenameUntold,
    /// The engine is not told that a change of status begins.
    StatusUntold,
    /// The engine is not told that a handle is closed.
    CloseForgotten,
    /// What was changed at the origin alone is not synced there.
    SyncSkipped,
    /// The same of files that the kernel has forgotten.
    ForgottenUnsynced,
    /// A name is taken for the last one without a look.
    LinksBelieved,
    /// A number that is used again is taken for the file that had it.
    BirthsAlike,
}

impl Planted {
    /// All, by their names on the command line.
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

    /// Whether the log hears nothing of this change.
    pub(crate) const fn hides(self, change: &Namespace) -> bool {
        match self {
            Self::UnlinkUntold => matches!(change, Namespace::Unlink { .. }),
            Self::RenameUntold => matches!(change, Namespace::Rename { .. }),
            _ => false,
        }
    }
}
