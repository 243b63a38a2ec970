//! Renames of directories, and what they make of the paths of the objects below.
//!
//! Invariants:
//! - A rename looks at no object. A path follows the renames that it has not seen when it is needed.
//! - A path that has seen all has nothing left to follow: once all have, the renames are forgotten.
//!
//! Price: eight bytes an object, and a walk over all objects each time there are more renames than objects.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use headpond_format::OBJECT_PATH_MAX;

/// With fewer renames than this nobody walks to be rid of them.
const KEPT: usize = 1024;

/// How many renames a path has seen.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RenamesSeen(u64);

/// Owned by the store.
#[derive(Default)]
pub(crate) struct Renames {
    /// Each with its number, in order.
    by_from: BTreeMap<Vec<u8>, Vec<(RenamesSeen, Vec<u8>)>>,
    /// The last component of each that was renamed.
    names: BTreeSet<Vec<u8>>,
    kept: usize,
    now: RenamesSeen,
}

/// Where paths that had seen so many renames are now.
#[derive(Default)]
pub(crate) struct Followed(HashMap<(Vec<u8>, RenamesSeen), Vec<u8>>);

impl Renames {
    /// What a path has seen that is right now.
    pub(crate) const fn now(&self) -> RenamesSeen {
        self.now
    }

    /// Paths at or below `from` are at or below `to` from now on.
    pub(crate) fn add(&mut self, from: &[u8], to: &[u8]) {
        if from.is_empty() {
            return;
        }
        self.by_from.entry(from.to_vec()).or_default().push((self.now, to.to_vec()));
        self.names.insert(split(from).1.to_vec());
        self.kept += 1;
        self.now.0 += 1;
    }

    /// Whether no path has anything to follow.
    pub(crate) const fn none(&self) -> bool {
        self.kept == 0
    }

    /// Whether so many objects' paths should all follow now, and the renames be forgotten.
    pub(crate) fn are_many(&self, objects: usize) -> bool {
        self.kept > objects.max(KEPT)
    }

    /// All paths have seen all.
    pub(crate) fn forget(&mut self) {
        *self = Self { now: self.now, ..Self::default() };
    }

    /// Brings a path up to date that had seen so many renames.
    pub(crate) fn follow(&self, path: &mut Vec<u8>, seen: &mut RenamesSeen, followed: &mut Followed) {
        if *seen != self.now {
            *path = self.followed(path, *seen, followed);
            *seen = self.now;
        }
    }

    fn followed(&self, path: &[u8], seen: RenamesSeen, known: &mut Followed) -> Vec<u8> {
        let (mut path, mut seen) = (path.to_vec(), seen);
        loop {
            let (directory, name) = split(&path);
            if !self.names.contains(name) {
                // It goes where its directory goes, and so do all others there: one search for all of them.
                if directory.is_empty() {
                    return path;
                }
                let key = (directory.to_vec(), seen);
                let directory = if let Some(found) = known.0.get(&key) {
                    found.clone()
                } else {
                    let found = self.followed(directory, seen, known);
                    known.0.insert(key, found.clone());
                    found
                };
                // One that has no path has none below it either.
                return if directory.is_empty() {
                    directory
                } else {
                    kept_path(&[&directory, &b"/"[..], name].concat())
                };
            }
            let Some((number, to, below)) = self.next(&path, seen) else { return path };
            path = kept_path(&[to, &path[below..]].concat());
            seen = RenamesSeen(number.0 + 1);
        }
    }

    /// The first rename from `seen` on that concerns a path: its number, where to, and where in the path what stays
    /// begins.
    fn next(&self, path: &[u8], seen: RenamesSeen) -> Option<(RenamesSeen, &[u8], usize)> {
        let ends = (1..=path.len()).filter(|end| path.get(*end).is_none_or(|byte| *byte == b'/'));
        let first = |end: usize| {
            let renames = self.by_from.get(&path[..end])?;
            let (number, to) = renames.get(renames.partition_point(|(number, _)| *number < seen))?;
            Some((*number, to.as_slice(), end))
        };
        ends.filter_map(first).min_by_key(|(number, ..)| *number)
    }
}

/// A path's directory, empty if it has none, and its last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

/// A path as far as it is kept: one that is too long is found again by inode number.
pub(crate) fn kept_path(path: &[u8]) -> Vec<u8> {
    if path.len() <= OBJECT_PATH_MAX { path.to_vec() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one rename makes of a path.
    fn renamed(path: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
        match path.strip_prefix(from) {
            Some(below) if below.is_empty() || below.starts_with(b"/") => [to, below].concat(),
            _ => path.to_vec(),
        }
    }

    #[test]
    fn a_path_that_follows_late_is_where_it_would_be_had_it_followed_each_rename() {
        let mut state = 1_u64;
        let mut below = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        let mut moves = 0;
        for _ in 0..300 {
            let mut renames = Renames::default();
            let mut paths: Vec<(Vec<u8>, RenamesSeen, Vec<u8>)> = Vec::new();
            for _ in 0..below(60) {
                let mut path = || -> Vec<u8> {
                    let parts: Vec<&[u8]> =
                        (0..=below(3)).map(|_| [&b"a"[..], b"b", b"ab"][below(3) as usize]).collect();
                    parts.join(&b'/')
                };
                let (one, other) = (path(), path());
                if below(2) == 0 {
                    paths.push((one.clone(), renames.now(), one));
                } else {
                    renames.add(&one, &other);
                    paths.iter_mut().for_each(|(_, _, at_once)| *at_once = renamed(at_once, &one, &other));
                }
            }
            let mut followed = Followed::default();
            for (mut path, mut seen, at_once) in paths {
                moves += u32::from(path != at_once);
                renames.follow(&mut path, &mut seen, &mut followed);
                assert_eq!((&path, seen), (&at_once, renames.now()));
            }
        }
        assert!(moves > 1000, "{moves}");
    }
}
