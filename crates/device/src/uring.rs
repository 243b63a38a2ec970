//! Operations of all disks through one io_uring: one system call submits everything and waits.
//!
//! Each turn of the owner's loop costs one `io_uring_enter`, whatever the number of operations and disks. It costs
//! none if nothing was submitted and completions are there already. A wake-up from another thread is one write to an
//! eventfd, and only while the owner sleeps.
//!
//! Invariants:
//! - Each disk has its share of the slots, so a disk that does not answer does not block the others. With one disk its
//!   share is all slots.
//! - Memory that the kernel may still read or write stays in its slot until the kernel has answered. The drop of the
//!   reactor waits for that.
//! - A slot is free, or names one operation that the kernel has exactly once. Each disk that joins brings slots for its
//!   share, and each slot that the kernel keeps of a removed disk is made up for. So there is always one for a share.
//! - Only one thread uses the ring: the one that waits first. Then the kernel needs no locks, and runs completions
//!   only when asked (SINGLE_ISSUER and DEFER_TASKRUN, where they exist).

// The ring shares memory with the kernel, which no borrow can express.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use headpond_base::{Buf, BufMut, Errno, MemberId, Result};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::disk::{Disk, Disposition};
use crate::trim::TrimPolicy;
use crate::watch_list::WatchList;
use crate::{Completion, DiskOp, End, Flash, Reactor, Tag, Waker, WatchToken};

/// The most operations of all disks that the kernel has at once. More wait in a queue: fewer keep flash busy.
const DEPTH: u32 = 256;

/// Names the watch on the eventfd among completions. The others are slot numbers or watches.
const WATCH: u64 = u64::MAX;

/// Names the first watch on a descriptor of the owner. Later watches count down from it, so a late answer for an ended
/// watch never names the next one.
const WATCHED: u64 = u64::MAX - 1;

/// The lowest number of a watch. There are far fewer slots.
const WATCHED_MIN: u64 = u64::MAX / 2;

/// The answer to the end of a watch. No code waits for it.
const UNWATCH: u64 = WATCHED_MIN - 1;

/// The most bytes of a write that the owner carries out alone: the batch of one change that is to be synced. A larger
/// batch takes longer, and more is to come.
const ALONE_MAX: usize = 32 << 10;

/// The most bytes of one call. Longer operations take several.
const TRANSFER_MAX: usize = 1 << 30;

/// Disks served by an io_uring.
pub struct Uring {
    ring: IoUring,
    disks: Vec<Disk>,
    /// Each disk's lane, at the same place.
    lanes: Vec<Lane>,
    started: bool,
    watching: bool,
    waker: Waker,
    trim: TrimPolicy,
    slots: Vec<Slot>,
    free: Vec<usize>,
    ready: Vec<Completion>,
    watched: WatchList,
    next_watch: u64,
}

/// The operations that wait for a disk, and its part of the ring.
struct Lane {
    backlog: VecDeque<DiskOp>,
    /// Slots in use.
    under_way: usize,
    /// Slots that the disk may use.
    share: usize,
}

/// A place for an operation that the kernel has.
enum Slot {
    Free,
    /// Of the disk at this place.
    Busy(usize, Work),
    /// Of a disk that was removed. The owner has the end already. Both stay only because the kernel has not answered.
    #[allow(dead_code)]
    Orphan(Arc<Flash>, Work),
}

/// An operation that the kernel has, and the memory it uses.
enum Work {
    Read { tag: Tag, offset: u64, buf: BufMut, got: usize },
    Write { tag: Tag, offset: u64, data: Buf, put: usize },
    Sync { tag: Tag },
}

impl Uring {
    /// A ring with the best flags that this kernel knows. It is not enabled yet, so one thread may make it and another
    /// use it.
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
        // Linux 6.1 and newer; 6.0; 5.11 and newer.
        let ring = build(2).or_else(|_| build(1)).or_else(|_| build(0))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::from_raw_os_error(Errno::INVAL.0));
        }
        Ok(ring)
    }

    /// Starts disks with a ring made by [`Uring::ring`].
    pub(crate) fn new(ring: IoUring, flashes: Vec<(MemberId, Flash)>, trim: TrimPolicy) -> io::Result<Self> {
        let waker = Waker::eventful()?;
        let depth = ring.params().sq_entries() as usize;
        let disks = Disk::all(flashes, trim, &waker);
        let share = share(depth, disks.len());
        let lane = |_: &Disk| Lane { backlog: VecDeque::with_capacity(share), under_way: 0, share };
        Ok(Self {
            ring,
            lanes: disks.iter().map(lane).collect(),
            disks,
            started: false,
            watching: false,
            waker,
            trim,
            slots: (0..depth).map(|_| Slot::Free).collect(),
            free: (0..depth).rev().collect(),
            ready: Vec::new(),
            watched: WatchList::default(),
            next_watch: WATCHED,
        })
    }

    /// Binds the ring to this thread.
    fn start(&mut self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        // Saves a look-up of the ring in each call. Older kernels have no such table.
        let _ = self.ring.submitter().register_ring_fd();
        self.started = true;
        Ok(())
    }

    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives the kernel as much of the backlogs as there are slots.
    fn fill(&mut self) -> io::Result<()> {
        if !self.watching {
            let event = self.waker.event().map_or(-1, |event| event.as_raw_fd());
            let watch = opcode::PollAdd::new(Fd(event), POLLIN).multi(true).build().user_data(WATCH);
            self.push(&watch)?;
            self.watching = true;
        }
        while let Some(watched) = self.watched.arm_next() {
            let watch = opcode::PollAdd::new(Fd(watched.descriptor.as_raw_fd()), POLLIN).multi(true).build();
            let watch = watch.user_data(watched.number);
            self.push(&watch)?;
        }
        for place in 0..self.lanes.len() {
            self.lanes[place].backlog.extend(self.disks[place].released());
            self.fill_from(place)?;
        }
        Ok(())
    }

    /// Gives the kernel as much of one disk's backlog as the disk has slots.
    fn fill_from(&mut self, place: usize) -> io::Result<()> {
        while self.lanes[place].under_way < self.lanes[place].share {
            let Some(&index) = self.free.last() else { break };
            let Some(op) = self.lanes[place].backlog.pop_front() else { break };
            let work = match op {
                DiskOp::Read { tag, offset, len } => Work::Read { tag, offset, buf: BufMut::unwritten(len), got: 0 },
                DiskOp::Write { tag, offset, data } => Work::Write { tag, offset, data, put: 0 },
                DiskOp::Sync { tag } => Work::Sync { tag },
                DiskOp::Trim { .. } => continue,
            };
            self.slots[index] = Slot::Busy(place, work);
            self.lanes[place].under_way += 1;
            self.free.pop();
            self.push_slot(index)?;
        }
        Ok(())
    }

    /// Gives the kernel the rest of a slot's operation.
    fn push_slot(&mut self, index: usize) -> io::Result<()> {
        let Slot::Busy(place, work) = &mut self.slots[index] else { return Ok(()) };
        // Not the ring's own table of files, though that saves a reference count. The kernel clears the table long
        // after the process is gone, and until then the flash stays locked.
        // A far disk has none, and none comes here: the kernel would refuse it.
        let flash = Fd(self.disks[*place].flash().file().map_or(-1, AsRawFd::as_raw_fd));
        let entry = match work {
            Work::Read { offset, buf, got, .. } => {
                let rest = &mut buf[*got..];
                let len = rest.len().min(TRANSFER_MAX) as u32;
                opcode::Read::new(flash, rest.as_mut_ptr(), len).offset(*offset + *got as u64).build()
            }
            Work::Write { offset, data, put, .. } => {
                let rest = &data[*put..];
                let len = rest.len().min(TRANSFER_MAX) as u32;
                opcode::Write::new(flash, rest.as_ptr(), len).offset(*offset + *put as u64).build()
            }
            Work::Sync { .. } => opcode::Fsync::new(flash).flags(FsyncFlags::DATASYNC).build(),
        };
        self.push(&entry.user_data(index as u64))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the entry either points to memory of a slot, or names a descriptor. The memory is on the heap
            // and does not move with the slot. Neither `reap`, before it takes the completion of this entry, nor
            // `drop` reads, writes or frees it. The kernel takes its own reference to a descriptor when it gets the
            // entry.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            // The queue is full. This happens only when operations are continued on top of a full queue.
            tolerated(self.ring.submit())?;
        }
    }

    /// Takes the completions that are there.
    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        loop {
            let Some(entry) = self.ring.completion().next() else { return Ok(()) };
            if entry.user_data() == WATCH {
                // The watch stays until the kernel says that it ended.
                self.watching = cqueue::more(entry.flags());
                continue;
            }
            if entry.user_data() >= UNWATCH {
                self.watched.became_readable(entry.user_data(), cqueue::more(entry.flags()));
                continue;
            }
            let index = entry.user_data() as usize;
            let work = match &mut self.slots[index] {
                Slot::Busy(_, work) => work,
                Slot::Free => continue,
                // With the last one of a disk goes the flash.
                orphan @ Slot::Orphan(..) => {
                    *orphan = Slot::Free;
                    self.free.push(index);
                    continue;
                }
            };
            match work.advance(entry.result()) {
                Step::Again => self.push_slot(index)?,
                Step::End(errno) => {
                    let Slot::Busy(place, work) = std::mem::replace(&mut self.slots[index], Slot::Free) else {
                        continue;
                    };
                    self.free.push(index);
                    self.lanes[place].under_way -= 1;
                    done.push(work.end(self.disks[place].name(), errno));
                }
            }
        }
    }

    /// Divides the ring anew among the disks, and sees to it that there are slots for a share.
    fn share_out(&mut self) {
        let share = share(self.ring.params().sq_entries() as usize, self.disks.len());
        self.lanes.iter_mut().for_each(|lane| lane.share = share);
        for index in self.slots.len()..self.slots.len() + share.saturating_sub(self.free.len()) {
            self.slots.push(Slot::Free);
            self.free.push(index);
        }
    }

    /// One call to the kernel: submits what is queued and, if `block`, waits.
    fn enter(&mut self, block: bool, timeout: Option<Duration>) -> io::Result<()> {
        if !block {
            return tolerated(self.ring.submit());
        }
        let Some(timeout) = timeout else { return tolerated(self.ring.submit_and_wait(1)) };
        let spec = Timespec::from(timeout);
        tolerated(self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&spec)))
    }
}

/// How many slots each of so many disks may use.
fn share(depth: usize, disks: usize) -> usize {
    (depth / disks.max(1)).max(1)
}

/// The event of an eventfd that counted up (poll.h).
const POLLIN: u32 = 1;

/// What an answer of the kernel means for an operation.
enum Step {
    /// Submit the rest.
    Again,
    /// It is over.
    End(Option<Errno>),
}

impl Work {
    /// Its end with an error, while the kernel still has its memory.
    fn failed(&self, disk: MemberId, errno: Errno) -> Completion {
        let (tag, end) = match *self {
            Self::Read { tag, .. } => (tag, End::Read(Err(errno))),
            Self::Write { tag, .. } => (tag, End::Write(Err(errno))),
            Self::Sync { tag } => (tag, End::Sync(Err(errno))),
        };
        Completion { disk, tag, end }
    }

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
            Self::Sync { .. } => return Step::End(None),
        };
        *so_far += moved;
        match moved {
            _ if *so_far >= whole => Step::End(None),
            // The device ends inside the operation: it became smaller.
            0 => Step::End(Some(Errno::IO)),
            _ => Step::Again,
        }
    }

    fn end(self, disk: MemberId, errno: Option<Errno>) -> Completion {
        let result = errno.map_or(Ok(()), Err);
        let (tag, end) = match self {
            Self::Read { tag, buf, .. } => (tag, End::Read(result.map(|()| buf.freeze()))),
            Self::Write { tag, .. } => (tag, End::Write(result)),
            Self::Sync { tag } => (tag, End::Sync(result)),
        };
        Completion { disk, tag, end }
    }
}

/// A call to the kernel that failed for the moment is no error: the next turn tries again.
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

impl Reactor for Uring {
    fn bytes(&self, disk: MemberId) -> u64 {
        Disk::bytes_of(&self.disks, disk)
    }

    fn add(&mut self, disk: MemberId, flash: Flash) -> Result<()> {
        if Disk::place_of(&self.disks, disk).is_some() {
            return Err(Errno::EXIST);
        }
        self.disks.push(Disk::new(disk, flash, self.trim, &self.waker));
        self.lanes.push(Lane { backlog: VecDeque::new(), under_way: 0, share: 0 });
        self.share_out();
        Ok(())
    }

    fn remove(&mut self, disk: MemberId) {
        let Some(place) = Disk::place_of(&self.disks, disk) else { return };
        let (lane, gone) = (self.lanes.remove(place), self.disks.remove(place));
        for slot in &mut self.slots {
            match slot {
                Slot::Busy(of, _) if *of > place => *of -= 1,
                Slot::Busy(of, _) if *of == place => {
                    let Slot::Busy(_, work) = std::mem::replace(slot, Slot::Free) else { continue };
                    self.ready.push(work.failed(disk, Errno::NXIO));
                    *slot = Slot::Orphan(gone.flash().clone(), work);
                }
                _ => {}
            }
        }
        self.ready.extend(lane.backlog.iter().filter_map(|op| op.failed(disk, Errno::NXIO)));
        self.ready.extend(gone.let_go());
        self.share_out();
    }

    fn measure(&mut self, disk: MemberId) -> Result<u64> {
        Disk::measure(&self.disks, disk)
    }

    fn name(&self) -> &'static str {
        "uring"
    }

    fn submit(&mut self, disk: MemberId, op: DiskOp) {
        match Disk::admit(&mut self.disks, disk, op) {
            Disposition::Now(place, op) => self.lanes[place].backlog.push_back(op),
            Disposition::Kept => {}
            Disposition::Ended(done) => self.ready.push(done),
        }
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> io::Result<()> {
        if !self.started {
            self.start()?;
        }
        let before = done.len();
        done.append(&mut self.ready);
        self.fill()?;
        let nothing = done.len() == before && !self.watched.has_readable() && self.ring.completion().is_empty();
        let block = nothing && timeout != Some(Duration::ZERO) && self.waker.doze();
        let submission = self.ring.submission();
        let call = block || !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        let entered = if call { self.enter(block, timeout) } else { Ok(()) };
        self.waker.rise();
        entered?;
        self.reap(done)
    }

    /// A sync: the kernel would carry it out on a worker thread of the ring. And a small write: it needs no such
    /// thread, but one call takes the place of two, and of the sleep between them. With several disks none: one that
    /// never answers would keep this thread from the others.
    fn carry_out_alone(&mut self, writes: bool, done: &mut Vec<Completion>) -> bool {
        let ([lane], [disk]) = (&mut self.lanes[..], &mut self.disks[..]) else { return false };
        if self.free.len() < self.slots.len() || !self.ready.is_empty() {
            return false;
        }
        lane.backlog.extend(disk.released());
        if lane.backlog.len() != 1 {
            return false;
        }
        let costs_less = match lane.backlog.front() {
            Some(DiskOp::Sync { .. }) => true,
            Some(DiskOp::Write { data, .. }) => writes && data.len() <= ALONE_MAX,
            _ => false,
        };
        if costs_less {
            done.extend(lane.backlog.pop_front().and_then(|op| disk.flash().carry_out(disk.name(), op)));
        }
        costs_less
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> Option<WatchToken> {
        if self.watched.is_full() || self.next_watch < WATCHED_MIN {
            return None;
        }
        let number = self.next_watch;
        self.next_watch -= 1;
        Some(self.watched.add(descriptor, number, false))
    }

    fn unwatch(&mut self, watch: WatchToken) {
        let Some(watched) = self.watched.remove(watch) else { return };
        if watched.armed {
            let end = opcode::PollRemove::new(watched.number).build().user_data(UNWATCH);
            // The descriptor may be closed before the kernel lets go of it: the kernel holds its own reference. If the
            // ring is broken, the next wait says so.
            let _ = self.push(&end);
        }
    }

    fn take_readable(&mut self) -> Option<WatchToken> {
        self.watched.take_readable()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.started && self.under_way() > 0 {
            let is_busy = self.lanes.iter().any(|lane| lane.under_way > 0);
            let waited = if is_busy { tolerated(self.ring.submit_and_wait(1)) } else { tolerated(self.ring.submit()) };
            if waited.and_then(|()| self.reap(&mut done)).is_err() || (!is_busy && self.under_way() > 0) {
                // This is not the ring's thread, or the kernel refuses the call, or a disk that was removed has not
                // answered. The kernel may still write to this memory, so leak it.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
        }
    }
}
