//! How much of a device a pool leaves unwritten.
//!
//! Keeps true: a pool that leaves nothing unwritten uses each whole block of its device. Uses `wording`.

use std::fmt;
use std::str::FromStr;

use headpond_base::BLOCK_U64;
use serde::{Deserialize, Serialize};

use crate::wording::Size;

/// The share of a device that its pool leaves unwritten, in percent: 0 to [`Reserve::MOST`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "u8")]
pub struct Reserve(u8);

impl Reserve {
    /// Beyond this, hardly anything is left of a device.
    pub const MOST: u8 = 90;

    /// What a pool uses of so many bytes, in whole blocks.
    #[must_use]
    pub const fn used_of(self, bytes: u64) -> u64 {
        let used = bytes as u128 * (100 - self.0) as u128 / 100;
        // A share of a u64 is one.
        used as u64 / BLOCK_U64 * BLOCK_U64
    }

    /// Whether nothing is left unwritten.
    #[must_use]
    pub const fn is_nothing(self) -> bool {
        self.0 == 0
    }

    /// Why a size is too small for a pool, or too large: the size is not what the operator gave.
    #[must_use]
    pub fn remark(self, bytes: Size) -> String {
        if self.is_nothing() { String::new() } else { format!(" (--reserve {self} of {bytes} stays unwritten)") }
    }
}

/// How much of a device a pool takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// All but this share.
    AllBut(Reserve),
    /// So many bytes, as before, or all if it has less by now.
    AsBefore(u64),
}

impl Taken {
    /// Of a device of so many bytes.
    pub(crate) fn of(self, bytes: u64) -> u64 {
        match self {
            Self::AllBut(reserve) => reserve.used_of(bytes),
            Self::AsBefore(taken) => taken.min(Reserve::default().used_of(bytes)),
        }
    }

    /// The share that stays unwritten, if that was said.
    pub(crate) fn reserve(self) -> Reserve {
        match self {
            Self::AllBut(reserve) => reserve,
            Self::AsBefore(_) => Reserve::default(),
        }
    }
}

impl TryFrom<u8> for Reserve {
    type Error = String;

    fn try_from(percent: u8) -> Result<Self, String> {
        let wrong = || format!("{percent}% is no share to leave unwritten. Give 0% to {}%, such as 20%", Self::MOST);
        if percent <= Self::MOST { Ok(Self(percent)) } else { Err(wrong()) }
    }
}

impl FromStr for Reserve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().strip_suffix('%').unwrap_or(text.trim()).trim_end();
        let percent = Some(number).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        match percent.and_then(|number| number.parse::<u8>().ok()) {
            Some(percent) => Self::try_from(percent),
            None => Err(format!(
                "'{text}' is no share of a device. Give whole percents from 0% to {}%, such as 20%",
                Self::MOST
            )),
        }
    }
}

impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_left_and_the_rest_is_whole_blocks() {
        let of = |text: &str, bytes| text.parse::<Reserve>().unwrap().used_of(bytes);
        assert_eq!(of("20%", 100 << 20), 80 << 20);
        assert_eq!((of("0", 64 << 20), of("0%", 4097)), (64 << 20, 4096));
        assert_eq!(of("33 %", 64 << 20) % BLOCK_U64, 0);
        assert_eq!(of("90%", u64::MAX / 4096 * 4096), u64::MAX / 10 / 4096 * 4096);
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "%", "-1%", "1.5%", "20G", "91%", "100%", "999%", "20 % %", "0x10"] {
            let why = text.parse::<Reserve>().unwrap_err();
            assert!(why.contains("20%") && why.contains("90%"), "{text}: {why}");
        }
        assert!(serde_json::from_str::<Reserve>("91").is_err(), "a client is not believed");
    }
}
