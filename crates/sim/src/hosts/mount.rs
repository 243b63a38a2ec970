//! A mount: it takes a pool into use, serves, changes its list of members, and destages.
//!
//! The order is that of `control/src/life/pool.rs` (lease, peer, recovery, marker, list, service), of `tell_members` there,
//! and of the engine's `membership.rs`: whoever changes it there repeats it here. The engine itself is a counter: it
//! appends numbered records.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use headpond_base::{Nanos, PoolId};
use headpond_peer::{Hello, PROTOCOL};

use crate::hosts::gate::Gate;
use crate::hosts::host::Program;
use crate::hosts::host::{Device, PeerRow, Superblock, Value};
use crate::hosts::keeper::BYTES;
use crate::hosts::kept::{Deposed, Kept, TermState};
use crate::hosts::link::{Link, Trouble};
use crate::hosts::network::Load;
use crate::hosts::promises::{Landed, Marker};
use crate::hosts::world::Here;
use crate::planted_hosts::PlantedHosts;

/// The list is told again after this: `TELL_AGAIN` of `membership.rs`.
const TELL_AGAIN: Nanos = Nanos(Nanos::SECOND.0 / 2);

/// Why a mount did not come to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    NoPool,
    /// The lease cannot be had.
    Lease,
    /// The peer, or the marker, says that another took the pool over.
    Deposed,
    /// A device that has something is not here.
    MemberMissing,
}

/// A pool in use.
struct Pool {
    here: Here,
    owner: u64,
    deposed: Rc<Deposed>,
    kept: Rc<Kept>,
    gate: Gate,
    superblock: Cell<Superblock>,
    link: RefCell<Option<Rc<Link>>>,
    /// A member is lost, and the list without it does not count yet: no sync is answered that is not on each member.
    is_held: Cell<bool>,
    /// It counts here.
    is_listed: Cell<bool>,
    /// The last record, and its name.
    last: Cell<(u64, u64)>,
    /// What is answered, and what the origin has.
    answered: Cell<u64>,
    destaged: Cell<u64>,
}

fn hello(owner: u64, epoch: u64, made: Option<[u8; 16]>) -> Hello {
    let bytes = if made.is_some() { BYTES } else { 0 };
    Hello {
        version: PROTOCOL,
        durable: false,
        pool: PoolId([7; 16]),
        member: made.unwrap_or_default(),
        owner,
        epoch,
        bytes,
        beside: [0; 16],
    }
}

impl Here {
    /// The device that a mount of this process has: the host's flash, or the copy that it took over.
    fn device<R>(&self, act: impl FnOnce(&mut Device) -> R) -> Option<R> {
        self.host(|host| match self.who.program {
            Program::Mount => host.flash.as_mut().map(act),
            _ => {
                host.store.as_mut().filter(|stored| stored.lock == Some(self.who)).map(|stored| act(&mut stored.device))
            }
        })
    }
}

/// Takes the pool into use, and serves for as long as the process lives. With `takes` it has taken the pool over, under
/// this number.
pub(crate) async fn mount(here: &Here, takes: Option<u64>) -> Refusal {
    match start(here, takes).await {
        Err(refusal) => refusal,
        Ok(pool) => {
            let pool = Rc::new(pool);
            let (one, two, three) = (pool.clone(), pool.clone(), pool.clone());
            here.spawn(async move { one.keep_members().await });
            here.spawn(async move { two.destage().await });
            here.spawn(async move { three.keep_watch().await });
            pool.write_and_sync().await
        }
    }
}

async fn start(here: &Here, takes: Option<u64>) -> Result<Pool, Refusal> {
    // `FoundPool::find`.
    here.origin_answers().await;
    let found = here.with(|world| world.origin.marker);
    let superblock = here.device(|device| device.now.superblock).flatten().ok_or(Refusal::NoPool)?;
    let deposed = Deposed::new();
    let owner = takes.unwrap_or(superblock.owner);
    // What was read may be in the device's memory alone: the registry must not know more than a start after a power cut.
    if !here.with(|world| world.is_planted(PlantedHosts::TellsUnsynced)) {
        here.sleep_below(5).await;
        here.device(Device::sync);
    }
    let kept = Kept::take(here, owner, superblock.members, &deposed).await.map_err(|why| {
        here.trace(|| format!("the lease cannot be had: {why:?}"));
        Refusal::Lease
    })?;
    match recover(here, takes, found, superblock, owner, &deposed, &kept).await {
        Ok(pool) => Ok(pool),
        Err(refusal) => {
            kept.give_back().await;
            Err(refusal)
        }
    }
}

async fn recover(
    here: &Here,
    takes: Option<u64>,
    found: Option<Marker>,
    superblock: Superblock,
    owner: u64,
    deposed: &Rc<Deposed>,
    kept: &Rc<Kept>,
) -> Result<Pool, Refusal> {
    let mut link = None;
    if takes.is_none()
        && let Some(peer) = superblock.peer
    {
        match Link::connect(here, peer.host, hello(superblock.owner, superblock.epoch, None), deposed).await {
            Ok(connected) => link = Some(connected),
            Err(Trouble::Deposed) => return Err(Refusal::Deposed),
            Err(Trouble::NotKept | Trouble::Away) => {}
        }
    }
    // `make_ready`.
    if found.is_some_and(|marker| marker.owner > owner) {
        return Err(Refusal::Deposed);
    }
    if found.is_some_and(|marker| marker.members > superblock.members) {
        return Err(Refusal::MemberMissing);
    }
    here.sleep_below(1500).await;
    let is_whole = here.device(|device| device.now.is_whole).ok_or(Refusal::NoPool)?;
    if takes.is_some() && !is_whole {
        return Err(Refusal::MemberMissing);
    }
    let chain = here.with(|world| {
        let host = &world.hosts[here.who.host];
        let log = match here.who.program {
            Program::Mount => host.flash.as_ref().map(|flash| &flash.now.log),
            _ => host.store.as_ref().map(|stored| &stored.device.now.log),
        };
        log.map(|log| world.chain(log)).unwrap_or_default()
    });
    let last = chain.last_key_value().map_or((0, 0), |(number, value)| (*number, value.id));
    let destaged = here.with(|world| {
        let there = |number: &u64| world.origin.data.get(number) == chain.get(number);
        (1..=last.0).take_while(there).last().unwrap_or(0)
    });
    // A node that was fenced before is let in again by the operator, or by the program, once it is the owner: who only
    // hears late that it had the lease is not.
    here.with(|world| {
        let node = world.hosts[here.who.host].node();
        if world.etcd.has_lease(&node) {
            world.origin.fenced.remove(&node.name);
        }
    });
    // `FoundPool::start`: the marker, if it still is as it was found.
    here.origin_answers().await;
    let marker = Marker { host: here.who.host, owner, members: superblock.members };
    let written = here.with(|world| {
        let same = world.origin.marker == found;
        if same {
            world.origin.marker = Some(marker);
        }
        same
    });
    if !written {
        return Err(Refusal::Deposed);
    }
    // Who goes on with another list than it found has lost a member: of a take-over the old flash, else the copy.
    let mut now = Superblock { owner, epoch: superblock.epoch + 1, ..superblock };
    let is_settled = takes.is_none() && link.is_some() == superblock.peer.is_some();
    if !is_settled {
        (now.members, now.peer) = (superblock.members + 1, None);
    }
    let pool = Pool {
        here: here.clone(),
        owner,
        deposed: deposed.clone(),
        kept: kept.clone(),
        gate: Gate::new(here, owner, deposed),
        superblock: Cell::new(now),
        link: RefCell::new(link),
        is_held: Cell::new(!is_settled),
        is_listed: Cell::new(is_settled),
        last: Cell::new(last),
        answered: Cell::new(last.0),
        destaged: Cell::new(destaged),
    };
    let brought = here.device(|device| {
        // What does not belong to the chain is overwritten.
        device.now.log = chain.range(destaged + 1..).map(|(number, value)| (*number, *value)).collect();
        device.now.superblock = Some(now);
        (device.now.has_tail, device.now.is_whole) = (true, true);
    });
    brought.ok_or(Refusal::NoPool)?;
    here.sleep_below(30).await;
    here.device(Device::sync);
    pool.bring_level(&chain).await;
    Ok(pool)
}

impl Pool {
    fn term(&self) -> TermState {
        self.deposed.state(self.here.clock())
    }

    /// After a crash the copy may have less or more than the flash here.
    async fn bring_level(&self, chain: &BTreeMap<u64, Value>) {
        let Some(link) = self.link.borrow().clone() else { return };
        link.write(Load::Superblock(self.superblock.get()));
        for (number, value) in chain.range(self.destaged.get() + 1..) {
            link.write(Load::Record(*number, *value));
        }
        let sync = link.sync();
        while !link.is_done(sync) && !link.has_ended() {
            self.here.sleep_below(20).await;
        }
    }

    /// The application: it writes, and syncs.
    async fn write_and_sync(&self) -> Refusal {
        let mut has_served = false;
        loop {
            self.here.sleep_below(1200).await;
            // `look_at_term` of `shard/src/turn.rs`: requests wait.
            match self.term() {
                TermState::Ended => {
                    // Its supervisor ends it some time later.
                    self.here.sleep_below(20_000).await;
                    return Refusal::Deposed;
                }
                TermState::Waits => continue,
                TermState::Stands => {}
            }
            if !std::mem::replace(&mut has_served, true) {
                let chain = self.chain();
                self.here.with(|world| world.serves(self.here.who, self.owner, &chain));
            }
            let (number, before) = self.last.get();
            let (number, id) = (number + 1, self.here.with(|world| world.rng.next() | 1));
            let value = Value { id, before };
            self.last.set((number, id));
            let link = self.link.borrow().clone();
            let asked = link.map(|link| {
                link.write(Load::Record(number, value));
                let sync = link.sync();
                (link, sync)
            });
            // Flash and peer get it at once. Which one has it first is open.
            let long = self.here.with(|world| *world.rng.pick(&[3, 400]));
            self.here.sleep_below(long).await;
            let written = self.here.device(|device| {
                device.now.log.insert(number, value);
            });
            if written.is_none() {
                return Refusal::NoPool;
            }
            self.here.sleep_below(long).await;
            self.here.device(Device::sync);
            self.is_there(asked).await;
            self.answered.set(number);
            self.here.trace(|| format!("answers the sync of {number}"));
            self.here.with(|world| world.answers(self.here.who, self.owner, number, value.id));
        }
    }

    fn chain(&self) -> BTreeMap<u64, Value> {
        let log = self.here.device(|device| device.now.log.clone()).unwrap_or_default();
        self.here.with(|world| world.chain(&log))
    }

    /// Waits until the peer has it, or until the list without the peer counts.
    async fn is_there(&self, asked: Option<(Rc<Link>, u64)>) {
        let early = self.here.with(|world| world.is_planted(PlantedHosts::AnswersBeforeRecord));
        loop {
            let is_known = !self.is_held.get() || early && self.is_listed.get();
            let is_there = match &asked {
                Some((link, sync)) if link.is_done(*sync) => true,
                Some((link, _)) => {
                    let is_out = self.link.borrow().as_ref().is_none_or(|now| !Rc::ptr_eq(now, link));
                    link.has_ended() && is_out && is_known
                }
                None => is_known,
            };
            if is_there {
                return;
            }
            self.here.sleep_below(20).await;
        }
    }

    /// The list of members that is wanted comes to count: here, then beside the origin, then in the registry.
    async fn settle_list(&self) {
        let members = self.superblock.get().members;
        self.here.device(|device| device.now.superblock = Some(self.superblock.get()));
        self.here.sleep_below(30).await;
        self.here.device(Device::sync);
        self.is_listed.set(true);
        // `MembersChanged`, through the gate: `tell_members` of `life/pool.rs`.
        while !self.tell(members).await {
            self.here.sleep(TELL_AGAIN).await;
        }
        self.is_held.set(false);
        self.here.trace(|| format!("the list {members} counts, with {:?}", self.superblock.get().peer));
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

    async fn keep_members(&self) {
        if self.is_held.get() {
            self.settle_list().await;
        }
        let mut add_at = self.next_try();
        loop {
            self.here.sleep_below(200).await;
            let link = self.link.borrow().clone();
            match link {
                Some(link) if link.has_ended() => {
                    self.is_held.set(true);
                    self.is_listed.set(false);
                    *self.link.borrow_mut() = None;
                    let now = self.superblock.get();
                    self.superblock.set(Superblock { members: now.members + 1, peer: None, ..now });
                    self.settle_list().await;
                    add_at = self.next_try();
                }
                None if self.here.clock() >= add_at && self.term() == TermState::Stands => {
                    self.add_peer().await;
                    add_at = self.next_try();
                }
                _ => {}
            }
        }
    }

    fn next_try(&self) -> Nanos {
        let wait = self.here.with(|world| world.rng.below(9 * Nanos::SECOND.0));
        self.here.clock().plus(Nanos(wait))
    }

    /// `headpond pool add --peer`: a copy is made anew.
    async fn add_peer(&self) {
        let (to, name) = self.here.with(|world| {
            let others = world.hosts.len() - 1;
            let to = (self.here.who.host + 1 + world.rng.below(others as u64) as usize) % world.hosts.len();
            let mut name = [0; 16];
            name[..8].copy_from_slice(&world.rng.next().to_le_bytes());
            (to, name)
        });
        let now = self.superblock.get();
        let made = Link::connect(&self.here, to, hello(self.owner, now.epoch, Some(name)), &self.deposed).await;
        let link = match made {
            Ok(link) => link,
            Err(trouble) => return self.here.trace(|| format!("host {to} makes no copy: {trouble:?}")),
        };
        // The new member first gets the checkpoint's bytes and its superblock.
        let next = Superblock { members: now.members + 1, peer: Some(PeerRow { host: link.to, name }), ..now };
        link.write(Load::Superblock(next));
        let sync = link.sync();
        while !link.is_done(sync) {
            if link.has_ended() {
                // It is as a member that is lost at once.
                self.superblock.set(Superblock { members: next.members + 1, peer: None, ..next });
                return self.settle_list().await;
            }
            self.here.sleep_below(20).await;
        }
        self.superblock.set(next);
        self.settle_list().await;
        *self.link.borrow_mut() = Some(link.clone());
        // What was under way by then has no copy there: it is waited for, and brought over with the rest.
        let (last, _) = self.last.get();
        while self.answered.get() < last {
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
        let sync = link.sync();
        while !link.is_done(sync) && !link.has_ended() {
            self.here.sleep_below(20).await;
        }
        link.write(Load::Whole);
    }

    async fn destage(&self) {
        loop {
            self.here.sleep_below(700).await;
            let number = self.destaged.get() + 1;
            if number > self.answered.get() {
                continue;
            }
            let Some(is_late) = self.gate.pass().await else { continue };
            // Between the look at the clock and the system call anything may happen to the thread.
            self.here.sleep(Nanos(1000)).await;
            let Some(value) = self.here.device(|device| device.now.log.get(&number).copied()).flatten() else { return };
            let change = self.here.with(|world| world.hand_over(self.here.who, self.owner, number, value, is_late));
            let landed = loop {
                if let Some(landed) = self.here.with(|world| world.origin.landed.remove(&change)) {
                    break landed;
                }
                self.here.sleep_below(30).await;
            };
            if landed == Landed::Done {
                self.destaged.set(number);
                let destaged = number.saturating_sub(1);
                self.here.device(|device| device.now.log = device.now.log.split_off(&(destaged + 1)));
                if let Some(link) = &*self.link.borrow() {
                    link.write(Load::Destaged(destaged));
                }
            }
        }
    }

    /// `keep_watch` of `life/pool.rs`: a loss becomes known also without changes.
    async fn keep_watch(&self) {
        loop {
            self.here.sleep(Nanos(2 * Nanos::SECOND.0)).await;
            self.gate.pass().await;
        }
    }
}
