//! The cost of counting by file, process and rule. One load runs on one mount all the time. The bench switches the
//! setting `counting` on and off meanwhile, and counts the mount's answers between two switches.
//!
//! A slice is so short that the machine is about the same for both slices of a pair. The order within the pairs
//! changes from pair to pair. The cost is one minus the median of the pairs' ratios, with its interval at 95 %
//! (percentile bootstrap over the pairs).

use std::time::{Duration, Instant};

use headpond_measure::ratio_of_medians;

use super::Outcome;
use super::fio::{self, RunningJob};
use super::plan::{DATA, Plan, READS};
use super::pond::Mount;
use super::table::{Line, Target};

/// What counts of a slice, and what passes before it: the switch writes to the flash as well.
const SLICE: Duration = Duration::from_millis(250);
const SWITCH: Duration = Duration::from_millis(50);

/// Pairs for each second of each round that is asked for.
const PAIRS: u64 = 2;

/// The target, in percent of the rate.
const COST_MAX: f64 = 2.0;

/// Reads that hit at both depths, and writes.
pub fn counting(plan: &Plan) -> Outcome<Vec<Line>> {
    let mount = plan.mount("counting", "3g")?;
    // Matches every request, so that it is counted for a rule as well.
    mount.add_rule(&["path=**", "action=cache"])?;
    fio::fill(&mount.file("data"), DATA, false)?;
    mount.flush()?;
    let jobs: [(&str, &[&str]); 3] = [
        ("mount, random 4 KiB read hits, depth 1", &[READS[0], READS[1], READS[2], "--iodepth=1"]),
        ("mount, random 4 KiB read hits, depth 32", &[READS[0], READS[1], READS[2], "--iodepth=32"]),
        ("mount, random 16 KiB writes, depth 8", &["--rw=randwrite", "--bs=16k", "--direct=1", "--iodepth=8"]),
    ];
    jobs.iter().map(|(work, job)| cost(plan, &mount, work, job)).collect()
}

/// Requests a second in a slice.
fn slice(mount: &Mount, setting: &str) -> Outcome<f64> {
    mount.set(setting)?;
    std::thread::sleep(SWITCH);
    let (begun, before) = (Instant::now(), answered(mount)?);
    std::thread::sleep(SLICE);
    let (after, time) = (answered(mount)?, begun.elapsed());
    Ok((after - before) / time.as_secs_f64())
}

/// Requests of applications that the mount has answered.
fn answered(mount: &Mount) -> Outcome<f64> {
    Ok(mount.number("reads_total")? + mount.number("writes_total")?)
}

fn cost(plan: &Plan, mount: &Mount, work: &str, job: &[&str]) -> Outcome<Line> {
    let load = RunningJob::start(&mount.file("data"), DATA, &[job, &["--ioengine=io_uring"]].concat())?;
    let (mut on, mut off) = (Vec::new(), Vec::new());
    for pair in 0..plan.rounds as u64 * plan.seconds * PAIRS {
        if pair % 2 == 0 {
            on.push(slice(mount, "counting=on")?);
            off.push(slice(mount, "counting=off")?);
        } else {
            off.push(slice(mount, "counting=off")?);
            on.push(slice(mount, "counting=on")?);
        }
    }
    load.end()?;
    let ratios: Vec<f64> = on.iter().zip(&off).map(|(on, off)| on / off).collect();
    let found = ratio_of_medians(&ratios, &vec![1.0; ratios.len()], 1).ok_or("the load had no request answered")?;
    let percent = |ratio: f64| (1.0 - ratio) * 100.0;
    Ok(Line {
        work: format!("{work}: counting by file, process and rule"),
        figure: "% of the rate",
        rounds: ratios.iter().map(|ratio| percent(*ratio)).collect(),
        interval: found.interval.map(|(low, high)| (percent(high), percent(low))),
        parts: vec![("counting", on), ("not counting", off)],
        target: Target::AtMost(COST_MAX),
    })
}
