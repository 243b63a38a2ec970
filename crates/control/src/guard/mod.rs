//! A host with a copy waits until the pool has no owner, and becomes it.
//!
//! ```text
//!   watching ── no lease ──> has it ──> a start is judged ──> old owner fenced ──> copy taken, number + 1 ──> mounts
//!       └───────────────────── gave it back ──────────────────────────┘
//! ```
//!
//! Invariants
//! - The lease is taken before the origin is fenced, and that before the owner's number goes up.
//! - A copy from which no mount could start deposes nobody.
//! - The registry's record names the old owner until the mount of the copy begins. A guard that fails before leaves the
//!   pool to that owner, and the next one knows whom to fence.
//!
//! Uses `leases`, `ownership` and `pool`.

mod fence;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headpond_base::PoolId;
use headpond_claim::{HeirCopy, HeirVerdict, OwnerLease, OwnerRecord, RecordSeen, judge_heir};
use headpond_copies::{Store, StoredCopy, TakenCopy, hold_copy};
use headpond_format::Superblock;
use headpond_registry::Registry;
use headpond_shard::{TermState, boot_clock};

use self::fence::fence;
use crate::deposed::Deposed;
use crate::leases::{KeptLease, LeasePlan, Tenure};
use crate::mounts::CheckedPlaces;
use crate::origin::OriginRoot;
use crate::ownership::MarkerHold;
use crate::pool::{JudgedStart, newest_superblock};
use crate::process::log::log_line;
use crate::refusal::{Decisions, ExitStatus, Refusal};

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
    /// The empty directory for the mount.
    pub mountpoint: PathBuf,
    /// The program that keeps the old owner from the origin.
    pub fence: Option<PathBuf>,
    /// Without a program: how long the old owner's writes have to reach the origin.
    pub grace: Duration,
    /// The copy may lack something that is dirty.
    pub even_damaged: bool,
    /// The operator's decisions on conflicts.
    pub decisions: Decisions,
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
#[derive(Clone, Copy)]
struct FoundCopy {
    pool: PoolId,
    members: u64,
    /// The owner's number in the store, and whether it is this host's.
    owner: u64,
    taken_over: bool,
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
            let (why, pause) = match self.look(&registry, heir) {
                Ok(Looked::Taken(copy)) => return Ok(copy),
                Ok(Looked::Not(why, pause)) => (why, pause),
                Err(refusal) if heir == Heir::Operator => return Err(refusal),
                Err(refusal) => (refusal.to_string(), LOOK),
            };
            if why != said {
                log_line(&why);
                said = why;
            }
            std::thread::sleep(pause);
        }
    }

    fn look(&self, registry: &Arc<dyn Registry>, heir: Heir) -> Result<Looked, Refusal> {
        let by_hand = heir == Heir::Operator;
        let Some(copy) = self.find()? else {
            let what = format!("{} keeps no copy that counts", self.store.display());
            return if by_hand { Err(Refusal::Usage(what)) } else { Ok(Looked::Not(what, LOOK)) };
        };
        let FoundCopy { pool, members, owner: stored, taken_over } = copy;
        let node = self.lease.node();
        let mut lease = OwnerLease::new(self.lease.length().into());
        lease.asked(boot_clock());
        let refusal = |what: String, advice, status| Refusal::Owner { pool: pool.to_string(), what, advice, status };
        let seen = registry.read(pool).map_err(|error| {
            refusal(error.to_string(), "Start etcd, or give its address with --registry", ExitStatus::RegistryAway)
        })?;
        let by = seen.seen.as_ref().map_or_else(String::new, |seen| seen.record.node.name.clone());
        let not = |what: String, advice, status| {
            if by_hand {
                Err(refusal(what, advice, status))
            } else {
                Ok(Looked::Not(format!("pool {pool}: {what}"), LOOK))
            }
        };
        let copy = HeirCopy { members, taken_over: taken_over.then_some(stored), by_hand };
        let elsewhere = ExitStatus::OwnedElsewhere;
        let (owner, fence, old) = match (judge_heir(&node, copy, seen.seen.as_ref()), &seen.seen) {
            (HeirVerdict::Take { owner, fence }, Some(RecordSeen { record: old, .. })) => (owner, fence, old),
            (HeirVerdict::Held, _) => {
                let leased = seen.seen.as_ref().and_then(|seen| seen.leased.as_ref());
                return not(
                    format!("node {} owns it", leased.map_or(&by, |node| &node.name)),
                    "If that host is dead, its lease is over in a few seconds. Else hand the pool over there",
                    elsewhere,
                );
            }
            (HeirVerdict::GivenToAnother, _) => {
                return not(format!("node {by} has given it to another host"), "Go on there", elsewhere);
            }
            (HeirVerdict::Left, _) => {
                let what = format!("node {by} has left it in order; nobody takes it over by himself");
                return not(what, "", elsewhere);
            }
            (HeirVerdict::NotInTheSet, _) => {
                return not(
                    format!("node {by} went on without the copy here, so it lacks something"),
                    "Bring that host back, or take over where the copy is that it had",
                    ExitStatus::MemberMissing,
                );
            }
            (HeirVerdict::Unknown, _) | (_, None) => {
                return not(
                    "the registry knows no owner of it".to_owned(),
                    "If the owner was mounted without --registry: --old-owner-is-dead, without it here",
                    elsewhere,
                );
            }
            (HeirVerdict::SameName, _) => {
                return not(
                    format!("the owner is a node {by}, too, and another host. Give one of them another name: --node"),
                    "",
                    elsewhere,
                );
            }
        };
        let next = if taken_over { stored } else { stored + 1 };
        if next < owner {
            let what = format!("the copy is of owner's number {stored}, and the pool has {} by now", owner - 1);
            return not(what, "Take over where the newest copy is", ExitStatus::MemberMissing);
        }
        let granted = match registry.take(pool, &seen, &node, None, self.lease.length()) {
            Ok(Some(granted)) => granted,
            Ok(None) => return not("another host was faster".to_owned(), "Try again", elsewhere),
            Err(error) => return not(error.to_string(), "Start etcd", ExitStatus::RegistryAway),
        };
        log_line(format_args!("pool {pool}: this host has the lease, and is about to follow node {by}"));
        let tenure = Tenure { pool, owner: next, members };
        let deposed = Deposed::default();
        let kept =
            KeptLease::follow(registry.clone(), &self.lease, tenure, (old, seen.record), lease, granted, &deposed);
        match self.take(tenure, fence.then_some(old), &deposed).map_err(|refusal| refusal.to_string()) {
            Ok(copy) => {
                // The mount takes the lease again, as the same node, and is the owner then.
                kept.stop();
                Ok(Looked::Taken(copy))
            }
            Err(why) => {
                drop(kept);
                match heir {
                    Heir::Guard => {
                        Ok(Looked::Not(format!("pool {pool}: {why}. The lease is given back"), AFTER_FAILURE))
                    }
                    Heir::Operator => Err(refusal(why, "The lease is given back", ExitStatus::Failed)),
                }
            }
        }
    }

    /// Whether a mount would be refused for want of its places.
    ///
    /// # Errors
    /// That reason.
    pub fn check_places(&self) -> Result<(), Refusal> {
        CheckedPlaces::check(&OriginRoot::open(&self.origin)?, &self.mountpoint, &[]).map(drop)
    }

    /// With the lease: takes origin and copy, in this order.
    fn take(&self, tenure: Tenure, fenced: Option<&OwnerRecord>, deposed: &Deposed) -> Result<TakenCopy, Refusal> {
        let Tenure { pool, owner, members } = tenure;
        let held = hold_copy(&self.store, self.pool.as_deref())?;
        // While the owner before had its lease, it could replace the copy by an empty one.
        let now = superblock_of(held.path());
        if !now.is_some_and(|now| now.pool == pool && now.members.generation() >= members) {
            return Err(Refusal::Usage("the copy was replaced meanwhile".to_owned()));
        }
        let root = Arc::new(OriginRoot::open(&self.origin)?);
        CheckedPlaces::check(&root, &self.mountpoint, &[held.path().to_owned()])?;
        let marker = MarkerHold::to_read(&root)?;
        // An owner that has not ended in order left one.
        if marker.is_none() && fenced.is_some() && !held.is_taken() {
            let path = self.origin.clone();
            return Err(Refusal::Origin { path, why: "has no marker of the pool: is it mounted there?".to_owned() });
        }
        let judged = match &marker {
            Some(marker) if !held.is_taken() => {
                let copy = (held.file()?, held.path());
                Some(JudgedStart::of(&root, marker, copy, held.owner(), !self.even_damaged, &self.decisions)?)
            }
            _ => None,
        };
        if let Some(old) = fenced {
            self.keep_out(pool, old, owner).map_err(Refusal::Usage)?;
        }
        // A registry that was silent meanwhile may be back.
        let until = Instant::now() + self.lease.length();
        while deposed.term().state() == TermState::Waits && Instant::now() < until {
            std::thread::sleep(LOOK / 10);
        }
        if deposed.term().state() != TermState::Stands {
            return Err(Refusal::Usage("the lease was lost meanwhile".to_owned()));
        }
        if let (Some(judged), Some(marker)) = (&judged, &marker) {
            judged.still_holds(marker)?;
        }
        Ok(held.take()?)
    }

    /// Keeps the old owner's writes from the origin.
    fn keep_out(&self, pool: PoolId, old: &OwnerRecord, owner: u64) -> Result<(), String> {
        let node = &old.node.name;
        match &self.fence {
            Some(program) => {
                fence(program, pool, node, &self.lease.node().name, owner, &self.origin)?;
                log_line(format_args!("pool {pool}: {} has fenced node {node}", program.display()));
            }
            None => {
                log_line(format_args!(
                    "pool {pool}: without --fence this host waits {} s for writes of node {node} that are on their way to the \
                     origin. That is no proof that none comes later",
                    self.grace.as_secs()
                ));
                std::thread::sleep(self.grace);
            }
        }
        Ok(())
    }

    /// The copy that is to be taken over. None while there is none.
    fn find(&self) -> Result<Option<FoundCopy>, Refusal> {
        let all = Store::open(&self.store).and_then(|store| store.all())?;
        let wanted = |copy: &&StoredCopy| !copy.removed && self.pool.as_ref().is_none_or(|pool| *pool == copy.pool);
        let mut matching = all.iter().filter(wanted);
        let Some(copy) = matching.next() else { return Ok(None) };
        if matching.next().is_some() {
            let dir = self.store.display();
            return Err(Refusal::Usage(format!("{dir} keeps copies of several pools. Name one with --pool")));
        }
        // One that is just being made has none.
        let superblock = superblock_of(&copy.file).filter(|_| copy.counts || copy.taken_over);
        Ok(superblock.map(|superblock| FoundCopy {
            pool: superblock.pool,
            members: superblock.members.generation(),
            owner: copy.owner,
            taken_over: copy.taken_over,
        }))
    }
}

/// The newest superblock of a member that another process may write to.
fn superblock_of(path: &Path) -> Option<Superblock> {
    let file = File::open(path).ok()?;
    newest_superblock(|block, offset| file.read_exact_at(block, offset))
}
