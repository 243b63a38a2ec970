//! What the shard needs of an engine. There is one; tests have doubles.

use headpond_base::Nanos;
use headpond_engine::{Effect, Engine, FlushProgress, Holding, Outcome, Request, RequestId, Stats, Ticket};

/// Something that takes requests and completions and gives effects. See the engine's own methods,
/// which these are.
pub trait Core: Send + 'static {
    /// Tells the time.
    fn advance(&mut self, now: Nanos);
    /// Takes a request.
    fn submit(&mut self, id: RequestId, request: Request);
    /// Takes the outcome of an effect.
    fn complete(&mut self, ticket: Ticket, outcome: Outcome);
    /// Appends what is to be done, in order.
    fn take_effects(&mut self, out: &mut Vec<Effect>);
    /// When it wants to be told the time at the latest.
    fn next_wake(&self) -> Option<Nanos>;
    /// Its counters and gauges.
    fn stats(&self) -> Stats;
    /// The flushes under way, oldest first.
    fn flushes(&self) -> Vec<FlushProgress> {
        Vec::new()
    }
    /// The objects with most in the pool, and with most that the origin has not got, at most so many of each.
    fn holdings(&self, most: usize) -> Vec<Holding> {
        let _ = most;
        Vec::new()
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
}
