//! The cache modes, named as in every flash cache.

use std::fmt;
use std::str::FromStr;

/// What happens to a write, and whether flash may serve a read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum CacheMode {
    /// Writes are safe on flash and reach the origin later. Reads are cached.
    #[default]
    WriteBack = 0,
    /// The origin acknowledges writes, and flash keeps them too. Reads are cached.
    WriteThrough = 1,
    /// Writes go to the origin only. Reads are cached.
    WriteAround = 2,
    /// Everything goes to the origin. Flash serves only what the origin lacks.
    PassThrough = 3,
}

impl CacheMode {
    /// Every mode, in the order of their numbers on flash.
    pub const ALL: [Self; 4] = [Self::WriteBack, Self::WriteThrough, Self::WriteAround, Self::PassThrough];

    /// The mode's name on the command line, in files and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteBack => "write-back",
            Self::WriteThrough => "write-through",
            Self::WriteAround => "write-around",
            Self::PassThrough => "pass-through",
        }
    }

    /// The mode with this number on flash; `None` if there is none.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            format!("unknown cache mode '{text}': one of write-back, write-through, write-around, pass-through")
        })
    }
}
