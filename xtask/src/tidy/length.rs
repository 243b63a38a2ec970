//! A file that is longer than a reader's patience is more than one idea.

use super::Complaint;
use crate::tree::SourceFile;

/// The most lines of a source file. Most should stay under half of it.
const LINES_MAX: usize = 800;

/// Complains about source files that are too long.
pub fn check(file: &SourceFile) -> Option<Complaint> {
    let lines = file.text.lines().count();
    ((file.is_rust() || file.is_script()) && lines > LINES_MAX)
        .then(|| Complaint::of_file(file, format!("{lines} lines, more than {LINES_MAX}: more than one idea")))
}
