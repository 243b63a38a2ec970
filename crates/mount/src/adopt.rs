//! Files that the pool brought back with something that the origin has not got yet: the mount finds them wherever they
//! are renamed to from now on, though the kernel has not asked for them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::front::{Front, Outcome};
use crate::inodes::{Inode, stat};
use crate::known::{FileKey, KnownObject};
use crate::open::Again;
use crate::places::open_path;

impl Front {
    /// To be called before anything is renamed. One that is not where it was is left to who found it before.
    pub(crate) fn adopt(&self, recovered: &[KnownObject]) {
        // Held as by the kernel up to the end, so that each directory is looked at once.
        let mut directories: HashMap<&[u8], Arc<Inode>> = HashMap::new();
        for known in recovered.iter().filter(|known| !known.path.is_empty()) {
            let (above, name) = split(&known.path);
            let adopted = self.directory(above, &mut directories).and_then(|directory| {
                let inode = self.enter(&directory, name)?;
                if inode.key == (FileKey { inode: known.inode, birth: known.birth }) {
                    let again = Again::of(&self.inodes.home, &inode, self.read_only);
                    self.pond.reopened_by(known.object, again);
                }
                self.forget(inode.node, 1);
                Ok(())
            });
            // It is found by its path as long as nothing is renamed, and then as after a crash.
            let _ = adopted;
        }
        directories.values().for_each(|directory| self.forget(directory.node, 1));
    }

    fn directory<'a>(&self, path: &'a [u8], seen: &mut HashMap<&'a [u8], Arc<Inode>>) -> Outcome<Arc<Inode>> {
        // Up to one that was seen, and down again: paths are bounded, but as deep as they are long.
        let mut steps = Vec::new();
        let mut at = path;
        let mut directory = loop {
            if at.is_empty() {
                break self.inodes.root().clone();
            }
            if let Some(inode) = seen.get(at) {
                break inode.clone();
            }
            let (above, name) = split(at);
            steps.push((at, name));
            at = above;
        };
        while let Some((path, name)) = steps.pop() {
            directory = self.enter(&directory, name)?;
            if directory.kind != FileType::Directory {
                self.forget(directory.node, 1);
                return Err(Errno::NOTDIR);
            }
            seen.insert(path, directory.clone());
        }
        Ok(directory)
    }

    /// Takes in what has this name, with one lookup.
    fn enter(&self, directory: &Arc<Inode>, name: &OsStr) -> Outcome<Arc<Inode>> {
        let path = open_path(&directory.path()?, name)?;
        let found = stat(&path, c"")?;
        self.take_in(path, &found, (directory, name))
    }
}

/// The directory and the name in it.
fn split(path: &[u8]) -> (&[u8], &OsStr) {
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&path[..0], path),
    };
    (above, OsStr::from_bytes(name))
}
