//! The rounds, one after the other, on one pool and one database.
//!
//! Invariants
//! - A round begins with all that is dirty on both hosts, a guard that watches, and a database under load.
//! - A round ends with a database whose ledgers were verified, and with no process on the host that was replaced.
//! - Each host has clients of its own: those of an old owner never write a ledger that those of the new one write.

use super::events::{Event, Fenced};
use super::host::{Owner, Second, Site};
use super::network::{Node, Wire};
use super::pulse::{Pulse, number_at};
use super::registry::Etcd;
use super::told::{Pause, Round};
use super::{Options, failed};
use crate::database::{Database, Places};
use crate::failure::{Failure, Result};
use crate::ledger::{LedgerFound, Ledgers, RunningClients};
use crate::loaded_database::{Look, watch};
use crate::pond::{Headpond, directory_in};
use crate::random::below;
use crate::server_errors::ServerErrors;
use crate::service::Service;
use rustix::process::Signal;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Clients that keep a ledger, on each host.
const CLIENTS: u32 = 4;
/// Transactions that are to come before a round goes on.
const SOME: u64 = 20;
/// How long anything may take, on a slow and busy machine, before it counts as stuck.
const STUCK: Duration = Duration::from_secs(120);
/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(50);
/// An event comes so long after its load began, in milliseconds.
const EARLIEST: u64 = 200;
const LATEST: u64 = 1200;
/// The registry is away for so long at most, in milliseconds: a good deal longer than a lease lasts.
const REGISTRY_AWAY: u64 = 8000;

/// Two hosts at work. Dropped, every process on them ends first.
pub(super) struct Chain {
    random: u64,
    ledgers: Ledgers,
    /// Stores of copies so far.
    stores: u32,
    database: Option<Box<dyn Database>>,
    pulse: Pulse,
    second: Option<Second>,
    owner: Owner,
    etcd: Etcd,
    site: Site,
}

/// What uses the owner's database.
struct Load {
    clients: RunningClients,
    load: Service,
    errors: ServerErrors,
}

impl Load {
    fn start(site: &Site, node: Node, database: &dyn Database, ledgers: &Ledgers) -> Result<Self> {
        let places = site.places(node);
        let errors = ServerErrors::from_now_on(&places.run)?;
        let clients = ledgers.start_some(database, clients_of(node))?;
        let load = database.load(&places)?;
        clients.wait_for(SOME)?;
        Ok(Self { clients, load, errors })
    }

    /// Clients and load end early only if the database has failed them.
    fn look(&mut self) -> Result<()> {
        self.load.ended()?;
        self.clients.ended().map_or(Ok(()), |words| Err(failed(format!("a client met an error: {words}"))))
    }

    /// Ends it in order. Returns how many transactions there were.
    fn end(mut self) -> Result<u64> {
        self.look()?;
        self.errors.none()?;
        self.load.terminate(STUCK)?;
        self.clients.stop_within(STUCK)
    }

    /// Ends it once its database is gone.
    fn cut_off(mut self) -> Result<u64> {
        self.load.kill();
        self.clients.join()
    }
}

fn clients_of(node: Node) -> Range<u32> {
    match node {
        Node::Db1 | Node::Witness => 0..CLIENTS,
        Node::Db2 => CLIENTS..2 * CLIENTS,
    }
}

impl Chain {
    /// Makes the hosts, and the database on the first of them.
    pub(super) fn begin(headpond: &Headpond, directory: &Path, options: &Options) -> Result<Self> {
        let site = Site::make(headpond, directory, options.kind)?;
        let etcd = Etcd::start(&site.network, directory_in(directory, "witness")?)?;
        let owner = site.mount(Node::Db1, site.first_flash(Node::Db1))?;
        let database = site.create_database(Node::Db1)?;
        let ledgers = Ledgers::new(directory_in(directory, "ledgers")?, 2 * CLIENTS);
        ledgers.create_tables(&*database)?;
        database.fill()?;
        let pulse = Pulse::start(&site.mountpoint(Node::Db1));
        let (random, second, database) = (options.seed, None, Some(database));
        Ok(Self { random, ledgers, stores: 0, database, pulse, second, owner, etcd, site })
    }

    /// One round.
    pub(super) fn round(&mut self, event: Event) -> Result<Round> {
        self.protect(event)?;
        // Little or much is on its way to the origin when it happens.
        let period = ["flush-period=1s", "flush-period=12h"][below(&mut self.random, 2) as usize];
        self.owner.mount.set(&[period])?;
        let mut load = Load::start(&self.site, self.owner.node, self.database()?, &self.ledgers)?;
        let moment = EARLIEST + below(&mut self.random, LATEST - EARLIEST);
        watch(Duration::from_millis(moment), &mut || load.look())?;
        if event.deposes() { self.take_over(event, load) } else { self.go_on(event, load) }
    }

    fn database(&self) -> Result<&dyn Database> {
        self.database.as_deref().ok_or_else(|| failed("there is no database".to_owned()))
    }

    /// Has the second host keep a copy, and guard.
    fn protect(&mut self, event: Event) -> Result<()> {
        let node = self.owner.node.other();
        let (server, store) = if let Some(Second { server, guard, store, .. }) = self.second.take() {
            drop(guard);
            (server, store)
        } else {
            self.stores += 1;
            let store = self.site.store(node, self.stores);
            let server = self.site.serve(node, &store)?;
            self.site.add_peer(&self.owner, node)?;
            self.wait_for_copy(&mut || Ok(()))?;
            (server, store)
        };
        let guard = self.site.guard(node, &store, event)?;
        self.second = Some(Second { node, server, guard, store });
        Ok(())
    }

    /// Waits until all that is dirty has its copy.
    fn wait_for_copy(&self, look: Look<'_>) -> Result<()> {
        let mount = &self.owner.mount;
        until(look, "the second host has a copy", || Ok(mount.pool_state()? == "ONLINE"))?;
        let mut wait = mount.begin_pool_wait(&self.site.log(self.owner.node, "pool-wait"))?;
        until(look, "all that is dirty has its copy", || wait.ended())
    }

    /// An event that takes the pool from its owner.
    fn take_over(&mut self, event: Event, load: Load) -> Result<Round> {
        let (old, site) = (self.owner.node, &self.site);
        let new = old.other();
        let Some(mut second) = self.second.take() else { return Err(failed("there is no second host".to_owned())) };
        let start = Instant::now();
        self.happen(event)?;
        second.guard.wait_until_it_answers(STUCK)?;
        let mounted = start.elapsed();
        let pulse = Pulse::start(&site.mountpoint(new));
        let database = site.start_database(new)?;
        let queried = start.elapsed();
        let first = self.ledgers.start_some(&*database, clients_of(new))?;
        first.wait_for(1)?;
        let answered = start.elapsed();
        let mut committed = first.stop_within(STUCK)?;
        // What the old owner's clients were told, whether it is dead or stands still.
        database.check()?;
        self.ledgers.verify(&*database)?;
        until(&mut || Ok(()), "a synced write is answered on the new host", || Ok(pulse.is_answered()))?;
        let load = if event.goes_on() {
            let mut next = Load::start(site, new, &*database, &self.ledgers)?;
            self.come_back(event, &load, &mut || next.look())?;
            committed += next.end()?;
            load
        } else {
            load
        };
        site.network.kill(old)?;
        committed += load.cut_off()?;
        let old_database = self.database.replace(database);
        if let Some(database) = old_database {
            database.kill();
        }
        for wire in [Wire::between(old, new), Wire::between(old, Node::Witness)] {
            site.network.mend(wire)?;
        }
        let flash = site.copy_in(&second.store)?;
        let next = Owner { node: new, mount: second.guard, flash };
        let before = std::mem::replace(&mut self.owner, next);
        let seen = std::mem::replace(&mut self.pulse, pulse).stop()?;
        let apart = seen.before(&self.pulse.seen())?;
        if event == Event::OwnerKilled {
            site.comes_back_to_nothing(&before)?;
        }
        drop(second.server);
        self.discard(before)?;
        if event.goes_on() {
            self.origin_has_what_is_served()?;
        }
        let (found, checked) = self.verify()?;
        let pause = Pause::TakeOver { mounted, queried, answered, apart };
        Ok(Round { event, hosts: (old.name(), new.name()), pause, committed, found, checked })
    }

    /// Does what an event is to the owner.
    fn happen(&self, event: Event) -> Result<()> {
        let Owner { node, flash, .. } = &self.owner;
        let network = &self.site.network;
        let to_peer = Wire::between(*node, node.other());
        let to_registry = Wire::between(*node, Node::Witness);
        match event {
            Event::OwnerLost => {
                network.kill(*node)?;
                fs::remove_file(flash).map_err(Failure::io("losing the flash"))
            }
            Event::OwnerKilled => network.kill(*node),
            Event::OwnerStopped(Fenced::Off) => network.signal(*node, Signal::STOP),
            Event::OwnerStopped(Fenced::GoesOn) => network.stop_between_changes(*node),
            Event::CutFromRegistry(_) => network.cut(to_registry),
            Event::CutFromBoth(_) => network.cut(to_registry).and_then(|()| network.cut(to_peer)),
            Event::CutFromPeer => network.cut(to_peer),
            Event::RegistryUnheard => network.cut_one_way(Node::Witness, *node),
            Event::PeerUnheard => network.cut_one_way(node.other(), *node),
            Event::OwnerUnheard => network.cut_one_way(*node, node.other()),
            Event::PeerKilled | Event::RegistryKilled => Ok(()),
        }
    }

    /// The old owner, which nobody fenced, is let go on. It must find that it is none.
    fn come_back(&self, event: Event, load: &Load, look: Look<'_>) -> Result<()> {
        let old = self.owner.node;
        match event {
            Event::OwnerStopped(Fenced::GoesOn) => self.site.network.signal(old, Signal::CONT)?,
            _ => {
                self.site.network.mend(Wire::between(old, Node::Witness))?;
                self.site.network.mend(Wire::between(old, old.other()))?;
            }
        }
        until(look, "the old owner fails a synced write", || Ok(self.pulse.has_failed()))?;
        self.pulse.serves_nothing()?;
        let said = self.owner.mount.status_shown()?;
        if !said.contains("LOST") {
            return Err(failed(format!("the old owner does not say that it has lost the pool:\n{said}")));
        }
        until(look, "the old owner's database fails a client", || Ok(load.clients.ended().is_some()))
    }

    /// Removes what the replaced host had.
    fn discard(&self, before: Owner) -> Result<()> {
        let Owner { node, mount, flash } = before;
        mount.kill();
        // The first owner's is a file of its own; the others' lie in the store in which they were copies.
        let kept = if flash == self.site.first_flash(node) { &*flash } else { flash.parent().unwrap_or(&flash) };
        let removed = if kept.is_dir() { fs::remove_dir_all(kept) } else { fs::remove_file(kept) };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::io(format!("removing {}", kept.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// An event that the owner bears.
    fn go_on(&mut self, event: Event, mut load: Load) -> Result<Round> {
        let node = self.owner.node;
        let Some(mut second) = self.second.take() else { return Err(failed("there is no second host".to_owned())) };
        self.happen(event)?;
        match event {
            Event::RegistryKilled => {
                self.etcd.kill();
                let away = below(&mut self.random, REGISTRY_AWAY);
                watch(Duration::from_millis(away), &mut || load.look())?;
                self.etcd.start_again(&self.site.network)?;
            }
            _ => {
                if event == Event::PeerKilled {
                    second.server.kill();
                }
                let mount = &self.owner.mount;
                until(&mut || load.look(), "the copy is lost", || Ok(mount.pool_state()? == "DEGRADED"))?;
                load.clients.wait_for(load.clients.committed() + SOME)?;
                if event == Event::PeerKilled {
                    second.server = self.site.serve(second.node, &second.store)?;
                } else {
                    self.site.network.mend(Wire::between(node, node.other()))?;
                }
            }
        }
        until(&mut || load.look(), "the owner has its lease", || Ok(self.owner.mount.lease()? == "held"))?;
        load.clients.wait_for(load.clients.committed() + SOME)?;
        self.wait_for_copy(&mut || load.look())?;
        if second.guard.is_mounted() || !second.guard.is_held() {
            return Err(failed(format!("{event}: the second host has deposed the owner, or has given up")));
        }
        if let Some(error) = self.pulse.seen().error() {
            return Err(failed(format!("{event}: a synced write failed: {error}")));
        }
        let pause = Pause::Longest(load.clients.longest());
        let committed = load.end()?;
        self.second = Some(second);
        let (found, checked) = self.verify()?;
        if found.unseen > 0 && self.no_take_over_yet() {
            return Err(failed(format!("{} transactions were committed, and no client was told", found.unseen)));
        }
        Ok(Round { event, hosts: (node.name(), node.name()), pause, committed, found, checked })
    }

    /// A client may lose the answer of a commit together with its host.
    const fn no_take_over_yet(&self) -> bool {
        self.stores <= 1
    }

    fn verify(&self) -> Result<(LedgerFound, usize)> {
        let database = self.database()?;
        let checked = database.check()?;
        Ok((self.ledgers.verify(database)?, checked))
    }

    /// The database stands still. Whatever the owner serves is what the origin has after a flush: nothing of another
    /// host reached it.
    fn origin_has_what_is_served(&mut self) -> Result<()> {
        let node = self.owner.node;
        if let Some(database) = self.database.take() {
            database.stop()?;
        }
        self.owner.mount.flush()?;
        same_tree(&self.site.places(node).data, &self.site.origin.join("data"))?;
        self.database = Some(self.site.start_database(node)?);
        Ok(())
    }

    /// Brings everything to the origin, and looks there without headpond.
    pub(super) fn end(mut self) -> Result<()> {
        // The guard first: then nobody follows whatever happens.
        drop(self.second.take());
        let (found, _) = self.verify()?;
        if let Some(database) = self.database.take() {
            database.stop()?;
        }
        let seen = self.pulse.stop()?;
        if let Some(error) = seen.error() {
            return Err(failed(format!("a synced write failed: {error}")));
        }
        self.owner.mount.take_down(&[])?;
        let places = Places { data: self.site.origin.join("data"), run: self.site.places(self.owner.node).run };
        let database = self.site.kind.start(&places)?;
        database.check()?;
        let at_origin = self.ledgers.verify(&*database)?;
        database.stop()?;
        if at_origin != found {
            return Err(failed("the origin has other transactions than the mount had".to_owned()));
        }
        seen.is_last(number_at(&self.site.origin)?)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // Whatever waits for a mount of theirs ends then.
        for node in [Node::Db1, Node::Db2, Node::Witness] {
            let _ = self.site.network.kill(node);
        }
    }
}

/// Waits until something is so. An answer that does not come is asked for again: the host may stand still just now.
pub(super) fn until(look: Look<'_>, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    loop {
        match is_so() {
            Ok(true) => return Ok(()),
            Err(failure) if start.elapsed() > STUCK => return Err(failure),
            Ok(false) if start.elapsed() > STUCK => return Err(failed(format!("it does not come to this: {what}"))),
            Ok(false) | Err(_) => watch(LOOK, look)?,
        }
    }
}

/// Whether two directories have the same files.
fn same_tree(one: &Path, other: &Path) -> Result<()> {
    let names = |directory: &Path| {
        let entries = fs::read_dir(directory).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut names: Vec<_> = entries
            .map_err(Failure::io(format!("reading {}", directory.display())))?
            .iter()
            .map(|entry| entry.file_name())
            .collect();
        names.sort_unstable();
        Ok::<_, Failure>(names)
    };
    let differ = |what: &Path| Err(failed(format!("{} is not what the origin has", what.display())));
    let found = names(one)?;
    if found != names(other)? {
        return differ(one);
    }
    for name in found {
        let (a, b) = (one.join(&name), other.join(&name));
        if a.is_dir() {
            same_tree(&a, &b)?;
        } else if a.is_file() {
            let read = |path: &Path| fs::read(path).map_err(Failure::io(format!("reading {}", path.display())));
            if read(&a)? != read(&b)? {
                return differ(&a);
            }
        }
    }
    Ok(())
}
