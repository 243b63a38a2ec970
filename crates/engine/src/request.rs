//! Requests to the engine, and its answers.

use std::collections::BTreeSet;

use headpond_base::{Buf, CacheMode, Errno, MemberId, ObjectId, UnixNanos};
use headpond_format::{FileIdentity, Identity, Member, Stamp, VolumeId, VolumeWitness, Witness};

use crate::config::Config;
use crate::treatment::Treatment;

/// Names a request until it is answered. Chosen by the caller, unique among those under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// Names a flush. Chosen by the caller; those of one name are cancelled together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlushId(pub u64);

/// What a flush is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlushScope {
    /// Every object.
    All,
    /// These. Objects that the engine does not know have nothing dirty.
    Objects(BTreeSet<ObjectId>),
}

impl Request {
    /// A flush of everything, under a name of its own.
    #[must_use]
    pub const fn flush_all(id: u64) -> Self {
        Self::Flush { id: FlushId(id), scope: FlushScope::All }
    }

    /// A sync without a rule.
    #[must_use]
    pub const fn sync(object: ObjectId) -> Self {
        Self::Sync { object, copies: None }
    }
}

impl FlushScope {
    pub(crate) fn holds(&self, object: ObjectId) -> bool {
        match self {
            Self::All => true,
            Self::Objects(objects) => objects.contains(&object),
        }
    }
}

/// A file at the origin, as the front door found it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenFile {
    /// Inode number.
    pub inode: u64,
    /// Birth time, 0 where the origin has none.
    pub birth: UnixNanos,
    /// Path below the origin's root; kept as a hint for the next start. Cut if longer than
    /// [`headpond_format::OBJECT_PATH_MAX`].
    pub path: Vec<u8>,
    /// Size and times at the origin now.
    pub stamp: Stamp,
    /// Just made by this front door: its directory entry may not be durable yet.
    pub created: bool,
    /// Bytes from 0 to here are known to have space at the origin already; writes there
    /// need no reservation.
    pub allocated: u64,
}

/// A volume, as its door found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenVolume {
    /// Its name for good.
    pub id: VolumeId,
    /// What the door can say of it now.
    pub witness: VolumeWitness,
}

/// An object of the origin, as its door found it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenObject {
    /// A file.
    File(OpenFile),
    /// A volume.
    Volume(OpenVolume),
}

impl OpenObject {
    /// What it is.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        match self {
            Self::File(file) => Identity::File(FileIdentity { inode: file.inode, birth: file.birth }),
            Self::Volume(volume) => Identity::Volume(volume.id),
        }
    }

    /// What a change by others shows by.
    #[must_use]
    pub const fn witness(&self) -> Witness {
        match self {
            Self::File(file) => Witness::File(file.stamp),
            Self::Volume(volume) => Witness::Volume(volume.witness),
        }
    }

    /// Its path; empty of a volume.
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Self::File(file) => &file.path,
            Self::Volume(_) => &[],
        }
    }

    /// Whether its front door has just made it.
    pub(crate) const fn is_created(&self) -> bool {
        matches!(self, Self::File(file) if file.created)
    }

    /// Bytes that have space at the origin.
    pub(crate) const fn allocated(&self) -> u64 {
        match self {
            Self::File(file) => file.allocated,
            Self::Volume(_) => 0,
        }
    }
}

impl From<OpenFile> for OpenObject {
    fn from(file: OpenFile) -> Self {
        Self::File(file)
    }
}

impl From<OpenVolume> for OpenObject {
    fn from(volume: OpenVolume) -> Self {
        Self::Volume(volume)
    }
}

/// What applications see of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: UnixNanos,
    /// Status change time.
    pub ctime: UnixNanos,
}

/// A change to the origin's directories which the log must be ordered with. The front door
/// gives the operation itself along with the request, as something to run; the engine says when
/// ([`crate::Effect::OriginNamespace`]) and does before and after what durability asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Namespace {
    /// Renames a file or directory. Before: data of `moved` is made durable, so that a file
    /// that is written, then renamed over another, is never seen empty after a crash; data of
    /// `replaced` is marked as about to go.
    Rename {
        /// The object that gets the new name, if it is a file that the engine knows.
        moved: Option<ObjectId>,
        /// The object whose last name goes, if any: a file that the new name replaces.
        replaced: Option<ObjectId>,
        /// Old path below the origin's root.
        from: Vec<u8>,
        /// New path below the origin's root.
        to: Vec<u8>,
        /// The two change places.
        exchange: bool,
    },
    /// Removes the last name of a file that the engine knows. Its blocks go when it is also
    /// closed. (Names other than the last, and unknown files, are no concern of the engine.)
    Unlink {
        /// The object.
        object: ObjectId,
    },
}

/// A change of the pool's members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MembersChange {
    /// Another device, which can be written.
    Add {
        /// Its number: the one that the list gives next, or one that is spare ([`MemberShown::is_spare`]). Then no slot
        /// has a head of this pool in it.
        ///
        /// [`MemberShown::is_spare`]: crate::MemberShown::is_spare
        member: MemberId,
        /// Its row.
        row: Member,
        /// In whose place it comes. Without a name: in that of the first of its kind that is missed; one with copies only
        /// also in that of a flash that is missed, if no copy is.
        instead_of: Option<MemberId>,
    },
    /// A member has more room than before.
    Grow {
        /// The member.
        member: MemberId,
        /// Bytes of its device that the pool uses from now on.
        bytes: u64,
    },
    /// The last slots of a member are emptied, and then given back.
    Shrink {
        /// The member.
        member: MemberId,
        /// Bytes of its device that the pool uses from then on.
        bytes: u64,
    },
    /// A member is emptied, and then gone. What is dirty on it moves to others. One that is gone and missed is not
    /// missed any more.
    Remove(MemberId),
    /// A member is gone at once, as if it were lost: the others have what is dirty on it. [`Errno::AGAIN`] while some
    /// dirty data has one copy.
    Offline(MemberId),
}

/// Something asked of the engine. Offsets and lengths are in bytes.
///
/// A volume is only opened, closed, read, written, made zeros, synced, flushed and searched. It keeps its size: a
/// change that reaches beyond its end fails with [`Errno::NOSPC`], and anything else with [`Errno::OPNOTSUPP`]. It has
/// no times: a request's counts for nothing.
#[derive(Clone, Debug)]
pub enum Request {
    /// Makes an object known, or known again, and counts one more handle on it. Answer: [`Reply::Opened`]; for a volume
    /// that others have changed while it was open or dirty [`Errno::STALE`].
    Open(OpenObject),
    /// One handle less. Answer: [`Reply::Done`].
    Close {
        /// The object.
        object: ObjectId,
    },
    /// Reads. At the object's end the answer is shorter. Answer: [`Reply::Data`].
    Read {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// How many bytes, at most [`headpond_base::RECORD_BYTES_MAX`].
        len: u32,
        /// Who asks, and how it is treated.
        how: Treatment,
    },
    /// Writes, as a whole or not at all. Answer: [`Reply::Changed`].
    Write {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// The bytes, at most [`headpond_base::RECORD_BYTES_MAX`], at least one.
        data: Buf,
        /// When.
        mtime: UnixNanos,
        /// Answer only once it is durable (O_SYNC, O_DSYNC).
        durable: bool,
        /// Who asks, and how it is treated.
        how: Treatment,
    },
    /// Writes in several places, all of it or nothing. Answer: [`Reply::Changed`];
    /// [`Errno::OPNOTSUPP`] where changes go to the origin, which cannot do that, and [`Errno::FBIG`] for more than
    /// [`crate::fits_together`] allows: then nothing is changed.
    WriteTogether {
        /// The object.
        object: ObjectId,
        /// The bytes by their places: in order, none empty, none touching another.
        pieces: Vec<(u64, Buf)>,
        /// When.
        mtime: UnixNanos,
        /// Answer only once it is durable.
        durable: bool,
        /// Who asks, and how it is treated.
        how: Treatment,
    },
    /// Makes the object end at `size`. Answer: [`Reply::Changed`].
    Truncate {
        /// The object.
        object: ObjectId,
        /// The new size.
        size: u64,
        /// When.
        mtime: UnixNanos,
    },
    /// Makes a range zeros (punch hole, zero range). Answer: [`Reply::Changed`].
    Zero {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Whether the object grows if the range goes beyond its end.
        extend: bool,
        /// When.
        mtime: UnixNanos,
    },
    /// Reserves space at the origin for a range. Answer: [`Reply::Changed`], or
    /// [`Errno::OPNOTSUPP`] where the origin cannot.
    Allocate {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Whether the object grows if the range goes beyond its end.
        extend: bool,
        /// When.
        mtime: UnixNanos,
        /// Who asks.
        user: u32,
    },
    /// Sets the modification time. Answer: [`Reply::Changed`].
    SetMtime {
        /// The object.
        object: ObjectId,
        /// The time.
        mtime: UnixNanos,
        /// When it is set.
        ctime: UnixNanos,
    },
    /// Tells that the front door changed the origin's file in a way that moves its status change time (mode, owner,
    /// links, extended attributes), or that a file which it opens has another time by now. Answer: [`Reply::Changed`];
    /// of a file that the engine has let go of, [`Reply::Done`].
    Restamp {
        /// The object.
        object: ObjectId,
        /// What the origin says of the file now.
        stamp: Stamp,
        /// Applications see that change: the status change time is theirs, too.
        seen: bool,
    },
    /// The front door is about to change the origin's file in a way that moves its status change time. Answer:
    /// [`Reply::Done`] when it may: should the daemon be killed in the middle, nobody takes that for a change by
    /// others. To be followed by [`Request::StatusEnds`], whatever becomes of the change, unless it is refused.
    StatusBegins {
        /// The object.
        object: ObjectId,
    },
    /// The change is over, done or not. Answer: [`Reply::Done`].
    StatusEnds {
        /// The object.
        object: ObjectId,
        /// What the origin says of the file now; `None` if it could not be asked.
        stamp: Option<Stamp>,
    },
    /// fsync and fdatasync. Answer: [`Reply::Done`] when all that was acknowledged before is
    /// durable, in any object.
    Sync {
        /// The object.
        object: ObjectId,
        /// On how many other hosts it must be, as in [`Treatment::copies`].
        copies: Option<u8>,
    },
    /// Makes all that was acknowledged durable. Answer: [`Reply::Done`].
    SyncAll,
    /// Finds data or a hole at or after an offset. Answer: [`Reply::Offset`], or
    /// [`Errno::NXIO`] when there is none.
    Seek {
        /// The object.
        object: ObjectId,
        /// Where to start.
        offset: u64,
        /// Look for data; otherwise for a hole.
        data: bool,
    },
    /// Changes the origin's directories in order with the log. Answer: [`Reply::Done`].
    Namespace(Namespace),
    /// Destages what is dirty now; it stays in the pool as clean. Answer: [`Reply::Done`] when the
    /// origin has it, or [`Errno::CANCELED`] when it was cancelled.
    Flush {
        /// Names it until it is answered: for its progress ([`crate::Engine::flushes`]), and to cancel it.
        id: FlushId,
        /// Of which objects.
        scope: FlushScope,
    },
    /// Ends a flush early: what is not at the origin yet stays dirty. Answer: [`Reply::Done`], or
    /// [`Errno::NOENT`] when there is no such flush, or no more.
    CancelFlush(FlushId),
    /// Changes the cache mode. Answer: [`Reply::Done`] when it is in force for every object.
    SetMode(CacheMode),
    /// Changes all other settings, from now on: the mode and the planted bug in it are ignored.
    /// Answer: [`Reply::Done`].
    Configure(Box<Config>),
    /// Changes the pool's members. Answer: [`Reply::Done`] when the change is durable, which may take long;
    /// [`Errno::BUSY`] while another is under way, [`Errno::INVAL`] if it makes no sense, and [`Errno::CANCELED`] if
    /// it was taken back.
    ChangeMembers(MembersChange),
    /// Takes back a change of members that is under way: what was moved stays where it is. Answer: [`Reply::Done`], or
    /// [`Errno::NOENT`] when there is none.
    CancelMembersChange,
    /// Reads all that is of use on flash, and compares it with what was written. What is damaged is made good where that
    /// can be: [`crate::Engine::scrub`] tells. Answer: [`Reply::Done`] once all was read, [`Errno::BUSY`] while another
    /// goes on, [`Errno::CANCELED`] if it was ended early.
    Scrub,
    /// Ends a scrub early. Answer: [`Reply::Done`], or [`Errno::NOENT`] when there is none.
    CancelScrub,
    /// Ends the use of the pool: what is durable is written down in a checkpoint marked clean.
    /// Answer: [`Reply::Done`]; requests after it fail with [`Errno::SHUTDOWN`].
    Stop,
}

/// Where the blocks of a read came from. What is zeros for want of data is in neither count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    /// Blocks from flash, or from what is on its way there.
    pub hit_blocks: u32,
    /// Blocks from the origin.
    pub miss_blocks: u32,
    /// It let nothing in, by its treatment or as part of a long sequential run.
    pub bypassed: bool,
}

/// The engine's answer to a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The object, and what applications see of it: may differ from the origin's.
    Opened {
        /// The object.
        object: ObjectId,
        /// Size and time.
        attributes: Attributes,
    },
    /// Bytes, in pieces to be sent one after the other, and where they came from.
    Data(Vec<Buf>, Served),
    /// Done; the object is now like this.
    Changed(Attributes),
    /// An offset in bytes.
    Offset(u64),
    /// Done.
    Done,
    /// Not done.
    Failed(Errno),
}
