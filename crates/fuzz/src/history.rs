//! All content that the files ever had, and which of it may be there now.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use headpond_base::BLOCK;

/// A file's content, in the form for comparisons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) size: u64,
    /// A hash of each block; the last one may be shorter.
    blocks: Vec<u64>,
}

/// What a read returned: `None` for a block that could not be read.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) size: u64,
    pub(crate) blocks: Vec<Option<u64>>,
}

pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl Content {
    fn of(bytes: &[u8]) -> Self {
        Self { size: bytes.len() as u64, blocks: bytes.chunks(BLOCK).map(hash).collect() }
    }

    fn agrees(&self, found: &Found) -> bool {
        let same = |(known, found): (&u64, &Option<u64>)| found.is_none_or(|found| found == *known);
        self.size == found.size
            && self.blocks.len() == found.blocks.len()
            && self.blocks.iter().zip(&found.blocks).all(same)
    }
}

type State = BTreeMap<u64, Content>;

/// All states of the files, in order, by inode number.
#[derive(Clone, Debug)]
pub(crate) struct History {
    states: Vec<State>,
    /// The last synced state, and the synced state before it.
    synced: [usize; 2],
}

impl History {
    pub(crate) fn new(files: &BTreeMap<u64, Vec<u8>>) -> Self {
        let mut history = Self { states: Vec::new(), synced: [0, 0] };
        history.push(files);
        history
    }

    /// Adds one more change.
    pub(crate) fn push(&mut self, files: &BTreeMap<u64, Vec<u8>>) {
        self.states.push(files.iter().map(|(inode, bytes)| (*inode, Content::of(bytes))).collect());
    }

    /// Makes all changes up to here durable. If they changed nothing, as zeros after a file's end, the log got no
    /// batch for them, and its last batch is that of the sync before.
    pub(crate) fn sync(&mut self) {
        let (last, now) = (self.synced[0], self.states.len() - 1);
        let nothing = self.states[last..].iter().all(|state| *state == self.states[last]);
        self.synced = [now, if nothing { self.synced[1] } else { last }];
    }

    /// Drops all states after this one: they never were.
    pub(crate) fn forget_after(&mut self, state: usize) {
        self.states.truncate(state + 1);
        self.synced = [state, state];
    }

    pub(crate) const fn synced(&self) -> usize {
        self.synced[0]
    }

    /// The state of the sync before the last: damage may lose the very last batch unnoticed.
    pub(crate) const fn synced_before(&self) -> usize {
        self.synced[1]
    }

    /// The newest state that agrees with everything found.
    pub(crate) fn newest_like(&self, found: &BTreeMap<u64, Found>) -> Option<usize> {
        let agrees = |state: &State| {
            found.iter().all(|(inode, found)| state.get(inode).is_some_and(|content| content.agrees(found)))
        };
        self.states.iter().rposition(agrees)
    }

    /// Whether each block, by itself, was once like this.
    pub(crate) fn check_blocks(&self, inode: u64, found: &Found) -> Result<(), String> {
        let zeros = hash(&[0; BLOCK]);
        let contents: Vec<&Content> = self.states.iter().filter_map(|state| state.get(&inode)).collect();
        for (index, block) in found.blocks.iter().enumerate() {
            let Some(block) = block else { continue };
            let whole = (index as u64 + 1) * BLOCK as u64 <= found.size;
            let was = |content: &&Content| content.blocks.get(index) == Some(block);
            // A size that never was ends within a block. How much of that block should match is unknown.
            let known_size = whole || contents.iter().any(|content| content.size == found.size);
            if known_size && *block != zeros && !contents.iter().any(was) {
                return Err(format!("block {index} of file {inode} (size {}) has bytes that it never had", found.size));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_of_nothing_new_leaves_the_sync_before_the_last_one() {
        let files = |byte: u8| BTreeMap::from([(1, vec![byte; 10])]);
        let mut history = History::new(&files(0));
        for byte in [1, 2, 2, 3] {
            history.push(&files(byte));
            history.sync();
            let before = [0, 1, 1, 3][history.synced() - 1];
            assert_eq!(history.synced_before(), before, "after change {}", history.synced());
        }
    }
}
