//! Notes what is asked of a shard, for a trace.
//!
//! Invariant: it never waits and never allocates. While nobody records, a request costs one look at whether there is
//! a recorder.

use std::time::Instant;

use headpond_base::{Class, Nanos, ObjectId};
use headpond_engine::{Handling, Namespace, Request, Treatment};
use headpond_recording::{AskedKind, AskedRequest, Pusher};

/// Notes requests.
pub struct Recorder {
    pusher: Pusher,
    started: Instant,
}

impl Recorder {
    /// Notes requests into a ring, with their times from `started`.
    #[must_use]
    pub fn new(pusher: Pusher, started: Instant) -> Self {
        Self { pusher, started }
    }

    /// Notes a request that came at this time, if a trace keeps its kind.
    pub(crate) fn note(&mut self, request: &Request, since: Instant) {
        let took = since.saturating_duration_since(self.started);
        let at = Nanos(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if let Request::WriteTogether { object, pieces, durable, how, .. } = request {
            for (offset, data) in pieces {
                self.pusher.push(&write(at, *object, (*offset, data.len() as u64), *durable, *how));
            }
        } else if let Some(asked) = asked(at, request) {
            self.pusher.push(&asked);
        }
    }
}

/// Not inlined: it is the rare case, while somebody records.
#[inline(never)]
fn asked(at: Nanos, request: &Request) -> Option<AskedRequest> {
    Some(match request {
        Request::Read { object, offset, len, how } => AskedRequest {
            process: how.process,
            class: how.class,
            past: how.handling == Handling::Bypass,
            ..plain(at, AskedKind::Read, *object, (*offset, u64::from(*len)))
        },
        Request::Write { object, offset, data, durable, how, .. } => {
            write(at, *object, (*offset, data.len() as u64), *durable, *how)
        }
        Request::Sync { object } => plain(at, AskedKind::Sync, *object, (0, 0)),
        Request::SyncAll => plain(at, AskedKind::Sync, AskedRequest::EVERY_OBJECT, (0, 0)),
        Request::Zero { object, offset, len, .. } => plain(at, AskedKind::Discard, *object, (*offset, *len)),
        Request::Truncate { object, size, .. } => plain(at, AskedKind::Truncate, *object, (*size, 0)),
        Request::Namespace(
            Namespace::Unlink { object } | Namespace::Rename { replaced: Some(object), exchange: false, .. },
        ) => plain(at, AskedKind::Remove, *object, (0, 0)),
        _ => return None,
    })
}

fn write(at: Nanos, object: ObjectId, range: (u64, u64), durable: bool, how: Treatment) -> AskedRequest {
    AskedRequest {
        process: how.process,
        class: how.class,
        past: matches!(how.handling, Handling::Bypass | Handling::ReadOnly),
        through: how.handling == Handling::WriteThrough,
        alone: durable || how.handling == Handling::Whole,
        ..plain(at, AskedKind::Write, object, range)
    }
}

const fn plain(at: Nanos, kind: AskedKind, object: ObjectId, (offset, len): (u64, u64)) -> AskedRequest {
    AskedRequest {
        at,
        kind,
        object,
        offset,
        len,
        process: 0,
        class: Class::EVERYBODY,
        past: false,
        through: false,
        alone: false,
    }
}
