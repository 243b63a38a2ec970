//! A host with a copy waits until the pool has no owner, and becomes it.
//!
//! ```text
//!   watching ── no lease ──> took it, with the number + 1 ──> fenced ──> copy taken ──> mounts
//!       └────────────────────────── gave it back ────────────────────────┘
//! ```
//!
//! Invariants
//! - The lease is taken before the origin is fenced, and that before the copy is touched.
//! - Whatever fails on the way, the record is put back, and the lease given up.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headpond_base::{BLOCK, PoolId};
use headpond_claim::{HeirVerdict, OwnerLease, OwnerRecord, RecordSeen, judge_heir};
use headpond_copies::{Store, StoreError, TakenCopy, take_over};
use headpond_format::{SUPERBLOCK_SLOTS, Superblock, decode_superblock};
use headpond_registry::{Registry, SeenAt};
use headpond_shard::boot_clock;

use super::fence::fence;
use super::kept::KeptLease;
use super::plan::LeasePlan;
use crate::deposed::Deposed;
use crate::process::log::log_line;
use crate::refusal::{ExitStatus, Refusal};

/// How often a guard looks.
const LOOK: Duration = Duration::from_millis(500);

/// How long a guard waits after a try that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// What a guard watches, and how it takes over.
#[derive(Clone, Debug)]
pub struct GuardPlan {
    /// The registry.
    pub lease: LeasePlan,
    /// The store of copies.
    pub store: PathBuf,
    /// Which pool, if the store keeps several.
    pub pool: Option<String>,
    /// The slow directory, as this host sees it.
    pub origin: PathBuf,
    /// The program that keeps the old owner from the origin.
    pub fence: Option<PathBuf>,
    /// Without a program: how long the old owner's writes have to reach the origin.
    pub grace: Duration,
}

/// Who asks to become the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heir {
    /// A guard: it waits until there is no owner.
    Guard,
    /// An operator: it is refused while there is one.
    Operator,
}

/// A copy in a store, and what its newest superblock says.
struct FoundCopy {
    pool: PoolId,
    members: u64,
    /// The owner's number that a take-over would give it.
    next: u64,
    /// Why it is nobody's heir, if it is none: to take the lease for it would depose the owner for nothing.
    lacks: Option<&'static str>,
}

/// What a look has led to.
enum Looked {
    Taken(TakenCopy),
    /// Not yet, and why.
    Not(String, Duration),
}

impl GuardPlan {
    /// Waits for this host's turn, and takes the pool over. The copy is this host's then: to be mounted within the
    /// length of the lease.
    ///
    /// # Errors
    /// An operator is refused while there is an owner. A guard goes on in spite of all but a wrong command line.
    pub fn become_owner(&self, heir: Heir) -> Result<TakenCopy, Refusal> {
        let registry = self.lease.open()?;
        let mut said = String::new();
        loop {
            match self.look(&registry, heir) {
                Ok(Looked::Taken(copy)) => return Ok(copy),
                Ok(Looked::Not(why, pause)) => {
                    if why != said {
                        log_line(&why);
                        said = why;
                    }
                    std::thread::sleep(pause);
                }
                Err(refusal) if heir == Heir::Operator => return Err(refusal),
                Err(refusal) => {
                    let why = refusal.to_string();
                    if why != said {
                        log_line(&why);
                        said = why;
                    }
                    std::thread::sleep(LOOK);
                }
            }
        }
    }

    fn look(&self, registry: &std::sync::Arc<dyn Registry>, heir: Heir) -> Result<Looked, Refusal> {
        let by_hand = heir == Heir::Operator;
        let Some(copy) = self.find()? else {
            return Ok(Looked::Not(format!("{} keeps no copy yet", self.store.display()), LOOK));
        };
        let FoundCopy { pool, members, next, lacks } = copy;
        let node = self.lease.node();
        let mut lease =
            OwnerLease::new(headpond_base::Nanos(u64::try_from(self.lease.length().as_nanos()).unwrap_or(u64::MAX)));
        lease.asked(boot_clock());
        let away = |error: headpond_registry::RegistryError| Refusal::Owner {
            pool: pool.to_string(),
            what: error.to_string(),
            advice: "Start etcd, or give its address with --registry",
            status: ExitStatus::RegistryAway,
        };
        let seen = registry.read(pool).map_err(away)?;
        let by = seen.seen.as_ref().map_or("nobody", |seen| &seen.record.node.name).to_owned();
        let not = |what: String, advice, status| {
            if by_hand {
                Err(Refusal::Owner { pool: pool.to_string(), what, advice, status })
            } else {
                Ok(Looked::Not(format!("pool {pool}: {what}"), LOOK))
            }
        };
        // An operator hears of it from the take-over itself.
        if let Some(lacks) = lacks.filter(|_| !by_hand) {
            return Ok(Looked::Not(format!("pool {pool}: the copy here {lacks}"), LOOK));
        }
        let (owner, in_order) = match judge_heir(&node, members, by_hand, seen.seen.as_ref()) {
            HeirVerdict::Take { owner, in_order } => (owner, in_order),
            HeirVerdict::Held => {
                return not(
                    format!("node {by} owns it"),
                    "If that host is dead, its lease is over in a few seconds. Else hand the pool over there",
                    ExitStatus::OwnedElsewhere,
                );
            }
            HeirVerdict::GivenToAnother => {
                return not(
                    format!("node {by} has given it to another host"),
                    "Go on there",
                    ExitStatus::OwnedElsewhere,
                );
            }
            HeirVerdict::Left => {
                return not(
                    format!("node {by} has left it in order; nobody takes it over by himself"),
                    "",
                    ExitStatus::OwnedElsewhere,
                );
            }
            HeirVerdict::NotInTheSet => {
                return not(
                    format!("node {by} went on without the copy here, so it lacks something"),
                    "Bring that host back, or take over where the copy is that it had",
                    ExitStatus::MemberMissing,
                );
            }
            HeirVerdict::Unknown => {
                return not(
                    "the registry knows no owner of it".to_owned(),
                    "If the owner was mounted without --registry: --old-owner-is-dead, without it here",
                    ExitStatus::OwnedElsewhere,
                );
            }
        };
        if next != owner {
            return not(
                format!("node {by} was never connected with the copy here, or this host was the owner before it"),
                "Bring that host back, or take over where its copy is",
                ExitStatus::MemberMissing,
            );
        }
        let Some(RecordSeen { record: old, .. }) = seen.seen.clone() else {
            return Ok(Looked::Not(String::new(), LOOK));
        };
        self.take(registry, pool, &seen, lease, &old, owner, in_order, heir)
    }

    /// Takes lease, origin and copy, in this order.
    #[allow(clippy::too_many_arguments)] // one look's findings
    fn take(
        &self,
        registry: &std::sync::Arc<dyn Registry>,
        pool: PoolId,
        seen: &SeenAt,
        lease: OwnerLease,
        old: &OwnerRecord,
        owner: u64,
        in_order: bool,
        heir: Heir,
    ) -> Result<Looked, Refusal> {
        let node = self.lease.node();
        let new = old.taken_over(&node, owner, in_order);
        let taken = registry.take(pool, seen, &new, self.lease.length());
        let granted = match taken {
            Ok(Some(granted)) => granted,
            Ok(None) => return Ok(Looked::Not(format!("pool {pool}: another host was faster"), LOOK)),
            Err(error) => return Ok(Looked::Not(format!("pool {pool}: {error}"), LOOK)),
        };
        log_line(format_args!("pool {pool}: this host has the lease, with owner's number {owner}"));
        let deposed = Deposed::default();
        let kept = KeptLease::begin(registry.clone(), pool, node, lease, granted, new.clone(), &deposed);
        let failed = |kept: KeptLease, why: String| {
            kept.give_back(old);
            match heir {
                Heir::Guard => Ok(Looked::Not(format!("pool {pool}: {why}. The lease is given back"), AFTER_FAILURE)),
                Heir::Operator => Err(Refusal::Owner {
                    pool: pool.to_string(),
                    what: why,
                    advice: "The lease is given back",
                    status: ExitStatus::Failed,
                }),
            }
        };
        if !new.unfenced.is_empty()
            && let Err(why) = self.keep_out(pool, &new)
        {
            return failed(kept, why);
        }
        if deposed.said().is_some() || deposed.term().state() != headpond_shard::TermState::Stands {
            return failed(kept, "the lease was lost meanwhile".to_owned());
        }
        match take_over(&self.store, self.pool.as_deref()) {
            Ok(copy) if copy.owner == owner && copy.pool == pool => {
                // The mount takes the lease again, as the same node with the same number.
                kept.stop();
                Ok(Looked::Taken(copy))
            }
            Ok(copy) => failed(kept, format!("the store has owner's number {}, and the registry {owner}", copy.owner)),
            Err(error) => failed(kept, error.to_string()),
        }
    }

    /// Keeps the old owner's writes from the origin, and those of each before it that nobody has fenced.
    fn keep_out(&self, pool: PoolId, new: &OwnerRecord) -> Result<(), String> {
        match &self.fence {
            Some(program) => {
                for old in &new.unfenced {
                    fence(program, pool, old, new, &self.origin)?;
                    log_line(format_args!("pool {pool}: {} has fenced node {old}", program.display()));
                }
            }
            None => {
                log_line(format_args!(
                    "pool {pool}: without --fence this host waits {} s for writes of node {} that are on their way to the origin. That \
                     is no proof that none comes later",
                    self.grace.as_secs(),
                    new.unfenced.join(", ")
                ));
                std::thread::sleep(self.grace);
            }
        }
        Ok(())
    }

    /// The copy that is to be taken over. None while there is none.
    fn find(&self) -> Result<Option<FoundCopy>, Refusal> {
        let usage = |error: StoreError| Refusal::Usage(error.to_string());
        let all = Store::open(&self.store).and_then(|store| store.all()).map_err(usage)?;
        let mut matching = all.iter().filter(|copy| self.pool.as_ref().is_none_or(|pool| *pool == copy.pool));
        let Some(copy) = matching.next() else { return Ok(None) };
        if matching.next().is_some() {
            let dir = self.store.display();
            return Err(Refusal::Usage(format!("{dir} keeps copies of several pools. Name one with --pool")));
        }
        let lacks = |superblock: &Superblock| match copy {
            copy if !copy.counts => Some("does not count: this host went down while the owner was connected"),
            // Until then its superblock says that other members have what it lacks.
            copy if !copy.taken_over && superblock.host_copies < 2 => Some("is not whole yet"),
            _ => None,
        };
        // One that is just being made has none.
        Ok(newest_superblock(&copy.file).map(|superblock| FoundCopy {
            pool: superblock.pool,
            members: superblock.members.generation(),
            next: copy.owner + u64::from(!copy.taken_over),
            lacks: lacks(&superblock),
        }))
    }
}

/// The newest superblock of a member that another process may write to.
fn newest_superblock(path: &Path) -> Option<Superblock> {
    let file = File::open(path).ok()?;
    let read = |offset: u64| {
        let mut block = vec![0; BLOCK];
        file.read_exact_at(&mut block, offset).ok()?;
        decode_superblock(&block).ok()
    };
    SUPERBLOCK_SLOTS.into_iter().filter_map(read).max_by_key(|superblock| (superblock.epoch, superblock.counter))
}
