//! What a copy on another host costs a sync: the same appends on a mount with a peer, and on one without, in turns. The
//! peer is on this host, behind a loopback address: so its processor time is spent on the same processors. A second mount
//! reaches its peer over a wire that is made longer.

use std::process::Command;
use std::time::Duration;

use headpond_lab::peer::{LongWire, Peer};
use headpond_lab::pond::Headpond;

use super::Outcome;
use super::fio::{Target as On, finished};
use super::plan::{Plan, SYNCED_APPENDS, forget};
use super::pond::{Mount, program};
use super::table::Line;

/// A sync with a copy takes at most 1.3 times as long.
const OF_NONE: f64 = 1.0 / 1.3;

/// What the wire adds to a round trip, in microseconds.
const ADDED: [u64; 4] = [0, 50, 200, 1000];

const NAMES: [&str; 3] = ["copies-none", "copies-one", "copies-far"];

/// Appends with one copy, near and far, and with none.
pub fn copies(plan: &Plan) -> Outcome<Vec<Line>> {
    let headpond = Headpond::at(program()?);
    let directory = plan.path("copies.peer");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory)?;
    let peer = Peer::start(&headpond, &directory)?;
    let wire = LongWire::to(peer.address())?;
    let none = plan.mount(NAMES[0], "2g")?;
    let one = with_copy(plan, NAMES[1], peer.address())?;
    let far = with_copy(plan, NAMES[2], wire.address())?;
    let run = |mount: &Mount| {
        let log = mount.file("log");
        let _ = std::fs::remove_file(&log);
        let before = mount.processor_seconds();
        let run = plan.fio(&On::File(&log), &[&SYNCED_APPENDS])?;
        let cost = (mount.processor_seconds() - before) * 1e6 / (run.rate * plan.seconds as f64);
        Outcome::Ok((run.rate, cost))
    };
    let (mut rates, mut costs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut rates_far = [const { Vec::new() }; ADDED.len()];
    for _ in 0..plan.rounds {
        for (side, mount) in [&one, &none].into_iter().enumerate() {
            let (rate, cost) = run(mount)?;
            rates[side].push(rate);
            costs[side].push(cost);
        }
        for (added, rates) in ADDED.into_iter().zip(&mut rates_far) {
            wire.set_delay(Duration::from_micros(added));
            rates.push(run(&far)?.0);
        }
    }
    wire.set_delay(Duration::ZERO);
    drop((none, one, far));
    drop(peer);
    for name in NAMES {
        forget(&plan.origin.join(name), &plan.path(&format!("{name}.pond")))?;
    }
    std::fs::remove_dir_all(&directory)?;
    let work = "mount, 16 KiB append and fdatasync, one copy on a peer over loopback";
    let [with, without] = rates;
    let [spent, spent_without] = costs;
    let mut lines = vec![
        Line::ratio(work, "of the rate without a copy", with, without.clone(), OF_NONE),
        Line::ratio(work, "times the daemon's CPU time without a copy", spent, spent_without, 0.0).only_told(),
    ];
    for (added, rates) in ADDED.into_iter().zip(rates_far) {
        let work = format!(
            "mount, 16 KiB append and fdatasync, one copy on a peer over a wire that adds {added} us to a round trip"
        );
        lines.push(Line::ratio(&work, "of the rate without a copy", rates, without.clone(), 0.0).only_told());
    }
    Ok(lines)
}

/// A mount whose copy is at this address.
fn with_copy(plan: &Plan, name: &str, address: &str) -> Outcome<Mount> {
    let mount = plan.mount(name, "2g")?;
    let mut add = Command::new(program()?);
    finished(add.args(["pool", "add"]).arg(mount.point()).args(["--peer", address, "-q"]))?;
    finished(Command::new(program()?).args(["pool", "wait", "-q"]).arg(mount.point()))?;
    Ok(mount)
}
