//! Numbers that count something (batches, entries, lives, uses) go up by one and never wrap.
//!
//! Invariant: a number that decodes is below [`NUMBER_END`], so its reader may add to it. At a million a second a
//! writer needs 290,000 years to get there, so no writer counted up to a larger number.

use crate::Damage;

/// The first number that no writer reaches.
pub(crate) const NUMBER_END: u64 = 1 << 63;

/// Returns a number read from `what`, if a writer can have counted up to it.
pub(crate) const fn counted(what: &'static str, number: u64) -> Result<u64, Damage> {
    if number < NUMBER_END { Ok(number) } else { Err(Damage::Senseless(what, "a number that nobody counts up to")) }
}

/// Like [`counted`], for a number that starts at 1.
pub(crate) const fn counted_from_one(what: &'static str, number: u64) -> Result<u64, Damage> {
    if number == 0 {
        Err(Damage::Senseless(what, "a number 0 where numbers start at 1"))
    } else {
        counted(what, number)
    }
}
