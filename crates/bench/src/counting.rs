//! What counting by file, process and rule costs: the same work on one mount with the setting `counting`
//! on and off, in turns, in slices so short that the machine is about the same for both.
//!
//! Which of a pair comes first changes from pair to pair. The cost is one minus the median of the pairs' ratios, with the
//! interval that holds it in 95 of 100 such runs (percentile bootstrap over the pairs).

use headpond_measure::ratio_of_medians;

use crate::Outcome;
use crate::fio::{self, Target as On};
use crate::pond::Mount;
use crate::table::{Line, Target};
use crate::works::{DATA, Plan, READS};

/// Pairs for each round that is asked for: with the default of three rounds the interval is narrower than two percent.
const PAIRS: usize = 4;

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

fn cost(plan: &Plan, mount: &Mount, work: &str, job: &[&str]) -> Outcome<Line> {
    let file = mount.file("data");
    let seconds = (plan.seconds / PAIRS as u64).max(1);
    let run = |setting: &str| -> Outcome<f64> {
        mount.set(setting)?;
        Ok(fio::run(&On::File(&file), DATA, seconds, &[job, &["--ioengine=io_uring"]].concat())?.rate)
    };
    let (mut on, mut off) = (Vec::new(), Vec::new());
    for pair in 0..plan.rounds * PAIRS {
        if pair % 2 == 0 {
            on.push(run("counting=on")?);
            off.push(run("counting=off")?);
        } else {
            off.push(run("counting=off")?);
            on.push(run("counting=on")?);
        }
    }
    let ratios: Vec<f64> = on.iter().zip(&off).map(|(on, off)| on / off).collect();
    let found = ratio_of_medians(&ratios, &vec![1.0; ratios.len()], 1).ok_or("a run had no request")?;
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
