//! A database under the clients of the ledger and a load of its own, while something is done to the mount below it.
//!
//! The database runs all the time. What it and its clients say is an error if they call it one.

use crate::database::Database;
use crate::database_on_mount::DatabaseOnMount;
use crate::failure::{Failure, Result, check_interrupt};
use crate::ledger::{Ledgers, RunningClients};
use crate::pond::{Headpond, Mount};
use crate::server_errors::ServerErrors;
use crate::service::Service;
use std::time::{Duration, Instant};

/// Clients that keep a ledger.
const CLIENTS: u32 = 4;
/// Transactions that are still to come after the last disturbance.
const AFTERWARDS: u64 = 20;
/// How long a client may wait for its last transaction before it counts as stuck.
const LAST_MAX: Duration = Duration::from_secs(120);
/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(10);

/// What goes on meanwhile: fails once it has met an error. It is asked many times a second.
pub(crate) type Look<'a> = &'a mut dyn FnMut() -> Result<()>;

/// What the clients had.
pub(crate) struct Served {
    pub(crate) transactions: u64,
    /// The longest that one waited for a transaction.
    pub(crate) longest: Duration,
}

/// Makes the database on the mount, disturbs the mount under a load, and looks that nothing is lost or torn: on the
/// mount, and at the origin without headpond. `whole` is asked once no client is left.
pub(crate) fn disturb<D>(
    headpond: &Headpond,
    place: &DatabaseOnMount,
    disturb: impl FnOnce(&Mount, Look<'_>) -> Result<D>,
    whole: impl FnOnce(&Mount, &D) -> Result<()>,
) -> Result<(D, Served)> {
    let ledgers = Ledgers::new(place.ledgers.clone(), CLIENTS);
    place.install(headpond, &ledgers, &[])?;
    let (mut mount, database) = place.start(headpond)?;
    let errors = ServerErrors::from_now_on(&place.run)?;
    let (done, served) = match load(place, &mut mount, &*database, &ledgers, &errors, disturb) {
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
    whole(&mount, &done)?;
    mount.unmount()?;
    if place.verify_without_headpond(&ledgers)? == found {
        return Ok((done, served));
    }
    Err(failed("the origin has other transactions than the mount had".to_owned()))
}

/// Disturbs the mount under a load. When it returns, no client uses the database. After a failure the mount is dead.
fn load<D>(
    place: &DatabaseOnMount,
    mount: &mut Mount,
    database: &dyn Database,
    ledgers: &Ledgers,
    errors: &ServerErrors,
    disturb: impl FnOnce(&Mount, Look<'_>) -> Result<D>,
) -> Result<(D, Served)> {
    let clients = ledgers.start(database)?;
    let mut load = database.load(&place.places())?;
    clients.wait_for(1)?;
    let outcome = disturb(mount, &mut || no_error(&clients, &mut load));
    let outcome = outcome.and_then(|done| {
        // While the load still runs: a server may log its end as an error.
        errors.none()?;
        load.terminate(LAST_MAX)?;
        clients.wait_for(clients.committed() + AFTERWARDS)?;
        clients.ended().map_or(Ok(()), |words| Err(met(&words)))?;
        let longest = clients.longest();
        Ok((done, Served { transactions: clients.stop_within(LAST_MAX)?, longest }))
    });
    outcome.inspect_err(|_| {
        // First, so that the load and the clients can end: a process does not end while it waits for a mount.
        mount.kill_holder();
    })
}

/// Clients and load end early only if the database has failed them.
fn no_error(clients: &RunningClients, load: &mut Service) -> Result<()> {
    load.ended()?;
    clients.ended().map_or(Ok(()), |words| Err(met(&words)))
}

fn met(words: &str) -> Failure {
    failed(format!("a client met an error: {words}"))
}

const fn failed(what: String) -> Failure {
    Failure::Other(what)
}

/// Lets time pass.
pub(crate) fn watch(time: Duration, look: Look<'_>) -> Result<()> {
    let start = Instant::now();
    while let Some(left) = time.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        look()?;
        check_interrupt()?;
        std::thread::sleep(left.min(LOOK));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_ends_the_wait_at_once() {
        let start = Instant::now();
        let mut looks = 0;
        let error = watch(Duration::from_secs(600), &mut || {
            looks += 1;
            if looks == 3 { Err(failed("a client met an error".to_owned())) } else { Ok(()) }
        });
        assert!(error.is_err() && start.elapsed() < Duration::from_secs(60));
    }
}
