//! Files that the pool brought back with something that the origin lacks. The mount finds them wherever they are
//! renamed to from now on, even if the kernel has not asked for them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use headpond_base::{Errno, Result};

use crate::inode::Inode;
use crate::known::KnownObject;
use crate::names::Names;
use crate::{ContentStore, FileKey, FileKind, Freshness, Tree};

impl<T: Tree, P: ContentStore<T>> Names<T, P> {
    /// Call it before anything is renamed. A file that is no longer in its place is left to the part that found it
    /// before.
    pub async fn adopt(&self, recovered: &[KnownObject]) {
        // Held to the end, as the kernel would, so that each directory is looked at once.
        let mut directories: BTreeMap<&[u8], Arc<Inode<T>>> = BTreeMap::new();
        for known in recovered.iter().filter(|known| !known.path.is_empty()) {
            // Failed: it is found by its path as long as nothing is renamed, and then as after a crash.
            let _ = self.adopt_one(known, &mut directories).await;
        }
        for directory in directories.values() {
            self.forget(directory.node, 1).await;
        }
    }

    async fn adopt_one<'a>(
        &self,
        known: &'a KnownObject,
        directories: &mut BTreeMap<&'a [u8], Arc<Inode<T>>>,
    ) -> Result<()> {
        let (above, name) = split(&known.path);
        let directory = self.directory(above, directories).await?;
        let inode = self.enter(&directory, name).await?;
        if inode.key == (FileKey { inode: known.inode, birth: known.birth }) {
            self.pond.reopened_by(known.object, self.again(&inode));
            let untouched = inode.look().await.is_ok_and(|found| self.is_opened_untouched(&found));
            if !untouched && let Ok(change) = self.change_status(&inode).await {
                // It is opened, and kept open, with word to the log.
                change.end().await;
            }
        }
        self.forget(inode.node, 1).await;
        Ok(())
    }

    async fn directory<'a>(
        &self,
        path: &'a [u8],
        seen: &mut BTreeMap<&'a [u8], Arc<Inode<T>>>,
    ) -> Result<Arc<Inode<T>>> {
        // Up to a known directory, and down again: paths are bounded, but as deep as they are long.
        let mut steps = Vec::new();
        let mut at = path;
        let mut directory = loop {
            if at.is_empty() {
                break self.root().clone();
            }
            if let Some(inode) = seen.get(at) {
                break inode.clone();
            }
            let (above, name) = split(at);
            steps.push((at, name));
            at = above;
        };
        while let Some((path, name)) = steps.pop() {
            directory = self.enter(&directory, name).await?;
            if directory.kind != FileKind::Directory {
                self.forget(directory.node, 1).await;
                return Err(Errno::NOTDIR);
            }
            seen.insert(path, directory.clone());
        }
        Ok(directory)
    }

    /// Adds what has this name, with one lookup.
    async fn enter(&self, directory: &Arc<Inode<T>>, name: &OsStr) -> Result<Arc<Inode<T>>> {
        let path = self.tree.find(&*directory.reach().await?, name).await?;
        let found = self.tree.look(&path, Freshness::Usual).await?;
        self.take_in(path, &found, (directory, name)).await
    }
}

/// Splits a path into the directory and the name in it.
fn split(path: &[u8]) -> (&[u8], &OsStr) {
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&path[..0], path),
    };
    (above, OsStr::from_bytes(name))
}
