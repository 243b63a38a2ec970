//! A name that could hold anything ends up holding everything.

use super::Complaint;
use crate::tree::SourceFile;

const NAMES: [&str; 8] = ["utils", "util", "misc", "helpers", "helper", "stuff", "common", "shared"];

/// Complains about files and directories whose names mean nothing.
pub fn check(file: &SourceFile) -> Option<Complaint> {
    let name =
        file.path.split('/').map(|part| part.split('.').next().unwrap_or(part)).find(|part| NAMES.contains(part));
    name.map(|name| Complaint::of_file(file, format!("'{name}' says nothing: name it for the one thing that it holds")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_says_nothing_is_found() {
        let complains = |path: &str| check(&SourceFile { path: path.to_owned(), text: String::new() }).is_some();
        assert!(complains("crates/log/src/utils.rs"));
        assert!(complains("crates/log/src/misc/a.rs"));
        assert!(!complains("crates/log/src/segment.rs"));
    }
}
