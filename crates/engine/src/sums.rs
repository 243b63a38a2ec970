//! What the pool holds in all, and how much of that changed since the start.
//!
//! Invariant: the sums over slots and extents are what a walk over all maps would count.

use headpond_base::Class;
use headpond_map::Slot;

/// Owned by the store, which tells of each slot that comes or goes. One unit is 512 bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sums {
    cached_blocks: u64,
    dirty_blocks: u64,
    kept_blocks: u64,
    stored_units: u64,
    kept_units: u64,
    dirty_units: u64,
    packed_blocks: u64,
    blank_blocks: u64,
    class_blocks: [u64; Class::COUNT],
    /// Each counts as one block that is cached and dirty.
    zero_extents: u64,
    dirtied_blocks: u64,
    slots_changed: u64,
}

impl Sums {
    /// Recovery found a slot.
    pub(crate) fn found(&mut self, slot: Slot) {
        self.count(slot, 1);
    }

    /// A block has another slot than before, or none any more.
    pub(crate) fn changed(&mut self, before: Option<Slot>, now: Option<Slot>) {
        self.slots_changed += 1;
        if let Some(slot) = now {
            self.count(slot, 1);
            self.dirtied_blocks += u64::from(slot.dirty && before.is_none_or(|before| !before.dirty));
        }
        if let Some(slot) = before {
            self.count(slot, -1);
        }
    }

    /// An object had so many extents of zeros, and has so many now.
    pub(crate) const fn zeros_changed(&mut self, before: u64, now: u64) {
        self.zero_extents = self.zero_extents + now - before;
        self.dirtied_blocks += now.saturating_sub(before);
    }

    fn count(&mut self, slot: Slot, by: i32) {
        let units = by * slot.units().cast_signed();
        add(&mut self.cached_blocks, by);
        add(&mut self.stored_units, units);
        add(&mut self.packed_blocks, if slot.packed { by } else { 0 });
        add(&mut self.blank_blocks, if slot.is_blank() { by } else { 0 });
        add(&mut self.class_blocks[slot.class.index()], by);
        if slot.dirty {
            add(&mut self.dirty_blocks, by);
            add(&mut self.dirty_units, units);
        } else if slot.kept {
            add(&mut self.kept_blocks, by);
            add(&mut self.kept_units, units);
        }
    }

    /// Blocks that have a slot, and extents of zeros, which take as much memory as blocks do.
    pub(crate) const fn cached_blocks(&self) -> u64 {
        self.cached_blocks + self.zero_extents
    }

    /// Blocks that the origin has not, counted alike: zeros take no flash, however many they are.
    pub(crate) const fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks + self.zero_extents
    }

    /// Clean blocks that are worth keeping.
    pub(crate) const fn kept_blocks(&self) -> u64 {
        self.kept_blocks
    }

    /// What the cached blocks take on flash.
    pub(crate) const fn stored_units(&self) -> u64 {
        self.stored_units
    }

    /// What the kept ones of them take.
    pub(crate) const fn kept_units(&self) -> u64 {
        self.kept_units
    }

    /// What the dirty ones of them take.
    pub(crate) const fn dirty_units(&self) -> u64 {
        self.dirty_units
    }

    /// Blocks in packed or blank records.
    pub(crate) const fn packed_blocks(&self) -> u64 {
        self.packed_blocks
    }

    /// Blocks in blank records.
    pub(crate) const fn blank_blocks(&self) -> u64 {
        self.blank_blocks
    }

    /// Blocks of a class.
    pub(crate) const fn blocks_of(&self, class: Class) -> u64 {
        self.class_blocks[class.index()]
    }

    /// Blocks of each class.
    pub(crate) const fn class_blocks(&self) -> [u64; Class::COUNT] {
        self.class_blocks
    }

    /// Blocks that became dirty since the start.
    pub(crate) const fn dirtied_blocks(&self) -> u64 {
        self.dirtied_blocks
    }

    /// How often a slot was set, taken away, or made clean since the start.
    pub(crate) const fn slots_changed(&self) -> u64 {
        self.slots_changed
    }
}

fn add(sum: &mut u64, by: i32) {
    *sum = sum.checked_add_signed(by.into()).expect("the pool's blocks are counted exactly");
}
