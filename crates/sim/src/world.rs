//! The world around one engine: a clock, flash, origin, and everything that is on its way.
//!
//! Keeps true: every effect completes once, after a time of its own, so that completions come in
//! any order; the same seed gives the same world. The engine's rules of conduct (no two writes
//! to one place at once, no origin write that runs out of space it could have reserved) are checked here.

mod losses;
pub(crate) mod past_pool;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use headpond_base::{BLOCK_U64, Buf, Errno, Nanos, ObjectId};
use headpond_engine::{Effect, Outcome, Reply, Request, RequestId, Room, Space, Ticket};
use headpond_format::Address;
use headpond_timed::{Rng, mix};

use self::losses::Losses;
use self::past_pool::WentPast;
use crate::above::{Above, let_go};
use crate::changed_range::changed_range;
use crate::devices::Devices;
use crate::flash::{Cut, WriteFate};
use crate::marker::Marker;
use crate::origin::{FileId, Name, OriginChange, Reach, SimOrigin, SpaceKind};
use crate::outliving::{Killed, OutlivingMemory, in_own_memory};
use crate::scenario::{Faults, PLENTY, Scenario};
use crate::under_test::UnderTest;

/// A directory operation that comes with a request.
#[derive(Clone, Debug)]
pub(crate) enum NameOperation {
    Rename(Name, Name),
    Unlink(Name),
}

/// An effect on its way.
#[derive(Clone, Debug)]
struct Flying {
    ticket: Ticket,
    effect: Effect,
    /// What an origin sync reaches, or what an origin read found if it is done early.
    reach: Option<Reach>,
    early: Option<Result<Buf, Errno>>,
}

/// How many faults were injected since the engine was started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Injected {
    pub(crate) flash_read: u64,
    pub(crate) flash_write: u64,
    pub(crate) origin: u64,
    pub(crate) no_space: u64,
    /// Bits changed where dirty data may be.
    pub(crate) any_rot: u64,
    /// Faults that the engine must hide.
    pub(crate) hidden: u64,
}

impl Injected {
    /// Whether an application may be told of an I/O error.
    pub(crate) const fn excuses_errors(&self) -> bool {
        self.flash_read + self.flash_write + self.origin + self.any_rot > 0
    }
}

/// The world.
pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) rng: Rng,
    /// Whether the figure of free space is up to date: by itself, so that all else of a seed stays what it was.
    figures: Rng,
    pub(crate) flash: Devices,
    pub(crate) marker: Marker,
    pub(crate) losses: Losses,
    pub(crate) origin: SimOrigin,
    pub(crate) core: Option<Box<dyn UnderTest>>,
    /// The process died in the midst of a step, and nobody has started another.
    pub(crate) killed: bool,
    /// Memory that outlives the process.
    pub(crate) outliving: Option<OutlivingMemory>,
    pub(crate) faults: Faults,
    pub(crate) injected: Injected,
    pub(crate) replies: VecDeque<(RequestId, Reply)>,
    pub(crate) names: BTreeMap<RequestId, NameOperation>,
    /// Directory operations that the engine has asked for, and the name layer has not seen yet.
    pub(crate) names_started: Vec<RequestId>,
    pub(crate) objects: BTreeMap<ObjectId, FileId>,
    /// Files of which the engine has let go since that was last asked.
    pub(crate) let_go: Vec<(ObjectId, FileId)>,
    /// Files that are being opened: as a mount does, the origin's file is given to its object in the moment of the
    /// answer.
    pub(crate) opening: BTreeMap<RequestId, FileId>,
    /// What lies above the origin's files, where names are a layer of their own.
    pub(crate) above: Option<Above>,
    /// Whether the request that was submitted last is part of a stream that passes by the pool; `None` if that shows
    /// only later, once the engine takes requests.
    pub(crate) passes_by: Option<bool>,
    /// Changes that the engine began at the origin itself since somebody looked.
    pub(crate) went_past: Vec<WentPast>,
    flying: BTreeMap<(Nanos, u64), Flying>,
    flash_delay: u64,
    origin_delay: u64,
    /// It is written beside the origin that this pool must not be trusted any more.
    pub(crate) disowned: bool,
    /// One file may have been taken for another since the origin lost its power: see "Known and not mended" in
    /// docs/fault-model.md. What goes wrong from then on says nothing.
    pub(crate) undecidable: bool,
    /// Others have changed files while the pool was out of use. They may have given back the space that its data was
    /// promised, or taken it where the origin keeps none.
    pub(crate) others_have_space: bool,
    /// The pool failed, and that could not be written down: names may go that it was not told of.
    pub(crate) unsaid: bool,
    /// A hash over all that happened: two runs of a seed must agree.
    pub(crate) hash: u64,
    pub(crate) steps: u64,
    /// Things that devices completed and that change what a crash leaves.
    pub(crate) device_changes: u64,
    pub(crate) verbose: bool,
    idle_wakes: u32,
}

impl World {
    pub(crate) fn new(scenario: &Scenario, seed: u64, verbose: bool) -> Self {
        let mut origin = SimOrigin::new(scenario.origin_blocks, scenario.space, scenario.births);
        if scenario.kernels {
            origin.tell_births_by_turns();
        }
        Self {
            now: Nanos(1),
            rng: Rng::for_part(seed, u64::MAX - 1),
            figures: Rng::for_part(seed, u64::MAX - 6),
            flash: scenario.devices(),
            marker: Marker::default(),
            losses: Losses::new(scenario),
            origin,
            core: None,
            killed: false,
            outliving: scenario.tail_slots.map(OutlivingMemory::new),
            faults: scenario.faults,
            injected: Injected::default(),
            replies: VecDeque::new(),
            names: BTreeMap::new(),
            names_started: Vec::new(),
            objects: BTreeMap::new(),
            let_go: Vec::new(),
            opening: BTreeMap::new(),
            above: None,
            passes_by: None,
            went_past: Vec::new(),
            flying: BTreeMap::new(),
            flash_delay: scenario.flash_delay,
            origin_delay: scenario.origin_delay,
            disowned: false,
            undecidable: false,
            others_have_space: false,
            unsaid: false,
            hash: 0,
            steps: 0,
            device_changes: 0,
            verbose,
            idle_wakes: 0,
        }
    }

    /// Prints, if someone wants to see.
    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>12.6} {}", self.now.0 as f64 / 1e9, what());
        }
    }

    /// The same world without its daemon.
    pub(crate) fn fork(&self) -> Self {
        Self {
            rng: self.rng.clone(),
            figures: self.figures.clone(),
            flash: self.flash.clone(),
            losses: self.losses.clone(),
            origin: self.origin.clone(),
            core: None,
            outliving: None,
            replies: VecDeque::new(),
            names: self.names.clone(),
            names_started: Vec::new(),
            objects: self.objects.clone(),
            let_go: Vec::new(),
            opening: BTreeMap::new(),
            above: None,
            went_past: Vec::new(),
            flying: self.flying.clone(),
            ..*self
        }
    }

    /// Whether writes may go to the origin by themselves for want of space: it is counted, and there is little.
    pub(crate) fn may_pass_by(&self) -> bool {
        self.origin.kind() != SpaceKind::Keeps && self.origin.capacity() < PLENTY
    }

    /// Gives the engine a request.
    pub(crate) fn submit(&mut self, id: RequestId, request: Request) -> Result<(), String> {
        let now = self.now;
        let passes_by = self.drive(|core| {
            core.advance(now);
            let before = core.sequential_writes();
            core.submit(id, request);
            before.zip(core.sequential_writes()).map(|(before, after)| after > before)
        });
        self.passes_by = passes_by.flatten();
        self.pump()
    }

    /// Lets the engine do something, unless there is none or it dies meanwhile.
    fn drive<T>(&mut self, act: impl FnOnce(&mut dyn UnderTest) -> T) -> Option<T> {
        let core = self.core.as_mut()?;
        match catch_unwind(AssertUnwindSafe(|| act(&mut **core))) {
            Ok(done) => Some(done),
            Err(panic) if panic.is::<Killed>() => {
                self.trace(|| "the process dies between two stores".into());
                // Nobody can ask it any more.
                self.losses.is_covered_no_more();
                self.core = None;
                self.killed = true;
                None
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Takes what the engine wants and sets it on its way.
    pub(crate) fn pump(&mut self) -> Result<(), String> {
        loop {
            let mut effects = Vec::new();
            if let Some(core) = &mut self.core {
                core.take_effects(&mut effects);
            }
            if effects.is_empty() {
                return Ok(());
            }
            for effect in effects {
                self.start(in_own_memory(effect))?;
            }
        }
    }

    fn start(&mut self, effect: Effect) -> Result<(), String> {
        let mut reach = None;
        let mut early = None;
        let of_effect = |why: String| format!("{why}: {effect:?}");
        let (ticket, member) = match &effect {
            Effect::Reply { request, reply } => {
                if let Some(file) = self.opening.remove(request)
                    && let Reply::Opened { object, .. } = reply
                    && let Some(other) = self.objects.insert(*object, file)
                    && other != file
                {
                    return Err(format!("one object is two files: {other:?} and {file:?}"));
                }
                self.replies.push_back((*request, reply.clone()));
                return Ok(());
            }
            Effect::OriginLost { .. } => return Ok(()),
            Effect::FlashTrim { at, len } => {
                // A part of its own, so that seeds keep their histories.
                let heeded = Rng::for_part(self.rng.clone().next(), 2).chance(500);
                let device = self.flash.of_mut(at.member).map_err(of_effect)?;
                let heeded = heeded && device.refuses(true).is_none();
                return if heeded { device.flash.trim(at.offset, *len) } else { Ok(()) };
            }
            Effect::OriginRelease { object } => {
                self.trace(|| format!("effect {effect:?}"));
                if let Some(file) = self.objects.remove(object) {
                    match &mut self.above {
                        Some(above) => {
                            above.released(*object, file, &mut self.origin);
                            self.replies.push_back((let_go(*object), Reply::Done));
                        }
                        None => {
                            self.origin.set_open(file, false);
                            self.let_go.push((*object, file));
                        }
                    }
                }
                return Ok(());
            }
            Effect::FlashRead { ticket, at, len } => {
                self.flash.start_read(*at, ticket.0, u64::from(*len)).map_err(of_effect)?;
                (*ticket, Some(at.member))
            }
            Effect::FlashWrite { ticket, at, data } => {
                self.flash.start_write(*at, ticket.0, data.clone()).map_err(of_effect)?;
                (*ticket, Some(at.member))
            }
            Effect::FlashSync { ticket, member } => {
                self.flash.start_sync(*member, ticket.0).map_err(of_effect)?;
                (*ticket, Some(*member))
            }
            Effect::OriginRead { ticket, object, offset, len } => {
                // A read may find what was there when it was asked, or when it is answered.
                if self.rng.chance(500) {
                    early = Some(self.file(*object)?.and_then(|file| self.origin.read(file, *offset, *len as usize)));
                }
                (*ticket, None)
            }
            Effect::OriginSync { ticket, object } => {
                reach = self.file(*object)?.ok().map(|file| self.origin.start_sync(file));
                if let Some(above) = &mut self.above {
                    above.sync_begins(*ticket);
                }
                (*ticket, None)
            }
            Effect::OriginNamespace { ticket, request } => {
                self.names_started.push(*request);
                if let Some(above) = &mut self.above {
                    above.asks(*ticket, *request);
                    return Ok(());
                }
                (*ticket, None)
            }
            Effect::OriginWrite { ticket, .. }
            | Effect::OriginZero { ticket, .. }
            | Effect::OriginResize { ticket, .. }
            | Effect::OriginReserve { ticket, .. }
            | Effect::OriginStamp { ticket, .. }
            | Effect::OriginSpace { ticket, .. }
            | Effect::PoolFailed { ticket }
            | Effect::MembersChanged { ticket, .. }
            | Effect::OriginSeek { ticket, .. } => (*ticket, None),
        };
        if let Effect::MembersChanged { generation, .. } = effect {
            self.list_is_told(generation);
        }
        self.note_past_pool(&effect);
        self.check_order_of_origin(&effect)?;
        let most = if member.is_some() { self.flash_delay } else { self.origin_delay };
        let mut delay = 1000 + self.rng.below(most);
        if self.rng.chance(self.faults.slow) {
            delay *= 50;
        }
        if self.rng.chance(self.faults.stuck) {
            delay += 20 * Nanos::SECOND.0;
        }
        delay *= member.map_or(1, |member| self.flash.slowness(member));
        self.trace(|| format!("  start {ticket:?} {effect:?}"));
        let due = Nanos(self.now.0 + delay);
        let tie = self.rng.next();
        self.flying.insert((due, tie), Flying { ticket, effect, reach, early });
        Ok(())
    }

    /// Two changes of one place in an origin file at the same time have no defined result.
    fn check_order_of_origin(&self, effect: &Effect) -> Result<(), String> {
        let Some((object, from, to)) = changed_range(effect) else { return Ok(()) };
        for flying in self.flying.values() {
            if let Some((other, other_from, other_to)) = changed_range(&flying.effect)
                && other == object
                && from < other_to
                && other_from < to
            {
                return Err(format!(
                    "two changes of one place of the origin's file at the same time: {effect:?} and {:?}",
                    flying.effect
                ));
            }
        }
        Ok(())
    }

    /// The file of an object. That an effect names an object that was released is a bug.
    fn file(&self, object: ObjectId) -> Result<Result<FileId, Errno>, String> {
        self.objects
            .get(&object)
            .map(|file| Ok(*file))
            .ok_or_else(|| format!("an effect on {object:?}, which has no origin file"))
    }

    /// A change of names that the engine asked for is over.
    pub(crate) fn names_done(&mut self, ticket: Ticket, outcome: Outcome) -> Result<(), String> {
        self.hash = mix(self.hash ^ ticket.0 ^ u64::from(matches!(outcome, Outcome::Failed(_))));
        self.trace(|| format!("  names {ticket:?} {outcome:?}"));
        self.complete(ticket, outcome);
        self.pump()
    }

    /// Lets the next thing happen. `false` when there is none.
    pub(crate) fn step(&mut self) -> Result<bool, String> {
        self.pump()?;
        self.steps += 1;
        let wake = self.core.as_ref().and_then(|core| core.next_wake());
        let due = self.flying.first_key_value().map(|(key, _)| *key);
        match (due, wake) {
            (None, None) => return Ok(false),
            (due, Some(wake)) if due.is_none_or(|(at, _)| wake < at) => {
                // A wake that is due again at once, without end, is a loop that would burn a core.
                self.idle_wakes += 1;
                if self.idle_wakes > 100_000 {
                    let (waiting, told) =
                        self.core.as_ref().map(|core| (core.waiting(), core.told())).unwrap_or_default();
                    return Err(format!(
                        "the engine wants to be woken at {wake:?} again and again, and does nothing: {waiting} {told}"
                    ));
                }
                self.now = self.now.max(wake);
                let now = self.now;
                self.drive(|core| core.advance(now));
            }
            (Some(key), _) => {
                self.idle_wakes = 0;
                self.now = self.now.max(key.0);
                if let Some(flying) = self.flying.remove(&key) {
                    self.finish(flying)?;
                }
            }
            _ => {}
        }
        self.pump()?;
        Ok(true)
    }

    /// When the next thing happens.
    pub(crate) fn next_time(&self) -> Option<Nanos> {
        let wake = self.core.as_ref().and_then(|core| core.next_wake());
        let due = self.flying.first_key_value().map(|(key, _)| key.0);
        wake.into_iter().chain(due).min().map(|at| at.max(self.now))
    }

    fn finish(&mut self, flying: Flying) -> Result<(), String> {
        let ticket = flying.ticket;
        let reads = matches!(
            flying.effect,
            Effect::FlashRead { .. }
                | Effect::OriginRead { .. }
                | Effect::OriginSeek { .. }
                | Effect::OriginReserve { .. }
                | Effect::OriginSpace { .. }
        );
        self.device_changes += u64::from(!reads);
        let outcome = self.outcome(flying)?;
        self.hash =
            mix(self.hash ^ self.now.0 ^ ticket.0.rotate_left(32) ^ u64::from(matches!(outcome, Outcome::Failed(_))));
        self.trace(|| format!("  done  {ticket:?} {outcome:?}"));
        self.complete(ticket, outcome);
        Ok(())
    }

    fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        let now = self.now;
        self.drive(|core| {
            core.advance(now);
            core.complete(ticket, outcome);
        });
    }

    fn outcome(&mut self, flying: Flying) -> Result<Outcome, String> {
        let faults = self.faults;
        self.check_asked(&flying.effect)?;
        if let Some(outcome) = self.above.as_mut().and_then(|above| above.of_gone(&flying.effect)) {
            return Ok(outcome);
        }
        if let Effect::OriginSync { object, .. } = &flying.effect
            && self.above.is_some()
            && !self.objects.contains_key(object)
        {
            // The engine let go of a file without a name meanwhile, so no request waits for this.
            return Ok(Outcome::Failed(Errno::BADF));
        }
        let failed = |error| Ok(Outcome::Failed(error));
        let of = |result: Result<(), Errno>| Ok(result.map_or_else(Outcome::Failed, |()| Outcome::Done));
        match flying.effect {
            Effect::FlashRead { ticket, at, .. } => {
                let bytes = match self.flash.finish_read(at.member, ticket.0) {
                    Ok(bytes) => bytes,
                    Err(errno) => return failed(errno),
                };
                if self.rng.chance(faults.flash_read) && self.may_fail_a_read(at.member) {
                    return failed(Errno::IO);
                }
                Ok(Outcome::Bytes(bytes))
            }
            Effect::FlashWrite { ticket, at, data } => {
                let fate = self.fate_of_write(at, data.len())?;
                let done = self.flash.finish_write(at.member, ticket.0, fate, &mut self.rng)?;
                if faults.clean_rot > 0
                    && self.rng.chance(faults.clean_rot)
                    && self.flash.rot(true, &mut self.rng).is_some()
                {
                    self.injected.hidden += 1;
                }
                if faults.any_rot > 0 && self.rng.chance(faults.any_rot) {
                    self.rot_anywhere();
                }
                of(done)
            }
            Effect::FlashSync { ticket, member } => {
                let fails = self.rng.chance(faults.flash_sync) && self.may_fail_a_write(member)?;
                of(self.flash.finish_sync(member, ticket.0, fails, &mut self.rng)?)
            }
            Effect::OriginRead { object, offset, len, .. } => {
                if self.origin_fails(faults.origin_read) {
                    return failed(Errno::IO);
                }
                let late =
                    || self.file(object).map(|file| file.and_then(|file| self.origin.read(file, offset, len as usize)));
                let bytes = match flying.early {
                    Some(bytes) => bytes,
                    None => late()?,
                };
                Ok(bytes.map_or_else(Outcome::Failed, Outcome::Bytes))
            }
            Effect::OriginSync { ticket, object } => {
                let refused = self.above.as_mut().is_some_and(|above| above.was_refused(object));
                if refused || self.origin_fails(faults.origin_sync) {
                    if let Some(above) = &mut self.above {
                        above.sync_fails(ticket);
                    }
                    let mut rng = Rng::for_part(self.rng.clone().next(), 0);
                    if rng.chance(500)
                        && let Ok(file) = self.file(object)?
                    {
                        self.trace(|| format!("  the origin loses what destage wrote to {file:?}"));
                        self.origin.lose_destaged(file, &mut rng);
                    }
                    return failed(Errno::IO);
                }
                if let (Some(reach), Ok(file)) = (flying.reach, self.file(object)?) {
                    self.origin.finish_sync(file, reach);
                    if let Some(above) = &mut self.above {
                        above.synced(ticket, object, file);
                    }
                }
                Ok(Outcome::Done)
            }
            Effect::OriginReserve { object, ranges, insists, .. } => {
                let Ok(file) = self.file(object)? else { return failed(Errno::BADF) };
                if self.origin.kind() != SpaceKind::Keeps {
                    // A part of its own, so that seeds keep their histories as far as no file's time moves.
                    let mut rng = Rng::for_part(self.rng.clone().next(), 1);
                    if insists {
                        self.origin.touch_in_vain(file, &mut rng);
                        return failed(Errno::OPNOTSUPP);
                    }
                    let stamp = self.origin.refuse(file, &mut rng);
                    return Ok(Outcome::Space(Space { keeps_none: true, counts: true, stamp, ..Space::default() }));
                }
                if self.origin_fails(faults.origin_write) {
                    self.origin.reserve_in_part(file, &ranges, &mut self.rng);
                    return failed(Errno::IO);
                }
                for (from, to) in &ranges {
                    if let Err(errno) = self.origin.reserve(file, *from, to - from) {
                        self.injected.no_space += u64::from(errno == Errno::NOSPC);
                        self.origin.touch_in_vain(file, &mut self.rng);
                        return failed(errno);
                    }
                }
                let found = ranges.first().filter(|_| self.rng.chance(500));
                let found = found.map(|(from, _)| self.origin.allocated_from(file, *from)).into_iter().collect();
                Ok(Outcome::Space(Space { found, stamp: self.origin.stamp(file).ok(), ..Space::default() }))
            }
            Effect::OriginSpace { settles, .. } => {
                // Without an answer writes go to the origin by themselves, too.
                if self.may_pass_by() && self.origin_fails(faults.origin_read) {
                    return failed(Errno::IO);
                }
                let bytes = self.origin.capacity() * BLOCK_U64;
                // A transaction of the journal may complete by itself.
                let complete = settles || self.figures.chance(200);
                let counts = self.origin.kind() != SpaceKind::Keeps;
                Ok(Outcome::Free(Room { free: self.origin.told_free_blocks(complete) * BLOCK_U64, bytes, counts }))
            }
            Effect::OriginZero { object, offset, len, keep_space: true, .. } => {
                let Ok(file) = self.file(object)? else { return failed(Errno::BADF) };
                if self.origin_fails(faults.origin_write) {
                    if self.rng.chance(500) {
                        self.origin.blank(file, offset, len).ok();
                    }
                    return failed(Errno::IO);
                }
                of(self.origin.blank(file, offset, len))
            }
            Effect::OriginSeek { object, offset, data, .. } => {
                if self.origin_fails(faults.origin_read) {
                    return failed(Errno::IO);
                }
                let found = self.file(object)?.and_then(|file| self.origin.seek(file, offset, data));
                Ok(found.map_or_else(Outcome::Failed, Outcome::Offset))
            }
            Effect::OriginStamp { object, mtime, .. } => {
                let Ok(file) = self.file(object)? else { return failed(Errno::BADF) };
                if self.origin_fails(faults.origin_write) {
                    // The time may be set, and only the answer be missing.
                    let mut rng = self.rng.clone();
                    self.origin.change_in_part(file, OriginChange::Times { mtime: mtime.0 }, &mut rng);
                    self.rng = rng;
                    return failed(Errno::IO);
                }
                let done = self.origin.change(file, OriginChange::Times { mtime: mtime.0 });
                Ok(done.and_then(|()| self.origin.stamp(file)).map_or_else(Outcome::Failed, Outcome::Stamp))
            }
            Effect::OriginNamespace { request, .. } => {
                if self.origin_fails(faults.origin_names) {
                    // What failed may be done: a server's answer can get lost.
                    if self.rng.chance(500) {
                        self.run_names(request).ok();
                    }
                    return failed(Errno::IO);
                }
                Ok(match self.run_names(request) {
                    Ok(Some(stamp)) => Outcome::Stamp(stamp),
                    Ok(None) => Outcome::Done,
                    Err(error) => Outcome::Failed(error),
                })
            }
            Effect::MembersChanged { generation, .. } => {
                if self.origin_fails(2 * faults.origin_write) {
                    if self.rng.chance(500) {
                        self.marker.told(generation);
                    }
                    return failed(Errno::IO);
                }
                self.list_was_told(generation);
                Ok(Outcome::Done)
            }
            Effect::PoolFailed { .. } => {
                if self.origin_fails(2 * faults.origin_write) {
                    self.disowned |= self.rng.chance(500);
                    self.unsaid = true;
                    return failed(Errno::IO);
                }
                self.disowned = true;
                Ok(Outcome::Done)
            }
            effect => {
                if self.origin_fails(faults.origin_write) {
                    // What failed may be there in part.
                    if let Some((file, change)) = self.origin_change(&effect) {
                        let mut rng = self.rng.clone();
                        self.origin.change_in_part(file, change, &mut rng);
                        self.rng = rng;
                    }
                    return failed(Errno::IO);
                }
                let Some((file, change)) = self.origin_change(&effect) else {
                    return Err(format!("an effect on an object without origin file: {effect:?}"));
                };
                let result = self.origin.change(file, change);
                if matches!(result, Err(Errno::NOSPC | Errno::DQUOT))
                    && let Some((file, change)) = self.origin_change(&effect)
                {
                    self.origin.fill_up(file, &change, &mut self.rng);
                }
                // A direct write counts for the user of its request.
                let destage = matches!(effect, Effect::OriginWrite { user: 0, .. });
                if destage && result.is_ok() {
                    self.origin.was_destaged(file);
                }
                if result == Err(Errno::NOSPC) {
                    self.injected.no_space += 1;
                    if destage && self.injected.flash_write == 0 && !self.others_have_space {
                        return Err(format!(
                            "destage found no space at the origin, though the write was accepted: {effect:?}"
                        ));
                    }
                }
                of(result)
            }
        }
    }

    fn origin_fails(&mut self, per_mille: u64) -> bool {
        let fails = self.rng.chance(per_mille);
        self.injected.origin += u64::from(fails);
        fails
    }

    fn fate_of_write(&mut self, at: Address, len: usize) -> Result<WriteFate, String> {
        let faults = self.faults;
        if self.rng.chance(faults.flash_write) && self.may_fail_a_write(at.member)? {
            return Ok(WriteFate::Failed);
        }
        let flash = &self.flash.of(at.member)?.flash;
        if faults.clean_lost + faults.clean_misdirected > 0 && flash.is_clean_place(at.offset, len) {
            if self.rng.chance(faults.clean_lost) {
                self.injected.hidden += 1;
                return Ok(WriteFate::Lost);
            }
            if self.rng.chance(faults.clean_misdirected)
                && let Some(place) = flash.other_clean_place(at.offset, len, &mut self.rng)
            {
                self.injected.hidden += 1;
                return Ok(WriteFate::Misdirected(place));
            }
        }
        Ok(WriteFate::Done)
    }

    fn origin_change(&self, effect: &Effect) -> Option<(FileId, OriginChange)> {
        let (object, change) = match effect {
            Effect::OriginWrite { object, offset, data, .. } => {
                (object, OriginChange::Write { offset: *offset, data: data.clone() })
            }
            Effect::OriginZero { object, offset, len, .. } => {
                (object, OriginChange::Zero { offset: *offset, len: *len })
            }
            Effect::OriginResize { object, size, .. } => (object, OriginChange::Resize { size: *size }),
            Effect::OriginStamp { object, mtime, .. } => (object, OriginChange::Times { mtime: mtime.0 }),
            _ => return None,
        };
        self.objects.get(object).map(|file| (*file, change))
    }

    fn run_names(&mut self, request: RequestId) -> Result<Option<headpond_format::Stamp>, Errno> {
        match self.names.get(&request).cloned() {
            Some(NameOperation::Rename(from, to)) => self.origin.rename(&from, &to),
            Some(NameOperation::Unlink(name)) => self.origin.unlink(&name).map(|()| None),
            None => Err(Errno::INVAL),
        }
    }

    /// The daemon is gone, with all that it knew. What was on its way to the origin is done,
    /// not done, or done in part, in any order.
    pub(crate) fn lose_daemon(&mut self, cut: Option<Cut>, origin_falls: bool) {
        self.core = None;
        self.killed = false;
        if let Some(outliving) = &self.outliving {
            outliving.fuse.put_out();
            if cut.is_some() {
                outliving.lose();
            }
        }
        self.undecidable |= origin_falls && self.origin.may_confuse_files();
        let mut rng = self.rng.clone();
        let mut flying: Vec<Flying> = std::mem::take(&mut self.flying).into_values().collect();
        rng.shuffle(&mut flying);
        for flying in flying {
            match &flying.effect {
                Effect::OriginNamespace { request, .. } if rng.chance(500) => {
                    self.run_names(*request).ok();
                }
                Effect::PoolFailed { .. } => self.disowned |= rng.chance(500),
                Effect::MembersChanged { generation, .. } if rng.chance(500) => self.marker.told(*generation),
                Effect::MembersChanged { .. } => {}
                Effect::OriginReserve { object, ranges, .. } => {
                    if let Ok(Ok(file)) = self.file(*object) {
                        self.origin.reserve_in_part(file, ranges, &mut rng);
                    }
                }
                Effect::OriginZero { object, offset, len, keep_space: true, .. } if rng.chance(500) => {
                    if let Ok(Ok(file)) = self.file(*object) {
                        self.origin.blank(file, *offset, *len).ok();
                    }
                }
                effect => {
                    if let Some((file, change)) = self.origin_change(effect) {
                        self.origin.change_in_part(file, change, &mut rng);
                    }
                }
            }
        }
        match cut {
            Some(cut) => self.flash.power_cut(cut, &mut rng),
            None => self.flash.daemon_killed(&mut rng),
        }
        if origin_falls {
            self.origin.power_cut(&mut rng);
        }
        if let Some(above) = &mut self.above {
            above.lose_daemon(origin_falls, &mut rng, &mut self.origin);
        }
        self.origin.daemon_killed();
        self.rng = rng;
        self.replies.clear();
        self.names.clear();
        self.names_started.clear();
        self.objects.clear();
        self.let_go.clear();
        self.opening.clear();
        self.injected = Injected::default();
    }
}
