//! Operations of all disks on a few threads with pread, pwrite and fdatasync. Works wherever files work.
//!
//! Each operation costs two locks, or one if the next one waits already, and one woken thread, and wakes the owner if it sleeps. That is the price of
//! blocking calls; the owner carries out a lone operation by itself. Each wait costs one `epoll_wait` while descriptors
//! are watched. Use io_uring where it is allowed.
//!
//! Invariants:
//! - An operation is in exactly one place: staged by the owner, queued, with one thread, or done.
//! - Each disk has its share of the threads, so a disk that does not answer does not block the others. With one disk
//!   its share is all threads. A disk that joins brings threads for its share if the others have them all, and threads
//!   that a removed disk keeps are made up for.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use headpond_base::{Errno, MemberId, Result};

use crate::disk::{Disk, Disposition};
use crate::epoll::Watches;
use crate::trim::TrimPolicy;
use crate::{Completion, DiskOp, Flash, Reactor, Tag, Waker, WatchToken};

/// Threads: the most operations that disks carry out at once. Flash gains little from more. Each costs a stack and,
/// when all are busy on two cores, time.
const THREADS: usize = 16;

/// A thread only calls the kernel.
const STACK_BYTES: usize = 128 << 10;

/// Disks served by threads.
pub struct Psync {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Each disk. Its lane has the same place.
    disks: Vec<Disk>,
    trim: TrimPolicy,
    /// Operations, each with the place of its disk.
    staged: Vec<(usize, DiskOp)>,
    /// Operations that the threads have, or whose end the owner has not taken yet.
    handed_over: usize,
    ready: Vec<Completion>,
    watches: Watches,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    waker: Waker,
}

#[derive(Default)]
struct Queue {
    lanes: Vec<Lane>,
    /// The disk at which the next search for work begins.
    next: usize,
    done: Vec<Completion>,
    stop: bool,
}

/// The operations that wait for a disk, and those that threads carry out.
struct Lane {
    disk: MemberId,
    flash: Arc<Flash>,
    ops: VecDeque<DiskOp>,
    /// How each of them would fail.
    busy: Vec<Completion>,
}

/// What a thread does.
struct Taken {
    disk: MemberId,
    flash: Arc<Flash>,
    op: DiskOp,
}

impl Psync {
    /// Starts the threads.
    ///
    /// # Errors
    /// When they cannot be started, or there are no descriptors left.
    pub fn new(flashes: Vec<(MemberId, Flash)>, trim: TrimPolicy) -> io::Result<Self> {
        let waker = Waker::eventful()?;
        let watches = Watches::of(&waker)?;
        let disks = Disk::all(flashes, trim, &waker);
        let queue = Queue { lanes: disks.iter().map(Lane::of).collect(), ..Queue::default() };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), work: Condvar::new(), waker });
        let (threads, staged, ready) = (Vec::new(), Vec::new(), Vec::new());
        let mut reactor = Self { shared, threads, disks, trim, staged, handed_over: 0, ready, watches };
        reactor.start(THREADS)?;
        Ok(reactor)
    }

    /// Starts threads.
    fn start(&mut self, count: usize) -> io::Result<()> {
        for _ in 0..count {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name(format!("flash-{}", self.threads.len()));
            // If one of the first fails to start, the drop of the reactor ends the others.
            self.threads.push(thread.stack_size(STACK_BYTES).spawn(move || shared.serve())?);
        }
        Ok(())
    }

    /// Takes the ends that the threads left.
    fn take_done(&mut self, done: &mut Vec<Completion>) {
        let mut queue = locked(&self.shared.queue);
        self.handed_over -= queue.done.len();
        done.append(&mut queue.done);
    }
}

impl Lane {
    fn of(disk: &Disk) -> Self {
        Self { disk: disk.name(), flash: disk.flash().clone(), ops: VecDeque::new(), busy: Vec::new() }
    }
}

impl Queue {
    /// How many threads one disk may have.
    fn share(&self) -> usize {
        (THREADS / self.lanes.len().max(1)).max(1)
    }

    /// The next operation for a thread. The thread belongs to the disk until [`Queue::over`].
    fn take(&mut self) -> Option<Taken> {
        let (count, share) = (self.lanes.len(), self.share());
        for place in (0..count).map(|step| (self.next + step) % count) {
            let lane = &mut self.lanes[place];
            if lane.busy.len() < share
                && let Some(op) = lane.ops.pop_front()
            {
                lane.busy.extend(op.failed(lane.disk, Errno::NXIO));
                self.next = (place + 1) % count;
                return Some(Taken { disk: lane.disk, flash: lane.flash.clone(), op });
            }
        }
        None
    }

    /// Ends the work of a thread for a disk. False if the disk was removed: the owner has the end already.
    fn over(&mut self, disk: MemberId, tag: Tag) -> bool {
        let lane = self.lanes.iter_mut().find(|lane| lane.disk == disk);
        let ended = lane.and_then(|lane| {
            let place = lane.busy.iter().position(|end| end.tag == tag)?;
            Some(lane.busy.swap_remove(place))
        });
        ended.is_some()
    }
}

impl Reactor for Psync {
    fn bytes(&self, disk: MemberId) -> u64 {
        Disk::bytes_of(&self.disks, disk)
    }

    fn add(&mut self, disk: MemberId, flash: Flash) -> Result<()> {
        if Disk::place_of(&self.disks, disk).is_some() {
            return Err(Errno::EXIST);
        }
        let disk = Disk::new(disk, flash, self.trim, &self.shared.waker);
        let mut queue = locked(&self.shared.queue);
        queue.lanes.push(Lane::of(&disk));
        let busy: usize = queue.lanes.iter().map(|lane| lane.busy.len()).sum();
        let (share, free) = (queue.share(), THREADS.saturating_sub(busy));
        drop(queue);
        self.disks.push(disk);
        // If one cannot be started, the disk waits for the threads of the others.
        let _ = self.start(share.saturating_sub(free));
        Ok(())
    }

    fn remove(&mut self, disk: MemberId) {
        let Some(place) = Disk::place_of(&self.disks, disk) else { return };
        let lane = locked(&self.shared.queue).lanes.remove(place);
        let failed = |op: &DiskOp| op.failed(disk, Errno::NXIO);
        let kept = lane.busy.len();
        let known = self.ready.len();
        self.ready.extend(lane.busy);
        self.ready.extend(lane.ops.iter().filter_map(failed));
        self.handed_over -= self.ready.len() - known;
        for (of, op) in std::mem::take(&mut self.staged) {
            match of {
                of if of == place => self.ready.extend(failed(&op)),
                of => self.staged.push((of - usize::from(of > place), op)),
            }
        }
        self.ready.extend(self.disks.remove(place).let_go());
        // If one cannot be started, the others make do with fewer.
        let _ = self.start(kept);
    }

    fn measure(&mut self, disk: MemberId) -> Result<u64> {
        Disk::measure(&self.disks, disk)
    }

    fn name(&self) -> &'static str {
        "psync"
    }

    fn submit(&mut self, disk: MemberId, op: DiskOp) {
        match Disk::admit(&mut self.disks, disk, op) {
            Disposition::Now(place, op) => self.staged.push((place, op)),
            Disposition::Kept => {}
            Disposition::Ended(done) => self.ready.push(done),
        }
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> io::Result<()> {
        for (place, disk) in self.disks.iter_mut().enumerate() {
            self.staged.extend(disk.released().map(|op| (place, op)));
        }
        if !self.staged.is_empty() {
            let mut queue = locked(&self.shared.queue);
            let count = self.staged.len();
            self.handed_over += count;
            for (place, op) in self.staged.drain(..) {
                queue.lanes[place].ops.push_back(op);
            }
            drop(queue);
            for _ in 0..count.min(THREADS) {
                self.shared.work.notify_one();
            }
        }
        let before = done.len();
        done.append(&mut self.ready);
        self.take_done(done);
        let nothing = done.len() == before && !self.watches.has_readable();
        let block = nothing && timeout != Some(Duration::ZERO) && self.shared.waker.doze();
        let waited = match (block, self.watches.is_empty()) {
            (true, _) => self.watches.wait(timeout),
            (false, false) => self.watches.wait(Some(Duration::ZERO)),
            (false, true) => Ok(()),
        };
        self.shared.waker.rise();
        waited?;
        self.take_done(done);
        Ok(())
    }

    /// Any operation: each one needs a thread.
    fn carry_out_alone(&mut self, _writes: bool, done: &mut Vec<Completion>) -> bool {
        // With several disks none: one that never answers would keep this thread from the others.
        let [disk] = &self.disks[..] else { return false };
        if self.staged.len() != 1 || self.handed_over > 0 || !self.ready.is_empty() {
            return false;
        }
        done.extend(self.staged.drain(..).filter_map(|(_, op)| disk.flash().carry_out(disk.name(), op)));
        true
    }

    fn waker(&self) -> Waker {
        self.shared.waker.clone()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> Option<WatchToken> {
        self.watches.watch(descriptor)
    }

    fn unwatch(&mut self, watch: WatchToken) {
        self.watches.unwatch(watch);
    }

    fn take_readable(&mut self) -> Option<WatchToken> {
        self.watches.take_readable()
    }
}

impl Drop for Psync {
    fn drop(&mut self) {
        locked(&self.shared.queue).stop = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked no longer uses the file, and nothing else matters here.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The loop of each thread, until the reactor is dropped. Operations queued then are not started.
    fn serve(&self) {
        let mut queue = locked(&self.queue);
        let mut ended = false;
        loop {
            let Taken { disk, flash, op } = loop {
                if queue.stop {
                    return;
                }
                if let Some(taken) = queue.take() {
                    break taken;
                }
                if std::mem::take(&mut ended) {
                    self.waker.wake();
                }
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            if std::mem::take(&mut ended) {
                self.waker.wake();
            }
            let end = flash.carry_out(disk, op);
            // The last one closes the flash of a removed disk, which may take long.
            drop(flash);
            queue = locked(&self.queue);
            let Some(end) = end else { continue };
            ended = queue.over(disk, end.tag);
            if ended {
                queue.done.push(end);
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fill;

    #[test]
    fn a_disk_that_never_answers_leaves_threads_to_the_others_and_alone_it_has_all() {
        let dir = tempfile::tempdir().unwrap();
        let lane = |disk| {
            let path = dir.path().join(format!("flash-{disk}"));
            let flash = Flash::open(&path).or_else(|_| Flash::create(&path, 1 << 20, Fill::Reserved)).unwrap();
            Lane { disk: MemberId(disk), flash: Arc::new(flash), ops: VecDeque::new(), busy: Vec::new() }
        };
        let sync = DiskOp::Sync { tag: Tag(1) };
        let mut queue = Queue { lanes: vec![lane(0), lane(1)], ..Queue::default() };
        queue.lanes[0].ops.extend(vec![sync.clone(); 100]);
        let stuck = std::iter::from_fn(|| queue.take()).count();
        assert_eq!(stuck, THREADS / 2);
        queue.lanes[1].ops.push_back(sync.clone());
        assert!(matches!(queue.take(), Some(Taken { disk: MemberId(1), .. })));
        assert!(queue.over(MemberId(0), Tag(1)));
        let next = queue.take();
        assert!(matches!(next, Some(Taken { disk: MemberId(0), .. })), "its own thread goes on with it");
        drop((next, queue));
        let mut alone = Queue { lanes: vec![lane(0)], ..Queue::default() };
        alone.lanes[0].ops.extend(vec![sync; 100]);
        assert_eq!(std::iter::from_fn(|| alone.take()).count(), THREADS);
    }
}
