//! The cost of counting by file, process and rule: one load on one mount, with the setting `counting` on and off in
//! turns.

use super::Outcome;
use super::fio;
use super::plan::{DATA, Plan, READS};
use super::table::Line;
use super::turns::Turns;

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
    let mut switch = |on| mount.set(if on { "counting=on" } else { "counting=off" });
    let mut lines = Vec::new();
    for (work, job) in jobs {
        let turns = Turns::take(plan, &mount, job, "shard", &mut switch)?;
        let work = format!("{work}: counting by file, process and rule");
        lines.push(turns.rate(work, ["counting", "not counting"], COST_MAX)?);
    }
    Ok(lines)
}
