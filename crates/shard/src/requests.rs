//! The requests that the engine has, and how each is answered.
//!
//! Invariant: each is answered exactly once. The drop answers the remaining ones with an error, so no caller waits for
//! a shard that is gone.

use std::time::Instant;

use headpond_base::Errno;
use headpond_door::DoorId;
use headpond_engine::{Handling, Reply, Request, RequestId};

use crate::hold::{Hold, is_of_owner};
use crate::mailbox::{Answer, Item};
use crate::operation::Operation;

/// The kinds with a latency of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    /// A write that a rule sent past the pool.
    WritePast,
    Sync,
    Other,
}

/// A request that the engine has.
pub(crate) struct Unanswered {
    pub(crate) answer: Answer,
    pub(crate) operation: Option<Operation>,
    pub(crate) since: Instant,
    pub(crate) kind: Kind,
    pub(crate) way: RequestWay,
    /// Whether it changes data.
    pub(crate) changes: bool,
    /// Whether only the owner may answer it.
    pub(crate) of_owner: bool,
}

/// The way by which a request came in. Each way counts it against its own limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestWay {
    /// From another thread.
    Mailbox,
    /// Through this door, which the shard serves.
    Door(DoorId),
}

/// All requests, by number: a look-up is an index.
pub(crate) struct NumberedRequests {
    /// Each place with its number of uses. That number is the upper half of a request's number.
    places: Vec<(u32, Option<Unanswered>)>,
    free: Vec<u32>,
    /// How many of them change data.
    changing: usize,
    /// The answer to the remaining requests.
    pub(crate) end: Errno,
}

impl NumberedRequests {
    pub(crate) fn with_capacity(limit: usize) -> Self {
        // An error, unless the shard ends in good order.
        Self { places: Vec::with_capacity(limit), free: Vec::with_capacity(limit), changing: 0, end: Errno::IO }
    }

    /// Adds a request, and gives it its number.
    pub(crate) fn add(&mut self, item: Item, way: RequestWay) -> (RequestId, Request) {
        let kind = match &item.request {
            Request::Read { .. } => Kind::Read,
            Request::Write { how, .. } if matches!(how.handling, Handling::Bypass | Handling::ReadOnly) => {
                Kind::WritePast
            }
            Request::Write { .. } | Request::WriteTogether { .. } => Kind::Write,
            Request::Sync { .. } | Request::SyncAll => Kind::Sync,
            _ => Kind::Other,
        };
        let changes = Hold::Changes.holds(&item.request);
        let of_owner = is_of_owner(&item.request);
        self.changing += usize::from(changes);
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).expect("limits are far below 2^32")
        });
        let place = &mut self.places[index as usize];
        place.0 = place.0.wrapping_add(1);
        let Item { answer, operation, since, .. } = item;
        place.1 = Some(Unanswered { answer, operation, since, kind, way, changes, of_owner });
        (RequestId(u64::from(place.0) << 32 | u64::from(index)), item.request)
    }

    fn place(&mut self, id: RequestId) -> Option<&mut Option<Unanswered>> {
        let place = self.places.get_mut(id.0 as u32 as usize)?;
        (u64::from(place.0) == id.0 >> 32).then_some(&mut place.1)
    }

    /// Takes the directory operation of a request, once.
    pub(crate) fn operation(&mut self, id: RequestId) -> Option<Operation> {
        self.place(id)?.as_mut()?.operation.take()
    }

    /// Takes a request out, to answer it.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Unanswered> {
        let pending = self.place(id)?.take()?;
        self.free.push(id.0 as u32);
        self.changing -= usize::from(pending.changes);
        Some(pending)
    }

    /// Whether only the owner may answer a request.
    pub(crate) fn is_of_owner(&mut self, id: RequestId) -> bool {
        self.place(id).is_some_and(|place| place.as_ref().is_some_and(|request| request.of_owner))
    }

    /// How many requests there are that change data.
    pub(crate) const fn changing(&self) -> usize {
        self.changing
    }

    /// How many requests there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl Drop for NumberedRequests {
    fn drop(&mut self) {
        for pending in self.places.drain(..).filter_map(|(_, pending)| pending) {
            (pending.answer)(Reply::Failed(self.end));
        }
    }
}
