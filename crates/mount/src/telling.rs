//! What the mount tells its operator by itself.

use std::fmt::Display;
use std::io::{self, Write as _};

/// A line on standard error. One that cannot be written is lost: `eprintln!` would panic, and end a mount because its log is
/// on a full disk.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "headpond: {line}");
}
