//! A trivial engine for the simulator's own tests. It passes everything on to the origin, one request after the
//! other, and keeps nothing on flash. Its planted bugs show that the checker would notice.

use std::collections::{BTreeMap, VecDeque};

use headpond_base::{Buf, CacheMode, Errno, MemberId, Nanos, ObjectId, UnixNanos};
use headpond_claim::ownership::Drawn;
use headpond_engine::{
    Attributes, Config, Device, Effect, Mutation, Namespace, OpenFile, OpenObject, Outcome, Reply, Request, RequestId,
    SecondTail, Served, Ticket, Verdict,
};
use headpond_format::{Address, HostCopies, MemberState, OriginName};

use crate::scenario::Scenario;
use crate::under_test::{Known, Maker, MemberNow, Refusal, Restored, UnderTest};

/// Planted bugs of the fake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bug {
    None,
    /// A sync is answered at once.
    SkipSync,
    /// Every 20th read gets bytes of another place.
    Misplaced,
    /// Writes go out in two halves, and reads may come in between.
    Torn,
    /// Every 20th write is answered and dropped.
    LostWrite,
    /// After a while no request gets an answer.
    Stuck,
}

#[derive(Default)]
struct Object {
    attributes: Attributes,
}

pub(crate) struct Fake {
    bug: Bug,
    objects: BTreeMap<ObjectId, Object>,
    by_identity: BTreeMap<(u64, UnixNanos), ObjectId>,
    queue: VecDeque<(RequestId, Request)>,
    /// Effects of the running request that it has still to ask for.
    todo: VecDeque<Effect>,
    running: Option<(RequestId, Request, Ticket)>,
    effects: Vec<Effect>,
    next_ticket: u64,
    count: u64,
}

impl Fake {
    fn new(bug: Bug) -> Self {
        Self {
            bug,
            objects: BTreeMap::new(),
            by_identity: BTreeMap::new(),
            queue: VecDeque::new(),
            todo: VecDeque::new(),
            running: None,
            effects: Vec::new(),
            next_ticket: 0,
            count: 0,
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn reply(&mut self, request: RequestId, reply: Reply) {
        self.effects.push(Effect::Reply { request, reply });
    }

    fn changed(&mut self, object: ObjectId, size: u64, mtime: UnixNanos) -> Reply {
        let known = self.objects.entry(object).or_default();
        known.attributes = Attributes { size, mtime, ctime: mtime };
        Reply::Changed(known.attributes)
    }

    fn size(&self, object: ObjectId) -> u64 {
        self.objects.get(&object).map_or(0, |known| known.attributes.size)
    }

    /// The effects on the origin that a request needs.
    fn plan(&mut self, request: &Request) -> Vec<Effect> {
        let syncs = |fake: &mut Self| {
            if fake.bug == Bug::SkipSync {
                return Vec::new();
            }
            let objects: Vec<ObjectId> = fake.objects.keys().copied().collect();
            objects.into_iter().map(|object| Effect::OriginSync { ticket: fake.ticket(), object }).collect()
        };
        match request.clone() {
            Request::Read { object, mut offset, len, .. } => {
                if self.bug == Bug::Misplaced && self.count.is_multiple_of(20) {
                    offset += 512;
                }
                vec![Effect::OriginRead { ticket: self.ticket(), object, offset, len }]
            }
            Request::Write { object, offset, data, durable, .. } => {
                if self.bug == Bug::LostWrite && self.count.is_multiple_of(20) {
                    return Vec::new();
                }
                let half = if self.bug == Bug::Torn { data.len() / 2 } else { data.len() };
                let mut effects = Vec::new();
                for (from, to) in [(0, half), (half, data.len())] {
                    if from < to {
                        let data = vec![data.slice(from..to)];
                        effects.push(Effect::OriginWrite {
                            ticket: self.ticket(),
                            object,
                            offset: offset + from as u64,
                            data,
                            user: 0,
                            written_out: false,
                        });
                    }
                }
                if durable {
                    effects.extend(syncs(self));
                }
                effects
            }
            // One after the other: it never runs where they must be one.
            Request::WriteTogether { object, pieces, .. } => pieces
                .into_iter()
                .map(|(offset, data)| Effect::OriginWrite {
                    ticket: self.ticket(),
                    object,
                    offset,
                    data: vec![data],
                    user: 0,
                    written_out: false,
                })
                .collect(),
            Request::Truncate { object, size, .. } => {
                vec![Effect::OriginResize { ticket: self.ticket(), object, size }]
            }
            Request::Zero { object, offset, len, extend, .. } => {
                let mut effects =
                    vec![Effect::OriginZero { ticket: self.ticket(), object, offset, len, keep_space: false }];
                if extend && offset + len > self.size(object) {
                    effects.push(Effect::OriginResize { ticket: self.ticket(), object, size: offset + len });
                }
                effects
            }
            Request::Allocate { object, offset, len, extend, .. } => {
                let (ranges, ticket) = (vec![(offset, offset + len)], self.ticket());
                let mut effects = vec![Effect::OriginReserve { ticket, object, ranges, user: 0, insists: true }];
                if extend && offset + len > self.size(object) {
                    effects.push(Effect::OriginResize { ticket: self.ticket(), object, size: offset + len });
                }
                effects
            }
            Request::Sync { .. } | Request::SyncAll | Request::Flush { .. } | Request::Stop | Request::SetMode(_) => {
                syncs(self)
            }
            Request::Seek { object, offset, data } => {
                vec![Effect::OriginSeek { ticket: self.ticket(), object, offset, data }]
            }
            Request::Namespace(change) => {
                if let Namespace::Rename { moved: Some(_), .. } = change {
                    let mut effects = syncs(self);
                    effects.push(Effect::OriginNamespace { ticket: self.ticket(), request: RequestId(0) });
                    return effects;
                }
                vec![Effect::OriginNamespace { ticket: self.ticket(), request: RequestId(0) }]
            }
            Request::Open(_)
            | Request::Close { .. }
            | Request::SetMtime { .. }
            | Request::Restamp { .. }
            | Request::StatusBegins { .. }
            | Request::StatusEnds { .. }
            | Request::ChangeMembers(_)
            | Request::CancelMembersChange
            | Request::Scrub
            | Request::CancelScrub
            | Request::CancelFlush(_)
            | Request::Configure(_) => Vec::new(),
        }
    }

    fn advance_queue(&mut self) {
        while self.running.is_none() {
            let Some((id, request)) = self.queue.pop_front() else { return };
            self.count += 1;
            if self.bug == Bug::Stuck && self.count > 100 {
                return;
            }
            let plan = self.plan(&request);
            self.todo = plan.into();
            self.next(id, request, Outcome::Done);
        }
    }

    fn next(&mut self, id: RequestId, request: Request, last: Outcome) {
        if let Outcome::Failed(error) = last {
            self.todo.clear();
            self.running = None;
            return self.reply(id, Reply::Failed(error));
        }
        if let Some(mut effect) = self.todo.pop_front() {
            if let Effect::OriginNamespace { request, .. } = &mut effect {
                *request = id;
            }
            let ticket = Ticket(self.next_ticket + 1);
            self.next_ticket += 1;
            set_ticket(&mut effect, ticket);
            self.running = Some((id, request, ticket));
            self.effects.push(effect);
            return;
        }
        self.running = None;
        let reply = self.done(request, last);
        self.reply(id, reply);
    }

    fn done(&mut self, request: Request, last: Outcome) -> Reply {
        match request {
            Request::Open(OpenObject::File(OpenFile { inode, birth, stamp, .. })) => {
                let next = ObjectId(self.by_identity.len() as u64 + 1);
                let object = *self.by_identity.entry((inode, birth)).or_insert(next);
                let attributes = Attributes { size: stamp.size, mtime: stamp.mtime, ctime: stamp.ctime };
                let known = self.objects.entry(object).or_insert(Object { attributes });
                Reply::Opened { object, attributes: known.attributes }
            }
            Request::Read { .. } => match last {
                Outcome::Bytes(bytes) => Reply::Data(vec![bytes], Served::default()),
                _ => Reply::Failed(Errno::IO),
            },
            Request::Write { object, offset, data, mtime, .. } => {
                let size = self.size(object).max(offset + data.len() as u64);
                self.changed(object, size, mtime)
            }
            Request::WriteTogether { object, pieces, mtime, .. } => {
                let end = pieces.last().map_or(0, |(offset, data)| offset + data.len() as u64);
                self.changed(object, self.size(object).max(end), mtime)
            }
            Request::Truncate { object, size, mtime } => self.changed(object, size, mtime),
            Request::Zero { object, offset, len, extend, mtime }
            | Request::Allocate { object, offset, len, extend, mtime, .. } => {
                let size = if extend { self.size(object).max(offset + len) } else { self.size(object) };
                self.changed(object, size, mtime)
            }
            Request::Seek { .. } => match last {
                Outcome::Offset(offset) => Reply::Offset(offset),
                _ => Reply::Failed(Errno::IO),
            },
            _ => Reply::Done,
        }
    }
}

fn set_ticket(effect: &mut Effect, new: Ticket) {
    match effect {
        Effect::OriginRead { ticket, .. }
        | Effect::OriginWrite { ticket, .. }
        | Effect::OriginZero { ticket, .. }
        | Effect::OriginResize { ticket, .. }
        | Effect::OriginReserve { ticket, .. }
        | Effect::OriginSync { ticket, .. }
        | Effect::OriginSeek { ticket, .. }
        | Effect::OriginNamespace { ticket, .. } => *ticket = new,
        _ => {}
    }
}

impl UnderTest for Fake {
    fn sequential_writes(&self) -> Option<u64> {
        Some(0)
    }

    fn advance(&mut self, _now: Nanos) {}

    fn submit(&mut self, id: RequestId, request: Request) {
        self.queue.push_back((id, request));
        self.advance_queue();
    }

    fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        if let Some((id, request, _)) = self.running.take_if(|(_, _, running)| *running == ticket) {
            self.next(id, request, outcome);
            self.advance_queue();
        }
    }

    fn take_effects(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    fn next_wake(&self) -> Option<Nanos> {
        None
    }

    fn figures(&self) -> [u64; 7] {
        [0; 7]
    }

    fn durable_host_batch(&self) -> u64 {
        0
    }

    fn members(&self) -> Vec<MemberNow> {
        Vec::new()
    }

    fn exposed_blocks(&self) -> u64 {
        0
    }

    fn host_copies(&self) -> HostCopies {
        HostCopies::ONE
    }

    fn scrub_lost_blocks(&self) -> u64 {
        0
    }

    fn told(&self) -> String {
        String::new()
    }

    fn waiting(&self) -> String {
        String::new()
    }
}

/// Makes fakes.
pub(crate) struct FakeMaker(pub(crate) Bug);

struct FakeRestored(Bug);

impl Restored for FakeRestored {
    fn objects(&self) -> Vec<Known> {
        Vec::new()
    }

    fn reconcile(&mut self, _object: ObjectId, _found: Option<&OpenObject>) -> Verdict {
        Verdict::Kept
    }

    fn ctime(&self, _object: ObjectId) -> Option<i64> {
        None
    }

    fn keep(&mut self, _object: ObjectId, _found: &OpenObject) {}

    fn discard(&mut self, _object: ObjectId) {}

    fn adopt(&mut self, _origin: OriginName) {}

    fn booted(&mut self, _boot: [u8; 16]) {}

    fn clean_stop(&self) -> bool {
        true
    }

    fn beyond_gap(&self) -> u64 {
        0
    }

    fn last_host_batch(&self) -> u64 {
        0
    }

    fn places(&self) -> Vec<Option<MemberId>> {
        Vec::new()
    }

    fn members(&self) -> Vec<MemberState> {
        Vec::new()
    }

    fn list_generation(&self) -> u64 {
        0
    }

    fn last_epoch(&self) -> u64 {
        0
    }

    fn last_claim(&self) -> Drawn {
        [0; 16]
    }

    fn counter(&self) -> u64 {
        0
    }

    fn epoch(&self) -> u64 {
        1
    }

    fn claim(&mut self, _claim: Drawn) {}

    fn survive_in(&mut self, _second_tail: SecondTail) {}

    fn start(self: Box<Self>, _config: Config, _now: Nanos) -> Box<dyn UnderTest> {
        Box::new(Fake::new(self.0))
    }
}

impl Maker for FakeMaker {
    fn format(&self, _scenario: &Scenario, _mode: CacheMode) -> Result<Vec<(Address, Buf)>, String> {
        Ok(Vec::new())
    }

    fn recover(
        &self,
        _devices: Vec<Device<'_>>,
        _refused: &[usize],
        _mutation: Option<Mutation>,
    ) -> Result<Box<dyn Restored>, Refusal> {
        Ok(Box::new(FakeRestored(self.0)))
    }
}

mod tests {
    use super::*;
    use crate::scenario::{Faults, Options, Scenario};

    fn failures(bug: Bug, mode: CacheMode, seeds: u64) -> Vec<String> {
        let only = std::env::var("HEADPOND_SIM_SEED").ok().and_then(|seed| seed.parse().ok());
        only.map_or(0..seeds, |seed| seed..seed + 1)
            .filter_map(|seed| {
                let verbose = std::env::var("HEADPOND_SIM_SEED").is_ok();
                // It has no pool, and no memory that outlives it.
                let options = Options { ops: 300, verbose, second_tail: Some(false), ..Options::default() };
                let mut scenario = Scenario::new(seed, &options);
                scenario.config.mode = mode;
                scenario.fixed_mode();
                // It cannot learn a file's size after a failure.
                scenario.quota_blocks = None;
                // And no volumes.
                scenario.volume = None;
                scenario.faults = Faults { slow: 20, stuck: 3, ..Faults::default() };
                crate::run::run_scenario(seed, scenario, &options, &FakeMaker(bug))
                    .err()
                    .map(|failure| format!("{seed} {:?}: {}", failure.at, failure.what))
            })
            .collect()
    }

    #[test]
    fn an_engine_that_only_passes_on_keeps_the_promises_of_pass_through() {
        let failed = failures(Bug::None, CacheMode::PassThrough, 150);
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }

    #[test]
    fn it_does_not_keep_those_of_write_back() {
        assert!(!failures(Bug::None, CacheMode::WriteBack, 40).is_empty());
    }

    #[test]
    fn planted_bugs_are_found() {
        for bug in [Bug::SkipSync, Bug::Misplaced, Bug::LostWrite, Bug::Stuck] {
            assert!(!failures(bug, CacheMode::PassThrough, 40).is_empty(), "{bug:?} goes unnoticed");
        }
    }
}
