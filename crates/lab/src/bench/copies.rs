//! What a copy on another host costs a sync: the same appends on a mount with a peer, and on one without, in turns. The
//! peer is on this host, behind a loopback address: so its processor time is spent on the same processors.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Outcome;
use super::fio::{Target as On, finished};
use super::plan::{Plan, forget};
use super::pond::{Mount, program};
use super::table::Line;

/// One program that appends and syncs.
const APPENDS: [&str; 5] = ["--rw=write", "--bs=16k", "--ioengine=psync", "--fdatasync=1", "--file_append=1"];

/// A sync with a copy takes at most 1.3 times as long.
const OF_NONE: f64 = 1.0 / 1.3;

/// `headpond peer serve`, until it is dropped.
struct Peer {
    child: Child,
    address: String,
}

impl Peer {
    fn start(plan: &Plan) -> Outcome<Self> {
        let store = plan.path("copies.store");
        let _ = std::fs::remove_dir_all(&store);
        let mut serve = Command::new(program()?);
        serve.args(["peer", "serve", "--listen", "127.0.0.1:0", "--store"]).arg(&store).stderr(Stdio::piped());
        let mut child = serve.stdin(Stdio::null()).spawn()?;
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().ok_or("no standard error")?);
        lines.read_line(&mut said)?;
        let address = said.split("listens at ").nth(1).ok_or_else(|| format!("no peer: {said}"))?.trim().to_owned();
        // Whoever closes the other end would end it at its next line.
        std::thread::spawn(move || lines.lines().for_each(drop));
        Ok(Self { child, address })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Appends with one copy, and with none.
pub fn copies(plan: &Plan) -> Outcome<Vec<Line>> {
    let peer = Peer::start(plan)?;
    let none = plan.mount("copies-none", "3g")?;
    let one = plan.mount("copies-one", "3g")?;
    let mut add = Command::new(program()?);
    finished(add.args(["pool", "add"]).arg(one.point()).args(["--peer", &peer.address, "-q"]))?;
    finished(Command::new(program()?).args(["pool", "wait", "-q"]).arg(one.point()))?;
    let run = |mount: &Mount| {
        let log = mount.file("log");
        let _ = std::fs::remove_file(&log);
        let before = mount.processor_seconds();
        let run = plan.fio(&On::File(&log), &[&APPENDS])?;
        let cost = (mount.processor_seconds() - before) * 1e6 / (run.rate * plan.seconds as f64);
        Outcome::Ok((run.rate, cost))
    };
    let (mut rates, mut costs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..plan.rounds {
        for (side, mount) in [&one, &none].into_iter().enumerate() {
            let (rate, cost) = run(mount)?;
            rates[side].push(rate);
            costs[side].push(cost);
        }
    }
    drop((one, none));
    drop(peer);
    for name in ["copies-none", "copies-one"] {
        forget(&plan.origin.join(name), &plan.path(&format!("{name}.pond")))?;
    }
    let work = "mount, 16 KiB append and fdatasync, one copy on a peer over loopback";
    let [with, without] = rates;
    let [spent, spent_without] = costs;
    Ok(vec![
        Line::ratio(work, "of the rate without a copy", with, without, OF_NONE),
        Line::ratio(work, "times the daemon's CPU time without a copy", spent, spent_without, 0.0).only_told(),
    ])
}
