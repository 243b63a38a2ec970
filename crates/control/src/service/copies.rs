//! The copies on other hosts: made at the start, and made again elsewhere when one is lost.
//!
//! Invariants
//! - A copy at a peer that is being drained is let go once as many others are there as are wanted; or, where the pool can have
//!   no further one beside it, so that another peer can have one.
//! - As many of the named peers have a copy as the setting `copies` says, or one is looked for, until all that are named
//!   have one: one after the other, the one that was lost last. Tries come further and further apart.
//! - What a sync waits for meanwhile is the engine's matter (`on-copy-loss`). Nothing here answers one.

use std::path::{Path, PathBuf};
use std::time::Instant;

use headpond_base::{COPIES_MAX, MemberId, Redundancy};
use headpond_engine::MemberShown;
use headpond_format::{Member, MemberState};
use headpond_shard::ShardStats;

use super::commands::{Phase, Service};
use super::pool::{AGAIN, POOL, Planned, TRIES};
use crate::numbers::exposed_blocks;
use crate::peers::PeerPlan;
use crate::pool::HeldFlash;
use crate::process::log::log_line;
use crate::refusal::{ExitStatus, Refusal};
use crate::wording::Size;

const NOT_MIRRORED: &str = "the pool has redundancy=none, so nothing would be copied. Set redundancy=mirror first";

/// The peers that cannot keep a copy, by their addresses, and why.
type WhyNone = Vec<(String, String)>;

impl Service {
    /// Has one of these peers keep a copy, as a part of the start. Notes for the operator, if none does.
    ///
    /// # Errors
    /// If one says that another host has the pool.
    pub(crate) fn begin_copies(&self, peers: &[PeerPlan]) -> Result<Vec<String>, Refusal> {
        if !peers.is_empty() && self.settings().config().redundancy == Redundancy::None {
            return Ok(vec![format!("DEGRADED: no peer gets a copy: {NOT_MIRRORED}")]);
        }
        // A start waits for no copy in the place of one that is only to go.
        let lacks = || {
            let stats = self.handle.stats();
            self.lacks_copies(&stats) && self.lacking_copies(&stats) > 0
        };
        if !lacks() {
            return Ok(Vec::new());
        }
        // A `status` may have been quicker. Its search ends, as peers that are silent are given up.
        while !self.copy_search().begins_with_mount() {
            std::thread::sleep(AGAIN);
        }
        let mut made = Ok(Ok(()));
        while matches!(made, Ok(Ok(()))) && lacks() {
            made = self.ask_for_copy(peers, |peer, (flash, row)| self.members.add(flash, row, Some(peer), None));
        }
        if let Ok(Ok(())) = made {
            let note = self.first_copy();
            self.copy_search().found();
            return Ok(note.into_iter().collect());
        }
        self.copy_search().failed(Instant::now());
        let note = |(peer, why): (String, String)| {
            format!("DEGRADED: there is no copy at {peer}: {why}. headpond tries again by itself")
        };
        Ok(made?.err().unwrap_or_default().into_iter().map(note).collect())
    }

    /// A peer has joined as a part of the start. A note, if the copy is not complete soon.
    fn first_copy(&self) -> Option<String> {
        self.devices_changed();
        // What is written from now on has its copy. A start on the copy alone needs a checkpoint that says so.
        for _ in 0..TRIES {
            if exposed_blocks(&self.handle.stats()) == 0 {
                return None;
            }
            std::thread::sleep(AGAIN);
        }
        let mnt = self.mountpoint();
        Some(format!("what was dirty is still being copied to the peer. To wait: headpond pool wait {}", mnt.display()))
    }

    pub(super) fn open_at_peer(&self, peer: &PeerPlan, size: Option<Size>) -> Result<(HeldFlash, Member), Refusal> {
        if self.settings().config().redundancy == Redundancy::None {
            return Err(Refusal::Usage(NOT_MIRRORED.to_owned()));
        }
        self.members.open_at_peer(peer, size, self.settings().copies())
    }

    /// Where the copies lie.
    pub(super) fn copies_at(&self, stats: &ShardStats) -> Vec<PathBuf> {
        let there = stats.members.iter().filter(|shown| shown.keeps_copies());
        there.map(|shown| self.members.devices().path_of(shown.member)).collect()
    }

    /// How many copies are at peers that are not being drained.
    fn staying(&self, stats: &ShardStats) -> usize {
        stats.members.iter().filter(|shown| shown.keeps_copies() && !self.members.drains(shown)).count()
    }

    /// A copy at a peer that is being drained, if it may go now.
    fn leaver(&self, stats: &ShardStats) -> Option<MemberId> {
        let room = self.copies_at(stats).len() < usize::from(COPIES_MAX);
        let draining = self.members.devices().draining();
        let another = || self.others(stats).iter().any(|peer| !draining.has(peer.path()));
        let may_go = self.staying(stats) >= self.copies_wanted() || !room && another();
        let drained = |shown: &&MemberShown| self.members.drains(shown) && shown.state == MemberState::InUse;
        stats.members.iter().find(drained).filter(|_| may_go).map(|shown| shown.member)
    }

    /// The named peers that have no member of the pool.
    fn others(&self, stats: &ShardStats) -> Vec<PeerPlan> {
        let (peers, have) = (self.members.devices().peers(), self.members.in_use_at(stats));
        without_member(&peers, &have).cloned().collect()
    }

    /// The same by their addresses, for people. None if there is none.
    pub(super) fn others_named(&self, stats: &ShardStats) -> Option<String> {
        let others: Vec<String> = self.others(stats).into_iter().map(|peer| peer.address).collect();
        (!others.is_empty()).then(|| others.join(", "))
    }

    /// What to do about a copy at a peer that is being drained, while no other peer can have it.
    pub(super) fn drained_without_another(&self, stats: &ShardStats, peer: &Path) -> Option<String> {
        let (mnt, peer) = (self.mountpoint(), peer.display());
        let mnt = mnt.display();
        let asks = self.others_named(stats).map(|others| format!("headpond asks {others} again and again"));
        let asks = asks.unwrap_or_else(|| "no other peer is named".to_owned());
        (self.leaver(stats).is_none()).then(|| {
            format!(
                "{peer} is being drained, and keeps its copy until another peer has one: {asks}. To name another one: headpond pool add {mnt} --peer HOST:PORT. To do without: headpond pool remove {mnt} {peer}"
            )
        })
    }

    /// On how many other hosts copies are to be. None if nobody named a peer, or the pool mirrors nothing.
    pub(super) fn copies_wanted(&self) -> usize {
        let mirrors = self.settings().config().redundancy != Redundancy::None;
        if mirrors && !self.members.devices().peers().is_empty() { self.settings().copies() } else { 0 }
    }

    /// How many copies are missing that a peer that is named could have.
    fn lacking_copies(&self, stats: &ShardStats) -> usize {
        let room = usize::from(COPIES_MAX).saturating_sub(self.copies_at(stats).len());
        self.copies_wanted().saturating_sub(self.staying(stats)).min(self.others(stats).len()).min(room)
    }

    /// Looks for another copy, if peers are named and too few have one. On a thread of its own: peers may be silent.
    pub(super) fn look_for_copy(&self, stats: &ShardStats) {
        let peers = self.members.devices().peers();
        let serves = self.phase() == Phase::Running && stats.engine.flash_failed == 0;
        let (lacks, leaver) = (self.lacking_copies(stats) > 0, self.leaver(stats));
        let mut search = self.copy_search();
        if !lacks && leaver.is_none() || !serves {
            return search.over();
        }
        if self.operations.state_of(POOL) == Some(super::OperationProgress::Running) || !search.begins(Instant::now()) {
            return;
        }
        drop(search);
        let (service, lost) = (self.clone(), self.lost_copies(stats));
        let work = move || {
            let failed = match leaver {
                Some(member) => service.leave(member),
                None => service.try_peers(&last_the_lost_ones(peers, &lost)),
            };
            let mut search = service.copy_search();
            match failed {
                None => search.found(),
                Some(why) if search.failed(Instant::now()) => {
                    log_line(format_args!("DEGRADED: no other host can have a copy now: {why}. headpond tries again"));
                }
                Some(_) => {}
            }
        };
        if std::thread::Builder::new().name("copy-search".to_owned()).spawn(work).is_err() {
            self.copy_search().failed(Instant::now());
        }
    }

    /// Where the copies lay that were lost, and that are missed.
    fn lost_copies(&self, stats: &ShardStats) -> Vec<PathBuf> {
        let lost = stats.members.iter().filter(|shown| shown.copies_only && shown.missed);
        lost.map(|shown| self.members.devices().path_of(shown.member)).collect()
    }

    /// Lets go of a copy, as a change of the pool's devices. Why not, if it stays.
    fn leave(&self, member: MemberId) -> Option<String> {
        let peer = self.members.devices().path_of(member);
        let stays = format!("{} keeps its copy, though it is being drained", peer.display());
        let planned = Planned::Leave { member, peer };
        match self.begin(POOL, &planned.what()) {
            Ok(id) => (!self.finish_change(id, planned, None)).then_some(stays),
            Err(refusal) => Some(refusal.to_string()),
        }
    }

    /// Has the first of these peers that can keep a copy, as a change of the pool's devices. Why none can, if none can.
    fn try_peers(&self, peers: &[PeerPlan]) -> Option<String> {
        let join = |peer: &PeerPlan, opened| {
            let planned = Planned::AddPeer { peer: peer.clone(), size: None };
            match self.begin(POOL, &planned.what()) {
                Ok(id) if self.finish_change(id, planned, Some(opened)) => Ok(()),
                Ok(_) => Err(format!("{}: it did not become a device of the pool", peer.address)),
                Err(refusal) => Err(refusal.to_string()),
            }
        };
        match self.ask_for_copy(peers, join) {
            Ok(Ok(())) => None,
            Ok(Err(whys)) => Some(whys.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("; ")),
            Err(refusal) => {
                self.members.is_deposed(&refusal);
                Some(refusal.to_string())
            }
        }
    }

    /// Asks one of these peers after the other, but for those that have a copy, and has the first that can keep one join.
    /// Why each cannot, if none can.
    ///
    /// # Errors
    /// If one says that another host has the pool. No other is asked then.
    fn ask_for_copy(
        &self,
        peers: &[PeerPlan],
        join: impl Fn(&PeerPlan, (HeldFlash, Member)) -> Result<(), String>,
    ) -> Result<Result<(), WhyNone>, Refusal> {
        let mut whys = WhyNone::new();
        let have = self.members.in_use_at(&self.handle.stats());
        for peer in without_member(peers, &have) {
            let joined = match self.open_at_peer(peer, None) {
                Err(refusal) if refusal.status() == ExitStatus::Deposed => return Err(refusal),
                Err(refusal) => Err(refusal.to_string()),
                Ok(opened) => join(peer, opened),
            };
            match joined {
                Ok(()) => return Ok(Ok(())),
                Err(why) => whys.push((peer.address.clone(), why)),
            }
        }
        Ok(Err(whys))
    }
}

/// Those of these peers that have no member of the pool. A peer that is asked for a copy makes it in the place of the one that
/// it has.
fn without_member<'a>(peers: &'a [PeerPlan], have: &'a [PathBuf]) -> impl Iterator<Item = &'a PeerPlan> {
    peers.iter().filter(|peer| !have.iter().any(|at| at == peer.path()))
}

/// The peers in the order in which they are tried.
fn last_the_lost_ones(mut peers: Vec<PeerPlan>, lost: &[PathBuf]) -> Vec<PeerPlan> {
    peers.sort_by_key(|peer| lost.iter().any(|lost| lost == peer.path()));
    peers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_were_lost_are_tried_last_and_the_others_in_their_order() {
        let peer = |address: &str| PeerPlan {
            address: address.to_owned(),
            certificates: None,
            durable: false,
            timeout_millis: PeerPlan::TIMEOUT_MILLIS,
        };
        let order = last_the_lost_ones(["a", "b", "c", "d"].map(peer).to_vec(), &["c".into(), "a".into()]);
        assert_eq!(order, ["b", "d", "a", "c"].map(peer));
    }
}
