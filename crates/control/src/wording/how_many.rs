//! How many there are of something.

use std::fmt;

/// Shows `1 file`, `2 files`, `3 batches`: a number, and the name of one.
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
