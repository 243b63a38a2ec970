//! The files whose programs rely on untorn writes, because the mount promised them.
//!
//! Invariants
//! - The mount promises it only in a cache mode that keeps writes untorn, and does not leave that mode while a program
//!   relies on it: the promise and the change of mode look at the same state under one lock.
//! - A promise lasts as long as the handle that asked is open, and as long as its process lives: MariaDB closes a
//!   tablespace when it has too many open, opens it again, and does not ask again.
//! - Meanwhile every program's writes to the file go through the log or fail (`Handling::Whole`).
//! - A process in another process namespace gets no promise: the mount could not see its end.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headpond_base::UnixNanos;
use headpond_ledger::{MountLedger, PromiseEntry, PromiseRow};
use headpond_names::FileKey;
use headpond_rules::Pid;
use rustix::io::Errno;

use crate::outcome::ReplyOutcome;
use crate::processes;
use crate::tree::{Known, KnownFiles};

/// A file whose writes a program relies on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WholeFile {
    /// Its path below the mount, at its last open or rename.
    pub path: Vec<u8>,
    /// The process that relies on it.
    pub process: u32,
    /// The name of that process.
    pub name: String,
}

/// Shared by the mount and the daemon's control part.
#[derive(Default)]
pub struct WholeWrites {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Writes are whole in the present mode.
    holds: bool,
    lost: bool,
    told: HashMap<(FileKey, Pid), Told>,
    /// All known files, if promises were taken over.
    files: Option<Arc<KnownFiles>>,
}

struct Told {
    /// `None` if it was promised before this process, and the engine has not opened the file since.
    known: Option<Arc<Known>>,
    name: String,
    handles: BTreeSet<u64>,
    /// Its row in the ledger.
    entry: Option<PromiseEntry>,
}

impl WholeWrites {
    /// From now on writes are whole, and the mount may promise it; unless the flash has failed.
    pub fn hold(&self) {
        let mut state = self.state();
        state.holds = !state.lost;
    }

    /// From now on the mount does not promise it any more. Refused while a program relies on it.
    ///
    /// # Errors
    /// The files that programs rely on.
    pub fn leave(&self) -> Result<(), Vec<WholeFile>> {
        let mut state = self.state();
        state.forget_the_dead();
        if state.told.is_empty() {
            state.holds = false;
            Ok(())
        } else {
            Err(state.files())
        }
    }

    /// The flash has failed. The promise ends, also for programs that rely on it, and no program gets it from now on.
    pub fn lost(&self) {
        let mut state = self.state();
        (state.holds, state.lost) = (false, true);
    }

    /// Whether writes are whole now.
    pub(crate) fn holds(&self) -> bool {
        self.state().holds
    }

    /// The files that programs rely on, by their paths.
    #[must_use]
    pub fn files(&self) -> Vec<WholeFile> {
        let mut state = self.state();
        state.forget_the_dead();
        state.files()
    }

    #[cfg(test)]
    fn promise(&self, key: FileKey, known: &Arc<Known>, handle: u64, thread: u32) -> ReplyOutcome<()> {
        self.promise_lasting(key, known, handle, thread, None).map(drop)
    }

    /// Promises whole writes to a process through a handle. `thread` is the thread that asks. Returns the number of the
    /// promise's row.
    pub(crate) fn promise_lasting(
        &self,
        key: FileKey,
        known: &Arc<Known>,
        handle: u64,
        thread: u32,
        ledger: Option<&Arc<MountLedger>>,
    ) -> ReplyOutcome<u64> {
        let process = processes::read(thread, 0).ok_or(Errno::NOTTY)?;
        let mut state = self.state();
        if !state.holds {
            return Err(Errno::NOTTY);
        }
        state.forget_the_dead();
        let Pid { number, born } = process.pid;
        let row = PromiseRow { process: number, born, inode: key.inode, birth: key.birth.0 };
        let told = state.told.entry((key, process.pid)).or_insert_with(|| Told {
            known: None,
            name: process.name,
            handles: BTreeSet::new(),
            entry: ledger.map(|ledger| ledger.promise(&row)),
        });
        told.known = Some(known.clone());
        told.handles.insert(handle);
        known.set_whole(true);
        Ok(told.entry.as_ref().map_or(0, PromiseEntry::number))
    }

    /// Goes on with a promise of a process before this one.
    pub(crate) fn take_over(&self, files: &Arc<KnownFiles>, row: PromiseRow, entry: PromiseEntry, handles: Vec<u64>) {
        let key = FileKey { inode: row.inode, birth: UnixNanos(row.birth) };
        let process = Pid { number: row.process, born: row.born };
        let mut state = self.state();
        state.files = Some(files.clone());
        files.keep_whole(key, true);
        let named = processes::read(process.number, 0).filter(|now| now.pid == process);
        let told = Told {
            known: files.find(key),
            name: named.map(|process| process.name).unwrap_or_default(),
            handles: handles.into_iter().collect(),
            entry: Some(entry),
        };
        state.told.insert((key, process), told);
    }

    /// A handle was closed, or its program no longer relies on the promise.
    pub(crate) fn closed(&self, key: FileKey, handle: u64) {
        let mut state = self.state();
        if state.told.is_empty() {
            return;
        }
        let mut was_told = false;
        for (_, told) in state.told.iter_mut().filter(|((file, _), _)| *file == key) {
            was_told |= told.handles.remove(&handle);
        }
        if was_told {
            state.forget_the_dead();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves each entry whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops promises to processes that have ended and have no handle open.
    fn forget_the_dead(&mut self) {
        let mut alive: HashMap<Pid, bool> = HashMap::new();
        let mut let_go = Vec::new();
        let files = self.files.clone();
        self.told.retain(|(file, process), told| {
            let counts =
                !told.handles.is_empty() || *alive.entry(*process).or_insert_with(|| processes::lives(*process));
            if !counts {
                let_go.push((*file, told.known.take()));
            }
            counts
        });
        for (file, known) in let_go {
            if !self.told.keys().any(|(other, _)| *other == file) {
                if let Some(files) = &files {
                    files.keep_whole(file, false);
                }
                known.into_iter().for_each(|known| known.set_whole(false));
            }
        }
    }

    fn files(&self) -> Vec<WholeFile> {
        let of = |((_, process), told): (&(FileKey, Pid), &Told)| WholeFile {
            path: told.known.as_ref().map(|known| known.path()).unwrap_or_default(),
            process: process.number,
            name: told.name.clone(),
        };
        let mut files: Vec<WholeFile> = self.told.iter().map(of).collect();
        files.sort();
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::ObjectId;

    fn file(inode: u64) -> (FileKey, Arc<Known>) {
        let key = FileKey { inode, birth: UnixNanos(1) };
        let attributes = headpond_engine::Attributes { size: 1, mtime: UnixNanos(1), ctime: UnixNanos(1) };
        (key, KnownFiles::new(&[]).opened(key, ObjectId(inode), attributes))
    }

    /// A process that lives until it is let go.
    fn child() -> std::process::Child {
        std::process::Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[test]
    fn it_is_told_only_while_it_holds_and_left_only_when_nobody_counts_on_it() {
        let whole = WholeWrites::default();
        let (key, known) = file(1);
        let me = std::process::id();
        assert_eq!(whole.promise(key, &known, 7, me), Err(Errno::NOTTY), "nothing holds at first");
        whole.hold();
        whole.promise(key, &known, 7, me).unwrap();
        assert!(known.is_whole());
        let in_use = whole.leave().unwrap_err();
        assert_eq!((in_use.len(), in_use[0].process), (1, me));
        assert_eq!(whole.promise(key, &known, 8, me), Ok(()), "a refusal changes nothing");
        whole.closed(key, 7);
        whole.closed(key, 8);
        assert!(known.is_whole() && whole.leave().is_err(), "its process opens it again and does not ask again");
    }

    #[test]
    fn a_process_that_has_ended_counts_on_nothing_and_a_handle_that_is_open_does() {
        let whole = WholeWrites::default();
        whole.hold();
        let ((one, known_one), (two, known_two)) = (file(1), file(2));
        let mut child = child();
        whole.promise(one, &known_one, 1, child.id()).unwrap();
        whole.promise(two, &known_two, 2, child.id()).unwrap();
        whole.closed(one, 1);
        child.kill().unwrap();
        child.wait().unwrap();
        let left: Vec<u32> = whole.files().iter().map(|file| file.process).collect();
        assert_eq!(left, [child.id()], "a child has inherited the other handle");
        assert!(!known_one.is_whole() && known_two.is_whole());
        whole.closed(two, 2);
        assert!(!known_two.is_whole());
        whole.leave().unwrap();
        assert_eq!(whole.promise(one, &known_one, 3, std::process::id()), Err(Errno::NOTTY));
    }

    #[test]
    fn a_process_that_cannot_be_seen_is_not_told() {
        let whole = WholeWrites::default();
        whole.hold();
        let (key, known) = file(1);
        assert_eq!(whole.promise(key, &known, 1, 0), Err(Errno::NOTTY));
        assert!(!known.is_whole());
    }
}
