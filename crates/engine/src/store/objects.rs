//! All objects, with sums and rankings over them. These change along with the objects, so no question needs a walk.
//!
//! Invariants:
//! - Access to change an object leaves its name in `touched`. [`Objects::settle`] counts these anew at the end of
//!   each cycle of the engine. After it the sums are what a walk over all objects would give.
//! - Walks are counted (`visited`), so that a test can say which question costs one.
//!
//! Price: a look-up for each object that a cycle touched, mostly one.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

use headpond_base::{Block, ObjectId};

use crate::counted::{ObjectCounts, Rank};
use crate::renames::RenamesSeen;
use crate::store::object::Object;

/// Objects by rank, the highest first; those that have nothing are not in it.
#[derive(Default)]
struct Ranking(BTreeSet<(Reverse<Rank>, ObjectId)>);

impl Ranking {
    fn change(&mut self, object: ObjectId, from: Rank, to: Rank) {
        if from == to {
            return;
        }
        if from > Rank(0) {
            self.0.remove(&(Reverse(from), object));
        }
        if to > Rank(0) {
            self.0.insert((Reverse(to), object));
        }
    }
}

/// What an object is ranked by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RankedBy {
    /// Blocks that the pool has of it.
    Blocks,
    /// Those that are dirty.
    DirtyBlocks,
}

impl RankedBy {
    fn amount(self, object: &Object) -> u64 {
        match self {
            Self::Blocks => object.cached_blocks(),
            Self::DirtyBlocks => object.dirty_blocks(),
        }
    }
}

/// The objects of a pool. Owned by the store.
#[derive(Default)]
pub(crate) struct Objects {
    all: BTreeMap<ObjectId, Object>,
    touched: Vec<ObjectId>,
    map_bytes: u64,
    dirty: u64,
    failing: u64,
    by_blocks: Ranking,
    by_dirty_blocks: Ranking,
    visited: Cell<u64>,
}

impl Objects {
    pub(crate) fn get(&self, id: &ObjectId) -> Option<&Object> {
        self.all.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &ObjectId) -> Option<&mut Object> {
        let object = self.all.get_mut(id)?;
        if self.touched.last() != Some(id) {
            self.touched.push(*id);
        }
        Some(object)
    }

    pub(crate) fn insert(&mut self, id: ObjectId, object: Object) {
        self.remove(&id);
        self.all.insert(id, object);
        self.touched.push(id);
    }

    pub(crate) fn remove(&mut self, id: &ObjectId) -> Option<Object> {
        let object = self.all.remove(id)?;
        self.count(*id, object.counted, ObjectCounts::default());
        // Wakes what waits for this object.
        self.touched.push(*id);
        Some(object)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    fn visit<T>(&self, walk: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        walk.inspect(|_| self.visited.set(self.visited.get() + 1))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ObjectId, &Object)> {
        self.visit(self.all.iter())
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Object> {
        self.visit(self.all.values())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectId> {
        self.visit(self.all.keys())
    }

    pub(crate) fn range(&self, range: impl RangeBounds<ObjectId>) -> impl Iterator<Item = (&ObjectId, &Object)> {
        self.visit(self.all.range(range))
    }

    /// All of them, to be changed: counts them all anew.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Object> {
        self.visited.set(self.visited.get() + self.all.len() as u64);
        self.touched.extend(self.all.keys());
        self.all.values_mut()
    }

    /// The paths of all of them, and what each has seen, which nothing is counted by.
    pub(crate) fn paths_mut(&mut self) -> impl Iterator<Item = (&mut Vec<u8>, &mut RenamesSeen)> {
        self.visited.set(self.visited.get() + self.all.len() as u64);
        self.all.values_mut().map(|object| (&mut object.state.path, &mut object.path_seen))
    }

    /// Bytes that all maps take.
    pub(crate) const fn map_bytes(&self) -> u64 {
        self.map_bytes
    }

    /// Objects that the origin lacks something of.
    pub(crate) const fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Objects whose destage failed last time.
    pub(crate) const fn failing(&self) -> u64 {
        self.failing
    }

    /// Objects ever looked at in walks.
    pub(crate) const fn visited(&self) -> u64 {
        self.visited.get()
    }

    /// At most so many of those with most, and with anything. One that is left out has at most an eighth more than one
    /// that is not. Looks at no more than four times as many.
    pub(crate) fn top(&self, most: usize, by: RankedBy) -> Vec<(ObjectId, &Object)> {
        let ranking = match by {
            RankedBy::Blocks => &self.by_blocks,
            RankedBy::DirtyBlocks => &self.by_dirty_blocks,
        };
        let first = self.visit(ranking.0.iter()).take(most.saturating_mul(4));
        let mut found: Vec<_> = first.filter_map(|(_, id)| Some((*id, self.all.get(id)?))).collect();
        found.sort_by_key(|(_, object)| Reverse(by.amount(object)));
        found.truncate(most);
        found
    }

    /// Objects that were touched since the last time this was settled.
    pub(crate) fn touched(&self) -> &[ObjectId] {
        &self.touched
    }

    /// Counts anew what was touched.
    pub(crate) fn settle(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for id in touched.drain(..) {
            let Some(object) = self.all.get_mut(&id) else { continue };
            let now = counted(object);
            let before = std::mem::replace(&mut object.counted, now);
            self.count(id, before, now);
        }
        self.touched = touched;
    }

    fn count(&mut self, id: ObjectId, before: ObjectCounts, now: ObjectCounts) {
        if before == now {
            return;
        }
        self.map_bytes = self.map_bytes + now.map_bytes - before.map_bytes;
        self.dirty = self.dirty + u64::from(now.dirty) - u64::from(before.dirty);
        self.failing = self.failing + u64::from(now.failing) - u64::from(before.failing);
        self.by_blocks.change(id, before.blocks, now.blocks);
        self.by_dirty_blocks.change(id, before.dirty_blocks, now.dirty_blocks);
    }

    /// Whether the sums and the rankings are what a walk gives, and no block of zeros has a slot: for assertions of
    /// tests, as it is one.
    pub(crate) fn counts_hold(&self) -> bool {
        let (mut map_bytes, mut dirty, mut failing) = (0, 0, 0);
        let (mut blocks, mut dirty_blocks) = (0, 0);
        let each = self.all.iter().all(|(id, object)| {
            let now = counted(object);
            map_bytes += now.map_bytes;
            dirty += u64::from(now.dirty);
            failing += u64::from(now.failing);
            let is_ranked = |ranking: &Ranking, rank| rank == Rank(0) || ranking.0.contains(&(Reverse(rank), *id));
            blocks += usize::from(now.blocks > Rank(0));
            dirty_blocks += usize::from(now.dirty_blocks > Rank(0));
            let zeros = object.zeros.within(Block(0), Block(u64::MAX));
            let apart = zeros.into_iter().all(|(first, end)| object.map.range(first, end).next().is_none());
            apart && is_ranked(&self.by_blocks, now.blocks) && is_ranked(&self.by_dirty_blocks, now.dirty_blocks)
        });
        each && (map_bytes, dirty, failing) == (self.map_bytes, self.dirty, self.failing)
            && (blocks, dirty_blocks) == (self.by_blocks.0.len(), self.by_dirty_blocks.0.len())
    }
}

fn counted(object: &Object) -> ObjectCounts {
    ObjectCounts {
        map_bytes: (object.map.memory() + object.zeros.memory()) as u64,
        dirty: object.is_dirty(),
        failing: object.job.failed().is_some(),
        blocks: Rank::of(object.cached_blocks()),
        dirty_blocks: Rank::of(object.dirty_blocks()),
    }
}
