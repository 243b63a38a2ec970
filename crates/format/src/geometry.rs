//! How the bytes of a pool are divided: superblocks, two checkpoint areas, segments.

use headpond_base::{BLOCK, BLOCK_U64, Location, RECORD_BLOCKS_MAX, SegmentId};

use crate::{Member, MemberName, SLOT_BYTES, SegmentRow};

/// Bytes of the smallest pool. Below that, reserves leave no room for data.
pub const POOL_BYTES_MIN: u64 = 64 << 20;

/// Bytes of the largest pool. Its last block is not a location, and lies beyond the last whole segment.
pub const POOL_BYTES_MAX: u64 = 4 << 50;

/// Where the checkpoint areas start. The 64 KiB of the superblocks come before: one flash page of any device, so no
/// later write shares a page with them.
const CHECKPOINT_START: u64 = 64 << 10;

/// The most segments of a new pool. Enough for fine reclaim, and few enough that a start reads all heads in a blink.
const SEGMENTS_WANTED: u64 = 1024;
const SEGMENT_BYTES_MIN: u64 = 2 << 20;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Bytes of a checkpoint for each block of the pool. The worst case is one slot in a chunk: the slot, and the number
/// and count of its chunk.
const CHECKPOINT_BYTES_A_BLOCK: u64 = SLOT_BYTES as u64 + 6;

/// Room for objects in a checkpoint: a 128th of the pool, within bounds. An object with its path takes about 170
/// bytes, so a pool of 1 GiB remembers 50,000 files, and one of 8 GiB 400,000.
const CHECKPOINT_OBJECT_BYTES: (u64, u64) = (128 << 10, 64 << 20);

/// The division of one pool. Fixed at format and kept in the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes that the pool uses, of all its devices.
    pub pool_bytes: u64,
    /// Bytes of one segment: a power of two, a multiple of every erase unit up to that size.
    pub segment_bytes: u32,
    /// How many segments there are.
    pub segments: u32,
    /// Bytes of each of the two checkpoint areas.
    pub area_bytes: u64,
    /// Where the first segment starts, in bytes.
    pub segments_start: u64,
}

/// Why a pool cannot have this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Too small to work.
    #[error("{0} bytes are too few for a pool, which needs at least {POOL_BYTES_MIN}")]
    TooSmall(u64),
    /// A location cannot reach that far.
    #[error("{0} bytes are too many for a pool, which has at most 4 PiB")]
    TooLarge(u64),
}

impl Geometry {
    /// Divides a device of `bytes`.
    ///
    /// # Errors
    /// When `bytes` is below [`POOL_BYTES_MIN`] or above [`POOL_BYTES_MAX`].
    pub fn for_bytes(bytes: u64) -> Result<Self, GeometryError> {
        if bytes < POOL_BYTES_MIN {
            return Err(GeometryError::TooSmall(bytes));
        }
        if bytes > POOL_BYTES_MAX {
            return Err(GeometryError::TooLarge(bytes));
        }
        let wanted = (bytes / SEGMENTS_WANTED).next_power_of_two();
        Ok(Self::with_segment_bytes(bytes, wanted.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)))
    }

    /// Divides a device of `bytes` into segments of `segment_bytes`, a power of two. For tests, which want small
    /// pools. Write requests must then fit [`Geometry::record_blocks_max`], and the pool needs a dozen segments or
    /// more.
    #[must_use]
    pub fn with_segment_bytes(bytes: u64, segment_bytes: u64) -> Self {
        let (least, most) = CHECKPOINT_OBJECT_BYTES;
        let objects = (bytes / 128).clamp(least, most);
        let heads = (64 << 10) + bytes / segment_bytes * SegmentRow::BYTES_MAX as u64;
        let map = bytes / BLOCK_U64 * CHECKPOINT_BYTES_A_BLOCK;
        let area_bytes = (map + objects + heads).next_multiple_of(BLOCK_U64);
        let segments_start = (CHECKPOINT_START + 2 * area_bytes).next_multiple_of(segment_bytes.min(1 << 20));
        let segments = bytes.saturating_sub(segments_start) / segment_bytes;
        Self {
            pool_bytes: bytes,
            segment_bytes: u32::try_from(segment_bytes).expect("segments are at most 64 MiB"),
            segments: u32::try_from(segments).expect("at most 4 PiB in segments of 64 MiB"),
            area_bytes,
            segments_start,
        }
    }

    /// Divides several devices into segments of one size, and says what each is to the pool. The areas of each have
    /// room for the checkpoints of all, and for a history. `segment_bytes` is for tests.
    ///
    /// # Errors
    /// As [`Self::for_bytes`], for each device and for all together.
    pub fn for_members(
        devices: &[(MemberName, u64)],
        segment_bytes: Option<u64>,
    ) -> Result<(Self, Vec<Member>), GeometryError> {
        let total: u64 = devices.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        let all = match segment_bytes {
            Some(segment_bytes) => Self::with_segment_bytes(total, segment_bytes),
            None => Self::for_bytes(total)?.with_history(),
        };
        let mut members = Vec::with_capacity(devices.len());
        for (name, bytes) in devices {
            let start = all.segments_start;
            let slots = bytes.saturating_sub(start) / u64::from(all.segment_bytes);
            if slots == 0 || segment_bytes.is_none() && *bytes < POOL_BYTES_MIN {
                return Err(GeometryError::TooSmall(*bytes));
            }
            let slots = u32::try_from(slots).map_err(|_| GeometryError::TooLarge(*bytes))?;
            members.push(Member::in_use(*name, slots, *bytes, start));
        }
        let segments = members.iter().map(|member| member.slots).sum();
        Ok((Self { segments, ..all }, members))
    }

    /// The device as the one member of a pool.
    #[must_use]
    pub const fn member(&self, name: MemberName) -> Member {
        Member::in_use(name, self.segments, self.pool_bytes, self.segments_start)
    }

    /// Where checkpoint area 0 or 1 starts, in bytes.
    #[must_use]
    pub const fn checkpoint_start(&self, area: usize) -> u64 {
        CHECKPOINT_START + self.area_bytes * (area as u64 & 1)
    }

    /// Blocks of one segment, its head and footer included.
    #[must_use]
    pub const fn segment_blocks(&self) -> u32 {
        self.segment_bytes / BLOCK as u32
    }

    /// The first byte behind the last segment.
    #[must_use]
    pub const fn segments_end(&self) -> u64 {
        self.segments_start + self.segments as u64 * self.segment_bytes as u64
    }

    /// The segment that holds a location. A forged checkpoint may have a location beyond the last segment: its segment
    /// does not exist.
    #[must_use]
    pub const fn segment_of(&self, location: Location) -> SegmentId {
        let segment = location.0 / self.segment_blocks() as u64;
        SegmentId(if segment < u32::MAX as u64 { segment as u32 } else { u32::MAX })
    }

    /// The block of its segment at which a location lies. The head is block 0.
    #[must_use]
    pub const fn block_in_segment(&self, location: Location) -> u32 {
        (location.0 % self.segment_blocks() as u64) as u32
    }

    /// The first block of a segment: its head.
    #[must_use]
    pub const fn first_location(&self, segment: SegmentId) -> Location {
        Location(segment.0 as u64 * self.segment_blocks() as u64)
    }

    /// The first byte of a location in a pool of one device. Only a scan and `check` use it. While the pool is in use,
    /// [`Addresses`](crate::Addresses) says where bytes lie.
    #[must_use]
    pub const fn byte_of(&self, location: Location) -> u64 {
        self.segments_start + location.0 * BLOCK_U64
    }

    /// Bytes of object entries that a checkpoint has room for.
    #[must_use]
    pub fn object_bytes(&self) -> u64 {
        let (least, most) = CHECKPOINT_OBJECT_BYTES;
        (self.pool_bytes / 128).clamp(least, most)
    }

    /// Bytes that a checkpoint has for map slots, with the number and count of each chunk.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        let room = self.area_bytes.saturating_sub(u64::from(self.segments) * SegmentRow::BYTES_MAX as u64);
        // A pool that has grown has more blocks than its areas were made for.
        (self.pool_bytes / BLOCK_U64 * CHECKPOINT_BYTES_A_BLOCK).min(room)
    }

    /// Map slots that a checkpoint has room for, wherever they are.
    #[must_use]
    pub fn map_slots_sure(&self) -> u64 {
        self.map_bytes() / CHECKPOINT_BYTES_A_BLOCK
    }

    /// Whether a checkpoint has room for a table of so many segments.
    #[must_use]
    pub const fn has_room_for_rows(&self, segments: u64) -> bool {
        segments * SegmentRow::BYTES_MAX as u64 <= self.area_bytes / 2
    }

    /// Blocks of the largest record in this pool: a segment also takes its head, a batch head and a footer. Less than
    /// [`RECORD_BLOCKS_MAX`] only in the small segments of tests.
    #[must_use]
    pub const fn record_blocks_max(&self) -> u32 {
        let fits = self.segment_blocks() - 4;
        if fits < RECORD_BLOCKS_MAX as u32 { fits } else { RECORD_BLOCKS_MAX as u32 }
    }

    /// The most blocks that can hold data: all segments without their heads.
    #[must_use]
    pub const fn data_blocks(&self) -> u64 {
        self.segments as u64 * (self.segment_blocks() as u64 - 1)
    }
}
