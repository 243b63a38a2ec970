//! Power, and the ends of processes.
//!
//! Keeps true: what was synced survives the power, and what a kernel has survives a process.

use headpond_base::Nanos;

use crate::flash::Cut;
use crate::hosts::host::{Program, Who};
use crate::hosts::world::{Event, World};

impl World {
    pub(crate) fn power_on(&mut self, host: usize) {
        let now = self.now;
        let this = &mut self.hosts[host];
        if this.is_up || this.is_gone {
            return;
        }
        (this.is_up, this.sleeps, this.boot, this.booted_at) = (true, false, this.boot + 1, now);
        self.trace(|| format!("host {host} is switched on"));
        for program in Program::ALL {
            let delay = self.rng.below(2 * Nanos::SECOND.0);
            self.after(delay, Event::Start(host, program));
        }
    }

    /// A host loses power.
    pub(crate) fn power_off(&mut self, host: usize) {
        if !self.hosts[host].is_up {
            return;
        }
        self.trace(|| format!("host {host} loses power"));
        self.summary.crashes += 1;
        for program in Program::ALL {
            self.end(host, program);
        }
        let this = &mut self.hosts[host];
        this.is_up = false;
        let rng = &mut self.rng;
        if let Some(device) = &mut this.flash {
            device.flash.power_cut(Cut::Random, rng);
        }
        if let Some(stored) = &mut this.store {
            stored.device.flash.power_cut(Cut::Random, rng);
            (stored.lock, stored.held) = (None, None);
        }
        self.excuse_what_is_lost();
    }

    /// A process ends, however. Its kernel closes its connections, if it has power.
    pub(crate) fn end(&mut self, host: usize, program: Program) {
        let life = self.hosts[host].life(program);
        if !life.is_alive {
            return;
        }
        (life.is_alive, life.is_stopped) = (false, false);
        life.deferred.clear();
        let who = Who { host, program, life: life.number };
        // What it had on the way to its device may arrive, or not.
        let (this, rng) = (&mut self.hosts[host], &mut self.rng);
        match program {
            Program::Mount => this.flash.iter_mut().for_each(|device| device.flash.daemon_killed(rng)),
            _ => {
                let own = this.store.iter_mut().filter(|stored| stored.lock == Some(who));
                own.for_each(|stored| stored.device.flash.daemon_killed(rng));
            }
        }
        if let Some(stored) = &mut self.hosts[host].store {
            stored.lock = stored.lock.filter(|lock| *lock != who);
            stored.held = stored.held.filter(|held| *held != who);
        }
        for conn in 0..self.conns.len() {
            for at_peer in [false, true] {
                if self.conns[conn].ends[usize::from(at_peer)].who == Some(who) {
                    self.close(conn, at_peer);
                }
            }
        }
    }
}
