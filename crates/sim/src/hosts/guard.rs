//! `headpond peer guard`: a host with a copy waits until the pool has no owner, and becomes it.
//!
//! The steps are those of `control/src/leases/guard.rs`, in their order: whoever changes them there repeats it here. Who
//! may take a pool over the real `headpond_claim` says.

use headpond_base::Nanos;
use headpond_claim::{HeirVerdict, OwnerLease, OwnerRecord, RecordSeen, judge_heir};

use crate::hosts::etcd::SeenAt;
use crate::hosts::keeper::take_over;
use crate::hosts::kept::{Deposed, Kept, TermState};
use crate::hosts::mount::mount;
use crate::hosts::world::{Here, LEASE};
use crate::planted_hosts::PlantedHosts;

const LOOK: Nanos = Nanos(500 * Nanos::MILLISECOND.0);
const AFTER_FAILURE: Nanos = Nanos(5 * Nanos::SECOND.0);

/// `--grace` without a program.
const GRACE: Nanos = Nanos(10 * Nanos::SECOND.0);

/// Waits for its turn, and serves. Returns when the mount is refused.
pub(crate) async fn guard(here: &Here) {
    let owner = loop {
        match look(here).await {
            Ok(owner) => break owner,
            Err(pause) => here.sleep(pause).await,
        }
    };
    here.with(|world| world.summary.takeovers += 1);
    let refusal = mount(here, Some(owner)).await;
    here.trace(|| format!("the mount ends: {refusal:?}"));
}

/// `GuardPlan::look`. Owner's number, or how long to wait.
async fn look(here: &Here) -> Result<u64, Nanos> {
    let part = here.with(|world| world.is_planted(PlantedHosts::TakesPartOfCopy));
    let found = here.host(|host| {
        // One that does not count, or is not whole yet, is nobody's heir: to take the lease for it would depose the owner
        // for nothing.
        let stored = host.store.as_ref().filter(|stored| stored.counts(host.boot));
        let stored = stored.filter(|stored| part || stored.device.now.has_tail || stored.taken_over);
        stored.and_then(|stored| Some((stored.device.now.superblock?, stored.owner + u64::from(!stored.taken_over))))
    });
    let (superblock, next) = found.ok_or(LOOK)?;
    let node = here.host(|host| host.node());
    let mut lease = OwnerLease::new(LEASE);
    lease.asked(here.clock());
    let seen = here.read().await.ok_or(LOOK)?;
    let any = here.with(|world| world.is_planted(PlantedHosts::TakesAnyCopy));
    let members = if any { u64::MAX } else { superblock.members };
    let HeirVerdict::Take { owner, in_order } = judge_heir(&node, members, false, seen.seen.as_ref()) else {
        return Err(LOOK);
    };
    // The owner that is gone was never connected with this copy, or this host was its owner before that one.
    if next != owner {
        return Err(LOOK);
    }
    let Some(RecordSeen { record: old, .. }) = seen.seen.clone() else { return Err(LOOK) };
    take(here, &seen, lease, &old, owner, in_order).await
}

/// `GuardPlan::take`: lease, origin and copy, in this order.
async fn take(
    here: &Here,
    seen: &SeenAt,
    lease: OwnerLease,
    old: &OwnerRecord,
    owner: u64,
    in_order: bool,
) -> Result<u64, Nanos> {
    let node = here.host(|host| host.node());
    let mut new = old.taken_over(&node, owner, in_order);
    if here.with(|world| world.is_planted(PlantedHosts::FencesItself)) && old.node.name == node.name {
        new.unfenced = vec![node.name.clone()];
    }
    let Ok(Some(granted)) = here.take_lease(seen.versions, &new).await else { return Err(LOOK) };
    here.trace(|| format!("has the lease, with number {owner}"));
    here.with(|world| {
        let stored = world.hosts[here.who.host].store.as_ref();
        if stored.is_some_and(|stored| stored.device.now.has_tail && !stored.device.now.is_whole) {
            world.excuses.insert("a copy was taken that lacks what was dirty before it was added");
        }
    });
    let deposed = Deposed::new();
    let kept = Kept::begin(here, node, lease, granted, new.clone(), &deposed);
    if !new.unfenced.is_empty() && !keep_out(here, &new).await {
        give_back(here, &kept, old, "not fenced").await;
        return Err(AFTER_FAILURE);
    }
    if deposed.is_said() || deposed.state(here.clock()) != TermState::Stands {
        give_back(here, &kept, old, "the lease was lost meanwhile").await;
        return Err(AFTER_FAILURE);
    }
    match take_over(here).await {
        Ok(number) if number == owner => {
            kept.stop().await;
            Ok(owner)
        }
        other => {
            give_back(here, &kept, old, &format!("{other:?}")).await;
            Err(AFTER_FAILURE)
        }
    }
}

async fn give_back(here: &Here, kept: &Kept, old: &OwnerRecord, why: &str) {
    here.trace(|| format!("gives the lease back: {why}"));
    let old = old.clone();
    kept.leave(|_| old).await;
}

/// `GuardPlan::keep_out`: with a program, or without.
async fn keep_out(here: &Here, new: &OwnerRecord) -> bool {
    let (hook, skipped) = here.with(|world| (world.hook, world.is_planted(PlantedHosts::FenceSkipped)));
    if skipped {
        return true;
    }
    if !hook {
        here.sleep(GRACE).await;
        return true;
    }
    for old in &new.unfenced {
        here.sleep_below(1500).await;
        let works = here.with(|world| {
            let works = !world.rng.chance(50);
            if works {
                world.trace(|| format!("fences {old} for {}", new.node.name));
                world.origin.fenced.insert(old.clone());
            }
            works
        });
        if !works {
            return false;
        }
    }
    true
}
