//! Paths of the known inodes. As many stay open as there is room for. The table closes the others, and opens them again
//! when an operation needs them.
//!
//! ```text
//!            leave            gone
//!   Here ───────────> Leaving ─────> Gone       nothing uses it: closed before its last name goes
//!    │  <───────────          stay
//!    └── keep ──────> Kept                      its last name is gone and something uses it: open to the end
//! ```
//!
//! Invariants
//! - At most [`Paths`]' limit stay open, beside those that are in use or must stay open. If all of them are, the table
//!   opens more: the limit leaves a reserve.
//! - A path in use (an [`PathInUse`]) never closes under its user.
//! - Nothing opens a file that is leaving. An operation that needs it waits until that is decided.
//!
//! Price of an open one: a lock that is never held for long, and a count; no system call.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use headpond_base::{Errno, Result};

use crate::wait::Watched;

/// For each path that opens, the table looks at so many of the oldest.
const LOOKS: usize = 32;

/// How long a closing path waits for its users: calls to the origin that are under way.
const IN_USE: Duration = Duration::from_secs(10);

/// The pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// A path in use.
pub type PathInUse<P> = Arc<CountedPath<P>>;

/// An open path, counted.
pub struct CountedPath<P> {
    path: P,
    count: Arc<AtomicUsize>,
}

impl<P> Deref for CountedPath<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.path
    }
}

impl<P> Drop for CountedPath<P> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<P> fmt::Debug for CountedPath<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Descriptor")
    }
}

/// The owner of a path that may close and open again.
pub(crate) trait PathHolder<P>: Send + Sync {
    /// Where its path is.
    fn slot(&self) -> &PathSlot<P>;
    /// Whether it can open again. Runs with a lock held, and must not ask for a path.
    fn can_reopen(&self) -> bool;
    /// Its last name went while nothing counted on it.
    fn went(&self) {}
}

/// The state of the file; see the picture above.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Life {
    #[default]
    Here,
    Leaving,
    Gone,
    Kept,
}

#[derive(Default)]
struct State {
    life: Life,
    /// How many uses count on it: the file must outlive its last name.
    users: u32,
    /// How many operations are opening it again.
    opening: u32,
}

/// The path of one file.
pub struct PathSlot<P> {
    open: RwLock<Option<PathInUse<P>>>,
    /// Used since the table last looked at it.
    used: AtomicBool,
    /// It is in the ring.
    listed: AtomicBool,
    state: Watched<State>,
}

impl<P> Default for PathSlot<P> {
    fn default() -> Self {
        Self {
            open: RwLock::new(None),
            used: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            state: Watched::default(),
        }
    }
}

impl<P> PathSlot<P> {
    /// The path, if it is open.
    pub fn get(&self) -> Option<PathInUse<P>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner).clone();
        if open.is_some() && !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        open
    }

    /// One more use counts on the file. False if the file is gone: its last name went while nothing counted on it.
    pub(crate) async fn count_on(&self) -> bool {
        let count = |state: &mut State| match state.life {
            Life::Leaving => None,
            Life::Gone => Some(false),
            Life::Here | Life::Kept => {
                state.users += 1;
                Some(true)
            }
        };
        self.state.until(count).await
    }

    /// A use that counted on it ends.
    pub(crate) fn count_off(&self) {
        self.state.change(|state| state.users -= 1);
    }

    /// How many uses count on the file.
    pub fn users(&self) -> u32 {
        self.state.see(|state| state.users)
    }

    /// Whether its last name went while nothing counted on it.
    pub fn is_gone(&self) -> bool {
        self.life() == Life::Gone
    }

    /// Whether it is neither about to go, nor gone, nor kept open to its end.
    pub fn may_close(&self) -> bool {
        self.life() == Life::Here
    }

    /// Whether its last name is gone, and it is open to its end.
    pub(crate) fn is_kept(&self) -> bool {
        self.life() == Life::Kept
    }

    /// Takes the path out for closing, if it may close.
    pub fn close_unused(&self) -> Option<PathInUse<P>> {
        if self.may_close() { self.close() } else { None }
    }

    /// Its last name is still there after all.
    pub(crate) fn stays(&self) {
        self.state.change(|state| {
            if state.life == Life::Kept {
                state.life = Life::Here;
            }
        });
    }

    /// Closes a file whose last name went while something counted on it, if nothing does any more: then the file is
    /// gone. Otherwise false.
    pub(crate) fn end_kept(&self) -> bool {
        let ends = self.state.change(|state| {
            let ends = state.life == Life::Kept && state.users == 0;
            if ends {
                state.life = Life::Gone;
            }
            ends
        });
        if ends {
            drop(self.close());
        }
        ends
    }

    /// Its last name went in the life of a process before.
    pub(crate) fn set_gone(&self) {
        self.settle(Life::Gone);
    }

    fn life(&self) -> Life {
        self.state.see(|state| state.life)
    }

    fn settle(&self, life: Life) {
        self.state.change(|state| state.life = life);
    }

    fn close(&self) -> Option<PathInUse<P>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A file whose path is closed while its last name is removed. Unless it is [`gone`](Self::gone), it stays as it was.
#[must_use = "the file is out of use as long as this value"]
pub(crate) struct Closed<P, H: PathHolder<P>> {
    holder: Arc<H>,
    gone: bool,
    _path: std::marker::PhantomData<fn() -> P>,
}

impl<P, H: PathHolder<P>> Closed<P, H> {
    /// Takes a file out of use whose last name is about to go, and closes it. Refuses if something still counts on the
    /// file after that long. It waits a while for calls that use the path, in steps of `pause`.
    pub(crate) async fn of<F: Future<Output = ()> + Send>(
        mut pause: impl FnMut(Duration) -> F + Send,
        holder: Arc<H>,
        patience: Duration,
    ) -> Option<Self> {
        let slot = holder.slot();
        let mut left = patience;
        loop {
            let leave = |state: &mut State| match state.life {
                Life::Leaving => None,
                _ if state.users > 0 => Some(None),
                Life::Here => {
                    state.life = Life::Leaving;
                    Some(Some(true))
                }
                Life::Gone | Life::Kept => Some(Some(false)),
            };
            match slot.state.until(leave).await {
                Some(true) => break,
                Some(false) => return None,
                None if left.is_zero() => return None,
                None => {
                    let wait = left.min(LOOK_AGAIN);
                    pause(wait).await;
                    left -= wait;
                }
            }
        }
        // If this ends early, the file stays.
        let leaving = Self { holder, gone: false, _path: std::marker::PhantomData };
        let slot = leaving.holder.slot();
        let mut left = IN_USE;
        while slot.state.see(|state| state.opening > 0) {
            if left.is_zero() {
                return None;
            }
            pause(LOOK_AGAIN).await;
            left = left.saturating_sub(LOOK_AGAIN);
        }
        if let Some(open) = slot.close() {
            while Arc::strong_count(&open) > 1 && !left.is_zero() {
                pause(LOOK_AGAIN).await;
                left = left.saturating_sub(LOOK_AGAIN);
            }
        }
        Some(leaving)
    }

    /// The name is gone, and the file with it.
    pub(crate) fn gone(mut self) {
        self.gone = true;
    }
}

impl<P, H: PathHolder<P>> Drop for Closed<P, H> {
    fn drop(&mut self) {
        if self.gone {
            self.holder.went();
        }
        self.holder.slot().settle(if self.gone { Life::Gone } else { Life::Here });
    }
}

/// The paths of many files. A limited number stays open.
pub(crate) struct Paths<H> {
    most: usize,
    count: Arc<AtomicUsize>,
    /// Open paths, and some that were open, oldest first: a clock.
    ring: Mutex<VecDeque<Weak<H>>>,
}

impl<H> Paths<H> {
    /// None is open. Later, at most so many are.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, count: Arc::default(), ring: Mutex::default() }
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The path of a file, opened again by `open` if it was closed. [`Errno::STALE`] if its last name went while
    /// nothing counted on it.
    pub(crate) async fn get<P>(&self, holder: &Arc<H>, open: impl Future<Output = Result<P>>) -> Result<PathInUse<P>>
    where
        H: PathHolder<P>,
    {
        let slot = holder.slot();
        if let Some(open) = slot.get() {
            return Ok(open);
        }
        let begin = |state: &mut State| match state.life {
            Life::Leaving => None,
            Life::Gone => Some(false),
            Life::Here | Life::Kept => {
                state.opening += 1;
                Some(true)
            }
        };
        if !slot.state.until(begin).await {
            return Err(Errno::STALE);
        }
        // Its drop ends the opening, successful or not.
        let _opening = Opening(slot);
        Ok(self.put(holder, open.await?))
    }

    /// Gives a file its path, if it has none, and closes others if too many are open.
    pub(crate) fn put<P>(&self, holder: &Arc<H>, path: P) -> PathInUse<P>
    where
        H: PathHolder<P>,
    {
        let slot = holder.slot();
        let opened = {
            let mut open = slot.open.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(earlier) = &*open {
                return earlier.clone();
            }
            self.count.fetch_add(1, Ordering::Relaxed);
            open.insert(Arc::new(CountedPath { path, count: self.count.clone() })).clone()
        };
        let closed = {
            let mut ring = self.ring();
            if !slot.listed.swap(true, Ordering::AcqRel) {
                ring.push_back(Arc::downgrade(holder));
            }
            if ring.len() > 2 * self.open() + LOOKS {
                // The kernel forgot most of them.
                ring.retain(|listed| listed.strong_count() > 0);
            }
            let over = self.open().saturating_sub(self.most);
            close_some(&mut ring, over, LOOKS)
        };
        // Closing may take long, so it happens without the lock on the ring.
        drop(closed);
        opened
    }

    /// Its last name is about to go while something uses it: it stays open to the end, unless it
    /// [`stays`](Slot::stays).
    pub(crate) fn keep<P>(&self, holder: &Arc<H>, open: PathInUse<P>)
    where
        H: PathHolder<P>,
    {
        let _ring = self.held_open(holder, open);
        holder.slot().settle(Life::Kept);
    }

    /// After `taken` it cannot open again, so it stays open.
    pub(crate) fn hold<P, R>(&self, holder: &Arc<H>, open: PathInUse<P>, taken: impl FnOnce() -> R) -> R
    where
        H: PathHolder<P>,
    {
        let _ring = self.held_open(holder, open);
        taken()
    }

    /// An operation that closes others locks the ring. While this one has the lock, nothing closes its path.
    fn held_open<P>(&self, holder: &Arc<H>, open: PathInUse<P>) -> MutexGuard<'_, VecDeque<Weak<H>>>
    where
        H: PathHolder<P>,
    {
        let ring = self.ring();
        let mut slot = holder.slot().open.write().unwrap_or_else(PoisonError::into_inner);
        // It closed meanwhile. The path in hand is as good.
        slot.get_or_insert(open);
        ring
    }

    /// Closes so many unused paths that can open again: the process has no descriptor left.
    pub(crate) fn make_room<P>(&self, wanted: usize)
    where
        H: PathHolder<P>,
    {
        let closed = {
            let mut ring = self.ring();
            let all = 2 * ring.len();
            close_some(&mut ring, wanted, all)
        };
        drop(closed);
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<Weak<H>>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes up to `wanted` paths out, looking at no more than `looks` files.
fn close_some<P, H: PathHolder<P>>(ring: &mut VecDeque<Weak<H>>, wanted: usize, looks: usize) -> Vec<PathInUse<P>> {
    let mut closed = Vec::new();
    for _ in 0..looks {
        if closed.len() >= wanted {
            break;
        }
        let Some(listed) = ring.pop_front() else { break };
        let Some(holder) = listed.upgrade() else { continue };
        let slot = holder.slot();
        let stays = slot.used.swap(false, Ordering::Relaxed) || !slot.may_close() || !holder.can_reopen();
        if stays {
            ring.push_back(listed);
            continue;
        }
        // Before it closes: an operation that opens it again lists it again.
        slot.listed.store(false, Ordering::Release);
        closed.extend(slot.close());
    }
    closed
}

struct Opening<'a, P>(&'a PathSlot<P>);

impl<P> Drop for Opening<'_, P> {
    fn drop(&mut self) {
        self.0.state.change(|state| state.opening -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::pin;
    use std::sync::atomic::AtomicU32;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::block_on;

    #[derive(Default)]
    struct One {
        slot: PathSlot<()>,
        nameless: bool,
        opened: AtomicU32,
    }

    impl PathHolder<()> for One {
        fn slot(&self) -> &PathSlot<()> {
            &self.slot
        }

        fn can_reopen(&self) -> bool {
            !self.nameless
        }
    }

    fn some(count: usize) -> Vec<Arc<One>> {
        (0..count).map(|_| Arc::default()).collect()
    }

    async fn reopen(all: &Paths<One>, one: &Arc<One>) -> Result<PathInUse<()>> {
        let open = async {
            one.opened.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        all.get(one, open).await
    }

    fn open(all: &Paths<One>, one: &Arc<One>) -> PathInUse<()> {
        block_on(reopen(all, one)).unwrap()
    }

    /// A pause in which something was done.
    fn after(done: impl FnOnce()) -> std::future::Ready<()> {
        done();
        ready(())
    }

    /// Closes a path that nothing uses.
    fn leave(one: &Arc<One>) -> Option<Closed<(), One>> {
        let mut pauses = 0;
        let left = block_on(Closed::of(|_| after(|| pauses += 1), one.clone(), Duration::ZERO));
        assert_eq!(pauses, 0, "nobody uses it");
        left
    }

    #[test]
    fn many_more_files_than_descriptors_are_opened_and_opened_again() {
        let (all, files) = (Paths::new(20), some(500));
        for _ in 0..3 {
            for file in &files {
                open(&all, file);
                assert!(all.open() <= 20, "{}", all.open());
            }
        }
        assert!(files.iter().all(|file| file.opened.load(Ordering::SeqCst) == 3));
    }

    #[test]
    fn what_is_used_again_and_again_stays_open() {
        let (all, files) = (Paths::new(20), some(500));
        let often = Arc::new(One::default());
        for file in &files {
            open(&all, &often);
            open(&all, file);
        }
        assert!(often.opened.load(Ordering::SeqCst) <= 2);
    }

    #[test]
    fn what_cannot_be_opened_again_and_what_is_in_use_is_never_closed() {
        let all = Paths::new(5);
        let nameless = Arc::new(One { nameless: true, ..One::default() });
        let kept = Arc::new(One::default());
        open(&all, &nameless);
        all.keep(&kept, open(&all, &kept));
        let used = open(&all, &Arc::new(One::default()));
        for file in some(200) {
            open(&all, &file);
        }
        all.make_room(1000);
        assert!(nameless.slot.get().is_some() && kept.slot.get().is_some());
        assert_eq!(all.open(), 3, "closed in the cache, and open for who uses it");
        drop(used);
        assert_eq!(all.open(), 2);
    }

    #[test]
    fn who_wants_a_file_that_is_leaving_waits_for_how_that_ends() {
        for goes in [false, true] {
            let (all, file) = (Paths::new(5), Arc::new(One::default()));
            drop(open(&all, &file));
            let leaving = leave(&file).unwrap();
            assert_eq!(all.open(), 0, "closed before the name goes");
            let mut wanting = pin!(reopen(&all, &file));
            let mut context = Context::from_waker(Waker::noop());
            assert!(wanting.as_mut().poll(&mut context).is_pending());
            if goes {
                leaving.gone()
            } else {
                drop(leaving)
            }
            let Poll::Ready(had) = wanting.poll(&mut context) else { panic!("it still waits") };
            assert_eq!(had.map(drop), if goes { Err(Errno::STALE) } else { Ok(()) });
            assert_eq!(file.slot.is_gone(), goes);
        }
    }

    #[test]
    fn what_is_counted_on_does_not_leave() {
        let (all, file) = (Paths::new(5), Arc::new(One::default()));
        drop(open(&all, &file));
        assert!(block_on(file.slot.count_on()));
        assert!(leave(&file).is_none());
        file.slot.count_off();
        leave(&file).unwrap().gone();
        assert!(!block_on(file.slot.count_on()), "it is no more");
    }

    #[test]
    fn who_has_a_path_in_use_is_waited_for_and_not_for_ever() {
        let (all, file) = (Paths::new(5), Arc::new(One::default()));
        let used = Mutex::new(Some(open(&all, &file)));
        let mut pauses = 0_u32;
        let pause = |_| {
            pauses += 1;
            if pauses == 3 {
                drop(used.lock().unwrap().take());
            }
            ready(())
        };
        block_on(Closed::of(pause, file.clone(), Duration::ZERO)).unwrap().gone();
        assert_eq!(pauses, 3);
        let (file, mut waited) = (Arc::new(One::default()), Duration::ZERO);
        let _used = open(&all, &file);
        block_on(Closed::of(|time| after(|| waited += time), file.clone(), Duration::ZERO)).unwrap().gone();
        assert_eq!(waited, IN_USE);
    }

    #[test]
    fn who_may_close_a_file_soon_is_waited_for_as_long_as_is_said() {
        let (all, file) = (Paths::new(5), Arc::new(One::default()));
        drop(open(&all, &file));
        assert!(block_on(file.slot.count_on()));
        let (patience, mut waited) = (Duration::from_millis(200), Duration::ZERO);
        assert!(block_on(Closed::of(|time| after(|| waited += time), file.clone(), patience)).is_none());
        assert_eq!(waited, patience);
        let leaving = block_on(Closed::of(|_| after(|| file.slot.count_off()), file.clone(), patience));
        assert!(leaving.is_some());
    }

    #[test]
    fn the_ring_of_those_that_are_forgotten_does_not_grow() {
        let all = Paths::new(50);
        for file in some(10_000) {
            open(&all, &file);
        }
        for _ in 0..10_000 {
            open(&all, &Arc::default());
        }
        assert!(all.ring.lock().unwrap().len() < 1000);
    }
}
