//! Sizes as people write and read them.
//!
//! Invariant: [`Size`] reads back what it shows. The shown size is at most a tenth of its unit away from the exact
//! one.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, written with a unit: `64M`, `1.5GiB`, `200G`, `1TB`, or plain bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Size(pub u64);

/// Binary units, as users of disks and every flash cache count. A trailing `B` alone means powers of 1000, as in GNU
/// tools.
const UNITS: [(&str, u64); 12] = [
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let senseless = || format!("'{text}' is not a size. Give a number with K, M, G or T, such as 512M or 200G");
        let upper = text.trim().to_ascii_uppercase();
        let (number, unit) = UNITS
            .into_iter()
            .find_map(|(name, bytes)| upper.strip_suffix(name).map(|number| (number, bytes)))
            .unwrap_or((upper.as_str(), 1));
        let number = number.trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 || number.ends_with('.') {
            return Err(senseless());
        }
        let too_large = || format!("'{text}' is too large");
        let whole: u64 = whole.parse().map_err(|_| too_large())?;
        let mut bytes = whole.checked_mul(unit).ok_or_else(too_large)?;
        if !fraction.is_empty() {
            let parts: u64 = fraction.parse().map_err(|_| senseless())?;
            let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(9));
            let more = u64::try_from(u128::from(parts) * u128::from(unit) / scale).map_err(|_| too_large())?;
            bytes = bytes.checked_add(more).ok_or_else(too_large)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            bytes if bytes < 1 << 10 => format!("{bytes} B"),
            bytes => {
                let (name, unit) = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
                    .into_iter()
                    .find(|(_, unit)| bytes >= *unit)
                    .unwrap_or(("KiB", 1 << 10));
                let tenths = u128::from(bytes) * 10 / u128::from(unit);
                if tenths % 10 == 0 {
                    format!("{} {name}", tenths / 10)
                } else {
                    format!("{}.{} {name}", tenths / 10, tenths % 10)
                }
            }
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_every_usual_unit() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("64KiB", 64 << 10),
            ("64kb", 64_000),
            ("512M", 512 << 20),
            ("1.5G", 3 << 29),
            ("200G", 200 << 30),
            ("200 GiB", 200 << 30),
            ("1T", 1 << 40),
            ("2TB", 2_000_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_an_example() {
        for text in ["", "G", "-1G", "1.G", ".5G", "1,5G", "12X", "1.2.3M", "0x10", "1e9"] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.contains("200G"), "{text}: {error}");
        }
        assert!("99999999T".parse::<Size>().unwrap_err().contains("too large"));
        assert!("99999999999999999999".parse::<Size>().unwrap_err().contains("too large"));
    }

    #[test]
    fn what_is_shown_reads_back_to_within_a_tenth_of_its_unit() {
        for bytes in [0, 1, 1023, 1024, 1536, 5 << 20, (3 << 30) + 12345, u64::MAX / 3] {
            let shown = Size(bytes).to_string();
            let back: Size = shown.trim_end_matches(" B").parse().unwrap();
            assert!(back.0 <= bytes && bytes - back.0 <= bytes / 10, "{bytes} shown as {shown}");
        }
        assert_eq!(Size(3 << 29).to_string(), "1.5 GiB");
    }
}
