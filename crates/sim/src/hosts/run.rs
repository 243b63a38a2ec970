//! A history of hosts, as its seed says: the processes and their tasks, what happens to them, and the end, at which
//! everything is whole again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Waker};

use headpond_base::Nanos;
use headpond_timed::Rng;

use crate::hosts::guard::guard;
use crate::hosts::host::{Device, Host, Program, Who};
use crate::hosts::keeper::settle;
use crate::hosts::mount::mount;
use crate::hosts::network::Place;
use crate::hosts::pool::formatted;
use crate::hosts::world::{Event, Here, Shared, Task, World};
use crate::planted_hosts::PlantedHosts;
use crate::scenario::Options;
use crate::{Failure, HistorySums};

/// Runs a seed.
pub(crate) fn run(seed: u64, options: &Options, planted: Option<PlantedHosts>) -> Result<HistorySums, Failure> {
    let world = Rc::new(RefCell::new(World::new(seed, planted, options.verbose)));
    world.borrow_mut().shared = Rc::downgrade(&world);
    let mut run = Run { world: Shared(world), tasks: BTreeMap::new(), next: 0 };
    let mut at = None;
    let result = run.all(seed, options, &mut at);
    run.tasks.clear();
    let summary = run.world.with(|world| world.summary);
    result.map(|()| summary).map_err(|what| Failure { seed, options: options.clone(), at, what })
}

struct Run {
    world: Shared,
    tasks: BTreeMap<u64, (Who, Task)>,
    next: u64,
}

const MILLI: u64 = Nanos::MILLISECOND.0;
const SECOND: u64 = Nanos::SECOND.0;

/// How long everything is whole at the end. Longer than all that a host waits for by itself.
const QUIET: u64 = 60 * SECOND;

impl Run {
    fn all(&mut self, seed: u64, options: &Options, at: &mut Option<u32>) -> Result<(), String> {
        self.world.with(|world| {
            world.hosts[0].flash = Some(Device::new(formatted()));
            (0..world.hosts.len()).for_each(|host| world.power_on(host));
        });
        let mut swarm = Rng::for_part(seed, u64::MAX - 41);
        // Of drains few have an effect.
        let more = |fault: &Fault| if matches!(fault, Fault::Drain) { 5 } else { 1 };
        let weights: Vec<u64> = FAULTS.iter().map(|fault| more(fault) * *swarm.pick(&[0, 1, 1, 4])).collect();
        let often = *swarm.pick(&[20, 60, 150]);
        // Some planted bugs show only where much comes together.
        let often = if self.world.with(|world| world.planted.is_some()) { 150 } else { often };
        let mut may_lose = swarm.chance(400);
        for index in 0..options.ops {
            if options.skip.iter().any(|range| range.contains(&index)) {
                continue;
            }
            *at = Some(index);
            let mut rng = Rng::for_part(seed, u64::from(index));
            if rng.chance(often) && weights.iter().sum::<u64>() > 0 {
                let fault = FAULTS[rng.weighted(&weights)];
                self.world.with(|world| world.suffer(fault, &mut rng));
            }
            if may_lose && rng.chance(10) {
                may_lose = false;
                self.world.with(|world| world.lose_something(&mut rng));
            }
            let until = self.world.with(|world| world.now) + rng.below(400 * MILLI);
            self.go_on(until)?;
        }
        *at = None;
        self.ends_well()
    }

    /// Everything is whole again, and nothing more happens: somebody goes on.
    fn ends_well(&mut self) -> Result<(), String> {
        let since = self.world.with(|world| {
            world.trace(|| "everything is whole again".to_owned());
            world.network.cuts.clear();
            world.network.slow_until = 0;
            if !world.etcd.is_up {
                world.etcd.starts_again(world.now);
            }
            // An operator starts all hosts anew.
            for host in 0..world.hosts.len() {
                world.power_off(host);
                world.power_on(host);
            }
            world.now
        });
        self.go_on(since + QUIET)?;
        self.world.with(|world| {
            let goes_on = world.promises.last_answer > since + QUIET / 2;
            if goes_on {
                world.summary.stops += 1;
            } else if world.excuses.is_empty() && world.promises.lost.is_empty() && !world.is_undecidable {
                let record = world.etcd.record().cloned();
                return Err(format!("everything is whole, and nobody goes on: {record:?}"));
            } else {
                world.summary.undecided += 1;
            }
            Ok(())
        })
    }

    fn go_on(&mut self, until: u64) -> Result<(), String> {
        loop {
            let next = self.world.with(|world| {
                let (when, _) = *world.events.first_key_value()?.0;
                if when > until {
                    return None;
                }
                world.now = when;
                world.summary.steps += 1;
                world.events.pop_first().map(|(_, event)| event)
            });
            let Some(event) = next else { break };
            match event {
                Event::Task(task) => self.poll(task),
                Event::Poke(who) => {
                    let tasks: Vec<u64> =
                        self.tasks.iter().filter(|(_, (of, _))| *of == who).map(|(task, _)| *task).collect();
                    tasks.into_iter().for_each(|task| self.poll(task));
                }
                Event::Start(host, program) => self.start(host, program),
                other => self.world.with(|world| world.happens(other)),
            }
            self.adopt();
            if let Some(what) = self.world.with(|world| world.broken.take()) {
                return Err(what);
            }
            if self.world.with(|world| world.is_undecidable) {
                return Ok(());
            }
        }
        self.world.with(|world| {
            world.now = world.now.max(until);
            world.summary.hash = headpond_timed::mix(world.summary.hash ^ world.summary.steps ^ world.now);
        });
        Ok(())
    }

    /// Takes in the tasks that were spawned, and polls each once.
    fn adopt(&mut self) {
        loop {
            let spawned = self.world.with(|world| std::mem::take(&mut world.spawned));
            if spawned.is_empty() {
                return;
            }
            for (who, task) in spawned {
                let number = self.next;
                self.next += 1;
                self.tasks.insert(number, (who, task));
                self.poll(number);
            }
        }
    }

    fn poll(&mut self, number: u64) {
        let Some((who, _)) = self.tasks.get(&number) else { return };
        let who = *who;
        let goes = self.world.with(|world| {
            let host = &mut world.hosts[who.host];
            if !host.is_alive(who) {
                return None;
            }
            if host.is_frozen(who.program) {
                host.life(who.program).deferred.push(number);
                return Some(false);
            }
            world.current = number;
            Some(true)
        });
        match goes {
            None => {
                // Its process is gone.
                self.tasks.remove(&number);
            }
            Some(false) => {}
            Some(true) => {
                let Some((_, task)) = self.tasks.get_mut(&number) else { return };
                if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    self.tasks.remove(&number);
                }
            }
        }
    }

    /// A supervisor starts a program, and starts it again when it ends.
    fn start(&mut self, host: usize, program: Program) {
        let who = self.world.with(|world| {
            let this = &mut world.hosts[host];
            let has_work = program != Program::Mount || this.flash.is_some();
            if !this.is_up || this.life(program).is_alive || !has_work {
                return None;
            }
            let life = this.life(program);
            (life.number, life.is_alive) = (life.number + 1, true);
            let number = life.number;
            if program == Program::Server {
                this.sessions = crate::hosts::host::Sessions::default();
            }
            Some(Who { host, program, life: number })
        });
        let Some(who) = who else { return };
        let here = Here { world: self.world.clone(), who };
        match program {
            Program::Server => here.spawn(settle(here.clone())),
            Program::Guard => {
                let runs = here.clone();
                here.spawn(async move {
                    guard(&runs).await;
                    runs.with(|world| world.ends_by_itself(runs.who));
                });
            }
            Program::Mount => {
                let runs = here.clone();
                here.spawn(async move {
                    let refusal = mount(&runs, None).await;
                    runs.trace(|| format!("the mount ends: {refusal:?}"));
                    runs.with(|world| world.ends_by_itself(runs.who));
                });
            }
        }
    }
}

/// What befalls hosts and network.
#[derive(Clone, Copy, Debug)]
enum Fault {
    CutOneWay,
    CutOff,
    Slow,
    Stop,
    Sleep,
    Kill,
    PowerCut,
    AllPowerCut,
    EtcdDown,
    /// A process is stopped for longer than its host is cut off: what it had sent arrives before it looks again.
    StopBehindCut,
    /// A process dies while its host is cut off, and the next one starts at once.
    KillBehindCut,
    /// A process is stopped while its questions are on their way: it reads the answers late.
    StopWhileSlow,
    /// What a host says arrives at etcd, and it hears nothing; its peers hear nothing from it.
    Deaf,
    /// The operator of a host wants its store empty, or does no more.
    Drain,
}

const FAULTS: [Fault; 14] = [
    Fault::CutOneWay,
    Fault::CutOff,
    Fault::Slow,
    Fault::Stop,
    Fault::Sleep,
    Fault::Kill,
    Fault::PowerCut,
    Fault::AllPowerCut,
    Fault::EtcdDown,
    Fault::StopBehindCut,
    Fault::KillBehindCut,
    Fault::StopWhileSlow,
    Fault::Deaf,
    Fault::Drain,
];

impl World {
    fn suffer(&mut self, fault: Fault, rng: &mut Rng) {
        let now = self.now;
        let host = rng.below(self.hosts.len() as u64) as usize;
        let program = *rng.pick(&[Program::Mount, Program::Mount, Program::Guard, Program::Guard, Program::Server]);
        // Most of what befalls the owner befalls nobody else.
        let (host, program) = self.owner().filter(|_| rng.chance(500)).unwrap_or((host, program));
        let long = MILLI * rng.below_one_of(&[300, 2_000, 9_000, 25_000]);
        let mut places = vec![Place::Etcd, Place::Origin];
        places.extend((0..self.hosts.len()).filter(|other| *other != host).map(Place::Host));
        self.trace(|| format!("{fault:?} of host {host} {program:?} for {} ms", long / MILLI));
        match fault {
            Fault::CutOneWay => {
                let other = *rng.pick(&places);
                let (from, to) = if rng.chance(500) { (Place::Host(host), other) } else { (other, Place::Host(host)) };
                self.trace(|| format!("cut {from:?} -> {to:?}"));
                self.network.cuts.insert((from, to), now + long);
            }
            Fault::CutOff => {
                places.retain(|_| rng.chance(600));
                self.trace(|| format!("cut off from {places:?}"));
                for other in places {
                    self.network.cuts.insert((Place::Host(host), other), now + long);
                    self.network.cuts.insert((other, Place::Host(host)), now + long);
                }
            }
            Fault::Slow => self.network.slow_until = now + long,
            Fault::Stop => self.stop(host, program, long),
            Fault::Sleep => {
                if self.hosts[host].is_up && !self.hosts[host].sleeps {
                    self.hosts[host].sleeps = true;
                    self.after(long, Event::Resume(host));
                }
            }
            Fault::Kill => self.kill(host, program, rng.below(2 * SECOND)),
            Fault::PowerCut => self.power_cut(host, long),
            Fault::AllPowerCut => {
                for host in 0..self.hosts.len() {
                    let more = rng.below(4 * SECOND);
                    self.power_cut(host, long + more);
                }
            }
            Fault::EtcdDown => {
                self.etcd.is_up = false;
                self.after(long, Event::EtcdStarts);
            }
            Fault::StopBehindCut => {
                self.cut_from_hosts(host, now + long);
                let more = rng.below(8 * SECOND);
                self.stop(host, program, long + more);
            }
            Fault::KillBehindCut => {
                let cut = SECOND + long.min(2 * SECOND);
                self.cut_from_hosts(host, now + cut);
                let wait = rng.below(SECOND);
                self.after(wait, Event::Kill(host, program, rng.below(SECOND / 5)));
                if rng.chance(300) {
                    let wait = cut + rng.below(4 * SECOND);
                    self.after(wait, Event::PowerOff(host, 15 * SECOND));
                }
            }
            Fault::StopWhileSlow => {
                self.network.slow_until = now + 5 * SECOND;
                let wait = rng.below(5 * SECOND);
                self.after(wait, Event::Stop(host, program, long + 4 * SECOND));
            }
            Fault::Deaf => {
                let until = now + long + 5 * SECOND;
                self.network.cuts.insert((Place::Etcd, Place::Host(host)), until);
                self.cut_from_hosts(host, until);
            }
            Fault::Drain => {
                let has_copy = |host: &Host| host.store.as_ref().is_some_and(|stored| !stored.removed);
                let of_use = |host: &&Host| host.drains || has_copy(host);
                let hosts: Vec<usize> = self.hosts.iter().filter(of_use).map(|host| host.index).collect();
                if !hosts.is_empty() {
                    let host = *rng.pick(&hosts);
                    self.hosts[host].drains = !self.hosts[host].drains;
                    self.trace(|| format!("host {host} is being drained: {}", self.hosts[host].drains));
                }
            }
        }
    }

    /// The host of the registry's owner, and the program that has the pool there.
    fn owner(&self) -> Option<(usize, Program)> {
        let record = self.etcd.record()?;
        let host = self.hosts.iter().find(|host| host.node().name == record.node.name)?;
        let lock = host.store.as_ref().and_then(|stored| stored.lock);
        let by_guard = lock.is_some_and(|lock| lock.program == Program::Guard);
        Some((host.index, if by_guard { Program::Guard } else { Program::Mount }))
    }

    fn stop(&mut self, host: usize, program: Program, long: u64) {
        let life = self.hosts[host].life(program);
        if life.is_alive && !life.is_stopped {
            life.is_stopped = true;
            let who = Who { host, program, life: life.number };
            self.after(long, Event::Thaw(who));
        }
    }

    fn kill(&mut self, host: usize, program: Program, pause: u64) {
        self.end(host, program);
        self.after(pause, Event::Start(host, program));
    }

    /// What this host sends to others waits.
    fn cut_from_hosts(&mut self, host: usize, until: u64) {
        for other in 0..self.hosts.len() {
            self.network.cuts.insert((Place::Host(host), Place::Host(other)), until);
        }
    }

    fn power_cut(&mut self, host: usize, long: u64) {
        self.power_off(host);
        self.after(long, Event::PowerOn(host));
    }

    /// A flash is lost, or a host for good.
    fn lose_something(&mut self, rng: &mut Rng) {
        let host = rng.below(self.hosts.len() as u64) as usize;
        let whole = rng.chance(500);
        self.trace(|| format!("host {host} loses {}", if whole { "all" } else { "its flash" }));
        if whole {
            self.power_off(host);
            self.hosts[host].is_gone = true;
        } else {
            self.end(host, Program::Mount);
            self.end(host, Program::Guard);
            self.end(host, Program::Server);
            self.after(SECOND, Event::Start(host, Program::Guard));
            self.after(SECOND, Event::Start(host, Program::Server));
        }
        (self.hosts[host].flash, self.hosts[host].store) = (None, None);
        self.excuse_what_is_lost();
        self.excuses.insert("a device was lost");
    }

    fn ends_by_itself(&mut self, who: Who) {
        if self.hosts[who.host].is_alive(who) {
            self.end(who.host, who.program);
            let delay = SECOND + self.rng.below(2 * SECOND);
            self.after(delay, Event::Start(who.host, who.program));
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::EtcdHears(who, call, ask) => self.etcd_hears(who, call, ask),
            Event::EtcdSays(call, said) => self.etcd_says(call, said),
            Event::Arrives(conn, at_peer) => self.arrives(conn, at_peer),
            Event::Lands(change) => self.lands(change),
            Event::PowerOn(host) => self.power_on(host),
            Event::Kill(host, program, pause) => self.kill(host, program, pause),
            Event::Stop(host, program, long) => self.stop(host, program, long),
            Event::PowerOff(host, long) => self.power_cut(host, long),
            Event::Resume(host) => {
                self.hosts[host].sleeps = false;
                self.trace(|| format!("host {host} wakes"));
                Program::ALL.into_iter().for_each(|program| self.thaw(host, program));
            }
            Event::Thaw(who) => {
                if self.hosts[who.host].is_alive(who) {
                    self.hosts[who.host].life(who.program).is_stopped = false;
                    self.trace(|| format!("host {} {:?} goes on", who.host, who.program));
                    self.thaw(who.host, who.program);
                }
            }
            Event::EtcdStarts => {
                let now = self.now;
                self.etcd.starts_again(now);
            }
            Event::Task(_) | Event::Poke(_) | Event::Start(..) => {}
        }
    }

    /// What was deferred goes on, in any order.
    fn thaw(&mut self, host: usize, program: Program) {
        if self.hosts[host].is_frozen(program) {
            return;
        }
        for task in std::mem::take(&mut self.hosts[host].life(program).deferred) {
            let delay = self.rng.below(MILLI);
            self.after(delay, Event::Task(task));
        }
    }
}
