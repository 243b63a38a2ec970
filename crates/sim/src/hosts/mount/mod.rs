//! A mount: it takes a pool into use, serves, and destages. Its list of members is the matter of `members`.
//!
//! The order is that of `control/src/life/pool.rs` (lease, peers, recovery, marker, list, service): whoever changes it there
//! repeats it here. The engine itself is a counter: it appends numbered records.

mod members;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use headpond_base::Nanos;
use headpond_claim::ownership::Use;
use headpond_peer::{Hello, MemberNamed, Versions};

use crate::hosts::gate::Gate;
use crate::hosts::host::Program;
use crate::hosts::host::{Device, POOL, PeerRow, Peers, Superblock, Value};
use crate::hosts::keeper::BYTES;
use crate::hosts::kept::{Deposed, Kept, TermState};
use crate::hosts::link::{Link, Trouble};
use crate::hosts::network::Load;
use crate::hosts::promises::{Landed, Marker};
use crate::hosts::world::Here;
use crate::planted_hosts::PlantedHosts;

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
    /// The device is as an earlier use left it.
    Image,
}

/// A pool in use.
struct Pool {
    here: Here,
    owner: u64,
    deposed: Rc<Deposed>,
    kept: Rc<Kept>,
    gate: Gate,
    superblock: Cell<Superblock>,
    /// The copies of the list, and one that joins from when the list with it counts.
    links: RefCell<Vec<Rc<Link>>>,
    /// A member is lost, and the list without it does not count yet: no sync is answered that is not on each member.
    is_held: Cell<bool>,
    /// It counts here.
    is_listed: Cell<bool>,
    /// From here on whoever lacks the claim is an image, and applications are served.
    has_begun: Cell<bool>,
    /// The last record, and its name.
    last: Cell<(u64, u64)>,
    /// What is answered, and what the origin has.
    answered: Cell<u64>,
    destaged: Cell<u64>,
}

/// A record that was handed to the copies.
struct Asked {
    /// The copies, and the sync that each owes.
    syncs: Vec<(Rc<Link>, u64)>,
    /// A lost member held up all answers by then: the copies that it went to may not be all that could take over.
    was_held: bool,
}

fn hello(superblock: &Superblock, made: Option<MemberNamed>, beside: Option<PeerRow>) -> Hello {
    let bytes = if made.is_some() { BYTES } else { 0 };
    Hello {
        versions: Versions::SPOKEN,
        durable: false,
        pool: POOL,
        member: made.unwrap_or_default(),
        owner: superblock.owner,
        epoch: superblock.epoch,
        bytes,
        beside: beside.map_or([0; 16], |row| row.name),
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
    // `invite`: the copies that the list has. A take-over has its own alone.
    let mut links = Vec::new();
    for row in superblock.peers.rows().filter(|_| takes.is_none()) {
        match Link::connect(here, row, hello(&superblock, None, None), deposed).await {
            Ok(connected) => links.push(connected),
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
    if found.is_some_and(|marker| !superblock.is_of(marker.last)) {
        return Err(Refusal::Image);
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
            world.lets_in(here.who.host);
        }
    });
    // `FoundPool::start`: the marker, if it still is as it was found.
    here.origin_answers().await;
    let claim = here.with(|world| world.draw());
    let used = Use {
        epoch: superblock.epoch + 1,
        id: Some(claim),
        before: Some(superblock.claim),
        earlier: Use::earlier_of_next(found.map(|marker| marker.last).as_ref(), None, superblock.claim),
        begun: false,
        stopped_at: None,
    };
    let marker = Marker { host: here.who.host, owner, members: superblock.members, last: used };
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
    // Who goes on with another list than it found has lost a member: of a take-over the old flash, else a copy.
    let mut now = Superblock { owner, epoch: used.epoch, claim, ..superblock };
    let is_settled = takes.is_none() && links.len() == superblock.peers.rows().count();
    if !is_settled {
        (now.members, now.peers) = (superblock.members + 1, Peers::of(links.iter().map(|link| link.row)));
    }
    let pool = Pool {
        here: here.clone(),
        owner,
        deposed: deposed.clone(),
        kept: kept.clone(),
        gate: Gate::new(here, owner, deposed),
        superblock: Cell::new(now),
        links: RefCell::new(links),
        is_held: Cell::new(!is_settled),
        is_listed: Cell::new(is_settled),
        has_begun: Cell::new(false),
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

    /// After a crash a copy may have less or more than the flash here.
    async fn bring_level(&self, chain: &BTreeMap<u64, Value>) {
        for link in self.links() {
            link.write(Load::Superblock(self.superblock.get()));
            for (number, value) in chain.range(self.destaged.get() + 1..) {
                link.write(Load::Record(*number, *value));
            }
            self.is_there_at(&link).await;
            link.write(Load::Tail);
            link.write(Load::Whole);
            self.is_there_at(&link).await;
            link.is_whole.set(!link.has_ended());
        }
    }

    fn links(&self) -> Vec<Rc<Link>> {
        self.links.borrow().clone()
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
                TermState::Stands if !self.has_begun.get() => continue,
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
            let write = |link: Rc<Link>| {
                link.write(Load::Record(number, value));
                let sync = link.sync();
                (link, sync)
            };
            let asked = Asked { syncs: self.links().into_iter().map(write).collect(), was_held: self.is_held.get() };
            // Flash and peers get it at once. Which one has it first is open.
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

    /// Waits until each copy has it, or until the list without those that have not counts.
    async fn is_there(&self, asked: Asked) {
        let early = self.here.with(|world| world.is_planted(PlantedHosts::AnswersBeforeRecord));
        let after_one = self.here.with(|world| world.is_planted(PlantedHosts::AnswersAfterOne));
        loop {
            let is_known = !self.is_held.get() || early && self.is_listed.get();
            let is_done = |(link, sync): &(Rc<Link>, u64)| link.is_done(*sync);
            let is_out = |link: &Rc<Link>| !self.links.borrow().iter().any(|now| Rc::ptr_eq(now, link));
            let all = asked.syncs.iter().all(is_done) || after_one && asked.syncs.iter().any(is_done);
            let none_lacks = asked.syncs.iter().all(|one| is_done(one) || is_out(&one.0));
            if all && !asked.was_held && !asked.syncs.is_empty() || none_lacks && is_known {
                return;
            }
            self.here.sleep_below(20).await;
        }
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
                for link in self.links() {
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
