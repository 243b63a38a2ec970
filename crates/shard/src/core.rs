//! What the shard needs of an engine. The product has one engine; tests have doubles.

use headpond_base::Nanos;
use headpond_engine::{
    Effect, Engine, FlushProgress, Holding, MemberShown, Outcome, Request, RequestId, ScrubShown, Stats, Ticket,
};

/// Takes requests and completions, and gives effects. The methods are the engine's own; see there.
pub trait Core: Send + 'static {
    /// Tells the engine the time.
    fn advance(&mut self, now: Nanos);
    /// Takes a request.
    fn submit(&mut self, id: RequestId, request: Request);
    /// Takes the result of an effect.
    fn complete(&mut self, ticket: Ticket, outcome: Outcome);
    /// Appends the effects to carry out, in order.
    fn take_effects(&mut self, out: &mut Vec<Effect>);
    /// The latest time at which the engine must learn the time.
    fn next_wake(&self) -> Option<Nanos>;
    /// The engine's counters and gauges.
    fn stats(&self) -> Stats;
    /// The flushes under way, oldest first.
    fn flushes(&self) -> Vec<FlushProgress> {
        Vec::new()
    }
    /// The objects with most in the pool, and those with most that the origin lacks; at most `most` of each.
    fn holdings(&self, most: usize) -> Vec<Holding> {
        let _ = most;
        Vec::new()
    }
    /// All members that the pool has had.
    fn members(&self) -> Vec<MemberShown> {
        Vec::new()
    }
    /// Dirty blocks that one member has where two should.
    fn exposed_blocks(&self) -> u64 {
        0
    }
    /// How far a scrub is, or how the last one ended.
    fn scrub(&self) -> Option<ScrubShown> {
        None
    }
}

impl Core for Engine {
    fn advance(&mut self, now: Nanos) {
        Self::advance(self, now);
    }

    fn submit(&mut self, id: RequestId, request: Request) {
        Self::submit(self, id, request);
    }

    fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        Self::complete(self, ticket, outcome);
    }

    fn take_effects(&mut self, out: &mut Vec<Effect>) {
        Self::take_effects(self, out);
    }

    fn next_wake(&self) -> Option<Nanos> {
        Self::next_wake(self)
    }

    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn flushes(&self) -> Vec<FlushProgress> {
        Self::flushes(self)
    }

    fn holdings(&self, most: usize) -> Vec<Holding> {
        Self::holdings(self, most)
    }

    fn members(&self) -> Vec<MemberShown> {
        Self::members(self)
    }

    fn exposed_blocks(&self) -> u64 {
        Self::exposed_blocks(self)
    }

    fn scrub(&self) -> Option<ScrubShown> {
        Self::scrub(self)
    }
}
