//! Whether the promises are kept: at each change of the origin, each answer, each beginning.
//!
//! Keeps true: a broken promise ends the history.

use headpond_base::Errno;
use headpond_engine::Recovered;
use headpond_format::Superblock;

use crate::hosts::host::{PeerRow, Who};
use crate::hosts::network::Place;
use crate::hosts::pool::{is_of, known_members, read_whole};
use crate::hosts::promises::{Handed, Marker, Promise};
use crate::hosts::records::{Record, Records};
use crate::hosts::world::{Event, World};
use crate::origin::OriginChange;

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
    pub(crate) fn hand_over(&mut self, who: Who, owner: u64, change: OriginChange, is_late: bool) -> u64 {
        self.origin.next += 1;
        let number = self.origin.next;
        let handed = Handed { host: who.host, boot: self.hosts[who.host].boot, owner, change, is_late };
        self.origin.handed.insert(number, handed);
        self.promises.changed_by.insert(self.hosts[who.host].node().name, owner);
        let delay = self.network.delay(&mut self.rng);
        self.after(delay, Event::Lands(number));
        number
    }

    /// A node that was fenced is let in again. What its kernel had for the origin by then is no more.
    pub(crate) fn lets_in(&mut self, host: usize) {
        let name = self.hosts[host].node().name;
        if self.origin.fenced.remove(&name) {
            let had = self.origin.handed.iter().filter(|(_, handed)| handed.host == host);
            let had: Vec<u64> = had.map(|(change, _)| *change).collect();
            for change in had {
                self.origin.handed.remove(&change);
                self.origin.landed.insert(change, Err(Errno::IO));
            }
            self.promises.changed_by.remove(&name);
        }
    }

    /// A change reaches the origin, if its host can.
    pub(crate) fn lands(&mut self, number: u64) {
        let Some(handed) = self.origin.handed.get(&number) else { return };
        let Handed { host, boot, owner, is_late, .. } = *handed;
        if !self.hosts[host].is_up || self.hosts[host].boot != boot {
            self.origin.handed.remove(&number);
            return;
        }
        let now = self.now;
        if self.hosts[host].sleeps || !self.network.passes(Place::Host(host), Place::Origin, now) {
            let delay = 10_000_000 + self.network.delay(&mut self.rng);
            return self.after(delay, Event::Lands(number));
        }
        let Some(Handed { change, .. }) = self.origin.handed.remove(&number) else { return };
        let node = self.hosts[host].node().name;
        if self.origin.fenced.contains(&node) {
            self.origin.landed.insert(number, Err(Errno::IO));
            self.trace(|| format!("origin refuses a change of host {host}, which is fenced"));
            return;
        }
        // Who has looked at the file relies on it from then on, also before it serves.
        let newest = self.origin.marker.map_or(0, |marker| marker.owner);
        if owner < newest && (self.hook || is_late) {
            self.breaks(|| format!("{change:?} of owner {owner} reaches the origin after owner {newest} began"));
        } else if owner < newest {
            // Without a program that fences, what was begun in time may come at any time: the grace is no proof. Who
            // serves does not know of it, so that the rest of the history says nothing.
            self.trace(|| format!("{change:?} of owner {owner} comes late"));
            self.is_undecidable = true;
        }
        self.trace(|| format!("origin: {change:?} of owner {owner}"));
        self.summary.destaged += u64::from(matches!(change, OriginChange::Write { .. }));
        let landed = self.origin.files.change(self.origin.file, change);
        self.origin.landed.insert(number, landed);
    }

    /// An owner begins to serve, with these records.
    pub(crate) fn serves(&mut self, who: Who, owner: u64, records: &Records) {
        self.trace(|| format!("host {} serves as owner {owner}, up to {:?}", who.host, records.last()));
        self.summary.recoveries += 1;
        let lacks =
            self.promises.made.iter().rev().find(|(number, promise)| {
                !self.promises.lost.contains(number) && !records.may_have(**number, promise.id)
            });
        if let Some((number, promise)) = lacks.map(|(number, promise)| (*number, *promise)) {
            self.breaks(|| {
                format!(
                    "host {} serves as owner {owner}, and has {:x?} for the synced record {number}, which is {promise:x?}",
                    who.host,
                    records.id(number)
                )
            });
        }
        let serves = self.promises.served.0;
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
        self.promises.served = (owner, records.clone());
    }

    /// The sync of these records is answered.
    pub(crate) fn answers(&mut self, who: Who, owner: u64, records: &[Record], (epoch, batch): (u64, u64)) {
        for Record { number, id, .. } in records.iter().copied() {
            let (serves, found) = &self.promises.served;
            let serves = *serves;
            if owner < serves && !found.may_have(number, id) {
                self.breaks(|| {
                    format!(
                        "host {} answers the sync of record {number} as owner {owner}, and owner {serves} serves without it",
                        who.host
                    )
                });
            }
            let is_given_up = self.promises.lost.remove(&number);
            let promise = Promise { id, epoch, batch };
            let before = self.promises.made.insert(number, promise);
            if before.is_some_and(|before| before.id != id && !is_given_up) {
                self.breaks(|| format!("two owners answer the sync of record {number}"));
            }
            self.summary.ops += 1;
        }
        if owner >= self.promises.served.0 {
            self.promises.last_answer = self.now;
        }
        self.heirs_have_all();
    }

    /// Each host that could take the pool over now has each synced record.
    fn heirs_have_all(&mut self) {
        let made = self.promises.made.iter().rev().find(|(number, _)| !self.promises.lost.contains(number));
        let Some((number, promise)) = made.map(|(number, promise)| (*number, *promise)) else { return };
        let has = |recovered: &Recovered| recovered.last_host_batch().0 >= promise.batch;
        let lacks = self
            .heirs()
            .filter(|(_, recovered)| self.is_allowed_beside(recovered.superblock()))
            .find(|(_, recovered)| !has(recovered));
        if let Some((host, recovered)) = lacks {
            let ends = recovered.last_host_batch().0;
            self.breaks(|| {
                format!(
                    "host {host} could take the pool over, and ends at batch {ends}: it lacks the synced record {number}, {promise:?}"
                )
            });
        }
    }

    /// Until the registry knows this list, each host that it would let take the pool over may do so by what lies beside the
    /// origin, too.
    pub(crate) fn no_heir_is_refused(&mut self, members: u64) {
        if self.etcd.record().is_some_and(|record| record.members >= members) {
            return;
        }
        let refused = self.heirs().find(|(_, found)| !self.is_allowed_beside(found.superblock())).map(|(host, _)| host);
        if let Some(host) = refused {
            self.breaks(|| format!("host {host} may take the pool over by the registry, and not by the marker"));
        }
    }

    fn is_allowed_beside(&self, superblock: &Superblock) -> bool {
        let list = superblock.members.generation();
        let by_marker = |marker: Marker| marker.members <= list && is_of(superblock, marker.last);
        self.origin.marker.is_none_or(by_marker)
    }

    /// The hosts whose guard would take the lease, if it were gone, with what a start there would find.
    fn heirs(&self) -> impl Iterator<Item = (usize, Recovered)> {
        self.hosts.iter().filter_map(|host| {
            let record = self.etcd.record().filter(|record| record.node.name != host.node().name)?;
            let stored =
                host.store.as_ref().filter(|stored| host.is_up && stored.counts(host.boot) && !stored.taken_over)?;
            let known = |superblock: &Superblock| record.members <= known_members(superblock);
            stored.device.superblock().filter(|found| stored.owner == record.owner && known(found))?;
            Some((host.index, read_whole(&stored.device.flash)?))
        })
    }

    /// An owner lets a copy go, and has connections to these. One of them has to have everything, unless its host has lost
    /// it by now.
    pub(crate) fn lets_go(&mut self, kept: &[PeerRow]) {
        let is_whole = |row: &PeerRow| {
            let host = &self.hosts[row.host];
            let stored = host.store.as_ref().filter(|stored| stored.member == row.name);
            stored
                .filter(|stored| host.is_up && stored.counts(host.boot))
                .map(|it| read_whole(&it.device.flash).is_some())
        };
        let kept: Vec<bool> = kept.iter().filter_map(is_whole).collect();
        if !kept.is_empty() && !kept.contains(&true) {
            self.breaks(|| "an owner lets a copy go, and no other one has everything".to_owned());
        }
    }

    /// Gives up promises that no host can keep any more: no device has all that is dirty up to them.
    pub(crate) fn excuse_what_is_lost(&mut self) {
        let here = self.hosts.iter().filter(|host| !host.is_gone);
        let devices = here.flat_map(|host| {
            let copy = host.store.as_ref().map(|stored| &stored.device);
            [host.flash.as_ref(), copy].into_iter().flatten()
        });
        let found = devices.filter_map(|device| read_whole(&device.flash));
        let found: Vec<(u64, u64)> =
            found.map(|found| (found.superblock().epoch.0, found.last_host_batch().0)).collect();
        let is_there =
            |promise: &Promise| found.iter().any(|(epoch, batch)| *epoch >= promise.epoch && *batch >= promise.batch);
        let gone: Vec<u64> =
            self.promises.made.iter().filter(|(_, promise)| !is_there(promise)).map(|(number, _)| *number).collect();
        if gone.iter().any(|number| !self.promises.lost.contains(number)) {
            self.trace(|| format!("no host has {gone:?} any more"));
            self.summary.losses += 1;
        }
        self.promises.lost.extend(gone);
    }
}
