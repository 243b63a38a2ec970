//! The busiest files and processes, with what is dirty of them.

use headpond_base::BLOCK_U64;
use headpond_engine::DirtyObject;
use headpond_mount::{FileUse, Insight, ProcessUse};
use serde::{Deserialize, Serialize};

/// Files and processes that are told of each count.
const MOST: usize = 16;

/// What was done with a file since the mount. Reads are in whole blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FileNumbers {
    /// Its path below the mount; empty if it has none any more.
    pub path: String,
    /// Read from flash or memory.
    pub hit_bytes: u64,
    /// Read from the origin.
    pub miss_bytes: u64,
    /// Read from the origin, past the cache.
    pub bypassed_bytes: u64,
    /// Written.
    pub written_bytes: u64,
    /// Newer than the origin now.
    pub dirty_bytes: u64,
    /// Read and written in the last second.
    pub recent_bytes: u64,
}

/// What a process has done since the mount, or since it is remembered.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessNumbers {
    /// Its number; 0 for what the kernel does on nobody's behalf.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Read from flash or memory.
    pub hit_bytes: u64,
    /// Read from the origin.
    pub miss_bytes: u64,
    /// Read from the origin, past the cache.
    pub bypassed_bytes: u64,
    /// Written.
    pub written_bytes: u64,
    /// Read and written in the last second.
    pub recent_bytes: u64,
}

impl FileNumbers {
    /// All that was read and written.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.hit_bytes + self.miss_bytes + self.bypassed_bytes + self.written_bytes
    }
}

impl ProcessNumbers {
    /// All that was read and written.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.hit_bytes + self.miss_bytes + self.bypassed_bytes + self.written_bytes
    }
}

/// The files at the top by any count, and those with most dirty bytes.
pub(crate) fn files(insight: &Insight, dirtiest: &[DirtyObject]) -> Vec<FileNumbers> {
    join(insight.files(MOST), &dirtiest[..dirtiest.len().min(MOST)], dirtiest)
}

fn join(used: Vec<FileUse>, top_dirty: &[DirtyObject], dirtiest: &[DirtyObject]) -> Vec<FileNumbers> {
    let path = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let mut files: Vec<(u64, FileNumbers)> = used
        .into_iter()
        .map(|file| {
            let dirty = dirtiest.iter().find(|dirty| (dirty.inode, dirty.birth) == (file.inode, file.birth));
            let known = if file.path.is_empty() { dirty.map_or(&[][..], |dirty| &dirty.path) } else { &file.path };
            let numbers = FileNumbers {
                path: path(known),
                hit_bytes: file.done.hit_bytes,
                miss_bytes: file.done.miss_bytes,
                bypassed_bytes: file.done.bypassed_bytes,
                written_bytes: file.done.written_bytes,
                dirty_bytes: dirty.map_or(0, |dirty| dirty.blocks * BLOCK_U64),
                recent_bytes: file.recent_bytes,
            };
            (file.inode, numbers)
        })
        .collect();
    for dirty in top_dirty {
        if !files.iter().any(|(inode, _)| *inode == dirty.inode) {
            let dirty_bytes = dirty.blocks * BLOCK_U64;
            files.push((dirty.inode, FileNumbers { path: path(&dirty.path), dirty_bytes, ..FileNumbers::default() }));
        }
    }
    files.into_iter().map(|(_, numbers)| numbers).collect()
}

/// The processes at the top by any count.
pub(crate) fn processes(insight: &Insight) -> Vec<ProcessNumbers> {
    let numbers = |process: ProcessUse| ProcessNumbers {
        pid: process.pid,
        name: process.name,
        hit_bytes: process.done.hit_bytes,
        miss_bytes: process.done.miss_bytes,
        bypassed_bytes: process.done.bypassed_bytes,
        written_bytes: process.done.written_bytes,
        recent_bytes: process.recent_bytes,
    };
    insight.processes(MOST).into_iter().map(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::UnixNanos;
    use headpond_mount::Totals;

    #[test]
    fn a_file_that_is_only_dirty_is_shown_and_one_that_is_both_is_shown_once() {
        let used = FileUse {
            inode: 7,
            birth: UnixNanos(1),
            path: b"db/a".to_vec(),
            done: Totals { hit_bytes: 8192, ..Totals::default() },
            recent_bytes: 0,
        };
        let dirty = |inode, path: &[u8]| DirtyObject { inode, birth: UnixNanos(1), path: path.to_vec(), blocks: 2 };
        let dirtiest = [dirty(7, b"db/old-name"), dirty(8, b"db/b")];
        let files = join(vec![used], &dirtiest, &dirtiest);
        let shown: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.hit_bytes, file.dirty_bytes)).collect();
        assert_eq!(shown, [("db/a", 8192, 8192), ("db/b", 0, 8192)]);
    }
}
