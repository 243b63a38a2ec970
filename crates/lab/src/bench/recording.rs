//! The cost of `headpond record`: one load on one mount, recorded and not recorded in turns.
//!
//! The rate also pays for the client, which writes the trace on the same processors.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Outcome;
use super::fio;
use super::plan::{DATA, Plan, READS};
use super::pond::Mount;
use super::table::Line;
use super::turns::Turns;

/// The target, in percent of the rate and of the daemon's processor time.
const COST_MAX: f64 = 1.0;

/// Reads that hit, at both depths.
pub fn recording(plan: &Plan) -> Outcome<Vec<Line>> {
    let mount = plan.mount("recording", "3g")?;
    fio::fill(&mount.file("data"), DATA, false)?;
    mount.flush()?;
    let mut lines = Vec::new();
    for depth in [1, 32] {
        let depth_argument = format!("--iodepth={depth}");
        let job = [READS[0], READS[1], READS[2], &depth_argument];
        let mut running = None;
        let mut switch = |on| {
            end(running.take())?;
            if on {
                running = Some(start(plan, &mount)?);
            }
            Ok(())
        };
        let turns = Turns::take(plan, &mount, &job, "record", &mut switch)?;
        end(running.take())?;
        let work = || format!("mount, random 4 KiB read hits, depth {depth}: recording");
        lines.push(turns.rate(work(), NAMES, COST_MAX)?);
        lines.push(turns.processor(work(), NAMES, COST_MAX)?);
        lines.push(turns.share(work(), "% of the daemon's CPU time, in the thread that writes", COST_MAX));
    }
    Ok(lines)
}

const NAMES: [&str; 2] = ["recording", "not recording"];

/// Starts a recording, and waits until it takes in requests.
fn start(plan: &Plan, mount: &Mount) -> Outcome<Child> {
    let trace = plan.path("trace");
    let _ = std::fs::remove_file(&trace);
    let mut command = mount.command("record")?;
    command.arg("--to").arg(&trace).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().ok_or("no standard error")?).read_line(&mut said)?;
    if said.starts_with("recording") { Ok(child) } else { Err(said.into()) }
}

fn end(running: Option<Child>) -> Outcome<()> {
    let Some(mut child) = running else { return Ok(()) };
    kill_process(Pid::from_child(&child), Signal::INT)?;
    if child.wait()?.success() { Ok(()) } else { Err("the recording failed".into()) }
}
