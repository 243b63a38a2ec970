//! How old a result is: what changed since the program that made it.
//!
//! Invariant: only git is asked, and nothing is changed. What git cannot tell is unknown, and never fresh.

use super::index::Entry;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// Unit tests beside the sources, which make no other program.
const TESTS: [&str; 2] = [":(exclude,glob)**/src/**/tests/**", ":(exclude,glob)**/src/**/tests.rs"];

/// What is known of a result's age.
#[derive(PartialEq, Eq, Debug)]
pub enum Age {
    /// Nothing that it measures has changed.
    Fresh,
    /// So many commits changed what it measures.
    Stale(u64),
    /// Git does not know the commit: a shallow clone, or a source archive.
    Unknown,
}

impl Age {
    /// The age of a result in the tree at `root`, of what is committed there.
    pub fn of(root: &Path, entry: &Entry) -> Self {
        let commits = git(root, &["rev-list", "--count", &format!("{}..HEAD", entry.commit), "--"], &entry.paths);
        match commits.and_then(|count| count.trim().parse().ok()) {
            Some(0) => Self::Fresh,
            Some(commits) => Self::Stale(commits),
            None => Self::Unknown,
        }
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh => f.write_str("fresh"),
            Self::Stale(commits) => write!(f, "{commits}"),
            Self::Unknown => f.write_str("unknown: git does not know the commit"),
        }
    }
}

fn git(root: &Path, question: &[&str], paths: &[String]) -> Option<String> {
    let mut git = Command::new("git");
    // A hook has these, and they may name another repository.
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").arg("-C").arg(root);
    let output = git.args(question).args(paths).args(TESTS).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
