//! The shard's loop.
//!
//! One turn: wait, give the engine all that came, carry out its effects, answer. The wait also starts what the last
//! turn submitted. What comes during a turn belongs to the next one, which then does not sleep. If much comes at once,
//! a turn takes only a part, so that the flash gets its next work early.
//!
//! Invariants:
//! - The engine learns the end of each effect exactly once.
//! - Nothing here blocks but the reactor: in its wait, and in an operation that it carries out alone ([`Alone`]).
//! - While more than [`Limits::operations`] are under way, no request is taken in.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use headpond_base::{Errno, MemberId, Result};
use headpond_device::{Completion, DiskOp, End, Reactor, Tag};
use headpond_engine::{Effect, Outcome, Reply, RequestId, Ticket};

use crate::alone::Alone;
use crate::doors::Doors;
use crate::hold::{HeldRequests, Hold, TakenIn};
use crate::lanes::{Finished, Job, Lanes};
use crate::listeners::Listeners;
use crate::looking::{Awaited, Looking};
use crate::mailbox::{DiskChange, Item, Mailbox, ShardChange};
use crate::processors::Processors;
use crate::recorder::Recorder;
use crate::requests::{Kind, NumberedRequests, RequestWay};
use crate::term::{self, Term, TermState};
use crate::{Core, Latencies, Limits, ShardStats, clock};

/// Objects of each kind in a snapshot.
const HOLDINGS: usize = 32;

/// Requests taken through all doors in one turn while the flash has nothing to do. Their reads start before more
/// requests are taken in. Not fewer, because each portion costs the callers a wake-up for its answers. The doors with
/// requests share it.
const DOOR_PORTION: usize = 8;

/// What an application hears of a host that is not the owner any more.
const DEPOSED: Errno = Errno::STALE;

/// All that a shard's thread owns.
pub(crate) struct Turner<C: Core> {
    engine: C,
    reactor: Box<dyn Reactor>,
    lanes: Lanes,
    requests: NumberedRequests,
    held: HeldRequests,
    term: Arc<Term>,
    /// Requests that fail, as another host is the owner.
    refused: Vec<RequestId>,
    /// Answers that wait until this host is the owner again.
    unsaid: Vec<(RequestId, Reply)>,
    /// Notes what comes in, while a recording runs.
    recorder: Option<Box<Recorder>>,
    limits: Limits,
    inbox: Vec<Item>,
    doors: Doors,
    probes: Vec<SyncSender<ShardStats>>,
    flash_done: Vec<Completion>,
    origin_done: Vec<Finished>,
    effects: Vec<Effect>,
    flash_under_way: usize,
    /// How many flash operations under way are reads.
    flash_reads: usize,
    origin_under_way: usize,
    answered: usize,
    stopping: bool,
    /// The last look at the clock. A look is a system call on some virtual machines, so a turn takes few.
    now: Instant,
    processors: Processors,
    looking: Looking,
    alone: Alone,
    /// Of the last call alone: how long it took, and how many requests were to be expected meanwhile.
    called: Option<(Duration, usize)>,
    /// Requests that came in ahead of the turn.
    came: usize,
    turns: u64,
    answered_ever: u64,
    latency: Latencies,
    disk_errors: Vec<(MemberId, u64)>,
    listeners: Listeners,
    // Last, because fields are dropped in order: the requests' answers come before those of the mailbox.
    closing: Closing,
}

/// Closes the mailbox when the thread ends, also after a panic.
struct Closing {
    mailbox: Arc<Mailbox>,
    errno: Errno,
    last: ShardStats,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.mailbox.close(self.errno, std::mem::take(&mut self.last));
    }
}

impl<C: Core> Turner<C> {
    pub(crate) fn new(
        engine: C,
        reactor: Box<dyn Reactor>,
        lanes: Lanes,
        mailbox: Arc<Mailbox>,
        limits: Limits,
        term: Arc<Term>,
        listeners: Listeners,
    ) -> Self {
        Self {
            engine,
            reactor,
            lanes,
            requests: NumberedRequests::with_capacity(limits.requests),
            held: HeldRequests::default(),
            term,
            refused: Vec::new(),
            unsaid: Vec::new(),
            recorder: None,
            limits,
            inbox: Vec::with_capacity(limits.requests),
            doors: Doors::new(limits.requests),
            probes: Vec::new(),
            flash_done: Vec::new(),
            origin_done: Vec::new(),
            effects: Vec::new(),
            flash_under_way: 0,
            flash_reads: 0,
            origin_under_way: 0,
            answered: 0,
            stopping: false,
            now: Instant::now(),
            processors: Processors::at(Instant::now()),
            looking: Looking::new(limits.spin),
            alone: Alone::default(),
            called: None,
            came: 0,
            turns: 0,
            answered_ever: 0,
            latency: Latencies::default(),
            disk_errors: Vec::new(),
            listeners,
            // After a panic this stays.
            closing: Closing { mailbox, errno: Errno::IO, last: ShardStats::default() },
        }
    }

    /// Turns until the shard is stopped and nothing is under way.
    pub(crate) fn run(mut self) {
        // Carries out what the engine wanted when it was made.
        self.turn();
        while !(self.stopping && self.flash_under_way == 0 && self.origin_under_way == 0) {
            if self.wait().is_err() {
                // The disks cannot be driven, and the kernel's answers are lost. Unsynced writes are gone as in a
                // crash, and every request fails.
                self.closing.last = self.snapshot();
                return;
            }
            self.turn();
        }
        self.requests.end = Errno::SHUTDOWN;
        self.closing.errno = Errno::SHUTDOWN;
        self.closing.last = self.snapshot();
    }

    /// Waits for work.
    fn wait(&mut self) -> std::io::Result<()> {
        let several = self.processors.are_several(self.now);
        self.looking.looks_for(if several { self.limits.spin } else { Duration::ZERO });
        if self.carry_out_alone()? {
            return Ok(());
        }
        if self.came > 0 || !self.inbox.is_empty() || !self.flash_done.is_empty() || self.ready_doors() > 0 {
            self.reactor.wait(&mut self.flash_done, Some(Duration::ZERO))?;
            self.look_at_clock();
            return Ok(());
        }
        let awaited = self.awaited();
        let since = if self.looking.is_off() { self.now } else { self.look_at_clock() };
        let patience = self.looking.patience(awaited, since);
        let found = !patience.is_zero() && self.look_for(patience, since)?;
        if !found {
            let mut timeout = self.engine.next_wake().map(|due| Duration::from_nanos(due.since(clock::at(since)).0));
            if self.held.term() == TermState::Waits {
                timeout = Some(timeout.map_or(term::LOOK, |timeout| timeout.min(term::LOOK)));
            }
            self.reactor.wait(&mut self.flash_done, timeout)?;
            if self.inbox.is_empty() {
                self.exchange();
            }
        }
        let took = self.look_at_clock() - since;
        self.looking.waited(awaited, took);
        Ok(())
    }

    fn look_at_clock(&mut self) -> Instant {
        self.now = Instant::now();
        self.now
    }

    const fn awaited(&self) -> Awaited {
        match (self.flash_reads, self.flash_under_way) {
            (0, 0) => Awaited::Others,
            (0, _) => Awaited::Flash,
            _ => Awaited::FlashReads,
        }
    }

    /// Looks for work until `patience` is over. True if work came.
    fn look_for(&mut self, patience: Duration, since: Instant) -> std::io::Result<bool> {
        loop {
            if self.look()? || !self.flash_done.is_empty() {
                return Ok(true);
            }
            let now = Instant::now();
            if now - since >= patience {
                return Ok(false);
            }
            // Other threads on this processor go first: they may bring the work.
            std::thread::yield_now();
            let after = Instant::now();
            if self.looking.yielded(after - now, after) {
                return Ok(false);
            }
        }
    }

    /// Looks for new work without a sleep. True if something other than the flash has some.
    fn look(&mut self) -> std::io::Result<bool> {
        self.reactor.wait(&mut self.flash_done, Some(Duration::ZERO))?;
        self.exchange();
        self.lanes.take_finished(&mut self.origin_done);
        self.doors.listen(&mut *self.reactor);
        let nobody_asks = self.inbox.is_empty() && self.probes.is_empty() && self.ready_doors() == 0 && !self.stopping;
        Ok(!(nobody_asks && self.origin_done.is_empty()))
    }

    /// Carries out the one operation for which the one request waits, or is to be expected, if that is all that there
    /// is to do. True if it did.
    fn carry_out_alone(&mut self) -> std::io::Result<bool> {
        let free = self.inbox.is_empty() && self.flash_done.is_empty();
        if !free || self.flash_under_way != 1 || self.requests.len() > 1 {
            return Ok(false);
        }
        if self.ready_doors() > 0 {
            // A door that may have more often has nothing.
            self.came = self.take_from_doors();
        }
        let expected = 1_usize.saturating_sub(self.requests.len());
        if self.came > 0 || self.requests.len() > 1 || !self.alone.try_next() {
            return Ok(false);
        }
        let since = self.now;
        // A shard that looks for work while the ring writes does not sleep meanwhile. Where others want the processor, a
        // sleep in the call costs most.
        let writes = self.looking.is_off();
        if !self.reactor.carry_out_alone(writes, &mut self.flash_done) {
            return Ok(false);
        }
        self.called = Some((self.look_at_clock() - since, expected));
        self.look()?;
        Ok(true)
    }

    fn turn(&mut self) {
        self.turns += 1;
        self.engine.advance(clock::at(self.now));
        self.look_at_term();
        self.lanes.take_finished(&mut self.origin_done);
        self.take_in_flash();
        self.take_in_origin();
        let mut came = std::mem::take(&mut self.came) + self.inbox.len();
        for item in self.inbox.drain(..) {
            if let Some(recorder) = &mut self.recorder {
                recorder.note(&item.request, item.since);
            }
            let (id, request) = self.requests.add(item, RequestWay::Mailbox);
            match self.held.take_in(id, request) {
                TakenIn::Goes(request) => self.engine.submit(id, request),
                TakenIn::Waits => {}
                TakenIn::Refused => self.refused.push(id),
            }
        }
        came += self.take_from_doors();
        self.refuse();
        if let Some((took, expected)) = self.called.take() {
            self.alone.called(took, came > expected);
        }
        self.engine.take_effects(&mut self.effects);
        self.carry_out(false);
        self.exchange();
        for probe in std::mem::take(&mut self.probes) {
            // The thread that asked may have gone.
            let _ = probe.send(self.snapshot());
        }
    }

    /// Whether the shard takes in new requests.
    fn takes_requests(&self) -> bool {
        self.flash_under_way < self.limits.operations && self.origin_under_way < self.limits.operations
    }

    /// How many doors have requests that can be taken in now.
    fn ready_doors(&self) -> usize {
        if self.takes_requests() { self.doors.ready() } else { 0 }
    }

    /// Returns the room of answered requests, and takes in new ones.
    fn exchange(&mut self) {
        let take = self.takes_requests();
        let mailbox = &self.closing.mailbox;
        let mut changes = Vec::new();
        self.stopping = mailbox.exchange(self.answered, take, &mut self.inbox, &mut self.probes, &mut changes);
        self.answered = 0;
        for change in changes {
            match change {
                ShardChange::Admit(id, door) => self.doors.admit(id, door, &mut *self.reactor),
                ShardChange::Withdraw(id) => self.doors.withdraw(id, &mut *self.reactor),
                ShardChange::Hold(hold) => self.hold(hold),
                ShardChange::Record(recorder) => self.recorder = recorder,
                ShardChange::Disk(disk, change, answer) => {
                    // The thread that asked may have gone.
                    let _ = answer.send(self.change_disk(disk, change));
                }
            }
        }
        if self.stopping && self.held.now() != Hold::Nothing {
            self.hold(Hold::Nothing);
        }
    }

    /// Changes a disk. What a disk that leaves had under way ends with the next wait. The engine hears of it as of any
    /// other error.
    fn change_disk(&mut self, disk: MemberId, change: DiskChange) -> Result<u64> {
        match change {
            DiskChange::Join(flash) => {
                // What another device failed under this number is not this one's.
                self.disk_errors.retain(|(other, _)| *other != disk);
                self.reactor.add(disk, flash).map(|()| self.reactor.bytes(disk))
            }
            DiskChange::Leave => {
                self.reactor.remove(disk);
                Ok(0)
            }
            DiskChange::Measure => self.reactor.measure(disk),
        }
    }

    /// Looks whether this host still is the owner. Without a lease it always is.
    fn look_at_term(&mut self) {
        let state = self.term.state();
        if state == self.held.term() {
            return;
        }
        for (id, request) in self.held.term_becomes(state) {
            if state == TermState::Ended {
                self.refused.push(id);
            } else {
                self.engine.submit(id, request);
            }
        }
        self.refuse();
        for (id, reply) in std::mem::take(&mut self.unsaid) {
            self.reply(id, reply, false);
        }
    }

    /// Answers what only the owner may serve.
    fn refuse(&mut self) {
        for id in std::mem::take(&mut self.refused) {
            self.reply(id, Reply::Failed(DEPOSED), false);
        }
    }

    /// Sets what waits from now on, and goes on with what need not wait any more.
    fn hold(&mut self, hold: Hold) {
        self.lanes.hold(hold == Hold::Origin);
        for (id, request) in self.held.becomes(hold) {
            self.engine.submit(id, request);
        }
        self.engine.take_effects(&mut self.effects);
        self.carry_out(false);
    }

    /// What the hold in force waits for.
    fn changes_under_way(&self) -> usize {
        match self.held.now() {
            Hold::Nothing | Hold::Changes => self.requests.changing() - self.held.changing(),
            Hold::Origin => self.lanes.changes_under_way(),
        }
    }

    /// Takes in the requests of the doors. Returns how many came.
    fn take_from_doors(&mut self) -> usize {
        self.doors.listen(&mut *self.reactor);
        let ready = self.ready_doors();
        if ready == 0 || self.stopping {
            return 0;
        }
        let mut came = 0;
        let since = self.now;
        let share = self.at_flash().max(DOOR_PORTION).div_ceil(ready);
        let (requests, engine, held) = (&mut self.requests, &mut self.engine, &mut self.held);
        let (recorder, refused) = (&mut self.recorder, &mut self.refused);
        for _ in 0..ready {
            // False: other doors took the room. The door that is next comes first in the next turn.
            self.doors.serve(&mut *self.reactor, share, |door, request, answer| {
                came += 1;
                if let Some(recorder) = recorder {
                    recorder.note(&request, since);
                }
                let (id, request) =
                    requests.add(Item { request, answer, operation: None, since }, RequestWay::Door(door));
                match held.take_in(id, request) {
                    TakenIn::Goes(request) => engine.submit(id, request),
                    TakenIn::Waits => {}
                    TakenIn::Refused => refused.push(id),
                }
            });
        }
        came
    }

    /// How many operations the flash has still to do.
    fn at_flash(&self) -> usize {
        self.flash_under_way - self.flash_done.len()
    }

    /// Takes in about as many ends as the flash has to do meanwhile. Their effects start before the other ends are
    /// handled. Otherwise a device that reports many ends at once would stand idle while all are handled, and all that
    /// follows would again come at once.
    fn take_in_flash(&mut self) {
        let portion = self.at_flash().max(1).min(self.flash_done.len());
        for done in self.flash_done.drain(..portion) {
            self.flash_under_way -= 1;
            self.flash_reads -= usize::from(matches!(done.end, End::Read(_)));
            let outcome = match done.end {
                End::Read(Ok(bytes)) => Outcome::Bytes(bytes),
                End::Write(Ok(())) | End::Sync(Ok(())) => Outcome::Done,
                End::Read(Err(errno)) | End::Write(Err(errno)) | End::Sync(Err(errno)) => Outcome::Failed(errno),
            };
            if matches!(outcome, Outcome::Failed(_)) {
                match self.disk_errors.iter_mut().find(|(disk, _)| *disk == done.disk) {
                    Some((_, errors)) => *errors += 1,
                    None => self.disk_errors.push((done.disk, 1)),
                }
            }
            self.engine.complete(Ticket(done.tag.0), outcome);
        }
    }

    /// Hands over each end of an origin read by itself: the reads that it answers are the misses.
    fn take_in_origin(&mut self) {
        let mut finished = std::mem::take(&mut self.origin_done);
        for one in finished.drain(..) {
            self.origin_under_way -= 1;
            if one.changed {
                self.lanes.change_ended();
            }
            if one.read {
                self.engine.take_effects(&mut self.effects);
                self.carry_out(false);
            }
            self.engine.complete(one.ticket, one.outcome);
            if one.read {
                self.engine.take_effects(&mut self.effects);
                self.carry_out(true);
            }
        }
        self.origin_done = finished;
    }

    fn carry_out(&mut self, missed: bool) {
        if self.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        let mut looked = false;
        for effect in effects.drain(..) {
            match effect {
                Effect::Reply { request, reply } => {
                    if !std::mem::replace(&mut looked, true) {
                        self.look_at_clock();
                    }
                    self.reply(request, reply, missed);
                }
                // The shard ended early: effects that are not under way are dropped, as in a crash.
                _ if self.stopping => {}
                effect => self.start(effect),
            }
        }
        self.effects = effects;
    }

    fn reply(&mut self, id: RequestId, mut reply: Reply, missed: bool) {
        let term = self.held.term();
        if term != TermState::Stands && self.requests.is_of_owner(id) {
            if term == TermState::Waits {
                // What was read before the term was over may be old by now.
                return self.unsaid.push((id, reply));
            }
            reply = Reply::Failed(DEPOSED);
        }
        let Some(request) = self.requests.remove(id) else { return };
        match request.way {
            RequestWay::Mailbox => self.answered += 1,
            RequestWay::Door(door) => self.doors.answered(door),
        }
        self.answered_ever += 1;
        let bypassed = matches!(&reply, Reply::Data(_, served) if served.bypassed);
        let histogram = match request.kind {
            Kind::Read if missed && bypassed => Some(&mut self.latency.read_bypass),
            Kind::Read if missed => Some(&mut self.latency.read_miss),
            Kind::Read => Some(&mut self.latency.read_hit),
            Kind::Write => Some(&mut self.latency.write),
            Kind::WritePast => Some(&mut self.latency.write_bypass),
            Kind::Sync => Some(&mut self.latency.sync),
            Kind::Other => None,
        };
        if let Some(histogram) = histogram {
            let took = self.now.saturating_duration_since(request.since);
            histogram.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
        (request.answer)(reply);
    }

    fn start(&mut self, effect: Effect) {
        let (ticket, job) = match effect {
            Effect::FlashRead { ticket, at, len } => {
                let op = DiskOp::Read { tag: Tag(ticket.0), offset: at.offset, len: len as usize };
                return self.start_flash(at.member, op);
            }
            Effect::FlashWrite { ticket, at, data } => {
                return self.start_flash(at.member, DiskOp::Write { tag: Tag(ticket.0), offset: at.offset, data });
            }
            Effect::FlashSync { ticket, member } => {
                return self.start_flash(member, DiskOp::Sync { tag: Tag(ticket.0) });
            }
            Effect::FlashTrim { at, len } => {
                return self.reactor.submit(at.member, DiskOp::Trim { offset: at.offset, len });
            }
            Effect::OriginRead { ticket, object, offset, len } => (ticket, Job::Read { object, offset, len }),
            Effect::OriginWrite { ticket, object, offset, data, user, written_out } => {
                (ticket, Job::Write { object, offset, data, user, written_out })
            }
            Effect::OriginZero { ticket, object, offset, len, keep_space } => {
                (ticket, Job::Zero { object, offset, len, keep_space })
            }
            Effect::OriginResize { ticket, object, size } => (ticket, Job::Resize { object, size }),
            Effect::OriginReserve { ticket, object, ranges, user, insists } => {
                (ticket, Job::Reserve { object, ranges, user, insists })
            }
            Effect::OriginSpace { ticket, object, settles } => (ticket, Job::Free { object, settles }),
            Effect::OriginSync { ticket, object } => (ticket, Job::Sync { object }),
            Effect::OriginStamp { ticket, object, mtime } => (ticket, Job::Stamp { object, mtime }),
            Effect::OriginSeek { ticket, object, offset, data } => (ticket, Job::Seek { object, offset, data }),
            Effect::PoolFailed { ticket } => (ticket, Job::PoolFailed),
            Effect::MembersChanged { ticket, generation } => (ticket, Job::MembersChanged(generation)),
            Effect::OriginNamespace { ticket, request } => {
                // A change without an operation has nothing to run.
                let operation = self.requests.operation(request).unwrap_or_else(|| Box::new(|| Err(Errno::INVAL)));
                (ticket, Job::Directory(operation))
            }
            Effect::OriginRelease { object } => {
                self.lanes.release(object);
                if let Some(tell) = self.listeners.let_go.get() {
                    tell(object);
                }
                return;
            }
            Effect::OriginLost { object } => {
                if let Some(tell) = self.listeners.lost.get() {
                    tell(object);
                }
                return;
            }
            Effect::Reply { .. } => return,
        };
        self.origin_under_way += 1;
        self.lanes.push(Some(ticket), job);
    }

    fn start_flash(&mut self, member: MemberId, op: DiskOp) {
        self.flash_under_way += 1;
        self.flash_reads += usize::from(matches!(op, DiskOp::Read { .. }));
        self.reactor.submit(member, op);
    }

    fn snapshot(&self) -> ShardStats {
        ShardStats {
            engine: self.engine.stats(),
            flushes: self.engine.flushes(),
            holdings: self.engine.holdings(HOLDINGS),
            members: self.engine.members(),
            exposed_blocks: self.engine.exposed_blocks(),
            scrub: self.engine.scrub(),
            disk_errors: self.disk_errors.clone(),
            latency: self.latency.clone(),
            doors: self.doors.stats(),
            device: self.reactor.name(),
            requests_under_way: self.requests.len() as u64,
            flash_under_way: self.flash_under_way as u64,
            origin_under_way: self.origin_under_way as u64,
            changes_under_way: self.changes_under_way() as u64,
            origin_silent: self.lanes.longest(),
            turns: self.turns,
            answered: self.answered_ever,
        }
    }
}
