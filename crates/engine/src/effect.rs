//! Effects: what the engine asks for, and the results that come back.

use headpond_base::{Buf, Errno, MemberId, ObjectId, UnixNanos};
use headpond_format::{Address, Stamp};

use crate::{Reply, RequestId};

/// Names an effect until it is completed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Something that the engine wants done. All but replies and trims are completed, in any
/// order, by [`crate::Engine::complete`]. What is for flash names the member of the pool that it is for.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Read from flash. Completed with [`Outcome::Bytes`] of exactly `len` bytes.
    FlashRead {
        /// Names it.
        ticket: Ticket,
        /// Where, a multiple of the block.
        at: Address,
        /// How many bytes, a multiple of the block.
        len: u32,
    },
    /// Write to flash, not necessarily durable when completed.
    FlashWrite {
        /// Names it.
        ticket: Ticket,
        /// Where, a multiple of the block.
        at: Address,
        /// What, a multiple of the block.
        data: Buf,
    },
    /// Make every write to a member that is completed by now durable.
    FlashSync {
        /// Names it.
        ticket: Ticket,
        /// Which one.
        member: MemberId,
    },
    /// These bytes are not needed any more: a hint, never completed.
    FlashTrim {
        /// Where.
        at: Address,
        /// How many bytes.
        len: u64,
    },
    /// Read from the origin. Completed with [`Outcome::Bytes`], shorter at the file's end.
    OriginRead {
        /// Names it.
        ticket: Ticket,
        /// The file.
        object: ObjectId,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: u32,
    },
    /// Write to the origin, all of it.
    OriginWrite {
        /// Names it.
        ticket: Ticket,
        /// The file.
        object: ObjectId,
        /// Where.
        offset: u64,
        /// What, in pieces that follow each other.
        data: Vec<Buf>,
        /// For whom: the origin's quotas and reserves hold for this user. The superuser: for the engine itself.
        user: u32,
        /// It ends once the origin's device has the bytes, not when they are in a cache of the host. So it takes as
        /// long as the device does, and its sync has little left to do. Durable it is only after that sync.
        written_out: bool,
    },
    /// Make a range of the origin's file zeros without changing its size.
    OriginZero {
        /// Names it.
        ticket: Ticket,
        /// The file.
        object: ObjectId,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// The range keeps its space. Otherwise whole blocks give it back.
        keep_space: bool,
    },
    /// Make the origin's file end at `size`.
    OriginResize {
        /// Names it.
        ticket: Ticket,
        /// The file.
        object: ObjectId,
        /// The size.
        size: u64,
    },
    /// Make sure that the origin has space for these ranges, without changing the file's size or time. Completed with
    /// [`Outcome::Space`], or with the error of the first range that has none.
    OriginReserve {
        /// Names it.
        ticket: Ticket,
        /// The file.
        object: ObjectId,
        /// From byte to byte, in order, none touching another.
        ranges: Vec<(u64, u64)>,
        /// For whom: the origin's quotas and reserves hold for this user.
        user: u32,
        /// An application asked for it, and gets an error if the origin's file system cannot keep space.
        insists: bool,
    },
    /// Look how much the origin has free, on the file system of this file. Completed with [`Outcome::Free`].
    OriginSpace {
        /// Names it.
        ticket: Ticket,
        /// The file.
        object: ObjectId,
        /// The figure must have all that was written to the origin: its transaction is completed first where it would
        /// not.
        settles: bool,
    },
    /// Make the origin's file durable: data, size, and the directory entries that it got or lost.
    OriginSync {
        /// Names it.
        ticket: Ticket,
        /// The file.
        object: ObjectId,
    },
    /// Set the origin's modification time and say what it then is. Completed with
    /// [`Outcome::Stamp`].
    OriginStamp {
        /// Names it.
        ticket: Ticket,
        /// The file.
        object: ObjectId,
        /// The time to set.
        mtime: UnixNanos,
    },
    /// Find data or a hole in the origin's file. Completed with [`Outcome::Offset`].
    OriginSeek {
        /// Names it.
        ticket: Ticket,
        /// The file.
        object: ObjectId,
        /// Where to start.
        offset: u64,
        /// Look for data; otherwise for a hole.
        data: bool,
    },
    /// Run the directory operation that came with this request. Completed with
    /// [`Outcome::Done`], or [`Outcome::Stamp`] of the file that was renamed.
    OriginNamespace {
        /// Names it.
        ticket: Ticket,
        /// The request that brought the operation.
        request: RequestId,
    },
    /// The flash takes nothing more, and from now on the origin is changed without the pool being
    /// told. Say so durably beside the origin's data, so that nobody trusts the pool over it.
    /// Nothing is changed before this is completed with [`Outcome::Done`].
    PoolFailed {
        /// Names it.
        ticket: Ticket,
    },
    /// The list of the pool's members has this generation from now on. Say so durably beside the origin's data, so that
    /// nobody uses the pool without a member that is on it, or believes one that is not. Until this is completed with
    /// [`Outcome::Done`], a lost member holds up every sync; if it fails it is asked for again.
    MembersChanged {
        /// Names it.
        ticket: Ticket,
        /// The generation of the list.
        generation: u64,
    },
    /// The object is gone from the engine: its origin file can be let go.
    OriginRelease {
        /// The file.
        object: ObjectId,
    },
    /// The origin may have lost bytes of this file that applications have seen. A layer above that keeps copies must
    /// drop them. Comes before any answer that shows it. Never completed.
    OriginLost {
        /// The file.
        object: ObjectId,
    },
    /// The answer to a request. Never completed.
    Reply {
        /// Which request.
        request: RequestId,
        /// The answer.
        reply: Reply,
    },
}

impl Effect {
    /// The file at the origin that it is done with.
    pub(crate) const fn file(&self) -> Option<ObjectId> {
        match self {
            Self::OriginRead { object, .. }
            | Self::OriginWrite { object, .. }
            | Self::OriginZero { object, .. }
            | Self::OriginResize { object, .. }
            | Self::OriginReserve { object, .. }
            | Self::OriginSpace { object, .. }
            | Self::OriginSync { object, .. }
            | Self::OriginStamp { object, .. }
            | Self::OriginSeek { object, .. }
            | Self::OriginRelease { object }
            | Self::OriginLost { object } => Some(*object),
            Self::FlashRead { .. }
            | Self::FlashWrite { .. }
            | Self::FlashSync { .. }
            | Self::FlashTrim { .. }
            | Self::OriginNamespace { .. }
            | Self::PoolFailed { .. }
            | Self::MembersChanged { .. }
            | Self::Reply { .. } => None,
        }
    }
}

/// What a file's file system has free for everybody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Free bytes.
    pub free: u64,
    /// All bytes of it.
    pub bytes: u64,
    /// It cannot keep space for this file, or not always: what is dirty has to be counted.
    pub counts: bool,
}

/// What an effect came to.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Done.
    Done,
    /// Bytes read.
    Bytes(Buf),
    /// The file's stamp.
    Stamp(Stamp),
    /// An offset.
    Offset(u64),
    /// The origin has the space that it was asked for.
    Space(Space),
    /// What the origin has free.
    Free(Room),
    /// Not done, or not known to be done.
    Failed(Errno),
}

/// What the origin says of a file's space.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Ranges that have space besides those that were asked for, from byte to byte.
    pub found: Vec<(u64, u64)>,
    /// The file's stamp, if asking may have changed it.
    pub stamp: Option<Stamp>,
    /// It cannot keep space for this file, and has kept none: there is no use in asking.
    pub keeps_none: bool,
    /// A write may need space all the same: what is dirty has to be counted.
    pub counts: bool,
}
