//! How many there are of something.

use std::fmt;

/// Shows `1 file`, `2 files`: a number, and the name of one.
pub(crate) struct HowMany<'a>(pub u64, pub &'a str);

impl fmt::Display for HowMany<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, name) = self;
        write!(f, "{number} {name}{}", if *number == 1 { "" } else { "s" })
    }
}
