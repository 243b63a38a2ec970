//! The loads of one leg: threads that run fsx and fio again and again, and the databases' clients.
//!
//! Invariant: a run that fails is a finding unless the daemon was about to be killed when it ended
//! ([`Loads::excuse`] comes before the kill); a run that is ended by this program is none.

use super::Sum;
use super::promises::{Promises, Written};
use crate::command;
use crate::failure::{Failure, Result};
use crate::fio::Job;
use crate::fsx::{self, Shape};
use crate::ledger::RunningClients;
use crate::random::{below, next};
use crate::service::Service;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Operations of one run of fsx: a second or so, less than the shortest leg on a machine with much else to do, for only
/// runs that were finished count.
const FSX_OPERATIONS: u64 = 200;
/// The sizes of fio's files, in MiB. All together with the databases they are more than the pool holds.
const FIO_MIB: u64 = 48;
/// Files that fio writes in turn.
const FIO_FILES: u64 = 4;
const LOOK: Duration = Duration::from_millis(20);

/// What the threads and their owner share.
#[derive(Default)]
struct Shared {
    excused: AtomicBool,
    stop: AtomicBool,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    failure: Option<Failure>,
    fsx_operations: u64,
    fio_written: u64,
    files: Vec<Written>,
}

/// The loads of a leg.
pub(super) struct Loads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    databases: Vec<(RunningClients, Service)>,
}

impl Loads {
    /// Starts all of them on the mount `root`.
    pub(super) fn start(root: &Path, run: &Path, promises: &Promises, seed: u64) -> Result<Self> {
        let databases = promises.load(root)?;
        let shared = Arc::new(Shared::default());
        shared.locked().files.clone_from(&promises.files);
        let mut threads = Vec::new();
        for (index, shape) in Shape::ALL.into_iter().enumerate() {
            let (shared, root, run) = (shared.clone(), root.to_owned(), run.join(format!("fsx-{index}")));
            let seed = seed.wrapping_add(index as u64);
            threads.push(std::thread::spawn(move || shared.exercise(shape, &root, &run, seed)));
        }
        let (worker, root) = (shared.clone(), root.to_owned());
        threads.push(std::thread::spawn(move || worker.write_files(&root, seed)));
        Ok(Self { shared, threads, databases })
    }

    /// Fails if a load has found something, or ended by itself.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(failure) = self.shared.locked().failure.take() {
            return Err(failure);
        }
        let ended = self.databases.iter().find_map(|(clients, _)| clients.ended());
        ended.map_or(Ok(()), |said| {
            Err(Failure::Other(format!("a client of SQLite ended while the daemon lived: {said}")))
        })
    }

    /// From now on a run may fail: the daemon is about to be killed.
    pub(super) fn excuse(&self) {
        self.shared.excused.store(true, Ordering::SeqCst);
    }

    /// Ends the programs that are left after a kill of the daemon.
    pub(super) fn end_after_kill(mut self, promises: &mut Promises, sum: &mut Sum) -> Result<()> {
        for (clients, mut load) in std::mem::take(&mut self.databases) {
            load.kill();
            clients.join()?;
        }
        self.end(promises, sum)
    }

    /// Stops everything, so that the mount is not in use any more. Fails if a load found something.
    pub(super) fn stop(mut self, promises: &mut Promises, sum: &mut Sum) -> Result<()> {
        self.check()?;
        for (clients, mut load) in std::mem::take(&mut self.databases) {
            // First: SQLite's lock is not fair, and a client that ends its transaction beside a load that goes on may
            // wait for minutes.
            load.kill();
            clients.stop()?;
        }
        self.end(promises, sum)
    }

    fn end(&mut self, promises: &mut Promises, sum: &mut Sum) -> Result<()> {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| Failure::Other("a load's thread panicked".to_owned()))?;
        }
        let mut found = self.shared.locked();
        promises.files = std::mem::take(&mut found.files);
        sum.fsx_operations += found.fsx_operations;
        sum.fio_written += found.fio_written;
        found.failure.take().map_or(Ok(()), Err)
    }
}

impl Drop for Loads {
    /// After a failure: nothing that was started stays behind.
    fn drop(&mut self) {
        self.excuse();
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in std::mem::take(&mut self.threads) {
            // It panicked, and there is a failure already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn locked(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ending(&self) -> bool {
        self.stop.load(Ordering::SeqCst) || self.locked().failure.is_some()
    }

    /// Runs a command to its end. True if it succeeded; a failure is kept unless it is excused.
    fn succeeded(&self, doing: &str, mut command: Command) -> bool {
        let outcome = self.follow(doing, &mut command);
        match outcome {
            Ok(success) => success,
            // Asked after the run has ended: whatever the kill broke ended after the excuse.
            Err(_) if self.excused.load(Ordering::SeqCst) => false,
            Err(failure) => {
                self.locked().failure.get_or_insert(failure);
                false
            }
        }
    }

    /// True if it succeeded, false if it was ended from here.
    fn follow(&self, doing: &str, command: &mut Command) -> Result<bool> {
        let child = command::detach(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| command::failed(doing, command, error, ""))?;
        loop {
            let status = child.try_wait().map_err(Failure::io(doing))?;
            if status.is_some() {
                break;
            }
            if self.stop.load(Ordering::SeqCst) {
                // Failing means that it is gone already.
                let _ = child.kill();
                let _ = child.wait();
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        let output = child.wait_with_output().map_err(Failure::io(doing))?;
        if output.status.success() {
            return Ok(true);
        }
        let said = [output.stdout, output.stderr].concat();
        Err(command::failed(doing, command, output.status, &String::from_utf8_lossy(&said)))
    }

    /// fsx on a file of its own, again and again.
    fn exercise(&self, shape: Shape, root: &Path, run: &Path, mut seed: u64) {
        let file: PathBuf = root.join(format!("fsx-{shape:?}"));
        while !self.ending() && !self.excused.load(Ordering::SeqCst) {
            match fsx::command(shape, FSX_OPERATIONS, next(&mut seed) >> 33, &file, run) {
                Ok(command) => {
                    if self.succeeded("running fsx", command) {
                        self.locked().fsx_operations += FSX_OPERATIONS;
                    }
                }
                Err(failure) => {
                    self.locked().failure.get_or_insert(failure);
                }
            }
        }
    }

    /// fio on one file after the other.
    fn write_files(&self, root: &Path, mut seed: u64) {
        while !self.ending() && !self.excused.load(Ordering::SeqCst) {
            let name = format!("fio-{}", below(&mut seed, FIO_FILES));
            let direct = below(&mut seed, 2) == 0;
            let requests: &[u32] = if direct { &[4096, 16384, 1 << 20] } else { &[2560, 4096, 16384, 65536] };
            let job = Job {
                mib: (1 + below(&mut seed, FIO_MIB)) as u32,
                request: requests[below(&mut seed, requests.len() as u64) as usize],
                random: below(&mut seed, 3) > 0,
                direct,
                sync_every: [8, 32, 128][below(&mut seed, 3) as usize],
                seed: next(&mut seed) >> 33,
            };
            self.locked().files.retain(|file| file.name != name);
            if self.succeeded("writing and verifying a file with fio", job.write(root, &name)) {
                let mut found = self.locked();
                found.fio_written += 1;
                found.files.push(Written { name, job });
            }
        }
    }
}
