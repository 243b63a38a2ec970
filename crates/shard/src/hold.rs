//! What waits while the origin is brought to a standstill, and while it stands still.
//!
//! ```text
//! Nothing -> Changes   no change of data begins, so that a flush ends with nothing dirty
//!         -> Origin    changes go into the log again; no change of the origin begins
//!         -> Nothing   all that waited goes on
//! ```
//!
//! While this host is not the owner ([`Term`](crate::Term)), all requests of applications wait, reads as well.
//!
//! Invariant: what waits has been taken in and not been given to the engine. So it takes no thread and no lock, and
//! reads pass a hold. It counts against the shard's limits.

use headpond_engine::{Request, RequestId};

use crate::term::TermState;

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

/// What becomes of a request that comes in.
pub(crate) enum TakenIn {
    /// The engine gets it.
    Goes(Request),
    /// It waits.
    Waits,
    /// Another host is the owner: it fails.
    Refused,
}

/// The hold in force, whether this host is the owner, and the requests that wait.
#[derive(Default)]
pub(crate) struct HeldRequests {
    hold: Hold,
    term: TermState,
    waiting: Vec<(RequestId, Request)>,
}

impl HeldRequests {
    /// The hold in force.
    pub(crate) const fn now(&self) -> Hold {
        self.hold
    }

    /// Whether this host was the owner at the last look.
    pub(crate) const fn term(&self) -> TermState {
        self.term
    }

    /// How many requests wait that change data.
    pub(crate) fn changing(&self) -> usize {
        self.waiting.iter().filter(|(_, request)| Hold::Changes.holds(request)).count()
    }

    /// Keeps a request that must wait.
    pub(crate) fn take_in(&mut self, id: RequestId, request: Request) -> TakenIn {
        let of_owner = is_of_owner(&request);
        if of_owner && self.term == TermState::Ended {
            return TakenIn::Refused;
        }
        if self.hold.holds(&request) || (of_owner && self.term == TermState::Waits) {
            self.waiting.push((id, request));
            return TakenIn::Waits;
        }
        TakenIn::Goes(request)
    }

    /// Changes the hold. Returns what need not wait any more, in the order in which it came.
    pub(crate) fn becomes(&mut self, hold: Hold) -> Vec<(RequestId, Request)> {
        self.hold = hold;
        self.again()
    }

    /// Changes whether this host is the owner. Returns what need not wait any more, in the order in which it came.
    pub(crate) fn term_becomes(&mut self, term: TermState) -> Vec<(RequestId, Request)> {
        self.term = term;
        self.again()
    }

    fn again(&mut self) -> Vec<(RequestId, Request)> {
        let (hold, term) = (self.hold, self.term);
        let stays = |request: &Request| match (term, is_of_owner(request)) {
            (TermState::Ended, true) => false,
            (TermState::Waits, true) => true,
            _ => hold.holds(request),
        };
        let (stay, go) = std::mem::take(&mut self.waiting).into_iter().partition(|(_, request)| stays(request));
        self.waiting = stay;
        go
    }
}

/// Whether only the owner may answer a request. The others are the daemon's own: it can end without being the owner.
pub(crate) const fn is_of_owner(request: &Request) -> bool {
    !matches!(
        request,
        Request::SyncAll
            | Request::Stop
            | Request::Configure(_)
            | Request::CancelFlush(_)
            | Request::CancelScrub
            | Request::CancelMembersChange
    )
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
        let goes = |taken| matches!(taken, TakenIn::Goes(_));
        assert!(goes(held.take_in(RequestId(1), write())));
        assert!(held.becomes(Hold::Changes).is_empty());
        assert!(!goes(held.take_in(RequestId(2), write())));
        assert!(!goes(held.take_in(RequestId(3), Request::StatusBegins { object })));
        assert!(goes(held.take_in(RequestId(4), Request::sync(object))));
        let ids = |requests: Vec<(RequestId, Request)>| requests.iter().map(|(id, _)| id.0).collect::<Vec<_>>();
        assert_eq!(ids(held.becomes(Hold::Origin)), [2]);
        assert!(goes(held.take_in(RequestId(5), write())));
        assert_eq!(held.changing(), 1);
        assert_eq!(ids(held.becomes(Hold::Nothing)), [3]);
    }

    #[test]
    fn without_a_lease_all_but_the_daemons_own_requests_wait_and_once_deposed_they_fail() {
        let object = ObjectId(1);
        let mut held = HeldRequests::default();
        assert!(held.term_becomes(TermState::Waits).is_empty());
        assert!(matches!(held.take_in(RequestId(1), Request::sync(object)), TakenIn::Waits));
        assert!(matches!(held.take_in(RequestId(2), Request::StatusBegins { object }), TakenIn::Waits));
        assert!(matches!(held.take_in(RequestId(3), Request::Stop), TakenIn::Goes(_)));
        assert_eq!(held.changing(), 1);
        assert!(held.becomes(Hold::Origin).is_empty());
        let ids = |requests: Vec<(RequestId, Request)>| requests.iter().map(|(id, _)| id.0).collect::<Vec<_>>();
        assert_eq!(ids(held.term_becomes(TermState::Stands)), [1], "the other waits for the origin");
        assert_eq!(ids(held.term_becomes(TermState::Ended)), [2]);
        assert!(matches!(held.take_in(RequestId(4), Request::sync(object)), TakenIn::Refused));
    }
}
