//! Finds the origin's files of a recovered pool: first where they were, then the missing ones by one walk over the
//! origin.
//!
//! Invariants:
//! - A file is recognised by inode number and birth time, never by its name alone.
//! - Every name is reached from the origin's root by descriptor. No link is followed, at the end or on the way.
//! - The walk stays on the origin's device, and looks at a file only if its inode number is a missing one. It runs
//!   only if dirty data lacks its file: clean data is not worth it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use headpond_base::UnixNanos;
use headpond_format::{FileIdentity, Stamp};
use headpond_shard::{Mounts, Reopen, open_beneath, reopen};
use rustix::fs::{Dir, FileType, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::origin::OriginRoot;
use crate::ownership::MARKER_NAME;
use crate::refusal::Refusal;

/// A file that a pool remembers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Its inode number.
    pub inode: u64,
    /// Its birth time, 0 if the origin has none.
    pub birth: UnixNanos,
    /// Its last path below the origin's root. Empty if unknown.
    pub path: Vec<u8>,
    /// Whether it justifies a walk over the origin.
    pub must: bool,
}

/// A file as it is at the origin now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginFile {
    /// Inode number.
    pub inode: u64,
    /// Birth time, 0 if the origin has none.
    pub birth: UnixNanos,
    /// Its path below the origin's root.
    pub path: Vec<u8>,
    /// Size and times.
    pub stamp: Stamp,
}

/// Files of the origin that are open and have no name: the last worker had them open.
#[derive(Debug, Default)]
pub(crate) struct NamelessFiles(Vec<(OwnedFd, Statx)>);

impl NamelessFiles {
    /// Looks at each of them.
    ///
    /// # Errors
    /// If the origin does not answer.
    pub(crate) fn of(files: Vec<OwnedFd>, root: &OriginRoot) -> io::Result<Self> {
        let look = |file: OwnedFd| root.look_at(&file, c"").map(|found| (file, found));
        Ok(Self(files.into_iter().map(look).collect::<Result<_, _>>()?))
    }

    fn get(&self, inode: u64, born: UnixNanos) -> Option<&(OwnedFd, Statx)> {
        let wanted = FileIdentity { inode, birth: born };
        self.0.iter().find(|(_, found)| file_identity(found).may_be(wanted) && is_file(found))
    }

    /// The wanted file, if it is one of them.
    pub(crate) fn find(&self, wanted: &Wanted) -> Option<OriginFile> {
        self.get(wanted.inode, wanted.birth).map(|(_, found)| describe(&[], found))
    }

    /// Opens one of them for writing. `None` if it is none of them.
    ///
    /// # Errors
    /// The origin's.
    pub(crate) fn open(&self, found: &OriginFile) -> io::Result<Option<File>> {
        let open = self.get(found.inode, found.birth);
        Ok(open.map(|(file, _)| reopen(file, OFlags::RDWR)).transpose()?.map(File::from))
    }
}

impl OriginRoot {
    /// The origin's present file for each wanted one.
    ///
    /// # Errors
    /// If the origin cannot be read. Then nothing is known, and nothing may be dropped.
    pub fn find(&self, wanted: &[Wanted]) -> Result<Vec<Option<OriginFile>>, Refusal> {
        let mut found: Vec<Option<OriginFile>> = Vec::with_capacity(wanted.len());
        for file in wanted {
            found.push(self.at_hint(file)?);
        }
        if wanted.iter().zip(&found).any(|(file, found)| file.must && found.is_none()) {
            let mut missing: HashMap<u64, Vec<usize>> = HashMap::new();
            for (index, file) in wanted.iter().enumerate().filter(|(index, _)| found[*index].is_none()) {
                missing.entry(file.inode).or_default().push(index);
            }
            self.walk(wanted, &mut missing, &mut found)?;
        }
        Ok(found)
    }

    fn at_hint(&self, file: &Wanted) -> Result<Option<OriginFile>, Refusal> {
        let path = Path::new(OsStr::from_bytes(&file.path));
        let below = path.components().all(|part| matches!(part, Component::Normal(_)));
        if file.path.is_empty() || !below {
            return Ok(None);
        }
        let looked = open_beneath(self, path, OFlags::PATH | OFlags::NOFOLLOW, Mounts::Entered)
            .and_then(|place| self.look_at(&place, c""));
        match looked {
            Ok(now) => Ok(self.is_it(file, &now).then(|| describe(&file.path, &now))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG | Errno::INVAL) => {
                Ok(None)
            }
            Err(error) => Err(Refusal::from_io("look at", &self.path().join(path), error)),
        }
    }

    fn is_it(&self, file: &Wanted, now: &Statx) -> bool {
        file_identity(now).may_be(FileIdentity { inode: file.inode, birth: file.birth })
            && (now.stx_dev_major, now.stx_dev_minor) == self.device()
            && is_file(now)
    }

    fn walk(
        &self,
        wanted: &[Wanted],
        missing: &mut HashMap<u64, Vec<usize>>,
        found: &mut [Option<OriginFile>],
    ) -> Result<(), Refusal> {
        // Paths wait here, not open directories: a wide tree must not use up the descriptors.
        let mut waiting: Vec<Vec<u8>> = vec![Vec::new()];
        while let Some(below) = waiting.pop() {
            let shown = self.path().join(OsStr::from_bytes(&below));
            let failed = |error: Errno| Refusal::from_io("search the origin's directory", &shown, error);
            let dir = match self.open_dir(&below) {
                Ok(dir) => dir,
                // Removed or replaced after it was listed.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => continue,
                Err(error) => return Err(failed(error)),
            };
            let listing = Dir::read_from(&dir).map_err(failed)?;
            for entry in listing {
                let entry = entry.map_err(failed)?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") || (below.is_empty() && name == MARKER_NAME.as_bytes()) {
                    continue;
                }
                let path = join(&below, name);
                let kind = entry.file_type();
                let candidates = missing.get(&entry.ino());
                if kind == FileType::Directory {
                    waiting.push(path);
                    continue;
                }
                if candidates.is_none() && kind != FileType::Unknown {
                    continue;
                }
                let now = match self.look_at(&dir, entry.file_name()) {
                    Ok(now) => now,
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(failed(error)),
                };
                if FileType::from_raw_mode(now.stx_mode.into()) == FileType::Directory {
                    waiting.push(path);
                    continue;
                }
                // Of several that once had the number, the one that was born then.
                let rank = |index: &usize| wanted[*index].birth == birth(&now);
                let hit = candidates.and_then(|indices| {
                    let possible = indices.iter().copied().filter(|&index| self.is_it(&wanted[index], &now));
                    possible.max_by_key(rank)
                });
                if let Some(index) = hit {
                    found[index] = Some(describe(&path, &now));
                    missing.remove(&now.stx_ino);
                    if missing.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn open_dir(&self, below: &[u8]) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let dir = open_beneath(self, Path::new(OsStr::from_bytes(below)), flags, Mounts::Entered)?;
        let now = self.look_at(&dir, c"")?;
        // Another file system, or a part of this one with numbers of its own: its files are not the origin's.
        if (now.stx_dev_major, now.stx_dev_minor) == self.device() { Ok(dir) } else { Err(Errno::NOTDIR) }
    }

    /// Opens a found file for writing, so that destage can write its dirty data.
    ///
    /// # Errors
    /// If it cannot be opened, or is another file by now.
    pub fn open_file(&self, found: &OriginFile) -> Result<File, Refusal> {
        let path = Path::new(OsStr::from_bytes(&found.path));
        self.open_found(found).map_err(|error| Refusal::from_io("open for destaging", &self.path().join(path), error))
    }

    /// How to open it again, as long as nothing is renamed.
    #[must_use]
    pub fn again(self: &Arc<Self>, found: OriginFile) -> Arc<dyn Reopen> {
        Arc::new(Again { root: self.clone(), found })
    }

    fn open_found(&self, found: &OriginFile) -> io::Result<File> {
        let path = Path::new(OsStr::from_bytes(&found.path));
        let open = || {
            let place = open_beneath(self, path, OFlags::PATH | OFlags::NOFOLLOW, Mounts::Entered)?;
            let now = self.look_at(&place, c"")?;
            let is_it = now.stx_ino == found.inode && birth(&now) == found.birth && is_file(&now);
            if is_it { reopen(&place, OFlags::RDWR).map(Some) } else { Ok(None) }
        };
        match open() {
            Ok(Some(file)) => Ok(file.into()),
            Ok(None) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                Err(io::Error::other("another process replaced the file during the start. Mount again"))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A found file that need not stay open.
struct Again {
    root: Arc<OriginRoot>,
    found: OriginFile,
}

impl Reopen for Again {
    fn reopen(&self, _: bool) -> headpond_base::Result<File> {
        Ok(self.root.open_found(&self.found)?)
    }
}

fn is_file(now: &Statx) -> bool {
    FileType::from_raw_mode(now.stx_mode.into()) == FileType::RegularFile
}

fn join(below: &[u8], name: &[u8]) -> Vec<u8> {
    if below.is_empty() { name.to_vec() } else { [below, b"/", name].concat() }
}

fn describe(path: &[u8], now: &Statx) -> OriginFile {
    let mtime = unix_nanos(now.stx_mtime.tv_sec, now.stx_mtime.tv_nsec);
    let ctime = unix_nanos(now.stx_ctime.tv_sec, now.stx_ctime.tv_nsec);
    OriginFile {
        inode: now.stx_ino,
        birth: birth(now),
        path: path.to_vec(),
        stamp: Stamp { size: now.stx_size, mtime, ctime },
    }
}

fn file_identity(now: &Statx) -> FileIdentity {
    FileIdentity { inode: now.stx_ino, birth: birth(now) }
}

fn birth(now: &Statx) -> UnixNanos {
    let known = now.stx_mask & StatxFlags::BTIME.bits() != 0;
    if known { unix_nanos(now.stx_btime.tv_sec, now.stx_btime.tv_nsec) } else { UnixNanos(0) }
}

/// Saturates in the year 2262, as the mount does: times need only compare equal.
fn unix_nanos(seconds: i64, nanos: u32) -> UnixNanos {
    UnixNanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn wanted(root: &OriginRoot, path: &str, must: bool) -> Wanted {
        let now = root.look_at(root, path).unwrap();
        Wanted { inode: now.stx_ino, birth: birth(&now), path: path.as_bytes().to_vec(), must }
    }

    fn paths(found: &[Option<OriginFile>]) -> Vec<Option<String>> {
        found.iter().map(|one| one.as_ref().map(|one| String::from_utf8(one.path.clone()).unwrap())).collect()
    }

    #[test]
    fn files_are_found_where_they_were_and_where_they_went() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("db/deep")).unwrap();
        for name in ["db/stays", "db/moves", "db/goes", "db/replaced"] {
            fs::write(at(name), name).unwrap();
        }
        let root = OriginRoot::open(dir.path()).unwrap();
        let files: Vec<Wanted> =
            ["db/stays", "db/moves", "db/goes", "db/replaced"].iter().map(|name| wanted(&root, name, true)).collect();
        fs::rename(at("db/moves"), at("db/deep/moved")).unwrap();
        fs::remove_file(at("db/goes")).unwrap();
        fs::write(at("db/new"), "new").unwrap();
        fs::rename(at("db/replaced"), at("db/deep/aside")).unwrap();
        fs::write(at("db/replaced"), "another file under the old name").unwrap();

        let found = root.find(&files).unwrap();
        let expected = [Some("db/stays"), Some("db/deep/moved"), None, Some("db/deep/aside")];
        assert_eq!(paths(&found), expected.map(|path| path.map(str::to_owned)));
        assert_eq!(found[1].as_ref().unwrap().stamp.size, 8);
        let file = root.open_file(found[1].as_ref().unwrap()).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8);
    }

    /// A kernel that tells birth times, after one that did not.
    #[test]
    fn a_file_is_found_although_its_birth_was_not_known_before() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        ["stays", "moves", "other"].iter().for_each(|name| fs::write(at(name), name).unwrap());
        let root = OriginRoot::open(dir.path()).unwrap();
        let mut files = ["stays", "moves", "other"].map(|name| wanted(&root, name, true));
        fs::rename(at("moves"), at("moved")).unwrap();
        (files[0].birth, files[1].birth) = (UnixNanos(0), UnixNanos(0));
        files[2].birth.0 += 1;
        let found = root.find(&files).unwrap();
        assert_eq!(paths(&found), [Some("stays"), Some("moved"), None].map(|path| path.map(str::to_owned)));
        let born = wanted(&root, "stays", true).birth;
        assert_eq!(found[0].as_ref().unwrap().birth, born, "it is known by that from now on");
    }

    #[test]
    fn clean_data_alone_is_not_worth_a_walk() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "a").unwrap();
        let root = OriginRoot::open(dir.path()).unwrap();
        let files = [wanted(&root, "a", false)];
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        assert_eq!(paths(&root.find(&files).unwrap()), [None]);
    }

    #[test]
    fn paths_that_lead_out_of_the_origin_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("origin")).unwrap();
        fs::write(dir.path().join("outside"), "x").unwrap();
        let outer = OriginRoot::open(dir.path()).unwrap();
        let root = OriginRoot::open(&dir.path().join("origin")).unwrap();
        let mut file = wanted(&outer, "outside", true);
        for path in ["../outside", "/etc/passwd", ""] {
            file.path = path.as_bytes().to_vec();
            assert_eq!(paths(&root.find(std::slice::from_ref(&file)).unwrap()), [None], "{path}");
        }
    }
}
