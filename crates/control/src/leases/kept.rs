//! The lease of a pool that this host owns, kept by a thread.
//!
//! Invariants
//! - The term of [`Deposed`] ends before the lease can be over in the registry, or is another's.
//! - One question at a time: what a lease's answer grants, it grants for the request that was noted last.
//! - A record is changed only by who has its lease at that moment.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headpond_base::{Nanos, PoolId};
use headpond_claim::{Node, OwnerLease, OwnerRecord, OwnerVerdict, RecordSeen, judge_owner};
use headpond_registry::{Granted, LeaseId, Registry, RegistryError, SeenAt};
use headpond_shard::boot_clock;

use super::plan::LeasePlan;
use crate::deposed::Deposed;
use crate::process::log::log_line;
use crate::process::{Step, Waiting};
use crate::refusal::{ExitStatus, Refusal};

/// How long a start waits beyond the length of a lease: the registry ends one a little late.
const LATE: Duration = Duration::from_secs(3);

/// How often who waits for a lease asks.
const ASK: Duration = Duration::from_millis(300);

/// How often a change that another one overtook is tried.
const TRIES: u32 = 3;

/// Which pool, and as which owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenure {
    pub(crate) pool: PoolId,
    /// The owner's number.
    pub(crate) owner: u64,
    /// The generation of the list of members that this host has.
    pub(crate) members: u64,
}

/// A lease, and the thread that keeps it.
pub(crate) struct KeptLease {
    shared: Arc<Shared>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
    /// What is written if the start is refused: what the registry had before it. None once the use has begun, and for a
    /// worker that follows another one.
    before: Option<OwnerRecord>,
}

struct Shared {
    registry: Arc<dyn Registry>,
    pool: PoolId,
    node: Node,
    length: Duration,
    /// It is about to follow another owner.
    follows: bool,
    deposed: Deposed,
    state: Mutex<State>,
}

struct State {
    lease: OwnerLease,
    id: LeaseId,
    /// The record, as this host wrote it last, and the versions of its keys.
    record: OwnerRecord,
    versions: (i64, i64),
    /// Whether the last question had no answer.
    failing: bool,
}

/// With what a lease begins.
struct Start {
    registry: Arc<dyn Registry>,
    pool: PoolId,
    node: Node,
    length: Duration,
    follows: bool,
    record: OwnerRecord,
    versions: (i64, i64),
    before: OwnerRecord,
}

fn away(pool: PoolId, error: &RegistryError) -> Refusal {
    Refusal::Owner {
        pool: pool.to_string(),
        what: error.to_string(),
        advice: "Start etcd, or give its address with --registry. Without that option the pool has no lease, and nothing \
                 keeps two hosts from it",
        status: ExitStatus::RegistryAway,
    }
}

impl KeptLease {
    /// Takes the lease of a pool that this host has, and keeps it. Waits for another's that may be over soon, and for a
    /// registry that is silent: for some seconds, or, as a worker that follows another one, for as long as that takes.
    ///
    /// # Errors
    /// If another host owns the pool, took it over, or the registry does not answer.
    pub(crate) fn take(
        plan: &LeasePlan,
        tenure: Tenure,
        deposed: &Deposed,
        follows: bool,
        waiting: &Waiting,
    ) -> Result<Self, Refusal> {
        let (node, length) = (plan.node(), plan.length());
        let Tenure { pool, owner, members } = tenure;
        let refusal = |what: String, advice, status| Refusal::Owner { pool: pool.to_string(), what, advice, status };
        let until = Instant::now() + length + LATE;
        let waits = || follows || Instant::now() < until;
        let mut told = false;
        let mut wait = |why: &str| {
            if !std::mem::replace(&mut told, true) {
                log_line(format_args!("pool {pool}: {why}; this start waits"));
            }
            std::thread::sleep(ASK);
        };
        waiting.on(Step::Registry);
        let registry = loop {
            match plan.open() {
                // Certificates that are just being renewed.
                Err(refusal) if follows => wait(&refusal.to_string()),
                opened => break opened?,
            }
        };
        loop {
            let mut lease = OwnerLease::new(length.into());
            lease.asked(boot_clock());
            let taken = registry.read(pool).and_then(|seen| {
                let verdict = judge_owner(&node, owner, members, seen.seen.as_ref());
                if verdict != OwnerVerdict::Take {
                    return Ok((verdict, seen, None));
                }
                let record = OwnerRecord { node: node.clone(), owner, members, left: false, handed_to: None };
                let granted = registry.take(pool, &seen, &node, Some(&record), length)?;
                Ok((verdict, seen, granted.map(|granted| (granted, record))))
            });
            let (verdict, seen) = match taken {
                Ok((_, seen, Some((granted, record)))) => {
                    // A pool of which the registry knew nothing never was in use.
                    let unused = || OwnerRecord { left: true, ..record.clone() };
                    let before = seen.seen.map_or_else(unused, |seen| seen.record);
                    let versions = (granted.version, granted.version);
                    let start = Start { registry, pool, node, length, follows: false, record, versions, before };
                    let mut kept = Self::begin(start, lease, granted, deposed);
                    if follows {
                        // If this start fails, the next worker of this host tries within moments. A lease that was given back
                        // would be a guard's by then.
                        kept.before = None;
                    }
                    return Ok(kept);
                }
                Ok((verdict, seen, None)) => (verdict, seen),
                // After a power cut all hosts start at once, and etcd takes a moment to choose a leader.
                Err(error @ RegistryError::Silent { .. }) if waits() => {
                    wait(&error.to_string());
                    continue;
                }
                Err(error) => return Err(away(pool, &error)),
            };
            let by = seen.seen.as_ref().map(|RecordSeen { record, .. }| record.clone());
            let named = || by.as_ref().map_or_else(String::new, |by| by.node.name.clone());
            let has_it =
                seen.seen.as_ref().and_then(|seen| seen.leased.as_ref()).map_or_else(named, |by| by.name.clone());
            match verdict {
                // Another was faster. What it wrote is judged.
                OwnerVerdict::Take => wait("another host asks, too"),
                OwnerVerdict::Held if waits() => wait(&format!("node {has_it} has its lease")),
                OwnerVerdict::Held => {
                    return Err(refusal(
                        format!("node {has_it} owns it"),
                        "Unmount it there first, or hand it over. If that host has the same name as this one: --node",
                        ExitStatus::OwnedElsewhere,
                    ));
                }
                OwnerVerdict::Deposed => {
                    let number = by.as_ref().map_or(0, |by| by.owner);
                    return Err(refusal(
                        format!("node {} took it over, with owner's number {number}; this host has {owner}", named()),
                        "Mount it there. To use the flash here for a new pool: --format --discard-dirty",
                        ExitStatus::Deposed,
                    ));
                }
                OwnerVerdict::OlderMembers => {
                    return Err(refusal(
                        "it went on with other devices than those that are here".to_owned(),
                        "Mount it with all its devices",
                        ExitStatus::MemberMissing,
                    ));
                }
            }
        }
    }

    /// Keeps the lease of a host that is about to follow another owner. The record still is that one's.
    pub(crate) fn follow(
        registry: Arc<dyn Registry>,
        plan: &LeasePlan,
        tenure: Tenure,
        seen: (&OwnerRecord, i64),
        lease: OwnerLease,
        granted: Granted,
        deposed: &Deposed,
    ) -> Self {
        let (record, record_at) = seen;
        let start = Start {
            registry,
            pool: tenure.pool,
            node: plan.node(),
            length: plan.length(),
            follows: true,
            record: record.clone(),
            versions: (record_at, granted.version),
            before: record.clone(),
        };
        Self::begin(start, lease, granted, deposed)
    }

    /// Keeps a lease that was just granted.
    fn begin(start: Start, mut lease: OwnerLease, granted: Granted, deposed: &Deposed) -> Self {
        let Start { registry, pool, node, length, follows, record, versions, before } = start;
        let Granted { lease: id, length: granted, .. } = granted;
        lease.granted(granted.into());
        deposed.term().lasts_until(lease.until());
        let state = State { lease, id, record, versions, failing: false };
        let shared = Arc::new(Shared {
            registry,
            pool,
            node,
            length,
            follows,
            deposed: deposed.clone(),
            state: Mutex::new(state),
        });
        let (stop, stopped) = channel();
        let keeps = shared.clone();
        let keep = move || {
            // At once: what led here may have taken most of the first lease.
            let mut pause = Duration::ZERO;
            while !keeps.is_over() && matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                let began = boot_clock();
                let answered = keeps.renew();
                pause = Duration::from_nanos(keeps.state().lease.pause(answered, began, boot_clock()).0);
            }
        };
        // Without the thread the lease ends, and with it this host's term.
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(keep).ok();
        Self { shared, thread: thread.map(|thread| (stop, thread)), before: Some(before) }
    }

    /// The pool is in use from now on: only an end in order leaves it.
    pub(crate) fn is_in_use(&mut self) {
        self.before = None;
    }

    /// This host's name in the registry.
    pub(crate) fn node(&self) -> &str {
        &self.shared.node.name
    }

    /// What tells the registry of changes of the list of members.
    pub(crate) fn teller(&self) -> impl Fn(u64) -> io::Result<()> + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |members| shared.tell_members(members)
    }

    /// Stops keeping the lease. It ends by itself, unless somebody of this host takes it again.
    pub(crate) fn stop(mut self) {
        self.before = None;
        self.stop_thread();
    }

    /// Ends it in order: this host writes nothing any more, and what it wrote is at the origin. Nobody takes the pool over
    /// by himself, but the node to which it is given.
    pub(crate) fn leave(mut self, to: Option<&str>) {
        self.before = None;
        self.stop_thread();
        self.shared.leave(|record| {
            record.left = true;
            record.handed_to = to.map(str::to_owned);
        });
    }

    fn stop_thread(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

impl Drop for KeptLease {
    fn drop(&mut self) {
        self.stop_thread();
        if let Some(before) = self.before.take() {
            self.shared.leave(|record| *record = before);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.deposed.said().is_some()
    }

    /// Asks for more of the lease. Whether there was an answer.
    fn renew(&self) -> bool {
        let mut state = self.state();
        state.lease.asked(boot_clock());
        let asked = match self.registry.renew(state.id) {
            Ok(Some(length)) => {
                state.lease.granted(length.into());
                Ok(())
            }
            Ok(None) => self.take_again(&mut state),
            Err(error) => Err(error.to_string()),
        };
        if state.lease.is_lost() {
            return true;
        }
        self.deposed.term().lasts_until(state.lease.until());
        match asked {
            Ok(()) => {
                if std::mem::take(&mut state.failing) {
                    log_line(format_args!("pool {}: the lease is renewed again", self.pool));
                }
                true
            }
            Err(why) => {
                state.lease.unanswered();
                if !std::mem::replace(&mut state.failing, true) {
                    let left = state.lease.until().since(boot_clock()).0 / 1_000_000;
                    log_line(format_args!(
                        "pool {}: the lease is not renewed: {why}. In {left} ms this mount stands still, until it is",
                        self.pool
                    ));
                }
                false
            }
        }
    }

    /// The lease is gone: the host slept, or the registry was away for longer than it lasts. This host may take it
    /// again if nobody else has.
    fn take_again(&self, state: &mut State) -> Result<(), String> {
        if self.follows {
            // The owner may have been back meanwhile: its copy here is not what was looked at.
            state.lease.lost();
            self.deposed.say("the lease is gone".to_owned());
            return Ok(());
        }
        let seen = self.registry.read(self.pool).map_err(|error| error.to_string())?;
        if let Some(found) = &seen.seen {
            self.adopt(state, &found.record);
        }
        let OwnerRecord { owner, members, .. } = state.record;
        match judge_owner(&self.node, owner, members, seen.seen.as_ref()) {
            OwnerVerdict::Take => {
                let taken = self.registry.take(self.pool, &seen, &self.node, Some(&state.record), self.length);
                let Some(granted) = taken.map_err(|error| error.to_string())? else {
                    return Err("another host was faster".to_owned());
                };
                let Granted { lease, length, version } = granted;
                (state.id, state.versions) = (lease, (version, version));
                state.lease.granted(length.into());
                Ok(())
            }
            OwnerVerdict::Held => Err("another host has it".to_owned()),
            OwnerVerdict::Deposed | OwnerVerdict::OlderMembers => {
                let by = seen.seen.map_or_else(String::new, |seen| {
                    format!("node {} has the pool (owner's number {})", seen.record.node.name, seen.record.owner)
                });
                state.lease.lost();
                self.deposed.say(format!("the registry says that {by}"));
                log_line(format_args!("pool {}: the registry says that {by}", self.pool));
                Ok(())
            }
        }
    }

    /// A record that this very owner has written counts, also if its answer was lost. True if it is such a one.
    fn adopt(&self, state: &mut State, found: &OwnerRecord) -> bool {
        let ours = found.node == self.node && found.owner == state.record.owner;
        if ours {
            state.record.members = state.record.members.max(found.members);
        }
        ours
    }

    /// Writes a list of members down. Only then may a sync that waits for it be answered.
    fn tell_members(&self, members: u64) -> io::Result<()> {
        let mut state = self.state();
        if state.record.members >= members {
            return Ok(());
        }
        let record = OwnerRecord { members, ..state.record.clone() };
        self.change(&mut state, record).map_err(io::Error::other)
    }

    /// Changes the record, as who has the lease.
    fn change(&self, state: &mut State, record: OwnerRecord) -> Result<(), String> {
        for _ in 0..TRIES {
            let (record_at, lease_at) = state.versions;
            let seen = SeenAt { seen: None, record: record_at, lease: lease_at };
            let changed = self.registry.change(self.pool, &seen, &record).map_err(|error| error.to_string())?;
            if let Some(version) = changed {
                state.versions.0 = version;
                state.record = record;
                return Ok(());
            }
            // A change of our own whose answer was lost.
            let now = self.registry.read(self.pool).map_err(|error| error.to_string())?;
            let found = now.seen.map(|seen| seen.record);
            let before = found.as_ref() == Some(&state.record) || found.as_ref() == Some(&record);
            let ours = before || found.is_some_and(|found| self.adopt(state, &found));
            if !ours || now.lease != lease_at {
                break;
            }
            state.versions.0 = now.record;
        }
        Err("the registry's record of the owner, or its lease, is another's".to_owned())
    }

    /// Changes the record for the last time, and gives the lease up. From here on this host is no owner.
    fn leave(&self, change: impl FnOnce(&mut OwnerRecord)) {
        let mut state = self.state();
        self.deposed.term().lasts_until(Nanos(0));
        if state.lease.is_lost() {
            return;
        }
        let mut record = state.record.clone();
        change(&mut record);
        let changed = if record == state.record { Ok(()) } else { self.change(&mut state, record) };
        let left = changed.and_then(|()| self.registry.release(state.id).map_err(|error| error.to_string()));
        if let Err(error) = left {
            log_line(format_args!("pool {}: the lease is left to end by itself: {error}", self.pool));
        }
    }
}
