//! One key a line: a number, or any text, which is hashed. Empty lines are skipped, and so are lines of a single `*`,
//! which end some collections. All requests are reads.

use std::io::BufRead;

use super::{Sink, lines};
use crate::request::{Extent, ReadFault, TracedRequest};

pub(super) fn read(from: &mut dyn BufRead, sink: Sink) -> Result<(), ReadFault> {
    lines(from, |_, line| {
        let key = line.trim();
        if key.is_empty() || key == "*" {
            return Ok(());
        }
        sink(TracedRequest { extent: Extent::Pages { first: page(key), count: 1 }, write: false, at: None })
    })
}

/// A key's number: itself, or a hash (FNV-1a, 64 bits) of its text.
pub(super) fn page(key: &str) -> u64 {
    key.parse().unwrap_or_else(|_| {
        key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Format, read_all};
    use crate::Extent;

    #[test]
    fn numbers_stay_and_texts_are_hashed() {
        let requests = read_all(Format::Keys, b"17\n\nusers/a\r\n*\nusers/a\n17", None).unwrap();
        let pages: Vec<_> = requests.iter().map(|request| request.extent).collect();
        assert_eq!(pages.len(), 4);
        assert_eq!((pages[0], pages[1]), (Extent::Pages { first: 17, count: 1 }, pages[2]));
        assert_eq!(pages[3], pages[0]);
    }
}
