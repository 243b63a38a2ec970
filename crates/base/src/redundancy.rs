//! How many devices of a pool have each dirty block.

use std::fmt;
use std::str::FromStr;

/// What a pool of several devices does for the data that the origin lacks. In a pool of one device it does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Redundancy {
    /// One device has it. The loss of that device loses it.
    None,
    /// Two devices have it.
    #[default]
    Mirror,
    /// Two devices have it, until a row of full segments has a parity on another device.
    Parity,
}

impl Redundancy {
    /// Every redundancy.
    pub const ALL: [Self; 3] = [Self::None, Self::Mirror, Self::Parity];

    /// The fewest devices for which rows with a parity can be made.
    pub const PARITY_DEVICES_LEAST: usize = 3;

    /// Whether the loss of one of several devices loses nothing.
    #[must_use]
    pub const fn survives_a_loss(self) -> bool {
        !matches!(self, Self::None)
    }

    /// The name on the command line, in files and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Mirror => "mirror",
            Self::Parity => "parity",
        }
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Redundancy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|redundancy| redundancy.name() == text);
        known.ok_or_else(|| format!("unknown redundancy '{text}': one of none, mirror, parity"))
    }
}
