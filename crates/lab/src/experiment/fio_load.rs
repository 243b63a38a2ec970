//! A load by fio: its command, and what it prints.
//!
//! fio reports its totals once a second, with histograms. The result is the last report minus the one at the end of
//! the warm-up. So every percentile is that of the requests that count, and there is one for each second, too. If
//! requests are due at a rate, latencies are those of [`open_loop`](super::open_loop).

use super::plan::Point;
use super::record::{Figures, Second};
use super::{Case, Definition, Dirty};
use headpond_base::Nanos;
use headpond_measure::Latency;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The data is written in pieces of this size, from start to end.
const LAY_OUT_BLOCK: &str = "--bs=1M";
/// A report this soon after the one before is its end.
const STUMP_SECONDS: f64 = 0.5;

/// The command that writes the data, of which the first part may be there already.
#[must_use]
pub fn lay_out_command(file: &Path, from_mib: u64, to_mib: u64) -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=data", "--thread", "--rw=write", LAY_OUT_BLOCK, "--ioengine=psync", "--end_fsync=1"]);
    command.args(["--refill_buffers", "--fallocate=none"]).arg(format!("--filename={}", file.display()));
    command.arg(format!("--offset={from_mib}M")).arg(format!("--size={}M", to_mib - from_mib));
    command
}

/// The command that makes the pool dirty: always the same blocks of a file, so that as many are dirty each time.
#[must_use]
pub fn dirty_command(file: &Path, dirty: Dirty) -> Command {
    let mut command = direct_command("--name=dirty", file);
    command.args(["--rw=randwrite", "--bs=16k", "--iodepth=16", "--randrepeat=1", "--end_fsync=1", "--fallocate=none"]);
    command.arg(format!("--size={}M", dirty.over)).arg(format!("--io_size={}M", dirty.written));
    command
}

/// The command that reads the data once.
#[must_use]
pub fn warm_command(file: &Path, mib: u32) -> Command {
    let mut command = direct_command("--name=warm", file);
    command.args(["--rw=read", "--bs=128k", "--iodepth=4"]).arg(format!("--size={mib}M"));
    command
}

/// The command that reads a file once in no order, so that it does not pass by a cache as a stream.
#[must_use]
pub fn once_command(file: &Path) -> Command {
    let mut command = direct_command("--name=once", file);
    command.args(["--readonly", "--rw=randread", "--bs=512k", "--iodepth=4"]);
    command
}

/// What all commands have that prepare a file for a run, past the kernel's cache.
fn direct_command(name: &str, file: &Path) -> Command {
    let mut command = Command::new("fio");
    command.args([name, "--thread", "--direct=1", "--ioengine=libaio"]).arg(format!("--filename={}", file.display()));
    command
}

/// The command of a run.
#[must_use]
pub fn command(definition: &Definition, case: &Case, point: &Point, file: &Path, seed: u64) -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=load", "--thread", "--group_reporting", "--norandommap", "--fallocate=none"]);
    // A log is written through the page cache, as databases do it. So opened, a write is answered once it is durable.
    command.args(if case.synced { ["--direct=0", "--sync=dsync"].as_slice() } else { &["--direct=1"] });
    command.arg(format!("--filename={}", file.display()));
    command.arg(format!("--size={}M", u64::from(definition.size) * u64::from(point.used) / 100));
    command.arg(format!("--rw={}", case.rw.as_deref().unwrap_or("randread")));
    command.args(case.reads.map(|reads| format!("--rwmixread={reads}")));
    // The centre is fixed: by default it depends on the seed, and each run would have other hot addresses.
    command.args(case.zipf.map(|exponent| format!("--random_distribution=zipf:{exponent}:0.5")));
    command.arg(match case.blocks.as_slice() {
        [] => format!("--bs={}k", point.block),
        blocks => {
            let blocks: Vec<String> = blocks.iter().map(|[kib, share]| format!("{kib}k/{share}")).collect();
            format!("--bssplit={}", blocks.join(":"))
        }
    });
    command.arg(format!("--ioengine={}", case.engine.as_deref().unwrap_or("psync")));
    command.args([format!("--iodepth={}", point.depth), format!("--numjobs={}", point.threads)]);
    command.args(case.rate.map(|rate| format!("--rate_iops={rate}")));
    command.args(["--time_based".to_owned(), format!("--runtime={}", definition.warmup + definition.seconds)]);
    command.args(["--randrepeat=1".to_owned(), format!("--randseed={seed}")]);
    command.args(["--lat_percentiles=1", "--clat_percentiles=0", "--status-interval=1", "--output-format=json+"]);
    command
}

/// Has fio keep when each request ended and how long it took, in files that begin so.
pub fn keep_requests(command: &mut Command, prefix: &Path) {
    command.arg(format!("--write_lat_log={}", prefix.display())).args(["--disable_slat=1", "--disable_clat=1"]);
}

/// fio's totals up to a moment.
#[derive(Clone, Default)]
struct Totals {
    at: f64,
    operations: [u64; 2],
    bytes: [u64; 2],
    /// The sum of all latencies, in nanoseconds.
    nanos: f64,
    /// By latency in nanoseconds: how many.
    bins: BTreeMap<u64, u64>,
}

/// Reads what fio printed. `warmup` in seconds.
pub fn parse(output: &str, warmup: f64) -> Result<(Figures, Vec<Second>), String> {
    let mut reports = vec![Totals::default()];
    let start = output.find('{').ok_or("no report at all")?;
    for report in serde_json::Deserializer::from_str(&output[start..]).into_iter::<Value>() {
        // Behind the last report may stand a message; without a report there is an error below.
        let Ok(report) = report else { break };
        let totals = totals(&report).ok_or("a report of fio is not as expected")?;
        // Where it starts slowly, the first reports come before the load.
        if totals.at <= 0.0 {
            continue;
        }
        let last = reports.last().map_or(0.0, |last| last.at);
        if totals.at - last < STUMP_SECONDS && reports.len() > 1 {
            reports.pop();
        }
        reports.push(totals);
    }
    let end = reports.last().filter(|last| last.at > warmup).ok_or("fio ended before its warm-up")?;
    let begin = reports.iter().min_by(|a, b| (a.at - warmup).abs().total_cmp(&(b.at - warmup).abs()));
    let figures = figures(begin.unwrap_or(&reports[0]), end);
    let second = |pair: &[Totals]| {
        let (latency, operations) = (latency(&pair[0], &pair[1]), done(&pair[0], &pair[1]));
        let percentile = |share| latency.percentile(share).map(milliseconds);
        Second {
            at: pair[1].at,
            throughput: operations as f64 / (pair[1].at - pair[0].at),
            p95_ms: percentile(0.95),
            p99_ms: percentile(0.99),
        }
    };
    Ok((figures, reports.windows(2).map(second).collect()))
}

fn totals(report: &Value) -> Option<Totals> {
    let job = report.get("jobs")?.get(0)?;
    let mut totals = Totals::default();
    for (index, direction) in ["read", "write"].into_iter().enumerate() {
        let part = job.get(direction)?;
        totals.bytes[index] = part.get("io_bytes")?.as_u64()?;
        totals.at = totals.at.max(part.get("runtime")?.as_f64()? / 1000.0);
        let latency = part.get("lat_ns")?;
        // Those that were answered: its own count of requests has those under way in it.
        totals.operations[index] = latency.get("N")?.as_u64()?;
        totals.nanos += latency.get("mean")?.as_f64()? * latency.get("N")?.as_f64()?;
        for (nanos, count) in latency.get("bins").and_then(Value::as_object).into_iter().flatten() {
            *totals.bins.entry(nanos.parse().ok()?).or_default() += count.as_u64()?;
        }
    }
    Some(totals)
}

fn done(begin: &Totals, end: &Totals) -> u64 {
    (0..2).map(|index| end.operations[index].saturating_sub(begin.operations[index])).sum()
}

/// The latencies between two reports.
fn latency(begin: &Totals, end: &Totals) -> Latency {
    let mut latency = Latency::default();
    for (nanos, count) in &end.bins {
        let before = begin.bins.get(nanos).copied().unwrap_or(0);
        if *count > before {
            latency.record_many(Nanos(*nanos), count - before);
        }
    }
    latency
}

fn milliseconds(nanos: Nanos) -> f64 {
    nanos.0 as f64 / 1e6
}

fn figures(begin: &Totals, end: &Totals) -> Figures {
    let (latency, operations, seconds) = (latency(begin, end), done(begin, end), end.at - begin.at);
    let percentile = |share| latency.percentile(share).map(milliseconds);
    // Only in the last report does fio's count of bytes belong to its count of answers; before, it lags behind.
    let bytes = |index: usize| {
        let answered = end.operations[index].saturating_sub(begin.operations[index]);
        let all = u128::from(end.operations[index].max(1));
        (u128::from(end.bytes[index]) * u128::from(answered) / all) as u64
    };
    Figures {
        throughput: operations as f64 / seconds,
        operations,
        seconds,
        read_bytes: bytes(0),
        write_bytes: bytes(1),
        mean_ms: (latency.count() > 0).then(|| (end.nanos - begin.nanos) / latency.count() as f64 / 1e6),
        p50_ms: percentile(0.5),
        p95_ms: percentile(0.95),
        p99_ms: percentile(0.99),
        p999_ms: percentile(0.999),
        max_ms: latency.longest().map(milliseconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(at: u64, bins: &str, operations: u64, mean: f64) -> String {
        format!(
            "{{\"jobs\":[{{\"read\":{{\"io_bytes\":{},\"runtime\":{at},\
             \"lat_ns\":{{\"mean\":{mean},\"N\":{operations},\"bins\":{{{bins}}}}}}},\
             \"write\":{{\"io_bytes\":0,\"runtime\":0,\"lat_ns\":{{\"mean\":0.0,\"N\":0}}}}}}]}}\n",
            operations * 4096
        )
    }

    #[test]
    fn what_counts_is_the_end_less_the_warm_up() {
        let output = "fio: a word before\n".to_owned()
            + &report(0, "", 0, 0.0)
            + &report(1000, "\"9000000\": 10", 10, 9e6)
            + &report(2000, "\"9000000\": 10, \"1000000\": 90", 100, 1.8e6)
            + &report(3000, "\"9000000\": 10, \"1000000\": 190", 200, 1.4e6)
            + &report(3100, "\"9000000\": 10, \"1000000\": 198, \"2000000\": 2", 210, 1.390_476_19e6);
        let (figures, seconds) = parse(&output, 1.0).unwrap();
        assert_eq!((figures.operations, figures.read_bytes, figures.write_bytes), (200, 200 * 4096, 0));
        assert!((figures.seconds - 2.1).abs() < 1e-9 && (figures.throughput - 200.0 / 2.1).abs() < 1e-9);
        let near =
            |found: Option<f64>, expected: f64| assert!((found.unwrap() / expected - 1.0).abs() < 0.01, "{found:?}");
        near(figures.p50_ms, 1.0);
        near(figures.p999_ms, 2.0);
        near(figures.max_ms, 2.0);
        near(figures.mean_ms, 1.01);
        let at: Vec<f64> = seconds.iter().map(|second| second.at).collect();
        assert_eq!(at, [1.0, 2.0, 3.1], "the stump belongs to the second before");
        near(seconds[0].p95_ms, 9.0);
        near(seconds[1].p99_ms, 1.0);
        assert!(parse(&output, 10.0).is_err() && parse("fio: broken", 0.0).is_err());
    }
}
