//! Operations through one io_uring: one system call hands over everything submitted and waits.
//!
//! Costs, for each turn of the owner's loop: one `io_uring_enter`, whatever the number of
//! operations; none when nothing was submitted and completions are there already. A wake-up from
//! another thread is one write to an eventfd, and only while the owner sleeps.
//!
//! Invariants:
//! - Memory that the kernel may still read or write stays where it is, in its slot, until the
//!   kernel has answered. Dropping the device waits for that.
//! - A slot is either free or names one operation that the kernel has exactly once.
//! - Only one thread uses the ring: the one that waits first. (The kernel then needs no locks,
//!   and runs completions only when asked: SINGLE_ISSUER and DEFER_TASKRUN, where they exist.)

// The ring shares memory with the kernel, which no borrow can express.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use headpond_base::{Buf, BufMut, Errno};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::trim::{TrimLane, TrimPolicy};
use crate::{Device, Done, Flash, Op, Tag, Waker};

/// Operations that the kernel has at once. More wait in a queue: flash is busy with fewer.
const DEPTH: u32 = 256;

/// Names the watch on the eventfd among completions, where all else is the number of a slot.
const WATCH: u64 = u64::MAX;

/// Names the watch on the owner's descriptor. It counts down with each one, so that a late answer
/// about one that is gone is not taken for the next one's.
const WATCHED: u64 = u64::MAX - 1;

/// The lowest number of a watch. Slots are far fewer.
const WATCHED_MIN: u64 = u64::MAX / 2;

/// Answers to an end of a watch, which nobody waits for.
const UNWATCH: u64 = WATCHED_MIN - 1;

/// The kernel moves at most this much with one call; longer operations go in several.
const TRANSFER_MAX: usize = 1 << 30;

/// A device served by an io_uring.
pub struct Uring {
    ring: IoUring,
    flash: Arc<Flash>,
    started: bool,
    watching: bool,
    waker: Waker,
    slots: Vec<Slot>,
    free: Vec<usize>,
    backlog: VecDeque<Op>,
    ready: Vec<Done>,
    trim: TrimLane,
    watched: Option<Watched>,
    next_watch: u64,
    readable: bool,
}

/// The owner's descriptor, which the ring watches.
struct Watched {
    descriptor: OwnedFd,
    number: u64,
    /// The kernel has the watch.
    armed: bool,
}

/// An operation that the kernel has, and the memory it uses.
enum Slot {
    Free,
    Read { tag: Tag, offset: u64, buf: BufMut, got: usize },
    Write { tag: Tag, offset: u64, data: Buf, put: usize },
    Sync { tag: Tag },
}

impl Uring {
    /// A ring, with the best of the flags that this kernel knows. Not yet enabled, so that it
    /// may be made on one thread and used by another.
    pub(crate) fn ring() -> io::Result<IoUring> {
        let build = |level: u32| {
            let mut builder = IoUring::builder();
            builder.setup_clamp().setup_r_disabled().dontfork();
            if level >= 1 {
                builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
            }
            if level >= 2 {
                builder.setup_defer_taskrun();
            }
            builder.build(DEPTH)
        };
        // 6.1 and newer; 6.0; 5.11 and newer.
        let ring = build(2).or_else(|_| build(1)).or_else(|_| build(0))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::from_raw_os_error(Errno::INVAL.0));
        }
        Ok(ring)
    }

    /// Starts a device with a ring made by [`Uring::ring`].
    pub(crate) fn new(ring: IoUring, flash: Flash, trim: TrimPolicy) -> io::Result<Self> {
        let flash = Arc::new(flash);
        let waker = Waker::eventful()?;
        let depth = ring.params().sq_entries() as usize;
        Ok(Self {
            trim: TrimLane::new(flash.clone(), trim, waker.clone()),
            ring,
            flash,
            started: false,
            watching: false,
            waker,
            slots: (0..depth).map(|_| Slot::Free).collect(),
            free: (0..depth).rev().collect(),
            backlog: VecDeque::with_capacity(depth),
            ready: Vec::new(),
            watched: None,
            next_watch: WATCHED,
            readable: false,
        })
    }

    /// Binds the ring to this thread.
    fn start(&mut self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        // Saves looking up the ring for each call; older kernels have no such table.
        let _ = self.ring.submitter().register_ring_fd();
        self.started = true;
        Ok(())
    }

    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts as much of the backlog in front of the kernel as there are slots.
    fn fill(&mut self) -> io::Result<()> {
        self.backlog.extend(self.trim.released());
        if !self.watching {
            let event = self.waker.event().map_or(-1, |event| event.as_raw_fd());
            let watch = opcode::PollAdd::new(Fd(event), POLLIN).multi(true).build().user_data(WATCH);
            self.push(&watch)?;
            self.watching = true;
        }
        if let Some(watched) = &mut self.watched
            && !watched.armed
        {
            watched.armed = true;
            let watch = opcode::PollAdd::new(Fd(watched.descriptor.as_raw_fd()), POLLIN).multi(true).build();
            let watch = watch.user_data(watched.number);
            self.push(&watch)?;
        }
        while let Some(&index) = self.free.last() {
            let Some(op) = self.backlog.pop_front() else { break };
            self.slots[index] = match op {
                Op::Read { tag, offset, len } => Slot::Read { tag, offset, buf: BufMut::unwritten(len), got: 0 },
                Op::Write { tag, offset, data } => Slot::Write { tag, offset, data, put: 0 },
                Op::Sync { tag } => Slot::Sync { tag },
                Op::Trim { .. } => continue,
            };
            self.free.pop();
            self.push_slot(index)?;
        }
        Ok(())
    }

    /// Hands the rest of a slot's operation to the kernel.
    fn push_slot(&mut self, index: usize) -> io::Result<()> {
        // Not the ring's own table of files, though that saves a reference count: the kernel clears
        // the table long after the process is gone, and until then the flash stays locked.
        let flash = Fd(self.flash.file().as_raw_fd());
        let entry = match &mut self.slots[index] {
            Slot::Free => return Ok(()),
            Slot::Read { offset, buf, got, .. } => {
                let rest = &mut buf[*got..];
                let len = rest.len().min(TRANSFER_MAX) as u32;
                opcode::Read::new(flash, rest.as_mut_ptr(), len).offset(*offset + *got as u64).build()
            }
            Slot::Write { offset, data, put, .. } => {
                let rest = &data[*put..];
                let len = rest.len().min(TRANSFER_MAX) as u32;
                opcode::Write::new(flash, rest.as_ptr(), len).offset(*offset + *put as u64).build()
            }
            Slot::Sync { .. } => opcode::Fsync::new(flash).flags(FsyncFlags::DATASYNC).build(),
        };
        self.push(&entry.user_data(index as u64))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the entry points to memory of a slot (heap memory that does not move with the
            // slot), which is neither read, written nor freed before the kernel's completion of this
            // entry has been taken in `reap`, nor by `drop`; or it names a descriptor, of which the
            // kernel takes its own reference when the entry is handed over.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            // Full: happens only when operations are continued on top of a full queue.
            tolerated(self.ring.submit())?;
        }
    }

    /// Takes the completions that are there.
    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        loop {
            let Some(entry) = self.ring.completion().next() else { return Ok(()) };
            if entry.user_data() == WATCH {
                // The watch stays until the kernel says that it does not.
                self.watching = cqueue::more(entry.flags());
                continue;
            }
            if entry.user_data() >= UNWATCH {
                if let Some(watched) = &mut self.watched
                    && watched.number == entry.user_data()
                {
                    self.readable = true;
                    watched.armed = cqueue::more(entry.flags());
                }
                continue;
            }
            let index = entry.user_data() as usize;
            match self.slots[index].advance(entry.result()) {
                Step::Again => self.push_slot(index)?,
                Step::End(errno) => {
                    let slot = std::mem::replace(&mut self.slots[index], Slot::Free);
                    self.free.push(index);
                    done.extend(slot.end(errno));
                }
            }
        }
    }

    /// One call to the kernel: hands over what is queued and, if told to, waits.
    fn enter(&mut self, block: bool, timeout: Option<Duration>) -> io::Result<()> {
        if !block {
            return tolerated(self.ring.submit());
        }
        let Some(timeout) = timeout else { return tolerated(self.ring.submit_and_wait(1)) };
        let spec = Timespec::from(timeout);
        tolerated(self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&spec)))
    }
}

/// The event of an eventfd that counted up (poll.h).
const POLLIN: u32 = 1;

/// What an answer of the kernel means for an operation.
enum Step {
    /// The rest is to be handed over (again).
    Again,
    /// It is over.
    End(Option<Errno>),
}

impl Slot {
    fn advance(&mut self, result: i32) -> Step {
        const EAGAIN: i32 = 11;
        match result {
            error if error == -EAGAIN || error == -Errno::INTR.0 => return Step::Again,
            error if error < 0 => return Step::End(Some(Errno(-error))),
            _ => {}
        }
        let moved = result as usize;
        let (so_far, whole) = match self {
            Self::Read { got, buf, .. } => (got, buf.len()),
            Self::Write { put, data, .. } => (put, data.len()),
            Self::Free | Self::Sync { .. } => return Step::End(None),
        };
        *so_far += moved;
        match moved {
            _ if *so_far >= whole => Step::End(None),
            // The end of the device inside the operation: it got smaller under us.
            0 => Step::End(Some(Errno::IO)),
            _ => Step::Again,
        }
    }

    fn end(self, errno: Option<Errno>) -> Option<Done> {
        let result = errno.map_or(Ok(()), Err);
        Some(match self {
            Self::Free => return None,
            Self::Read { tag, buf, .. } => Done::Read { tag, result: result.map(|()| buf.freeze()) },
            Self::Write { tag, .. } => Done::Write { tag, result },
            Self::Sync { tag } => Done::Sync { tag, result },
        })
    }
}

/// Passing troubles of a call to the kernel are no errors: the next turn tries again.
fn tolerated(entered: io::Result<usize>) -> io::Result<()> {
    use rustix::io::Errno as E;
    match entered {
        Ok(_) => Ok(()),
        Err(error) => match E::from_io_error(&error) {
            Some(E::TIME | E::INTR | E::AGAIN | E::BUSY) => Ok(()),
            _ => Err(error),
        },
    }
}

impl Device for Uring {
    fn bytes(&self) -> u64 {
        self.flash.bytes()
    }

    fn name(&self) -> &'static str {
        "uring"
    }

    fn submit(&mut self, op: Op) {
        match op.check(self.bytes()) {
            Ok(()) => self.backlog.extend(self.trim.admit(op)),
            Err(errno) => self.ready.extend(op.failed(errno)),
        }
    }

    fn wait(&mut self, done: &mut Vec<Done>, timeout: Option<Duration>) -> io::Result<()> {
        if !self.started {
            self.start()?;
        }
        let before = done.len();
        done.append(&mut self.ready);
        self.fill()?;
        let nothing = done.len() == before && !self.readable && self.ring.completion().is_empty();
        let block = nothing && timeout != Some(Duration::ZERO) && self.waker.doze();
        let submission = self.ring.submission();
        let call = block || !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        let entered = if call { self.enter(block, timeout) } else { Ok(()) };
        self.waker.rise();
        entered?;
        self.reap(done)
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> bool {
        self.unwatch();
        self.watched = Some(Watched { descriptor, number: self.next_watch, armed: false });
        self.next_watch = (self.next_watch - 1).max(WATCHED_MIN);
        // Whatever came before the watch.
        self.readable = true;
        true
    }

    fn unwatch(&mut self) {
        self.readable = false;
        if let Some(watched) = self.watched.take()
            && watched.armed
        {
            let end = opcode::PollRemove::new(watched.number).build().user_data(UNWATCH);
            // The descriptor may be closed before the kernel has let go of it: it holds its own
            // reference. Should the ring be broken, the next wait says so.
            let _ = self.push(&end);
        }
    }

    fn take_readable(&mut self) -> bool {
        std::mem::take(&mut self.readable)
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.started && self.under_way() > 0 {
            let waited = tolerated(self.ring.submit_and_wait(1));
            if waited.and_then(|()| self.reap(&mut done)).is_err() {
                // On another thread than the ring's, or the kernel will not have it: it may still
                // write to this memory, which is therefore given up.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
        }
    }
}
