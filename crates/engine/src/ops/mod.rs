//! The requests, one file each: how each is carried out, step by step.

mod change;
mod direct;
mod flush;
mod namespace;
mod read;
pub(crate) mod reserve;
mod seek;
mod set_mode;
pub(crate) mod status;
mod stop;
mod sync;
pub(crate) mod together;

use headpond_base::ObjectId;
use headpond_format::Entry;

use crate::locks::Span;

pub(crate) use change::ZERO_SLOT;

/// The largest number of blocks that an entry names: all of an object.
const ALL_BLOCKS: u64 = 1 << 50;

/// The entry that says that the log's version of these blocks no longer counts.
pub(crate) fn drop_entry(object: ObjectId, span: Span) -> Entry {
    Entry::Drop { object, first: span.first, blocks: span.blocks().min(ALL_BLOCKS) }
}
