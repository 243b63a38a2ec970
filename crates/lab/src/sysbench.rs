//! The load: sysbench's `oltp_read_write`, and what it prints.
//!
//! Invariant: figures are sysbench's own. The figures of the measured part are those that it
//! prints at its end, after it was told to forget all at the end of the warm-up.

use crate::command;
use crate::failure::{Failure, Result, check_interrupt};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The database that the load uses.
pub const DATABASE: &str = "lab";
/// The user of the load inside the database.
pub const DATABASE_USER: &str = "lab";

/// The load that most use.
const SCRIPT: &str = "oltp_read_write";
const DOING: &str = "running sysbench";

/// The size and shape of a load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The number of tables.
    pub tables: u32,
    /// Rows of each table; a row with its share of the indexes takes about 246 bytes.
    pub rows: u32,
    /// Clients at once.
    pub threads: u32,
}

/// What one second looked like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    /// Seconds since the start of the load.
    pub at: f64,
    /// Transactions finished in this second.
    pub tps: f64,
    /// The 95th percentile of their latency, in milliseconds; zero if none finished.
    pub p95_ms: f64,
}

/// What sysbench says about the measured part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SysbenchTotals {
    /// Transactions.
    pub transactions: f64,
    /// Transactions per second.
    pub tps: f64,
    /// The mean latency, in milliseconds.
    pub mean_ms: f64,
    /// The 95th percentile of the latency, in milliseconds.
    pub p95_ms: f64,
    /// The longest latency, in milliseconds.
    pub max_ms: f64,
}

/// sysbench's options that say how long it runs after its warm-up, with how many clients, and what it tells.
#[must_use]
pub fn run_options(threads: u32, warmup: u32, measured: u32) -> Vec<String> {
    let mut options = vec![format!("--threads={threads}"), format!("--time={}", warmup + measured)];
    options.extend(["--percentile=95", "--report-interval=1"].map(str::to_owned));
    if warmup > 0 {
        options.push(format!("--report-checkpoints={warmup}"));
    }
    // A client that waits for the disk at the end gets time to finish its transaction.
    options.push("--forced-shutdown=30".to_owned());
    options
}

/// The version, as sysbench tells it.
pub fn version() -> Result<String> {
    let text = command::run("asking sysbench's version", Command::new("sysbench").arg("--version"))?;
    Ok(text.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

impl Load {
    /// The command of one of sysbench's scripts over a connection, without its step (`prepare`, `run`).
    #[must_use]
    pub fn command(&self, script: &str, connection: Vec<String>) -> Command {
        let mut command = Command::new("sysbench");
        command.arg(script).args(connection);
        command.args([format!("--tables={}", self.tables), format!("--table-size={}", self.rows)]);
        command
    }

    /// The command that makes and fills the tables.
    #[must_use]
    pub fn prepare_command(&self, connection: Vec<String>) -> Command {
        let mut command = self.command(SCRIPT, connection);
        command.arg(format!("--threads={}", self.tables)).arg("prepare");
        command
    }

    /// Makes and fills the tables.
    pub fn prepare(&self, socket: &Path) -> Result<()> {
        command::run("loading the tables", &mut self.prepare_command(connection(socket)))?;
        Ok(())
    }

    /// The command of a run of `warmup` and then `measured` seconds.
    #[must_use]
    pub fn run_command(&self, socket: &Path, warmup: u32, measured: u32) -> Command {
        let mut command = self.command(SCRIPT, connection(socket));
        command.arg("--rand-type=pareto").args(run_options(self.threads, warmup, measured)).arg("run");
        command
    }

    /// A load that goes on until it is ended or fails.
    #[must_use]
    pub fn endless_command(&self, socket: &Path) -> Command {
        let mut command = self.command(SCRIPT, connection(socket));
        command.args([format!("--threads={}", self.threads), "--time=0".to_owned(), "run".to_owned()]);
        command
    }

    /// Starts the load.
    pub fn start(&self, mut command: Command) -> Result<RunningLoad> {
        let child = command::detach(&mut command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| command::failed(DOING, &command, error, ""))?;
        Ok(RunningLoad { command, child })
    }
}

/// A running load, killed when its owner lets go of it.
pub struct RunningLoad {
    command: Command,
    child: Child,
}

impl RunningLoad {
    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells `each` about every second as it passes, until the load is over.
    pub fn follow(mut self, mut each: impl FnMut(Second) -> Result<()>) -> Result<SysbenchTotals> {
        let mut output = String::new();
        if let Some(pipe) = self.child.stdout.take() {
            for line in BufReader::new(pipe).lines() {
                let line = line.map_err(Failure::io("reading what sysbench prints"))?;
                if let Some(second) = parse_second(&line) {
                    each(second)?;
                }
                output.push_str(&line);
                output.push('\n');
                check_interrupt()?;
            }
        }
        let mut errors = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            // Only for a message; what was read until an error is what there is.
            let _ = pipe.read_to_string(&mut errors);
        }
        let status = self.child.wait().map_err(Failure::io("waiting for sysbench"))?;
        let failed = |status: &str| command::failed(DOING, &self.command, status, &format!("{output}{errors}"));
        if !status.success() {
            return Err(failed(&status.to_string()));
        }
        parse_totals(&output).ok_or_else(|| failed("its last report is not as expected"))
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // Failing means that it is gone already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads `[ 7s ] thds: 8 tps: 725.98 qps: ... lat (ms,95%): 20.37 err/s: ...`.
pub(crate) fn parse_second(line: &str) -> Option<Second> {
    let (at, rest) = line.strip_prefix('[')?.split_once("s ]")?;
    let after = |word: &str| rest.split_once(word)?.1.split_whitespace().next()?.parse().ok();
    Some(Second { at: at.trim().parse().ok()?, tps: after("tps:")?, p95_ms: after("lat (ms,95%):")? })
}

/// Reads the last of the reports: the one before it was about the warm-up.
pub(crate) fn parse_totals(output: &str) -> Option<SysbenchTotals> {
    let last = output.rsplit("SQL statistics:").next()?;
    let value = |label: &str| {
        let line = last.lines().find_map(|line| line.trim().strip_prefix(label))?;
        Some(
            line.split_whitespace()
                .map(|word| word.trim_start_matches('('))
                .filter_map(|word| word.parse().ok())
                .collect(),
        )
    };
    let first = |label: &str| value(label).and_then(|values: Vec<f64>| values.first().copied());
    let transactions: Vec<f64> = value("transactions:")?;
    Some(SysbenchTotals {
        transactions: *transactions.first()?,
        tps: *transactions.get(1)?,
        mean_ms: first("avg:")?,
        p95_ms: first("95th percentile:")?,
        max_ms: first("max:")?,
    })
}

/// sysbench's options that lead to the server on `socket`.
#[must_use]
pub fn connection(socket: &Path) -> Vec<String> {
    vec![
        "--db-driver=mysql".to_owned(),
        format!("--mysql-socket={}", socket.display()),
        format!("--mysql-user={DATABASE_USER}"),
        format!("--mysql-db={DATABASE}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../tests/data/sysbench.txt");

    #[test]
    fn a_line_of_progress_is_read() {
        let line = "[ 8s ] thds: 8 tps: 484.95 qps: 9693.01 (r/w/o: 6783.31/1939.80/969.90) lat (ms,95%): 20.00 err/s: 0.00 reconn/s: 0.00";
        assert_eq!(parse_second(line), Some(Second { at: 8.0, tps: 484.95, p95_ms: 20.0 }));
        assert_eq!(parse_second("[ 10s ] Checkpoint report:"), None);
        assert_eq!(parse_second("Threads started!"), None);
    }

    #[test]
    fn the_totals_are_those_of_the_measured_part_and_not_of_the_warm_up() {
        let totals = parse_totals(OUTPUT).expect("a whole report");
        let wanted =
            SysbenchTotals { transactions: 16143.0, tps: 806.74, mean_ms: 9.92, p95_ms: 16.71, max_ms: 387.99 };
        assert_eq!(totals, wanted);
        assert_eq!(OUTPUT.lines().filter_map(parse_second).count(), 30);
    }
}
