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
        let at = Nanos::from(took);
        if let Request::WriteTogether { object, pieces, durable, how, .. } = request {
            for (offset, data) in pieces {
                self.pusher.push(&write(at, *object, (*offset, data.len() as u64), *durable, *how));
            }
        } else if let Some(asked) = asked(at, request) {
            self.pusher.push(&asked);
        }
    }
}

/// Not inlined: it is the rare case, while a recording runs.
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
        Request::Sync { object, .. } => plain(at, AskedKind::Sync, *object, (0, 0)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::UnixNanos;
    use headpond_recording::{TraceEncoder, TraceHead, ring};

    fn read(offset: u64) -> Request {
        Request::Read { object: ObjectId(1), offset, len: 4096, how: Treatment::default() }
    }

    #[test]
    fn what_a_trace_keeps_is_noted_and_all_else_is_not() {
        let (pusher, mut puller) = ring(16);
        let started = Instant::now();
        let mut recorder = Recorder::new(pusher, started);
        recorder.note(&read(8192), started);
        recorder.note(&Request::Close { object: ObjectId(1) }, started);
        recorder.note(&Request::SyncAll, started);
        let replaced = Some(ObjectId(9));
        let (from, to) = (Vec::new(), Vec::new());
        let rename = Namespace::Rename { moved: None, replaced, from, to, exchange: false };
        recorder.note(&Request::Namespace(rename), started);
        drop(recorder);
        let mut seen = Vec::new();
        puller.pull(&mut seen, 16);
        let seen: Vec<_> = seen.iter().map(|one| (one.request.kind, one.request.object)).collect();
        let every = AskedRequest::EVERY_OBJECT;
        assert_eq!(seen, [(AskedKind::Read, ObjectId(1)), (AskedKind::Sync, every), (AskedKind::Remove, ObjectId(9))]);
    }

    /// `cargo test -p headpond-shard --lib a_request_costs -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn what_a_request_costs_the_shard_and_the_thread_that_sends() {
        const PORTION: usize = 1 << 10;
        let (pusher, mut puller) = ring(1 << 16);
        let started = Instant::now();
        let mut recorder = Recorder::new(pusher, started);
        let head = TraceHead {
            started: UnixNanos(1),
            pool_bytes: 1,
            flush_period: Nanos(1),
            sequential_cutoff: 1,
            dirty_threshold: 1,
        };
        let mut bytes = Vec::new();
        let mut encoder = TraceEncoder::begin(&head, u64::MAX, &mut bytes);
        let (mut noted, mut sent, mut pulled) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..101 {
            let begun = Instant::now();
            (0..60_000).for_each(|at| recorder.note(std::hint::black_box(&read(at)), begun));
            noted.push(begun.elapsed().as_nanos() / 60_000);
            let begun = Instant::now();
            loop {
                pulled.clear();
                bytes.clear();
                let came = puller.pull(&mut pulled, PORTION);
                encoder.append(&pulled, Nanos(1), &mut bytes);
                std::hint::black_box(&bytes);
                if came < PORTION {
                    break;
                }
            }
            sent.push(begun.elapsed().as_nanos() / 60_000);
        }
        for (who, nanos) in [("the shard", &mut noted), ("the thread that writes, without the writing", &mut sent)] {
            nanos.sort_unstable();
            println!("{who}: {} ns a request, the middle of {} rounds", nanos[50], nanos.len());
        }
    }
}
