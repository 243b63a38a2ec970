//! How many of a thing there are, in words.

use std::fmt;

/// Shows a number and its noun: `1 file`, `2 files`, `3 batches`.
#[derive(Clone, Copy, Debug)]
pub struct HowMany<'a>(pub u64, pub &'a str);

impl fmt::Display for HowMany<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, name) = self;
        let ending = match (number, name.ends_with("ch")) {
            (1, _) => "",
            (_, true) => "es",
            (_, false) => "s",
        };
        write!(f, "{number} {name}{ending}")
    }
}
