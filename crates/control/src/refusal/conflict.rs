//! Dirty data that meets a file that others changed at the origin: shown and decided
//! by the operator, never guessed.

use std::fmt;
use std::path::PathBuf;

use crate::wording::{AFew, Size};

/// The most conflicts that are shown one by one.
const SHOWN: usize = 20;

/// One file in conflict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileConflict {
    /// The file, below the origin's root.
    pub path: PathBuf,
    /// What is not as it was left.
    pub differs: String,
    /// How much of it only the pool has.
    pub dirty_bytes: u64,
}

impl fmt::Display for FileConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} dirty in the pool; {}", self.path.display(), Size(self.dirty_bytes), self.differs)
    }
}

/// All files in conflict.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Conflicts(pub Vec<FileConflict>);

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.0.len();
        writeln!(
            f,
            "{files} {} changed at the origin while the pool held newer data for {}:",
            if files == 1 { "file was" } else { "files were" },
            if files == 1 { "it" } else { "them" },
        )?;
        write!(f, "{}", AFew(&self.0, SHOWN))?;
        write!(
            f,
            "Nothing was changed. Decide for each file, or for all, and mount again with:\n  \
             --keep-pool FILE|all     the pool's dirty data is written over what the origin has now\n  \
             --keep-origin FILE|all   the origin's file counts; the pool's dirty data of it is dropped for good"
        )
    }
}

/// What a pool that failed in use still counts as dirty. It could not note any more what was
/// carried to the origin, so some or all of this may be there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leftover(pub Vec<FileConflict>);

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                "  It holds nothing that the origin has not. Replace the flash; or, if you trust it again, make a new pool there: \
                 --format",
            );
        }
        write!(
            f,
            "What could be read of its dirty data was carried to the origin then, which the pool could not note any more. It \
             still counts as dirty:\n{}\
             Nothing was changed. Decide for each file, or for all, and mount again with:\n  \
             --keep-origin FILE|all   the origin's file counts. Right for files that were written after the failure, or \
             carried over\n  \
             --keep-pool FILE|all     the pool's dirty data is written over what the origin has now. Right for files that \
             were not changed since\n\
             The pool is used again then, and its clean data dropped. Or take another --flash, or make a new pool on this one \
             (--format), with --discard-dirty: as --keep-origin all",
            AFew(&self.0, SHOWN)
        )
    }
}

/// What a pool that is not as the origin left it counts as dirty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Doubtful(pub Vec<FileConflict>);

impl fmt::Display for Doubtful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "  What was written and synced in between is not in it. Nothing was changed: put the newest image of the pool back, \
             and mount again.\n",
        )?;
        if self.0.is_empty() {
            return f.write_str(
                "This one holds nothing that the origin has not. If the newest is lost for good, go on with the origin as it is, and \
                 without what only the newest had:\n  \
                 --keep-origin all        this pool is used, without what it has cached\n  \
                 --discard-dirty          this pool is made anew",
            );
        }
        write!(
            f,
            "If that is lost for good: this one holds dirty data of these files:\n{}\
             Decide for each file, or for all, and mount again with:\n  \
             --keep-origin FILE|all   the origin's file counts; this pool's dirty data of it is dropped for good\n  \
             --keep-pool FILE|all     this pool's dirty data is written over what the origin has now, which may be newer\n\
             Or drop all that this pool holds, and make it anew: --discard-dirty",
            AFew(&self.0, SHOWN)
        )
    }
}

/// What the operator decided.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decisions {
    /// Files, below the origin's root, whose dirty data in the pool counts.
    pub keep_pool: Vec<PathBuf>,
    /// Files whose state at the origin counts.
    pub keep_origin: Vec<PathBuf>,
}

/// Which side wins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The dirty data in the pool.
    Pool,
    /// What the origin has.
    Origin,
}

impl Decisions {
    /// The side for one file: named by itself, else by `all`. A file named for both sides, or
    /// `all` for both, decides nothing.
    #[must_use]
    pub fn side(&self, path: &std::path::Path) -> Option<Side> {
        let named = |list: &[PathBuf], name: &std::path::Path| list.iter().any(|entry| entry == name);
        let all = std::path::Path::new("all");
        for name in [path, all] {
            match (named(&self.keep_pool, name), named(&self.keep_origin, name)) {
                (true, false) => return Some(Side::Pool),
                (false, true) => return Some(Side::Origin),
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
        assert_eq!(decisions.side(Path::new("db/t1.ibd")), Some(Side::Origin));
        assert_eq!(decisions.side(Path::new("db/t2.ibd")), Some(Side::Pool));
        assert_eq!(Decisions::default().side(Path::new("db/t1.ibd")), None);
        let both = Decisions { keep_pool: vec!["x".into()], keep_origin: vec!["x".into()] };
        assert_eq!(both.side(Path::new("x")), None, "a contradiction is no decision");
    }

    #[test]
    fn a_conflict_is_shown_with_the_amount_and_both_choices() {
        let shown = Conflicts(vec![FileConflict {
            path: "db/t1.ibd".into(),
            differs: "modified since".into(),
            dirty_bytes: 3 << 20,
        }])
        .to_string();
        for part in ["db/t1.ibd", "3 MiB", "modified since", "--keep-pool", "--keep-origin", "Nothing was changed"] {
            assert!(shown.contains(part), "{part} is missing in:\n{shown}");
        }
    }
}
