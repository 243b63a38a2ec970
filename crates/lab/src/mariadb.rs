//! A MariaDB server of the experiment's own: its own directory, its own socket, no network.
//!
//! Invariant: it neither reads nor writes the system's server, its data and its configuration files
//! (`--no-defaults`), and opens no port.

use crate::command;
use crate::database::{Database, Pages, Places};
use crate::failure::{Failure, Result, check_interrupt};
use crate::service::Service;
use crate::sysbench::{DATABASE, DATABASE_USER, Load};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// MariaDB's own default.
const PURGE_THREADS: usize = 4;
/// How long a start may take: recovery on a slow disk takes its time.
const START_MAX: Duration = Duration::from_secs(180);
/// How long a clean stop may take.
const STOP_MAX: Duration = Duration::from_secs(180);
/// How long the purge of deleted rows may take after a crash.
const PURGE_MAX: Duration = Duration::from_secs(60);

/// The settings that matter to storage.
#[derive(Clone, Debug)]
pub struct MariadbSettings {
    /// InnoDB's buffer pool, in MiB.
    pub buffer_pool_mib: u32,
    /// InnoDB's redo log, in MiB.
    pub redo_log_mib: u32,
    /// Whether each commit is made durable. Off only to load data that can be loaded again.
    pub durable: bool,
    /// Further options, which win over those above.
    pub more: Vec<String>,
}

/// The load of the kill test.
const LOAD: Load = Load { tables: 2, rows: 20_000, threads: 3 };

/// Clients at once, the lab's own included: a study had 512.
const CONNECTIONS_MAX: u32 = 600;

impl MariadbSettings {
    /// Smaller than the tables of the kill test's load, so that pages are read and written.
    pub const SMALL: Self = Self { buffer_pool_mib: 6, redo_log_mib: 16, durable: true, more: Vec::new() };

    /// As options of the server.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        let durable = u8::from(self.durable);
        let mut options = vec![
            format!("--innodb-buffer-pool-size={}M", self.buffer_pool_mib),
            format!("--innodb-log-file-size={}M", self.redo_log_mib),
            "--innodb-flush-method=O_DIRECT".to_owned(),
            format!("--innodb-flush-log-at-trx-commit={durable}"),
            format!("--innodb-doublewrite={durable}"),
            format!("--innodb-purge-threads={}", purge_threads()),
            // Every start is a cold one: no run profits from what another left behind.
            "--innodb-buffer-pool-dump-at-shutdown=0".to_owned(),
            "--innodb-buffer-pool-load-at-startup=0".to_owned(),
            "--skip-log-bin".to_owned(),
            "--skip-networking".to_owned(),
            format!("--max-connections={CONNECTIONS_MAX}"),
        ];
        options.extend(self.more.iter().cloned());
        options
    }
}

/// No more threads that purge than processors, of MariaDB's default of four.
///
/// Purge, and what happens once a page was written, are tasks of one pool of the server's, which starts no further
/// task while more than two for each processor are busy. Tasks that wait for a page's latch count as busy, so with two
/// processors four that purge and the one that leads them keep the pool from ever releasing the pages they wait for.
/// The pool finds out when it looks after itself: every 0.4 s, and from a minute after a start without hardship on
/// every 4 s. Until then everything stands still: two or three seconds, again and again (docs/results).
fn purge_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(PURGE_THREADS)
}

/// The account that the server runs as, if not the one that runs the experiment.
///
/// A server does not run as root. Where the experiment does, it uses the system's `mysql` account,
/// which Debian makes with its server package, or else `nobody`.
#[must_use]
pub fn account() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let exists = accounts.lines().any(|line| line.starts_with("mysql:"));
    Some(if exists { "mysql" } else { "nobody" })
}

/// A program that Debian puts where only root's `PATH` leads.
fn program(name: &str) -> PathBuf {
    let system = Path::new("/usr/sbin").join(name);
    if system.exists() { system } else { PathBuf::from(name) }
}

/// The server in a `/dev` of its own, in which the marker is that MariaDB looks for: the system's is left alone, and so
/// are other servers. The process becomes the server's.
fn beside_marker(run: &Path) -> Command {
    const SCRIPT: &str = r#"
        set -e
        mkdir -p "$1/dev"
        mount -t tmpfs -o mode=755 none "$1/dev"
        touch "$1/dev/fcta"
        for node in null zero full random urandom tty; do
            touch "$1/dev/$node"
            mount --bind "/dev/$node" "$1/dev/$node"
        done
        ln -s /proc/self/fd "$1/dev/fd"
        mount --rbind "$1/dev" /dev
        shift
        exec "$@"
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"]).arg(run).arg(program("mariadbd"));
    command
}

/// What this machine lacks to have MariaDB ask for whole writes.
#[must_use]
pub fn missing_for_whole() -> Vec<String> {
    let mut missing = missing();
    missing.extend(command::lacking(&["unshare", "mount"]));
    if !rustix::process::geteuid().is_root() {
        missing.push("root, for a /dev of the server's own".to_owned());
    }
    missing
}

/// The version, as the server tells it.
pub fn version() -> Result<String> {
    let text = command::run("asking MariaDB's version", Command::new(program("mariadbd")).arg("--version"))?;
    Ok(text.split("Ver ").nth(1).unwrap_or(&text).split(" for ").next().unwrap_or_default().trim().to_owned())
}

/// Makes `directory` the server's, so that it can write there.
pub fn give(directory: &Path) -> Result<()> {
    if let Some(account) = account() {
        let mut chown = Command::new("chown");
        chown.arg("-R").arg(account).arg(directory);
        command::run("handing the directory to the server's account", &mut chown)?;
    }
    Ok(())
}

/// Where a server keeps temporary tables. A server that starts takes away all that it finds of them, so two must not
/// share a directory, as they would `/tmp`.
fn own_scratch(directory: &Path) -> String {
    format!("--tmpdir={}", directory.display())
}

/// Makes an empty database in `data`, a directory that is made for it.
pub fn install(data: &Path) -> Result<()> {
    std::fs::create_dir_all(data).map_err(Failure::io(format!("making {}", data.display())))?;
    give(data)?;
    let mut install = Command::new("mariadb-install-db");
    install.arg("--no-defaults").arg(format!("--datadir={}", data.display())).arg(own_scratch(data));
    // `--force` leaves out the look-up of the machine's name, by a program that Debian has in the
    // package of the system-wide server only.
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--force"]);
    install.args(account().map(|account| format!("--user={account}")));
    command::run("making an empty database", &mut install)?;
    Ok(())
}

/// A running server.
pub struct Server {
    service: Service,
    socket: PathBuf,
    asks_for_whole: bool,
}

impl Server {
    /// Starts a server on `data`. Its socket and its log go to the directory `run`.
    pub fn start(data: &Path, run: &Path, settings: &MariadbSettings) -> Result<Self> {
        Self::start_in(Command::new(program("mariadbd")), data, run, settings)
    }

    /// The same, and it finds the marker by which it decides to ask whether writes are whole (`headpond atomic`).
    pub fn start_that_asks(data: &Path, run: &Path, settings: &MariadbSettings) -> Result<Self> {
        let server = Self::start_in(beside_marker(run), data, run, settings)?;
        Ok(Self { asks_for_whole: true, ..server })
    }

    fn start_in(mut command: Command, data: &Path, run: &Path, settings: &MariadbSettings) -> Result<Self> {
        std::fs::create_dir_all(run).map_err(Failure::io(format!("making {}", run.display())))?;
        give(run)?;
        let socket = run.join("mariadb.sock");
        command.arg("--no-defaults");
        command.args(account().map(|account| format!("--user={account}")));
        command.arg(format!("--datadir={}", data.display())).arg(format!("--socket={}", socket.display()));
        command.arg(own_scratch(run));
        command.arg(format!("--pid-file={}", run.join("mariadb.pid").display()));
        command.args(settings.options());
        let service = Service::start("starting MariaDB", command, &run.join("mariadb.log"))?;
        let mut server = Self { service, socket, asks_for_whole: false };
        let probe = client(&server.socket);
        server.service.wait_until(START_MAX, || answers(&probe))?;
        Ok(server)
    }

    /// The socket that clients connect to.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.service.pid()
    }

    /// The server's command as it would be typed.
    #[must_use]
    pub fn typed(&self) -> String {
        self.service.typed()
    }

    /// Runs statements as the database's root, and returns the rows, tabs between the columns.
    pub fn sql(&self, statements: &str) -> Result<String> {
        let mut client = client(&self.socket);
        client.args(["--user=root", "--batch", "--skip-column-names"]).arg(format!("--execute={statements}"));
        command::run("running SQL", &mut client)
    }

    /// Makes the database and the user of the load.
    pub fn create_database(&self) -> Result<()> {
        self.sql(&format!(
            "CREATE DATABASE {DATABASE}; CREATE USER '{DATABASE_USER}'@'localhost'; \
             GRANT ALL ON {DATABASE}.* TO '{DATABASE_USER}'@'localhost'"
        ))?;
        Ok(())
    }

    /// Checks every table of the load's database row by row. Returns the number of tables, or what
    /// is wrong.
    pub fn check_tables(&self) -> Result<usize> {
        let names =
            self.sql(&format!("SELECT table_name FROM information_schema.tables WHERE table_schema='{DATABASE}'"))?;
        for name in names.lines() {
            self.check_table(name)?;
        }
        Ok(names.lines().count())
    }

    /// Right after a crash, deleted rows wait to be purged, and the check warns of those that it
    /// meets half purged (MDEV-24402 says why that is no damage). Such a warning goes away with the
    /// purge, so the table is checked again until there is none; anything else is damage.
    fn check_table(&self, name: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            let rows = self.sql(&format!("CHECK TABLE {DATABASE}.{name} EXTENDED"))?;
            if !rows.is_empty() && rows.lines().all(|row| row.ends_with("\tstatus\tOK")) {
                return Ok(());
            }
            let damage = rows.lines().any(|row| !row.ends_with("\tstatus\tOK") && !row.contains("\tWarning\t"));
            if damage || start.elapsed() > PURGE_MAX {
                return Err(Failure::Other(format!("CHECK TABLE {name} EXTENDED says:\n{rows}")));
            }
            check_interrupt()?;
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Stops the server in order: everything is written back first.
    pub fn stop(mut self) -> Result<()> {
        self.sql("SHUTDOWN")?;
        self.service.wait_for_end(STOP_MAX)
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(mut self) {
        self.service.kill();
    }
}

impl Database for Server {
    fn sql(&self, statements: &str) -> Result<String> {
        Self::sql(self, &format!("USE {DATABASE}; {statements}"))
    }

    fn client(&self) -> Command {
        let mut client = client(&self.socket);
        client.arg(format!("--user={DATABASE_USER}"));
        client.args(["--batch", "--skip-column-names", "--unbuffered", "--skip-reconnect", DATABASE]);
        client
    }

    fn begin(&self) -> &'static str {
        "START TRANSACTION"
    }

    fn fill(&self) -> Result<()> {
        LOAD.prepare(&self.socket)
    }

    fn load(&self, places: &Places) -> Result<Service> {
        Service::start("sysbench", LOAD.endless_command(&self.socket), &places.run.join("sysbench.log"))
    }

    fn check(&self) -> Result<usize> {
        self.check_tables()
    }

    fn pages(&self) -> Result<Option<Pages>> {
        if !self.asks_for_whole {
            return Ok(None);
        }
        let rows = Self::sql(
            self,
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_pages_written', 'Innodb_dblwr_pages_written')",
        )?;
        let number = |name: &str| {
            let row = rows.lines().find_map(|row| row.strip_prefix(name)?.trim().parse().ok());
            row.ok_or_else(|| Failure::Other(format!("{name} is not in:\n{rows}")))
        };
        Ok(Some(Pages { written: number("Innodb_pages_written")?, copies: number("Innodb_dblwr_pages_written")? }))
    }

    fn stop(self: Box<Self>) -> Result<()> {
        Self::stop(*self)
    }

    fn kill(self: Box<Self>) {
        Self::kill(*self);
    }
}

/// What this machine lacks to run it under load.
#[must_use]
pub fn missing() -> Vec<String> {
    let mut missing = command::lacking(&["mariadb", "mariadb-install-db", "sysbench"]);
    if version().is_err() {
        missing.push("mariadbd".to_owned());
    }
    missing
}

/// The command-line client on `socket`.
#[must_use]
pub fn client(socket: &Path) -> Command {
    let mut client = Command::new("mariadb");
    client.arg("--no-defaults").arg(format!("--socket={}", socket.display()));
    client
}

fn answers(client: &Command) -> bool {
    let mut ask = Command::new(client.get_program());
    ask.args(client.get_args()).args(["--user=root", "--execute=SELECT 1"]);
    command::run("asking the server", &mut ask).is_ok()
}
