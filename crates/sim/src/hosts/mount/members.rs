//! The list of members of a pool in use: copies that are lost, made, and let go.
//!
//! The order is that of `tell_members` in `control/src/life/pool.rs`, of `control/src/service/copies.rs`, and of the engine's
//! `membership.rs`: whoever changes it there repeats it here.
//!
//! Keeps true: one change at a time. A list counts once it is here, at each copy that it has, in the registry and beside the
//! origin; what follows from it waits for that.
//!
//! Of a member that is emptied only the condition is modelled: another one has everything.

use std::rc::Rc;

use headpond_base::Nanos;

use crate::hosts::host::{Device, PeerRow, Peers, Superblock};
use crate::hosts::kept::TermState;
use crate::hosts::link::Link;
use crate::hosts::mount::{Pool, hello};
use crate::hosts::network::Load;
use crate::planted_hosts::PlantedHosts;

/// The list is told again after this: `TELL_AGAIN` of `membership.rs`.
const TELL_AGAIN: Nanos = Nanos(Nanos::SECOND.0 / 2);

/// How many copies a pool has at most: `COPIES_MAX`.
const COPIES_MAX: usize = 2;

impl Pool {
    /// Looks after the members for as long as the process lives.
    pub(super) async fn keep_members(&self) {
        self.begin().await;
        let mut search_at = self.next_try();
        loop {
            self.here.sleep_below(200).await;
            if self.links.borrow().iter().any(|link| link.has_ended()) {
                self.lose_ended().await;
                search_at = self.next_try();
            } else if self.here.clock() >= search_at && self.term() == TermState::Stands {
                match self.leaver() {
                    Some(link) => self.leave(&link).await,
                    None => self.add_peer().await,
                }
                search_at = self.next_try();
            } else {
                let unfinished = self.links().into_iter().find(|link| !link.is_whole.get());
                if let Some(link) = unfinished {
                    self.complete(&link).await;
                }
            }
        }
    }

    /// `Engine::accept`, and `begin` of `control/src/life/pool.rs`: says beside the origin that each member has the claim. By
    /// then the list counts, without those that are not here.
    async fn begin(&self) {
        let early = self.here.with(|world| world.is_planted(PlantedHosts::BeginsEarly));
        if early {
            self.say_begun().await;
        }
        if self.is_held.get() {
            self.settle_list(&[]).await;
        }
        while self.links.borrow().iter().any(|link| link.has_ended()) {
            self.lose_ended().await;
        }
        self.say_begun().await;
        self.has_begun.set(true);
    }

    async fn say_begun(&self) {
        self.here.origin_answers().await;
        let (host, owner) = (self.here.who.host, self.owner);
        let Superblock { claim, members, .. } = self.superblock.get();
        self.here.with(|world| match &mut world.origin.marker {
            Some(marker) if (marker.host, marker.owner, marker.last.id) == (host, owner, Some(claim)) => {
                marker.last.begun = true;
                world.no_heir_is_refused(members);
            }
            _ => {}
        });
    }

    fn next_try(&self) -> Nanos {
        let wait = self.here.with(|world| {
            let most = *world.rng.pick(&[Nanos::SECOND.0 / 2, 9 * Nanos::SECOND.0]);
            world.rng.below(most)
        });
        self.here.clock().plus(Nanos(wait))
    }

    /// The list of members that is wanted comes to count: here and at each copy, `joins` among them, then in the registry,
    /// then beside the origin.
    async fn settle_list(&self, joins: &[Rc<Link>]) {
        let now = loop {
            let now = self.superblock.get();
            self.here.device(|device| device.now.superblock = Some(now));
            let in_list = |link: &Rc<Link>| now.peers.rows().any(|row| row == link.row);
            let links: Vec<Rc<Link>> = self.links().into_iter().chain(joins.iter().cloned()).filter(in_list).collect();
            let write = |link: &Rc<Link>| {
                link.write(Load::Superblock(now));
                link.sync()
            };
            let syncs: Vec<u64> = links.iter().map(write).collect();
            self.here.sleep_below(30).await;
            self.here.device(Device::sync);
            let is_over = |(link, sync): (&Rc<Link>, &u64)| link.is_done(*sync) || link.has_ended();
            while !links.iter().zip(&syncs).all(is_over) {
                self.here.sleep_below(20).await;
            }
            if !links.iter().any(|link| link.has_ended()) {
                break now;
            }
            // Another member was lost meanwhile.
            self.is_held.set(true);
            self.links.borrow_mut().retain(|link| !link.has_ended());
            let rows = links.iter().filter(|link| !link.has_ended()).map(|link| link.row);
            self.superblock.set(self.list(rows));
        };
        self.is_listed.set(true);
        // `MembersChanged`, through the gate: `tell_members` of `life/pool.rs`.
        while !self.tell(now.members).await {
            self.here.sleep(TELL_AGAIN).await;
        }
        self.is_held.set(false);
        self.here.trace(|| format!("the list {} counts, with {:?}", now.members, now.peers));
        self.here.with(|world| world.summary.lists += 1);
    }

    async fn tell(&self, members: u64) -> bool {
        if self.gate.pass().await.is_none() {
            return false;
        }
        // The registry first. A marker that is ahead of it would refuse the very copy that the registry lets take over.
        self.kept.tell_members(members).await && self.tell_beside(members).await
    }

    async fn tell_beside(&self, members: u64) -> bool {
        self.here.origin_answers().await;
        let (host, owner) = (self.here.who.host, self.owner);
        self.here.with(|world| match &mut world.origin.marker {
            Some(marker) if (marker.host, marker.owner) == (host, owner) => {
                marker.members = members;
                true
            }
            _ => false,
        })
    }

    /// The next list, with the copies that these connections lead to.
    fn list(&self, rows: impl IntoIterator<Item = PeerRow>) -> Superblock {
        let now = self.superblock.get();
        Superblock { members: now.members + 1, peers: Peers::of(rows), ..now }
    }

    /// Copies whose connections have ended are lost.
    async fn lose_ended(&self) {
        self.is_held.set(true);
        self.is_listed.set(false);
        self.links.borrow_mut().retain(|link| !link.has_ended());
        self.superblock.set(self.list(self.links().iter().map(|link| link.row)));
        self.settle_list(&[]).await;
    }

    /// `Service::leaver`: a copy at a host that is being drained, if it may go now. The engine empties it first, so another
    /// one has everything before the list without it is wanted.
    fn leaver(&self) -> Option<Rc<Link>> {
        let links = self.links();
        let staying = links.iter().filter(|link| !link.is_draining.get()).count();
        let others = self.others();
        let another = self.here.with(|world| others.iter().any(|host| !world.hosts[*host].drains));
        let may_go = staying >= self.copies_wanted() || links.len() >= COPIES_MAX && another;
        let leaves = links.iter().find(|link| link.is_draining.get()).filter(|_| may_go)?;
        let early = self.here.with(|world| world.is_planted(PlantedHosts::LetsGoEarly));
        let is_empty = links.iter().any(|link| !Rc::ptr_eq(link, leaves) && link.is_whole.get());
        (is_empty || early).then(|| leaves.clone())
    }

    fn copies_wanted(&self) -> usize {
        self.here.with(|world| world.copies)
    }

    /// The hosts without a copy.
    fn others(&self) -> Vec<usize> {
        let has =
            |host: usize| host == self.here.who.host || self.links.borrow().iter().any(|link| link.row.host == host);
        self.here.with(|world| (0..world.hosts.len()).filter(|host| !has(*host)).collect())
    }

    /// A copy is let go: the list without it counts before the host hears that nobody needs it.
    async fn leave(&self, leaves: &Rc<Link>) {
        let early = self.here.with(|world| world.is_planted(PlantedHosts::LeavesBeforeRecord));
        let stays = |link: &Rc<Link>| !Rc::ptr_eq(link, leaves);
        let kept: Vec<Rc<Link>> = self.links().into_iter().filter(stays).collect();
        self.superblock.set(self.list(kept.iter().map(|link| link.row)));
        self.here.trace(|| format!("lets go of its copy at host {}", leaves.row.host));
        if early {
            self.links.borrow_mut().retain(stays);
        }
        self.settle_list(&[]).await;
        self.links.borrow_mut().retain(stays);
        let kept: Vec<PeerRow> = kept.iter().filter(|link| !link.has_ended()).map(|link| link.row).collect();
        self.here.with(|world| world.lets_go(&kept));
        leaves.let_go();
    }

    /// `Service::look_for_copy`: a copy is made at a host without one, if there are too few.
    async fn add_peer(&self) {
        let staying = self.links().iter().filter(|link| !link.is_draining.get()).count();
        let others = self.others();
        if staying >= self.copies_wanted() || self.links.borrow().len() >= COPIES_MAX || others.is_empty() {
            return;
        }
        let row = self.here.with(|world| PeerRow { host: *world.rng.pick(&others), name: world.draw() });
        let beside = self.links().first().map(|link| link.row);
        let hello = hello(&self.superblock.get(), Some(row.name), beside);
        let link = match Link::connect(&self.here, row, hello, &self.deposed).await {
            Ok(link) => link,
            Err(trouble) => return self.here.trace(|| format!("host {} makes no copy: {trouble:?}", row.host)),
        };
        // The new member first gets the checkpoint's bytes and its superblock.
        let next = self.list(self.links().iter().map(|link| link.row).chain([row]));
        link.write(Load::Superblock(next));
        let sync = link.sync();
        while !link.is_done(sync) {
            if link.has_ended() {
                // It is as a member that is lost at once.
                self.superblock.set(next);
                return self.lose_ended().await;
            }
            self.here.sleep_below(20).await;
        }
        self.superblock.set(next);
        self.settle_list(std::slice::from_ref(&link)).await;
        // One that was lost while the list was told is still in it.
        if self.superblock.get().peers.rows().any(|row| row == link.row) {
            self.links.borrow_mut().push(link);
        }
    }

    /// Waits until a copy has all that it was sent, or is lost.
    pub(super) async fn is_there_at(&self, link: &Link) {
        let sync = link.sync();
        while !link.is_done(sync) && !link.has_ended() {
            self.here.sleep_below(20).await;
        }
    }

    /// What was under way before a copy joined, and all that is dirty, is brought over to it.
    async fn complete(&self, link: &Rc<Link>) {
        let (last, _) = self.last.get();
        while self.answered.get() < last {
            if self.links.borrow().iter().any(|link| link.has_ended()) {
                return;
            }
            self.here.sleep_below(20).await;
        }
        link.write(Load::Tail);
        let log = self.here.device(|device| device.now.log.clone()).unwrap_or_default();
        for (number, value) in log {
            link.write(Load::Record(number, value));
            if number % 4 == 0 {
                self.here.sleep_below(100).await;
            }
        }
        // A checkpoint says so once all that is there.
        self.is_there_at(link).await;
        link.write(Load::Whole);
        self.is_there_at(link).await;
        link.is_whole.set(!link.has_ended());
    }
}
