//! Keeps the tree as the next reader wants to find it. One file for each rule.
//!
//! Invariant: a rule reads files, or asks cargo, and reports what is wrong. It changes nothing.

mod circles;
mod clock;
mod headers;
mod instruments;
mod layers;
mod leftovers;
mod length;
mod links;
mod names;
mod results;
mod shown;
mod sizes;
mod types;

use crate::tree::{self, SourceFile};
use std::fmt;
use std::path::Path;

/// Something to put right.
pub struct Complaint {
    path: String,
    line: usize,
    what: String,
}

impl Complaint {
    fn of_file(file: &SourceFile, what: impl Into<String>) -> Self {
        Self::at(file, 0, what)
    }

    /// `index` counts from zero, as `enumerate` does.
    fn of_line(file: &SourceFile, index: usize, what: impl Into<String>) -> Self {
        Self::at(file, index + 1, what)
    }

    fn at(file: &SourceFile, line: usize, what: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, what: what.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Checks every rule on every file.
pub fn check(root: &Path) -> Vec<Complaint> {
    let files = tree::files(root);
    let mut found = Vec::new();
    for file in &files {
        found.extend(clock::check(file));
        found.extend(length::check(file));
        found.extend(headers::check(file));
        found.extend(leftovers::check(file));
        found.extend(names::check(file));
        found.extend(links::check(root, file));
    }
    found.extend(layers::check(&files));
    found.extend(circles::check(&files));
    found.extend(instruments::check());
    found.extend(results::check(root));
    found.extend(shown::check(&files));
    found.extend(sizes::check(&files));
    found.extend(types::check(&files));
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_is_tidy() {
        let found: Vec<String> = super::check(&crate::tree::root()).iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    }
}
