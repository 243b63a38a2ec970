//! Locks on files: one open in the engine at a time, or one change of the file's names.
//!
//! An open looks at the origin's file, tells the engine what it saw, and looks once more. The engine believes that only while
//! nobody has the file open. If two opens ran at once, and both had looked before destage made the file longer, the first
//! would bring the engine an old size, and the second would keep it from a later look that corrects it.
//!
//! A change of names looks at what the engine knows of the file, changes the origin, and acts on what it saw. If the
//! engine came to know the file in between, the removal would not reach the log. After a crash its data would then
//! lack its file.
//!
//! ```text
//!  free ── opening (one) ── it is through ──> free
//!   └──── changing (one) ── it is through ──> free
//! ```
//!
//! Invariants
//! - During an open in the engine, no other open of the file runs. So what the engine believes of the origin's file is what
//!   the last look saw.
//! - During a change of a file's names, no open in the engine and no other change of its names runs. So the number of
//!   names, and whether the engine knows the file, stay what they were when it got the lock.
//! - An operation takes all its locks at once, and never asks for more while it has some: there is no deadlock.
//! - Later opens do not delay a change of names that waits.
//!
//! Price: an open takes one lock twice. A wait lasts as long as a change of the origin's directories, or an open, which is
//! two looks at the origin.

use std::collections::BTreeMap;

use crate::FileKey;
use crate::wait::Watched;

type Files = BTreeMap<FileKey, Busy>;

/// The locks on all files.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    files: Watched<Files>,
}

/// The operations at a file. A file without any is not in the table.
#[derive(Debug, Default)]
struct Busy {
    opening: bool,
    changing: bool,
    /// How many wait to change its names.
    waiting: u32,
}

impl Busy {
    const fn is_over(&self) -> bool {
        !self.opening && !self.changing && self.waiting == 0
    }
}

/// The lock on a file, to open it, until it is dropped.
#[must_use]
pub(crate) struct Opening<'a> {
    locks: &'a FileLocks,
    file: FileKey,
}

/// Exclusive locks on these files, to change their names, until it is dropped.
#[must_use]
pub(crate) struct Changing<'a> {
    locks: &'a FileLocks,
    files: [Option<FileKey>; 2],
}

/// A wait for exclusive locks, until it is dropped.
struct Wanting<'a> {
    locks: &'a FileLocks,
    files: [Option<FileKey>; 2],
}

impl FileLocks {
    /// Waits for the lock to open a file.
    pub(crate) async fn open(&self, file: FileKey) -> Opening<'_> {
        let may = |files: &mut Files| {
            let busy = files.entry(file).or_default();
            let free = !busy.opening && !busy.changing && busy.waiting == 0;
            free.then(|| busy.opening = true)
        };
        self.files.until(may).await;
        Opening { locks: self, file }
    }

    /// Waits for exclusive locks on up to two files, to change their names.
    pub(crate) async fn change(&self, [one, other]: [Option<FileKey>; 2]) -> Changing<'_> {
        let wanted = [one, other.filter(|other| one != Some(*other))];
        self.files.change(|files| {
            for file in wanted.iter().flatten() {
                files.entry(*file).or_default().waiting += 1;
            }
        });
        let wanting = Wanting { locks: self, files: wanted };
        let may = |files: &mut Files| {
            let is_free = |file: &FileKey| files.get(file).is_none_or(|busy| !busy.changing && !busy.opening);
            if !wanted.iter().flatten().all(is_free) {
                return None;
            }
            for file in wanted.iter().flatten() {
                let busy = files.entry(*file).or_default();
                (busy.waiting, busy.changing) = (busy.waiting - 1, true);
            }
            Some(())
        };
        self.files.until(may).await;
        // The wait ends without its drop: the locks are held.
        std::mem::forget(wanting);
        Changing { locks: self, files: wanted }
    }

    fn over(&self, file: FileKey, end: impl FnOnce(&mut Busy)) {
        self.files.change(|files| {
            let busy = files.get_mut(&file).expect("a lock is in the table until it is released");
            end(busy);
            if busy.is_over() {
                files.remove(&file);
            }
        });
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.locks.over(self.file, |busy| busy.opening = false);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        for file in self.files.iter().flatten() {
            self.locks.over(*file, |busy| busy.changing = false);
        }
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        for file in self.files.iter().flatten() {
            self.locks.over(*file, |busy| busy.waiting -= 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use headpond_base::UnixNanos;

    use super::*;

    const fn file(inode: u64) -> FileKey {
        FileKey { inode, birth: UnixNanos(1) }
    }

    /// The lock, if it comes without waiting. Otherwise `None`.
    fn now<F: Future>(wanted: Pin<&mut F>) -> Option<F::Output> {
        match wanted.poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(lock) => Some(lock),
            std::task::Poll::Pending => None,
        }
    }

    fn nothing_goes_on(locks: &FileLocks) -> bool {
        locks.files.see(BTreeMap::is_empty)
    }

    #[test]
    fn a_file_is_opened_by_one_at_a_time_and_its_names_are_changed_by_one() {
        let locks = FileLocks::default();
        let first = now(pin!(locks.open(file(1)))).unwrap();
        {
            let mut second = pin!(locks.open(file(1)));
            assert!(now(second.as_mut()).is_none());
            drop(now(pin!(locks.open(file(4)))).unwrap());
            drop(now(pin!(locks.change([Some(file(2)), Some(file(3))]))).unwrap());
            drop(first);
            let second = now(second).unwrap();
            let mut both = pin!(locks.change([Some(file(2)), Some(file(1))]));
            assert!(now(both.as_mut()).is_none());
            drop(second);
            drop(now(both).unwrap());
        }
        let changing = now(pin!(locks.change([Some(file(1)), Some(file(1))]))).unwrap();
        {
            let mut open = pin!(locks.open(file(1)));
            assert!(now(open.as_mut()).is_none());
            drop(changing);
            drop(now(open).unwrap());
        }
        let changing = now(pin!(locks.change([Some(file(1)), None]))).unwrap();
        drop(now(pin!(locks.open(file(2)))).unwrap());
        {
            let mut other = pin!(locks.change([Some(file(1)), None]));
            assert!(now(other.as_mut()).is_none());
            drop(changing);
            drop(now(other).unwrap());
        }
        assert!(nothing_goes_on(&locks));
    }

    #[test]
    fn who_changes_names_is_not_kept_waiting_by_those_who_come_later() {
        let locks = FileLocks::default();
        let open = now(pin!(locks.open(file(1)))).unwrap();
        let mut changing = pin!(locks.change([Some(file(1)), None]));
        assert!(now(changing.as_mut()).is_none());
        let mut later = pin!(locks.open(file(1)));
        assert!(now(later.as_mut()).is_none());
        drop(open);
        assert!(now(later.as_mut()).is_none());
        drop(now(changing).unwrap());
        drop(now(later).unwrap());
        assert!(nothing_goes_on(&locks));
    }

    #[test]
    fn who_gives_up_waiting_is_in_nobodys_way() {
        let locks = FileLocks::default();
        let open = now(pin!(locks.open(file(1)))).unwrap();
        {
            let mut changing = pin!(locks.change([Some(file(1)), Some(file(2))]));
            assert!(now(changing.as_mut()).is_none());
        }
        drop(open);
        drop(now(pin!(locks.open(file(1)))).unwrap());
        assert!(nothing_goes_on(&locks));
    }
}
