//! Which objects have most that the origin has not got: for people who want to know what a flush is about.

use std::cmp::Reverse;

use headpond_base::UnixNanos;

use crate::engine::Engine;

/// One object with dirty blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirtyObject {
    /// Inode number at the origin.
    pub inode: u64,
    /// Birth time there, 0 where the origin has none.
    pub birth: UnixNanos,
    /// The path that is kept as a hint for the next start.
    pub path: Vec<u8>,
    /// Dirty blocks of 4 KiB.
    pub blocks: u64,
}

impl Engine {
    /// At most so many objects, those with most dirty blocks first. Costs a look at each object that may
    /// be dirty.
    #[must_use]
    pub fn dirtiest(&self, most: usize) -> Vec<DirtyObject> {
        let noted = self.destage.noted().filter_map(|object| self.store.get(object));
        let mut dirty: Vec<_> = noted.filter(|object| object.map.dirty() > 0).collect();
        dirty.sort_unstable_by_key(|object| Reverse(object.map.dirty()));
        dirty.truncate(most);
        let shown = |object: &crate::object::Object| DirtyObject {
            inode: object.state.inode,
            birth: object.state.birth,
            path: object.state.path.clone(),
            blocks: object.map.dirty(),
        };
        dirty.into_iter().map(shown).collect()
    }
}
