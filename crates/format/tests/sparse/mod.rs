//! Golden images as text that a diff can show: a line holds 32 bytes at an offset, and lines that
//! repeat the one before are left out. The last line tells the length.

use std::fmt::Write as _;
use std::path::Path;

const LINE: usize = 32;

/// The text of these bytes.
pub fn to_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut before = [0; LINE];
    for (index, piece) in bytes.chunks(LINE).enumerate() {
        let mut line = [0; LINE];
        line[..piece.len()].copy_from_slice(piece);
        if line != before {
            write!(text, "{:08x} ", index * LINE).unwrap();
            for byte in line {
                write!(text, "{byte:02x}").unwrap();
            }
            text.push('\n');
            before = line;
        }
    }
    writeln!(text, "{:08x}", bytes.len()).unwrap();
    text
}

/// The bytes of this text.
pub fn from_text(text: &str) -> Vec<u8> {
    let (mut bytes, mut before) = (Vec::new(), [0; LINE]);
    for line in text.lines() {
        let (offset, digits) = line.split_once(' ').unwrap_or((line, ""));
        let offset = usize::from_str_radix(offset, 16).unwrap();
        while bytes.len() < offset {
            let room = (offset - bytes.len()).min(LINE);
            bytes.extend_from_slice(&before[..room]);
        }
        for (index, byte) in before.iter_mut().enumerate().take(digits.len() / 2) {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap();
        }
    }
    bytes
}

/// Reads a fixture.
pub fn read(path: &Path) -> Vec<u8> {
    from_text(&std::fs::read_to_string(path).unwrap_or_else(|error| panic!("fixture {}: {error}", path.display())))
}

/// Writes the fixture of a new version. One that exists is what earlier pools look like, and
/// is never written again.
pub fn write_new(path: &Path, bytes: &[u8]) {
    assert!(!path.exists(), "{} exists: a version that was released does not change", path.display());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, to_text(bytes)).unwrap();
}

/// Says where two images first differ.
pub fn assert_same(what: &str, found: &[u8], golden: &[u8]) {
    let at = found.iter().zip(golden).position(|(one, other)| one != other);
    assert!(
        at.is_none() && found.len() == golden.len(),
        "{what}: the format changed at byte {:#x} (lengths {} and {}). A change of the format is a new version: \
         see the end of docs/format.md",
        at.unwrap_or(found.len().min(golden.len())),
        found.len(),
        golden.len()
    );
}
