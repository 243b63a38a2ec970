//! The owner's end of a connection: `copies/src/link.rs`, step by step, around the real [`OwnerSide`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headpond_base::Nanos;
use headpond_peer::{Heard, Hello, HelloRefused, OwnerSide, PeerFrame, Reason, Said};

use crate::hosts::host::PeerRow;
use crate::hosts::kept::Deposed;
use crate::hosts::network::{Frame, Load, PAGE};
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
    /// All up to this one are answered.
    done: u64,
    heard_at: Nanos,
    ended: bool,
}

/// A disk of a peer.
pub(crate) struct Link {
    here: Here,
    conn: usize,
    /// The member, and its host.
    pub(crate) row: PeerRow,
    /// Its host is being drained.
    pub(crate) is_draining: Cell<bool>,
    /// It alone has all that is dirty.
    pub(crate) is_whole: Cell<bool>,
    state: RefCell<State>,
}

impl Link {
    /// `Link::connect`, and the thread that hears.
    pub(crate) async fn connect(
        here: &Here,
        row: PeerRow,
        hello: Hello,
        deposed: &Rc<Deposed>,
    ) -> Result<Rc<Self>, Trouble> {
        let conn = here.with(|world| world.connect(here.who, row.host));
        let mut side = OwnerSide::new(hello.versions);
        here.with(|world| {
            world.send(conn, false, Frame { tag: 0, said: Some(Said::Hello(hello)), load: Load::Nothing })
        });
        let came = here.wait(PATIENCE, move |world| world.conns[conn].ends[0].inbox.pop_front()).await;
        let heard = came.and_then(|frame| {
            let said = frame.said?;
            side.take(&PeerFrame { tag: frame.tag, said }).ok()
        });
        match heard {
            Some(Heard::Accepted(_)) => {}
            other => {
                here.with(|world| world.close(conn, false));
                return Err(match other {
                    Some(Heard::Refused(HelloRefused { reason: Reason::Owner | Reason::Epoch, .. })) => {
                        Trouble::Deposed
                    }
                    Some(Heard::Refused(HelloRefused { reason: Reason::NotKept, .. })) => Trouble::NotKept,
                    _ => Trouble::Away,
                });
            }
        }
        let state = RefCell::new(State { side, next: 1, done: 0, heard_at: here.clock(), ended: false });
        let link = Rc::new(Self {
            here: here.clone(),
            conn,
            row,
            is_draining: Cell::new(false),
            is_whole: Cell::new(false),
            state,
        });
        let (hears, deposed) = (link.clone(), deposed.clone());
        here.spawn(async move { hears.hear(&deposed).await });
        Ok(link)
    }

    /// Sends a write. Its number.
    pub(crate) fn write(&self, load: Load) -> u64 {
        self.ask(Said::Write { offset: 0, data: &PAGE }, load)
    }

    /// Sends a sync. Its number.
    pub(crate) fn sync(&self) -> u64 {
        self.ask(Said::Sync, Load::Nothing)
    }

    /// The pool has no member there any more. Whether that arrives, nobody waits for.
    pub(crate) fn let_go(&self) {
        self.ask(Said::LetGo, Load::Nothing);
        self.state.borrow_mut().ended = true;
    }

    fn ask(&self, said: Said<'static>, load: Load) -> u64 {
        let mut state = self.state.borrow_mut();
        if state.ended {
            return u64::MAX;
        }
        if !state.side.is_owed() {
            state.heard_at = self.here.clock();
        }
        let tag = state.next;
        state.next += 1;
        if state.side.ask(&PeerFrame { tag, said }) {
            self.here.with(|world| world.send(self.conn, false, Frame { tag, said: Some(said), load }));
        }
        tag
    }

    /// Whether a request is answered.
    pub(crate) fn is_done(&self, tag: u64) -> bool {
        self.state.borrow().done >= tag
    }

    /// Whether the connection is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.borrow().ended
    }

    async fn hear(&self, deposed: &Deposed) {
        let conn = self.conn;
        let look = Nanos(100 * Nanos::MILLISECOND.0);
        while !self.has_ended() {
            let came = self.here.wait(look, move |world| world.conns[conn].ends[0].inbox.pop_front()).await;
            let mut state = self.state.borrow_mut();
            let Some(frame) = came else {
                if state.side.is_owed() && self.here.clock().since(state.heard_at) >= SILENCE {
                    self.here.trace(|| "the peer is silent".to_owned());
                    state.ended = true;
                }
                continue;
            };
            state.heard_at = self.here.clock();
            let said = frame.said.ok_or(());
            match said.and_then(|said| state.side.take(&PeerFrame { tag: frame.tag, said }).map_err(drop)) {
                Ok(Heard::Deposed(_)) => {
                    self.here.trace(|| "the peer says that it is deposed".to_owned());
                    state.ended = true;
                    deposed.say();
                }
                Ok(Heard::Draining) => {
                    self.here.trace(|| format!("host {} says that it is being drained", self.row.host));
                    self.is_draining.set(true);
                }
                Ok(_) => state.done = frame.tag,
                Err(()) => {
                    self.here.trace(|| "the connection has ended".to_owned());
                    state.ended = true;
                }
            }
        }
        self.here.with(|world| {
            world.close(self.conn, false);
            world.poke(self.here.who);
        });
    }
}
