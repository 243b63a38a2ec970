//! A mount: it takes a pool into use, serves, and destages.
//!
//! The steps are those of `control/src/life/pool.rs`, in their order: lease, peers, recovery, marker, service. A change there
//! needs the same change here. The engine between them and the devices is the real one.
//!
//! | file | what it is |
//! | --- | --- |
//! | `serving` | the engine, and what it asks of devices, peers and the origin |
//! | `application` | what writes, syncs and reads |
//! | `members` | copies that are made and let go |

mod application;
mod members;
mod serving;

use std::rc::Rc;

use headpond_base::{MemberId, Nanos, OwnerNumber};
use headpond_claim::ownership::Use;
use headpond_engine::{Engine, Mutation, OpenFile, OpenObject, Recovered, Verdict};
use headpond_format::Superblock;
use headpond_peer::{Hello, MemberNamed, Versions};

use crate::flash::SimFlash;
use crate::hosts::gate::Gate;
use crate::hosts::host::{Device, PeerRow, Program};
use crate::hosts::kept::{Deposed, Kept};
use crate::hosts::link::{Link, Trouble};
use crate::hosts::pool::{self, BYTES, POOL, is_copy, known_members};
use crate::hosts::promises::Marker;
use crate::hosts::world::{Here, World};
use crate::planted_hosts::PlantedHosts;

use serving::Serving;

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
    /// Others changed the file at the origin.
    Conflict,
}

fn hello(superblock: &Superblock, made: Option<MemberNamed>, beside: Option<MemberNamed>) -> Hello {
    let bytes = if made.is_some() { BYTES } else { 0 };
    Hello {
        versions: Versions::SPOKEN,
        durable: false,
        pool: POOL,
        member: made.unwrap_or_default(),
        owner: superblock.owner.0,
        epoch: superblock.epoch.0,
        bytes,
        beside: beside.unwrap_or_default(),
    }
}

impl Here {
    /// The device that a mount of this process has: the host's flash, or the copy that it took over.
    fn device<R>(&self, act: impl FnOnce(&mut Device) -> R) -> Option<R> {
        self.with(|world| world.device(self).map(act))
    }
}

impl World {
    fn device(&mut self, of: &Here) -> Option<&mut Device> {
        let host = &mut self.hosts[of.who.host];
        match of.who.program {
            Program::Mount => host.flash.as_mut(),
            _ => host.store.as_mut().filter(|stored| stored.lock == Some(of.who)).map(|stored| &mut stored.device),
        }
    }
}

/// Compares what the pool knows of the file with what the origin has. False if others changed it.
pub(crate) fn settle(recovered: &mut Recovered, found: &OpenFile) -> bool {
    let found = OpenObject::File(found.clone());
    let objects = recovered.objects();
    objects.iter().all(|known| !matches!(recovered.reconcile(known.object, Some(&found)), Verdict::Conflict(_)))
}

/// Takes the pool into use, and serves for as long as the process lives. With `takes` it has taken the pool over, under
/// this number.
pub(crate) async fn mount(here: &Here, takes: Option<u64>) -> Refusal {
    match start(here, takes).await {
        Err(refusal) => refusal,
        Ok(serving) => {
            let [one, two, three] = [(); 3].map(|()| serving.clone());
            here.spawn(async move { one.keep_time().await });
            here.spawn(async move {
                two.begin().await;
                two.keep_members().await;
            });
            here.spawn(async move { three.keep_watch().await });
            serving.run_application().await
        }
    }
}

async fn start(here: &Here, takes: Option<u64>) -> Result<Rc<Serving>, Refusal> {
    // `FoundPool::find`.
    here.origin_answers().await;
    let found = here.with(|world| world.origin.marker);
    let superblock = here.device(|device| device.superblock()).flatten().ok_or(Refusal::NoPool)?;
    let deposed = Deposed::new();
    let owner = takes.unwrap_or(superblock.owner.0);
    // What was read may be in the device's memory alone: the registry must not know more than a start after a power cut.
    if !here.with(|world| world.is_planted(PlantedHosts::TellsUnsynced)) {
        here.sleep_below(5).await;
        here.device(Device::sync);
    }
    let kept = Kept::take(here, owner, known_members(&superblock), &deposed).await.map_err(|why| {
        here.trace(|| format!("the lease cannot be had: {why:?}"));
        Refusal::Lease
    })?;
    match recover(here, takes, found, owner, &deposed, &kept).await {
        Ok(serving) => Ok(serving),
        Err(refusal) => {
            kept.give_back().await;
            Err(refusal)
        }
    }
}

/// `HeldFlashes::invite`: the copies that other hosts have. A take-over has its own alone.
async fn invite(here: &Here, newest: &Superblock) -> Result<Vec<Rc<Link>>, Refusal> {
    let mut links = Vec::new();
    if !newest.members.iter().any(|(_, row)| row.keeps_copies()) {
        return Ok(links);
    }
    let hosts = here.with(|world| world.hosts.len());
    for host in (0..hosts).filter(|host| *host != here.who.host) {
        let row = PeerRow { host, name: MemberNamed::default() };
        match Link::connect(here, row, hello(newest, None, None)).await {
            Ok(link) => {
                let there = here.with(|world| world.copy_at(link.row).and_then(pool::superblock_of));
                if there.is_some_and(|there| is_copy(&newest.members, &there)) {
                    links.push(link);
                } else {
                    link.close();
                }
            }
            Err(Trouble::Deposed) => return Err(Refusal::Deposed),
            Err(Trouble::NotKept | Trouble::Away) => {}
        }
    }
    Ok(links)
}

impl World {
    /// The file of a copy.
    fn copy_at(&self, row: PeerRow) -> Option<&SimFlash> {
        let stored = self.hosts[row.host].store.as_ref().filter(|stored| stored.member == row.name);
        stored.map(|stored| &stored.device.flash)
    }
}

/// What a start has read.
struct Found {
    recovered: Recovered,
    own: MemberId,
    links: Vec<(MemberId, Rc<Link>)>,
}

/// Reads the pool, from the own device and from those of the peers. All at one moment: no one else writes there, unless a
/// promise is broken.
fn read(here: &Here, links: Vec<Rc<Link>>) -> Result<Found, Refusal> {
    let read = here.with(|world| {
        let own = world.device(here).map(|device| device.flash.clone()).ok_or(Refusal::NoPool)?;
        let here_too = links.into_iter().filter(|link| !link.has_ended() && world.copy_at(link.row).is_some());
        let links: Vec<Rc<Link>> = here_too.collect();
        let copies = links.iter().filter_map(|link| world.copy_at(link.row));
        let devices: Vec<&SimFlash> = std::iter::once(&own).chain(copies).collect();
        let planted = world.is_planted(PlantedHosts::AnswersAfterOne).then_some(Mutation::HereForAll);
        match pool::read(&devices, planted) {
            Ok(read) => Ok((read, links)),
            Err(why) => {
                world.trace(|| format!("the pool cannot be read: {why}"));
                Err(Refusal::MemberMissing)
            }
        }
    });
    let (pool::Read { recovered, members }, links) = read?;
    let own = members[0].ok_or(Refusal::MemberMissing)?;
    let mut known = Vec::new();
    for (link, member) in links.into_iter().zip(&members[1..]) {
        match member {
            Some(member) => known.push((*member, link)),
            // It is old, and nothing on it counts.
            None => link.close(),
        }
    }
    Ok(Found { recovered, own, links: known })
}

async fn recover(
    here: &Here,
    takes: Option<u64>,
    found: Option<Marker>,
    owner: u64,
    deposed: &Rc<Deposed>,
    kept: &Rc<Kept>,
) -> Result<Rc<Serving>, Refusal> {
    let newest = here.device(|device| device.superblock()).flatten().ok_or(Refusal::NoPool)?;
    let links = if takes.is_some() { Vec::new() } else { invite(here, &newest).await? };
    // `make_ready`.
    here.sleep_below(1500).await;
    let Found { mut recovered, own, links } = read(here, links)?;
    let superblock = recovered.superblock().clone();
    if found.is_some_and(|marker| marker.owner > owner.max(superblock.owner.0)) {
        return Err(Refusal::Deposed);
    }
    if found.is_some_and(|marker| marker.members > superblock.members.generation()) {
        return Err(Refusal::MemberMissing);
    }
    if found.is_some_and(|marker| !pool::is_of(&superblock, marker.last)) {
        return Err(Refusal::Image);
    }
    here.origin_answers().await;
    let (host, boot) = here.host(|host| (host.index, host.boot));
    let mut booted = [0; 16];
    (booted[0], booted[8]) = (host as u8 + 1, boot as u8);
    recovered.booted(booted);
    let (file, marker) = here.with(|world| (world.origin.found(), world.origin.marker));
    if !settle(&mut recovered, &file) {
        // A start that slept over a take-over finds what the new owner wrote, and is refused either way.
        if marker == found {
            here.with(|world| world.breaks(|| format!("host {host} finds that others changed the file: {file:?}")));
        }
        return Err(Refusal::Conflict);
    }
    // A node that was fenced before is let in again by the operator, or by the program, once it is the owner: who only
    // hears late that it had the lease is not.
    here.with(|world| {
        let node = world.hosts[here.who.host].node();
        if world.etcd.has_lease(&node) {
            world.lets_in(here.who.host);
        }
    });
    let claim = here.with(|world| world.draw());
    let used = Use {
        epoch: recovered.epoch().0,
        id: Some(claim),
        before: Some(superblock.claim),
        earlier: Use::earlier_of_next(found.map(|marker| marker.last).as_ref(), None, superblock.claim),
        begun: false,
        stopped_at: None,
    };
    recovered.claim(claim);
    recovered.owned_by(OwnerNumber(owner));
    // `FoundPool::start`: the marker, if it still is as it was found.
    here.origin_answers().await;
    let marker = Marker { host, owner, members: known_members(&superblock), last: used };
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
    let gate = Gate::new(here, owner, deposed);
    Ok(Serving::start(here, recovered, own, links, gate, kept, deposed, marker))
}

impl Serving {
    /// `begin` of `control/src/life/pool.rs`: says beside the origin that each member has the claim. By then the list
    /// counts, without those that are not here.
    async fn begin(self: &Rc<Self>) {
        if self.here.with(|world| world.is_planted(PlantedHosts::BeginsEarly)) {
            self.say_begun().await;
        }
        self.settled().await;
        let stats = self.look(Engine::stats);
        if stats.checkpoints > 0 && stats.flash_failed == 0 {
            self.say_begun().await;
        }
        self.has_begun.set(true);
    }

    async fn say_begun(&self) {
        self.here.origin_answers().await;
        let Marker { host, owner, last, .. } = self.marker;
        self.here.with(|world| match &mut world.origin.marker {
            Some(marker) if (marker.host, marker.owner, marker.last.id) == (host, owner, last.id) => {
                marker.last.begun = true;
                let members = marker.members;
                world.no_heir_is_refused(members);
            }
            _ => {}
        });
    }

    /// `keep_watch` of `life/pool.rs`: a loss becomes known also without changes.
    async fn keep_watch(&self) {
        loop {
            self.here.sleep(Nanos(2 * Nanos::SECOND.0)).await;
            self.gate.pass().await;
        }
    }
}
