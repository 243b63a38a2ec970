//! Whether and how data is compressed on its way to flash: a setting, and a word of rules.

use std::fmt;

/// The highest level of zstd. Higher ones cost more time than any flash.
pub const ZSTD_LEVEL_MAX: u8 = 9;

/// Whether and how new records are packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Records are stored as they are.
    #[default]
    Off,
    /// With LZ4.
    Lz4,
    /// With Zstandard at this level, 1 to [`ZSTD_LEVEL_MAX`].
    Zstd(u8),
}

impl Compression {
    /// The accepted words, for people.
    pub const WORDS: &str = "off, lz4, zstd, or zstd:1 to zstd:9";

    /// Parses one of [`Compression::WORDS`]. `zstd` means level 1.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "off" => Some(Self::Off),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd(1)),
            _ => {
                let level = text.strip_prefix("zstd:")?.parse().ok()?;
                (1..=ZSTD_LEVEL_MAX).contains(&level).then_some(Self::Zstd(level))
            }
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.pad("off"),
            Self::Lz4 => f.pad("lz4"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_reads_back_and_nothing_else_is_taken() {
        let levels = (1..=ZSTD_LEVEL_MAX).map(Compression::Zstd);
        for compression in [Compression::Off, Compression::Lz4].into_iter().chain(levels) {
            assert_eq!(Compression::parse(&compression.to_string()), Some(compression));
        }
        assert_eq!(Compression::parse("zstd"), Some(Compression::Zstd(1)));
        for wrong in ["", "on", "LZ4", "zstd:", "zstd:0", "zstd:10", "zstd:-1", "lz4:1"] {
            assert_eq!(Compression::parse(wrong), None, "{wrong}");
        }
    }
}
