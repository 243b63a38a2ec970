//! The map: which blocks of an object are on flash, where, and with which checksum; and which are zeros that the origin
//! has not got ([`Zeros`]), which lie nowhere.
//!
//! Invariants:
//! - A block has one slot or none.
//! - `blocks` and `dirty` are exactly what a count of all slots gives.
//!
//! Cost: eleven bytes a slot, sorted in chunks of 512 blocks (2 MiB of the object) with at most a twelfth of slack
//! each, and about 70 bytes for each chunk. A look-up is a search over the object's chunks and then nine steps in one
//! chunk.

mod chunk;
mod object_map;
mod packed;
mod slot;
mod zeros;

pub use chunk::CHUNK_BLOCKS;
pub use object_map::ObjectMap;
pub use packed::PackedPlace;
pub use slot::{SLOT_BYTES, Slot};
pub use zeros::{EXTENT_BYTES, Zeros};
