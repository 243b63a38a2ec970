//! Programs that try file systems, over the deaths of many workers: they run again and again until the last kill, and
//! then to their end.

use super::killer::Killer;
use super::{Finished, Options, Pauses, failed};
use crate::failure::{Failure, Result};
use crate::fsx::{self, Shape};
use crate::pjdfstest::Outcomes;
use crate::pond::{Headpond, Mount, Mounting, directory_in};
use crate::random::next;
use crate::service::Service;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

/// Less than what fsx writes in a long run.
const POOL: &str = "192M";
/// Operations of one run of fsx.
const OPERATIONS: u64 = 10_000;
/// How long the last run may take, on a slow and busy machine.
const LAST_MAX: Duration = Duration::from_secs(900);

/// Kills workers under fsx. It compares each read with the right bytes.
pub(super) fn run_fsx(headpond: &Headpond, directory: &Path, options: &Options) -> Result<Pauses> {
    let mounting = Mounting::below(directory, POOL)?;
    let mut random = options.seed.rotate_left(32);
    let mut exercises = Shape::ALL.map(|shape| Exercise {
        shape,
        file: mounting.mountpoint.join(format!("{shape:?}")),
        run: directory.join(format!("fsx-{shape:?}")),
        running: None,
        ended: 0,
    });
    let mount = headpond.mount(&mounting)?;
    let mut killer = Killer::new(&mount, options);
    let outcome = killer.run(options.kills, &mut || exercises.iter_mut().try_for_each(|one| one.go_on(&mut random)));
    let (kills, during_upgrades, upgrades) = (killer.kills(), killer.during_upgrades(), killer.upgrades());
    let files = outcome.and_then(|()| exercises.iter_mut().map(Exercise::finish).collect::<Result<Vec<_>>>());
    let files = end(mount, files, kills + upgrades)?;
    for (name, bytes) in files {
        if read(&mounting.origin.join(&name))? != bytes {
            return Err(failed(format!("{name} is another one at the origin than on the mount")));
        }
    }
    let done = exercises.iter().map(|one| one.ended * OPERATIONS).sum();
    Ok(Pauses { kills, during_upgrades, upgrades, done: Finished::Operations(done), longest: None })
}

/// fsx with one shape, on one file.
struct Exercise {
    shape: Shape,
    file: PathBuf,
    run: PathBuf,
    running: Option<Service>,
    ended: u64,
}

impl Exercise {
    /// Starts it again when it has ended well.
    fn go_on(&mut self, random: &mut u64) -> Result<()> {
        if let Some(running) = &mut self.running {
            if !running.ended()? {
                return Ok(());
            }
            self.ended += 1;
        }
        let command = fsx::command(self.shape, OPERATIONS, next(random) >> 33, &self.file, &self.run)?;
        self.running = Some(Service::start("fsx", command, &self.run.join("said"))?);
        Ok(())
    }

    /// Waits for its end. Returns its file's name and bytes.
    fn finish(&mut self) -> Result<(String, Vec<u8>)> {
        // One that does not end stays where it is: it cannot be ended before the mount is.
        if let Some(running) = &mut self.running {
            running.wait_for_end(LAST_MAX)?;
            (self.running, self.ended) = (None, self.ended + 1);
        }
        Ok((format!("{:?}", self.shape), read(&self.file)?))
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).map_err(Failure::io(format!("reading {}", file.display())))
}

/// Kills workers under pjdfstest. A test that the origin's file system passes must pass on the mount.
pub(super) fn run_pjdfstest(headpond: &Headpond, directory: &Path, options: &Options) -> Result<Pauses> {
    let mounting = Mounting::below(directory, POOL)?;
    let run = directory_in(directory, "run")?;
    let bare = Outcomes::of(&directory_in(directory, "bare")?, &run)?;
    let mount = headpond.mount(&mounting)?;
    let mut suite = Suite { bare, mountpoint: mounting.mountpoint, run, running: None, passed: 0 };
    let mut killer = Killer::new(&mount, options);
    let outcome = killer.run(options.kills, &mut || suite.go_on());
    let (kills, during_upgrades, upgrades) = (killer.kills(), killer.during_upgrades(), killer.upgrades());
    let outcome = outcome.and_then(|()| suite.finish());
    end(mount, outcome, kills + upgrades)?;
    Ok(Pauses { kills, during_upgrades, upgrades, done: Finished::Tests(suite.passed), longest: None })
}

/// pjdfstest, again and again.
struct Suite {
    bare: Outcomes,
    mountpoint: PathBuf,
    run: PathBuf,
    running: Option<JoinHandle<Result<Outcomes>>>,
    passed: u64,
}

impl Suite {
    fn go_on(&mut self) -> Result<()> {
        if self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return Ok(());
        }
        self.finish()?;
        let (mountpoint, run) = (self.mountpoint.clone(), self.run.clone());
        self.running = Some(std::thread::spawn(move || Outcomes::of(&mountpoint, &run)));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let outcomes = running.join().map_err(|_| failed("what runs pjdfstest panicked"))??;
        let compared = self.bare.compare(&outcomes)?;
        self.passed += compared.passed as u64;
        if compared.failed.is_empty() {
            return Ok(());
        }
        Err(failed(format!(
            "tests of pjdfstest that the origin's file system passes failed on the mount: {}",
            compared.failed.join(", ")
        )))
    }
}

/// Unmounts after a success, and takes the mount away at once after a failure: what still runs there ends then.
fn end<T>(mount: Mount, outcome: Result<T>, deaths: u64) -> Result<T> {
    let outcome = outcome.and_then(|found| match mount.lives()?.takeovers {
        takeovers if takeovers == deaths => Ok(found),
        _ => Err(failed("a worker ended by itself, after the last kill")),
    });
    if outcome.is_ok() {
        mount.unmount()?;
    } else {
        mount.kill();
    }
    outcome
}
