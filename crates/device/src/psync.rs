//! Operations of all disks on a few threads with pread, pwrite and fdatasync. Works wherever files work.
//!
//! Each operation costs two locks and one woken thread, and wakes the owner if it sleeps. That is the price of
//! blocking calls; the owner carries out a lone operation by itself. Each wait costs one `epoll_wait` while descriptors
//! are watched. Use io_uring where it is allowed.
//!
//! Invariants:
//! - An operation is in exactly one place: staged by the owner, queued, with one thread, or done.
//! - Each disk has its share of the threads, so a disk that does not answer does not block the others. With one disk
//!   its share is all threads.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use headpond_base::MemberId;

use crate::disk::{Disk, Disposition};
use crate::epoll::Watches;
use crate::trim::TrimPolicy;
use crate::{Completion, DiskOp, Flash, Reactor, Waker, WatchToken};

/// Threads: the most operations that disks carry out at once. Flash gains little from more. Each costs a stack and,
/// when all are busy on two cores, time.
const THREADS: usize = 16;

/// A thread only calls the kernel.
const STACK_BYTES: usize = 128 << 10;

/// Disks served by threads.
pub struct Psync {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    disks: Vec<Disk>,
    /// Operations, each with the place of its disk.
    staged: Vec<(usize, DiskOp)>,
    /// Operations that the threads have, or whose end the owner has not taken yet.
    handed_over: usize,
    ready: Vec<Completion>,
    watches: Watches,
}

struct Shared {
    /// Each disk, at its place.
    flashes: Vec<(MemberId, Arc<Flash>)>,
    queue: Mutex<Queue>,
    work: Condvar,
    done: Mutex<Vec<Completion>>,
    waker: Waker,
}

struct Queue {
    lanes: Vec<Lane>,
    /// The disk at which the next search for work begins.
    next: usize,
    stop: bool,
}

/// The operations that wait for a disk, and how many threads it has.
#[derive(Default)]
struct Lane {
    ops: VecDeque<DiskOp>,
    busy: usize,
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
        let flashes = disks.iter().map(|disk| (disk.name(), disk.flash().clone())).collect();
        let queue = Mutex::new(Queue::of(disks.len()));
        let shared = Arc::new(Shared { flashes, queue, work: Condvar::new(), done: Mutex::default(), waker });
        let mut reactor =
            Self { shared, threads: Vec::new(), disks, staged: Vec::new(), handed_over: 0, ready: Vec::new(), watches };
        for number in 0..THREADS {
            let shared = reactor.shared.clone();
            let thread = std::thread::Builder::new().name(format!("flash-{number}")).stack_size(STACK_BYTES);
            // If one fails to start, the drop of the reactor ends the others.
            reactor.threads.push(thread.spawn(move || shared.serve())?);
        }
        Ok(reactor)
    }

    /// Takes the ends that the threads left.
    fn take_done(&mut self, done: &mut Vec<Completion>) {
        let mut left = locked(&self.shared.done);
        self.handed_over -= left.len();
        done.append(&mut left);
    }
}

impl Queue {
    fn of(disks: usize) -> Self {
        Self { lanes: (0..disks).map(|_| Lane::default()).collect(), next: 0, stop: false }
    }

    /// How many threads one disk may have.
    fn share(&self) -> usize {
        (THREADS / self.lanes.len().max(1)).max(1)
    }

    /// The next operation for a thread, and the place of its disk. The thread belongs to the disk until
    /// [`Queue::over`].
    fn take(&mut self) -> Option<(usize, DiskOp)> {
        let (count, share) = (self.lanes.len(), self.share());
        for place in (0..count).map(|step| (self.next + step) % count) {
            let lane = &mut self.lanes[place];
            if lane.busy < share
                && let Some(op) = lane.ops.pop_front()
            {
                lane.busy += 1;
                self.next = (place + 1) % count;
                return Some((place, op));
            }
        }
        None
    }

    /// Ends the work of a thread for a disk.
    fn over(&mut self, place: usize) {
        self.lanes[place].busy -= 1;
    }
}

impl Reactor for Psync {
    fn bytes(&self, disk: MemberId) -> u64 {
        Disk::bytes_of(&self.disks, disk)
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
        if self.staged.len() != 1 || self.handed_over > 0 || !self.ready.is_empty() {
            return false;
        }
        let ends = self.staged.drain(..).filter_map(|(place, op)| self.shared.carry_out(place, op));
        done.extend(ends);
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
        let mut done_with = None;
        loop {
            let mut queue = locked(&self.queue);
            if let Some(place) = done_with {
                queue.over(place);
            }
            let (place, op) = loop {
                if queue.stop {
                    return;
                }
                match queue.take() {
                    Some(taken) => break taken,
                    None => queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            done_with = Some(place);
            let Some(end) = self.carry_out(place, op) else { continue };
            locked(&self.done).push(end);
            self.waker.wake();
        }
    }

    fn carry_out(&self, place: usize, op: DiskOp) -> Option<Completion> {
        let (disk, flash) = &self.flashes[place];
        op.carry_out(*disk, flash)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tag;

    #[test]
    fn a_disk_that_never_answers_leaves_threads_to_the_others_and_alone_it_has_all() {
        let sync = DiskOp::Sync { tag: Tag(1) };
        let mut queue = Queue::of(2);
        queue.lanes[0].ops.extend(vec![sync.clone(); 100]);
        let stuck = std::iter::from_fn(|| queue.take()).count();
        assert_eq!(stuck, THREADS / 2);
        queue.lanes[1].ops.push_back(sync.clone());
        assert!(matches!(queue.take(), Some((1, _))));
        queue.over(0);
        assert!(matches!(queue.take(), Some((0, _))), "its own thread goes on with it");
        let mut alone = Queue::of(1);
        alone.lanes[0].ops.extend(vec![sync; 100]);
        assert_eq!(std::iter::from_fn(|| alone.take()).count(), THREADS);
    }
}
