//! Names and keys of sixteen bytes, as text.

/// As 32 hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Back from what [`hex`] returns, in lower or upper case. `None` for any other text.
#[must_use]
pub fn unhex(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_read_back_and_nothing_else_does() {
        let bytes = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        assert_eq!(unhex(&hex(&bytes).to_uppercase()), Some(bytes));
        for text in ["", "ab", &"xy".repeat(16), &"+1".repeat(16), &"ab".repeat(17), &"\u{e9}".repeat(16)] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }
}
