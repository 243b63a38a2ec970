//! The copies of a pool in use: made, and let go.
//!
//! The steps are those of `control/src/service/copies.rs` and `members.rs`, in their order. A change there needs the same
//! change here. What becomes of a member the engine decides.

use std::rc::Rc;

use headpond_base::{MemberId, Nanos};
use headpond_engine::{MemberShown, MembersChange, Reply, Request, number_for};
use headpond_format::{MEMBERS_MAX, MemberName, MemberState};

use crate::hosts::host::PeerRow;
use crate::hosts::kept::TermState;
use crate::hosts::link::Link;
use crate::hosts::mount::hello;
use crate::hosts::mount::serving::Serving;
use crate::hosts::pool::{copy_row, superblock_of};
use crate::planted_hosts::PlantedHosts;

/// How many copies a pool has at most: `COPIES_MAX`.
const COPIES_MAX: usize = 2;

impl Serving {
    /// Looks after the copies for as long as the process lives.
    pub(super) async fn keep_members(self: &Rc<Self>) {
        let mut search_at = self.next_try();
        let mut lost = false;
        loop {
            self.here.sleep_below(200).await;
            self.forget_gone();
            let has_lost = self.links.borrow().values().any(|link| link.has_ended());
            if has_lost && !lost {
                search_at = self.next_try();
            }
            lost = has_lost;
            if self.here.clock() >= search_at && self.term() == TermState::Stands {
                match self.leaver() {
                    Some((member, link)) => self.leave(member, &link).await,
                    None => self.add_peer().await,
                }
                search_at = self.next_try();
            }
        }
    }

    fn next_try(&self) -> Nanos {
        let wait = self.here.with(|world| {
            let most = *world.rng.pick(&[Nanos::SECOND.0 / 2, 9 * Nanos::SECOND.0]);
            world.rng.below(most)
        });
        self.here.clock().plus(Nanos(wait))
    }

    fn members(&self) -> Vec<MemberShown> {
        self.look(|engine| engine.members())
    }

    /// Connections to members that the list does not have any more.
    fn forget_gone(&self) {
        let is_gone = |member: &MemberShown| member.state == MemberState::Gone;
        for gone in self.members().into_iter().filter(is_gone) {
            if let Some(link) = self.links.borrow_mut().remove(&gone.member) {
                link.close();
            }
        }
    }

    fn copies(&self) -> Vec<(MemberId, Rc<Link>)> {
        let members = self.members();
        let keeps = |id: &MemberId| members.iter().any(|shown| shown.member == *id && shown.keeps_copies());
        self.links.borrow().iter().filter(|(id, _)| keeps(id)).map(|(id, link)| (*id, link.clone())).collect()
    }

    fn staying(&self) -> usize {
        self.copies().iter().filter(|(_, link)| !link.is_draining.get()).count()
    }

    fn wanted(&self) -> usize {
        self.here.with(|world| world.copies)
    }

    /// The hosts without a member.
    fn others(&self) -> Vec<usize> {
        let links = self.links.borrow();
        let has = |host: usize| host == self.here.who.host || links.values().any(|link| link.row.host == host);
        self.here.with(|world| (0..world.hosts.len()).filter(|host| !has(*host)).collect())
    }

    /// `Service::leaver`: a copy at a host that is being drained, if it may go now.
    fn leaver(&self) -> Option<(MemberId, Rc<Link>)> {
        let copies = self.copies();
        let others = self.others();
        let another = self.here.with(|world| others.iter().any(|host| !world.hosts[*host].drains));
        let may_go = self.staying() >= self.wanted() || copies.len() >= COPIES_MAX && another;
        copies.into_iter().find(|(_, link)| link.is_draining.get() && !link.has_ended()).filter(|_| may_go)
    }

    /// A copy is let go: the list without it counts before the host hears that nobody needs it.
    async fn leave(&self, member: MemberId, link: &Rc<Link>) {
        self.here.trace(|| format!("lets go of its copy at host {}", link.row.host));
        let (early, mute) = self.here.with(|world| {
            (world.is_planted(PlantedHosts::LetsGoEarly), world.is_planted(PlantedHosts::LeavesBeforeRecord))
        });
        link.is_mute.set(mute);
        if !early {
            let reply = self.ask(Request::ChangeMembers(MembersChange::Remove(member))).await;
            if !matches!(reply, Some(Reply::Done)) {
                return self.here.trace(|| format!("it stays: {reply:?}"));
            }
        }
        if link.has_ended() {
            // It was lost meanwhile.
            return;
        }
        let kept = self.copies();
        let kept = kept.iter().filter(|(id, link)| *id != member && !link.has_ended());
        let kept: Vec<PeerRow> = kept.map(|(_, link)| link.row).collect();
        self.here.with(|world| world.lets_go(&kept));
        link.let_go();
    }

    /// `Service::look_for_copy`: a copy is made at a host without one, if there are too few.
    async fn add_peer(&self) {
        let others = self.others();
        if self.staying() >= self.wanted() || self.copies().len() >= COPIES_MAX || others.is_empty() {
            return;
        }
        let found = self.here.device(|device| superblock_of(&device.flash)).flatten();
        let Some(superblock) = found else { return };
        let row = self.here.with(|world| PeerRow { host: *world.rng.pick(&others), name: world.draw() });
        let beside = self.copies().first().map(|(_, link)| link.row.name);
        let link = match Link::connect(&self.here, row, hello(&superblock, Some(row.name), beside)).await {
            Ok(link) => link,
            Err(trouble) => return self.here.trace(|| format!("host {} makes no copy: {trouble:?}", row.host)),
        };
        let known = self.members();
        let new = copy_row(MemberName(row.name));
        let is_kept = |shown: &MemberShown| shown.missed || self.links.borrow().contains_key(&shown.member);
        let Ok(member) = number_for(u64::from(new.slots), &known, &superblock.geometry, MEMBERS_MAX, is_kept) else {
            return link.close();
        };
        self.joins(member, link.clone());
        let change = MembersChange::Add { member, row: new, instead_of: None };
        let reply = self.ask(Request::ChangeMembers(change)).await;
        self.here.trace(|| format!("a copy at host {}, member {}: {reply:?}", row.host, member.0));
        let is_there = self.members().iter().any(|shown| shown.member == member && shown.state != MemberState::Gone);
        if !is_there {
            self.links.borrow_mut().remove(&member);
            link.close();
        }
    }
}
