//! A PostgreSQL server of the experiment's own: its own directory, its own socket, no network.
//!
//! Invariants:
//! - It neither reads nor writes the system's server, its data and its configuration files, and opens no port.
//! - Page checksums are on, so any check that reads a partly old page notices it.

use crate::command;
use crate::database::{Database, Places};
use crate::failure::{Failure, Result};
use crate::service::Service;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The database's root, and its first database, which is used as it is.
pub const SUPERUSER: &str = "postgres";
/// How long a start may take: recovery replays the log since the last checkpoint.
const START_MAX: Duration = Duration::from_secs(120);
/// How long a stop may take.
const STOP_MAX: Duration = Duration::from_secs(60);
/// pgbench's scale: 100,000 rows each, about 16 MiB with the index; more than the buffers hold.
const SCALE: &str = "1";
/// Clients at once, the lab's own included: a study had 512.
const CONNECTIONS_MAX: u32 = 600;
/// Clients of the load.
const CLIENTS: &str = "3";

/// The settings that matter to storage.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// The server's own cache of pages, in MiB.
    pub shared_buffers_mib: u32,
    /// How large the log may grow before a checkpoint, in MiB.
    pub max_wal_mib: u32,
    /// Whether the first change of each page after a checkpoint puts all of it into the log.
    pub full_page_writes: bool,
    /// Whether each commit is made durable. Off only to load data that can be loaded again.
    pub durable: bool,
    /// Further settings, `name=value`, which win over those above.
    pub more: Vec<String>,
}

impl PostgresSettings {
    /// Smaller than the tables of the kill test's load, so that pages are read and written. Checkpoints come often,
    /// and the log's files are used again often.
    #[must_use]
    pub fn small(full_page_writes: bool) -> Self {
        let more = vec!["checkpoint_timeout=30s".to_owned()];
        Self { shared_buffers_mib: 2, max_wal_mib: 16, full_page_writes, durable: true, more }
    }

    /// As `name=value`.
    fn options(&self) -> Vec<String> {
        let word = |on: bool| if on { "on" } else { "off" };
        let mut options = vec![
            format!("shared_buffers={}MB", self.shared_buffers_mib),
            format!("max_wal_size={}MB", self.max_wal_mib),
            "min_wal_size=8MB".to_owned(),
            format!("fsync={}", word(self.durable)),
            format!("synchronous_commit={}", word(self.durable)),
            format!("full_page_writes={}", word(self.full_page_writes)),
        ];
        options.extend(self.more.iter().cloned());
        options
    }
}

/// The account that the server runs as, if not the one that runs the experiment: it refuses root.
fn account() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let exists = accounts.lines().any(|line| line.starts_with("postgres:"));
    Some(if exists { "postgres" } else { "nobody" })
}

/// Debian keeps each version's programs in a directory of its own; the newest is taken.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.map(|entry| entry.path()).filter(|path| path.join("bin").join(name).exists());
    newest.max_by_key(number).map_or_else(|| PathBuf::from(name), |path| path.join("bin").join(name))
}

/// A program of the server, run as its account.
fn as_account(name: &str) -> Command {
    let Some(account) = account() else { return Command::new(program(name)) };
    // It replaces itself with the program, so the process is the server's own.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", account, "--regid", &group_of(account), "--clear-groups", "--"]).arg(program(name));
    command.current_dir("/");
    command
}

/// The number of an account's own group, whatever that group is called.
fn group_of(account: &str) -> String {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = accounts.lines().find(|line| line.split(':').next() == Some(account));
    line.and_then(|line| line.split(':').nth(3)).unwrap_or("65534").to_owned()
}

fn give(directory: &Path) -> Result<()> {
    if let Some(account) = account() {
        let mut chown = Command::new("chown");
        chown.arg("-R").arg(account).arg(directory);
        command::run("handing the directory to the server's account", &mut chown)?;
    }
    Ok(())
}

/// What this machine lacks to run it under load.
#[must_use]
pub fn missing() -> Vec<String> {
    let mut missing = command::lacking(&["psql", "setpriv"]);
    for name in ["postgres", "initdb", "pgbench"] {
        if command::run("looking", Command::new(program(name)).arg("--version")).is_err() {
            missing.push(name.to_owned());
        }
    }
    missing
}

/// Makes an empty database in `data`, a directory that is made for it.
pub fn install(data: &Path) -> Result<()> {
    std::fs::create_dir_all(data).map_err(Failure::io(format!("making {}", data.display())))?;
    give(data)?;
    let mut install = as_account("initdb");
    install.arg("--pgdata").arg(data).args(["--username", SUPERUSER, "--auth", "trust"]);
    install.args(["--data-checksums", "--locale=C", "--encoding=UTF8", "--wal-segsize=4"]);
    command::run("making an empty database", &mut install)?;
    Ok(())
}

/// A running server.
pub struct Server {
    service: Service,
    run: PathBuf,
}

impl Server {
    /// Starts a server on the data that is there.
    pub fn start(places: &Places, settings: &PostgresSettings) -> Result<Self> {
        std::fs::create_dir_all(&places.run).map_err(Failure::io(format!("making {}", places.run.display())))?;
        give(&places.run)?;
        let mut command = as_account("postgres");
        command.arg("-D").arg(&places.data).args(["-c", "listen_addresses="]);
        command.arg("-c").arg(format!("unix_socket_directories={}", places.run.display()));
        command.args(["-c", &format!("max_connections={CONNECTIONS_MAX}")]);
        for option in settings.options() {
            command.args(["-c", &option]);
        }
        let service = Service::start("starting PostgreSQL", command, &places.run.join("postgres.log"))?;
        let mut server = Self { service, run: places.run.clone() };
        let run = server.run.clone();
        server.service.wait_until(START_MAX, || {
            let mut ask = psql(&run);
            command::run("asking the server", ask.args(["--command", "SELECT 1"])).is_ok()
        })?;
        Ok(server)
    }

    /// The directory of the socket that clients connect to.
    #[must_use]
    pub fn socket_directory(&self) -> &Path {
        &self.run
    }

    /// The server's command as it would be typed.
    #[must_use]
    pub fn typed(&self) -> String {
        self.service.typed()
    }
}

/// The version, as the server tells it.
pub fn version() -> Result<String> {
    let text = command::run("asking PostgreSQL's version", Command::new(program("postgres")).arg("--version"))?;
    Ok(text.split_whitespace().nth(2).unwrap_or(&text).to_owned())
}

/// The command-line client: one row a line, tabs between the columns, no start-up file.
fn psql(run: &Path) -> Command {
    let mut client = Command::new("psql");
    client.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--field-separator=\t"]);
    client.args(["--set=ON_ERROR_STOP=1", "--username", SUPERUSER, "--dbname", SUPERUSER, "--host"]).arg(run);
    client
}

impl Database for Server {
    fn sql(&self, statements: &str) -> Result<String> {
        command::run("running SQL", psql(&self.run).arg("--command").arg(statements))
    }

    fn client(&self) -> Command {
        psql(&self.run)
    }

    fn begin(&self) -> &'static str {
        "BEGIN"
    }

    fn fill(&self) -> Result<()> {
        let mut fill = Command::new(program("pgbench"));
        fill.args(["--initialize", "--quiet", "--scale", SCALE, "--username", SUPERUSER, "--host"]).arg(&self.run);
        command::run("loading the tables", fill.arg(SUPERUSER))?;
        self.sql("CREATE EXTENSION amcheck")?;
        Ok(())
    }

    fn load(&self, places: &Places) -> Result<Service> {
        let mut load = Command::new(program("pgbench"));
        load.args(["--no-vacuum", "--client", CLIENTS, "--time", "3600", "--username", SUPERUSER, "--host"]);
        Service::start(
            "pgbench",
            {
                load.arg(&self.run).arg(SUPERUSER);
                load
            },
            &places.run.join("pgbench.log"),
        )
    }

    /// Every b-tree against its own order and its table, and every table page by page, the system's
    /// own catalogs included.
    fn check(&self) -> Result<usize> {
        let relations = |kinds: &str| {
            format!(
                "pg_class WHERE relpersistence = 'p' AND relkind IN ({kinds}) AND relnamespace <> 'pg_toast'::regnamespace"
            )
        };
        let indexes = self.sql(
            "SELECT count(bt_index_check(index => i.indexrelid, heapallindexed => true)) FROM pg_index i \
             JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam \
             WHERE a.amname = 'btree' AND c.relpersistence = 'p' AND i.indisvalid",
        )?;
        let damage = self.sql(&format!(
            "SELECT c.relname, v.* FROM (SELECT oid, relname FROM {}) AS c, \
             LATERAL verify_heapam(c.oid, check_toast => true) AS v",
            relations("'r', 'm'")
        ))?;
        if !damage.is_empty() {
            return Err(Failure::Other(format!("verify_heapam says:\n{damage}")));
        }
        let tables = self.sql(&format!("SELECT count(*) FROM {}", relations("'r', 'm'")))?;
        let number =
            |text: &str| text.trim().parse::<usize>().map_err(|_| Failure::Other(format!("no number: '{text}'")));
        Ok(number(&indexes)? + number(&tables)?)
    }

    fn stop(mut self: Box<Self>) -> Result<()> {
        self.service.interrupt();
        self.service.wait_for_end(STOP_MAX)
    }

    fn kill(mut self: Box<Self>) {
        // The server's processes leave its group, so its first process has to end them: at once,
        // without a checkpoint. It may be unable to: its disk is gone.
        self.service.quit();
    }
}
