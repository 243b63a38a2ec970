//! Conformance: other people's tests of file systems on a mount, in every cache mode.
//!
//! - fsx: random operations on files; each read is compared with the right bytes;
//! - fio: files written, synced, verified, and verified again from the origin alone after the unmount;
//! - pjdfstest: the rules of POSIX, compared with the origin's own file system.

use crate::command;
use crate::failure::{Failure, Result};
use crate::fio::Job;
use crate::fsx::{self, Shape};
use crate::pjdfstest::{self, Compared, Outcomes};
use crate::pond::{Headpond, Mounting, directory_in};
use crate::random::{below, next};
use crate::service::Service;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The modes, and what share of fsx's operations each gets, of 10: write-back has the most to go wrong.
const MODES: [(&str, u64); 4] = [("write-back", 7), ("write-through", 1), ("write-around", 1), ("pass-through", 1)];
/// Operations of one run of fsx, at most.
const RUN_OPERATIONS: u64 = 50_000;
/// Runs of fsx at the same time, each on a file of its own.
const AT_ONCE: u64 = 3;
/// How long one run may take, on a slow and busy machine.
const RUN_MAX: Duration = Duration::from_secs(1800);
/// Smaller than what fio writes, so that the log comes round and clean data is evicted.
const POOL: &str = "192M";

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Operations of fsx over all modes.
    pub fsx_operations: u64,
    /// Files that fio writes in each mode.
    pub fio_files: u32,
    /// Decides all that is random.
    pub seed: u64,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct ConformanceReport {
    /// Operations of fsx.
    pub fsx_operations: u64,
    /// Runs of fsx.
    pub fsx_runs: u64,
    /// Files that fio wrote, verified on the mount, and verified at the origin.
    pub fio_files: u64,
    /// The suites, by mode.
    pub posix: Vec<(&'static str, Compared)>,
}

/// Runs everything in `directory`, and tells `each` a line about every step.
pub fn run(
    headpond: &Headpond,
    directory: &Path,
    options: &Options,
    each: impl FnMut(&str),
) -> Result<ConformanceReport> {
    run_on(headpond, directory, directory, options, each)
}

/// The same with the origin on the storage at another directory.
pub fn run_on(
    headpond: &Headpond,
    storage: &Path,
    directory: &Path,
    options: &Options,
    mut each: impl FnMut(&str),
) -> Result<ConformanceReport> {
    let place = Place::make(storage, directory)?;
    let mut random = options.seed;
    let mut report = ConformanceReport::default();
    let origin = Outcomes::of(&place.bare, &place.run)?;
    for (mode, share) in MODES {
        let mount = headpond.mount(&Mounting { mode, ..place.mounting.clone() })?;
        let compared = place.posix(mode, &origin)?;
        each(&format!(
            "{mode}: pjdfstest: {} passed, {} skipped on both, skipped on the mount only: {:?}, failed on both: {:?}",
            compared.passed, compared.skipped, compared.skipped_on_mount, compared.failed_on_both
        ));
        report.posix.push((mode, compared));
        let operations = options.fsx_operations * share / 10;
        place.exercise(operations, &mut random, &mut report, |line| each(&format!("{mode}: {line}")))?;
        let files = place.write_files(options.fio_files, &mut random)?;
        mount.unmount()?;
        for (name, job) in &files {
            let mut verify = job.verify(&place.mounting.origin, name);
            command::run("verifying at the origin what fio wrote through the mount", &mut verify)?;
            report.fio_files += 1;
        }
        each(&format!("{mode}: fio: {} files written, verified there and at the origin", files.len()));
    }
    Ok(report)
}

struct Place {
    mounting: Mounting,
    run: PathBuf,
    bare: PathBuf,
}

impl Place {
    fn make(storage: &Path, directory: &Path) -> Result<Self> {
        let mounting = Mounting::on(storage, directory, POOL)?;
        Ok(Self { mounting, run: directory_in(directory, "run")?, bare: directory_in(storage, "bare")? })
    }

    fn posix(&self, mode: &str, origin: &Outcomes) -> Result<Compared> {
        let compared = origin.compare(&Outcomes::of(&self.mounting.mountpoint, &self.run)?)?;
        if compared.failed.is_empty() {
            return Ok(compared);
        }
        Err(Failure::Other(format!(
            "{mode}: tests of pjdfstest that the origin's file system passes fail on the mount: {}",
            compared.failed.join(", ")
        )))
    }

    /// fsx for that many operations, in runs of different shapes.
    fn exercise(
        &self,
        operations: u64,
        random: &mut u64,
        report: &mut ConformanceReport,
        mut each: impl FnMut(&str),
    ) -> Result<()> {
        let mut left = operations;
        while left > 0 {
            let mut running = Vec::new();
            let each_of_these = left.div_ceil(AT_ONCE).min(RUN_OPERATIONS);
            for worker in 0..AT_ONCE {
                let now = left.min(each_of_these);
                if now == 0 {
                    break;
                }
                left -= now;
                // Large requests take the most time, and small ones find the most.
                let shape = match below(random, 10) {
                    0 => Shape::Large,
                    1 | 2 => Shape::Blocks,
                    _ => Shape::Small,
                };
                let file = self.mounting.mountpoint.join(format!("fsx-{worker}"));
                let run = self.run.join(format!("fsx-{worker}"));
                let seed = next(random) >> 33;
                let command = fsx::command(shape, now, seed, &file, &run)?;
                running.push((now, Service::start("fsx", command, &run.join("said"))?));
            }
            for (operations, mut service) in running {
                service.wait_for_end(RUN_MAX)?;
                report.fsx_operations += operations;
                report.fsx_runs += 1;
            }
            each(&format!("fsx: {} operations of {operations} left; {} in all", left, report.fsx_operations));
        }
        Ok(())
    }

    fn write_files(&self, count: u32, random: &mut u64) -> Result<Vec<(String, Job)>> {
        let mut files = Vec::new();
        for number in 0..count {
            let direct = number % 2 == 1;
            let requests: &[u32] = if direct { &[4096, 16384, 1 << 20] } else { &[2560, 4096, 65536, 1 << 20] };
            let job = Job {
                mib: 16 + below(random, 64) as u32,
                request: requests[below(random, requests.len() as u64) as usize],
                random: below(random, 3) > 0,
                direct,
                sync_every: [8, 32, 128][below(random, 3) as usize],
                seed: next(random) >> 33,
            };
            let name = format!("fio-{number}");
            command::run("running fio", &mut job.write(&self.mounting.mountpoint, &name))?;
            files.push((name, job));
        }
        // Once more when others have been written since: by now much of it comes from the origin.
        for (name, job) in &files {
            command::run("verifying with fio", &mut job.verify(&self.mounting.mountpoint, name))?;
        }
        Ok(files)
    }
}

/// What this machine lacks, if anything.
#[must_use]
pub fn missing() -> Option<String> {
    let mut missing = command::lacking(&["fio", "fusermount3"]);
    missing.extend(fsx::missing());
    missing.extend(pjdfstest::missing());
    if !Path::new("/dev/fuse").exists() {
        missing.push("/dev/fuse".to_owned());
    }
    (!missing.is_empty()).then(|| missing.join(", "))
}
