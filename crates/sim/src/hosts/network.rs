//! The network: ways that are cut in one direction, delays, and connections between owners and peers.
//!
//! Keeps true: a connection's bytes arrive in order, or not at all. They arrive although the end that sent them is gone:
//! so also after those of a newer connection.

use std::collections::{BTreeMap, VecDeque};

use headpond_peer::Said;
use headpond_timed::Rng;

use crate::hosts::host::{Superblock, Value, Who};

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

/// A write's payload, as long as a frame needs it: what is written goes beside it.
pub(crate) static PAGE: [u8; 4096] = [0; 4096];

/// What a write brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    Nothing,
    Record(u64, Value),
    Superblock(Superblock),
    /// From here on the copy has each batch.
    Tail,
    /// From here on the copy alone has all that is dirty.
    Whole,
    /// What is up to here has no need of the log any more.
    Destaged(u64),
}

/// A frame on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) tag: u64,
    /// None ends the connection.
    pub(crate) said: Option<Said<'static>>,
    pub(crate) load: Load,
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
