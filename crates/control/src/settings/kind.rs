//! How you write and read the values of settings: with units, and within a range.
//!
//! Invariants:
//! - A shown value can be given back and means exactly the same.
//! - A refusal names the possible values.

use std::fmt;

use crate::wording::Size;

/// The value of a setting that is `off`: more than any real value.
pub const OFF: u64 = u64::MAX;

/// The kind of a setting's value. Values are numbers: an index, percents, nanoseconds or bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// One of some words, by their index.
    Choice(&'static [&'static str]),
    /// A share in percent.
    Percent {
        /// The lowest.
        min: u64,
        /// The highest.
        max: u64,
        /// Whether it can be [`OFF`].
        can_be_off: bool,
    },
    /// A time in nanoseconds.
    Duration {
        /// The shortest.
        min: u64,
        /// The longest.
        max: u64,
        /// Whether it can be [`OFF`].
        can_be_off: bool,
    },
    /// An amount in bytes.
    Size {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
        /// Only 4K, 8K, 16K and so on.
        power_of_two: bool,
        /// Whether it can be [`OFF`].
        can_be_off: bool,
    },
}

/// Units of time, the largest first.
const TIMES: [(&str, u64); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

/// Units of size, the largest first.
const SIZES: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

impl ValueKind {
    /// The value that a text means.
    ///
    /// # Errors
    /// The possible values.
    pub fn parse(self, text: &str) -> Result<u64, String> {
        let text = text.trim();
        let refused = || Err(format!("'{text}' is not {}", self.range()));
        let value = match self {
            Self::Choice(words) => words.iter().position(|word| *word == text).map(|index| index as u64),
            _ if text == "off" => Some(OFF),
            Self::Percent { .. } => text.strip_suffix('%').unwrap_or(text).trim_end().parse().ok(),
            Self::Duration { .. } => duration(text),
            Self::Size { .. } => text.parse::<Size>().ok().map(|size| size.0),
        };
        match value {
            Some(value) if self.takes(value) => Ok(value),
            _ => refused(),
        }
    }

    fn takes(self, value: u64) -> bool {
        match self {
            Self::Choice(words) => value < words.len() as u64,
            Self::Percent { min, max, can_be_off } => (min..=max).contains(&value) || can_be_off && value == OFF,
            Self::Duration { min, max, can_be_off } => (min..=max).contains(&value) || can_be_off && value == OFF,
            Self::Size { min, max, power_of_two, can_be_off } => {
                let fits = (min..=max).contains(&value) && (!power_of_two || value.is_power_of_two());
                fits || can_be_off && value == OFF
            }
        }
    }

    /// A value as text.
    #[must_use]
    pub fn show(self, value: u64) -> String {
        let exact = |units: &[(&str, u64)], value: u64| {
            let unit = units.iter().find(|(_, unit)| value > 0 && value.is_multiple_of(*unit));
            unit.map_or_else(|| value.to_string(), |(name, unit)| format!("{}{name}", value / unit))
        };
        match self {
            Self::Choice(words) => {
                words.get(value as usize).map_or_else(|| value.to_string(), |word| (*word).to_owned())
            }
            _ if value == OFF => "off".to_owned(),
            Self::Percent { .. } => format!("{value}%"),
            Self::Duration { .. } => exact(&TIMES, value),
            Self::Size { .. } => exact(&SIZES, value),
        }
    }

    /// The possible values in words.
    #[must_use]
    pub fn range(self) -> String {
        let or_off = |can_be_off| if can_be_off { ", or off" } else { "" };
        match self {
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Percent { can_be_off, .. } => {
                format!("a share from {} to {}{}", self.lowest(), self.highest(), or_off(can_be_off))
            }
            Self::Duration { can_be_off, .. } => {
                let (low, high) = (self.lowest(), self.highest());
                format!("a time from {low} to {high}{} (units: ms, s, m, h, d)", or_off(can_be_off))
            }
            Self::Size { power_of_two, can_be_off, .. } => {
                let what = if power_of_two { "a power of two" } else { "a size" };
                let (low, high) = (self.lowest(), self.highest());
                format!("{what} from {low} to {high}{} (units: K, M, G, T)", or_off(can_be_off))
            }
        }
    }

    fn lowest(self) -> String {
        match self {
            Self::Choice(_) => String::new(),
            Self::Percent { min, .. } | Self::Duration { min, .. } | Self::Size { min, .. } => self.show(min),
        }
    }

    fn highest(self) -> String {
        match self {
            Self::Choice(_) => String::new(),
            Self::Percent { max, .. } | Self::Duration { max, .. } | Self::Size { max, .. } => self.show(max),
        }
    }

    /// The unit for the reference.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Choice(_) => "word",
            Self::Percent { .. } => "percent",
            Self::Duration { .. } => "time",
            Self::Size { .. } => "size",
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.range())
    }
}

fn duration(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, nanos) = TIMES.into_iter().find(|(name, _)| *name == unit.trim())?;
    number.parse::<u64>().ok()?.checked_mul(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const SHARE: ValueKind = ValueKind::Percent { min: 1, max: 70, can_be_off: false };
    const TIME: ValueKind = ValueKind::Duration { min: SECOND, max: 86_400 * SECOND, can_be_off: true };
    const AMOUNT: ValueKind = ValueKind::Size { min: 4096, max: 1 << 20, power_of_two: true, can_be_off: false };
    const WORD: ValueKind = ValueKind::Choice(&["one", "two"]);

    #[test]
    fn values_are_read_with_their_units_and_shown_so_that_they_read_back() {
        for (kind, text, value, shown) in [
            (SHARE, "50%", 50, "50%"),
            (SHARE, " 7 % ", 7, "7%"),
            (SHARE, "70", 70, "70%"),
            (TIME, "90s", 90 * SECOND, "90s"),
            (TIME, "120s", 120 * SECOND, "2m"),
            (TIME, "1500ms", 1_500_000_000, "1500ms"),
            (TIME, "24h", 86_400 * SECOND, "1d"),
            (TIME, "off", OFF, "off"),
            (AMOUNT, "512K", 512 << 10, "512K"),
            (AMOUNT, "1 MiB", 1 << 20, "1M"),
            (WORD, "two", 1, "two"),
        ] {
            assert_eq!(kind.parse(text), Ok(value), "{text}");
            assert_eq!(kind.show(value), shown);
            assert_eq!(kind.parse(shown), Ok(value), "{shown}");
        }
    }

    #[test]
    fn what_is_out_of_range_or_senseless_is_refused_with_the_range() {
        for (kind, texts, says) in [
            (SHARE, &["0%", "71%", "", "%", "-1%", "half", "1.5%", "off"][..], "from 1% to 70%"),
            (TIME, &["60", "0s", "2d", "s", "-1s", "1.5s", "99999999999999999d", "1 y"], "from 1s to 1d, or off"),
            (AMOUNT, &["3K", "5000", "2M", "12X", "off"], "power of two from 4K to 1M"),
            (WORD, &["three", "One", "0", ""], "one of one, two"),
        ] {
            for text in texts {
                let error = kind.parse(text).unwrap_err();
                assert!(error.contains(says) && error.contains(&format!("'{}'", text.trim())), "{text}: {error}");
            }
        }
    }
}
