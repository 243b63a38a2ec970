//! The owner's end of a connection: `copies/src/link.rs`, step by step, around the real [`OwnerSide`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use headpond_base::{BufMut, Errno, Nanos};
use headpond_engine::{Outcome, Ticket};
use headpond_peer::{Heard, Hello, HelloRefused, OwnerSide, PeerFrame, Reason, Said};

use crate::hosts::host::PeerRow;
use crate::hosts::network::Frame;
use crate::hosts::world::Here;

/// How long the hello may wait for its answer: `PATIENCE` of `link.rs`. No request of a peer here takes that long.
const PATIENCE: Nanos = Nanos(5 * Nanos::SECOND.0);

/// How long a peer that owes an answer may be silent: `SILENCE` of `link.rs`.
const SILENCE: Nanos = Nanos(800 * Nanos::MILLISECOND.0);

/// Why there is no copy at a peer: `PeerTrouble` of `control/src/peers.rs`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    Deposed,
    NotKept,
    Away,
}

struct State {
    side: OwnerSide,
    next: u64,
    /// What the engine waits for, in the order in which it asked.
    owed: VecDeque<Ticket>,
    heard_at: Nanos,
    ended: bool,
}

/// Called with the outcome of each request.
type Sink = Box<dyn Fn(Ticket, Outcome)>;

/// A disk of a peer.
pub(crate) struct Link {
    here: Here,
    conn: usize,
    /// The member, and its host.
    pub(crate) row: PeerRow,
    /// Its host is being drained.
    pub(crate) is_draining: Cell<bool>,
    /// The planted bug: nothing more is sent, and all counts as done.
    pub(crate) is_mute: Cell<bool>,
    state: RefCell<State>,
    sink: RefCell<Option<Sink>>,
}

impl Link {
    /// `Link::connect`, and the thread that hears.
    pub(crate) async fn connect(here: &Here, row: PeerRow, hello: Hello) -> Result<Rc<Self>, Trouble> {
        let conn = here.with(|world| world.connect(here.who, row.host));
        let mut side = OwnerSide::new(hello.versions);
        here.with(|world| world.send(conn, false, Frame::of(0, Said::Hello(hello))));
        let came = here.wait(PATIENCE, move |world| world.conns[conn].ends[0].inbox.pop_front()).await;
        let heard = came.as_ref().and_then(|frame| side.take(&frame.read()?).ok());
        let accepted = match heard {
            Some(Heard::Accepted(accepted)) => accepted,
            other => {
                here.with(|world| world.close(conn, false));
                return Err(match other {
                    Some(Heard::Refused(HelloRefused { reason: Reason::Epoch, .. })) => Trouble::Deposed,
                    // A larger owner's number does not say so: the registry alone says who the owner is.
                    Some(Heard::Refused(HelloRefused { reason: Reason::NotKept, .. })) => Trouble::NotKept,
                    _ => Trouble::Away,
                });
            }
        };
        let (next, owed, ended) = (1, VecDeque::new(), false);
        let state = RefCell::new(State { side, next, owed, heard_at: here.clock(), ended });
        let link = Rc::new(Self {
            here: here.clone(),
            conn,
            row: PeerRow { name: accepted.member, ..row },
            is_draining: Cell::new(false),
            is_mute: Cell::new(false),
            state,
            sink: RefCell::new(None),
        });
        let hears = link.clone();
        here.spawn(async move { hears.hear().await });
        Ok(link)
    }

    /// From now on this is called with the outcome of each request.
    pub(crate) fn tell(&self, sink: Sink) {
        *self.sink.borrow_mut() = Some(sink);
    }

    /// Sends a request, with the ticket of who waits for it. False if the connection is over.
    pub(crate) fn ask(&self, said: Said<'_>, ticket: Option<Ticket>) -> bool {
        let mut state = self.state.borrow_mut();
        if state.ended {
            return false;
        }
        if !state.side.is_owed() {
            state.heard_at = self.here.clock();
        }
        let tag = state.next;
        state.next += 1;
        if !state.side.ask(&PeerFrame { tag, said }) {
            return false;
        }
        state.owed.extend(ticket);
        self.here.with(|world| world.send(self.conn, false, Frame::of(tag, said)));
        true
    }

    /// The pool has no member there any more. Whether that arrives, nobody waits for.
    pub(crate) fn let_go(&self) {
        self.ask(Said::LetGo, None);
        self.close();
    }

    /// Nobody needs the connection any more.
    pub(crate) fn close(&self) {
        self.state.borrow_mut().ended = true;
    }

    /// Whether the connection is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.borrow().ended
    }

    fn done(&self, outcome: Outcome) {
        let ticket = self.state.borrow_mut().owed.pop_front();
        if let (Some(ticket), Some(sink)) = (ticket, &*self.sink.borrow()) {
            sink(ticket, outcome);
        }
    }

    fn take(&self, frame: &PeerFrame<'_>) -> Option<Heard<'static>> {
        let mut state = self.state.borrow_mut();
        let heard = state.side.take(frame).ok();
        drop(state);
        match heard? {
            Heard::Done(_) => self.done(Outcome::Done),
            Heard::Failed(_, errno) => self.done(Outcome::Failed(errno)),
            Heard::Data(_, data) => self.done(Outcome::Bytes(BufMut::copy_of(data).freeze())),
            Heard::Deposed(owner) => return Some(Heard::Deposed(owner)),
            Heard::Draining => return Some(Heard::Draining),
            _ => {}
        }
        Some(Heard::Working)
    }

    async fn hear(&self) {
        let conn = self.conn;
        let look = Nanos(100 * Nanos::MILLISECOND.0);
        while !self.has_ended() {
            let came = self.here.wait(look, move |world| world.conns[conn].ends[0].inbox.pop_front()).await;
            let Some(came) = came else {
                let mut state = self.state.borrow_mut();
                if state.side.is_owed() && self.here.clock().since(state.heard_at) >= SILENCE {
                    self.here.trace(|| "the peer is silent".to_owned());
                    state.ended = true;
                }
                continue;
            };
            self.state.borrow_mut().heard_at = self.here.clock();
            match came.read().and_then(|frame| self.take(&frame)) {
                Some(Heard::Deposed(_)) => {
                    self.here.trace(|| "the peer knows a larger owner's number".to_owned());
                    self.close();
                }
                Some(Heard::Draining) => {
                    self.here.trace(|| format!("host {} says that it is being drained", self.row.host));
                    self.is_draining.set(true);
                }
                Some(_) => {}
                None => {
                    self.here.trace(|| "the connection has ended".to_owned());
                    self.close();
                }
            }
        }
        self.here.with(|world| {
            world.close(self.conn, false);
            world.poke(self.here.who);
        });
        while !self.state.borrow().owed.is_empty() {
            self.done(Outcome::Failed(Errno::IO));
        }
    }
}
