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
    pub(crate) async fn take_lease(&self, versions: (i64, i64), record: &OwnerRecord) -> Result<Option<Granted>, ()> {
        let Some(Said::Granted(lease)) = self.ask(Ask::Grant).await else { return Err(()) };
        let written = self.ask(Ask::Write { versions, record: record.clone(), lease: Some(lease) }).await;
        match written {
            Some(Said::Written(Some(version))) => Ok(Some(Granted { lease, version })),
            Some(Said::Written(None)) => {
                self.ask(Ask::Revoke(lease)).await;
                Ok(None)
            }
            _ => {
                self.ask(Ask::Revoke(lease)).await;
                Err(())
            }
        }
    }
}

struct State {
    lease: OwnerLease,
    id: i64,
    record: OwnerRecord,
    /// The generation that this host has. The registry may have it already although no answer said so.
    members: u64,
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
}

enum Changed {
    Yes,
    Overtaken,
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
                    let record = OwnerRecord {
                        node: node.clone(),
                        owner,
                        members,
                        left: false,
                        handed_to: None,
                        unfenced: Vec::new(),
                    };
                    let taken = here.take_lease(seen.versions, &record).await.map_err(|()| NotOwner::Away)?;
                    if let Some(granted) = taken {
                        return Ok(Self::begin(here, node, lease, granted, record, deposed));
                    }
                }
                OwnerVerdict::Held if here.clock() < until => here.sleep(ASK).await,
                OwnerVerdict::Held => return Err(NotOwner::Held),
                OwnerVerdict::Deposed => return Err(NotOwner::Deposed),
                OwnerVerdict::OlderMembers => return Err(NotOwner::OlderMembers),
            }
        }
    }

    /// `KeptLease::begin`.
    pub(crate) fn begin(
        here: &Here,
        node: Node,
        mut lease: OwnerLease,
        granted: Granted,
        record: OwnerRecord,
        deposed: &Rc<Deposed>,
    ) -> Rc<Self> {
        count_from_answer(here, &mut lease);
        lease.granted(LEASE);
        deposed.lasts_until(lease.until());
        let Granted { lease: id, version } = granted;
        let members = record.members;
        let state = RefCell::new(State { lease, id, record, members, versions: (version, version) });
        let kept = Rc::new(Self {
            here: here.clone(),
            node,
            deposed: deposed.clone(),
            state,
            is_locked: Cell::new(false),
            is_stopped: Cell::new(false),
        });
        let keeps = kept.clone();
        here.spawn(async move {
            let mut answered = true;
            while !keeps.deposed.is_said() {
                let pause = keeps.state.borrow().lease.pause(answered);
                keeps.here.sleep(pause).await;
                if keeps.is_stopped.get() {
                    return;
                }
                answered = keeps.renew().await;
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
        let Some(seen) = self.here.read().await else { return false };
        let believes = self.here.with(|world| world.is_planted(PlantedHosts::BelievesAnswersOnly));
        let members = if believes { self.state.borrow().record.members } else { self.state.borrow().members };
        let record = OwnerRecord { members, ..self.state.borrow().record.clone() };
        match judge_owner(&self.node, record.owner, record.members, seen.seen.as_ref()) {
            OwnerVerdict::Take => {
                let Ok(Some(granted)) = self.here.take_lease(seen.versions, &record).await else { return false };
                let mut state = self.state.borrow_mut();
                state.record = record;
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

    /// `Shared::tell_members`. Whether it is written.
    pub(crate) async fn tell_members(&self, members: u64) -> bool {
        self.lock().await;
        self.state.borrow_mut().members = members;
        let record = self.state.borrow().record.clone();
        let told = if record.members >= members {
            true
        } else {
            matches!(self.change(OwnerRecord { members, ..record }).await, Some(Changed::Yes))
        };
        self.is_locked.set(false);
        told
    }

    async fn change(&self, record: OwnerRecord) -> Option<Changed> {
        for _ in 0..TRIES {
            let versions = self.state.borrow().versions;
            match self.here.ask(Ask::Write { versions, record: record.clone(), lease: None }).await {
                Some(Said::Written(Some(version))) => {
                    let mut state = self.state.borrow_mut();
                    state.versions.0 = version;
                    state.record = record;
                    return Some(Changed::Yes);
                }
                Some(Said::Written(None)) => {}
                _ => return None,
            }
            let now = self.here.read().await?;
            let mut state = self.state.borrow_mut();
            let of = &state.record;
            let is_own = |found: &OwnerRecord| (&found.node, found.owner) == (&of.node, of.owner) || *found == record;
            let ours = now.seen.is_some_and(|seen| is_own(&seen.record));
            if !ours || now.versions.1 != versions.1 {
                return Some(Changed::Overtaken);
            }
            state.versions.0 = now.versions.0;
        }
        Some(Changed::Overtaken)
    }

    /// `KeptLease::stop`.
    pub(crate) async fn stop(&self) {
        self.is_stopped.set(true);
        self.lock().await;
        self.is_locked.set(false);
    }

    /// `Shared::leave`, after the thread has stopped.
    pub(crate) async fn leave(&self, record: impl FnOnce(OwnerRecord) -> OwnerRecord) {
        self.stop().await;
        if self.state.borrow().lease.is_lost() {
            return;
        }
        let record = record(self.state.borrow().record.clone());
        if self.change(record).await.is_some() {
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
