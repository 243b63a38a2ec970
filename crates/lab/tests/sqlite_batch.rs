//! SQLite that commits without a journal: built for batch-atomic writes, as Android's is, it asks the mount to make all
//! pages of a transaction as one. The daemon is killed under it, with the flash's unsynced writes dropped or torn: the
//! database is sound, no committed transaction is missing, and none is there in part.
//!
//! `HEADPOND_BATCH_ROUNDS` sets the number of kills, `HEADPOND_KILL_SEED` their moments.

mod machine;

use headpond_lab::pond::Mounting;
use rusqlite::{Connection, TransactionBehavior};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Tells this very program to be a client of the database.
const CLIENT_OF: &str = "HEADPOND_BATCH_CLIENT_OF";

/// So many rows are changed in each of its transactions.
const CHANGES: &str = "HEADPOND_BATCH_CHANGES";

/// Rows, each of them about a quarter of a page.
const CELLS: i64 = 2000;

/// Rows that one transaction changes, each in another page.
const CHANGED: i64 = 12;

/// More than a batch has room for: SQLite is refused, and takes its journal.
const CHANGED_TOO_MANY: i64 = 150;

/// The cells that a transaction changes.
fn cells_of(transaction: i64, changed: i64) -> impl Iterator<Item = i64> {
    (0..changed).map(move |index| (transaction * 7919 + index * 157) % CELLS)
}

fn open(file: &Path) -> Connection {
    let connection = Connection::open(file).expect("it opens");
    // With this mode a journal that was ever needed stays where it was: so it shows.
    connection.pragma_update(None, "journal_mode", "persist").expect("a mode");
    connection.pragma_update(None, "synchronous", "extra").expect("durable");
    connection
}

fn create(file: &Path) {
    let mut connection = open(file);
    let create = "CREATE TABLE cells (id INTEGER PRIMARY KEY, last INT NOT NULL, body BLOB NOT NULL); \
         CREATE TABLE done (number INTEGER PRIMARY KEY, changed INT NOT NULL);";
    connection.execute_batch(create).expect("tables");
    let all = connection.transaction().expect("a transaction");
    for id in 0..CELLS {
        all.execute("INSERT INTO cells VALUES (?1, 0, zeroblob(1000))", [id]).expect("a row");
    }
    all.commit().expect("rows");
    drop(connection);
    // So much at once takes a journal anywhere.
    let _ = fs::remove_file(file.with_extension("db-journal"));
}

fn transact(connection: &mut Connection, number: i64, changed: i64) {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction");
    for id in cells_of(number, changed) {
        transaction
            .execute("UPDATE cells SET last = ?1, body = randomblob(1000) WHERE id = ?2", [number, id])
            .expect("a change");
    }
    transaction.execute("INSERT INTO done VALUES (?1, ?2)", [number, changed]).expect("a row");
    transaction.commit().expect("a commit");
}

/// The last transaction that is there; all before it are, and each is in all of its cells.
fn verify(file: &Path) -> i64 {
    let connection = open(file);
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(sound, "ok");
    let (last, count): (i64, i64) = connection
        .query_row("SELECT coalesce(max(number), 0), count(*) FROM done", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("a count");
    assert_eq!(last, count, "a transaction is missing before the last");
    let mut due = vec![0; CELLS as usize];
    let mut transactions = connection.prepare("SELECT number, changed FROM done ORDER BY number").expect("a query");
    let transactions = transactions.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    for (number, changed) in transactions.map(|row| row.expect("a row")) {
        cells_of(number, changed).for_each(|id| due[id as usize] = number);
    }
    let mut rows = connection.prepare("SELECT last FROM cells ORDER BY id").expect("a query");
    let found: Vec<i64> = rows.query_map([], |row| row.get(0)).expect("rows").map(|row| row.expect("a row")).collect();
    assert!(found == due, "a transaction is there in part");
    last
}

/// Not a test but the client: it commits until it is killed, and tells each commit.
#[test]
fn a_client_commits_until_it_is_killed() {
    let Some(file) = std::env::var_os(CLIENT_OF) else { return };
    let file = PathBuf::from(file);
    let mut connection = open(&file);
    let changed = std::env::var(CHANGES).expect("how many").parse().expect("a number");
    let mut number: i64 =
        connection.query_row("SELECT coalesce(max(number), 0) FROM done", [], |row| row.get(0)).expect("a number");
    loop {
        number += 1;
        transact(&mut connection, number, changed);
        let mut out = std::io::stdout().lock();
        // Whoever listens may be gone.
        let _ = writeln!(out, "committed {number}").and_then(|()| out.flush());
    }
}

fn mounting(directory: &Path, fault: Option<String>) -> Mounting {
    Mounting { fault, ..Mounting::below(directory, "128M").expect("directories") }
}

fn scratch() -> TempDir {
    machine::scratch("headpond-batch-")
}

fn can_run() -> bool {
    machine::lacks_nothing((!Path::new("/dev/fuse").exists()).then_some("/dev/fuse"))
}

#[test]
fn sqlite_without_a_journal_keeps_every_committed_transaction_whole_over_kills() {
    if !can_run() {
        return;
    }
    let directory = scratch();
    fs::create_dir(directory.path().join("origin")).expect("a directory");
    let _alone = machine::alone();
    let headpond = machine::headpond();
    let file = directory.path().join("mnt/app.db");
    let mount = headpond.mount(&mounting(directory.path(), None)).expect("it mounts");
    create(&file);
    mount.unmount_keep_dirty().expect("it unmounts");

    let (rounds, seed) = (machine::number("HEADPOND_BATCH_ROUNDS", 9), machine::number("HEADPOND_KILL_SEED", 1));
    let mut before = 0;
    for round in 0..rounds {
        // Every third round with transactions that are too large for a batch.
        let changed = if round % 3 == 2 { CHANGED_TOO_MANY } else { CHANGED };
        let fault = format!("lose-unsynced,early=300,torn=300,seed={}", seed * 1000 + round);
        let mount = headpond.mount(&mounting(directory.path(), Some(fault))).expect("it mounts");
        let last = verify(&file);
        assert!(last >= before, "committed up to {before}, and {last} is the last that is there");
        // The journal of a transaction that was too large: nothing is in it any more.
        let _ = fs::remove_file(directory.path().join("mnt/app.db-journal"));
        let mut client = Command::new(std::env::current_exe().expect("a path"));
        client.args(["a_client_commits_until_it_is_killed", "--exact", "--nocapture"]).env(CLIENT_OF, &file);
        client.env(CHANGES, changed.to_string());
        let mut client = client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a client");
        let output = BufReader::new(client.stdout.take().expect("its output"));
        let listener = std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.filter_map(|line| line.strip_prefix("committed ")?.parse::<i64>().ok()).last().unwrap_or(0)
        });
        std::thread::sleep(Duration::from_millis(300 + (seed * 7 + round * 137) % 500));
        let journal = directory.path().join("mnt/app.db-journal").exists();
        mount.kill();
        let _ = client.kill();
        let _ = client.wait();
        before = listener.join().expect("it listens").max(last);
        println!("round {round}: {} transactions committed, {before} in all", before - last);
        assert!(before > last, "nothing was committed in round {round}");
        assert_eq!(journal, changed == CHANGED_TOO_MANY, "whether a journal was needed for {changed} pages");
    }
    let mount = headpond.mount(&mounting(directory.path(), None)).expect("it mounts");
    assert!(verify(&file) >= before);
    mount.unmount().expect("it unmounts");
    assert!(verify(&directory.path().join("origin/app.db")) >= before, "the origin alone has it, too");
}

/// The control: the same SQLite on a file system that does not offer batches uses its journal.
#[test]
fn elsewhere_the_same_sqlite_uses_its_journal() {
    let directory = scratch();
    let file = directory.path().join("app.db");
    create(&file);
    transact(&mut open(&file), 1, CHANGED);
    assert_eq!(verify(&file), 1);
    assert!(directory.path().join("app.db-journal").exists());
    let built: Vec<String> = {
        let connection = open(&file);
        let mut rows = connection.prepare("PRAGMA compile_options").expect("a query");
        rows.query_map([], |row| row.get(0)).expect("rows").map(|row| row.expect("a row")).collect()
    };
    assert!(built.iter().any(|option| option == "ENABLE_BATCH_ATOMIC_WRITE"), "{built:?}");
}

/// Transactions in a second by this journal mode, for so long.
fn rate(connection: &mut Connection, number: &mut i64, time: Duration) -> f64 {
    let (begun, first) = (Instant::now(), *number);
    while begun.elapsed() < time {
        *number += 1;
        transact(connection, *number, CHANGED);
    }
    (*number - first) as f64 / begun.elapsed().as_secs_f64()
}

/// A measurement, not a test: it is not run unless it is asked for. In alternation, on one mount: the same
/// transactions with batches, and with the rollback journal that SQLite takes where it is not offered them. That is so
/// for a file of which a rule decides writes of 64 KiB: SQLite's own are of 4 KiB, and no rule touches those.
#[test]
#[ignore = "a measurement: -- --ignored --nocapture"]
fn transactions_with_batches_against_those_with_a_rollback_journal() {
    let directory = scratch();
    fs::create_dir(directory.path().join("origin")).expect("a directory");
    let mount = machine::headpond().mount(&mounting(directory.path(), None)).expect("it mounts");
    let pairs = machine::number("HEADPOND_BATCH_PAIRS", 5);
    let time = Duration::from_millis(machine::number("HEADPOND_BATCH_MILLISECONDS", 3000));
    let mut rule = Command::new(machine::program());
    rule.args(["rules", "add"]).arg(directory.path().join("mnt"));
    rule.args(["path=journal.db", "min-size=64K", "direction=write", "action=bypass"]);
    assert!(rule.status().expect("it runs").success());
    let (batched, journalled) = (directory.path().join("mnt/batch.db"), directory.path().join("mnt/journal.db"));
    let (mut numbers, mut ratios) = ([0, 0], Vec::new());
    for file in [&batched, &journalled] {
        create(file);
    }
    for pair in 0..pairs {
        let mut rates = [0.0; 2];
        for side in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let mut connection = open([&batched, &journalled][side]);
            rates[side] = rate(&mut connection, &mut numbers[side], time);
        }
        ratios.push(rates[0] / rates[1]);
        println!("batches {:.0}/s, rollback journal {:.0}/s: {:.2}", rates[0], rates[1], rates[0] / rates[1]);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of the ratios: {:.2}", ratios[ratios.len() / 2]);
    assert!(!batched.with_file_name("batch.db-journal").exists() && verify(&batched) == numbers[0]);
    assert!(journalled.with_file_name("journal.db-journal").exists() && verify(&journalled) == numbers[1]);
    mount.unmount().expect("it unmounts");
}
