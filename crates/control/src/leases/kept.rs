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
use crate::refusal::{ExitStatus, Refusal};

/// How long beyond its length another's lease is waited for: the registry ends it a little late.
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
    /// Whether the use has begun. A start that is refused leaves.
    in_use: bool,
}

struct Shared {
    registry: Arc<dyn Registry>,
    pool: PoolId,
    node: Node,
    length: Duration,
    deposed: Deposed,
    state: Mutex<State>,
}

struct State {
    lease: OwnerLease,
    id: LeaseId,
    /// The record, as this host wrote it last, and the versions of its keys.
    record: OwnerRecord,
    /// The generation of the list of members that this host has. The registry may have it although no answer said so.
    members: u64,
    versions: (i64, i64),
    /// Whether the last question had no answer.
    failing: bool,
}

/// Whether a change of a record came to its end.
enum Changed {
    Yes,
    /// Something else has changed it.
    Overtaken,
}

fn nanos(length: Duration) -> Nanos {
    Nanos(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
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
    /// Takes the lease of a pool that this host has, and keeps it. Waits for another's that may be over soon.
    ///
    /// # Errors
    /// If another host owns the pool, took it over, or the registry does not answer.
    pub(crate) fn take(plan: &LeasePlan, tenure: Tenure, deposed: &Deposed) -> Result<Self, Refusal> {
        let (registry, node, length) = (plan.open()?, plan.node(), plan.length());
        let Tenure { pool, owner, members } = tenure;
        let refusal = |what: String, advice, status| Refusal::Owner { pool: pool.to_string(), what, advice, status };
        let until = Instant::now() + length + LATE;
        let mut told = false;
        let mut wait = |why: &str| {
            if !std::mem::replace(&mut told, true) {
                log_line(format_args!("pool {pool}: {why}, for up to {} s", (length + LATE).as_secs()));
            }
            std::thread::sleep(ASK);
        };
        loop {
            let mut lease = OwnerLease::new(nanos(length));
            lease.asked(boot_clock());
            let seen = match registry.read(pool) {
                Ok(seen) => seen,
                // After a power cut all hosts start at once, and etcd takes a moment to choose a leader.
                Err(error @ RegistryError::Silent { .. }) if Instant::now() < until => {
                    wait(&format!("{error}; this start waits for it"));
                    continue;
                }
                Err(error) => return Err(away(pool, &error)),
            };
            let by = seen.seen.as_ref().map(|RecordSeen { record, .. }| record.clone());
            let named = || by.as_ref().map_or_else(String::new, |by| by.node.name.clone());
            match judge_owner(&node, owner, members, seen.seen.as_ref()) {
                OwnerVerdict::Take => {
                    // Who takes over has fenced all before it mounts.
                    let unfenced = Vec::new();
                    let record =
                        OwnerRecord { node: node.clone(), owner, members, left: false, handed_to: None, unfenced };
                    let taken = registry.take(pool, &seen, &record, length).map_err(|error| away(pool, &error))?;
                    // None: another was faster. What it wrote is judged.
                    if let Some(granted) = taken {
                        return Ok(Self::begin(registry, pool, node, lease, granted, record, deposed));
                    }
                }
                OwnerVerdict::Held if Instant::now() < until => {
                    wait(&format!("node {} has its lease; this start waits, in case that one is gone", named()));
                }
                OwnerVerdict::Held => {
                    return Err(refusal(
                        format!("node {} owns it", named()),
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

    /// Keeps a lease that was just granted.
    pub(crate) fn begin(
        registry: Arc<dyn Registry>,
        pool: PoolId,
        node: Node,
        mut lease: OwnerLease,
        granted: Granted,
        record: OwnerRecord,
        deposed: &Deposed,
    ) -> Self {
        let Granted { lease: id, length, version } = granted;
        lease.granted(nanos(length));
        deposed.term().lasts_until(lease.until());
        let members = record.members;
        let state = State { lease, id, record, members, versions: (version, version), failing: false };
        let shared =
            Arc::new(Shared { registry, pool, node, length, deposed: deposed.clone(), state: Mutex::new(state) });
        let (stop, stopped) = channel();
        let keeps = shared.clone();
        let keep = move || {
            let mut answered = true;
            while !keeps.is_over() {
                let pause = Duration::from_nanos(keeps.state().lease.pause(answered).0);
                if !matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                    return;
                }
                answered = keeps.renew();
            }
        };
        // Without the thread the lease ends, and with it this host's term.
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(keep).ok();
        Self { shared, thread: thread.map(|thread| (stop, thread)), in_use: false }
    }

    /// The pool is in use from now on: only an end in order leaves it.
    pub(crate) fn is_in_use(&mut self) {
        self.in_use = true;
    }

    /// What tells the registry of changes of the list of members.
    pub(crate) fn teller(&self) -> impl Fn(u64) -> io::Result<()> + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |members| shared.tell_members(members)
    }

    /// Stops keeping the lease. It ends by itself, unless somebody of this host takes it again.
    pub(crate) fn stop(mut self) {
        self.in_use = true;
        self.stop_thread();
    }

    /// Puts back what the registry had, and gives the lease up.
    pub(crate) fn give_back(mut self, before: &OwnerRecord) {
        self.in_use = true;
        self.stop_thread();
        self.shared.leave(|record| *record = before.clone());
    }

    /// Ends it in order: nobody takes the pool over by himself, but the node to which it is given.
    pub(crate) fn leave(mut self, to: Option<&str>) {
        self.in_use = true;
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
        if !self.in_use {
            self.shared.leave(|record| record.left = true);
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
                state.lease.granted(nanos(length));
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
        let seen = self.registry.read(self.pool).map_err(|error| error.to_string())?;
        let record = OwnerRecord { members: state.members, ..state.record.clone() };
        match judge_owner(&self.node, record.owner, record.members, seen.seen.as_ref()) {
            OwnerVerdict::Take => {
                let taken = self.registry.take(self.pool, &seen, &record, self.length);
                let Some(granted) = taken.map_err(|error| error.to_string())? else {
                    return Err("another host was faster".to_owned());
                };
                let Granted { lease, length, version } = granted;
                (state.id, state.versions, state.record) = (lease, (version, version), record);
                state.lease.granted(nanos(length));
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

    /// Writes a list of members down. Only then may a sync that waits for it be answered.
    fn tell_members(&self, members: u64) -> io::Result<()> {
        let mut state = self.state();
        state.members = state.members.max(members);
        if state.record.members >= members {
            return Ok(());
        }
        let record = OwnerRecord { members, ..state.record.clone() };
        match self.change(&mut state, record).map_err(io::Error::other)? {
            Changed::Yes => Ok(()),
            Changed::Overtaken => Err(io::Error::other("the registry's record of the owner was changed by another")),
        }
    }

    /// Changes the record, as who has the lease.
    fn change(&self, state: &mut State, record: OwnerRecord) -> Result<Changed, RegistryError> {
        for _ in 0..TRIES {
            let (record_at, lease_at) = state.versions;
            let seen = SeenAt { seen: None, record: record_at, lease: lease_at };
            if let Some(version) = self.registry.change(self.pool, &seen, &record)? {
                state.versions.0 = version;
                state.record = record;
                return Ok(Changed::Yes);
            }
            // A change of our own whose answer was lost.
            let now = self.registry.read(self.pool)?;
            let of = &state.record;
            let is_own = |found: &OwnerRecord| (&found.node, found.owner) == (&of.node, of.owner) || *found == record;
            let ours = now.seen.is_some_and(|seen| is_own(&seen.record));
            if !ours || now.lease != lease_at {
                return Ok(Changed::Overtaken);
            }
            state.versions.0 = now.record;
        }
        Ok(Changed::Overtaken)
    }

    /// Changes the record for the last time, and gives the lease up.
    fn leave(&self, change: impl FnOnce(&mut OwnerRecord)) {
        let mut state = self.state();
        if state.lease.is_lost() {
            return;
        }
        let mut record = state.record.clone();
        change(&mut record);
        let left = self.change(&mut state, record).and_then(|_| self.registry.release(state.id));
        if let Err(error) = left {
            log_line(format_args!("pool {}: the lease is left to end by itself: {error}", self.pool));
        }
    }
}
