//! Gathering: where the blocks of a request come from, and what comes along with them.
//!
//! Each block comes from a batch in memory, from flash, from the memory window or from the origin (`blocks.rs`). What
//! the origin gave (`fetch.rs`) may be let into the pool (`let_in.rs`, `from_memory.rs`). Prefetch brings what will be
//! asked for next (`prefetch.rs`, `neighbours.rs`, `trails.rs`).
//!
//! Invariants:
//! - Only verified bytes, or the origin's, are given to a request. A dirty block comes from the pool or not at all.
//! - What was read before a change is never let in after it: each change poisons what is being read of its blocks.
//! - No request waits for what it did not ask for.
//!
//! [`Gather`] is its state, which nobody else reaches; [`Gathering`] is that with what of the engine it is given.

mod blocks;
mod fetch;
mod from_memory;
mod hits_to_origin;
mod let_in;
mod neighbours;
mod prefetch;
mod trails;

use headpond_base::{Nanos, ObjectId};

use crate::config::Config;
use crate::destage::Destage;
use crate::fetches::Fetches;
use crate::keep::{Keep, Keeping};
use crate::locks::Span;
use crate::object_room::ObjectRoom;
use crate::outbox::Outbox;
use crate::reclaim::Reclaim;
use crate::requests::Requests;
use crate::stats::Stats;
use crate::store::Store;
use hits_to_origin::HitsToOrigin;
use neighbours::Neighbours;
use trails::Trails;

/// What is being read of the origin, and what was learned of misses.
pub(crate) struct Gather {
    fetches: Fetches,
    neighbours: Neighbours,
    trails: Trails,
    hits_to_origin: HitsToOrigin,
}

impl Gather {
    /// For a pool of so many blocks.
    pub(crate) fn new(blocks: u64) -> Self {
        Self {
            fetches: Fetches::default(),
            neighbours: Neighbours::new(blocks),
            trails: Trails::default(),
            hits_to_origin: HitsToOrigin::default(),
        }
    }

    /// The reads of the origin that are under way.
    pub(crate) const fn fetches(&self) -> &Fetches {
        &self.fetches
    }

    /// Whatever is being read of these blocks is old from now on.
    pub(crate) fn poison(&mut self, object: ObjectId, span: Span) {
        self.fetches.poison(object, span);
    }

    /// A request is for these blocks. Answers whether it goes forward on a sure trail.
    pub(crate) fn follows_trail(&mut self, object: ObjectId, span: Span) -> bool {
        self.trails.follows(object, span)
    }
}

/// What gathering is given of the engine, and its own state.
pub(crate) struct Gathering<'a> {
    pub(crate) gather: &'a mut Gather,
    pub(crate) store: &'a mut Store,
    /// Those that wait for blocks.
    pub(crate) requests: &'a mut Requests,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) keep: &'a mut Keep,
    /// Lets the log name an object whose blocks come in.
    pub(crate) room: &'a mut ObjectRoom,
    /// Learns how long misses take.
    pub(crate) destage: &'a mut Destage,
    /// Learns which lingering blocks a request asked for.
    pub(crate) reclaim: &'a mut Reclaim,
    pub(crate) config: &'a Config,
    pub(crate) stats: &'a mut Stats,
    /// Nothing more is brought or let in.
    pub(crate) ending: bool,
    pub(crate) now: Nanos,
}

impl Gathering<'_> {
    const fn keeping(&mut self) -> Keeping<'_> {
        Keeping { keep: self.keep, store: self.store, stats: self.stats }
    }
}
