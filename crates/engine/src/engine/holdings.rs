//! Which objects have most in the pool, and most that the origin has not got: for people who want to know what the
//! flash is used for, how well that is packed, and what a flush is about.

use std::collections::BTreeMap;

use headpond_format::{Identity, UNIT};

use crate::engine::Engine;
use crate::store::object::Object;
use crate::store::objects::RankedBy;

/// What the pool has of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// What it is at the origin.
    pub identity: Identity,
    /// The path that is kept as a hint for the next start.
    pub path: Vec<u8>,
    /// Blocks of 4 KiB, clean or dirty.
    pub blocks: u64,
    /// Those of them that are dirty.
    pub dirty_blocks: u64,
    /// What the blocks take on flash, in bytes: less than they are where they are packed, or zeros.
    pub stored_bytes: u64,
}

impl Engine {
    /// At most so many objects with most blocks, and as many with most dirty ones, each once, in no order. Of two
    /// with about as much, to an eighth, either may be left out. Costs a look at a few times as many objects, however
    /// many there are.
    #[must_use]
    pub fn holdings(&self, most: usize) -> Vec<Holding> {
        let objects = self.store.objects();
        let mut held: BTreeMap<_, _> = objects.top(most, RankedBy::Blocks).into_iter().collect();
        held.extend(objects.top(most, RankedBy::DirtyBlocks));
        let shown = |object: &Object| Holding {
            identity: object.state.identity,
            path: self.store.path_of(object),
            blocks: object.cached_blocks(),
            dirty_blocks: object.dirty_blocks(),
            stored_bytes: object.stored_units * UNIT as u64,
        };
        held.into_values().map(shown).collect()
    }
}
