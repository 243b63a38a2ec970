//! The ranges of seeds for the simulator in every run of all checks. `crates/sim/seeds.txt` has them, and says why
//! they move.

use std::path::Path;

const FILE: &str = "crates/sim/seeds.txt";

/// A family of histories of which each run of all checks has some.
pub struct Family {
    /// For people.
    pub name: &'static str,
    /// The word before its range.
    word: &'static str,
    /// The simulator's options.
    pub options: &'static [&'static str],
}

/// All of them. `crates/sim/seeds.txt` says what each is.
pub const FAMILIES: [Family; 8] = [
    Family { name: "simulator", word: "fresh", options: &[] },
    Family { name: "simulator, names", word: "fresh-names", options: &["--names"] },
    Family { name: "simulator, members", word: "fresh-members", options: &["--members", "--upkeep"] },
    Family {
        name: "simulator, rows with parity",
        word: "fresh-parity",
        options: &["--members", "--parity", "--upkeep"],
    },
    Family {
        name: "simulator, members with copies only",
        word: "fresh-copies",
        options: &["--members", "--copies", "--upkeep"],
    },
    Family {
        name: "simulator, numbers given again",
        word: "fresh-reuse",
        options: &["--members", "--reuse", "--upkeep"],
    },
    Family { name: "simulator, other kernels", word: "fresh-kernels", options: &["--kernels"] },
    Family { name: "simulator, several hosts", word: "fresh-hosts", options: &["--hosts"] },
];

impl Family {
    /// Its range, as `cargo xtask sim --seeds` takes it.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn range(&self, root: &Path) -> Result<String, String> {
        let text = std::fs::read_to_string(root.join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
        let word = self.word;
        parse(&text, word).ok_or_else(|| format!("{FILE}: no line `{word} FROM..TO` with at least one seed"))
    }
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
        for family in FAMILIES {
            assert!(family.range(&crate::tree::root()).is_ok(), "{}", family.name);
        }
    }
}
