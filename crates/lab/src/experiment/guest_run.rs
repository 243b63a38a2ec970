//! A run in a guest: the load's command as it is typed there, and the guest around it.

use super::fio_load;
use super::plan::Plan;
use super::side::Session;
use super::target::GuestTarget;
use crate::failure::Result;
use crate::kernel_caches::{GuestOrigin, GuestOutcome, GuestRun};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The data, and the file that grows where the load is a log: of the directory in which the load works.
const DATA: &str = "data";
const LOG: &str = "log";

/// The load of a point.
#[must_use]
pub fn command(plan: &Plan, point: usize, seed: u64) -> Command {
    let at = &plan.points[point];
    let case = &plan.definition.cases[at.case];
    let file = if case.synced { LOG } else { DATA };
    fio_load::command(&plan.at(point), case, at, Path::new(file), seed)
}

/// Runs it, with a call of `tick` now and then.
#[allow(clippy::too_many_arguments)] // each names one thing that a run depends on
pub fn run(
    plan: &Plan,
    point: usize,
    guest: &GuestTarget,
    load: &Command,
    seed: u64,
    session: &Session,
    origin: &GuestOrigin,
    tick: impl FnMut(),
) -> Result<GuestOutcome> {
    let definition = plan.at(point);
    let run = GuestRun {
        cache: guest.cache,
        throttle: guest.throttle,
        flash_mib: u64::from(definition.flash),
        headpond: session.headpond.program(),
        load,
        takes: Duration::from_secs(u64::from(definition.warmup + definition.seconds)),
        seed,
    };
    run.run(origin, session.scratch.path(), tick)
}
