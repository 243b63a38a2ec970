//! The targets, by name.

use std::fmt;
use std::str::FromStr;

/// A structure that headpond reads: from flash, or a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A superblock.
    Superblock,
    /// A block of settings.
    Settings,
    /// A segment's head and footer.
    Segment,
    /// A batch's head and its entries.
    Batch,
    /// A packed record.
    Record,
    /// A checkpoint area.
    Checkpoint,
    /// A trace of requests.
    Trace,
    /// A whole pool: recovery, reads after it, and the examination.
    Image,
    /// A whole pool of several mirrored devices: recovery from some of them, reads after it, and the examination.
    Members,
    /// The same of a pool whose sealed segments are in rows with a parity.
    Rows,
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 10] = [
        Self::Superblock,
        Self::Settings,
        Self::Segment,
        Self::Batch,
        Self::Record,
        Self::Checkpoint,
        Self::Trace,
        Self::Image,
        Self::Members,
        Self::Rows,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Settings => "settings",
            Self::Segment => "segment",
            Self::Batch => "batch",
            Self::Record => "record",
            Self::Checkpoint => "checkpoint",
            Self::Trace => "trace",
            Self::Image => "image",
            Self::Members => "members",
            Self::Rows => "rows",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|target| target.name() == text).ok_or_else(|| format!("'{text}' is none of {names}"))
    }
}
