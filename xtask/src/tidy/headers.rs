//! Every source file begins with a header that says in words what the file keeps true.

use super::Complaint;
use crate::tree::SourceFile;

/// A header shorter than this says nothing.
const WORDS_MIN: usize = 4;

/// Complains about Rust files without `//!` and scripts without a comment at their top.
pub fn check(file: &SourceFile) -> Option<Complaint> {
    let header = if file.is_rust() {
        leading(file.text.lines(), "//!")
    } else if file.is_script() {
        leading(file.text.lines().skip(1), "#")
    } else {
        return None;
    };
    (header.split_whitespace().count() < WORDS_MIN)
        .then(|| Complaint::of_file(file, "does not open with a comment that says what the file is for"))
}

fn leading<'a>(lines: impl Iterator<Item = &'a str>, mark: &str) -> String {
    let header: Vec<&str> = lines.map_while(|line| line.strip_prefix(mark)).collect();
    header.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complains(path: &str, text: &str) -> bool {
        check(&SourceFile { path: path.to_owned(), text: text.to_owned() }).is_some()
    }

    #[test]
    fn a_file_without_a_header_is_found() {
        assert!(complains("a.rs", "use std::fmt;\n"));
        assert!(complains("a.rs", "//! x\nfn main() {}\n"));
        assert!(!complains("a.rs", "//! What this file keeps true.\nfn main() {}\n"));
        assert!(complains("run", "#!/bin/sh\nset -e\n"));
        assert!(!complains("run", "#!/bin/sh\n# Runs what needs to run.\nset -e\n"));
        assert!(!complains("notes.txt", "anything\n"));
    }
}
