//! What the simulator drives: the real engine, or a trivial one in the simulator's own tests.

use headpond_base::{Buf, CacheMode, MemberId, Nanos, ObjectId};
use headpond_claim::ownership::Drawn;
use headpond_engine::{
    Config, Device, Effect, Engine, Mutation, OpenObject, Outcome, Present, RecoverError, Recovered, Request,
    RequestId, SecondTail, Ticket, Verdict, format_members, format_pool, recover_members,
};
use headpond_format::{Address, HostCopies, Identity, MemberName, MemberState, OriginName, Witness};

use crate::scenario::{POOL, Scenario};

/// A running engine.
pub(crate) trait UnderTest {
    fn advance(&mut self, now: Nanos);
    fn submit(&mut self, id: RequestId, request: Request);
    fn complete(&mut self, ticket: Ticket, outcome: Outcome);
    fn take_effects(&mut self, out: &mut Vec<Effect>);
    fn next_wake(&self) -> Option<Nanos>;
    /// The engine's part of a run's summary: dirty blocks, segments reclaimed, checkpoints, blocks destaged, bytes
    /// saved by packing.
    fn figures(&self) -> [u64; 7];
    /// Writes that it sends past the pool as part of a stream, decided when it takes each. `None` while requests
    /// wait.
    fn sequential_writes(&self) -> Option<u64>;
    /// The last host batch that it says is durable.
    fn durable_host_batch(&self) -> u64;
    /// All members that the pool has had, in the order of their numbers.
    fn members(&self) -> Vec<MemberNow>;
    /// Dirty blocks that fewer members have than they should.
    fn exposed_blocks(&self) -> u64;
    /// On how many members a start after a crash expects each host batch.
    fn host_copies(&self) -> HostCopies;
    /// Dirty blocks that the last scrub, or the one that goes on, found on no member.
    fn scrub_lost_blocks(&self) -> u64;
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

/// A member, as the engine sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemberNow {
    pub(crate) state: MemberState,
    /// Another device may have its number.
    pub(crate) is_spare: bool,
    /// Dirty blocks that it has.
    pub(crate) dirty: u64,
    /// Segments that it has room for.
    pub(crate) segments: u64,
    /// It has second copies and nothing else.
    pub(crate) copies_only: bool,
    /// A start needs no other.
    pub(crate) is_enough: bool,
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
    fn clean_stop(&self) -> bool;
    /// The last host batch that counts.
    fn last_host_batch(&self) -> u64;
    /// Host batches on flash after a missing one.
    fn beyond_gap(&self) -> u64;
    /// The member that each of the devices is. `None`: it is old, and nothing on it counts.
    fn places(&self) -> Vec<Option<MemberId>>;
    /// The states of all members that the pool has had.
    fn members(&self) -> Vec<MemberState>;
    fn list_generation(&self) -> u64;
    /// The epoch, the claim and the counter that the last use left.
    fn last_epoch(&self) -> u64;
    fn last_claim(&self) -> Drawn;
    fn counter(&self) -> u64;
    /// The epoch of the use that begins.
    fn epoch(&self) -> u64;
    /// Gives that use a claim.
    fn claim(&mut self, claim: Drawn);
    /// What the engine acknowledges outlives it in this memory.
    fn survive_in(&mut self, second_tail: SecondTail);
    fn start(self: Box<Self>, config: Config, now: Nanos) -> Box<dyn UnderTest>;
}

/// Why a pool is not taken into use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal(pub(crate) String);

/// Makes engines.
pub(crate) trait Maker: Sync {
    fn format(&self, scenario: &Scenario, mode: CacheMode) -> Result<Vec<(Address, Buf)>, String>;
    /// Reads the pool. These devices, by their places, have refused a sync.
    fn recover(
        &self,
        devices: Vec<Device<'_>>,
        refused: &[usize],
        mutation: Option<Mutation>,
    ) -> Result<Box<dyn Restored>, Refusal>;
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

    fn figures(&self) -> [u64; 7] {
        let stats = self.stats();
        let saved = stats.record_bytes - stats.payload_bytes;
        [
            stats.dirty_blocks,
            stats.segments_reclaimed,
            stats.checkpoints,
            stats.destaged_blocks,
            saved,
            stats.rows_made,
            stats.row_reads,
        ]
    }

    fn sequential_writes(&self) -> Option<u64> {
        Self::sequential_writes(self)
    }

    fn durable_host_batch(&self) -> u64 {
        self.stats().durable_host_batch
    }

    fn members(&self) -> Vec<MemberNow> {
        let members = Self::members(self);
        members
            .iter()
            .map(|member| MemberNow {
                state: member.state,
                is_spare: member.is_spare,
                dirty: member.dirty_blocks,
                segments: member.segments,
                copies_only: member.copies_only,
                is_enough: member.is_enough,
            })
            .collect()
    }

    fn exposed_blocks(&self) -> u64 {
        Self::exposed_blocks(self)
    }

    fn host_copies(&self) -> HostCopies {
        Self::host_copies(self)
    }

    fn scrub_lost_blocks(&self) -> u64 {
        self.scrub().map_or(0, |scrub| scrub.lost_blocks)
    }

    fn told(&self) -> String {
        format!("{:?}", self.stats())
    }

    fn waiting(&self) -> String {
        format!("{}\n{:?}\n{:?}", self.requests_shown(), Self::members(self), self.stats())
    }
}

/// A pool that was read from several devices.
struct Found {
    recovered: Recovered,
    places: Vec<Option<MemberId>>,
}

impl Restored for Found {
    fn objects(&self) -> Vec<Known> {
        let known = self.recovered.objects();
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
        self.recovered.reconcile(object, found)
    }

    fn ctime(&self, object: ObjectId) -> Option<i64> {
        self.recovered.attributes(object).map(|seen| seen.ctime.0)
    }

    fn keep(&mut self, object: ObjectId, found: &OpenObject) {
        self.recovered.keep(object, found);
    }

    fn discard(&mut self, object: ObjectId) {
        self.recovered.discard(object);
    }

    fn adopt(&mut self, origin: OriginName) {
        self.recovered.adopt(origin);
    }

    fn booted(&mut self, boot: [u8; 16]) {
        self.recovered.booted(boot);
    }

    fn clean_stop(&self) -> bool {
        self.recovered.superblock().clean_stop
    }

    fn last_host_batch(&self) -> u64 {
        self.recovered.last_host_batch().0
    }

    fn beyond_gap(&self) -> u64 {
        self.recovered.beyond_gap()
    }

    fn places(&self) -> Vec<Option<MemberId>> {
        self.places.clone()
    }

    fn members(&self) -> Vec<MemberState> {
        self.recovered.superblock().members.iter().map(|(_, member)| member.state).collect()
    }

    fn list_generation(&self) -> u64 {
        self.recovered.superblock().members.generation()
    }

    fn last_epoch(&self) -> u64 {
        self.recovered.superblock().epoch.0
    }

    fn last_claim(&self) -> Drawn {
        self.recovered.superblock().claim
    }

    fn counter(&self) -> u64 {
        self.recovered.superblock().counter
    }

    fn epoch(&self) -> u64 {
        self.recovered.epoch().0
    }

    fn claim(&mut self, claim: Drawn) {
        self.recovered.claim(claim);
    }

    fn survive_in(&mut self, second_tail: SecondTail) {
        self.recovered.survive_in(second_tail);
    }

    fn start(self: Box<Self>, config: Config, now: Nanos) -> Box<dyn UnderTest> {
        Box::new(self.recovered.into_engine(config, now))
    }
}

impl Maker for Real {
    fn format(&self, scenario: &Scenario, mode: CacheMode) -> Result<Vec<(Address, Buf)>, String> {
        let Some(members) = scenario.list() else {
            let writes = format_pool(POOL, MemberName(POOL.0), scenario.geometry, None, mode);
            let first = |(offset, data)| (Address { member: MemberId(0), offset }, data);
            return Ok(writes.into_iter().map(first).collect());
        };
        Ok(format_members(POOL, &members, scenario.geometry, None, mode))
    }

    fn recover(
        &self,
        devices: Vec<Device<'_>>,
        refused: &[usize],
        mutation: Option<Mutation>,
    ) -> Result<Box<dyn Restored>, Refusal> {
        let count = devices.len();
        let why = |error: RecoverError| Refusal(format!("{error:?}"));
        let mut present = Present::muster_mutated(devices, mutation).map_err(why)?;
        refused.iter().for_each(|device| present.doubt(*device));
        let recovered = recover_members(&mut present, mutation).map_err(why)?;
        let places = (0..count).map(|device| present.member_of(device)).collect();
        Ok(Box::new(Found { recovered, places }))
    }
}
