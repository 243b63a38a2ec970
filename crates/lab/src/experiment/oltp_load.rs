//! A load by sysbench's OLTP on a database: its command, and what it prints.

use super::plan::Point;
use super::record::{Figures, Second};
use super::server::{Needs, Server};
use super::{Case, Definition};
use crate::sysbench::{self, Load, parse_second, parse_totals};
use headpond_base::Nanos;
use headpond_measure::Latency;
use std::process::Command;

/// The redo log, for each second of a run: large enough not to force a checkpoint within it.
const REDO_LOG_MIB_PER_SECOND: u32 = 4;
/// A log is no smaller, and need not be larger. Each visit copies it.
const REDO_LOG_MIB: (u32, u32) = (16, 256);

fn redo_log_mib(definition: &Definition) -> u32 {
    let seconds = definition.warmup + definition.seconds;
    (seconds * REDO_LOG_MIB_PER_SECOND).clamp(REDO_LOG_MIB.0, REDO_LOG_MIB.1)
}

/// What the server needs under the load.
#[must_use]
pub fn needs(definition: &Definition, more: &[String]) -> Needs {
    let memory_mib = definition.buffer_pool.unwrap_or(64);
    Needs { memory_mib, log_mib: redo_log_mib(definition), durable: true, more: more.to_vec() }
}

/// What the server needs that makes the tables, in a hurry.
#[must_use]
pub fn loading(definition: &Definition) -> Needs {
    let memory_mib = definition.size.clamp(128, 1024);
    Needs { memory_mib, log_mib: redo_log_mib(definition), durable: false, more: Vec::new() }
}

/// The command that makes and fills the tables.
#[must_use]
pub fn prepare(definition: &Definition, server: &Server) -> Command {
    load(definition).prepare_command(server.connection())
}

fn load(definition: &Definition) -> Load {
    Load { tables: definition.tables.unwrap_or(1), rows: definition.rows.unwrap_or(1), threads: 1 }
}

/// The command of a run.
#[must_use]
pub fn command(definition: &Definition, case: &Case, point: &Point, server: &Server, seed: u64) -> Command {
    let script = case.script.as_deref().unwrap_or("oltp_read_write");
    let mut command = load(definition).command(script, server.connection());
    command.arg("--rand-type=pareto").args(run_options(definition, point, seed)).arg("run");
    command
}

/// sysbench's options for a point.
#[must_use]
pub fn run_options(definition: &Definition, point: &Point, seed: u64) -> Vec<String> {
    let mut options = sysbench::run_options(point.threads, definition.warmup, definition.seconds);
    options.extend([format!("--rand-seed={seed}"), "--histogram".to_owned()]);
    // sysbench fixes the moments beforehand, and counts a latency from there: the wait for a free client is in it.
    options.extend(definition.cases[point.case].rate.map(|rate| format!("--rate={rate}")));
    options
}

/// Reads what sysbench printed. `counted` is the time that counts, in seconds.
pub fn parse(output: &str, counted: f64) -> Result<(Figures, Vec<Second>), String> {
    let totals = parse_totals(output).ok_or("the last report of sysbench is not as expected")?;
    let latency = histogram(output);
    let percentile = |share| latency.percentile(share).map(|nanos| nanos.0 as f64 / 1e6);
    let figures = Figures {
        throughput: totals.tps,
        operations: totals.transactions as u64,
        seconds: if totals.tps > 0.0 { totals.transactions / totals.tps } else { counted },
        read_bytes: 0,
        write_bytes: 0,
        mean_ms: Some(totals.mean_ms),
        p50_ms: percentile(0.5),
        p95_ms: Some(totals.p95_ms),
        p99_ms: percentile(0.99),
        p999_ms: percentile(0.999),
        max_ms: Some(longest(totals.max_ms, latency.longest().map(|nanos| nanos.0 as f64 / 1e6))),
    };
    let second = |line: &str| {
        let second = parse_second(line)?;
        // Where sysbench forgets the warm-up it prints a zero for a second that had transactions.
        let p95_ms = (second.p95_ms > 0.0).then_some(second.p95_ms);
        Some(Second { at: second.at, throughput: second.tps, p95_ms, p99_ms: None })
    };
    Ok((figures, output.lines().filter_map(second).collect()))
}

/// sysbench forgets the warm-up in its sums and in its histogram one after the other: a transaction that ends just then
/// may be in one of them only. A step of the histogram is below 2 %.
fn longest(in_sums: f64, in_histogram: Option<f64>) -> f64 {
    in_histogram.filter(|longest| *longest > in_sums * 1.02).unwrap_or(in_sums)
}

/// The last histogram, which is of the part that counts: `  1.044 |*****   310`, in milliseconds.
fn histogram(output: &str) -> Latency {
    let mut latency = Latency::default();
    let Some((_, rows)) = output.rsplit_once("Latency histogram") else { return latency };
    for row in rows.lines().skip(2) {
        let Some((value, rest)) = row.split_once('|') else { break };
        let count = rest.split_whitespace().next_back().and_then(|word| word.parse().ok());
        if let (Ok(value), Some(count)) = (value.trim().parse::<f64>(), count) {
            latency.record_many(Nanos((value * 1e6) as u64), count);
        }
    }
    latency
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_of_the_part_that_counts_gives_the_percentiles() {
        let output = "[ 1s ] thds: 2 tps: 50.00 qps: 9 lat (ms,95%): 0.00 err/s: 0\n\
            [ 2s ] thds: 2 tps: 70.00 qps: 9 lat (ms,95%): 3.00 err/s: 0\n\
            Latency histogram (values are in milliseconds)\n       value  ------ distribution ------ count\n\
            \x20      1.000 |**************************************** 900\n       2.000 |*   95\n       8.000 |   5\n \n\
            SQL statistics:\n    transactions:                        1000   (500.00 per sec.)\n\
            Latency (ms):\n         avg:  1.13\n         max:  8.10\n         95th percentile: 2.00\n";
        let (figures, seconds) = parse(output, 2.0).unwrap();
        assert_eq!((figures.operations, figures.throughput, figures.seconds), (1000, 500.0, 2.0));
        let near =
            |found: Option<f64>, expected: f64| assert!((found.unwrap() / expected - 1.0).abs() < 0.01, "{found:?}");
        near(figures.p50_ms, 1.0);
        near(figures.p99_ms, 2.0);
        near(figures.p999_ms, 8.0);
        near(figures.max_ms, 8.10);
        assert_eq!(seconds.iter().map(|second| second.p95_ms).collect::<Vec<_>>(), [None, Some(3.0)]);
        assert!(parse("nothing", 1.0).is_err());
        let (figures, _) = parse(&output.replace("max:  8.10", "max:  5.10"), 2.0).unwrap();
        near(figures.max_ms, 8.0);
    }
}
