//! What arrives over a connection, when, and what does not.
//!
//! Keeps true: a connection's bytes arrive in order, or not at all, also those of an end that is gone.

use headpond_base::Nanos;

use crate::hosts::host::{Program, Who};
use crate::hosts::network::{Conn, ConnEnd, Frame, Place};
use crate::hosts::world::{Event, World};

impl World {
    /// Connects with a host. The first frame tells whether somebody is there.
    pub(crate) fn connect(&mut self, who: Who, to: usize) -> usize {
        let mut ends = [ConnEnd::default(), ConnEnd::default()];
        ends[0].who = Some(who);
        self.conns.push(Conn { hosts: [who.host, to], ends });
        self.conns.len() - 1
    }

    /// Sends from the peer's end, or from the owner's.
    pub(crate) fn send(&mut self, conn: usize, from_peer: bool, frame: Frame) {
        if self.conns[conn].ends[usize::from(from_peer)].is_closed {
            return;
        }
        self.conns[conn].ends[usize::from(!from_peer)].coming.push_back(frame);
        let delay = self.network.delay(&mut self.rng);
        self.after(delay, Event::Arrives(conn, !from_peer));
    }

    /// One end lets the connection go. What it has sent still arrives.
    pub(crate) fn close(&mut self, conn: usize, from_peer: bool) {
        let end = &mut self.conns[conn].ends[usize::from(from_peer)];
        if std::mem::replace(&mut end.is_closed, true) {
            return;
        }
        let has_power = end.who.is_some_and(|who| self.hosts[who.host].is_up);
        self.conns[conn].ends[usize::from(from_peer)].who = None;
        if has_power {
            self.conns[conn].ends[usize::from(!from_peer)].coming.push_back(Frame::END);
            let delay = self.network.delay(&mut self.rng);
            self.after(delay, Event::Arrives(conn, !from_peer));
        }
    }

    /// The next frame arrives.
    pub(crate) fn arrives(&mut self, conn: usize, at_peer: bool) {
        let [from, to] =
            if at_peer { self.conns[conn].hosts } else { [self.conns[conn].hosts[1], self.conns[conn].hosts[0]] };
        let now = self.now;
        if !self.network.passes(Place::Host(from), Place::Host(to), now) {
            // It is sent again until it passes.
            let until = self.network.cut_until(Place::Host(from), Place::Host(to));
            let delay = self.rng.below(2 * Nanos::SECOND.0);
            return self.at(until + delay, Event::Arrives(conn, at_peer));
        }
        // What nobody waits for any more the kernel sends again and again, with longer and longer pauses.
        if self.conns[conn].ends[usize::from(!at_peer)].is_closed && self.rng.chance(500) {
            let delay = self.rng.below(4 * Nanos::SECOND.0);
            return self.after(delay, Event::Arrives(conn, at_peer));
        }
        let (is_up, server) = {
            let host = &mut self.hosts[to];
            let life = host.life(Program::Server);
            let server = life.is_alive.then_some(Who { host: to, program: Program::Server, life: life.number });
            (host.is_up, server)
        };
        let end = &mut self.conns[conn].ends[usize::from(at_peer)];
        let Some(frame) = end.coming.pop_front() else { return };
        if !is_up {
            return;
        }
        if at_peer && end.who.is_none() && !end.is_closed {
            end.who = server;
            match server {
                Some(who) => self.serve(who, conn),
                None => end.is_closed = true,
            }
        }
        let end = &mut self.conns[conn].ends[usize::from(at_peer)];
        match end.who {
            Some(who) => {
                end.inbox.push_back(frame);
                self.poke(who);
            }
            // Nobody has this end any more, and the kernel says so.
            None if frame.read().is_some() => {
                end.is_closed = true;
                self.conns[conn].ends[usize::from(!at_peer)].coming.push_back(Frame::END);
                let delay = self.network.delay(&mut self.rng);
                self.after(delay, Event::Arrives(conn, !at_peer));
            }
            None => {}
        }
    }
}
