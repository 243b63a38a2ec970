//! The program that users run has none of the parts that measure and test headpond: no planted bugs, no simulator,
//! and without the lab no modelled device.
//!
//! The rule asks cargo about the program alone. A build of the whole workspace turns on every feature that any crate
//! wants, which is right for tests.

use super::Complaint;
use crate::tree;

/// Parts that no program for users has.
const NEVER: [&str; 4] = ["planted-bugs", "mortal", "headpond-sim", "headpond-fuzz"];
/// Parts that only a program with the lab has.
const WITH_THE_LAB: [&str; 5] =
    ["headpond-lab", "headpond-modelled", "headpond-models", "headpond-measure", "headpond-timed"];

/// Complains about instruments in the program.
pub fn check() -> Vec<Complaint> {
    let without_lab: Vec<&str> = NEVER.into_iter().chain(WITH_THE_LAB).collect();
    [(vec![], NEVER.to_vec()), (vec!["--no-default-features"], without_lab)]
        .into_iter()
        .flat_map(|(arguments, forbidden)| match listing(&arguments) {
            Ok(listing) => found(&listing, &forbidden),
            Err(error) => vec![error],
        })
        .map(|what| Complaint { path: "crates/cli/Cargo.toml".to_owned(), line: 0, what })
        .collect()
}

/// Each package of the program in a line, with its features.
fn listing(arguments: &[&str]) -> Result<String, String> {
    let mut command = tree::cargo();
    command.args(["tree", "-q", "-p", "headpond", "-e", "normal,build", "--prefix", "none", "-f", "{p} {f}"]);
    let output = command.args(arguments).output().map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn found(listing: &str, forbidden: &[&str]) -> Vec<String> {
    let of_line = |line: &str| {
        let is_in = |name: &&&str| line.split([' ', ',']).any(|word| word == **name);
        forbidden.iter().find(is_in).map(|name| format!("the program has '{name}': {line}"))
    };
    let mut found: Vec<String> = listing.lines().filter_map(of_line).collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_and_a_crate_are_found_and_like_names_are_not() {
        let listing = "headpond v0.1.0 (/x/headpond-sim) default,lab\nheadpond-log v0.1.0 (/x/log) a,planted-bugs\n\
                       headpond-sim v0.1.0 (/x/sim)\nheadpond-simple v1.0.0 not-planted-bugs";
        let found = found(listing, &NEVER);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("'planted-bugs'") && found[1].contains("'headpond-sim'"), "{found:?}");
    }

    #[test]
    fn cargo_lists_the_program_with_its_features() {
        let listing = listing(&[]).unwrap();
        assert!(listing.lines().next().is_some_and(|line| line.starts_with("headpond v") && line.contains("lab")));
        assert!(!found(&listing, &["headpond-lab"]).is_empty());
    }
}
