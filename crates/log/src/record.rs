//! Records: what is given to the log to append, and where it then lies.

use headpond_base::{Block, Class, Generation, Location, ObjectId, Sequence, Stream, UnixNanos};
use headpond_format::Writer;

use crate::mutation::Mutation;

/// A record to be appended.
#[derive(Clone, Copy, Debug)]
pub struct DataRecord {
    /// The stream.
    pub stream: Stream,
    /// The object.
    pub object: ObjectId,
    /// The first block.
    pub first: Block,
    /// How many blocks, up to [`headpond_base::RECORD_BLOCKS_MAX`].
    pub blocks: u32,
    /// Whether the data is newer than the origin.
    pub dirty: bool,
    /// The object's size and time after this write.
    pub grown: Option<(u64, UnixNanos)>,
    /// The class of the blocks.
    pub class: Class,
    /// The caller writes every byte of the payload. Otherwise it may write parts of the first and the last block; the
    /// rest is zeros.
    pub whole: bool,
}

/// Where a packed record lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacedPacked {
    /// The record's place in the order.
    pub sequence: Sequence,
    /// The block on flash in which the record begins.
    pub location: Location,
    /// The unit of that block with which the record begins.
    pub unit: u8,
    /// Units of the record.
    pub units: u8,
    /// The record's checksum.
    pub checksum: u32,
}

/// Where a record lies.
#[derive(Debug)]
pub struct Placed {
    /// The record's place in the order.
    pub sequence: Sequence,
    /// The record's first block on flash; the others follow.
    pub location: Location,
    /// The checksum of each block.
    pub checksums: Vec<u32>,
}

/// The writer that a checksum is bound to. A planted bug leaves the generation out.
pub(crate) fn bound_writer(writer: Writer, mutation: Option<Mutation>) -> Writer {
    let forgets = Mutation::ForgetGeneration.is_planted(mutation);
    Writer { generation: if forgets { Generation(0) } else { writer.generation }, ..writer }
}
