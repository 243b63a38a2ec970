//! What hosts share: time, the network, etcd, the origin, and the checks.
//!
//! Keeps true: events happen in the order of their times, and of two at one time the older comes first. What was handed
//! to a kernel goes on without the process that did it; what a host keeps in memory goes with its power.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use headpond_base::Nanos;
use headpond_timed::Rng;

use crate::HistorySums;
use crate::hosts::etcd::{Ask, Etcd, Said};
use crate::hosts::host::{Host, Program, Who};
use crate::hosts::network::{Conn, Network, Place};
use crate::hosts::promises::{Origin, Promises};
use crate::planted_hosts::PlantedHosts;

/// Work of a process.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// A task goes on.
    Task(u64),
    /// All tasks of a process look again.
    Poke(Who),
    EtcdHears(Who, u64, Ask),
    EtcdSays(u64, Said),
    /// The next frame of a connection arrives; true: at the peer's end.
    Arrives(usize, bool),
    /// A change reaches the origin.
    Lands(u64),
    /// A host is switched on.
    PowerOn(usize),
    /// A process is killed, and started again after this.
    Kill(usize, Program, u64),
    /// A process is stopped for so long.
    Stop(usize, Program, u64),
    /// A host is switched off for so long.
    PowerOff(usize, u64),
    /// A host that slept wakes.
    Resume(usize),
    /// A stopped process goes on.
    Thaw(Who),
    /// A supervisor starts a program.
    Start(usize, Program),
    EtcdStarts,
}

/// A question to etcd under way: who waits, and the answer.
struct Call {
    task: u64,
    said: Option<Said>,
}

/// Everything but the tasks.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) events: BTreeMap<(u64, u64), Event>,
    next: u64,
    pub(crate) hosts: Vec<Host>,
    pub(crate) etcd: Etcd,
    /// How much later than due a lease ends at most.
    late: u64,
    pub(crate) network: Network,
    pub(crate) conns: Vec<Conn>,
    pub(crate) origin: Origin,
    pub(crate) promises: Promises,
    pub(crate) planted: Option<PlantedHosts>,
    pub(crate) spawned: Vec<(Who, Task)>,
    /// The task that runs.
    pub(crate) current: u64,
    calls: BTreeMap<u64, Call>,
    /// The first broken promise.
    pub(crate) broken: Option<String>,
    /// Whether there is a program that fences.
    pub(crate) hook: bool,
    /// On how many other hosts the pool's owner wants copies.
    pub(crate) copies: usize,
    /// Why a history may end with nobody who goes on: what docs/decisions/0027-leases.md calls open.
    pub(crate) excuses: BTreeSet<&'static str>,
    /// A host lost power, and in the midst of its next start a peer, before what that alone had was brought over: reads may
    /// fail from then on.
    pub(crate) may_lack: bool,
    /// Nothing that happens from now on says anything.
    pub(crate) is_undecidable: bool,
    pub(crate) verbose: bool,
    pub(crate) summary: HistorySums,
    pub(crate) shared: Weak<RefCell<World>>,
}

/// A length of a lease, as the owner asks for it.
pub(crate) const LEASE: Nanos = Nanos(5 * Nanos::SECOND.0);

/// How far a clock may be from true time, in thousandths: two differ by up to a tenth.
const DRIFT: u64 = 45;

impl World {
    pub(crate) fn new(seed: u64, planted: Option<PlantedHosts>, verbose: bool) -> Self {
        let mut rng = Rng::for_part(seed, u64::MAX - 40);
        let count = *rng.pick(&[2, 2, 2, 3, 3, 4]);
        let copies = if count > 2 && rng.chance(500) { 2 } else { 1 };
        let mut rate = || 1000 - DRIFT + rng.below(2 * DRIFT + 1);
        let hosts = (0..count).map(|index| Host::new(index, rate())).collect();
        let etcd = Etcd::new(LEASE.0 * 1000 / rate());
        let late = *rng.pick(&[1, 100, 1000, 3000]) * Nanos::MILLISECOND.0;
        let hook = rng.chance(600);
        Self {
            now: 0,
            rng,
            events: BTreeMap::new(),
            next: 0,
            hosts,
            etcd,
            late,
            network: Network::default(),
            conns: Vec::new(),
            origin: Origin::new(),
            promises: Promises::default(),
            planted,
            spawned: Vec::new(),
            current: 0,
            calls: BTreeMap::new(),
            broken: None,
            hook,
            copies,
            excuses: BTreeSet::new(),
            may_lack: false,
            is_undecidable: false,
            verbose,
            summary: HistorySums::default(),
            shared: Weak::new(),
        }
    }

    /// A name that nothing else has.
    pub(crate) fn draw(&mut self) -> [u8; 16] {
        let mut drawn = [0; 16];
        drawn[..8].copy_from_slice(&self.rng.next().to_le_bytes());
        drawn
    }

    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{:>12.6} {}", self.now as f64 / 1e9, what());
        }
    }

    pub(crate) fn breaks(&mut self, what: impl FnOnce() -> String) {
        if self.broken.is_none() && !self.is_undecidable {
            let what = what();
            self.trace(|| format!("BROKEN {what}"));
            self.broken = Some(what);
        }
    }

    pub(crate) fn is_planted(&self, bug: PlantedHosts) -> bool {
        self.planted == Some(bug)
    }

    pub(crate) fn at(&mut self, when: u64, event: Event) {
        self.next += 1;
        self.events.insert((when.max(self.now), self.next), event);
    }

    pub(crate) fn after(&mut self, nanos: u64, event: Event) {
        self.at(self.now + nanos, event);
    }

    pub(crate) fn poke(&mut self, who: Who) {
        self.after(0, Event::Poke(who));
    }

    /// Asks etcd. The answer is waited for by [`World::answer`].
    fn ask(&mut self, who: Who, ask: Ask) -> u64 {
        self.next += 1;
        let call = self.next;
        self.calls.insert(call, Call { task: self.current, said: None });
        if self.network.passes(Place::Host(who.host), Place::Etcd, self.now) {
            let delay = self.network.delay(&mut self.rng);
            self.after(delay, Event::EtcdHears(who, call, ask));
        }
        call
    }

    pub(crate) fn etcd_hears(&mut self, who: Who, call: u64, ask: Ask) {
        if !self.etcd.is_up {
            return;
        }
        let late = self.rng.below(self.late);
        let shown = if self.verbose { format!("{ask:?}") } else { String::new() };
        let said = self.etcd.answer(ask, self.now, late);
        self.trace(|| format!("etcd  host {} {:?}: {shown} -> {said:?}", who.host, who.program));
        if self.network.passes(Place::Etcd, Place::Host(who.host), self.now) {
            let delay = self.network.delay(&mut self.rng);
            self.after(delay, Event::EtcdSays(call, said));
        }
    }

    pub(crate) fn etcd_says(&mut self, call: u64, said: Said) {
        if let Some(waiting) = self.calls.get_mut(&call) {
            waiting.said = Some(said);
            let task = waiting.task;
            self.after(0, Event::Task(task));
        }
    }
}

/// The world, as a task reaches it.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Rc<RefCell<World>>);

impl Shared {
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut World) -> R) -> R {
        act(&mut self.0.borrow_mut())
    }
}

/// A process, as its tasks see it.
#[derive(Clone)]
pub(crate) struct Here {
    pub(crate) world: Shared,
    pub(crate) who: Who,
}

/// How long etcd is waited for: `PATIENCE` of `registry/src/etcd.rs`.
const PATIENCE: Nanos = Nanos(800 * Nanos::MILLISECOND.0);

impl Here {
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut World) -> R) -> R {
        self.world.with(act)
    }

    /// The host's own part of the world.
    pub(crate) fn host<R>(&self, act: impl FnOnce(&mut Host) -> R) -> R {
        self.world.with(|world| act(&mut world.hosts[self.who.host]))
    }

    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        self.with(|world| {
            world.trace(|| format!("host {} {:?}: {}", self.who.host, self.who.program, what()));
        });
    }

    /// The clock that also counts while the machine sleeps.
    pub(crate) fn clock(&self) -> Nanos {
        self.with(|world| world.hosts[self.who.host].clock(world.now))
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let who = self.who;
        self.with(|world| world.spawned.push((who, Box::pin(task))));
    }

    pub(crate) async fn sleep(&self, nanos: Nanos) {
        self.wait(nanos, |_| None::<()>).await;
    }

    /// Sleeps for some milliseconds below this.
    pub(crate) async fn sleep_below(&self, millis: u64) {
        let nanos = self.with(|world| Nanos(world.rng.below(millis * Nanos::MILLISECOND.0)));
        self.sleep(nanos).await;
    }

    /// Waits for something, but not longer than this by the host's clock.
    pub(crate) async fn wait<T, F>(&self, patience: Nanos, found: F) -> Option<T>
    where
        F: FnMut(&mut World) -> Option<T> + Unpin,
    {
        let until = self
            .with(|world| world.now.saturating_add(patience.0.saturating_mul(1000) / world.hosts[self.who.host].rate));
        Wait { world: self.world.clone(), until, is_armed: false, found }.await
    }

    /// Asks etcd. None without an answer in time.
    pub(crate) async fn ask(&self, ask: Ask) -> Option<Said> {
        let call = self.with(|world| world.ask(self.who, ask));
        let said = self.wait(PATIENCE, move |world| world.calls.get_mut(&call)?.said.take()).await;
        self.with(|world| world.calls.remove(&call));
        said
    }
}

/// Waits, until a time at most.
struct Wait<F> {
    world: Shared,
    until: u64,
    is_armed: bool,
    found: F,
}

impl<T, F: FnMut(&mut World) -> Option<T> + Unpin> Future for Wait<F> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Option<T>> {
        let this = &mut *self;
        let mut world = this.world.0.borrow_mut();
        if let Some(found) = (this.found)(&mut world) {
            return std::task::Poll::Ready(Some(found));
        }
        if world.now >= this.until {
            return std::task::Poll::Ready(None);
        }
        if !std::mem::replace(&mut this.is_armed, true) {
            let task = world.current;
            world.at(this.until, Event::Task(task));
        }
        std::task::Poll::Pending
    }
}
