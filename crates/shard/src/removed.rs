//! Removed files that are still open here. Their space at the origin is not free yet.
//!
//! A program that removes a file expects its space back at once. The file system frees the space when the last
//! descriptor closes. Some descriptors close only after the removal is answered: the kernel lets the mount forget a
//! file no sooner, and the close of a large file takes time. So a change that finds no space waits for the files that
//! are about to close, and tries again. File systems themselves wait like this for space in their journal.
//!
//! Invariants
//! - If no file is about to close, a change that finds no space fails at once.
//! - A change waits only for files that were removed before it, and no longer than the times below after the last news
//!   of them. So a removed file that a program keeps open delays no change for long.
//!
//! Price: a wait takes a thread of its lane; a write's wait, with a modelled disk, also the disk's arm.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headpond_base::{Errno, Result};

/// The longest time in which the kernel lets go of an unused file: one message through the mount's door, on a machine
/// with other work. A program may also have the file open, but that is no reason to wait longer.
const LET_GO: Duration = Duration::from_millis(500);

/// The longest time of a close. A large file on a slow disk takes seconds.
const CLOSING: Duration = Duration::from_secs(10);

/// The removed files of one origin.
#[derive(Default)]
pub(crate) struct RemovedFiles {
    shared: Arc<Shared>,
}

/// A removed file. It counts as closed when its last clone is dropped. Drop it after the descriptors.
#[derive(Clone)]
pub struct RemovedFile {
    open: Arc<StillOpen>,
}

struct StillOpen {
    number: u64,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<Files>,
    closed: Condvar,
}

#[derive(Default)]
struct Files {
    /// How long each file is waited for, by its number.
    open: BTreeMap<u64, Instant>,
    /// The number of the next file.
    next: u64,
    /// How many files were closed.
    closed: u64,
}

impl RemovedFiles {
    /// Adds a file that has lost its last name. It closes soon, unless a program still uses it.
    pub(crate) fn add(&self) -> RemovedFile {
        self.add_until(LET_GO)
    }

    /// Adds a file that is being closed.
    pub(crate) fn add_closing(&self) -> RemovedFile {
        self.add_until(CLOSING)
    }

    fn add_until(&self, patience: Duration) -> RemovedFile {
        let mut files = self.shared.locked();
        let number = files.next;
        files.next += 1;
        files.open.insert(number, Instant::now() + patience);
        drop(files);
        RemovedFile { open: Arc::new(StillOpen { number, shared: self.shared.clone() }) }
    }

    /// Calls `ask`, which needs space. Repeats it without space as long as files are about to close.
    pub(crate) fn asking_again<T>(&self, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        let before = self.shared.locked().next;
        loop {
            let (last, closed) = {
                let files = self.shared.locked();
                (files.waited_for(before).is_none(), files.closed)
            };
            let result = ask();
            if last || !matches!(result, Err(Errno::NOSPC | Errno::DQUOT)) {
                return result;
            }
            self.wait(before, closed);
        }
    }

    /// Waits until more than `closed` files are closed, or no file with a number below `before` is waited for.
    fn wait(&self, before: u64, closed: u64) {
        let mut files = self.shared.locked();
        while files.closed == closed
            && let Some(patience) = files.waited_for(before)
        {
            let waited = self.shared.closed.wait_timeout(files, patience);
            files = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Files {
    /// How long files with numbers below `before` are still waited for; `None` if there are none.
    fn waited_for(&self, before: u64) -> Option<Duration> {
        let until = self.open.range(..before).map(|(_, until)| *until).max()?;
        Some(until.saturating_duration_since(Instant::now())).filter(|patience| !patience.is_zero())
    }
}

impl RemovedFile {
    /// Notes that a program closed it: perhaps the last one.
    pub fn is_let_go(&self) {
        self.open.shared.wait_for(self.open.number, LET_GO);
    }

    /// Notes that no program has it open, so it now closes.
    pub fn is_closing(&self) {
        self.open.shared.wait_for(self.open.number, CLOSING);
    }
}

impl fmt::Debug for RemovedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Removed({})", self.open.number)
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, number: u64, patience: Duration) {
        if let Some(until) = self.locked().open.get_mut(&number) {
            *until = (*until).max(Instant::now() + patience);
        }
    }
}

impl Drop for StillOpen {
    fn drop(&mut self) {
        let mut files = self.shared.locked();
        files.open.remove(&self.number);
        files.closed += 1;
        drop(files);
        self.shared.closed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    /// An origin with some room.
    #[derive(Default)]
    struct Disk {
        room: AtomicU32,
        asked: AtomicU32,
    }

    impl Disk {
        fn take(&self) -> Result<()> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let taken = self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |room| room.checked_sub(1));
            taken.map(drop).map_err(|_| Errno::NOSPC)
        }

        fn asked(&self) -> u32 {
            self.asked.load(Ordering::SeqCst)
        }
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            thread::yield_now();
        }
    }

    #[test]
    fn who_finds_no_space_is_told_at_once_where_no_file_is_about_to_be_closed() {
        let (files, disk) = (RemovedFiles::default(), Disk::default());
        drop(files.add());
        assert_eq!(files.asking_again(|| disk.take()), Err(Errno::NOSPC));
        assert_eq!(disk.asked(), 1);
    }

    #[test]
    fn space_of_a_removed_file_is_had_once_all_who_hold_it_have_closed_it() {
        let (files, disk) = (RemovedFiles::default(), Disk::default());
        let removed = files.add_closing();
        let also = removed.clone();
        thread::scope(|scope| {
            let asking = scope.spawn(|| files.asking_again(|| disk.take()));
            wait_until(|| disk.asked() == 1);
            drop(removed);
            thread::sleep(Duration::from_millis(20));
            assert!(!asking.is_finished(), "one still has it open");
            disk.room.store(1, Ordering::SeqCst);
            drop(also);
            assert_eq!(asking.join().unwrap(), Ok(()));
        });
        assert_eq!(disk.asked(), 2);
    }

    #[test]
    fn each_file_that_is_closed_may_have_been_the_one_with_the_space() {
        let (files, disk) = (RemovedFiles::default(), Disk::default());
        let (one, other) = (files.add_closing(), files.add_closing());
        thread::scope(|scope| {
            let asking = scope.spawn(|| files.asking_again(|| disk.take()));
            wait_until(|| disk.asked() == 1);
            drop(one);
            wait_until(|| disk.asked() == 2);
            disk.room.store(1, Ordering::SeqCst);
            drop(other);
            assert_eq!(asking.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn a_removed_file_that_stays_open_is_not_waited_for_long_and_not_twice() {
        let (files, disk) = (RemovedFiles::default(), Disk::default());
        let kept = files.add();
        let since = Instant::now();
        assert_eq!(files.asking_again(|| disk.take()), Err(Errno::NOSPC));
        assert!(since.elapsed() >= LET_GO);
        let asked = disk.asked();
        assert_eq!(files.asking_again(|| disk.take()), Err(Errno::NOSPC));
        assert_eq!(disk.asked(), asked + 1, "it was waited for before");
        // Until the next news of it.
        kept.is_let_go();
        thread::scope(|scope| {
            let asking = scope.spawn(|| files.asking_again(|| disk.take()));
            wait_until(|| disk.asked() == asked + 2);
            disk.room.store(1, Ordering::SeqCst);
            drop(kept);
            assert_eq!(asking.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn files_removed_after_one_asked_are_not_waited_for() {
        let (files, disk) = (RemovedFiles::default(), Disk::default());
        let mut later = Vec::new();
        let asked = files.asking_again(|| {
            later.push(files.add_closing());
            disk.take()
        });
        assert_eq!(asked, Err(Errno::NOSPC));
        assert_eq!(disk.asked(), 1);
    }

    #[test]
    fn another_error_is_passed_on() {
        let files = RemovedFiles::default();
        let _removed = files.add_closing();
        assert_eq!(files.asking_again(|| Err::<(), _>(Errno::IO)), Err(Errno::IO));
    }
}
