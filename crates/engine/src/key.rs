//! Blocks as the policy names them.

use headpond_base::{Block, ObjectId};
use headpond_policy::Key;

/// A block's name for the policy. `None` beyond four billion objects or 16 TiB of one: such a block is not kept.
pub(crate) fn key_of(object: ObjectId, block: Block) -> Option<Key> {
    let (object, block) = (u32::try_from(object.0).ok()?, u32::try_from(block.0).ok()?);
    Some(Key(u64::from(object) << 32 | u64::from(block)))
}

/// The block of a name.
pub(crate) const fn block_of(key: Key) -> (ObjectId, Block) {
    (ObjectId(key.0 >> 32), Block(key.0 & u32::MAX as u64))
}
