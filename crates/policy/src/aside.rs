//! Blocks that may not go are put aside once. When they may go, they go first.
//!
//! A dirty or pinned block at the end of its list would be in the way of every later eviction. So it moves to a list
//! of its own, and the policy does not ask for it again. When it is released, it goes before all others: its turn has
//! come already.

use crate::nodes::{ListId, Nodes};
use crate::{Host, Key};

/// Blocks that may not go.
pub(crate) const HELD: ListId = 4;
/// Blocks that were held and may go now.
pub(crate) const FIRST: ListId = 5;

/// The oldest block that may go: first among released ones, then in `list`. Puts aside all that may not.
pub(crate) fn oldest(nodes: &mut Nodes, list: ListId, host: &mut dyn Host) -> Option<u32> {
    loop {
        let slot = nodes.tail(FIRST).or_else(|| nodes.tail(list))?;
        if host.evictable(nodes.key(slot)) {
            return Some(slot);
        }
        nodes.move_to(slot, HELD);
    }
}

/// Notes that a block may go now.
pub(crate) fn release(nodes: &mut Nodes, key: Key) {
    if let Some(slot) = nodes.find(key).filter(|slot| nodes.list(*slot) == HELD) {
        nodes.move_to(slot, FIRST);
    }
}
