//! The network: ways that are cut in one direction, delays, and connections between owners and peers.
//!
//! Keeps true: a connection's bytes arrive in order, or not at all. They arrive although the end that sent them is gone:
//! so also after those of a newer connection.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use headpond_peer::{PeerFrame, Said};
use headpond_timed::Rng;

use crate::hosts::host::Who;

/// Who can be reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    Host(usize),
    Etcd,
    Origin,
}

/// What is cut, until when, and how slow all else is.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) cuts: BTreeMap<(Place, Place), u64>,
    /// Until when each way takes longer.
    pub(crate) slow_until: u64,
    pub(crate) now: u64,
}

const MICRO: u64 = 1000;

impl Network {
    pub(crate) fn passes(&mut self, from: Place, to: Place, now: u64) -> bool {
        self.now = now;
        self.cuts.get(&(from, to)).is_none_or(|until| *until <= now)
    }

    pub(crate) fn cut_until(&self, from: Place, to: Place) -> u64 {
        self.cuts.get(&(from, to)).copied().unwrap_or(0)
    }

    pub(crate) fn delay(&self, rng: &mut Rng) -> u64 {
        let most = if self.now < self.slow_until { [200_000, 500_000, 1_500_000] } else { [500, 2_000, 60_000] };
        let often = rng.below(100);
        MICRO * rng.between(100, most[if often < 90 { 0 } else { 1 + usize::from(often > 98) }])
    }
}

/// A frame on its way, as its bytes. None ends the connection.
#[derive(Clone, Debug)]
pub(crate) struct Frame(Option<Rc<[u8]>>);

impl Frame {
    pub(crate) const END: Self = Self(None);

    pub(crate) fn of(tag: u64, said: Said<'_>) -> Self {
        let mut bytes = Vec::new();
        PeerFrame { tag, said }.encode(&mut bytes);
        Self(Some(bytes.into()))
    }

    /// What it says, if it does not end the connection.
    pub(crate) fn read(&self) -> Option<PeerFrame<'_>> {
        let frame = PeerFrame::decode(self.0.as_ref()?).expect("both ends speak the protocol");
        frame.map(|(frame, _)| frame)
    }
}

/// An end of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnEnd {
    /// The process that has it. None: nobody took it yet, or it is closed.
    pub(crate) who: Option<Who>,
    pub(crate) is_closed: bool,
    pub(crate) inbox: VecDeque<Frame>,
    /// On the way here.
    pub(crate) coming: VecDeque<Frame>,
}

/// A connection: first the owner's end, then the peer's.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) hosts: [usize; 2],
    pub(crate) ends: [ConnEnd; 2],
}
