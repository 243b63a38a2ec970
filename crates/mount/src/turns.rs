//! Turns at a file: whoever opens it, and whoever changes its names, one after the other.
//!
//! A change of names looks at what the engine knows of the file, has the origin carry it out, and acts on what it
//! saw. A file that became known to the engine in between would be removed without the log's being told: after a crash
//! its data would be missing its file.
//!
//! ```text
//!            ┌────────────── open ──────────────┐
//!            v                                  │
//!  free ── opening (any number) ── the last is through ──> free
//!   └──── changing (one) ───────── it is through ────────> free
//! ```
//!
//! Invariants
//! - While names of a file are changed nobody opens it in the engine, and nobody else changes its names: how many there
//!   are, and whether the engine knows it, stay what they were when the turn came.
//! - All turns that one operation needs are taken at once, and nobody who has some asks for more: nobody waits in a
//!   circle.
//! - Who wants to change names is not kept waiting by those who come to open later.
//!
//! Cost: an open takes one lock twice. Who waits, waits for the origin's directories or for an open, as
//! long as those take.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::known::FileKey;

/// The turns at all files.
#[derive(Default)]
pub(crate) struct Turns {
    files: Mutex<HashMap<FileKey, Busy>>,
    free: Condvar,
}

/// What goes on at a file. One at which nothing goes on is not in the table.
#[derive(Default)]
struct Busy {
    openers: u32,
    changing: bool,
    /// How many wait to change its names.
    waiting: u32,
}

impl Busy {
    const fn is_over(&self) -> bool {
        self.openers == 0 && !self.changing && self.waiting == 0
    }
}

/// A turn to open a file, until it is dropped.
#[must_use]
pub(crate) struct Opening<'a> {
    turns: &'a Turns,
    file: FileKey,
}

/// A turn to change names of these files, until it is dropped.
#[must_use]
pub(crate) struct Changing<'a> {
    turns: &'a Turns,
    files: [Option<FileKey>; 2],
}

impl Turns {
    /// Waits for a turn to open a file.
    pub(crate) fn open(&self, file: FileKey) -> Opening<'_> {
        let mut files = self.locked();
        while files.get(&file).is_some_and(|busy| busy.changing || busy.waiting > 0) {
            files = self.free.wait(files).unwrap_or_else(PoisonError::into_inner);
        }
        files.entry(file).or_default().openers += 1;
        Opening { turns: self, file }
    }

    /// Waits for a turn to change names of up to two files.
    pub(crate) fn change(&self, [one, other]: [Option<FileKey>; 2]) -> Changing<'_> {
        let wanted = [one, other.filter(|other| one != Some(*other))];
        let mut files = self.locked();
        for file in wanted.iter().flatten() {
            files.entry(*file).or_default().waiting += 1;
        }
        let is_free = |files: &HashMap<FileKey, Busy>, file| {
            files.get(&file).is_none_or(|busy: &Busy| !busy.changing && busy.openers == 0)
        };
        while !wanted.iter().flatten().all(|file| is_free(&files, *file)) {
            files = self.free.wait(files).unwrap_or_else(PoisonError::into_inner);
        }
        for file in wanted.iter().flatten() {
            let busy = files.entry(*file).or_default();
            (busy.waiting, busy.changing) = (busy.waiting - 1, true);
        }
        Changing { turns: self, files: wanted }
    }

    fn over(&self, file: FileKey, end: impl FnOnce(&mut Busy)) {
        let mut files = self.locked();
        let busy = files.get_mut(&file).expect("a turn is in the table until it is over");
        end(busy);
        if busy.is_over() {
            files.remove(&file);
        }
        drop(files);
        self.free.notify_all();
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<FileKey, Busy>> {
        // Each change of the table is done whole before anything can panic.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.turns.over(self.file, |busy| busy.openers -= 1);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        for file in self.files.iter().flatten() {
            self.turns.over(*file, |busy| busy.changing = false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;
    use std::time::Duration;

    use headpond_base::UnixNanos;

    use super::*;

    const fn file(inode: u64) -> FileKey {
        FileKey { inode, birth: UnixNanos(1) }
    }

    /// Whether `work` waits, and ends once `release` was called.
    fn waits(work: impl FnOnce() + Send, release: impl FnOnce()) -> bool {
        thread::scope(|scope| {
            let (done, end) = channel();
            scope.spawn(move || {
                work();
                let _ = done.send(());
            });
            let waited = end.recv_timeout(Duration::from_millis(30)) == Err(RecvTimeoutError::Timeout);
            release();
            if waited {
                end.recv().unwrap();
            }
            waited
        })
    }

    #[test]
    fn a_file_is_opened_by_many_and_its_names_are_changed_by_one() {
        let turns = Turns::default();
        let first = turns.open(file(1));
        let second = turns.open(file(1));
        drop(turns.open(file(1)));
        drop(turns.change([Some(file(2)), Some(file(3))]));
        drop(first);
        assert!(waits(|| drop(turns.change([Some(file(2)), Some(file(1))])), || drop(second)));
        let changing = turns.change([Some(file(1)), Some(file(1))]);
        assert!(waits(|| drop(turns.open(file(1))), || drop(changing)));
        let changing = turns.change([Some(file(1)), None]);
        drop(turns.open(file(2)));
        assert!(waits(|| drop(turns.change([Some(file(1)), None])), || drop(changing)));
        assert!(turns.locked().is_empty());
    }

    #[test]
    fn who_changes_names_is_not_kept_waiting_by_those_who_come_later() {
        let turns = Turns::default();
        let open = turns.open(file(1));
        thread::scope(|scope| {
            let changing = scope.spawn(|| drop(turns.change([Some(file(1)), None])));
            while turns.locked()[&file(1)].waiting == 0 {
                thread::yield_now();
            }
            let later = scope.spawn(|| drop(turns.open(file(1))));
            thread::sleep(Duration::from_millis(20));
            assert!(!changing.is_finished() && !later.is_finished());
            drop(open);
            changing.join().unwrap();
            later.join().unwrap();
        });
    }
}
