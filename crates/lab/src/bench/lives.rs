//! What it costs that the death of the process that serves is a pause: one load on two mounts in turns, of which one has
//! no holder. So it keeps no second tail of the log, no ledger and no journal.
//!
//! A run is so short that the machine is about the same for both runs of a pair. The order within the pairs changes from
//! pair to pair.

use super::Outcome;
use super::fio::{self, Target as On};
use super::plan::{Plan, READS, SYNCED_APPENDS, forget};
use super::pond::Mount;
use super::table::Line;

/// The target, in percent of the rate.
const COST_MAX: f64 = 1.0;

/// The file that is read: so small that what is below the flash has both in memory.
const DATA: &str = "256m";

/// How long a run takes, in seconds: the least that fio can.
const SECONDS: u64 = 1;

const NAMES: [&str; 2] = ["with a holder", "without"];

/// Read hits, and appends with a sync each.
pub fn lives(plan: &Plan) -> Outcome<Vec<Line>> {
    let held = plan.mount("lives-held", "2g")?;
    let alone = plan.mount_without_holder("lives-alone", "2g")?;
    for mount in [&held, &alone] {
        fio::fill(&mount.file("data"), DATA, false)?;
        mount.flush()?;
    }
    // What the origin's file system still writes would slow the flash below it.
    rustix::fs::sync();
    let mut lines = Vec::new();
    let deep = [&READS[..], &["--ioengine=io_uring", "--iodepth=32"]].concat();
    for (work, file, job) in [
        ("mount, random 4 KiB read hits, depth 32: outliving the process", "data", &deep[..]),
        ("mount, 16 KiB append and fdatasync: outliving the process", "log", &SYNCED_APPENDS[..]),
    ] {
        let run = |mount: &Mount| {
            let path = mount.file(file);
            if file == "log" {
                let _ = std::fs::remove_file(&path);
            }
            let before = mount.processor_seconds();
            let run = fio::run(&On::File(&path), DATA, SECONDS, job)?;
            Outcome::Ok((run.rate, 1.0 / (mount.processor_seconds() - before) * run.requests))
        };
        let (mut rates, mut costs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for pair in 0..plan.rounds as u64 * plan.seconds {
            let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
            for side in order {
                let (rate, cost) = run([&held, &alone][side])?;
                rates[side].push(rate);
                costs[side].push(cost);
            }
        }
        let [on, off] = rates;
        lines.push(Line::cost(work.to_owned(), "% of the rate", NAMES, (on, off), COST_MAX)?);
        let [on, off] = costs;
        let figure = "% of the daemon's CPU time a request";
        lines.push(Line::cost(work.to_owned(), figure, NAMES, (on, off), COST_MAX)?);
    }
    drop((held, alone));
    for name in ["lives-held", "lives-alone"] {
        forget(&plan.origin.join(name), &plan.path(&format!("{name}.pond")))?;
    }
    Ok(lines)
}
