//! A writer on a mount that notes when each of its syncs was answered: so it shows whether two hosts serve at once.
//!
//! All hosts write to one file, a number that grows. Who begins to write to it reads the number that is there.
//!
//! Invariants
//! - A number counts as answered only once its sync was.
//! - A writer ends at the first error, and writes no more.

use super::failed;
use crate::failure::{Failure, Result};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two writes.
const PAUSE: Duration = Duration::from_millis(10);
const NAME: &str = "pulse";
const BLOCK: usize = 4096;

/// A writer at work.
pub(super) struct Pulse {
    path: PathBuf,
    noted: Arc<Noted>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Noted {
    stop: AtomicBool,
    seen: Mutex<Seen>,
}

/// What a writer has seen.
#[derive(Default, Clone, Debug)]
pub(super) struct Seen {
    /// The number that was there when it began.
    found: u64,
    /// The last number whose sync was answered.
    last: u64,
    /// When the first sync began that was answered, and when the last one was answered.
    times: Option<(Instant, Instant)>,
    /// What ended it, if it was no order.
    error: Option<String>,
}

impl Pulse {
    /// Begins to write on a mount that answers.
    pub(super) fn start(mountpoint: &Path) -> Self {
        let (path, noted) = (mountpoint.join(NAME), Arc::<Noted>::default());
        let (file, notes) = (path.clone(), noted.clone());
        let write = move || {
            if let Err(error) = write(&file, &notes) {
                notes.seen().error = Some(error.to_string());
            }
        };
        Self { path, noted, thread: Some(std::thread::spawn(write)) }
    }

    /// What it has seen so far.
    pub(super) fn seen(&self) -> Seen {
        self.noted.seen().clone()
    }

    /// Whether it has met an error.
    pub(super) fn has_failed(&self) -> bool {
        self.noted.seen().error.is_some()
    }

    /// Whether it has had an answer.
    pub(super) fn is_answered(&self) -> bool {
        self.noted.seen().times.is_some()
    }

    /// A mount that serves nothing: it gives no data and takes none, also if one asks anew.
    pub(super) fn serves_nothing(&self) -> Result<()> {
        let mut block = [0; BLOCK];
        let opened = OpenOptions::new().read(true).write(true).open(&self.path);
        if let Ok(file) = opened {
            // Past the kernel's pages.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            if file.read_exact_at(&mut block, 0).is_ok() {
                return Err(failed("the deposed owner answered a read".to_owned()));
            }
            if file.write_all_at(&block, 0).and_then(|()| file.sync_data()).is_ok() {
                return Err(failed("the deposed owner answered a sync".to_owned()));
            }
        }
        if File::create(self.path.with_extension("new")).is_ok() {
            return Err(failed("the deposed owner made a file".to_owned()));
        }
        Ok(())
    }

    /// Ends it. A write that waits for a mount that stands still is waited for.
    pub(super) fn stop(&mut self) -> Result<Seen> {
        self.noted.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| failed("the writer on the mount panicked".to_owned()))?;
        }
        Ok(self.seen())
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        // Nobody waits for it here: the mount may stand still until its processes end, a little later.
        self.noted.stop.store(true, Ordering::Relaxed);
    }
}

impl Noted {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Each change of it is whole.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// What ended it, if it was no order.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Whether this number is the last one that was answered.
    pub(super) fn is_last(&self, number: u64) -> Result<()> {
        let last = self.last;
        if last == number { Ok(()) } else { Err(failed(format!("number {last} was answered, and {number} is there"))) }
    }

    /// How long before the first answer of the next owner the last of this one came.
    ///
    /// # Errors
    /// If this one was answered once the next one served, or the next one lacks what was answered here.
    pub(super) fn before(&self, next: &Self) -> Result<Duration> {
        let (Some((_, last)), Some((first, _))) = (self.times, next.times) else {
            return Err(failed("a host has answered no synced write, so this shows nothing".to_owned()));
        };
        if self.last > next.found {
            return Err(failed(format!(
                "the old owner answered the sync of number {}, and the new one has {}",
                self.last, next.found
            )));
        }
        first.checked_duration_since(last).ok_or_else(|| {
            let late = last - first;
            failed(format!(
                "two hosts served at once: the old owner answered a sync {late:.2?} after the new one began"
            ))
        })
    }
}

fn write(path: &Path, notes: &Noted) -> std::io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut block = [0; BLOCK];
    // A new file is empty.
    if file.metadata()?.len() > 0 {
        file.read_exact_at(&mut block, 0)?;
    }
    let mut number = number_in(&block)?;
    notes.seen().found = number;
    while !notes.stop.load(Ordering::Relaxed) {
        number += 1;
        let began = Instant::now();
        file.write_all_at(&block_of(number), 0)?;
        file.sync_data()?;
        let answered = Instant::now();
        let mut seen = notes.seen();
        seen.last = number;
        let first = seen.times.map_or(began, |(first, _)| first);
        seen.times = Some((first, answered));
        drop(seen);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// The same number all over, so that a torn one shows.
fn block_of(number: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block.chunks_exact_mut(8).for_each(|place| place.copy_from_slice(&number.to_le_bytes()));
    block
}

fn number_in(block: &[u8; BLOCK]) -> std::io::Result<u64> {
    let number = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at| block[at]));
    if *block == block_of(number) { Ok(number) } else { Err(std::io::Error::other("the number is torn")) }
}

/// The number in a directory, without a writer.
pub(super) fn number_at(directory: &Path) -> Result<u64> {
    let path = directory.join(NAME);
    let mut block = [0; BLOCK];
    let read = File::open(&path).and_then(|file| file.read_exact_at(&mut block, 0)).and_then(|()| number_in(&block));
    read.map_err(Failure::io(format!("reading {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(found: u64, last: u64, times: Option<(Instant, Instant)>) -> Seen {
        Seen { found, last, times, error: None }
    }

    #[test]
    fn two_that_serve_at_once_are_found_and_one_after_the_other_is_none() {
        let at = |millis| Instant::now() + Duration::from_millis(millis);
        let (start, end, late) = (at(0), at(500), at(1500));
        let old = seen(0, 10, Some((start, end)));
        let next = seen(10, 20, Some((at(1000), at(2000))));
        assert!(old.before(&next).unwrap() > Duration::ZERO);
        let zombie = seen(0, 10, Some((start, late)));
        assert!(zombie.before(&next).unwrap_err().to_string().contains("at once"));
        let lacks = seen(9, 20, next.times);
        assert!(old.before(&lacks).unwrap_err().to_string().contains("number 10"));
        assert!(old.before(&seen(10, 0, None)).is_err());
    }

    #[test]
    fn a_writer_goes_on_from_the_number_that_is_there_and_a_torn_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = Pulse::start(directory.path());
        while !first.is_answered() {
            std::thread::sleep(PAUSE);
        }
        assert!(first.serves_nothing().unwrap_err().to_string().contains("answered a read"));
        let first = first.stop().unwrap();
        let mut next = Pulse::start(directory.path());
        while !next.is_answered() {
            std::thread::sleep(PAUSE);
        }
        let next = next.stop().unwrap();
        // The look at whether it serves nothing has written the number that it read.
        first.before(&next).unwrap();
        next.is_last(number_at(directory.path()).unwrap()).unwrap();
        assert!(first.is_last(next.last).is_err());
        let file = OpenOptions::new().write(true).open(directory.path().join(NAME)).unwrap();
        file.write_all_at(&[7], 100).unwrap();
        assert!(number_at(directory.path()).is_err());
        let torn = Pulse::start(directory.path());
        while !torn.has_failed() {
            std::thread::sleep(PAUSE);
        }
    }
}
