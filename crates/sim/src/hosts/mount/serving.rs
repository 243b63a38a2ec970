//! The engine of a mount, and what it asks for.
//!
//! Keeps true:
//! - What the engine asks of one thing is handed over in its order; when each is done is open.
//! - A change of the origin passes the gate first, and is in the hands of a kernel from then on.
//! - While the lease is in doubt, nothing is answered.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use headpond_base::{Buf, Compression, CopyLoss, Errno, MemberId, Nanos, Redundancy};
use headpond_engine::{
    Config, Effect, Engine, Mutation, Outcome, Recovered, Reply, Request, RequestId, Room, Space, Ticket,
};
use headpond_peer::Said;

use crate::flash::WriteFate;
use crate::hosts::gate::Gate;
use crate::hosts::kept::{Deposed, Kept, TermState};
use crate::hosts::link::Link;
use crate::hosts::promises::Marker;
use crate::hosts::world::{Here, World};
use crate::origin::OriginChange;
use crate::planted_hosts::PlantedHosts;

/// How long nobody waits for an answer.
const FOREVER: Nanos = Nanos(1 << 60);

/// A pool in use.
pub(super) struct Serving {
    pub(super) here: Here,
    pub(super) deposed: Rc<Deposed>,
    pub(super) kept: Rc<Kept>,
    pub(super) gate: Gate,
    /// The marker of this use, as it was at its start.
    pub(super) marker: Marker,
    /// Every member has this use's claim, and the marker says so. Applications are served from then on.
    pub(super) has_begun: Cell<bool>,
    pub(super) own: MemberId,
    /// The copies at peers.
    pub(super) links: RefCell<BTreeMap<MemberId, Rc<Link>>>,
    engine: RefCell<Engine>,
    config: Config,
    next_request: Cell<u64>,
    replies: RefCell<BTreeMap<RequestId, Reply>>,
    /// Something has changed since the clock was set.
    is_kicked: Cell<bool>,
    itself: Weak<Self>,
}

/// The settings of a use: as a seed draws them.
fn config(world: &mut World) -> Config {
    let rng = &mut world.rng;
    Config {
        redundancy: Redundancy::Mirror,
        flush_period: Nanos(*rng.pick(&[100, 300, 300, 2_000, 20_000]) * Nanos::MILLISECOND.0),
        idle_flush: rng.chance(300).then_some(Nanos::SECOND),
        sync_interval: Nanos(*rng.pick(&[100, 1_000]) * Nanos::MILLISECOND.0),
        compression: *rng.pick(&[Compression::Off, Compression::Off, Compression::Lz4]),
        compression_from: 0,
        copy_loss: *rng.pick(&[CopyLoss::GoOn, CopyLoss::GoOn, CopyLoss::WriteThrough]),
        host_segments: *rng.pick(&[1, 1, 2]),
        probe_period: Some(Nanos::SECOND),
        mutation: world.is_planted(PlantedHosts::LeavesDiffering).then_some(Mutation::LeaveDiffering),
        ..Config::default()
    }
}

impl Serving {
    #[allow(clippy::too_many_arguments)] // all that a start has gathered
    pub(super) fn start(
        here: &Here,
        recovered: Recovered,
        own: MemberId,
        links: Vec<(MemberId, Rc<Link>)>,
        gate: Gate,
        kept: &Rc<Kept>,
        deposed: &Rc<Deposed>,
        marker: Marker,
    ) -> Rc<Self> {
        let config = here.with(config);
        let engine = recovered.into_engine(config, here.clock());
        let serving = Rc::new_cyclic(|itself: &Weak<Self>| Self {
            here: here.clone(),
            deposed: deposed.clone(),
            kept: kept.clone(),
            gate,
            marker,
            has_begun: Cell::new(false),
            own,
            links: RefCell::default(),
            engine: RefCell::new(engine),
            config,
            next_request: Cell::new(0),
            replies: RefCell::default(),
            is_kicked: Cell::new(true),
            itself: itself.clone(),
        });
        for (member, link) in links {
            serving.joins(member, link);
        }
        serving.pump();
        serving
    }

    /// A member lies at this peer from now on.
    pub(super) fn joins(&self, member: MemberId, link: Rc<Link>) {
        let itself = self.itself.clone();
        link.tell(Box::new(move |ticket, outcome| {
            if let Some(serving) = itself.upgrade() {
                serving.note_loss(&outcome);
                serving.complete(ticket, outcome);
            }
        }));
        self.links.borrow_mut().insert(member, link);
    }

    pub(super) fn term(&self) -> TermState {
        self.deposed.state(self.here.clock())
    }

    /// Looks at the engine.
    pub(super) fn look<R>(&self, at: impl FnOnce(&Engine) -> R) -> R {
        at(&self.engine.borrow())
    }

    fn drive(&self, act: impl FnOnce(&mut Engine)) {
        let now = self.here.clock();
        let mut engine = self.engine.borrow_mut();
        engine.advance(now);
        act(&mut engine);
        drop(engine);
        self.pump();
    }

    fn complete(&self, ticket: Ticket, outcome: Outcome) {
        self.here.trace(|| format!("  done {ticket:?} {outcome:?}"));
        self.drive(|engine| engine.complete(ticket, outcome));
    }

    /// Takes what the engine wants, and sets it on its way.
    fn pump(&self) {
        loop {
            let mut effects = Vec::new();
            self.engine.borrow_mut().take_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.here.trace(|| format!("  {effect:?}"));
                self.begin_effect(effect);
            }
        }
        self.is_kicked.set(true);
        self.here.with(|world| world.poke(self.here.who));
    }

    /// Wakes the engine whenever it wants to be.
    pub(super) async fn keep_time(self: Rc<Self>) {
        loop {
            let wake = self.look(|engine| engine.next_wake());
            let now = self.here.clock();
            if wake.is_some_and(|wake| wake <= now) {
                self.drive(|_| {});
                self.here.sleep(Nanos(100_000)).await;
                continue;
            }
            let pause = wake.map_or(FOREVER, |wake| wake.since(now));
            self.is_kicked.set(false);
            let itself = self.clone();
            self.here.wait(pause.max(Nanos(1000)), move |_| itself.is_kicked.get().then_some(())).await;
        }
    }

    /// Asks the engine, and waits for its answer.
    async fn answer_to(&self, request: Request) -> Option<Reply> {
        self.next_request.set(self.next_request.get() + 1);
        let id = RequestId(self.next_request.get());
        self.drive(|engine| engine.submit(id, request));
        let itself = self.itself.upgrade()?;
        self.here.wait(FOREVER, move |_| itself.replies.borrow_mut().remove(&id)).await
    }

    /// The same as a program sees it. None once this host is not the owner any more.
    pub(super) async fn ask(&self, request: Request) -> Option<Reply> {
        let reply = self.answer_to(request).await?;
        // `reply` of `shard/src/turn.rs`.
        loop {
            match self.term() {
                TermState::Stands => return Some(reply),
                TermState::Ended => return None,
                TermState::Waits => self.here.sleep(Nanos(100 * Nanos::MILLISECOND.0)).await,
            }
        }
    }

    /// The first checkpoint counts, and the list without members that were missing. Control asks for the same without a
    /// look at the lease.
    pub(super) async fn settled(&self) {
        self.answer_to(Request::Configure(Box::new(self.config))).await;
    }

    fn later(&self, work: impl AsyncFnOnce(Rc<Self>) + 'static) {
        if let Some(itself) = self.itself.upgrade() {
            self.here.spawn(async move { work(itself).await });
        }
    }

    fn begin_effect(&self, effect: Effect) {
        match effect {
            Effect::Reply { request, reply } => {
                self.replies.borrow_mut().insert(request, reply);
            }
            Effect::FlashRead { .. }
            | Effect::FlashWrite { .. }
            | Effect::FlashSync { .. }
            | Effect::FlashTrim { .. } => {
                self.at_member(effect);
            }
            Effect::MembersChanged { ticket, generation } => self.members_changed(ticket, generation),
            Effect::PoolFailed { ticket } => self.pool_failed(ticket),
            Effect::OriginRelease { .. } | Effect::OriginLost { .. } => {}
            effect => self.at_origin(effect),
        }
    }

    fn at_member(&self, effect: Effect) {
        let member = match &effect {
            Effect::FlashRead { at, .. } | Effect::FlashWrite { at, .. } | Effect::FlashTrim { at, .. } => at.member,
            Effect::FlashSync { member, .. } => *member,
            _ => return,
        };
        if member == self.own {
            return self.at_own_flash(effect);
        }
        let link = self.links.borrow().get(&member).cloned();
        let is_mute = link.as_ref().is_some_and(|link| link.is_mute.get());
        let ask = |said: Said<'_>, ticket| link.as_ref().is_some_and(|link| link.ask(said, ticket));
        let (ticket, sent) = match &effect {
            Effect::FlashTrim { at, len } => {
                ask(Said::Trim { offset: at.offset, len: *len as u32 }, None);
                return;
            }
            Effect::FlashRead { ticket, at, len } => {
                (*ticket, ask(Said::Read { offset: at.offset, len: *len }, Some(*ticket)))
            }
            Effect::FlashWrite { ticket, .. } | Effect::FlashSync { ticket, .. } if is_mute => {
                let ticket = *ticket;
                return self.later(async move |serving| serving.complete(ticket, Outcome::Done));
            }
            Effect::FlashWrite { ticket, at, data } => {
                (*ticket, ask(Said::Write { offset: at.offset, data }, Some(*ticket)))
            }
            Effect::FlashSync { ticket, .. } => (*ticket, ask(Said::Sync, Some(*ticket))),
            _ => return,
        };
        if !sent {
            // Not at once: the engine is in the midst of asking.
            self.later(async move |serving| {
                serving.here.sleep(Nanos(1000)).await;
                let outcome = Outcome::Failed(Errno::IO);
                serving.note_loss(&outcome);
                serving.complete(ticket, outcome);
            });
        }
    }

    /// A peer has failed. What it alone had is then lost: after a crash of this host, in the midst of its start.
    fn note_loss(&self, outcome: &Outcome) {
        let starts = || self.look(|engine| engine.stats().checkpoints == 0 && engine.exposed_blocks() > 0);
        let alone = matches!(outcome, Outcome::Failed(_)) && starts();
        self.here.with(|world| world.may_lack |= alone);
    }

    fn at_own_flash(&self, effect: Effect) {
        let begun = self.here.device(|device| match &effect {
            Effect::FlashRead { ticket, at, len } => device.flash.start_read(ticket.0, at.offset, u64::from(*len)),
            Effect::FlashWrite { ticket, at, data } => device.flash.start_write(ticket.0, at.offset, data.clone()),
            Effect::FlashTrim { at, len } => device.flash.trim(at.offset, *len),
            Effect::FlashSync { ticket, .. } => {
                device.flash.start_sync(ticket.0);
                Ok(())
            }
            _ => Ok(()),
        });
        if let Some(Err(why)) = begun {
            self.here.with(|world| world.breaks(|| why));
        }
        let (ticket, is_read) = match effect {
            Effect::FlashRead { ticket, .. } => (ticket, true),
            Effect::FlashWrite { ticket, .. } | Effect::FlashSync { ticket, .. } => (ticket, false),
            _ => return,
        };
        self.later(async move |serving| {
            let here = &serving.here;
            // A flash is quick, mostly.
            let millis = here.with(|world| *world.rng.pick(&[1, 1, 1, 3, 200]));
            here.sleep_below(if is_read { 2 } else { millis }).await;
            let mut rng = here.with(|world| world.rng.clone());
            let outcome = here.device(|device| {
                if is_read {
                    return Outcome::Bytes(device.flash.finish_read(ticket.0));
                }
                device.flash.finish_write(ticket.0, WriteFate::Done, &mut rng);
                device.flash.finish_sync(ticket.0);
                Outcome::Done
            });
            if let Some(outcome) = outcome {
                serving.complete(ticket, outcome);
            }
        });
    }

    fn members_changed(&self, ticket: Ticket, generation: u64) {
        if self.here.with(|world| world.is_planted(PlantedHosts::AnswersBeforeRecord)) {
            return self.later(async move |serving| {
                serving.complete(ticket, Outcome::Done);
                while !serving.tell(generation).await {
                    serving.here.sleep_below(1000).await;
                }
            });
        }
        self.later(async move |serving| {
            let told = serving.tell(generation).await;
            // `members_changed` of `shard/src/file_origin.rs`.
            let failed = Outcome::Failed(if serving.gate.is_lost() { Errno::SHUTDOWN } else { Errno::IO });
            serving.here.with(|world| world.summary.lists += u64::from(told));
            serving.complete(ticket, if told { Outcome::Done } else { failed });
        });
    }

    /// Only an owner that was deposed gives its pool up here: no device fails. Its note is for the next owner to find, and
    /// must not come to be.
    fn pool_failed(&self, ticket: Ticket) {
        self.later(async move |serving| {
            if serving.gate.pass().await.is_some() {
                let host = serving.here.who.host;
                serving.here.with(|world| world.breaks(|| format!("host {host} says that the pool has failed")));
            }
            serving.complete(ticket, Outcome::Failed(Errno::IO));
        });
    }

    /// `tell_members` of `control/src/life/pool.rs`. The registry first: a marker that is ahead of it would refuse the very
    /// copy that the registry lets take over.
    async fn tell(&self, members: u64) -> bool {
        if self.gate.pass().await.is_none() || !self.kept.tell_members(members).await {
            return false;
        }
        self.here.origin_answers().await;
        let Marker { host, owner, .. } = self.marker;
        self.here.with(|world| match &mut world.origin.marker {
            Some(marker) if (marker.host, marker.owner) == (host, owner) => {
                marker.members = members;
                true
            }
            _ => false,
        })
    }

    fn at_origin(&self, effect: Effect) {
        self.later(async move |serving| {
            if let Some((ticket, outcome)) = serving.done_at_origin(effect).await {
                serving.complete(ticket, outcome);
            }
        });
    }

    async fn done_at_origin(&self, effect: Effect) -> Option<(Ticket, Outcome)> {
        let here = &self.here;
        let with_stamp = |world: &mut World| world.origin.found().stamp;
        Some(match effect {
            Effect::OriginRead { ticket, offset, len, .. } => {
                here.origin_answers().await;
                (ticket, Outcome::Bytes(here.with(|world| world.origin.read(offset, len as usize))))
            }
            Effect::OriginSync { ticket, .. } => {
                let reach = here.with(|world| world.origin.files.start_sync(world.origin.file));
                here.origin_answers().await;
                here.with(|world| world.origin.files.finish_sync(world.origin.file, reach));
                (ticket, Outcome::Done)
            }
            Effect::OriginWrite { ticket, offset, data, .. } => {
                (ticket, self.change(OriginChange::Write { offset, data }).await)
            }
            Effect::OriginZero { ticket, offset, len, .. } => {
                (ticket, self.change(OriginChange::Zero { offset, len }).await)
            }
            Effect::OriginResize { ticket, size, .. } => (ticket, self.change(OriginChange::Resize { size }).await),
            Effect::OriginStamp { ticket, mtime, .. } => {
                let changed = self.change(OriginChange::Times { mtime: mtime.0 }).await;
                let stamped = || Outcome::Stamp(here.with(with_stamp));
                (ticket, if matches!(changed, Outcome::Done) { stamped() } else { changed })
            }
            Effect::OriginReserve { ticket, .. } => {
                // The file has its space from the beginning.
                here.origin_answers().await;
                let found = vec![(0, here.with(|world| world.origin.found().allocated))];
                (ticket, Outcome::Space(Space { found, ..Space::default() }))
            }
            Effect::OriginSpace { ticket, .. } => {
                here.origin_answers().await;
                (ticket, Outcome::Free(Room { free: 1 << 30, bytes: 1 << 31, counts: false }))
            }
            Effect::OriginSeek { ticket, offset, data, .. } => {
                here.origin_answers().await;
                let found = here.with(|world| world.origin.files.seek(world.origin.file, offset, data));
                (ticket, found.map_or_else(Outcome::Failed, Outcome::Offset))
            }
            _ => return None,
        })
    }

    /// One change of the origin's file.
    async fn change(&self, change: OriginChange) -> Outcome {
        let Some(is_late) = self.gate.pass().await else {
            return Outcome::Failed(if self.gate.is_lost() { Errno::ROFS } else { Errno::AGAIN });
        };
        // Between the look at the clock and the system call anything may happen to the thread.
        self.here.sleep(Nanos(1000)).await;
        let owner = self.marker.owner;
        let number = self.here.with(|world| world.hand_over(self.here.who, owner, change, is_late));
        loop {
            if let Some(landed) = self.here.with(|world| world.origin.landed.remove(&number)) {
                return landed.map_or_else(Outcome::Failed, |()| Outcome::Done);
            }
            self.here.sleep_below(30).await;
        }
    }
}

/// All bytes of a read.
pub(super) fn gathered(pieces: &[Buf]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
}
