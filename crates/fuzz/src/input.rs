//! One input: a seed for something valid, and the edits that spoil it. As text it is a few short lines.

use std::fmt;
use std::str::FromStr;

use crate::target::Target;

/// One change to some bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Edit {
    /// Replaces bytes.
    Set { at: usize, bytes: Vec<u8> },
    /// Fills a range with one byte.
    Fill { at: usize, len: usize, byte: u8 },
    /// Copies bytes from another place.
    Copy { from: usize, to: usize, len: usize },
}

impl Edit {
    /// The range that it changes.
    pub(crate) fn span(&self) -> (usize, usize) {
        match self {
            Self::Set { at, bytes } => (*at, bytes.len()),
            Self::Fill { at, len, .. } => (*at, *len),
            Self::Copy { to, len, .. } => (*to, *len),
        }
    }

    /// Changes the bytes that exist.
    pub(crate) fn apply(&self, image: &mut [u8]) {
        let end = image.len();
        match self {
            Self::Set { at, bytes } => {
                if let Some(place) = image.get_mut((*at).min(end)..at.saturating_add(bytes.len()).min(end)) {
                    place.copy_from_slice(&bytes[..place.len()]);
                }
            }
            Self::Fill { at, len, byte } => {
                if let Some(place) = image.get_mut((*at).min(end)..at.saturating_add(*len).min(end)) {
                    place.fill(*byte);
                }
            }
            Self::Copy { from, to, len } => {
                if (*from).max(*to) < end {
                    image.copy_within(*from..*from + (*len).min(end - (*from).max(*to)), *to);
                }
            }
        }
    }
}

/// One change to a whole device of a pool of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeviceEdit {
    /// A part is as it was at an earlier moment: writes were lost, or all of it was restored from a copy.
    Stale { device: usize, at: usize, len: usize },
    /// The device ends here.
    Cut { device: usize, len: usize },
    /// The device is not there.
    Absent { device: usize },
    /// The two are named the other way round.
    Swap { one: usize, other: usize },
}

impl DeviceEdit {
    /// The device that it damages.
    pub(crate) const fn damages(self) -> Option<usize> {
        match self {
            Self::Stale { device, .. } | Self::Cut { device, .. } | Self::Absent { device } => Some(device),
            Self::Swap { .. } => None,
        }
    }
}

impl fmt::Display for DeviceEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { device, at, len } => write!(f, "stale {device} {at} {len}"),
            Self::Cut { device, len } => write!(f, "cut {device} {len}"),
            Self::Absent { device } => write!(f, "absent {device}"),
            Self::Swap { one, other } => write!(f, "swap {one} {other}"),
        }
    }
}

/// One input of a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    /// The target.
    pub target: Target,
    /// The seed of the valid bytes.
    pub(crate) base: u64,
    pub(crate) edits: Vec<Edit>,
    /// Made after the edits, in order.
    pub(crate) devices: Vec<DeviceEdit>,
    /// Whether checksums over edited bytes are made right again.
    pub(crate) forged: bool,
}

impl Input {
    /// Valid bytes.
    pub(crate) const fn new(target: Target, base: u64) -> Self {
        Self { target, base, edits: Vec::new(), devices: Vec::new(), forged: false }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "target {}", self.target)?;
        writeln!(f, "base {}", self.base)?;
        for edit in &self.edits {
            match edit {
                Edit::Set { at, bytes } => {
                    write!(f, "set {at} ")?;
                    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                    writeln!(f)?;
                }
                Edit::Fill { at, len, byte } => writeln!(f, "fill {at} {len} {byte:02x}")?,
                Edit::Copy { from, to, len } => writeln!(f, "copy {from} {to} {len}")?,
            }
        }
        self.devices.iter().try_for_each(|edit| writeln!(f, "{edit}"))?;
        if self.forged { writeln!(f, "forged") } else { Ok(()) }
    }
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut input = Self::new(Target::Superblock, 0);
        let mut targets = 0;
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let wrong = || format!("line {}: '{line}' is no part of an input", index + 1);
            let number = |word: &str| word.parse::<usize>().map_err(|_| wrong());
            let byte = |word: &str| u8::from_str_radix(word, 16).map_err(|_| wrong());
            match words[..] {
                [] => {}
                ["target", name] => {
                    input.target = name.parse()?;
                    targets += 1;
                }
                ["base", base] => input.base = base.parse().map_err(|_| wrong())?,
                ["set", at, digits] if digits.len() % 2 == 0 && digits.is_ascii() => {
                    let bytes = (0..digits.len()).step_by(2).map(|at| byte(&digits[at..at + 2]));
                    input.edits.push(Edit::Set { at: number(at)?, bytes: bytes.collect::<Result<_, _>>()? });
                }
                ["fill", at, len, value] => {
                    input.edits.push(Edit::Fill { at: number(at)?, len: number(len)?, byte: byte(value)? });
                }
                ["copy", from, to, len] => {
                    input.edits.push(Edit::Copy { from: number(from)?, to: number(to)?, len: number(len)? });
                }
                ["stale", device, at, len] => {
                    let (device, at, len) = (number(device)?, number(at)?, number(len)?);
                    input.devices.push(DeviceEdit::Stale { device, at, len });
                }
                ["cut", device, len] => {
                    input.devices.push(DeviceEdit::Cut { device: number(device)?, len: number(len)? });
                }
                ["absent", device] => input.devices.push(DeviceEdit::Absent { device: number(device)? }),
                ["swap", one, other] => {
                    input.devices.push(DeviceEdit::Swap { one: number(one)?, other: number(other)? });
                }
                ["forged"] => input.forged = true,
                _ => return Err(wrong()),
            }
        }
        if targets == 1 { Ok(input) } else { Err("an input names one target".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_the_text_that_it_is_saved_as() {
        let input = Input {
            target: Target::Image,
            base: 7,
            edits: vec![
                Edit::Set { at: 5, bytes: vec![0, 0xab] },
                Edit::Fill { at: 9, len: 3, byte: 0xff },
                Edit::Copy { from: 1, to: 2, len: 3 },
            ],
            devices: vec![
                DeviceEdit::Stale { device: 1, at: 4096, len: 512 },
                DeviceEdit::Cut { device: 0, len: 9 },
                DeviceEdit::Absent { device: 2 },
                DeviceEdit::Swap { one: 0, other: 1 },
            ],
            forged: true,
        };
        assert_eq!(input.to_string().parse(), Ok(input));
        assert!("target moon".parse::<Input>().is_err());
        assert!("base 3".parse::<Input>().is_err());
        assert!("target image\nset 3 abc".parse::<Input>().is_err());
    }

    #[test]
    fn edits_end_where_the_bytes_end() {
        let mut bytes = [1, 2, 3, 4];
        for edit in [
            Edit::Set { at: 3, bytes: vec![9, 9] },
            Edit::Fill { at: 2, len: 100, byte: 7 },
            Edit::Copy { from: 1, to: 3, len: 100 },
            Edit::Copy { from: 100, to: 0, len: 1 },
            Edit::Set { at: usize::MAX, bytes: vec![1] },
        ] {
            edit.apply(&mut bytes);
        }
        assert_eq!(bytes, [1, 2, 7, 2]);
    }
}
