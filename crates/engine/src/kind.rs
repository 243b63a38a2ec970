//! What the engine does otherwise with a volume than with a file. The comparison with the origin is in `witness.rs`.
//! Who else asks
//! [`Object::is_file`]: `ops/reserve.rs` (no space), `destage/job.rs` (no stamp), `store/object.rs` and
//! `store/replay.rs` (no times), `begin.rs` (a volume that others changed is not opened).
//!
//! A volume keeps its size, has no times and no name, and the origin is not asked for space for it. headpond changes
//! nothing by which it is known again. So
//! - its size is the origin's, the witness's and the log's, whatever fails;
//! - its destage and its sync neither cut nor stamp anything, and end with the sync of the origin;
//! - no entry of the log says a size or a time of it.

use headpond_base::{Errno, ObjectId, UnixNanos};

use crate::op::{Change, Work};
use crate::origin_size::OriginSize;
use crate::request::{Namespace, Request};
use crate::store::object::Object;

/// The objects that a request needs to be files.
pub(crate) fn to_be_files(request: &Request) -> [Option<ObjectId>; 2] {
    match request {
        Request::SetMtime { object, .. }
        | Request::Restamp { object, .. }
        | Request::StatusBegins { object }
        | Request::StatusEnds { object, .. }
        | Request::Namespace(Namespace::Unlink { object }) => [Some(*object), None],
        Request::Namespace(Namespace::Rename { moved, replaced, .. }) => [*moved, *replaced],
        _ => [None, None],
    }
}

impl Object {
    /// Whether it is a file, with times, a name and a size of its own.
    pub(crate) const fn is_file(&self) -> bool {
        self.state.identity.file().is_some()
    }

    /// Why it cannot be asked for this, if it cannot.
    pub(crate) fn refuses(&self, work: &Work) -> Option<Errno> {
        if self.is_file() {
            return None;
        }
        match work {
            Work::Change(Change::Truncate { .. } | Change::Allocate { .. }) => Some(Errno::OPNOTSUPP),
            Work::Change(change) => (change.end() > self.state.size).then_some(Errno::NOSPC),
            _ => None,
        }
    }

    /// The time that the log gets with a change at `mtime`.
    pub(crate) const fn time_said(&self, mtime: UnixNanos) -> UnixNanos {
        if self.is_file() { mtime } else { UnixNanos(0) }
    }

    /// The size and the time that the log gets with a write.
    pub(crate) const fn growth_said(&self, size: u64, mtime: UnixNanos) -> Option<(u64, UnixNanos)> {
        if self.is_file() { Some((size, mtime)) } else { None }
    }

    /// A change at the origin failed, and may have left a file of any length.
    pub(crate) const fn loses_origin_size(&mut self) {
        if self.is_file() {
            self.origin_size = OriginSize::Unknown;
        }
    }

    /// What is dirty of it was left by an earlier life, which may have left space past the end, too.
    pub(crate) const fn was_left_dirty(&mut self) {
        if self.is_file() {
            self.space.note_left_over();
        }
    }

    /// Nothing but the log needs to learn how it is left: the origin says of it what it said before.
    pub(crate) const fn is_as_left(&self) -> bool {
        self.trust.is_trusted() && (self.status_known || !self.is_file())
    }
}
