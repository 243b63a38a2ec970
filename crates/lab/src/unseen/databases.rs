//! A database under the clients of the ledger and a load of its own, over the deaths of many workers.
//!
//! The database runs all the time. What it and its clients say is an error if they call it one.

use super::killer::Killer;
use super::{Finished, Options, Pauses, failed};
use crate::database::Database;
use crate::database_on_mount::DatabaseOnMount;
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::ledger::{Ledgers, RunningClients};
use crate::pond::{Headpond, Mount};
use crate::server_errors::ServerErrors;
use crate::service::Service;
use std::path::Path;
use std::time::Duration;

/// Clients that keep a ledger.
const CLIENTS: u32 = 4;
/// Transactions that are still to come after the last take-over.
const AFTERWARDS: u64 = 20;
/// How long a client may wait for its last transaction before it counts as stuck.
const LAST_MAX: Duration = Duration::from_secs(120);

pub(super) fn run(headpond: &Headpond, directory: &Path, kind: Kind, options: &Options) -> Result<Pauses> {
    let place = DatabaseOnMount::make(directory, directory, kind)?;
    let ledgers = Ledgers::new(place.ledgers.clone(), CLIENTS);
    place.install(headpond, &ledgers, &[])?;
    let (mut mount, database) = place.start(headpond)?;
    let errors = ServerErrors::from_now_on(&place.run)?;
    let seen = match load(&place, &mut mount, &*database, &ledgers, &errors, options) {
        Ok(seen) => seen,
        Err(failure) => {
            mount.kill();
            database.kill();
            return Err(failure);
        }
    };
    database.check()?;
    let found = ledgers.verify(&*database)?;
    if found.unseen > 0 {
        return Err(failed(format!("{} transactions were committed, and no client was told", found.unseen)));
    }
    database.stop()?;
    if mount.lives()?.takeovers != seen.kills + seen.upgrades {
        return Err(failed("a worker ended by itself, after the last kill"));
    }
    mount.unmount()?;
    if place.verify_without_headpond(&ledgers)? == found {
        return Ok(seen);
    }
    Err(failed("the origin has other transactions than the mount had"))
}

/// Kills workers under a load. When it returns, no client uses the database. After a failure the mount is dead.
fn load(
    place: &DatabaseOnMount,
    mount: &mut Mount,
    database: &dyn Database,
    ledgers: &Ledgers,
    errors: &ServerErrors,
    options: &Options,
) -> Result<Pauses> {
    let clients = ledgers.start(database)?;
    let mut load = database.load(&place.places())?;
    clients.wait_for(1)?;
    let mut killer = Killer::new(mount, options.pace, options.seed);
    let outcome = killer.run(options.kills, &mut || no_error(&clients, &mut load));
    let (kills, upgrades) = (killer.kills(), killer.upgrades());
    let outcome = outcome
        // Before the load is told to end: a server may call that an error.
        .and_then(|()| errors.none())
        .and_then(|()| load.terminate(LAST_MAX))
        .and_then(|()| clients.wait_for(clients.committed() + AFTERWARDS))
        .and_then(|()| clients.ended().map_or(Ok(()), |words| Err(met(&words))))
        .map(|()| clients.longest())
        .and_then(|longest| Ok((longest, clients.stop_within(LAST_MAX)?)));
    let (longest, transactions) = outcome.inspect_err(|_| {
        // First, so that the load and the clients can end: a process does not end while it waits for a mount.
        mount.kill_holder();
    })?;
    Ok(Pauses { kills, upgrades, done: Finished::Transactions(transactions), longest: Some(longest) })
}

/// Clients and load end early only if the database has failed them.
fn no_error(clients: &RunningClients, load: &mut Service) -> Result<()> {
    load.ended()?;
    clients.ended().map_or(Ok(()), |words| Err(met(&words)))
}

fn met(words: &str) -> Failure {
    failed(format!("a client met an error: {words}"))
}
