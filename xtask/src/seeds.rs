//! The ranges of seeds for the simulator in every run of all checks. `crates/sim/seeds.txt` has them, and says why
//! they move.

use std::path::Path;

const FILE: &str = "crates/sim/seeds.txt";

/// The range of histories of requests, as `cargo xtask sim --seeds` takes it.
///
/// # Errors
/// What is wrong with the file.
pub fn fresh(root: &Path) -> Result<String, String> {
    range(root, "fresh")
}

/// The range of histories of names, the same.
///
/// # Errors
/// What is wrong with the file.
pub fn fresh_names(root: &Path) -> Result<String, String> {
    range(root, "fresh-names")
}

/// The range of histories of members, the same.
///
/// # Errors
/// What is wrong with the file.
pub fn fresh_members(root: &Path) -> Result<String, String> {
    range(root, "fresh-members")
}

/// The range of histories of members whose pools make rows with a parity, the same.
///
/// # Errors
/// What is wrong with the file.
pub fn fresh_parity(root: &Path) -> Result<String, String> {
    range(root, "fresh-parity")
}

/// The range of histories of members of which some have copies only, the same.
///
/// # Errors
/// What is wrong with the file.
pub fn fresh_copies(root: &Path) -> Result<String, String> {
    range(root, "fresh-copies")
}

/// The range of histories of members in which numbers are given again, the same.
///
/// # Errors
/// What is wrong with the file.
pub fn fresh_reuse(root: &Path) -> Result<String, String> {
    range(root, "fresh-reuse")
}

/// The range of histories in which another kernel tells birth times, or none, the same.
///
/// # Errors
/// What is wrong with the file.
pub fn fresh_kernels(root: &Path) -> Result<String, String> {
    range(root, "fresh-kernels")
}

/// The range of histories of several hosts, the same.
///
/// # Errors
/// What is wrong with the file.
pub fn fresh_hosts(root: &Path) -> Result<String, String> {
    range(root, "fresh-hosts")
}

fn range(root: &Path, word: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(root.join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
    parse(&text, word).ok_or_else(|| format!("{FILE}: no line `{word} FROM..TO` with at least one seed"))
}

fn parse(text: &str, word: &str) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    let (from, to) = lines.next()?.split_once("..")?;
    let (from, to): (u64, u64) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (from < to && lines.next().is_none()).then(|| format!("{from}..{to}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_read_and_one_that_would_run_nothing_is_refused() {
        let text = "# fresh 1..2\nfresh 5..9\nfresh-names 3..4\n7 --no-faults\n";
        assert_eq!(parse(text, "fresh"), Some("5..9".to_owned()));
        assert_eq!(parse(text, "fresh-names"), Some("3..4".to_owned()));
        for wrong in ["", "5..9", "fresh 9..9", "fresh 5", "fresh x..9", "fresh 1..2\nfresh 3..4"] {
            assert_eq!(parse(wrong, "fresh"), None, "{wrong}");
        }
    }

    #[test]
    fn the_tree_has_ranges() {
        assert!(fresh(&crate::tree::root()).is_ok());
        assert!(fresh_names(&crate::tree::root()).is_ok());
        assert!(fresh_members(&crate::tree::root()).is_ok());
        assert!(fresh_parity(&crate::tree::root()).is_ok());
        assert!(fresh_copies(&crate::tree::root()).is_ok());
        assert!(fresh_hosts(&crate::tree::root()).is_ok());
    }
}
