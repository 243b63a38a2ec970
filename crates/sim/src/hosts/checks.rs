//! Whether the promises are kept: at each change of the origin, each answer, each beginning.
//!
//! Keeps true: a broken promise ends the history.

use std::collections::BTreeMap;

use crate::hosts::host::{Image, PeerRow, Superblock, Value, Who};
use crate::hosts::network::Place;
use crate::hosts::promises::{Handed, Landed, Marker};
use crate::hosts::world::{Event, World};

impl World {
    /// A change of the origin passes the gate of a host now.
    pub(crate) fn passes_gate(&mut self, who: Who, owner: u64) -> bool {
        let taken = self.etcd.record().map_or(0, |record| record.owner);
        if taken > owner {
            self.breaks(|| {
                format!(
                    "host {} lets a change of the origin begin as owner {owner}, after owner {taken} took the lease",
                    who.host
                )
            });
        }
        taken > owner
    }

    /// A process hands a change to its kernel.
    pub(crate) fn hand_over(&mut self, who: Who, owner: u64, number: u64, value: Value, is_late: bool) -> u64 {
        self.origin.next += 1;
        let change = self.origin.next;
        let handed = Handed { host: who.host, boot: self.hosts[who.host].boot, owner, number, value, is_late };
        self.origin.handed.insert(change, handed);
        self.promises.changed_by.insert(self.hosts[who.host].node().name, owner);
        let delay = self.network.delay(&mut self.rng);
        self.after(delay, Event::Lands(change));
        change
    }

    /// A node that was fenced is let in again. What its kernel had for the origin by then is no more.
    pub(crate) fn lets_in(&mut self, host: usize) {
        let name = self.hosts[host].node().name;
        if self.origin.fenced.remove(&name) {
            let had = self.origin.handed.iter().filter(|(_, handed)| handed.host == host);
            let had: Vec<u64> = had.map(|(change, _)| *change).collect();
            for change in had {
                self.origin.handed.remove(&change);
                self.origin.landed.insert(change, Landed::Refused);
            }
            self.promises.changed_by.remove(&name);
        }
    }

    /// A change reaches the origin, if its host can.
    pub(crate) fn lands(&mut self, change: u64) {
        let Some(handed) = self.origin.handed.get(&change).copied() else { return };
        let Handed { host, boot, owner, number, value, is_late } = handed;
        if !self.hosts[host].is_up || self.hosts[host].boot != boot {
            self.origin.handed.remove(&change);
            return;
        }
        let now = self.now;
        if self.hosts[host].sleeps || !self.network.passes(Place::Host(host), Place::Origin, now) {
            let delay = 10_000_000 + self.network.delay(&mut self.rng);
            return self.after(delay, Event::Lands(change));
        }
        self.origin.handed.remove(&change);
        let node = self.hosts[host].node().name;
        if self.origin.fenced.contains(&node) {
            self.origin.landed.insert(change, Landed::Refused);
            self.trace(|| format!("origin refuses {number} of host {host}, which is fenced"));
            return;
        }
        let (serves, _) = self.promises.served;
        // Without a program that fences, what was begun in time may come at any time: the grace is no proof.
        if owner < serves && (self.hook || is_late) {
            self.breaks(|| format!("record {number} of owner {owner} reaches the origin while owner {serves} serves"));
        }
        self.origin.data.insert(number, value);
        self.origin.landed.insert(change, Landed::Done);
        self.summary.destaged += 1;
    }

    /// What an image alone shows, together with the origin: the longest chain.
    pub(crate) fn chain(&self, log: &BTreeMap<u64, Value>) -> BTreeMap<u64, Value> {
        let mut chain = BTreeMap::new();
        let mut last = 0;
        for number in 1.. {
            let fits = |value: &&Value| value.before == last;
            let Some(value) = log.get(&number).filter(fits).or_else(|| self.origin.data.get(&number).filter(fits))
            else {
                break;
            };
            last = value.id;
            chain.insert(number, *value);
        }
        chain
    }

    /// An owner begins to serve, with this.
    pub(crate) fn serves(&mut self, who: Who, owner: u64, chain: &BTreeMap<u64, Value>) {
        self.trace(|| format!("host {} serves as owner {owner}, with {} records", who.host, chain.len()));
        self.summary.recoveries += 1;
        let lacks = self.promises.made.iter().find(|(number, id)| {
            !self.promises.lost.contains(number) && chain.get(number).is_none_or(|value| value.id != **id)
        });
        if let Some((number, id)) = lacks.map(|(number, id)| (*number, *id)) {
            let has = chain.get(&number).copied();
            self.breaks(|| {
                format!(
                    "host {} serves as owner {owner}, and has {has:?} for the synced record {number}, which is {id}",
                    who.host
                )
            });
        }
        let (serves, _) = self.promises.served;
        if owner < serves {
            self.breaks(|| format!("host {} serves as owner {owner} while owner {serves} does", who.host));
        }
        let own = self.hosts[who.host].node().name;
        let open = self
            .promises
            .changed_by
            .iter()
            .find(|(node, number)| **number < owner && **node != own && !self.origin.fenced.contains(*node));
        if let Some((node, number)) = open.filter(|_| self.hook).map(|(node, number)| (node.clone(), *number)) {
            self.breaks(|| {
                format!("{own} serves as owner {owner}, and {node}, which was owner {number}, is not fenced")
            });
        }
        self.promises.served = (owner, chain.iter().map(|(number, value)| (*number, value.id)).collect());
    }

    /// A sync is answered.
    pub(crate) fn answers(&mut self, who: Who, owner: u64, number: u64, id: u64) {
        let (serves, found) = &self.promises.served;
        let serves = *serves;
        if owner < serves && found.get(&number) != Some(&id) {
            self.breaks(|| {
                format!("host {} answers the sync of record {number} as owner {owner}, and owner {serves} serves without it", who.host)
            });
        }
        if owner >= serves {
            self.promises.last_answer = self.now;
        }
        let is_given_up = self.promises.lost.remove(&number);
        if self.promises.made.insert(number, id).is_some_and(|before| before != id && !is_given_up) {
            self.breaks(|| format!("two owners answer the sync of record {number}"));
        }
        self.summary.ops += 1;
        self.heirs_have_all();
    }

    /// Each host that could take the pool over now has each synced record.
    fn heirs_have_all(&mut self) {
        let lacks =
            self.heirs().filter(|(.., superblock)| self.is_allowed_beside(superblock)).find_map(|(host, log, _)| {
                let chain = self.chain(log);
                let lacks = self.promises.made.iter().find(|(number, id)| {
                    !self.promises.lost.contains(number) && chain.get(number).is_none_or(|value| value.id != **id)
                });
                lacks.map(|(number, _)| (host, *number))
            });
        if let Some((host, number)) = lacks {
            self.breaks(|| format!("host {host} could take the pool over, and lacks the synced record {number}"));
        }
    }

    /// Until the registry knows this list, each host that it would let take the pool over may do so by what lies beside the
    /// origin, too.
    pub(crate) fn no_heir_is_refused(&mut self, members: u64) {
        if self.etcd.record().is_some_and(|record| record.members >= members) {
            return;
        }
        let refused = self.heirs().find(|(.., superblock)| !self.is_allowed_beside(superblock)).map(|(host, ..)| host);
        if let Some(host) = refused {
            self.breaks(|| format!("host {host} may take the pool over by the registry, and not by the marker"));
        }
    }

    fn is_allowed_beside(&self, superblock: &Superblock) -> bool {
        let by_marker = |marker: Marker| marker.members <= superblock.members && superblock.is_of(marker.last);
        self.origin.marker.is_none_or(by_marker)
    }

    /// The hosts whose guard would take the lease, if it were gone: with the log and the superblock of the copy there.
    fn heirs(&self) -> impl Iterator<Item = (usize, &BTreeMap<u64, Value>, Superblock)> {
        self.hosts.iter().filter_map(|host| {
            let record = self.etcd.record().filter(|record| record.node.name != host.node().name)?;
            let stored =
                host.store.as_ref().filter(|stored| host.is_up && stored.counts(host.boot) && !stored.taken_over)?;
            let image = Some(&stored.device.now).filter(|image| image.is_whole && stored.owner == record.owner)?;
            let superblock = image.superblock.filter(|superblock| record.members <= superblock.members)?;
            Some((host.index, &image.log, superblock))
        })
    }

    /// An owner lets a copy go, and has connections to these. One of them has to have everything, unless its host has lost
    /// it by now.
    pub(crate) fn lets_go(&mut self, kept: &[PeerRow]) {
        let is_whole = |row: &PeerRow| {
            let host = &self.hosts[row.host];
            let stored = host.store.as_ref().filter(|stored| stored.member == row.name);
            stored.filter(|stored| host.is_up && stored.counts(host.boot)).map(|stored| stored.device.now.is_whole)
        };
        let kept: Vec<bool> = kept.iter().filter_map(is_whole).collect();
        if !kept.is_empty() && !kept.contains(&true) {
            self.breaks(|| "an owner lets a copy go, and no other one has everything".to_owned());
        }
    }

    /// A copy gets another value for a record.
    pub(crate) fn overwrites(&mut self, who: Who, number: u64, value: Value) {
        let stored = self.hosts[who.host].store.as_ref();
        let has = stored.and_then(|stored| stored.device.now.log.get(&number)).filter(|has| has.id != value.id);
        let promised = |has: &Value| self.promises.made.get(&number) == Some(&has.id);
        let at_origin = self.origin.data.get(&number);
        if has.is_some_and(|has| promised(has) && at_origin != Some(has)) {
            self.breaks(|| {
                format!("host {} has a late request overwrite the synced record {number} in its copy", who.host)
            });
        }
    }

    /// Gives up promises that no host can keep any more.
    pub(crate) fn excuse_what_is_lost(&mut self) {
        let last = self.origin.data.len() as u64;
        let images: Vec<&Image> = self
            .hosts
            .iter()
            .filter(|host| !host.is_gone)
            .flat_map(|host| {
                let copy = host.store.as_ref().map(|stored| &stored.device.now);
                [host.flash.as_ref().map(|flash| &flash.now), copy].into_iter().flatten()
            })
            .collect();
        let is_there = |number: u64, id: u64| {
            let has = |value: Option<&Value>| value.is_some_and(|value| value.id == id);
            has(self.origin.data.get(&number)) || images.iter().any(|image| has(image.log.get(&number)))
        };
        let from = last.saturating_sub(4);
        let gone: Vec<u64> = self
            .promises
            .made
            .range(from..)
            .filter(|(number, id)| !is_there(**number, **id))
            .map(|(n, _)| *n)
            .collect();
        if !gone.is_empty() {
            self.trace(|| format!("no host has {gone:?} any more"));
            self.summary.losses += 1;
        }
        self.promises.lost.extend(gone);
    }
}
