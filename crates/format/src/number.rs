//! Numbers that count something (batches, entries, lives, uses) go up by one and never come round.
//!
//! Invariant: one that decodes is below [`NUMBER_END`], so that its reader may add to it. At
//! a million a second it takes 290,000 years to get there: a larger one was never counted up to.

use crate::Damage;

/// The first number that no writer reaches.
pub(crate) const NUMBER_END: u64 = 1 << 63;

/// A number read from `what`, if it can have been counted up to.
pub(crate) const fn counted(what: &'static str, number: u64) -> Result<u64, Damage> {
    if number < NUMBER_END { Ok(number) } else { Err(Damage::Senseless(what, "a number that nobody counts up to")) }
}

/// The same for one that starts at 1.
pub(crate) const fn counted_from_one(what: &'static str, number: u64) -> Result<u64, Damage> {
    if number == 0 {
        Err(Damage::Senseless(what, "a number 0 where numbers start at 1"))
    } else {
        counted(what, number)
    }
}
