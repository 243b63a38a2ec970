//! One word for the trade of destage: how much exists on flash alone, against how many writes the origin gets.
//!
//! The word is no setting of its own: it sets three others, and is read off them again. So nothing can contradict it.

use headpond_base::Nanos;

use super::kind::OFF;
use super::table::TABLE;

/// The name by which the three are set and shown.
pub const PROTECT: &str = "protect";

/// What is shown where no word fits.
pub(super) const CUSTOM: &str = "custom";

/// The settings that it sets.
pub(super) const PARTS: [&str; 3] = ["flush-period", "dirty-threshold", "idle-flush"];

/// Their places in the table.
pub(super) fn places() -> [usize; 3] {
    PARTS.map(|part| TABLE.iter().position(|setting| setting.name == part).expect("a part is in the table"))
}

/// A word, with the values of [`PARTS`], and what it is for.
pub(super) struct Protection {
    pub(super) word: &'static str,
    pub(super) values: [u64; 3],
    pub(super) purpose: &'static str,
}

const MINUTE: u64 = 60 * Nanos::SECOND.0;

/// The words, from the one that leaves least on flash alone. The second is the default.
pub(super) const WORDS: [Protection; 3] = [
    Protection {
        word: "origin-soon",
        values: [MINUTE, 30, Nanos::SECOND.0],
        purpose: "A lost flash costs a minute at most. The origin gets the most writes.",
    },
    Protection {
        word: "balanced",
        values: [5 * MINUTE, 50, 10 * Nanos::SECOND.0],
        purpose: "A lost flash costs five minutes at most, and less where the origin has pauses.",
    },
    Protection {
        word: "fewest-writes",
        values: [OFF, 70, OFF],
        purpose: "Data may stay on flash alone for as long as there is room. For flash that is mirrored below \
                  headpond, or data that can be made again.",
    },
];

/// The word for these values of [`PARTS`].
pub(super) fn word_of(values: [u64; 3]) -> &'static str {
    WORDS.iter().find(|known| known.values == values).map_or(CUSTOM, |known| known.word)
}

/// The values of [`PARTS`] that a word stands for; none for [`CUSTOM`], which leaves them as they are.
///
/// # Errors
/// The words that there are.
pub(super) fn values_of(word: &str) -> Result<Option<[u64; 3]>, String> {
    if word == CUSTOM {
        return Ok(None);
    }
    let known = WORDS.iter().find(|known| known.word == word).map(|known| known.values);
    let words = WORDS.each_ref().map(|known| known.word).join(", ");
    known.map(Some).ok_or_else(|| format!("{PROTECT}: '{word}' is not one of {words}. It sets {}", PARTS.join(", ")))
}
