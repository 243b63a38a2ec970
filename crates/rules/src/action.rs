//! What happens to requests that match a rule.

use std::fmt;

use crate::words::{show_size, size};

/// What happens to a matching request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// What the cache mode says, as without a rule.
    Cache,
    /// The pool serves reads as far as it has the data, and lets nothing in. Writes go to the origin.
    Bypass,
    /// Reads are cached; writes go to the origin.
    ReadOnly,
    /// Reads are cached. Writes are acknowledged once the origin has them, and kept for reads.
    WriteThrough,
    /// Cached, and not evicted within the quota.
    Pin(Quota),
    /// Cached, and kept only up to the quota.
    Share(Quota),
}

/// A part of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quota {
    /// A number of bytes.
    Bytes(u64),
    /// A share in percent, 1 to 100.
    Percent(u8),
}

impl Quota {
    /// Parses `10G` or `20%`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(share) => share.parse().ok().filter(|share| (1..=100).contains(share)).map(Self::Percent),
            None => size(text).filter(|bytes| *bytes >= 4096).map(Self::Bytes),
        }
    }

    /// The quota in bytes, for a pool with room for `capacity` bytes.
    #[must_use]
    pub fn bytes_of(self, capacity: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(share) => (u128::from(capacity) * u128::from(share) / 100) as u64,
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&show_size(*bytes)),
            Self::Percent(share) => write!(f, "{share}%"),
        }
    }
}

impl Action {
    /// The word of each action.
    pub const WORDS: [&str; 6] = ["cache", "bypass", "read-only", "write-through", "pin", "share"];

    /// Parses an action with its quota.
    pub(crate) fn parse(word: &str, quota: Option<Quota>) -> Result<Self, String> {
        let wanted = || format!("action={word} needs a quota, such as quota=2G or quota=20%");
        let action = match word {
            "cache" => Self::Cache,
            "bypass" => Self::Bypass,
            "read-only" => Self::ReadOnly,
            "write-through" => Self::WriteThrough,
            "pin" => Self::Pin(quota.ok_or_else(wanted)?),
            "share" => Self::Share(quota.ok_or_else(wanted)?),
            _ => return Err(format!("'{word}' is not an action: one of {}", Self::WORDS.join(", "))),
        };
        match (action.quota(), quota) {
            (None, Some(_)) => Err(format!("action={word} has no quota: only pin and share have one")),
            _ => Ok(action),
        }
    }

    /// The action's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Bypass => "bypass",
            Self::ReadOnly => "read-only",
            Self::WriteThrough => "write-through",
            Self::Pin(_) => "pin",
            Self::Share(_) => "share",
        }
    }

    /// The quota of a pin or a share.
    #[must_use]
    pub const fn quota(self) -> Option<Quota> {
        match self {
            Self::Pin(quota) | Self::Share(quota) => Some(quota),
            _ => None,
        }
    }
}
