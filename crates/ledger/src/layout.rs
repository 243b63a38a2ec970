//! Where in the words everything is.

use crate::table::Extent;

/// The layout's version, in the first word. A worker that knows another one refuses.
pub(crate) const VERSION: u64 = u64::from_be_bytes(*b"hpledg\0\x01");

pub(crate) const AT_VERSION: usize = 0;
pub(crate) const AT_INODES: usize = 1;
pub(crate) const AT_HANDLES: usize = 2;
/// What the first worker agreed on with the kernel.
pub(crate) const AT_AGREED: usize = 3;
/// How many inodes, handles and promises there are without a row.
pub(crate) const AT_MISSING: usize = 4;
/// Whether the kernel forgot a file before it was synced.
pub(crate) const AT_FORGOTTEN_UNSYNCED: usize = 5;
pub(crate) const AT_NEXT_FOREIGN: usize = 6;
/// The next numbers of handles, by kind: three words.
pub(crate) const AT_NUMBERS: usize = 7;
const AT_MARKS: usize = 10;
pub(crate) const AT_NEXT_COUNTED: usize = 14;
pub(crate) const AT_NEXT_EXCHANGE: usize = 15;
const HEADER: usize = 32;

/// Words of a name of up to 255 bytes, its directory's row, and its length.
pub(crate) const PLACE_WORDS: usize = 2 + 32;

/// More places than inodes: a move uses a second one for a moment.
const MOVING: u32 = 1024;

/// Programs that rely on untorn writes, by file: database servers have a process and some hundred files.
const PROMISES: u32 = 1 << 14;

/// Answers that name an inode and may not have reached the kernel. More than the threads and the socket of a mount
/// hold.
pub(crate) const COUNTED: usize = 4096;

/// Exchanges of names that may not have been answered. More than a mount has threads.
pub(crate) const EXCHANGES: usize = 256;

/// How much a ledger has room for. The memory is sparse: only what is used takes any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedgerRoom {
    /// Inodes that the kernel knows. Each takes 336 bytes.
    pub inodes: u32,
    /// Open files and directories. Each takes 64 bytes.
    pub handles: u32,
}

impl LedgerRoom {
    /// The usual room. The kernel takes more than 1 KiB for an inode of FUSE with its name: it would have to spend 4 GiB
    /// on those of one mount. So many descriptors are open only on servers with thousands of clients. 1.4 GB if all are
    /// in use; before that the mount makes the kernel forget some.
    pub const USUAL: Self = Self { inodes: 1 << 22, handles: 1 << 17 };

    /// How many words that takes.
    #[must_use]
    pub fn words(self) -> usize {
        Layout::of(self).end
    }
}

/// The tables' places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) inodes: Extent,
    pub(crate) places: Extent,
    pub(crate) handles: Extent,
    pub(crate) promises: Extent,
    /// The first word of the ring of counted lookups.
    pub(crate) counted: usize,
    pub(crate) exchanges: usize,
    end: usize,
}

impl Layout {
    pub(crate) fn of(room: LedgerRoom) -> Self {
        let mut next = HEADER;
        let mut mark = AT_MARKS;
        let mut table = |width, rows| {
            let extent = Extent { first: next, width, rows, mark };
            next = extent.words().end;
            mark += 1;
            extent
        };
        let inodes = table(8, room.inodes);
        let places = table(PLACE_WORDS, room.inodes.saturating_add(MOVING));
        let handles = table(8, room.handles);
        let promises = table(4, PROMISES);
        let exchanges = next + 2 * COUNTED;
        Self { inodes, places, handles, promises, counted: next, exchanges, end: exchanges + 4 * EXCHANGES }
    }
}
