//! A load by PostgreSQL's own pgbench: its commands, and what it prints.
//!
//! Invariant: figures are of the seconds that count. pgbench has no warm-up, so the lab adds up pgbench's figures of
//! each second. pgbench gives no percentiles.

use super::definition::PGBENCH_SCRIPTS;
use super::plan::Point;
use super::record::{Figures, Second};
use super::server::Server;
use super::{Case, Definition};
use crate::postgres;
use std::process::Command;

/// The command that makes and fills the tables.
#[must_use]
pub fn prepare(definition: &Definition, server: &Server) -> Command {
    let mut command = pgbench(server);
    command.args(["--initialize", "--quiet"]).arg(format!("--scale={}", definition.scale.unwrap_or(1)));
    command.arg(postgres::SUPERUSER);
    command
}

/// The command of a run.
#[must_use]
pub fn command(definition: &Definition, case: &Case, point: &Point, server: &Server, seed: u64) -> Command {
    let mut command = pgbench(server);
    let script = case.script.as_deref().unwrap_or(PGBENCH_SCRIPTS[0]);
    // The tables were vacuumed when they were made.
    command.args(["--no-vacuum", "--progress=1"]).arg(format!("--builtin={script}"));
    command.arg(format!("--client={}", point.threads)).arg(format!("--jobs={}", point.threads.min(2)));
    command.arg(format!("--time={}", definition.warmup + definition.seconds)).arg(format!("--random-seed={seed}"));
    command.args(definition.cases[point.case].rate.map(|rate| format!("--rate={rate}")));
    command.arg(postgres::SUPERUSER);
    command
}

fn pgbench(server: &Server) -> Command {
    let mut command = Command::new(postgres::program("pgbench"));
    command.args(server.host()).arg(format!("--username={}", postgres::SUPERUSER));
    command
}

/// Reads what pgbench printed, of a run that begins to count after `warmup` seconds.
pub fn parse(output: &str, warmup: f64) -> Result<(Figures, Vec<Second>), String> {
    let told: Vec<(Second, f64)> = output.lines().filter_map(progress).collect();
    let (mut before, mut operations, mut seconds, mut waited) = (0.0, 0.0, 0.0, 0.0);
    for (second, mean_ms) in &told {
        let took = second.at - before;
        before = second.at;
        if second.at > warmup + 0.5 {
            seconds += took;
            operations += second.throughput * took;
            waited += second.throughput * took * mean_ms;
        }
    }
    if seconds <= 0.0 || !output.contains("number of transactions actually processed") {
        return Err("the last report of pgbench is not as expected".to_owned());
    }
    let failed = output.lines().find_map(|line| line.strip_prefix("number of failed transactions: "));
    if let Some(failed) = failed.filter(|failed| !failed.starts_with("0 ")) {
        return Err(format!("transactions failed: {failed}"));
    }
    let figures = Figures {
        throughput: operations / seconds,
        operations: operations.round() as u64,
        seconds,
        mean_ms: (operations > 0.0).then(|| waited / operations),
        ..Figures::default()
    };
    Ok((figures, told.into_iter().map(|(second, _)| second).collect()))
}

/// Reads `progress: 5.0 s, 742.1 tps, lat 10.7 ms stddev 3.2, 0 failed`, with the mean latency.
fn progress(line: &str) -> Option<(Second, f64)> {
    let (at, rest) = line.strip_prefix("progress: ")?.split_once(" s, ")?;
    let (throughput, rest) = rest.split_once(" tps, lat ")?;
    let mean_ms = rest.split_whitespace().next()?.parse().ok()?;
    Some((Second { at: at.parse().ok()?, throughput: throughput.parse().ok()?, p95_ms: None, p99_ms: None }, mean_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "pgbench (15.14 (Debian 15.14-0+deb12u1))\n\
        progress: 1.0 s, 900.0 tps, lat 1.100 ms stddev 0.5, 0 failed\n\
        progress: 2.0 s, 100.0 tps, lat 8.000 ms stddev 0.5, 0 failed\n\
        progress: 3.0 s, 300.0 tps, lat 4.000 ms stddev 0.5, 0 failed\n\
        transaction type: <builtin: simple update>\nnumber of transactions actually processed: 1300\n\
        number of failed transactions: 0 (0.000%)\n";

    #[test]
    fn the_seconds_that_count_make_the_figures() {
        let (figures, seconds) = parse(OUTPUT, 1.0).unwrap();
        assert_eq!((figures.throughput, figures.operations, figures.seconds), (200.0, 400, 2.0));
        assert_eq!((figures.mean_ms, figures.p99_ms), (Some(5.0), None));
        assert_eq!(seconds.len(), 3);
    }

    #[test]
    fn a_run_that_failed_is_no_run() {
        assert!(parse("progress: 1.0 s, 9.0 tps, lat 1.0 ms stddev 0.5, 0 failed\n", 0.0).is_err());
        assert!(parse(&OUTPUT.replace("transactions: 0", "transactions: 7"), 1.0).unwrap_err().contains("7 (0"));
    }
}
