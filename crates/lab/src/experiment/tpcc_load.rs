//! A load by the rules of TPC-C, run by sysbench: its commands, and what it prints.
//!
//! The load itself (schema, rows, the five transactions, consistency conditions) is in `crates/lab/tpcc`. It cites
//! the standard's clauses, and says where it differs.

use super::plan::Point;
use super::record::Transactions;
use super::server::Server;
use super::{Definition, oltp_load};
use crate::failure::{Failure, Result};
use headpond_base::Nanos;
use headpond_measure::Latency;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: [&str; 7] = [
    include_str!("../../tpcc/options.lua"),
    include_str!("../../tpcc/random.lua"),
    include_str!("../../tpcc/tables.lua"),
    include_str!("../../tpcc/rows.lua"),
    include_str!("../../tpcc/transactions.lua"),
    include_str!("../../tpcc/told.lua"),
    include_str!("../../tpcc/check.lua"),
];
/// The standard's cardinalities (1.2.1).
const ITEMS: u32 = 100_000;
const CUSTOMERS: u32 = 3_000;
/// Latencies come in steps of two percent.
const STEP: f64 = 1.02;

/// Puts the script into a directory.
pub fn write_script(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("tpcc.lua");
    std::fs::write(&path, SCRIPT.concat()).map_err(Failure::io(format!("writing {}", path.display())))?;
    Ok(path)
}

/// The load's command for one of its steps: `tables`, `prepare` or `check`.
#[must_use]
pub fn step(definition: &Definition, server: &Server, script: &Path, step: &str) -> Command {
    let mut command = Command::new("sysbench");
    command.arg(script).args(server.connection()).args(scale(definition));
    if step == "prepare" {
        let together = std::thread::available_parallelism().map_or(1, usize::from);
        command.arg(format!("--threads={}", together.min(definition.warehouses.unwrap_or(1) as usize)));
    }
    command.arg(step);
    command
}

/// The command of a run.
#[must_use]
pub fn command(definition: &Definition, point: &Point, server: &Server, script: &Path, seed: u64) -> Command {
    let mut command = Command::new("sysbench");
    command.arg(script).args(server.connection()).args(scale(definition));
    command.arg(format!("--discard={}", definition.warmup));
    command.args(oltp_load::run_options(definition, point, seed)).arg("run");
    command
}

fn scale(definition: &Definition) -> [String; 3] {
    [
        format!("--warehouses={}", definition.warehouses.unwrap_or(1)),
        format!("--items={}", definition.items.unwrap_or(ITEMS)),
        format!("--customers={}", definition.customers.unwrap_or(CUSTOMERS)),
    ]
}

/// How the tables differ from the standard's, if they do.
#[must_use]
pub fn scaled_down(definition: &Definition) -> Option<String> {
    let (items, customers) = (definition.items.unwrap_or(ITEMS), definition.customers.unwrap_or(CUSTOMERS));
    ((items, customers) != (ITEMS, CUSTOMERS)).then(|| {
        format!("The tables are smaller than the standard's: {items} items instead of {ITEMS}, {customers} customers of a district instead of {CUSTOMERS}.")
    })
}

/// Puts together what the terminals told of the part that counts.
pub fn parse(output: &str, counted: f64) -> std::result::Result<Vec<Transactions>, String> {
    let mut kinds: Vec<(Transactions, Latency)> = Vec::new();
    for line in output.lines().filter_map(|line| line.strip_prefix("tpcc ")) {
        let bad = || format!("a terminal told: '{line}'");
        let (kind, rest) = line.split_once(' ').ok_or_else(bad)?;
        let value = |name: &str| rest.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let number = |name: &str| value(name).and_then(|text| text.parse::<u64>().ok()).ok_or_else(bad);
        let at = kinds.iter().position(|(known, _)| known.kind == kind).unwrap_or_else(|| {
            kinds.push((Transactions { kind: kind.to_owned(), ..Transactions::default() }, Latency::default()));
            kinds.len() - 1
        });
        let (sums, latency) = &mut kinds[at];
        sums.committed += number("committed")?;
        sums.rolled_back += number("rolled_back")?;
        sums.again += number("again")?;
        for pair in value("latency").ok_or_else(bad)?.split(',').filter(|pair| !pair.is_empty()) {
            let (bucket, count) = pair.split_once(':').ok_or_else(bad)?;
            let (bucket, count) = (bucket.parse::<u32>().map_err(|_| bad())?, count.parse().map_err(|_| bad())?);
            // The middle of the step: at most one percent off.
            let micros = STEP.powf(f64::from(bucket) + 0.5);
            latency.record_many(Nanos((micros * 1e3) as u64), count);
        }
    }
    if kinds.len() != 5 {
        return Err(format!("the terminals told of {} kinds of transactions", kinds.len()));
    }
    let finish = |(sums, latency): (Transactions, Latency)| {
        let percentile = |share| latency.percentile(share).map(|nanos| nanos.0 as f64 / 1e6);
        let [p50_ms, p90_ms, p99_ms] = [0.5, 0.9, 0.99].map(percentile);
        Transactions { per_minute: sums.committed as f64 * 60.0 / counted, p50_ms, p90_ms, p99_ms, ..sums }
    };
    Ok(kinds.into_iter().map(finish).collect())
}

/// The consistency conditions that do not hold, by what `check` printed.
pub fn broken(output: &str) -> std::result::Result<Vec<String>, String> {
    let conditions: Vec<(&str, u64)> = output
        .lines()
        .filter_map(|line| line.strip_prefix("tpcc condition ")?.split_once(" broken="))
        .map(|(clause, count)| Ok((clause, count.trim().parse().map_err(|_| format!("{clause}: '{count}'"))?)))
        .collect::<std::result::Result<_, String>>()?;
    if conditions.len() != CONDITIONS {
        return Err(format!("{} of {CONDITIONS} consistency conditions were looked at:\n{output}", conditions.len()));
    }
    let broken = conditions.into_iter().filter(|(_, count)| *count > 0);
    Ok(broken.map(|(clause, count)| format!("consistency condition {clause} is broken {count} times")).collect())
}

/// Conditions 1 to 10, and 12: the eleventh is of tables that nothing was delivered from.
const CONDITIONS: usize = 11;

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "tpcc new-order committed=90 rolled_back=1 again=2 latency=349:60,465:31\n\
        tpcc payment committed=100 rolled_back=0 again=0 latency=349:100\n\
        tpcc order-status committed=1 rolled_back=0 again=0 latency=349:1\n\
        tpcc delivery committed=1 rolled_back=0 again=0 latency=349:1\n\
        tpcc stock-level committed=0 rolled_back=0 again=0 latency=\n";

    #[test]
    fn what_several_terminals_tell_is_put_together() {
        let kinds = parse(&format!("{TOLD}[ 1s ] thds: 1\n{TOLD}"), 30.0).unwrap();
        let orders = &kinds[0];
        assert_eq!(
            (orders.kind.as_str(), orders.committed, orders.rolled_back, orders.again),
            ("new-order", 180, 2, 4)
        );
        assert_eq!(orders.per_minute, 360.0);
        // Steps 349 and 465 are of 1 and 10 ms.
        let near = |found: Option<f64>, expected: f64| assert!((found.unwrap() / expected - 1.0).abs() < 0.02);
        near(orders.p50_ms, 1.0);
        near(orders.p90_ms, 10.0);
        assert_eq!(kinds[4].p90_ms, None);
        assert!(parse("nothing", 1.0).is_err());
        assert!(parse(&TOLD.replace("committed=90", "committed=x"), 1.0).is_err());
    }

    #[test]
    fn a_broken_condition_is_told_and_one_that_was_not_looked_at_is_an_error() {
        let all = |third: u32| -> String {
            let numbers = (1..=10).chain([12]);
            numbers.map(|n| format!("tpcc condition 3.3.2.{n} broken={}\n", if n == 3 { third } else { 0 })).collect()
        };
        assert_eq!(broken(&all(0)), Ok(Vec::new()));
        assert!(broken(&all(7)).unwrap()[0].contains("3.3.2.3 is broken 7 times"));
        assert!(broken("tpcc condition 3.3.2.1 broken=0\n").is_err());
    }
}
