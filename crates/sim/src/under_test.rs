//! What the simulator drives: the real engine, or a trivial one in the simulator's own tests.

use headpond_base::{Buf, CacheMode, Nanos, ObjectId, PoolId};
use headpond_engine::{
    Config, Effect, Engine, FlashRead, Mutation, OpenObject, Outcome, Recovered, Request, RequestId, SecondTail,
    Ticket, Verdict, format_pool, recover_mutated,
};
use headpond_format::{Geometry, Identity, MemberName, OriginName, Witness};

/// A running engine.
pub(crate) trait UnderTest {
    fn advance(&mut self, now: Nanos);
    fn submit(&mut self, id: RequestId, request: Request);
    fn complete(&mut self, ticket: Ticket, outcome: Outcome);
    fn take_effects(&mut self, out: &mut Vec<Effect>);
    fn next_wake(&self) -> Option<Nanos>;
    /// The engine's part of a run's summary: dirty blocks, segments reclaimed, checkpoints, blocks destaged, bytes
    /// saved by packing.
    fn figures(&self) -> [u64; 5];
    /// Writes that it sends past the pool as part of a stream, decided when it takes each. `None` while requests
    /// wait.
    fn sequential_writes(&self) -> Option<u64>;
    /// The last host batch that it says is durable.
    fn durable_host_batch(&self) -> u64;
    /// All its counters, as text.
    fn told(&self) -> String;
    /// The requests under way, with what each waits for, as text.
    fn waiting(&self) -> String;
}

/// An object that recovery found.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Known {
    pub(crate) object: ObjectId,
    pub(crate) identity: Identity,
    /// What the origin said of it when it was left.
    pub(crate) left: Witness,
    pub(crate) dirty: bool,
    /// It has dirty data, and its file's status change time shows a change by others.
    pub(crate) tells: bool,
    /// Its file's status change time when headpond left it. `None` if the origin's state of the file counts anyway.
    pub(crate) left_ctime: Option<i64>,
    /// Everything that recovery says about it, to compare two recoveries.
    pub(crate) told: String,
}

/// A pool that was read, and is not yet in use.
pub(crate) trait Restored {
    fn objects(&self) -> Vec<Known>;
    fn reconcile(&mut self, object: ObjectId, found: Option<&OpenObject>) -> Verdict;
    /// The status change time that applications will see.
    fn ctime(&self, object: ObjectId) -> Option<i64>;
    fn keep(&mut self, object: ObjectId, found: &OpenObject);
    fn discard(&mut self, object: ObjectId);
    fn adopt(&mut self, origin: OriginName);
    fn booted(&mut self, boot: [u8; 16]);
    /// The process alone died, so nobody synced the origin. Whether it need not be.
    fn goes_on(&mut self) -> bool;
    fn clean_stop(&self) -> bool;
    /// The last host batch that counts.
    fn last_host_batch(&self) -> u64;
    /// Host batches on flash after a missing one.
    fn beyond_gap(&self) -> u64;
    /// What the engine acknowledges outlives it in this memory.
    fn survive_in(&mut self, second_tail: SecondTail);
    fn start(self: Box<Self>, config: Config, now: Nanos) -> Box<dyn UnderTest>;
}

/// Makes engines.
pub(crate) trait Maker: Sync {
    fn format(&self, pool: PoolId, geometry: Geometry, mode: CacheMode) -> Vec<(u64, Buf)>;
    fn recover(
        &self,
        flash: &mut dyn FlashRead,
        bytes: u64,
        mutation: Option<Mutation>,
    ) -> Result<Box<dyn Restored>, String>;
}

/// Makes the real thing.
pub(crate) struct Real;

impl UnderTest for Engine {
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

    fn figures(&self) -> [u64; 5] {
        let stats = self.stats();
        let saved = stats.record_bytes - stats.payload_bytes;
        [stats.dirty_blocks, stats.segments_reclaimed, stats.checkpoints, stats.destaged_blocks, saved]
    }

    fn sequential_writes(&self) -> Option<u64> {
        Self::sequential_writes(self)
    }

    fn durable_host_batch(&self) -> u64 {
        self.stats().durable_host_batch
    }

    fn told(&self) -> String {
        format!("{:?}", self.stats())
    }

    fn waiting(&self) -> String {
        self.requests_shown()
    }
}

impl Restored for Recovered {
    fn objects(&self) -> Vec<Known> {
        let known = Self::objects(self);
        known
            .into_iter()
            .map(|found| Known {
                object: found.object,
                identity: found.state.identity,
                left: found.state.witness,
                dirty: found.dirty,
                tells: found.dirty_blocks > 0 && found.state.flags.ctime_bounds && !found.state.flags.destaging,
                left_ctime: (!found.state.flags.direct).then_some(found.state.witness.ctime().0),
                told: format!("{found:?}"),
            })
            .collect()
    }

    fn reconcile(&mut self, object: ObjectId, found: Option<&OpenObject>) -> Verdict {
        Self::reconcile(self, object, found)
    }

    fn ctime(&self, object: ObjectId) -> Option<i64> {
        self.attributes(object).map(|seen| seen.ctime.0)
    }

    fn keep(&mut self, object: ObjectId, found: &OpenObject) {
        Self::keep(self, object, found);
    }

    fn discard(&mut self, object: ObjectId) {
        Self::discard(self, object);
    }

    fn adopt(&mut self, origin: OriginName) {
        Self::adopt(self, origin);
    }

    fn booted(&mut self, boot: [u8; 16]) {
        Self::booted(self, boot);
    }

    fn goes_on(&mut self) -> bool {
        Self::goes_on(self)
    }

    fn clean_stop(&self) -> bool {
        self.superblock().clean_stop
    }

    fn last_host_batch(&self) -> u64 {
        Self::last_host_batch(self).0
    }

    fn beyond_gap(&self) -> u64 {
        Self::beyond_gap(self)
    }

    fn survive_in(&mut self, second_tail: SecondTail) {
        Self::survive_in(self, second_tail);
    }

    fn start(self: Box<Self>, config: Config, now: Nanos) -> Box<dyn UnderTest> {
        Box::new(self.into_engine(config, now))
    }
}

impl Maker for Real {
    fn format(&self, pool: PoolId, geometry: Geometry, mode: CacheMode) -> Vec<(u64, Buf)> {
        format_pool(pool, MemberName(pool.0), geometry, None, mode)
    }

    fn recover(
        &self,
        flash: &mut dyn FlashRead,
        bytes: u64,
        mutation: Option<Mutation>,
    ) -> Result<Box<dyn Restored>, String> {
        match recover_mutated(flash, bytes, mutation) {
            Ok(recovered) => Ok(Box::new(recovered)),
            Err(error) => Err(format!("{error:?}")),
        }
    }
}
