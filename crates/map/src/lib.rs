//! The map: which blocks of an object are on flash, where, and with which checksum.
//!
//! Invariants:
//! - A block has one slot or none.
//! - `blocks` and `dirty` are exactly what walking all slots would count.
//!
//! Cost: eleven bytes a slot, kept sorted in chunks of 512 blocks (2 MiB of the object), each with
//! at most a twelfth of slack; about 70 bytes more for each chunk that has any slot. Looking up a
//! block is a search over the object's chunks and one of nine steps in the chunk.

mod chunk;
mod object_map;
mod packed;
mod slot;

pub use chunk::CHUNK_BLOCKS;
pub use object_map::ObjectMap;
pub use packed::PackedPlace;
pub use slot::{SLOT_BYTES, Slot};
