//! The peer's end of a connection.
//!
//! ```text
//!   Awaiting hello ── hello ──> Judging ── admitted ──> Serving ── let go ──> Over
//! ```

use crate::bad_frame::BadFrame;
use crate::frame::{PeerFrame, Said};
use crate::hello::Hello;

/// What the owner asks for. Each is due, and within the member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked<'a> {
    /// To be served. [`KeeperSide::admit`] follows, or the end.
    Hello(Hello),
    /// Bytes.
    Read {
        /// The first one.
        offset: u64,
        /// How many.
        len: usize,
    },
    /// A write.
    Write {
        /// The first byte.
        offset: u64,
        /// What to write.
        data: &'a [u8],
    },
    /// A sync.
    Sync,
    /// A trim, which has no answer.
    Trim {
        /// The first byte.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// To forget the member. Nothing follows.
    LetGo,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    AwaitingHello,
    Judging,
    Serving { bytes: u64 },
    Over,
}

/// The states of the peer's end.
#[derive(Debug)]
pub struct KeeperSide(State);

impl KeeperSide {
    /// A new connection.
    #[must_use]
    pub const fn new() -> Self {
        Self(State::AwaitingHello)
    }

    /// Takes the owner's next frame.
    ///
    /// # Errors
    /// [`BadFrame`]: the connection ends.
    pub fn take<'a>(&mut self, frame: &PeerFrame<'a>) -> Result<Asked<'a>, BadFrame> {
        let bytes = match (self.0, frame.said) {
            (State::AwaitingHello, Said::Hello(hello)) => {
                self.0 = State::Judging;
                return Ok(Asked::Hello(hello));
            }
            (State::Serving { bytes }, _) => bytes,
            _ => return Err(BadFrame::NotDue),
        };
        let within = |offset: u64, len: u64| offset.checked_add(len).is_some_and(|end| end <= bytes);
        match frame.said {
            Said::Read { offset, len } if within(offset, len.into()) => Ok(Asked::Read { offset, len: len as usize }),
            Said::Write { offset, data } if within(offset, data.len() as u64) => Ok(Asked::Write { offset, data }),
            Said::Trim { offset, len } if within(offset, len.into()) => Ok(Asked::Trim { offset, len: len.into() }),
            Said::Sync => Ok(Asked::Sync),
            Said::LetGo => {
                self.0 = State::Over;
                Ok(Asked::LetGo)
            }
            Said::Read { .. } | Said::Write { .. } | Said::Trim { .. } => Err(BadFrame::Length),
            _ => Err(BadFrame::NotDue),
        }
    }

    /// The hello was judged and recorded: a member of so many bytes is served.
    ///
    /// # Panics
    /// When no hello is being judged.
    pub fn admit(&mut self, bytes: u64) {
        assert_eq!(self.0, State::Judging, "only who said hello is admitted");
        self.0 = State::Serving { bytes };
    }
}

impl Default for KeeperSide {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use headpond_base::PoolId;

    use super::*;
    use crate::hello::Versions;

    const fn of(said: Said<'_>) -> PeerFrame<'_> {
        PeerFrame { tag: 1, said }
    }

    #[test]
    fn nothing_is_served_before_a_hello_was_admitted_nor_beyond_the_member() {
        let (pool, member) = (PoolId([1; 16]), [2; 16]);
        let hello = Hello {
            versions: Versions::SPOKEN,
            durable: false,
            pool,
            member,
            owner: 1,
            epoch: 1,
            bytes: 0,
            beside: [0; 16],
        };
        let mut side = KeeperSide::new();
        let data = [0; 4096];
        let write = |offset| of(Said::Write { offset, data: &data });
        assert_eq!(side.take(&write(0)), Err(BadFrame::NotDue));
        assert_eq!(side.take(&of(Said::Hello(hello))), Ok(Asked::Hello(hello)));
        assert_eq!(side.take(&write(0)), Err(BadFrame::NotDue), "it is not recorded yet");
        side.admit(8192);
        assert_eq!(side.take(&of(Said::Hello(hello))), Err(BadFrame::NotDue), "one hello a connection");
        assert_eq!(side.take(&write(4096)), Ok(Asked::Write { offset: 4096, data: &data }));
        for beyond in [
            write(8192),
            of(Said::Read { offset: 4096, len: 8192 }),
            of(Said::Trim { offset: (1 << 62) - 4096, len: 1 << 31 }),
        ] {
            assert_eq!(side.take(&beyond), Err(BadFrame::Length));
        }
        for answer in [Said::Done, Said::Data(&data), Said::Deposed(1), Said::Draining] {
            assert_eq!(side.take(&of(answer)), Err(BadFrame::NotDue));
        }
        assert_eq!(side.take(&of(Said::LetGo)), Ok(Asked::LetGo));
        assert_eq!(side.take(&write(0)), Err(BadFrame::NotDue), "nothing follows");
    }
}
