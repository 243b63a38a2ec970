//! The engine: takes requests, completions and the time; gives effects.
//!
//! Everything happens in [`Engine::cycle`], which runs until nothing more can be done without
//! an answer from outside. No call goes deeper than one step of one request, so there is no
//! re-entrance to think about, and one seed fixes the order of everything.

mod begin;
mod destage;
mod gather;
mod holdings;
mod members;
mod ops;
mod refused_sync;

pub use holdings::Holding;
pub use members::{MemberShown, NoNumber, number_for};
pub use ops::together::fits_together;

use headpond_base::{Buf, CacheMode, Errno, MemberId, Nanos, ObjectId};
use headpond_format::{Address, Superblock, UNIT};
use headpond_log::{Durability, FillPolicy, LogIo, Mutation};

use crate::burials::Burials;
use crate::checkpoints::{Ask, CheckpointEnd, Checkpoints, Of};
use crate::config::Config;
use crate::destage::Destage;
use crate::effect::{Effect, Outcome, Ticket};
use crate::engine::ops::status::SettlingStatus;
use crate::gather::Gather;
use crate::heal::Heal;
use crate::keep::{Keep, Keeping, usable_blocks};
use crate::laggard::Laggard;
use crate::leaving::LeavingObjects;
use crate::life::Life;
use crate::locks::{OpId, Span};
use crate::make_rows::{MakeRows, MakingRows};
use crate::membership::Membership;
use crate::object_room::ObjectRoom;
use crate::op::{Op, StepResult, Work};
use crate::origin_space::OriginSpace;
use crate::outbox::{Answered, Outbox};
use crate::pool_failed::PoolFailed;
use crate::probes::Probes;
use crate::purpose::Purpose;
use crate::reclaim::{Reclaim, Reclaiming};
use crate::request::{Reply, Request, RequestId};
use crate::requests::Requests;
use crate::scrub::{Scrub, ScrubShown, Scrubbing};
use crate::sequential::Sequential;
use crate::stats::Stats;
use crate::store::{ADMIT_RESERVE, Store};
use crate::treatment::Treatment;

/// Before requests are taken, this many segments should be free.
const START_RESERVE: usize = 6;

/// With no more objects than this, assertions compare the sums over them with a walk after each cycle.
const COUNTED_BY_WALK: usize = 32;

/// Blocks that a pool has room for, and those of segments that are not held free.
fn room_of(store: &Store, host_segments: usize) -> (u64, u64) {
    let log = store.log();
    (log.data_blocks(), usable_blocks(log.geometry(), log.segments().usable(), host_segments))
}

/// How many segments are filled with host writes at once: as many as keep all members busy.
fn segments_at_once(store: &Store, config: &Config) -> usize {
    let copies = if store.log().is_to_mirror(config.redundancy) { 2 } else { 1 };
    config.host_segments.max(store.log().working().len() / copies)
}

/// The engine of one pool. See the crate's documentation.
pub struct Engine {
    config: Config,
    now: Nanos,
    store: Store,
    requests: Requests,
    outbox: Outbox,
    gather: Gather,
    destage: Destage,
    reclaim: Reclaim,
    scrub: Scrub,
    rows: MakeRows,
    keep: Keep,
    sequential: Sequential,
    checkpoints: Checkpoints,
    membership: Membership,
    laggard: Laggard,
    probes: Probes,
    heal: Heal,
    origin_space: OriginSpace,
    settling: SettlingStatus,
    life: Life,
    burials: Burials,
    leaving: LeavingObjects,
    pool_failed: PoolFailed,
    object_room: ObjectRoom,
    stats: Stats,
}

impl Engine {
    fn new(mut store: Store, checkpoints: Checkpoints, membership: Membership, config: Config, now: Nanos) -> Self {
        let early_blocks = config.early_blocks;
        let host_segments = segments_at_once(&store, &config);
        store.fill(FillPolicy { host_segments, spare: ADMIT_RESERVE, early_blocks });
        let (data_blocks, usable) = room_of(&store, host_segments);
        let keep = Keep::new(&config, data_blocks, usable, now);
        let mut engine = Self {
            config,
            now,
            store,
            requests: Requests::default(),
            outbox: Outbox::default(),
            gather: Gather::new(data_blocks),
            destage: Destage::new(now),
            reclaim: Reclaim::new(data_blocks),
            scrub: Scrub::default(),
            rows: MakeRows::default(),
            keep,
            sequential: Sequential::new(config.sequential_cutoff),
            checkpoints,
            membership,
            laggard: Laggard::default(),
            probes: Probes::default(),
            heal: Heal::default(),
            origin_space: OriginSpace::default(),
            settling: SettlingStatus::default(),
            life: Life::default(),
            burials: Burials::default(),
            leaving: LeavingObjects::default(),
            pool_failed: PoolFailed::default(),
            object_room: ObjectRoom::default(),
            stats: Stats::default(),
        };
        if !engine.membership.is_settled() {
            engine.store.begins_without_members();
        }
        engine.checkpoints.claim_copies(&mut engine.store);
        engine.checkpoints.settle_redundancy(&mut engine.store, &engine.config);
        engine.outbox.advance(now);
        engine.sync_all_members(Purpose::Settling);
        engine
    }

    /// Takes a pool into use that was recovered. The first thing to do is a checkpoint of a new epoch; requests wait
    /// for it.
    pub(crate) fn of_recovered(
        mut store: Store,
        superblock: Superblock,
        missing: &[MemberId],
        config: Config,
        now: Nanos,
    ) -> Self {
        store.begins_use(now);
        let membership = Membership::new(&superblock.members, missing);
        let mut engine = Self::new(store, Checkpoints::new(superblock), membership, config, now);
        engine.takes_up_what_is_dirty();
        engine
    }

    /// What is kept, and what deciding that takes.
    pub(crate) const fn keeping(&mut self) -> Keeping<'_> {
        Keeping { keep: &mut self.keep, store: &mut self.store, stats: &mut self.stats }
    }

    fn reclaiming(&mut self) -> Reclaiming<'_> {
        Reclaiming {
            reclaim: &mut self.reclaim,
            store: &mut self.store,
            keep: &mut self.keep,
            destage: &mut self.destage,
            outbox: &mut self.outbox,
            stats: &mut self.stats,
            replay_from: self.checkpoints.bounds(),
            ending: self.life.is_ending(),
            empties: self.membership.empties(),
        }
    }

    fn scrubbing(&mut self) -> Scrubbing<'_> {
        Scrubbing {
            scrub: &mut self.scrub,
            store: &mut self.store,
            outbox: &mut self.outbox,
            stats: &mut self.stats,
            now: self.now,
            busy: self.requests.len() > 0,
        }
    }

    fn making_rows(&mut self) -> MakingRows<'_> {
        let membership = &self.membership;
        let ending = self.life.is_ending() || !self.store.takes_writes();
        MakingRows {
            changing: !membership.is_settled() || membership.empties() || membership.is_busy(),
            rows: &mut self.rows,
            store: &mut self.store,
            reclaim: &self.reclaim,
            outbox: &mut self.outbox,
            stats: &mut self.stats,
            now: self.now,
            busy: self.requests.len() > 0,
            ending,
        }
    }

    /// Tells the time. It never goes back.
    pub fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.store.advance(self.now);
        self.outbox.advance(self.now);
        self.keep.tick(self.now);
        self.keeping().fit();
        // Requests wait for the first checkpoint, and for nothing else.
        if self.life.has_served() {
            self.keeping().learn();
        }
        debug_assert!(
            self.keep.is_learning() || self.keep.quotas_hold(&self.store, &self.config),
            "{:?}",
            self.stats()
        );
        self.store.sync_each(self.config.sync_interval, self.now);
        self.cycle();
    }

    /// When [`Engine::advance`] should be called at the latest, if nothing else happens.
    #[must_use]
    pub fn next_wake(&self) -> Option<Nanos> {
        let log = self.store.log();
        let learning = self.keep.is_learning() || self.reclaim.waits_for_its_turn();
        // Who waits for the origin's figure to be settled waits for the time of the next look.
        let looks = self.origin_space.counted.look() && self.requests.first_for_room().is_some();
        let tells = self.membership.is_to_tell_again() || self.membership.empties();
        // What reclaim emptied last may have freed a place on one member alone, and nothing else may ever happen. In a
        // pool of one member each place can be opened, so who waits for room has it.
        let wants_room = self.requests.first_for_room().is_some() && self.reclaim.idle() && log.takes_writes();
        let reclaims = wants_room && log.has_had_several_members();
        let busy = reclaims
            || log.has_unsynced() && log.takes_writes()
            || self.destage.has_work(&self.store)
            || learning
            || looks
            || tells;
        let tick = busy.then(|| self.now.plus(crate::destage::TICK));
        let pauses = self.scrub.pauses(self.now).into_iter().chain(self.rows.pauses(&self.store, self.now));
        tick.into_iter().chain(pauses).chain(self.next_probe()).min().filter(|_| !self.life.is_over())
    }

    /// Takes a request. It is answered by an [`Effect::Reply`], now or later.
    pub fn submit(&mut self, id: RequestId, request: Request) {
        if self.life.is_over() {
            self.answer(id, Reply::Failed(Errno::SHUTDOWN));
        } else if !self.life.has_served() {
            self.requests.hold(id, request);
        } else {
            self.begin(id, request);
            self.cycle();
        }
    }

    /// Takes the outcome of an effect.
    ///
    /// # Panics
    /// When no such effect is under way: a completion that comes twice would be counted twice.
    pub fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        let Answered { refused, ended } = self.outbox.finish(ticket, outcome);
        if let Some((member, errno)) = refused {
            self.member_refused(member, errno);
        }
        // None: other members have still to answer.
        let Some((purpose, outcome)) = ended else { return };
        match purpose {
            Purpose::Settling => self.begin_healing(),
            Purpose::Heal(effect) => {
                self.heal.answered(&effect, outcome, &self.store, &mut self.outbox);
                self.go_on_healing();
            }
            Purpose::Healed => self.end_healing(),
            Purpose::LogWrite(id, member) => self.store.wrote(id, member),
            Purpose::LogSync(side) => self.store.synced(side),
            Purpose::Op(op) => {
                if let Outcome::Failed(_) = outcome {
                    self.stats.origin_errors += 1;
                }
                self.requests.has_outcome(op, outcome);
            }
            Purpose::Gather(read) => self.gathered(read, outcome),
            Purpose::Fetch(fetch) => self.fetched(fetch, outcome),
            Purpose::Destage(effect) => self.destage_answered(effect, outcome),
            Purpose::Reclaim(effect) => self.reclaiming().answered(effect, outcome),
            Purpose::Scrub(effect) => self.scrubbing().answered(effect, &outcome),
            Purpose::MakeRow(effect) => self.making_rows().answered(effect, outcome),
            Purpose::Checkpoint => self.checkpoint_answered(),
            Purpose::Bury(object) => self.buried(object, &outcome),
            Purpose::Disown => {
                for op in self.pool_failed.answered(&outcome) {
                    self.requests.wake(op);
                }
            }
            Purpose::Probe(member) => self.probe_answered(member, &outcome),
            Purpose::ProbeSync(member) => self.probes.answered(member),
            Purpose::TellMembers(generation) => self.told_of_members(generation, &outcome),
            Purpose::Space(object) => self.space_answered(object, outcome),
            Purpose::Look => self.looked_at_origin(&outcome),
        }
        self.cycle();
    }

    fn begin_healing(&mut self) {
        self.life.becomes(Life::Healing);
        if !Mutation::LeaveDiffering.is_planted(self.config.mutation) {
            self.heal = Heal::of(&self.store);
        }
        self.go_on_healing();
    }

    fn go_on_healing(&mut self) {
        self.heal.pump(&self.store, &mut self.outbox);
        if !self.heal.is_over() {
            return;
        }
        // All members may have refused what was to be written.
        if self.heal.has_written() && !self.store.log().working().is_empty() {
            self.sync_all_members(Purpose::Healed);
        } else {
            self.end_healing();
        }
    }

    fn end_healing(&mut self) {
        self.heal = Heal::default();
        self.life.becomes(Life::Starting);
    }

    /// Appends what is to be done, in order. Answers wait until what they rest on survives the process, if the pool has
    /// a second tail.
    pub fn take_effects(&mut self, out: &mut Vec<Effect>) {
        if self.store.log().is_covered() {
            self.outbox.take(out);
        } else {
            self.outbox.take_but_answers(out);
        }
    }

    /// What was counted, and how things stand.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let geometry = self.store.log().geometry();
        let flush = self.destage.flushes(self.now).next();
        // Requests wait meanwhile, and there may be many thousand objects: nothing here walks over them.
        let objects = self.store.objects();
        let counted = self.outbox.add_to(self.stats);
        let regrets = self.keep.regrets();
        Stats {
            regretted_blocks: regrets.missed,
            given_up_blocks: regrets.evicted,
            cached_blocks: self.store.sums().cached_blocks(),
            stored_bytes: self.store.sums().stored_units() * UNIT as u64,
            packed_blocks: self.store.sums().packed_blocks(),
            record_bytes: self.store.packing().record_bytes(),
            payload_bytes: self.store.packing().payload_bytes(),
            dirty_blocks: self.store.sums().dirty_blocks(),
            pool_blocks: self.store.log().data_blocks(),
            dirty_blocks_max: self.dirty_blocks_max(),
            free_segments: self.store.log().free_segments() as u64,
            segments: u64::from(geometry.segments),
            objects: objects.len() as u64,
            map_bytes: objects.map_bytes(),
            kept_blocks: self.store.sums().kept_blocks(),
            class_blocks: self.store.sums().class_blocks(),
            kept_blocks_max: self.keep.kept_most(),
            policy_bytes: self.keep.memory(),
            memory_blocks: self.store.window().len() as u64,
            exposed_blocks: self.exposed_blocks(),
            leaving_blocks: self.leaving_blocks(),
            dirty_objects: objects.dirty(),
            failing_objects: objects.failing(),
            oldest_dirty_age_nanos: self.store.oldest_dirty_age().0,
            flush_left_blocks: flush.map_or(0, |flush| flush.left_blocks),
            flush_total_blocks: flush.map_or(0, |flush| flush.total_blocks),
            flash_failed: u64::from(!self.store.takes_writes()),
            last_entry: self.store.last_entry().0,
            durable_entry: self.store.log().durable().0,
            // Before that checkpoint counts, recovery goes by the one before, and counts batches as that does.
            durable_host_batch: if self.stats.checkpoints == 0 { 0 } else { self.store.log().durable_host().0 },
            ..counted
        }
    }

    /// Writes that were found to be part of a long sequential run since the start, and bypass the pool, whether they
    /// are answered or not: it is decided as a request is taken. `None` while requests wait for the engine's start.
    #[must_use]
    pub fn sequential_writes(&self) -> Option<u64> {
        if self.life.has_served() { Some(self.sequential.bypassed_writes()) } else { None }
    }

    /// The requests under way, for people: a line for each, with how far it is and what it waits for.
    #[must_use]
    pub fn requests_shown(&self) -> String {
        self.requests.to_string()
    }

    /// The cache mode in force.
    #[must_use]
    pub const fn mode(&self) -> CacheMode {
        self.config.mode
    }

    /// Runs until nothing more can be done without an answer from outside.
    fn cycle(&mut self) {
        if !self.life.is_settled() {
            return;
        }
        loop {
            self.keeping().tell_gone();
            self.let_go_of_settled();
            self.write_what_moved_on();
            self.wake_synced();
            self.wake_those_with_room_and_turns();
            if let Some((id, op)) = self.requests.next_step() {
                self.step(id, op);
            } else {
                self.disown_pool();
                self.pump_space();
                self.settle_status();
                self.pump_destage();
                if !self.checkpoints.starting() {
                    self.reclaiming().pump();
                }
                self.pump_scrub();
                if self.life.has_served() {
                    self.making_rows().pump();
                }
                self.release_syncs();
                self.pump_laggard();
                self.pump_numbers();
                self.pump_probes();
                self.pump_members();
                self.wake_secured();
                self.pump_checkpoint();
                self.accept();
                self.wake_stop();
                self.emit_log_io();
                if !self.requests.has_step() && !self.some_are_synced() && !self.some_have_room_or_turns() {
                    break;
                }
            }
        }
        self.emit_log_io();
        self.destage.have_changed(self.store.objects().touched());
        self.store.settle_objects();
        debug_assert!(self.list_agrees(), "the list and the log differ on which members have copies only");
        // A walk for each assertion would make runs with many objects endless.
        debug_assert!(self.store.objects().len() > COUNTED_BY_WALK || self.store.objects().counts_hold());
    }

    /// Objects looked at in walks over them since the start: for tests of what costs one.
    #[must_use]
    #[doc(hidden)]
    pub const fn objects_visited(&self) -> u64 {
        self.store.objects().visited()
    }

    /// Takes requests once the first checkpoint of this epoch counts and segments are free.
    ///
    /// A crash may leave none: those that were emptied count as full again, and each that was open
    /// is lost for now. Reclaim of clean segments needs no log, so it comes first. But destage begins with the requests,
    /// so where reclaim waits for destage, it does not come first.
    fn accept(&mut self) {
        let segments = self.store.log().segments();
        let enough = self.store.log().free_segments() >= START_RESERVE;
        if self.store.log().is_held() && self.store.takes_writes() {
            return;
        }
        let stands = self.reclaim.idle() || self.reclaim.waits_for_destage() && segments.waiting() == 0;
        if self.life.has_served() || self.checkpoints.starting() || !(enough || stands || !self.store.takes_writes()) {
            return;
        }
        self.life.becomes(Life::Serving);
        for (id, request) in self.requests.take_held() {
            self.begin(id, request);
        }
    }

    pub(crate) fn start_op(&mut self, request: RequestId, object: ObjectId, work: Work, how: Treatment) {
        if let Some(object) = self.store.get_mut(object) {
            object.active += 1;
        }
        self.requests.add(Op::new(request, object, work, how));
    }

    fn step(&mut self, id: OpId, mut op: Box<Op>) {
        match self.step_op(id, &mut op) {
            StepResult::Wait => self.requests.put_back(id, op),
            StepResult::Finish(reply) => {
                self.reserve_over(&mut op);
                self.finish(id, &mut op, reply);
            }
        }
    }

    fn finish(&mut self, id: OpId, op: &mut Op, reply: Reply) {
        self.unlock(id, op);
        if let Some(object) = self.store.get_mut(op.object) {
            object.active -= 1;
            object.alternation.over(id);
        }
        self.answer(op.request, reply);
        self.retire(op.object);
    }

    pub(crate) fn answer(&mut self, request: RequestId, reply: Reply) {
        self.outbox.emit(Effect::Reply { request, reply });
    }

    /// Takes the lock for a request; `false` when it has to wait and will be stepped again.
    pub(crate) fn lock(&mut self, id: OpId, op: &mut Op, span: Span, exclusive: bool) -> bool {
        op.locked = Some(span);
        self.store.known(op.object).locks.take(id, span, exclusive)
    }

    /// Gives back the lock of a request, if it has one.
    fn unlock(&mut self, id: OpId, op: &mut Op) {
        if op.locked.take().is_some()
            && let Some(object) = self.store.get_mut(op.object)
        {
            object.locks.give(id).into_iter().for_each(|next| self.requests.wake(next));
        }
    }

    /// Asks for an effect, and for what.
    pub(crate) fn start(&mut self, purpose: Purpose, effect: impl FnOnce(Ticket) -> Effect) {
        self.outbox.start(purpose, effect);
    }

    /// The pool has another size now.
    fn size_changed(&mut self) {
        self.store.widen(segments_at_once(&self.store, &self.config));
        let (data_blocks, usable) = room_of(&self.store, self.store.log().host_segments());
        self.keep.resize(data_blocks, usable);
    }

    pub(crate) fn emit(&mut self, effect: Effect) {
        self.outbox.emit(effect);
    }

    pub(crate) fn write_flash(&mut self, purpose: Purpose, at: Address, data: Buf) {
        self.outbox.write_flash(purpose, at, data);
    }

    fn sync_all_members(&mut self, purpose: Purpose) {
        self.outbox.sync_flash(purpose, &self.store.log().working());
    }

    fn pump_checkpoint(&mut self) {
        let free_wanted = self.store.free_wanted();
        let (store, config, stopping) = (&mut self.store, &self.config, self.life.is_ending());
        let empties = self.membership.empties() && self.reclaim.idle();
        let list = self.membership.wanted();
        if let Some(op) = self.checkpoints.pump(Of { store, config, stopping, free_wanted, empties, list }) {
            self.requests.fail(op, Errno::IO);
        }
        for ask in self.checkpoints.take_asks() {
            match ask {
                Ask::Write { at, data } => self.write_flash(Purpose::Checkpoint, at, data),
                Ask::Sync => self.sync_all_members(Purpose::Checkpoint),
            }
        }
    }

    fn checkpoint_answered(&mut self) {
        let CheckpointEnd { counts, list, op } = self.checkpoints.answered(&mut self.store, &self.config);
        self.stats.checkpoints += u64::from(counts);
        if let Some(list) = list {
            self.list_counts(&list);
        }
        if let Some(op) = op {
            self.requests.wake(op);
        }
    }

    /// Begins a scrub.
    pub(crate) fn begin_scrub(&mut self, id: RequestId) {
        if let Err(errno) = self.scrubbing().begin(id) {
            self.answer(id, Reply::Failed(errno));
        }
    }

    /// Ends a scrub early.
    pub(crate) fn cancel_scrub(&mut self, id: RequestId) {
        let ended = self.end_scrub();
        self.answer(id, if ended { Reply::Done } else { Reply::Failed(Errno::NOENT) });
    }

    fn end_scrub(&mut self) -> bool {
        let asked = self.scrub.end();
        asked.into_iter().for_each(|request| self.answer(request, Reply::Failed(Errno::CANCELED)));
        asked.is_some()
    }

    fn pump_scrub(&mut self) {
        if self.life.is_ending() {
            self.end_scrub();
        } else if let Some(request) = self.scrubbing().pump() {
            self.answer(request, Reply::Done);
        }
    }

    /// How far a scrub is, or how the last one of this use ended.
    #[must_use]
    pub fn scrub(&self) -> Option<ScrubShown> {
        self.scrub.shown(&self.store)
    }

    /// Tells the origin's side once the flash has failed.
    fn disown_pool(&mut self) {
        if !self.store.takes_writes() && self.pool_failed.begins_telling() {
            self.start(Purpose::Disown, |ticket| Effect::PoolFailed { ticket });
        }
    }

    /// Whether the origin may be changed: the flash works, or it is known that it does not.
    pub(crate) fn may_change_origin(&self) -> bool {
        self.store.takes_writes() || self.pool_failed.is_told()
    }

    /// Why the origin must not be changed, if that is for good.
    pub(crate) const fn origin_barred(&self) -> Option<Errno> {
        self.pool_failed.bars_origin()
    }

    fn emit_log_io(&mut self) {
        for io in self.store.take_log_io() {
            match io {
                LogIo::Write { id, at, data } => self.write_flash(Purpose::LogWrite(id, at.member), at, data),
                LogIo::Sync { side, .. } if Mutation::SkipSync.is_planted(self.config.mutation) => {
                    self.store.synced(side);
                }
                LogIo::Sync { side, members } if Mutation::SyncOneDevice.is_planted(self.config.mutation) => {
                    self.outbox.sync_flash(Purpose::LogSync(side), &members[..1]);
                }
                LogIo::Sync { side, members } => self.outbox.sync_flash(Purpose::LogSync(side), &members),
                LogIo::Trim { at, len } => self.emit(Effect::FlashTrim { at, len }),
            }
        }
    }

    /// Makes the request wait until all host entries up to now are durable everywhere; `true` if they are.
    pub(crate) fn wait_durable(&mut self, id: OpId) -> bool {
        self.wait_durable_in(Durability::Everywhere, id)
    }

    /// The same, durable there.
    pub(crate) fn wait_durable_in(&mut self, durability: Durability, id: OpId) -> bool {
        let last = self.store.last_entry();
        if self.store.log().durable_in(durability) >= last {
            self.store.found_durable(durability);
            return true;
        }
        self.requests.wait_for_log(id, last, durability);
        self.store.want_sync_in(durability);
        false
    }

    fn some_are_synced(&self) -> bool {
        let (log, failed) = (self.store.log(), !self.store.takes_writes());
        Durability::ALL
            .into_iter()
            .any(|durability| self.requests.wakes_for_log(durability, log.durable_in(durability), failed))
    }

    /// A failed log wakes everybody: each finds out for itself what that means for it.
    fn wake_synced(&mut self) {
        for durability in Durability::ALL {
            self.requests.log_is_durable(
                durability,
                self.store.log().durable_in(durability),
                !self.store.takes_writes(),
            );
        }
    }

    fn first_has_room(&self) -> bool {
        self.requests.first_for_room().is_some_and(|op| self.may_proceed(op))
    }

    fn some_have_room_or_turns(&self) -> bool {
        self.first_has_room() || self.requests.for_other_kind().any(|op| self.may_change_now(op))
    }

    fn wake_those_with_room_and_turns(&mut self) {
        let with_turn: Vec<OpId> = self.requests.for_other_kind().filter(|op| self.may_change_now(*op)).collect();
        with_turn.into_iter().for_each(|op| self.requests.other_kind_is_over(op));
        while self.first_has_room() {
            self.requests.first_has_room();
        }
    }
}
