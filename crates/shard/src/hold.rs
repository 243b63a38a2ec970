//! What waits while the origin is brought to a standstill, and while it stands still.
//!
//! ```text
//! Nothing -> Changes   no change of data begins, so that a flush ends with nothing dirty
//!         -> Origin    changes go into the log again; no change of the origin begins
//!         -> Nothing   all that waited goes on
//! ```
//!
//! Invariant: what waits has been taken in and not been given to the engine. So it takes no thread and no lock, and
//! reads pass it. It counts against the shard's limits.

use headpond_engine::{Request, RequestId};

/// What waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hold {
    /// Nothing.
    #[default]
    Nothing,
    /// Each change of data, wherever it would go.
    Changes,
    /// Each change of the origin.
    Origin,
}

impl Hold {
    /// Whether a request waits before the engine gets it. What the engine has by then waits in the lanes.
    pub(crate) const fn holds(self, request: &Request) -> bool {
        let logged = matches!(
            request,
            Request::Write { .. }
                | Request::WriteTogether { .. }
                | Request::Truncate { .. }
                | Request::Zero { .. }
                | Request::Allocate { .. }
                | Request::SetMtime { .. }
        );
        // The door itself changes the file between the two requests about its status.
        let at_origin = matches!(request, Request::StatusBegins { .. } | Request::Namespace(_));
        match self {
            Self::Nothing => false,
            Self::Changes => logged || at_origin,
            Self::Origin => at_origin,
        }
    }
}

/// The hold in force, and the requests that wait for its end.
#[derive(Default)]
pub(crate) struct HeldRequests {
    hold: Hold,
    waiting: Vec<(RequestId, Request)>,
}

impl HeldRequests {
    /// The hold in force.
    pub(crate) const fn now(&self) -> Hold {
        self.hold
    }

    /// How many requests wait.
    pub(crate) const fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Keeps a request that must wait. Returns one that need not.
    pub(crate) fn take_in(&mut self, id: RequestId, request: Request) -> Option<Request> {
        if !self.hold.holds(&request) {
            return Some(request);
        }
        self.waiting.push((id, request));
        None
    }

    /// Changes the hold. Returns what need not wait any more, in the order in which it came.
    pub(crate) fn becomes(&mut self, hold: Hold) -> Vec<(RequestId, Request)> {
        self.hold = hold;
        let (stay, go) = std::mem::take(&mut self.waiting).into_iter().partition(|(_, request)| hold.holds(request));
        self.waiting = stay;
        go
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::{ObjectId, UnixNanos};

    #[test]
    fn changes_of_data_wait_only_until_the_origin_stands_still_and_changes_of_names_until_the_end() {
        let object = ObjectId(1);
        let write = || Request::SetMtime { object, mtime: UnixNanos(1), ctime: UnixNanos(1) };
        let mut held = HeldRequests::default();
        assert!(held.take_in(RequestId(1), write()).is_some());
        assert!(held.becomes(Hold::Changes).is_empty());
        assert!(held.take_in(RequestId(2), write()).is_none());
        assert!(held.take_in(RequestId(3), Request::StatusBegins { object }).is_none());
        assert!(held.take_in(RequestId(4), Request::Sync { object }).is_some());
        let ids = |requests: Vec<(RequestId, Request)>| requests.iter().map(|(id, _)| id.0).collect::<Vec<_>>();
        assert_eq!(ids(held.becomes(Hold::Origin)), [2]);
        assert!(held.take_in(RequestId(5), write()).is_some());
        assert_eq!(held.len(), 1);
        assert_eq!(ids(held.becomes(Hold::Nothing)), [3]);
    }
}
