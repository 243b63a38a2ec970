//! Operations by a few threads with pread, pwrite and fdatasync: works wherever files do.
//!
//! Costs, for each operation: two locks, a thread woken, and the owner woken if it sleeps. That is
//! the price of blocking calls; where io_uring is allowed, use that.
//!
//! Invariant: an operation is in exactly one place: staged by the owner, queued, in the hands of
//! one thread, or among the done.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::trim::{TrimLane, TrimPolicy};
use crate::{Device, Done, Flash, Op, Waker};

/// Threads: how many operations are at the device at once. Flash gains little beyond; each costs
/// a stack and, when all are busy on two cores, time.
const THREADS: usize = 16;

/// A thread only calls the kernel.
const STACK_BYTES: usize = 128 << 10;

/// A device served by threads.
pub struct Psync {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    staged: Vec<Op>,
    ready: Vec<Done>,
    trim: TrimLane,
}

struct Shared {
    flash: Arc<Flash>,
    queue: Mutex<Queue>,
    work: Condvar,
    done: Mutex<Vec<Done>>,
    waker: Waker,
}

#[derive(Default)]
struct Queue {
    ops: VecDeque<Op>,
    stop: bool,
}

impl Psync {
    /// Starts the threads.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn new(flash: Flash, trim: TrimPolicy) -> io::Result<Self> {
        let flash = Arc::new(flash);
        let waker = Waker::parking();
        let trim = TrimLane::new(flash.clone(), trim, waker.clone());
        let shared =
            Arc::new(Shared { flash, queue: Mutex::default(), work: Condvar::new(), done: Mutex::default(), waker });
        let mut device = Self { shared, threads: Vec::new(), staged: Vec::new(), ready: Vec::new(), trim };
        for number in 0..THREADS {
            let shared = device.shared.clone();
            let thread = std::thread::Builder::new().name(format!("flash-{number}")).stack_size(STACK_BYTES);
            // If one cannot be started, dropping the device ends those that were.
            device.threads.push(thread.spawn(move || shared.serve())?);
        }
        Ok(device)
    }

    fn stage(&mut self, op: Op) {
        if let Some(op) = self.trim.admit(op) {
            self.staged.push(op);
        }
    }
}

impl Device for Psync {
    fn bytes(&self) -> u64 {
        self.shared.flash.bytes()
    }

    fn name(&self) -> &'static str {
        "psync"
    }

    fn submit(&mut self, op: Op) {
        match op.check(self.bytes()) {
            Ok(()) => self.stage(op),
            Err(errno) => self.ready.extend(op.failed(errno)),
        }
    }

    fn wait(&mut self, done: &mut Vec<Done>, timeout: Option<Duration>) -> io::Result<()> {
        self.staged.extend(self.trim.released());
        if !self.staged.is_empty() {
            let mut queue = locked(&self.shared.queue);
            let count = self.staged.len();
            queue.ops.extend(self.staged.drain(..));
            drop(queue);
            for _ in 0..count.min(THREADS) {
                self.shared.work.notify_one();
            }
        }
        let before = done.len();
        done.append(&mut self.ready);
        done.append(&mut locked(&self.shared.done));
        if done.len() == before && timeout != Some(Duration::ZERO) && self.shared.waker.doze() {
            self.shared.waker.park(timeout);
        }
        self.shared.waker.rise();
        done.append(&mut locked(&self.shared.done));
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.shared.waker.clone()
    }
}

impl Drop for Psync {
    fn drop(&mut self) {
        locked(&self.shared.queue).stop = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has nothing more to do with the file, which is all that counts here.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// What each thread does until the device is dropped. What is queued then is not started.
    fn serve(&self) {
        loop {
            let mut queue = locked(&self.queue);
            let op = loop {
                if queue.stop {
                    return;
                }
                match queue.ops.pop_front() {
                    Some(op) => break op,
                    None => queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            let Some(end) = self.carry_out(op) else { continue };
            locked(&self.done).push(end);
            self.waker.wake();
        }
    }

    fn carry_out(&self, op: Op) -> Option<Done> {
        Some(match op {
            Op::Read { tag, offset, len } => Done::Read { tag, result: self.flash.read(offset, len) },
            Op::Write { tag, offset, data } => Done::Write { tag, result: self.flash.write(offset, &data) },
            Op::Sync { tag } => Done::Sync { tag, result: self.flash.sync() },
            // Trims have their own thread.
            Op::Trim { .. } => return None,
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
