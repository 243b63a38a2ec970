//! The owner's end of a connection.
//!
//! ```text
//!   Greeting ── accepted ──> Serving ── deposed ──> Ended
//!       └────── refused ───────────────────────────> Ended
//! ```
//!
//! Invariant: an answer is handed on only if it is that of the request that was asked first of those without one, and
//! of its kind and length.

use std::collections::VecDeque;

use headpond_base::Errno;

use crate::bad_frame::BadFrame;
use crate::frame::{PeerFrame, Said};
use crate::hello::{Accepted, HelloRefused, Versions};

/// What the peer said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard<'a> {
    /// It serves the member.
    Accepted(Accepted),
    /// It does not.
    Refused(HelloRefused),
    /// A read is done.
    Data(u64, &'a [u8]),
    /// A write or sync is done.
    Done(u64),
    /// A request failed.
    Failed(u64, Errno),
    /// Another owner has the pool, of this number.
    Deposed(u64),
    /// It is there, and at a request.
    Working,
    /// It is to keep no copies any more.
    Draining,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Greeting,
    Serving,
    Ended,
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
struct Owed {
    tag: u64,
    /// The bytes of a read.
    data: Option<u32>,
}

/// The states of the owner's end.
#[derive(Debug)]
pub struct OwnerSide {
    speaks: Versions,
    state: State,
    owed: VecDeque<Owed>,
}

impl OwnerSide {
    /// A new connection. The hello is on its way, and says this of the versions.
    #[must_use]
    pub const fn new(speaks: Versions) -> Self {
        Self { speaks, state: State::Greeting, owed: VecDeque::new() }
    }

    /// Notes a request that is sent now. False if none may be: not served yet, or no more.
    pub fn ask(&mut self, frame: &PeerFrame<'_>) -> bool {
        if self.state != State::Serving {
            return false;
        }
        match frame.said {
            Said::Read { len, .. } => self.owed.push_back(Owed { tag: frame.tag, data: Some(len) }),
            Said::Write { .. } | Said::Sync | Said::LetGo => self.owed.push_back(Owed { tag: frame.tag, data: None }),
            Said::Trim { .. } => {}
            _ => return false,
        }
        true
    }

    /// Whether the peer owes an answer.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        self.state == State::Greeting || !self.owed.is_empty()
    }

    /// Takes the peer's next frame.
    ///
    /// # Errors
    /// [`BadFrame`]: the connection ends.
    pub fn take<'a>(&mut self, frame: &PeerFrame<'a>) -> Result<Heard<'a>, BadFrame> {
        match (self.state, frame.said) {
            (State::Greeting, Said::Accepted(accepted)) if self.speaks.have(accepted.version) && accepted.bytes > 0 => {
                self.state = State::Serving;
                return Ok(Heard::Accepted(accepted));
            }
            (State::Greeting, Said::Refused(refused)) => {
                self.state = State::Ended;
                return Ok(Heard::Refused(refused));
            }
            (State::Serving, Said::Deposed(owner)) => {
                self.state = State::Ended;
                return Ok(Heard::Deposed(owner));
            }
            (State::Serving, Said::Working) => return Ok(Heard::Working),
            (State::Serving, Said::Draining) => return Ok(Heard::Draining),
            (State::Serving, _) => {}
            _ => return Err(BadFrame::NotDue),
        }
        let first = self.owed.front().filter(|first| first.tag == frame.tag).copied().ok_or(BadFrame::NotDue)?;
        let heard = match (frame.said, first.data) {
            (Said::Data(data), Some(len)) if data.len() == len as usize => Heard::Data(frame.tag, data),
            (Said::Done, None) => Heard::Done(frame.tag),
            (Said::Failed(errno), _) => Heard::Failed(frame.tag, errno),
            _ => return Err(BadFrame::NotDue),
        };
        self.owed.pop_front();
        Ok(heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving() -> OwnerSide {
        let mut side = OwnerSide::new(Versions::SPOKEN);
        let accepted = Accepted { version: 1, durable: false, bytes: 1 << 26, member: [1; 16] };
        assert!(!side.ask(&PeerFrame { tag: 1, said: Said::Sync }), "nobody serves yet");
        let heard = side.take(&PeerFrame { tag: 0, said: Said::Accepted(accepted) });
        assert_eq!(heard, Ok(Heard::Accepted(accepted)));
        side
    }

    #[test]
    fn answers_come_in_the_order_of_the_requests_and_are_of_their_kind() {
        let data = [0; 8192];
        let ask = |side: &mut OwnerSide| {
            assert!(side.ask(&PeerFrame { tag: 1, said: Said::Read { offset: 0, len: 4096 } }));
            assert!(side.ask(&PeerFrame { tag: 2, said: Said::Write { offset: 0, data: &data } }));
            assert!(side.ask(&PeerFrame { tag: 9, said: Said::Trim { offset: 0, len: 4096 } }));
            assert!(side.ask(&PeerFrame { tag: 3, said: Said::Sync }));
        };
        let of = |tag, said| PeerFrame { tag, said };
        let mut side = serving();
        ask(&mut side);
        assert_eq!(side.take(&of(1, Said::Data(&data[..4096]))), Ok(Heard::Data(1, &data[..4096])));
        assert_eq!(side.take(&of(2, Said::Failed(Errno::IO))), Ok(Heard::Failed(2, Errno::IO)));
        assert_eq!(side.take(&of(3, Said::Done)), Ok(Heard::Done(3)));
        assert!(!side.is_owed(), "a trim has no answer");
        assert_eq!(side.take(&of(0, Said::Working)), Ok(Heard::Working), "it may cross with the answer");
        assert_eq!(side.take(&of(0, Said::Draining)), Ok(Heard::Draining), "at any time");
        assert_eq!(side.take(&of(3, Said::Done)), Err(BadFrame::NotDue), "twice");
        assert!(side.ask(&of(4, Said::LetGo)));
        assert_eq!(side.take(&of(4, Said::Done)), Ok(Heard::Done(4)));
        for forged in [
            of(3, Said::Done),
            of(2, Said::Done),
            of(1, Said::Done),
            of(1, Said::Data(&data)),
            of(1, Said::Sync),
            of(1, Said::Read { offset: 0, len: 4096 }),
        ] {
            let mut side = serving();
            ask(&mut side);
            assert_eq!(side.take(&forged), Err(BadFrame::NotDue), "{forged:?}");
        }
    }

    #[test]
    fn a_version_that_the_owner_does_not_speak_ends_the_connection() {
        for (version, hears) in [(0, false), (1, true), (2, true), (3, false)] {
            let mut side = OwnerSide::new(Versions::between(1, 2).unwrap());
            let accepted = Accepted { version, durable: false, bytes: 1 << 26, member: [1; 16] };
            let heard = side.take(&PeerFrame { tag: 0, said: Said::Accepted(accepted) });
            assert_eq!(heard.is_ok(), hears, "{version}: {heard:?}");
        }
    }

    #[test]
    fn who_was_deposed_asks_for_nothing_more() {
        let mut side = serving();
        assert_eq!(side.take(&PeerFrame { tag: 0, said: Said::Deposed(7) }), Ok(Heard::Deposed(7)));
        assert!(!side.ask(&PeerFrame { tag: 1, said: Said::Sync }));
        assert_eq!(side.take(&PeerFrame { tag: 1, said: Said::Done }), Err(BadFrame::NotDue));
    }
}
