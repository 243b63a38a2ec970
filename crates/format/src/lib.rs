//! What is on flash, byte by byte. `docs/format.md` draws the same bytes.
//!
//! Invariants:
//! - Every structure carries a checksum over all its bytes, and what it belongs to: the pool, the place and the life
//!   (generation, epoch, counter). A structure that is intact but foreign, old or misplaced does not decode.
//! - Decoding never panics, whatever the bytes. It returns a [`Damage`] that says what is wrong.
//! - What decodes is safe to compute with. Every count is below 2^63, and a map can hold every position within a file.
//!   No reader's `+ 1` overflows.
//! - All integers are little-endian. Reserved bytes are written as zero and ignored when read.

mod addresses;
mod batch;
mod checkpoint;
mod checksum;
mod entry;
mod geometry;
mod history;
mod host_copies;
mod layout;
mod members;
mod number;
mod object;
mod packed;
mod parity;
mod segment;
mod settings;
mod superblock;

pub use addresses::{Address, Addresses};
pub use batch::{BATCH_ENTRY_BYTES, BATCH_PAYLOAD_BLOCKS_MAX, BatchHead, decode_batch, encode_batch};
pub use checkpoint::{
    CheckpointHead, FRAME_HEAD, Frame, FrameKind, SLOT_BYTES, SegmentRow, SegmentState, decode_checkpoint_head,
    decode_frame, encode_checkpoint_head, encode_frame,
};
pub use checksum::{Writer, block_checksum, bytes_checksum, verify_block};
pub use entry::Entry;
pub use geometry::{Geometry, GeometryError, POOL_BYTES_MAX, POOL_BYTES_MIN};
pub use history::{HISTORY_BYTES, HISTORY_EVENTS, HISTORY_VALUES, HistoryArea, HistoryEvent, HistoryRing, HistoryRow};
pub use host_copies::HostCopies;
pub use layout::{Layout, PLACES_MAX, ParityRow, Place};
pub use members::{MEMBERS_MAX, Member, MemberName, MemberState, Members};
pub use object::{
    FileIdentity, Identity, OBJECT_PATH_MAX, ObjectFlags, ObjectState, Stamp, VolumeId, VolumeWitness, Witness,
};
pub use packed::{
    BLOCK_UNITS, Codec, Intact, PACKED_BLOCKS_MAX, UNIT, finish_packed, is_blank, pack, packed_units_max, verify_packed,
};
pub use parity::combined;
pub use segment::{
    FOOTER_TAIL_BYTES, Placement, SegmentHead, SegmentSummary, SummaryBatch, decode_footer, decode_footer_tail,
    decode_segment_head, encode_footer, encode_segment_head, footer_blocks,
};
pub use settings::{SETTINGS_SLOTS, SETTINGS_TEXT_MAX, SettingsBlock, decode_settings, encode_settings};
pub use superblock::{ORIGIN_PATH_MAX, OriginName, SUPERBLOCK_SLOTS, Superblock, decode_superblock, encode_superblock};

/// Version of the format. This code writes and reads no other. No released program wrote version 1.
pub const VERSION: u32 = 2;

/// Why bytes are not the structure that was expected there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// No headpond structure of this kind starts here.
    #[error("no {0} here")]
    Missing(&'static str),
    /// The bytes changed since they were written.
    #[error("{0}: checksum does not match")]
    Checksum(&'static str),
    /// Intact, but written for another pool, place or life.
    #[error("{0}: was written for another place, or before this place was reused")]
    Foreign(&'static str),
    /// Intact by its checksum, but senseless: a bug of the writer, or an attack.
    #[error("{0}: {1}")]
    Senseless(&'static str, &'static str),
    /// Shorter than the structure.
    #[error("{0}: cut short")]
    Short(&'static str),
    /// Intact, but it asks for something that this headpond cannot do.
    #[error("{0}: {1}, which this headpond does not know. Use the headpond that wrote it")]
    Unsupported(&'static str, &'static str),
    /// Written by a headpond of another version of the format.
    #[error(
        "format version {found} is {} than {VERSION}, the only one that this headpond reads",
        if *found > VERSION { "newer" } else { "older" }
    )]
    Version {
        /// The version that was found.
        found: u32,
    },
}
