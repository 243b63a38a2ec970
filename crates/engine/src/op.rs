//! A request under way.

use std::fmt;
use std::sync::Arc;

use headpond_base::{Buf, CacheMode, Errno, ObjectId, UnixNanos};

use crate::effect::Outcome;
use crate::gathered::Gathered;
use crate::locks::Span;
use crate::request::{FlushId, FlushScope, Namespace, Reply, RequestId, Served};
use crate::treatment::Treatment;

/// What a request asks for, once it is known to make sense.
#[derive(Debug)]
pub(crate) enum Work {
    /// The file is known already, and waits for what the log says of another that had its inode number. The origin has
    /// so many bytes of space for it.
    Open {
        allocated: u64,
    },
    Read {
        offset: u64,
        len: u64,
    },
    Change(Change),
    Sync,
    SyncAll,
    Seek {
        offset: u64,
        data: bool,
    },
    Namespace(Namespace),
    /// The log is to say durably that the status of the object's file is being changed.
    Status,
    Flush {
        id: FlushId,
        scope: FlushScope,
    },
    SetMode(CacheMode),
    Stop,
}

impl Work {
    /// A request with a [`Treatment`] of its own, rather than the usual one.
    pub(crate) const fn is_treated(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Change(Change::Write { .. } | Change::Together { .. }))
    }
}

/// A change to an object's bytes or size.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Write {
        offset: u64,
        data: Buf,
        mtime: UnixNanos,
        durable: bool,
    },
    /// Several writes, all or none: see `ops/together.rs`.
    Together {
        pieces: Arc<[(u64, Buf)]>,
        mtime: UnixNanos,
        durable: bool,
    },
    Truncate {
        size: u64,
        mtime: UnixNanos,
    },
    Zero {
        offset: u64,
        len: u64,
        extend: bool,
        mtime: UnixNanos,
    },
    Allocate {
        offset: u64,
        len: u64,
        extend: bool,
        mtime: UnixNanos,
    },
}

/// The last thing that a request asked for. The request is stepped again once it has that. Each kind uses some of
/// these, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Begin,
    /// Its lock. With it, the request is alone with its blocks.
    Locking,
    /// Space at the origin.
    Asking,
    /// The space that the origin keeps for other files that grow.
    MakingRoom,
    /// The bytes around its own.
    Gathering,
    /// That the log durably drops what the change makes stale on flash.
    Dropping,
    /// The change at the origin.
    AtOrigin,
    /// The file's length at the origin.
    Resizing,
    /// Nothing: the change is in effect, and may still have to become durable.
    Applied,
    /// A commit of the log.
    Syncing,
    /// A second place for what is durable here, if it needs one: a copy, or the origin.
    Securing,
    /// Nothing: it has that place.
    Secured,
    /// A sync of the origin.
    SyncingOrigin,
}

/// What a step of a request ends with.
pub(crate) enum StepResult {
    /// Something was started that will step it again.
    Wait,
    /// It is over.
    Finish(Reply),
}

/// A request under way, owned by the engine's table of them.
pub(crate) struct Op {
    pub(crate) request: RequestId,
    pub(crate) object: ObjectId,
    pub(crate) work: Work,
    pub(crate) stage: Stage,
    pub(crate) locked: Option<Span>,
    pub(crate) how: Treatment,
    /// Where the blocks of a read came from, so far.
    pub(crate) served: Served,
    /// A change that goes to the origin directly; decided once it has its lock.
    pub(crate) direct: bool,
    /// Pieces of its bytes that are still on their way.
    pub(crate) parts: u32,
    /// The present bytes of its blocks, as far as they are here.
    pub(crate) gathered: Gathered,
    /// The first thing that went wrong with a part.
    pub(crate) error: Option<Errno>,
    /// What the effect it waited for came to.
    pub(crate) outcome: Option<Outcome>,
    /// Blocks that a change covers only in part, in the order of the gathered bytes.
    pub(crate) edges: Vec<headpond_base::Block>,
    /// Direct changes of the object whose origin is being synced, when that was asked for.
    pub(crate) seen_changes: u64,
    /// Objects still to be handled, for requests on all of them.
    pub(crate) left: Vec<ObjectId>,
    /// The origin has kept the space that an application asked for.
    pub(crate) allocated: bool,
    /// It counts as one that asks the origin for space.
    pub(crate) reserving: bool,
    /// Files that grow gave back for it what they had ahead.
    pub(crate) made_room: bool,
    /// It waits for changes of the other kind, and the origin has refused once what it waits for.
    pub(crate) refused: bool,
}

impl Op {
    pub(crate) fn new(request: RequestId, object: ObjectId, work: Work, how: Treatment) -> Self {
        Self {
            request,
            object,
            work,
            stage: Stage::Begin,
            locked: None,
            how,
            served: Served::default(),
            direct: false,
            parts: 0,
            gathered: Gathered::default(),
            error: None,
            outcome: None,
            edges: Vec::new(),
            seen_changes: 0,
            left: Vec::new(),
            allocated: false,
            reserving: false,
            made_room: false,
            refused: false,
        }
    }

    /// The error of the effect it waited for, if it failed.
    pub(crate) fn take_failure(&mut self) -> Option<Errno> {
        match self.outcome.take() {
            Some(Outcome::Failed(errno)) => Some(errno),
            _ => None,
        }
    }
}

/// For people: what is asked, of what, and how far it is.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}, object {}: {:?}, {:?}", self.request.0, self.object.0, self.work, self.stage)?;
        if let Some(span) = self.locked {
            write!(f, ", blocks {}..{}", span.first.0, span.end.0)?;
        }
        self.error.map_or(Ok(()), |error| write!(f, ", {error}"))
    }
}
