//! The busiest files and processes, and how much of each file the pool has.

use headpond_base::BLOCK_U64;
use headpond_engine::Holding;
use headpond_format::{FileIdentity, Identity};
use headpond_mount::{FileUse, Insight, ProcessUse};
use serde::{Deserialize, Serialize};

/// The longest path shown. Of a longer one, which a program can make only step by step, the end is shown.
pub const PATH_SHOWN_MAX: usize = 4096;

/// Files and processes shown for each count.
const MOST: usize = 16;

/// The use of a file since the mount. Reads are in whole blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FileNumbers {
    /// Its path below the mount. Empty if it has none any more.
    pub path: String,
    /// Read from flash or memory.
    pub hit_bytes: u64,
    /// Read from the origin.
    pub miss_bytes: u64,
    /// Read from the origin, bypassing the pool.
    pub bypassed_bytes: u64,
    /// Written.
    pub written_bytes: u64,
    /// Bytes that the origin lacks now.
    pub dirty_bytes: u64,
    /// Bytes in the pool now, clean or dirty. None if other files have more, and this is not known.
    pub cached_bytes: Option<u64>,
    /// The bytes of flash that those take: fewer if they are packed, or zeros.
    pub stored_bytes: Option<u64>,
    /// Read and written in the last second.
    pub recent_bytes: u64,
}

/// The use by a process since the mount, or since headpond remembers it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessNumbers {
    /// Its number; 0 for what the kernel does on behalf of no process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Read from flash or memory.
    pub hit_bytes: u64,
    /// Read from the origin.
    pub miss_bytes: u64,
    /// Read from the origin, bypassing the pool.
    pub bypassed_bytes: u64,
    /// Written.
    pub written_bytes: u64,
    /// Read and written in the last second.
    pub recent_bytes: u64,
}

impl FileNumbers {
    /// All bytes read and written.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.hit_bytes + self.miss_bytes + self.bypassed_bytes + self.written_bytes
    }
}

impl ProcessNumbers {
    /// All bytes read and written.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.hit_bytes + self.miss_bytes + self.bypassed_bytes + self.written_bytes
    }
}

/// The files at the top by any count, and the files of which the pool has most, clean or dirty.
pub(crate) fn files(insight: &Insight, holdings: &[Holding]) -> Vec<FileNumbers> {
    join(insight.files(MOST), holdings)
}

fn join(used: Vec<FileUse>, holdings: &[Holding]) -> Vec<FileNumbers> {
    let path = |path: &[u8]| String::from_utf8_lossy(&path[path.len().saturating_sub(PATH_SHOWN_MAX)..]).into_owned();
    let held = |holding: &Holding| FileNumbers {
        path: path(&holding.path),
        dirty_bytes: holding.dirty_blocks * BLOCK_U64,
        cached_bytes: Some(holding.blocks * BLOCK_U64),
        stored_bytes: Some(holding.stored_bytes),
        ..FileNumbers::default()
    };
    let is = |holding: &Holding, file: &FileUse| {
        holding.identity == Identity::File(FileIdentity { inode: file.inode, birth: file.birth })
    };
    let of_used = |file: &FileUse| {
        let holding = holdings.iter().find(|holding| is(holding, file)).map(held).unwrap_or_default();
        FileNumbers {
            path: if file.path.is_empty() { holding.path.clone() } else { path(&file.path) },
            hit_bytes: file.done.hit_bytes,
            miss_bytes: file.done.miss_bytes,
            bypassed_bytes: file.done.bypassed_bytes,
            written_bytes: file.done.written_bytes,
            recent_bytes: file.recent_bytes,
            ..holding
        }
    };
    let unused = holdings.iter().filter(|holding| !used.iter().any(|file| is(holding, file)));
    used.iter().map(of_used).chain(unused.map(held)).collect()
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
    use headpond_door::Totals;

    #[test]
    fn a_file_that_is_only_held_is_shown_and_one_that_is_both_is_shown_once() {
        let used = |inode, path: &[u8]| FileUse {
            inode,
            birth: UnixNanos(1),
            path: path.to_vec(),
            done: Totals { hit_bytes: 8192, ..Totals::default() },
            recent_bytes: 0,
        };
        let held = |inode, path: &[u8]| Holding {
            identity: Identity::File(FileIdentity { inode, birth: UnixNanos(1) }),
            path: path.to_vec(),
            blocks: 4,
            dirty_blocks: 2,
            stored_bytes: 5120,
        };
        let files = join(vec![used(7, b"db/a"), used(9, b"db/c")], &[held(7, b"db/old-name"), held(8, b"db/b")]);
        let shown: Vec<_> = files
            .iter()
            .map(|file| (file.path.as_str(), file.hit_bytes, file.dirty_bytes, file.cached_bytes, file.stored_bytes))
            .collect();
        let (most, few) = ((Some(16384), Some(5120)), (None, None));
        assert_eq!(
            shown,
            [("db/a", 8192, 8192, most.0, most.1), ("db/c", 8192, 0, few.0, few.1), ("db/b", 0, 8192, most.0, most.1)]
        );
    }
}
