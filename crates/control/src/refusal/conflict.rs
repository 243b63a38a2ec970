//! Dirty data of a file that others changed at the origin. headpond shows it, and the operator decides.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::wording::{AFew, HowMany, Size};

/// The most conflicts in a message.
const SHOWN: usize = 20;

/// One file in conflict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileConflict {
    /// The file, below the origin's root.
    pub path: PathBuf,
    /// What differs from what headpond left.
    pub differs: String,
    /// Bytes of it that only the pool has.
    pub dirty_bytes: u64,
}

impl fmt::Display for FileConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} dirty in the pool; {}", self.path.display(), Size(self.dirty_bytes), self.differs)
    }
}

/// All files in conflict.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Conflicts {
    /// The files without a decision.
    pub files: Vec<FileConflict>,
    /// Paths that the operator named but that are not in conflict: most likely typing errors.
    pub unknown: Vec<PathBuf>,
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = HowMany(self.files.len() as u64, "file");
        writeln!(f, "origin: {files} changed at the origin while the pool had newer data:")?;
        write!(f, "{}", AFew(&self.files, SHOWN))?;
        for path in &self.unknown {
            writeln!(f, "You named {}, which is not among the files in conflict.", path.display())?;
        }
        write!(
            f,
            "Nothing was changed. Decide for each file, or for all, and mount again with:\n  \
             --keep-pool FILE|all     write the pool's dirty data over the origin's file\n  \
             --keep-origin FILE|all   keep the origin's file, and drop the pool's dirty data for good"
        )
    }
}

/// The dirty files of a pool that failed in use. The pool could not note which data reached the
/// origin after that, so the origin may have some or all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leftover(pub Vec<FileConflict>);

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                "  The origin has everything. Replace the flash. To make a new pool on it all the same: --format",
            );
        }
        write!(
            f,
            "At the failure headpond wrote to the origin what it could still read. The failed pool could not note that, so it \
             still calls these files dirty:\n{}\
             Nothing was changed. Decide for each file, or for all, and mount again with:\n  \
             --keep-origin FILE|all   keep the origin's file. Choose this if it was written after the failure, or if headpond \
             wrote it then\n  \
             --keep-pool FILE|all     write the pool's dirty data over the origin's file. Choose this if the file has not \
             changed since\n\
             The mount then uses this pool again, without its clean data. To use another flash, or a new pool on this one \
             (--format), add --discard-dirty: it keeps the origin's version of every file",
            AFew(&self.0, SHOWN)
        )
    }
}

/// The dirty files of a pool that is not the one with which the origin was last used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Doubtful(pub Vec<FileConflict>);

impl fmt::Display for Doubtful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "  It lacks what was written and synced since. Nothing was changed. Put the newest image of the pool back, and mount \
             again.\n",
        )?;
        if self.0.is_empty() {
            return f.write_str(
                "If the newest image is lost for good, you can go on with the origin as it is. You lose what only the newest image \
                 had:\n  \
                 --keep-origin all        use this pool, without its clean data\n  \
                 --discard-dirty          make a new pool here",
            );
        }
        write!(
            f,
            "If the newest image is lost for good, this one still holds dirty data of these files:\n{}\
             Decide for each file, or for all, and mount again with:\n  \
             --keep-origin FILE|all   keep the origin's file, and drop this pool's dirty data for good\n  \
             --keep-pool FILE|all     write this pool's dirty data over the origin's file, which may be newer\n\
             To drop everything in this pool and make a new one: --discard-dirty",
            AFew(&self.0, SHOWN)
        )
    }
}

/// The operator's decisions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decisions {
    /// Files whose dirty data in the pool counts. Paths are below the origin's root.
    pub keep_pool: Vec<PathBuf>,
    /// Files whose state at the origin counts.
    pub keep_origin: Vec<PathBuf>,
}

/// Which side wins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WinningSide {
    /// The dirty data in the pool.
    Pool,
    /// What the origin has.
    Origin,
}

impl Decisions {
    /// On files that are named by their paths, or by those below the origin.
    #[must_use]
    pub fn below(origin: &Path, keep_pool: &[PathBuf], keep_origin: &[PathBuf]) -> Self {
        let relative_to_origin =
            |paths: &[PathBuf]| paths.iter().map(|path| path.strip_prefix(origin).unwrap_or(path).to_owned()).collect();
        Self { keep_pool: relative_to_origin(keep_pool), keep_origin: relative_to_origin(keep_origin) }
    }

    /// Named paths that are none of these files.
    pub(crate) fn unknown(&self, files: &[PathBuf]) -> Vec<PathBuf> {
        let named = self.keep_pool.iter().chain(&self.keep_origin);
        named.filter(|name| name.as_os_str() != "all" && !files.contains(name)).cloned().collect()
    }

    /// The side for one file: by its own name, or else by `all`. A file named for both sides, or `all` for both,
    /// decides nothing.
    #[must_use]
    pub fn side(&self, path: &std::path::Path) -> Option<WinningSide> {
        let named = |list: &[PathBuf], name: &std::path::Path| list.iter().any(|entry| entry == name);
        let all = std::path::Path::new("all");
        for name in [path, all] {
            match (named(&self.keep_pool, name), named(&self.keep_origin, name)) {
                (true, false) => return Some(WinningSide::Pool),
                (false, true) => return Some(WinningSide::Origin),
                (true, true) => return None,
                (false, false) => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_file_named_by_itself_overrules_all() {
        let decisions = Decisions { keep_pool: vec!["all".into()], keep_origin: vec!["db/t1.ibd".into()] };
        assert_eq!(decisions.side(Path::new("db/t1.ibd")), Some(WinningSide::Origin));
        assert_eq!(decisions.side(Path::new("db/t2.ibd")), Some(WinningSide::Pool));
        assert_eq!(Decisions::default().side(Path::new("db/t1.ibd")), None);
        let both = Decisions { keep_pool: vec!["x".into()], keep_origin: vec!["x".into()] };
        assert_eq!(both.side(Path::new("x")), None, "a contradiction is no decision");
    }

    #[test]
    fn a_conflict_is_shown_with_the_amount_and_both_choices() {
        let files =
            vec![FileConflict { path: "db/t1.ibd".into(), differs: "modified since".into(), dirty_bytes: 3 << 20 }];
        let decisions = Decisions { keep_pool: vec!["db/t2.ibd".into()], keep_origin: vec!["all".into()] };
        let unknown = decisions.unknown(&["db/t1.ibd".into()]);
        let shown = Conflicts { files, unknown }.to_string();
        for part in [
            "You named db/t2.ibd",
            "db/t1.ibd",
            "3 MiB",
            "modified since",
            "--keep-pool",
            "--keep-origin",
            "Nothing was changed",
        ] {
            assert!(shown.contains(part), "{part} is missing in:\n{shown}");
        }
    }
}
