//! Descriptors of the origin's files. As many stay open as the budget allows. The shard closes the others, and opens
//! them again when it needs them.
//!
//! ```text
//!            leave            gone
//!   Here ───────────> Leaving ─────> Gone       closed before its last name goes
//!       <───────────           stay
//! ```
//!
//! Invariants
//! - At most [`Descriptors`]' limit stay open, beside those that are in use or must stay open. If all of them are, the
//!   shard opens more: the [`Budget`] has a reserve.
//! - A descriptor in use (an [`Opened`]) never closes under its user.
//! - A file that is leaving is not opened. A job that needs it waits until that is decided.
//!
//! An open descriptor costs a short lock and a count, and no system call.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit};

/// The part of the process's descriptors for paths of inodes: a half.
const PATHS: u64 = 2;
/// The part for files that are attached for reading and writing: a quarter. The last quarter is for what cannot be
/// closed: files that were removed while open, directories being read, sockets, the flash.
const FILES: u64 = 4;
/// The part for handles that keep a directory or a file open for themselves: half of that last quarter, because a
/// handle of a file without a name takes two.
const HANDLES: u64 = 8;
/// More are useless: each keeps an inode of the origin in the kernel's memory.
const DESCRIPTORS_MAX: u64 = 1 << 20;
/// The fewest descriptors of a part that work.
const SHARE_MIN: u64 = 16;

/// How many of the longest open descriptors each opening looks at.
const LOOKS: usize = 32;

/// How long to wait for users of a file that must close: they have a call of the origin under way.
const IN_USE: Duration = Duration::from_secs(10);

/// How many descriptors each part may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Paths of inodes that the kernel remembers.
    pub paths: usize,
    /// Files of the origin, for reading and writing.
    pub files: usize,
    /// Handles of applications that keep something open at the origin.
    pub handles: usize,
}

impl Budget {
    /// The budget of a process with `limit` descriptors.
    #[must_use]
    pub fn of(limit: u64) -> Self {
        let share =
            |part: u64| usize::try_from((limit.min(DESCRIPTORS_MAX) / part).max(SHARE_MIN)).unwrap_or(usize::MAX);
        Self { paths: share(PATHS), files: share(FILES), handles: share(HANDLES) }
    }

    /// The budget of this process. Raises its soft limit to the hard one, which the operator sets.
    #[must_use]
    pub fn of_process() -> Self {
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let granted = limit.current == limit.maximum || rustix::process::setrlimit(Resource::Nofile, raised).is_ok();
        let most = if granted { limit.maximum } else { limit.current };
        Self::of(most.unwrap_or(DESCRIPTORS_MAX))
    }
}

/// A descriptor in use.
pub type Opened = Arc<Descriptor>;

/// An open file, counted.
pub struct Descriptor {
    file: File,
    count: Arc<AtomicUsize>,
}

impl Deref for Descriptor {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

/// A file that the shard may close and open again.
pub trait DescriptorHolder: Send + Sync {
    /// The slot of its descriptor.
    fn slot(&self) -> &DescriptorSlot;
    /// Whether it can be opened again. The caller holds a lock: do not ask for a descriptor here.
    fn can_reopen(&self) -> bool;
}

/// The state of the file; see the picture in this file's head.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Life {
    #[default]
    Here,
    Leaving,
    Gone,
}

#[derive(Default)]
struct State {
    life: Life,
    /// How many threads open it again now.
    opening: u32,
}

/// The descriptor of one file.
#[derive(Default)]
pub struct DescriptorSlot {
    open: RwLock<Option<Opened>>,
    /// Used since the last look of the ring.
    used: AtomicBool,
    /// It is in the ring.
    listed: AtomicBool,
    state: Mutex<State>,
    settled: Condvar,
}

impl DescriptorSlot {
    /// The descriptor, if it is open.
    pub fn get(&self) -> Option<Opened> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner).clone();
        if open.is_some() && !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        open
    }

    /// Whether the file's last name is gone.
    pub fn is_gone(&self) -> bool {
        self.state().life == Life::Gone
    }

    /// Takes the file out of use and closes it. Waits up to [`IN_USE`] for threads that open it, and as long for its
    /// users. False if it is gone, or is still being opened then.
    fn leave(&self) -> bool {
        let mut state = self.settled();
        if state.life != Life::Here {
            return false;
        }
        state.life = Life::Leaving;
        let since = Instant::now();
        while state.opening > 0 {
            if since.elapsed() >= IN_USE {
                state.life = Life::Here;
                drop(state);
                self.settled.notify_all();
                return false;
            }
            state = self.settled.wait_timeout(state, IN_USE).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        if let Some(open) = self.close() {
            let since = Instant::now();
            while Arc::strong_count(&open) > 1 && since.elapsed() < IN_USE {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        true
    }

    fn settle(&self, life: Life) {
        self.state().life = life;
        self.settled.notify_all();
    }

    fn close(&self) -> Option<Opened> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, after any leaving is decided.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.life == Life::Leaving {
            state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

/// A file that closes while its last name is removed. If the name stays, the drop brings the file back.
#[must_use = "the file is out of use as long as this value"]
pub struct LeavingDescriptor {
    holder: Arc<dyn DescriptorHolder>,
    gone: bool,
}

impl LeavingDescriptor {
    /// Closes a file whose last name is about to go.
    pub fn of(holder: Arc<dyn DescriptorHolder>) -> Option<Self> {
        // Only where it leaves: the drop of a value that is made in vain would bring back a file that is gone.
        holder.slot().leave().then(|| Self { holder, gone: false })
    }

    /// Notes that the name is gone, and the file with it.
    pub fn gone(mut self) {
        self.gone = true;
    }
}

impl Drop for LeavingDescriptor {
    fn drop(&mut self) {
        self.holder.slot().settle(if self.gone { Life::Gone } else { Life::Here });
    }
}

impl fmt::Debug for LeavingDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leaving")
    }
}

/// The descriptors of many files. Only some stay open.
pub struct Descriptors<H> {
    most: usize,
    count: Arc<AtomicUsize>,
    /// The open ones, and some that were, oldest first: a clock.
    ring: Mutex<VecDeque<Weak<H>>>,
}

impl<H: DescriptorHolder> Descriptors<H> {
    /// None is open. At most `most` will stay open.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, count: Arc::default(), ring: Mutex::default() }
    }

    /// How many are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The descriptor of a file. `open` opens it again if it was closed.
    ///
    /// # Errors
    /// Those of `open`, and `gone` if the file's last name is gone.
    pub fn get<E>(&self, holder: &Arc<H>, gone: E, open: impl FnOnce() -> Result<File, E>) -> Result<Opened, E> {
        let slot = holder.slot();
        if let Some(open) = slot.get() {
            return Ok(open);
        }
        {
            let mut state = slot.settled();
            if state.life == Life::Gone {
                return Err(gone);
            }
            state.opening += 1;
        }
        // Ends the opening in every case.
        let _opening = Opening(slot);
        Ok(self.put(holder, open()?))
    }

    /// Gives a file its descriptor, if it has none. Closes others if there are too many.
    pub fn put(&self, holder: &Arc<H>, file: File) -> Opened {
        let slot = holder.slot();
        let opened = {
            let mut open = slot.open.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(earlier) = &*open {
                return earlier.clone();
            }
            self.count.fetch_add(1, Ordering::Relaxed);
            open.insert(Arc::new(Descriptor { file, count: self.count.clone() })).clone()
        };
        let closed = {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            if !slot.listed.swap(true, Ordering::AcqRel) {
                ring.push_back(Arc::downgrade(holder));
            }
            if ring.len() > 2 * self.open() + LOOKS {
                // Most of the files are gone.
                ring.retain(|listed| listed.strong_count() > 0);
            }
            let over = self.open().saturating_sub(self.most);
            close_some(&mut ring, over, LOOKS)
        };
        // A close may take long: not with the ring locked.
        drop(closed);
        opened
    }

    /// Makes a file stay open. `taken` marks it so; no thread finds it closed after that.
    pub fn hold<T>(&self, holder: &Arc<H>, open: Opened, taken: impl FnOnce() -> T) -> T {
        let _ring = self.held_open(holder, open);
        taken()
    }

    /// Locks the ring. Only a thread that holds the ring closes descriptors, so this one stays open meanwhile.
    fn held_open(&self, holder: &Arc<H>, open: Opened) -> MutexGuard<'_, VecDeque<Weak<H>>> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slot = holder.slot().open.write().unwrap_or_else(PoisonError::into_inner);
        // If it was closed meanwhile: this descriptor is as good.
        slot.get_or_insert(open);
        ring
    }

    /// Closes `wanted` descriptors that are not in use and can be opened again: the process has none left.
    pub fn make_room(&self, wanted: usize) {
        let closed = {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            let all = 2 * ring.len();
            close_some(&mut ring, wanted, all)
        };
        drop(closed);
    }
}

impl<H> fmt::Debug for Descriptors<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} descriptors of {}", self.count.load(Ordering::Relaxed), self.most)
    }
}

/// Takes out up to `wanted` descriptors. Looks at no more than `looks` files.
fn close_some<H: DescriptorHolder>(ring: &mut VecDeque<Weak<H>>, wanted: usize, looks: usize) -> Vec<Opened> {
    let mut closed = Vec::new();
    for _ in 0..looks {
        if closed.len() >= wanted {
            break;
        }
        let Some(listed) = ring.pop_front() else { break };
        let Some(holder) = listed.upgrade() else { continue };
        let slot = holder.slot();
        let stays = slot.used.swap(false, Ordering::Relaxed) || slot.state().life != Life::Here || !holder.can_reopen();
        if stays {
            ring.push_back(listed);
            continue;
        }
        // Before the close: a thread that opens it again then lists it again.
        slot.listed.store(false, Ordering::Release);
        closed.extend(slot.close());
    }
    closed
}

struct Opening<'a>(&'a DescriptorSlot);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.state().opening -= 1;
        self.0.settled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct One {
        slot: DescriptorSlot,
        nameless: bool,
        opened: AtomicU32,
    }

    impl DescriptorHolder for One {
        fn slot(&self) -> &DescriptorSlot {
            &self.slot
        }

        fn can_reopen(&self) -> bool {
            !self.nameless
        }
    }

    fn some(count: usize) -> Vec<Arc<One>> {
        (0..count).map(|_| Arc::default()).collect()
    }

    fn open(all: &Descriptors<One>, one: &Arc<One>) -> Result<Opened, &'static str> {
        all.get(one, "gone", || {
            one.opened.fetch_add(1, Ordering::SeqCst);
            File::open("/dev/null").map_err(|_| "no /dev/null")
        })
    }

    #[test]
    fn many_more_files_than_descriptors_are_opened_and_opened_again() {
        let (all, files) = (Descriptors::new(20), some(500));
        for _ in 0..3 {
            for file in &files {
                open(&all, file).unwrap();
                assert!(all.open() <= 20, "{all:?}");
            }
        }
        assert!(files.iter().all(|file| file.opened.load(Ordering::SeqCst) == 3));
    }

    #[test]
    fn what_is_used_again_and_again_stays_open() {
        let (all, files) = (Descriptors::new(20), some(500));
        let often = Arc::new(One::default());
        for file in &files {
            open(&all, &often).unwrap();
            open(&all, file).unwrap();
        }
        assert!(often.opened.load(Ordering::SeqCst) <= 2, "{often}", often = often.opened.load(Ordering::SeqCst));
    }

    #[test]
    fn what_cannot_be_opened_again_and_what_is_in_use_is_never_closed() {
        let all = Descriptors::new(5);
        let nameless = Arc::new(One { nameless: true, ..One::default() });
        open(&all, &nameless).unwrap();
        let in_use = Arc::new(One::default());
        let used = open(&all, &in_use).unwrap();
        for file in some(200) {
            open(&all, &file).unwrap();
        }
        all.make_room(1000);
        assert!(nameless.slot.get().is_some());
        assert!(used.metadata().is_ok(), "closed in the cache, and open for who uses it");
        assert_eq!(all.open(), 2);
    }

    #[test]
    fn who_wants_a_file_that_is_leaving_waits_for_how_that_ends() {
        for goes in [false, true] {
            let (all, file) = (Descriptors::new(5), Arc::new(One::default()));
            open(&all, &file).unwrap();
            let leaving = LeavingDescriptor::of(file.clone()).unwrap();
            assert_eq!(all.open(), 0, "closed before the name goes");
            std::thread::scope(|scope| {
                let wanting = scope.spawn(|| open(&all, &file).map(drop));
                std::thread::sleep(Duration::from_millis(20));
                assert!(!wanting.is_finished());
                if goes {
                    leaving.gone()
                } else {
                    drop(leaving)
                }
                assert_eq!(wanting.join().unwrap(), if goes { Err("gone") } else { Ok(()) });
            });
            assert_eq!(file.slot.is_gone(), goes);
        }
    }

    #[test]
    fn a_file_that_is_gone_does_not_leave_again_and_stays_gone() {
        let (all, file) = (Descriptors::new(5), Arc::new(One::default()));
        open(&all, &file).unwrap();
        LeavingDescriptor::of(file.clone()).unwrap().gone();
        assert!(LeavingDescriptor::of(file.clone()).is_none());
        assert!(file.slot.is_gone());
        assert_eq!(open(&all, &file).map(drop), Err("gone"));
    }

    #[test]
    fn the_ring_of_those_that_are_forgotten_does_not_grow() {
        let all = Descriptors::new(50);
        for file in some(10_000) {
            open(&all, &file).unwrap();
        }
        for _ in 0..10_000 {
            open(&all, &Arc::default()).unwrap();
        }
        assert!(all.ring.lock().unwrap().len() < 1000);
    }

    #[test]
    fn a_budget_leaves_a_reserve() {
        for limit in [256, 1024, 20_000, 1 << 20, u64::MAX] {
            let Budget { paths, files, handles } = Budget::of(limit);
            assert!((paths + files) as u64 <= limit / 4 * 3, "{limit}");
            assert!(handles as u64 <= limit / 8, "{limit}");
        }
    }
}
