//! `headpond peer guard`: a host with a copy waits until the pool has no owner, and becomes it.
//!
//! The steps are those of `control/src/guard/mod.rs`, in their order: whoever changes them there repeats it here. Who
//! may take a pool over the real `headpond_claim` says.

use headpond_base::Nanos;
use headpond_claim::{HeirCopy, HeirVerdict, OwnerLease, OwnerRecord, RecordSeen, judge_heir};

use crate::hosts::keeper::{hold, let_go, raise};
use crate::hosts::kept::{Deposed, Kept, TermState};
use crate::hosts::mount::{mount, settle};
use crate::hosts::pool::{self, known_members};
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
    let found = here.host(|host| {
        let stored = host.store.as_ref().filter(|stored| stored.counts(host.boot) || stored.taken_over);
        stored.and_then(|stored| Some((stored.device.superblock()?, stored.owner, stored.taken_over)))
    });
    let (superblock, stored, taken_over) = found.ok_or(LOOK)?;
    let node = here.host(|host| host.node());
    let mut lease = OwnerLease::new(LEASE);
    lease.asked(here.clock());
    let seen = here.read().await.ok_or(LOOK)?;
    let any = here.with(|world| world.is_planted(PlantedHosts::TakesAnyCopy));
    let known = known_members(&superblock);
    let members = if any { u64::MAX } else { known };
    let copy = HeirCopy { members, taken_over: taken_over.then_some(stored), by_hand: false };
    let (owner, fence) = match judge_heir(&node, copy, seen.seen.as_ref()) {
        HeirVerdict::Take { owner, fence } => (owner, fence),
        HeirVerdict::SameName if here.with(|world| world.is_planted(PlantedHosts::FencesItself)) => {
            (seen.seen.as_ref().map_or(0, |seen| seen.record.owner), true)
        }
        _ => return Err(LOOK),
    };
    let next = stored + u64::from(!taken_over);
    if next < owner {
        return Err(LOOK);
    }
    let Some(RecordSeen { record: old, .. }) = seen.seen.clone() else { return Err(LOOK) };
    let early = OwnerRecord { node: node.clone(), owner: next, left: false, ..old.clone() };
    let early = here.with(|world| world.is_planted(PlantedHosts::FencesItself)).then_some(&early);
    let Ok(Some(granted)) = here.take_lease(seen.versions, &node, early).await else { return Err(LOOK) };
    here.trace(|| format!("has the lease, and is about to be owner {next}"));
    let deposed = Deposed::new();
    let kept = Kept::follow(here, node, lease, granted, (&old, seen.versions.0), &deposed);
    match take(here, next, known, fence.then_some(&old), &deposed).await {
        Ok(owner) => {
            kept.stop().await;
            Ok(owner)
        }
        Err(why) => {
            here.trace(|| format!("gives the lease back: {why}"));
            kept.give_back().await;
            Err(AFTER_FAILURE)
        }
    }
}

/// `GuardPlan::take`: with the lease, origin and copy, in this order.
async fn take(
    here: &Here,
    owner: u64,
    members: u64,
    fenced: Option<&OwnerRecord>,
    deposed: &Deposed,
) -> Result<u64, &'static str> {
    hold(here).await.map_err(|_| "the copy cannot be held")?;
    let has_marker = here.with(|world| world.origin.marker.is_some());
    let judged = match judge(here, owner, members).await {
        Ok(()) if fenced.is_some() && !has_marker => Err("the origin has no marker"),
        judged => judged,
    };
    if judged.is_err() && !here.with(|world| world.is_planted(PlantedHosts::TakesPartOfCopy)) {
        let_go(here);
        return judged.map(|()| owner);
    }
    let mut kept_out = true;
    if let Some(old) = fenced {
        kept_out = keep_out(here, &old.node.name).await;
    }
    let until = here.clock().plus(LEASE);
    while deposed.state(here.clock()) == TermState::Waits && here.clock() < until {
        here.sleep(Nanos(50 * Nanos::MILLISECOND.0)).await;
    }
    if !kept_out || deposed.is_said() || deposed.state(here.clock()) != TermState::Stands {
        let_go(here);
        return Err("it was not fenced, or the lease was lost meanwhile");
    }
    raise(here, owner).map_err(|_| "the copy was replaced meanwhile")
}

/// `JudgedStart::of`: whether a mount of the copy would be refused.
async fn judge(here: &Here, owner: u64, members: u64) -> Result<(), &'static str> {
    here.origin_answers().await;
    let marker = here.with(|world| world.origin.marker);
    here.sleep_below(500).await;
    let (taken_over, read) = here
        .host(|host| host.store.as_ref().map(|stored| (stored.taken_over, pool::read_whole(&stored.device.flash))))
        .ok_or("there is no copy any more")?;
    if taken_over || here.with(|world| world.is_planted(PlantedHosts::TakesAnyCopy)) {
        return Ok(());
    }
    let Some(mut recovered) = read else { return Err("the copy lacks something that is dirty") };
    let superblock = recovered.superblock().clone();
    let list = superblock.members.generation();
    if known_members(&superblock) < members || marker.is_some_and(|marker| marker.members > list) {
        return Err("the copy is not in the set");
    }
    if marker.is_some_and(|marker| marker.owner > owner) {
        return Err("another took the pool over");
    }
    if marker.is_some_and(|marker| !pool::is_of(&superblock, marker.last)) {
        return Err("the copy is as an earlier use left it");
    }
    let found = here.with(|world| world.origin.found());
    if settle(&mut recovered, &found) { Ok(()) } else { Err("the file at the origin was changed by others") }
}

/// `GuardPlan::keep_out`: with a program, or without.
async fn keep_out(here: &Here, old: &str) -> bool {
    let (hook, skipped) = here.with(|world| (world.hook, world.is_planted(PlantedHosts::FenceSkipped)));
    if skipped {
        return true;
    }
    if !hook {
        here.sleep(GRACE).await;
        return true;
    }
    here.sleep_below(1500).await;
    here.with(|world| {
        let works = !world.rng.chance(50);
        if works {
            world.trace(|| format!("fences {old}"));
            world.origin.fenced.insert(old.to_owned());
        }
        works
    })
}
