//! Finds the origin's files of a recovered pool: first where they were, then, for those that
//! are not there any more, by one walk over the origin.
//!
//! Invariants:
//! - A file is recognised by inode number and birth time, never by its name alone.
//! - The walk stays on the origin's device, follows no link, and looks at a file only when its
//!   inode number is one that is missing. It runs only when dirty data is missing its file:
//!   clean data is not worth it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use headpond_base::UnixNanos;
use headpond_format::Stamp;
use headpond_shard::Reopen;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx};
use rustix::io::Errno;

use crate::Refusal;
use crate::marker::MARKER_NAME;

/// A file that a pool remembers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Its inode number.
    pub inode: u64,
    /// Its birth time, 0 where the origin has none.
    pub birth: UnixNanos,
    /// Where it was, below the origin's root; empty if unknown.
    pub path: Vec<u8>,
    /// Worth a walk over the origin.
    pub must: bool,
}

/// A file as it is at the origin now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Inode number.
    pub inode: u64,
    /// Birth time, 0 where the origin has none.
    pub birth: UnixNanos,
    /// Where it is, below the origin's root.
    pub path: Vec<u8>,
    /// Size and times.
    pub stamp: Stamp,
}

/// The origin's root, open, so that nothing mounted over its name later deceives.
#[derive(Debug)]
pub struct OriginRoot {
    path: PathBuf,
    dir: Arc<OwnedFd>,
    device: (u32, u32),
}

const FIELDS: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

impl OriginRoot {
    /// Opens the origin.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        let failed = |error: Errno| Refusal::from_io("open the origin", path, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        let now = statx(&dir, "", AtFlags::EMPTY_PATH, FIELDS).map_err(failed)?;
        Ok(Self { path: path.to_owned(), dir: Arc::new(dir), device: (now.stx_dev_major, now.stx_dev_minor) })
    }

    /// For each wanted file what the origin has of it now.
    ///
    /// # Errors
    /// When the origin cannot be read: then nothing is known, and nothing may be dropped.
    pub fn find(&self, wanted: &[Wanted]) -> Result<Vec<Option<Found>>, Refusal> {
        let mut found: Vec<Option<Found>> = Vec::with_capacity(wanted.len());
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

    fn at_hint(&self, file: &Wanted) -> Result<Option<Found>, Refusal> {
        let path = Path::new(OsStr::from_bytes(&file.path));
        let below = path.components().all(|part| matches!(part, Component::Normal(_)));
        if file.path.is_empty() || !below {
            return Ok(None);
        }
        match statx(&self.dir, path, AtFlags::SYMLINK_NOFOLLOW, FIELDS) {
            Ok(now) => Ok(self.is_it(file, &now).then(|| describe(&file.path, &now))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::INVAL) => Ok(None),
            Err(error) => Err(Refusal::from_io("look at", &self.path.join(path), error)),
        }
    }

    fn is_it(&self, file: &Wanted, now: &Statx) -> bool {
        now.stx_ino == file.inode
            && birth(now) == file.birth
            && (now.stx_dev_major, now.stx_dev_minor) == self.device
            && FileType::from_raw_mode(now.stx_mode.into()) == FileType::RegularFile
    }

    fn walk(
        &self,
        wanted: &[Wanted],
        missing: &mut HashMap<u64, Vec<usize>>,
        found: &mut [Option<Found>],
    ) -> Result<(), Refusal> {
        // Paths and not open directories wait here: a wide tree must not exhaust descriptors.
        let mut waiting: Vec<Vec<u8>> = vec![Vec::new()];
        while let Some(below) = waiting.pop() {
            let shown = self.path.join(OsStr::from_bytes(&below));
            let failed = |error: Errno| Refusal::from_io("search the origin's directory", &shown, error);
            let dir = match self.open_dir(&below) {
                Ok(dir) => dir,
                // Removed or replaced since it was listed.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
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
                let now = match statx(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW, FIELDS) {
                    Ok(now) => now,
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(failed(error)),
                };
                if FileType::from_raw_mode(now.stx_mode.into()) == FileType::Directory {
                    waiting.push(path);
                    continue;
                }
                let hit = candidates
                    .and_then(|indices| indices.iter().copied().find(|&index| self.is_it(&wanted[index], &now)));
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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path: &[u8] = if below.is_empty() { b"." } else { below };
        let dir = openat(&self.dir, path, flags, Mode::empty())?;
        let now = statx(&dir, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        // Another file system mounted below: not the origin's files.
        if (now.stx_dev_major, now.stx_dev_minor) == self.device { Ok(dir) } else { Err(Errno::NOTDIR) }
    }

    /// Opens a found file for writing, so that its dirty data can be destaged.
    ///
    /// # Errors
    /// When it cannot be opened, or is another file by now.
    pub fn open_file(&self, found: &Found) -> Result<File, Refusal> {
        let path = self.path.join(OsStr::from_bytes(&found.path));
        open_found(&self.dir, found).map_err(|error| Refusal::from_io("open for destaging", &path, error))
    }

    /// What opens it again, as long as nothing is renamed.
    #[must_use]
    pub fn again(&self, found: Found) -> Arc<dyn Reopen> {
        Arc::new(Again { dir: self.dir.clone(), found })
    }

    /// Makes durable whatever the origin's file system still has in memory only.
    ///
    /// # Errors
    /// The origin's: some of what was written there may be lost.
    pub fn sync_file_system(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.dir)?)
    }

    /// The origin's root directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn open_found(root: &OwnedFd, found: &Found) -> io::Result<File> {
    let path = Path::new(OsStr::from_bytes(&found.path));
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = openat(root, path, flags, Mode::empty())?;
    let now = statx(&file, "", AtFlags::EMPTY_PATH, FIELDS)?;
    if now.stx_ino != found.inode || birth(&now) != found.birth {
        return Err(io::Error::other("the file was replaced during the start; try again"));
    }
    Ok(file.into())
}

/// A found file that need not stay open.
struct Again {
    dir: Arc<OwnedFd>,
    found: Found,
}

impl Reopen for Again {
    fn reopen(&self, _: bool) -> headpond_base::Result<File> {
        Ok(open_found(&self.dir, &self.found)?)
    }

    fn sync_directory(&self) -> headpond_base::Result<()> {
        let parent = Path::new(OsStr::from_bytes(&self.found.path)).parent();
        let parent = parent.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(&self.dir, parent, flags, Mode::empty()).map_err(io::Error::from)?;
        Ok(rustix::fs::fsync(directory).map_err(io::Error::from)?)
    }
}

impl AsFd for OriginRoot {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

fn join(below: &[u8], name: &[u8]) -> Vec<u8> {
    if below.is_empty() { name.to_vec() } else { [below, b"/", name].concat() }
}

fn describe(path: &[u8], now: &Statx) -> Found {
    let mtime = unix_nanos(now.stx_mtime.tv_sec, now.stx_mtime.tv_nsec);
    let ctime = unix_nanos(now.stx_ctime.tv_sec, now.stx_ctime.tv_nsec);
    Found {
        inode: now.stx_ino,
        birth: birth(now),
        path: path.to_vec(),
        stamp: Stamp { size: now.stx_size, mtime, ctime },
    }
}

fn birth(now: &Statx) -> UnixNanos {
    let known = now.stx_mask & StatxFlags::BTIME.bits() != 0;
    if known { unix_nanos(now.stx_btime.tv_sec, now.stx_btime.tv_nsec) } else { UnixNanos(0) }
}

/// Saturates in the year 2262, as the mount does: times only have to compare equal.
fn unix_nanos(seconds: i64, nanos: u32) -> UnixNanos {
    UnixNanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn wanted(root: &OriginRoot, path: &str, must: bool) -> Wanted {
        let now = statx(root, path, AtFlags::SYMLINK_NOFOLLOW, FIELDS).unwrap();
        Wanted { inode: now.stx_ino, birth: birth(&now), path: path.as_bytes().to_vec(), must }
    }

    fn paths(found: &[Option<Found>]) -> Vec<Option<String>> {
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
