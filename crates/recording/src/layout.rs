//! A trace, byte by byte. Little-endian. Each checksum is a CRC-32C in which its own four bytes count as zero.
//!
//! A trace is a head, chunks, and a last chunk without requests that says why the recording ended. A trace that lacks
//! the last chunk was cut. See docs/replay.md.

use headpond_base::{Class, Nanos, ObjectId, UnixNanos};
use headpond_format::bytes_checksum;

use crate::asked::{AskedKind, AskedRequest};

/// The first bytes of a trace. The first one is no letter, so no text is taken for a trace.
pub const TRACE_MAGIC: [u8; 8] = *b"\x89hptrace";
/// The version that this program writes and reads.
pub(crate) const VERSION: u16 = 1;
/// Bytes of the head.
pub const TRACE_HEAD_BYTES: usize = 64;
/// Bytes of a chunk's head.
pub const CHUNK_HEAD_BYTES: usize = 48;
/// Bytes of a request.
pub const TRACED_BYTES: usize = 32;
/// The most requests of a chunk: a reader needs memory for one chunk.
pub(crate) const CHUNK_MOST: usize = 4096;

const CHUNK_MAGIC: [u8; 4] = *b"hpTC";
/// The length counts blocks of 4096 bytes.
const IN_BLOCKS: u8 = 1 << 3;
const BLOCK_SHIFT: u32 = 12;

/// The head: when, and what the mount was like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceHead {
    /// When the recording started.
    pub started: UnixNanos,
    /// The size of the pool.
    pub pool_bytes: u64,
    /// How long a block stays dirty at most; 0 for ever.
    pub flush_period: Nanos,
    /// Sequential runs longer than this pass by the pool; 0 for none.
    pub sequential_cutoff: u64,
    /// The share of the pool that may be dirty, in percent; 0 for no limit.
    pub dirty_threshold: u8,
}

/// Why a recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyEnded {
    /// The command that started it asked for the end.
    Asked,
    /// Its time was over.
    Time,
    /// It reached its largest size.
    Size,
    /// The mount ended, or another program took over.
    Mount,
}

impl WhyEnded {
    const ALL: [Self; 4] = [Self::Asked, Self::Time, Self::Size, Self::Mount];

    const fn number(self) -> u16 {
        match self {
            Self::Asked => 1,
            Self::Time => 2,
            Self::Size => 3,
            Self::Mount => 4,
        }
    }

    /// Its word in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Time => "time",
            Self::Size => "size",
            Self::Mount => "mount",
        }
    }
}

/// The head of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkHead {
    /// Requests that follow. Without any it is the last chunk.
    pub(crate) count: u32,
    /// Requests asked before the first of these, dropped ones included.
    pub(crate) number: u64,
    /// Those of them that were dropped.
    pub(crate) dropped: u64,
    /// When the chunk was made, from the start of the recording.
    pub(crate) at: Nanos,
    /// Of the last chunk: why the recording ended.
    pub(crate) why: Option<WhyEnded>,
}

/// The four or eight bytes at a place that is known to be there.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut taken = [0; N];
    taken.copy_from_slice(&bytes[at..at + N]);
    taken
}

fn sum_without(parts: &[&[u8]], at: usize) -> u32 {
    let mut bytes = parts.concat();
    bytes[at..at + 4].fill(0);
    bytes_checksum(&bytes)
}

impl TraceHead {
    /// The bytes of the head.
    #[must_use]
    pub fn encode(&self) -> [u8; TRACE_HEAD_BYTES] {
        let mut bytes = [0; TRACE_HEAD_BYTES];
        bytes[..8].copy_from_slice(&TRACE_MAGIC);
        bytes[12..14].copy_from_slice(&VERSION.to_le_bytes());
        bytes[14] = TRACED_BYTES as u8;
        bytes[15] = self.dirty_threshold;
        bytes[16..24].copy_from_slice(&self.started.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.pool_bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.flush_period.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.sequential_cutoff.to_le_bytes());
        let sum = sum_without(&[&bytes], 8);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn decode(bytes: &[u8; TRACE_HEAD_BYTES]) -> Result<Self, String> {
        if bytes[..8] != TRACE_MAGIC {
            return Err("it is no trace of headpond".to_owned());
        }
        if u32::from_le_bytes(take(bytes, 8)) != sum_without(&[bytes], 8) {
            return Err("its head is damaged: the checksum does not match".to_owned());
        }
        let version = u16::from_le_bytes(take(bytes, 12));
        if version != VERSION || usize::from(bytes[14]) != TRACED_BYTES {
            return Err(format!("its version is {version}, and this program reads version {VERSION}"));
        }
        Ok(Self {
            started: UnixNanos(i64::from_le_bytes(take(bytes, 16))),
            pool_bytes: u64::from_le_bytes(take(bytes, 24)),
            flush_period: Nanos(u64::from_le_bytes(take(bytes, 32))),
            sequential_cutoff: u64::from_le_bytes(take(bytes, 40)),
            dirty_threshold: bytes[15],
        })
    }
}

impl ChunkHead {
    /// Puts the head of a chunk in front of its requests. `bytes` begins with room for it.
    pub(crate) fn seal(&self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&CHUNK_MAGIC);
        bytes[4..8].fill(0);
        bytes[8..12].copy_from_slice(&self.count.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.why.map_or(0, WhyEnded::number).to_le_bytes());
        bytes[14..16].fill(0);
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.dropped.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.at.0.to_le_bytes());
        bytes[40..48].fill(0);
        let sum = bytes_checksum(bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// The head, as far as it makes sense by itself. `None` for other bytes.
    pub(crate) fn decode(bytes: &[u8; CHUNK_HEAD_BYTES]) -> Option<Self> {
        let count = u32::from_le_bytes(take(bytes, 8));
        let why = u16::from_le_bytes(take(bytes, 12));
        let why = match why {
            0 => None,
            why => Some(WhyEnded::ALL.into_iter().find(|known| known.number() == why)?),
        };
        let fits = bytes[..4] == CHUNK_MAGIC && count as usize <= CHUNK_MOST && (count == 0) == why.is_some();
        fits.then(|| Self {
            count,
            number: u64::from_le_bytes(take(bytes, 16)),
            dropped: u64::from_le_bytes(take(bytes, 24)),
            at: Nanos(u64::from_le_bytes(take(bytes, 32))),
            why,
        })
    }

    /// Whether the checksum of a chunk matches.
    pub(crate) fn holds(head: &[u8; CHUNK_HEAD_BYTES], requests: &[u8]) -> bool {
        u32::from_le_bytes(take(head, 4)) == sum_without(&[head, requests], 4)
    }
}

/// Appends a request. Its process has the number that the trace gives it.
pub(crate) fn encode_request(request: &AskedRequest, process: u16, into: &mut Vec<u8>) {
    let (len, in_blocks) = match u32::try_from(request.len) {
        Ok(len) => (len, 0),
        // Beyond 16 TiB it is cut: no more than that can be in a pool.
        Err(_) => (u32::try_from(request.len >> BLOCK_SHIFT).unwrap_or(u32::MAX), IN_BLOCKS),
    };
    let mut bytes = [0; TRACED_BYTES];
    bytes[..8].copy_from_slice(&request.at.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&request.object.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&request.offset.to_le_bytes());
    bytes[24..28].copy_from_slice(&len.to_le_bytes());
    bytes[28] = request.kind.number() | (request.flags() | in_blocks) << 4;
    bytes[29] = request.class.number();
    bytes[30..32].copy_from_slice(&process.to_le_bytes());
    into.extend_from_slice(&bytes);
}

/// Reads a request. `None` if no writer writes it.
pub(crate) fn decode_request(bytes: &[u8; TRACED_BYTES]) -> Option<AskedRequest> {
    let len = u64::from(u32::from_le_bytes(take(bytes, 24)));
    let flags = bytes[28] >> 4;
    let mut request = AskedRequest {
        at: Nanos(u64::from_le_bytes(take(bytes, 0))),
        kind: AskedKind::of_number(bytes[28] & 0x0f)?,
        object: ObjectId(u64::from_le_bytes(take(bytes, 8))),
        offset: u64::from_le_bytes(take(bytes, 16)),
        len: if flags & IN_BLOCKS == 0 { len } else { len << BLOCK_SHIFT },
        process: u32::from(u16::from_le_bytes(take(bytes, 30))),
        class: Class::new(bytes[29])?,
        past: false,
        through: false,
        alone: false,
    };
    request.set_flags(flags & !IN_BLOCKS).then_some(request)
}
