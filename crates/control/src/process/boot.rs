//! The identity of this host's boot. During one boot the origin's file system loses nothing.

/// The kernel's random id of this boot, as bytes. Zeros if it cannot be read.
pub(crate) fn boot() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    parse(&text).unwrap_or_default()
}

fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_one_name_and_no_text_has_none() {
        assert_eq!(parse("0102030405060708-090a-0b0c0d0e0f10\n").map(|name| name[15]), Some(0x10));
        assert_eq!(parse(""), None);
        assert_eq!(boot(), boot());
        assert_ne!(boot(), [0; 16]);
    }
}
