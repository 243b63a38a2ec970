//! Each published result has a row in the index of results, and each row its result.

use super::Complaint;
use crate::results::{self, INDEX};
use std::path::Path;

/// Complains about what is wrong with the index.
pub fn check(root: &Path) -> impl Iterator<Item = Complaint> {
    let faults = results::check(root).into_iter();
    faults.map(|fault| Complaint { path: INDEX.to_owned(), line: fault.line, what: fault.what })
}
