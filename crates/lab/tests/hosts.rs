//! Hosts that die under databases: the owner is killed, stopped, or cut off; its peer or etcd is killed. The other host takes
//! over, or the owner goes on, and nothing that a client was told is missing.
//!
//! `HEADPOND_HOSTS` sets the number of rounds, of which each database has half; `HEADPOND_HOSTS_SEED` what happens, and when.

mod machine;

use headpond_lab::hosts::{self, Event, HostsTold, Options};
use headpond_lab::kind::Kind;
use std::collections::BTreeMap;

/// Every other one of the rounds, from this one on.
fn nothing_is_lost(kind: Kind, first: usize) {
    if !machine::lacks_nothing(hosts::missing(kind)) {
        return;
    }
    let _beside = machine::side_by_side();
    let (rounds, seed) = (machine::number("HEADPOND_HOSTS", 14), machine::number("HEADPOND_HOSTS_SEED", 1));
    let events: Vec<Event> = hosts::drawn(rounds as usize, seed).into_iter().skip(first).step_by(2).collect();
    let mut due = BTreeMap::<Event, usize>::new();
    events.iter().for_each(|event| *due.entry(*event).or_default() += 1);
    let directory = machine::scratch("headpond-hosts-");
    let mut told = HostsTold::default();
    let outcome = hosts::run(&machine::headpond(), directory.path(), &Options { kind, events, seed }, |round| {
        println!("{}: {round}", kind.name());
        told.add(round);
    });
    if let Err(failure) = outcome {
        panic!("HEADPOND_HOSTS_SEED={seed}: {failure}\neverything is kept in {}", directory.keep().display());
    }
    println!("{}\n{told}", kind.name());
    assert_eq!(told.rounds(), due);
}

#[test]
fn mariadb_goes_on_when_hosts_die() {
    nothing_is_lost(Kind::Mariadb, 0);
}

#[test]
fn postgresql_goes_on_when_hosts_die() {
    nothing_is_lost(Kind::Postgres, 1);
}
