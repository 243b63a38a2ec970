//! A mount's source in the kernel's table of mounts: the origin's path, written so that it passes the mount options
//! (commas), `fusermount3` (backslashes) and text (any bytes), and can be read back.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Writes a path as a source: each byte that is not plain becomes `%` and two hexadecimal digits.
#[must_use]
pub fn source_of(path: &Path) -> String {
    let mut source = String::new();
    for &byte in path.as_os_str().as_bytes() {
        if matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'%' | b'\\') {
            source.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(source, "%{byte:02X}");
        }
    }
    source
}

/// The path that a source stands for.
#[must_use]
pub fn path_of_source(source: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(source.len());
    let mut rest = source;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|digits| first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_reads_back_and_plain_ones_are_as_they_are() {
        assert_eq!(source_of(Path::new("/slow/my db")), "/slow/my db");
        assert_eq!(source_of(Path::new("/a,b%2C\\x\n")), "/a%2Cb%252C%5Cx%0A");
        let all: Vec<u8> = (1..=255).collect();
        let path = PathBuf::from(OsString::from_vec(all));
        let source = source_of(&path);
        assert!(!source.contains([',', '\\', '\n']));
        assert_eq!(path_of_source(source.as_bytes()), path);
        assert_eq!(path_of_source(b"/of/an/older%headpond%"), Path::new("/of/an/older%headpond%"));
    }
}
