//! The lease of a pool that a host owns.
//!
//! The steps are those of `control/src/leases/kept.rs` and of `Registry::take` in `registry/src/etcd.rs`, in their order:
//! whoever changes them there repeats it here. How long a lease stands, and who may take it, the real `headpond_claim`
//! says.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headpond_base::Nanos;
use headpond_claim::{Node, OwnerLease, OwnerRecord, OwnerVerdict, judge_owner};

use crate::hosts::etcd::{Ask, Said, SeenAt};
use crate::hosts::world::{Here, LEASE};
use crate::planted_hosts::PlantedHosts;

const LATE: Nanos = Nanos(3 * Nanos::SECOND.0);
const ASK: Nanos = Nanos(300 * Nanos::MILLISECOND.0);
const TRIES: u32 = 3;

/// How a term stands: `TermState` of `shard/src/term.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TermState {
    Stands,
    Waits,
    Ended,
}

/// `Deposed` of `control/src/deposed.rs`, with its term.
#[derive(Debug)]
pub(crate) struct Deposed {
    until: Cell<Option<Nanos>>,
    said: Cell<bool>,
    /// A gate is to doubt.
    pub(crate) doubted: Cell<bool>,
}

impl Deposed {
    pub(crate) fn new() -> Rc<Self> {
        // Until a lease is granted nothing stands: each of these owners has a registry.
        Rc::new(Self { until: Cell::new(Some(Nanos(0))), said: Cell::new(false), doubted: Cell::new(false) })
    }

    pub(crate) fn is_said(&self) -> bool {
        self.said.get()
    }

    pub(crate) fn say(&self) {
        self.said.set(true);
        self.until.set(None);
        self.doubted.set(true);
    }

    fn lasts_until(&self, until: Nanos) {
        if self.until.get().is_some() {
            self.until.set(Some(until));
        }
    }

    pub(crate) fn state(&self, now: Nanos) -> TermState {
        match self.until.get() {
            None => TermState::Ended,
            Some(until) if now < until => TermState::Stands,
            Some(_) => TermState::Waits,
        }
    }
}

/// Why a host does not own a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotOwner {
    Away,
    Held,
    Deposed,
    OlderMembers,
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    lease: i64,
    version: i64,
}

impl Here {
    /// `Registry::read`.
    pub(crate) async fn read(&self) -> Option<SeenAt> {
        match self.ask(Ask::Read).await {
            Some(Said::Seen(seen)) => Some(seen),
            _ => None,
        }
    }

    /// `Registry::take`. An error if it is not known whether it was written.
    pub(crate) async fn take_lease(
        &self,
        versions: (i64, i64),
        node: &Node,
        record: Option<&OwnerRecord>,
    ) -> Result<Option<Granted>, ()> {
        let Some(Said::Granted(lease)) = self.ask(Ask::Grant).await else { return Err(()) };
        let ask = Ask::Write { versions, record: record.cloned(), lease: Some((lease, node.clone())) };
        if let Some(Said::Written(Some(version))) = self.ask(ask).await {
            return Ok(Some(Granted { lease, version }));
        }
        // Its answer was lost, or it was carried out where nobody heard of it.
        let seen = self.read().await;
        if let Some(seen) = seen.as_ref().filter(|seen| seen.lease == Some(lease)) {
            return Ok(Some(Granted { lease, version: seen.versions.1 }));
        }
        self.ask(Ask::Revoke(lease)).await;
        if seen.is_some() { Ok(None) } else { Err(()) }
    }
}

struct State {
    lease: OwnerLease,
    id: i64,
    record: OwnerRecord,
    versions: (i64, i64),
}

/// `KeptLease` and what it shares with its thread.
pub(crate) struct Kept {
    here: Here,
    node: Node,
    deposed: Rc<Deposed>,
    state: RefCell<State>,
    /// Somebody has the lock of the state, over its questions.
    is_locked: Cell<bool>,
    is_stopped: Cell<bool>,
    /// It is about to follow another owner.
    follows: bool,
    /// What the registry had before a start: a start that is refused puts it back.
    before: Option<OwnerRecord>,
}

impl Kept {
    /// `KeptLease::take`.
    pub(crate) async fn take(
        here: &Here,
        owner: u64,
        members: u64,
        deposed: &Rc<Deposed>,
    ) -> Result<Rc<Self>, NotOwner> {
        let node = here.host(|host| host.node());
        let until = here.clock().plus(LEASE).plus(LATE);
        loop {
            let mut lease = OwnerLease::new(LEASE);
            lease.asked(here.clock());
            let Some(seen) = here.read().await else {
                if here.clock() < until {
                    here.sleep(ASK).await;
                    continue;
                }
                return Err(NotOwner::Away);
            };
            match judge_owner(&node, owner, members, seen.seen.as_ref()) {
                OwnerVerdict::Take => {
                    let record = OwnerRecord { node: node.clone(), owner, members, left: false, handed_to: None };
                    match here.take_lease(seen.versions, &node, Some(&record)).await {
                        Ok(Some(granted)) => {
                            let versions = (granted.version, granted.version);
                            let before = seen.seen.map(|seen| seen.record);
                            let left = OwnerRecord { left: true, ..record.clone() };
                            let before = before.unwrap_or(left);
                            return Ok(Self::begin(
                                here,
                                node,
                                lease,
                                granted,
                                record,
                                versions,
                                (before, false),
                                deposed,
                            ));
                        }
                        Err(()) if here.clock() >= until => return Err(NotOwner::Away),
                        _ => here.sleep(ASK).await,
                    }
                }
                OwnerVerdict::Held if here.clock() < until => here.sleep(ASK).await,
                OwnerVerdict::Held => return Err(NotOwner::Held),
                OwnerVerdict::Deposed => return Err(NotOwner::Deposed),
                OwnerVerdict::OlderMembers => return Err(NotOwner::OlderMembers),
            }
        }
    }

    /// `KeptLease::follow`.
    pub(crate) fn follow(
        here: &Here,
        node: Node,
        lease: OwnerLease,
        granted: Granted,
        seen: (&OwnerRecord, i64),
        deposed: &Rc<Deposed>,
    ) -> Rc<Self> {
        let (record, record_at) = seen;
        let versions = (record_at, granted.version);
        Self::begin(here, node, lease, granted, record.clone(), versions, (record.clone(), true), deposed)
    }

    /// `KeptLease::begin`.
    #[allow(clippy::too_many_arguments)] // as what it follows
    fn begin(
        here: &Here,
        node: Node,
        mut lease: OwnerLease,
        granted: Granted,
        record: OwnerRecord,
        versions: (i64, i64),
        (before, follows): (OwnerRecord, bool),
        deposed: &Rc<Deposed>,
    ) -> Rc<Self> {
        count_from_answer(here, &mut lease);
        lease.granted(LEASE);
        deposed.lasts_until(lease.until());
        let state = RefCell::new(State { lease, id: granted.lease, record, versions });
        let kept = Rc::new(Self {
            here: here.clone(),
            node,
            deposed: deposed.clone(),
            state,
            is_locked: Cell::new(false),
            is_stopped: Cell::new(false),
            follows,
            before: Some(before),
        });
        let keeps = kept.clone();
        here.spawn(async move {
            while !keeps.deposed.is_said() && !keeps.is_stopped.get() {
                let began = keeps.here.clock();
                let answered = keeps.renew().await;
                let pause = keeps.state.borrow().lease.pause(answered, began, keeps.here.clock());
                keeps.here.sleep(pause.max(Nanos::MILLISECOND)).await;
            }
        });
        kept
    }

    async fn lock(&self) {
        while self.is_locked.get() {
            self.here.sleep(Nanos(5 * Nanos::MILLISECOND.0)).await;
        }
        self.is_locked.set(true);
    }

    async fn renew(&self) -> bool {
        self.lock().await;
        let answered = self.renew_locked().await;
        self.is_locked.set(false);
        answered
    }

    async fn renew_locked(&self) -> bool {
        self.state.borrow_mut().lease.asked(self.here.clock());
        let id = self.state.borrow().id;
        let asked = match self.here.ask(Ask::KeepAlive(id)).await {
            Some(Said::Renewed(true)) => {
                let mut state = self.state.borrow_mut();
                count_from_answer(&self.here, &mut state.lease);
                state.lease.granted(LEASE);
                true
            }
            Some(Said::Renewed(false)) => self.take_again().await,
            _ => false,
        };
        let mut state = self.state.borrow_mut();
        if state.lease.is_lost() {
            return true;
        }
        self.deposed.lasts_until(state.lease.until());
        if !asked {
            state.lease.unanswered();
        }
        asked
    }

    async fn take_again(&self) -> bool {
        if self.follows && !self.here.with(|world| world.is_planted(PlantedHosts::FollowsAgain)) {
            self.state.borrow_mut().lease.lost();
            self.deposed.say();
            return true;
        }
        let Some(seen) = self.here.read().await else { return false };
        if let Some(found) = &seen.seen {
            self.adopt(&found.record);
        }
        let record = self.state.borrow().record.clone();
        match judge_owner(&self.node, record.owner, record.members, seen.seen.as_ref()) {
            OwnerVerdict::Take => {
                let taken = self.here.take_lease(seen.versions, &self.node, Some(&record)).await;
                let Ok(Some(granted)) = taken else { return false };
                let mut state = self.state.borrow_mut();
                state.id = granted.lease;
                state.versions = (granted.version, granted.version);
                count_from_answer(&self.here, &mut state.lease);
                state.lease.granted(LEASE);
                true
            }
            OwnerVerdict::Held => false,
            verdict @ (OwnerVerdict::Deposed | OwnerVerdict::OlderMembers) => {
                let host = self.here.who.host;
                self.here.trace(|| format!("the registry says {verdict:?}"));
                if seen.seen.is_none_or(|seen| seen.record.owner <= record.owner) {
                    let what = format!("host {host} is deposed as owner {}, and nobody took the pool", record.owner);
                    self.here.with(|world| world.breaks(|| what));
                }
                self.state.borrow_mut().lease.lost();
                self.deposed.say();
                true
            }
        }
    }

    /// `Shared::adopt`: a record that this very owner has written counts, also if its answer was lost.
    fn adopt(&self, found: &OwnerRecord) -> bool {
        let mut state = self.state.borrow_mut();
        let ours = found.node == self.node && found.owner == state.record.owner;
        if ours && !self.here.with(|world| world.is_planted(PlantedHosts::BelievesAnswersOnly)) {
            state.record.members = state.record.members.max(found.members);
        }
        ours
    }

    /// `Shared::tell_members`. Whether it is written.
    pub(crate) async fn tell_members(&self, members: u64) -> bool {
        self.lock().await;
        let record = self.state.borrow().record.clone();
        let told = record.members >= members || self.change(OwnerRecord { members, ..record }).await;
        self.is_locked.set(false);
        told
    }

    async fn change(&self, record: OwnerRecord) -> bool {
        for _ in 0..TRIES {
            let versions = self.state.borrow().versions;
            match self.here.ask(Ask::Write { versions, record: Some(record.clone()), lease: None }).await {
                Some(Said::Written(Some(version))) => {
                    let mut state = self.state.borrow_mut();
                    state.versions.0 = version;
                    state.record = record;
                    return true;
                }
                Some(Said::Written(None)) => {}
                _ => return false,
            }
            let Some(now) = self.here.read().await else { return false };
            let found = now.seen.map(|seen| seen.record);
            let known = found.as_ref().is_some_and(|found| *found == self.state.borrow().record || *found == record);
            let ours = known || found.is_some_and(|found| self.adopt(&found));
            if !ours || now.versions.1 != versions.1 {
                return false;
            }
            self.state.borrow_mut().versions.0 = now.versions.0;
        }
        false
    }

    /// `KeptLease::stop`.
    pub(crate) async fn stop(&self) {
        self.is_stopped.set(true);
        self.lock().await;
        self.is_locked.set(false);
    }

    /// `Drop` of `KeptLease` before the use has begun: what the registry had is put back, and the lease given up.
    pub(crate) async fn give_back(&self) {
        self.stop().await;
        self.deposed.lasts_until(Nanos(0));
        if self.state.borrow().lease.is_lost() {
            return;
        }
        let now = self.state.borrow().record.clone();
        let before = self.before.clone().unwrap_or_else(|| now.clone());
        if before == now || self.change(before).await {
            let id = self.state.borrow().id;
            self.here.ask(Ask::Revoke(id)).await;
        }
    }
}

/// The planted bug.
fn count_from_answer(here: &Here, lease: &mut OwnerLease) {
    if here.with(|world| world.is_planted(PlantedHosts::LeaseFromAnswer)) {
        lease.asked(here.clock());
    }
}
