//! What the daemon's control part sees of a mount: which files and processes use it, and which files lie below a
//! path.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use headpond_base::{ObjectId, UnixNanos};
use headpond_door::{Amount, Totals};
use headpond_names::FileKey;
use headpond_rules::Process;

use crate::outcome::ReplyOutcome;
use crate::processes::{self, ProcessUse, Processes};
use crate::tree::Known;

/// The use of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileUse {
    /// Its inode number at the origin.
    pub inode: u64,
    /// Its birth time at the origin, 0 if the file system has none.
    pub birth: UnixNanos,
    /// Its path below the mount: the present one or the last known. Empty if there is neither.
    pub path: Vec<u8>,
    /// The requests for it.
    pub done: Totals,
    /// Bytes in the last second.
    pub recent_bytes: u64,
}

/// The files of a mount.
pub(crate) trait Files: Send + Sync {
    /// Shows each file that the engine knows.
    fn each_known(&self, show: &mut dyn FnMut(FileKey, &Known));

    /// A file's path now, or the last known one. Empty if there is neither.
    fn path_of_file(&self, inode: u64, birth: UnixNanos) -> Vec<u8>;

    /// The files at or below a path that the engine knows.
    fn objects_below(&self, path: &Path) -> ReplyOutcome<BTreeSet<ObjectId>>;

    /// The paths of directories that are other origins.
    fn nested_origins(&self) -> Vec<Vec<u8>>;
}

/// Shared by the mount and the daemon's control part.
#[derive(Default)]
pub struct Insight {
    files: OnceLock<Weak<dyn Files>>,
    processes: Processes,
    /// The files with a request in the last second or two.
    active: Mutex<Vec<Arc<Known>>>,
    /// Counting is paused.
    paused: AtomicBool,
}

/// A request that is under way and counts when its answer goes out. None while counting is paused.
pub(crate) struct CountedRequest(Option<(Arc<Insight>, Arc<Known>, u32)>);

impl CountedRequest {
    /// Counts the answered request.
    pub(crate) fn done(self, amount: Amount) {
        if let Self(Some((insight, known, thread))) = self {
            insight.count(&known, thread, amount);
        }
    }
}

impl Insight {
    /// Sets the mount's files, once and for good.
    pub(crate) fn of(&self, files: Weak<dyn Files>) {
        let _ = self.files.set(files);
    }

    fn of_mount(&self) -> Option<Arc<dyn Files>> {
        self.files.get()?.upgrade()
    }

    /// Whether requests count, by file, process and rule, from now on.
    pub fn set_counting(&self, on: bool) {
        self.paused.store(!on, Ordering::Relaxed);
    }

    pub(crate) fn is_counting(&self) -> bool {
        !self.paused.load(Ordering::Relaxed)
    }

    /// Begins to count a request by this thread for this file.
    pub(crate) fn counted(self: &Arc<Self>, known: &Arc<Known>, thread: u32) -> CountedRequest {
        CountedRequest(self.is_counting().then(|| (self.clone(), known.clone(), thread)))
    }

    /// Counts a request.
    fn count(&self, known: &Arc<Known>, thread: u32, done: Amount) {
        if known.beside.tally.count(done) {
            self.active().push(known.clone());
        }
        self.processes.count(thread, done);
    }

    /// What rules know of processes.
    pub(crate) const fn processes_known(&self) -> &Processes {
        &self.processes
    }

    fn active(&self) -> MutexGuard<'_, Vec<Arc<Known>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The paths of directories below the origin that are other headponds' origins, so this mount did not enter them.
    /// Only some are kept.
    #[must_use]
    pub fn nested_origins(&self) -> Vec<Vec<u8>> {
        self.of_mount().map(|files| files.nested_origins()).unwrap_or_default()
    }

    /// Call it once a second: it makes what came since the last call the last second's use.
    pub fn tick(&self) {
        self.processes.tick();
        let looked_at = std::mem::take(&mut *self.active());
        let busy: Vec<_> = looked_at.into_iter().filter(|known| known.beside.tally.tick()).collect();
        self.active().extend(busy);
    }

    /// Call it several times a second: it finds the names of processes while they run.
    pub fn name_processes(&self) {
        self.processes.name();
    }

    /// The files most read from flash, most read from the origin, most read past the cache, most written and busiest
    /// in the last second: at most `most` of each. The busiest come first.
    #[must_use]
    pub fn files(&self, most: usize) -> Vec<FileUse> {
        let Some(files) = self.of_mount() else { return Vec::new() };
        let mut all = Vec::new();
        files.each_known(&mut |key, known| {
            let done = known.beside.tally.totals();
            if done.bytes() > 0 {
                let recent_bytes = known.beside.tally.recent();
                all.push(FileUse { inode: key.inode, birth: key.birth, path: Vec::new(), done, recent_bytes });
            }
        });
        let mut top = tops(all, most, |file| (file.done, file.recent_bytes));
        for file in &mut top {
            file.path = files.path_of_file(file.inode, file.birth);
        }
        top
    }

    /// The files at or below a path in the mount for which the engine may have data that the origin lacks. Looks at
    /// every file below it.
    ///
    /// # Errors
    /// If the path does not exist, or cannot be looked at.
    pub fn objects_below(&self, path: &Path) -> io::Result<BTreeSet<ObjectId>> {
        let files = self.of_mount().ok_or(io::ErrorKind::NotConnected)?;
        files.objects_below(path).map_err(io::Error::from)
    }

    /// When the process with this number started, in the kernel's ticks. None if there is no such process.
    #[must_use]
    pub fn born(&self, number: u32) -> Option<u64> {
        processes::read(number, 0).map(|process| process.pid.born)
    }

    /// A process by its number, as it is now, to make or test rules. `user` is the user of its requests. May wait for
    /// a moment.
    #[must_use]
    pub fn process(&self, number: u32, user: u32) -> Option<Process> {
        self.processes.find(number, user)
    }

    /// The same for processes.
    #[must_use]
    pub fn processes(&self, most: usize) -> Vec<ProcessUse> {
        tops(self.processes.all(), most, |process| (process.done, process.recent_bytes))
    }
}

/// One of the counts, by which to sort.
type Order = fn(&(Totals, u64)) -> u64;

/// The items among the `most` by one of the counts, zeros left out. Of equal ones, any.
fn tops<T>(all: Vec<T>, most: usize, counts: impl Fn(&T) -> (Totals, u64)) -> Vec<T> {
    let orders: [Order; 5] = [
        |(done, _)| done.hit_bytes,
        |(done, _)| done.miss_bytes,
        |(done, _)| done.bypassed_bytes,
        |(done, _)| done.written_bytes,
        |(_, recent)| *recent,
    ];
    let mut shown = vec![false; all.len()];
    for order in orders {
        let of = |index: &usize| std::cmp::Reverse(order(&counts(&all[*index])));
        let mut first: Vec<usize> = (0..all.len()).filter(|index| of(index).0 > 0).collect();
        if first.len() > most {
            first.select_nth_unstable_by_key(most, of);
            first.truncate(most);
        }
        first.into_iter().for_each(|index| shown[index] = true);
    }
    let mut top: Vec<T> = all.into_iter().zip(shown).filter_map(|(one, shown)| shown.then_some(one)).collect();
    top.sort_by_key(|one| {
        let (done, recent) = counts(one);
        std::cmp::Reverse((recent, done.bytes()))
    });
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_first_by_any_count_are_shown() {
        let totals = |hit_bytes, written_bytes| Totals { hit_bytes, written_bytes, ..Totals::default() };
        let all = vec![
            ("reader", totals(100, 0), 0),
            ("small", totals(1, 1), 0),
            ("writer", totals(0, 50), 0),
            ("now", totals(2, 2), 4),
        ];
        let names: Vec<&str> = tops(all, 1, |one| (one.1, one.2)).into_iter().map(|one| one.0).collect();
        assert_eq!(names, ["now", "reader", "writer"]);
    }

    #[test]
    fn of_those_that_did_the_same_no_more_are_shown_than_were_asked_for() {
        let same = Totals { written_bytes: 4096, ..Totals::default() };
        let all: Vec<(usize, Totals, u64)> = (0..2000).map(|name| (name, same, 7)).collect();
        assert_eq!(tops(all, 16, |one| (one.1, one.2)).len(), 16);
        let all = (0..2000).map(|name| (name, Totals::default(), 0));
        assert!(tops(all.collect(), 16, |one| (one.1, one.2)).is_empty(), "who did nothing is not shown");
    }

    #[test]
    fn nothing_is_counted_while_counting_is_off() {
        let insight = Arc::new(Insight::default());
        let key = headpond_names::FileKey { inode: 1, birth: UnixNanos(1) };
        let attributes = headpond_engine::Attributes::default();
        let known = crate::tree::KnownFiles::new(&[]).opened(key, ObjectId(1), attributes);
        let written = || known.beside.tally.totals().written_bytes;
        insight.counted(&known, 7).done(Amount::write(1));
        insight.set_counting(false);
        insight.counted(&known, 7).done(Amount::write(2));
        assert_eq!((written(), insight.processes(9)[0].done.written_bytes), (1, 1));
        insight.set_counting(true);
        insight.counted(&known, 7).done(Amount::write(4));
        assert_eq!((written(), insight.processes(9)[0].done.written_bytes), (5, 5));
    }

    /// What is added to each request, next to what a request costs at least: a call of the system.
    #[test]
    #[ignore = "a measurement, to be run alone: cargo test -p headpond-mount --release -- --ignored --nocapture counting"]
    fn counting_a_request_costs_little_next_to_a_system_call() {
        use crate::tree::KnownFiles;
        use std::time::Instant;
        const ROUNDS: u32 = 1_000_000;
        let insight = Arc::new(Insight::default());
        let key = headpond_names::FileKey { inode: 1, birth: UnixNanos(1) };
        let known = KnownFiles::new(&[]).opened(key, ObjectId(1), headpond_engine::Attributes::default());
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut nanos = [Vec::new(), Vec::new()];
        for _ in 0..9 {
            let started = Instant::now();
            for request in 0..ROUNDS {
                // As `data.rs` does it: the two are taken along, and counted when the answer is given.
                let done = Amount::read(headpond_engine::Served { hit_blocks: 1, ..Default::default() });
                insight.counted(&known, 1 + request % 64).done(done);
            }
            nanos[0].push(started.elapsed().as_nanos() / u128::from(ROUNDS));
            let started = Instant::now();
            for _ in 0..ROUNDS {
                rustix::io::read(&null, &mut [0_u8; 1]).unwrap();
            }
            nanos[1].push(started.elapsed().as_nanos() / u128::from(ROUNDS));
        }
        let [counting, call] = nanos.map(|mut rounds| {
            rounds.sort_unstable();
            rounds[rounds.len() / 2]
        });
        println!("counting {counting} ns a request; an empty system call {call} ns (medians of nine)");
    }
}
