//! Sizes of caches as you write them: a share of the trace's footprint, blocks, or bytes.

use std::str::FromStr;

use headpond_base::BLOCK_U64;

/// A size of a cache.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CacheSize {
    /// Percent of the trace's footprint.
    Percent(f64),
    /// Blocks.
    Blocks(usize),
}

impl CacheSize {
    /// The size in blocks, for a trace with `footprint` different ones. At least one. Halves round to the even
    /// number, as in the published tables.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn blocks(self, footprint: usize) -> usize {
        let blocks = match self {
            Self::Percent(percent) => (footprint as f64 * (percent / 100.0)).round_ties_even() as usize,
            Self::Blocks(blocks) => blocks,
        };
        blocks.max(1)
    }
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is not a size. Give a share of the footprint (5%), blocks (20000) or bytes (64M)");
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
            return if percent > 0.0 && percent <= 1000.0 { Ok(Self::Percent(percent)) } else { Err(wrong()) };
        }
        let digits = text.trim_end_matches(|mark: char| mark.is_ascii_alphabetic());
        let bytes = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
            "" if digits.len() == text.len() => None,
            "K" => Some(1_u64 << 10),
            "M" => Some(1 << 20),
            "G" => Some(1 << 30),
            "T" => Some(1 << 40),
            _ => return Err(wrong()),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        let blocks = match bytes {
            Some(bytes) => number.checked_mul(bytes).ok_or_else(wrong)? / BLOCK_U64,
            None => number,
        };
        let blocks = usize::try_from(blocks).ok().filter(|blocks| (1..1 << 31).contains(blocks));
        blocks.map(Self::Blocks).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shares_blocks_or_bytes() {
        let blocks = |text: &str| text.parse::<CacheSize>().unwrap().blocks(269_210);
        assert_eq!(["1%", "5%", "10%", "20%"].map(blocks), [2692, 13460, 26921, 53842]);
        assert_eq!(["0.0001%", "300", "64M", "64MiB"].map(blocks), [1, 300, 16384, 16384]);
        for wrong in ["", "%", "-1%", "x", "0", "10X", "1.5", "999999T", "B"] {
            assert!(wrong.parse::<CacheSize>().is_err(), "{wrong}");
        }
    }
}
