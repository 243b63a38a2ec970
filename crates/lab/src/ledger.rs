//! Clients that record, outside the database, each committed transaction.
//!
//! Invariant: a number stands in a client's ledger, durably, only after the database has acknowledged the commit of
//! that transaction. So whatever happens to the storage below, the database must later have every number in a ledger.
//!
//! A transaction moves an amount between two accounts and records that in a journal table. If only a part of it
//! survives, the accounts differ from the journal.

use crate::command;
use crate::database::Database;
use crate::failure::{Failure, Result, check_interrupt};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ACCOUNTS: u64 = 200;
const BALANCE: u64 = 1000;
/// What the client prints after a commit.
const COMMITTED: &str = "committed";
/// How long a wait for commits may take.
const COMMITS_MAX: Duration = Duration::from_secs(60);
/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(5);

/// Ledgers in a directory that does not lie on the storage on trial.
pub struct Ledgers {
    directory: PathBuf,
    clients: u32,
}

/// Clients at work.
pub struct RunningClients {
    threads: Vec<JoinHandle<Result<()>>>,
    common: Arc<Common>,
}

/// What the clients tell, and are told.
#[derive(Default)]
struct Common {
    committed: AtomicU64,
    /// The longest transaction, in microseconds.
    longest: AtomicU64,
    stop: AtomicBool,
    /// What the first client said that was cut off.
    last_words: Mutex<String>,
}

/// What was found after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerFound {
    /// Numbers in the ledgers: all of them were in the database.
    pub promised: usize,
    /// Transactions in the database that no ledger has: committed, but the crash came first.
    pub unseen: usize,
}

impl Ledgers {
    /// Ledgers for that many clients.
    #[must_use]
    pub fn new(directory: PathBuf, clients: u32) -> Self {
        Self { directory, clients }
    }

    /// Makes the tables that the clients use.
    pub fn create_tables(&self, database: &dyn Database) -> Result<()> {
        let accounts: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, {BALANCE})")).collect();
        database.sql(&format!(
            "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL); \
             CREATE TABLE journal (client INT, number BIGINT, taken_from BIGINT, given_to BIGINT, amount BIGINT, \
               PRIMARY KEY (client, number)); \
             INSERT INTO accounts VALUES {}",
            accounts.join(", ")
        ))?;
        Ok(())
    }

    fn path(&self, client: u32) -> PathBuf {
        self.directory.join(format!("ledger-{client}"))
    }

    /// Lets the clients loose; each goes on until it is cut off.
    pub fn start(&self, database: &dyn Database) -> Result<RunningClients> {
        self.start_some(database, 0..self.clients)
    }

    /// The same with some of them: two servers that may run at once have different clients.
    pub fn start_some(&self, database: &dyn Database, clients: Range<u32>) -> Result<RunningClients> {
        let common = Arc::<Common>::default();
        let mut threads = Vec::new();
        for client in clients {
            let last = database.sql(&format!("SELECT COALESCE(MAX(number), 0) FROM journal WHERE client={client}"))?;
            let last: u64 = last.trim().parse().map_err(|_| Failure::Other(format!("no number: '{last}'")))?;
            let ledger = self.path(client);
            let file = File::options().create(true).append(true).open(&ledger);
            let file = file.map_err(Failure::io(format!("opening {}", ledger.display())))?;
            let session = Session::open(database)?;
            let common = Arc::clone(&common);
            threads.push(std::thread::spawn(move || work(session, file, client, last + 1, &common)));
        }
        Ok(RunningClients { threads, common })
    }

    /// Looks for every promised transaction, and for a transaction that is there in part.
    pub fn verify(&self, database: &dyn Database) -> Result<LedgerFound> {
        let mut found = LedgerFound::default();
        for client in 0..self.clients {
            let text = self.read(client)?;
            let promised: HashSet<&str> = text.lines().collect();
            let rows = database.sql(&format!("SELECT number FROM journal WHERE client={client}"))?;
            let there: HashSet<&str> = rows.lines().collect();
            let mut lost: Vec<&str> = promised.difference(&there).copied().collect();
            if !lost.is_empty() {
                lost.sort_unstable();
                return Err(Failure::Other(format!(
                    "client {client}: {} of {} committed transactions are lost: {}",
                    lost.len(),
                    promised.len(),
                    lost.join(" ")
                )));
            }
            found.promised += promised.len();
            found.unseen += there.len() - promised.len();
        }
        verify_accounts(database)?;
        Ok(found)
    }

    /// A ledger's text; none where its client has not begun.
    fn read(&self, client: u32) -> Result<String> {
        match fs::read_to_string(self.path(client)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            text => text.map_err(Failure::io("reading a ledger")),
        }
    }
}

fn verify_accounts(database: &dyn Database) -> Result<()> {
    let wrong = database.sql(&format!(
        "SELECT id, balance, due FROM (\
           SELECT id, balance, {BALANCE} + COALESCE(got, 0) - COALESCE(gave, 0) AS due FROM accounts \
           LEFT JOIN (SELECT given_to, SUM(amount) AS got FROM journal GROUP BY given_to) AS g ON given_to = id \
           LEFT JOIN (SELECT taken_from, SUM(amount) AS gave FROM journal GROUP BY taken_from) AS t ON taken_from = id\
         ) AS sums WHERE balance <> due"
    ))?;
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::Other(format!("transactions survived in part; account, balance, balance due:\n{wrong}")))
}

impl RunningClients {
    /// Waits until that many transactions are committed.
    pub fn wait_for(&self, transactions: u64) -> Result<()> {
        let start = Instant::now();
        while self.committed() < transactions {
            if start.elapsed() > COMMITS_MAX || self.threads.iter().all(JoinHandle::is_finished) {
                return Err(Failure::Other(format!(
                    "the clients committed {} transactions in {} s and should have committed {transactions}",
                    self.committed(),
                    start.elapsed().as_secs()
                )));
            }
            check_interrupt()?;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Transactions that are committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.common.committed.load(Ordering::Relaxed)
    }

    /// The longest that a client has waited for a transaction, of those that are committed.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.common.longest.load(Ordering::Relaxed))
    }

    /// What a client said that is not at work any more: none ends by itself unless the database fails.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        let words = || self.common.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.threads.iter().any(JoinHandle::is_finished).then(words)
    }

    /// Lets every client finish its transaction, and no other. Fails if one waits longer than that.
    pub fn stop_within(self, limit: Duration) -> Result<u64> {
        self.common.stop.store(true, Ordering::Relaxed);
        let start = Instant::now();
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if start.elapsed() > limit {
                return Err(Failure::Other(format!("a client waits for its transaction for {} s", limit.as_secs())));
            }
            check_interrupt()?;
            std::thread::sleep(LOOK);
        }
        self.join()
    }

    /// Lets every client finish its transaction, and no other.
    pub fn stop(self) -> Result<u64> {
        self.common.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Waits for the clients to be cut off; fails if one could not keep its ledger.
    pub fn join(self) -> Result<u64> {
        for thread in self.threads {
            thread.join().map_err(|_| Failure::Other("a client of the ledger panicked".to_owned()))??;
        }
        Ok(self.common.committed.load(Ordering::Relaxed))
    }
}

/// A connection to the database, through its command-line client.
struct Session {
    begin: &'static str,
    child: Child,
    answers: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Session {
    fn open(database: &dyn Database) -> Result<Self> {
        let mut client = database.client();
        command::detach(&mut client).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = client.spawn().map_err(|error| command::failed("starting a client", &client, error, ""))?;
        let answers = child.stdout.take().expect("it is a pipe, as asked for above");
        Ok(Self { begin: database.begin(), child, answers: BufReader::new(answers).lines() })
    }

    /// Sends a transaction. True if the database said that it is committed, false if the connection
    /// is gone: the client ends at the first statement that fails.
    fn commit(&mut self, statements: &str, number: u64) -> bool {
        let Some(pipe) = self.child.stdin.as_mut() else { return false };
        let text = format!("{}; {statements} COMMIT; SELECT '{COMMITTED}', {number};\n", self.begin);
        if pipe.write_all(text.as_bytes()).is_err() {
            return false;
        }
        matches!(self.answers.next(), Some(Ok(line)) if line == format!("{COMMITTED}\t{number}"))
    }

    /// What it complained of, after a transaction that failed. It is ended if it has not already.
    fn last_words(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut complaints) = self.child.stderr.take() {
            // Dead or alive it says no more than this. Failing to read it means that there is none.
            let _ = self.child.kill();
            let _ = complaints.read_to_string(&mut said);
        }
        said
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Failing means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn work(mut session: Session, mut ledger: File, client: u32, first: u64, common: &Common) -> Result<()> {
    for number in first.. {
        if common.stop.load(Ordering::Relaxed) {
            break;
        }
        let (from, to, amount) = transfer(client, number);
        // Always the lower account first, so that two transfers never wait for each other.
        let mut changes = [(from, -i64::from(amount)), (to, i64::from(amount))];
        changes.sort_unstable();
        let mut statements: String = changes
            .iter()
            .map(|(id, change)| format!("UPDATE accounts SET balance = balance + ({change}) WHERE id = {id}; "))
            .collect();
        statements.push_str(&format!("INSERT INTO journal VALUES ({client}, {number}, {from}, {to}, {amount});"));
        let start = Instant::now();
        if !session.commit(&statements, number) {
            let mut words = common.last_words.lock().unwrap_or_else(PoisonError::into_inner);
            if words.is_empty() {
                *words = format!("client {client}, transaction {number}: {}", session.last_words().trim());
            }
            break;
        }
        let took = start.elapsed().as_micros() as u64;
        writeln!(ledger, "{number}").and_then(|()| ledger.sync_data()).map_err(Failure::io("writing a ledger"))?;
        common.longest.fetch_max(took, Ordering::Relaxed);
        common.committed.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Which transfer has this number: two different accounts and an amount, spread by a hash.
fn transfer(client: u32, number: u64) -> (u64, u64, u8) {
    let hash = (number << 8 | u64::from(client)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let from = (hash >> 16) % ACCOUNTS;
    let to = (from + 1 + (hash >> 40) % (ACCOUNTS - 1)) % ACCOUNTS;
    (from, to, 1 + (hash >> 60) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_between_two_different_accounts() {
        for number in 0..10_000 {
            let (from, to, amount) = transfer(3, number);
            assert!(from != to && from < ACCOUNTS && to < ACCOUNTS && amount > 0);
        }
    }
}
