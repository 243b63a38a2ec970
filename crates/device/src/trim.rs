//! Trims, on a thread of their own: the call may take long.
//!
//! Invariant: a write waits until a trim of its range has ended, so a trim never destroys a later write. Bounded: with
//! [`UNDER_WAY_MAX`] trims under way, the next one is dropped. A trim is only a hint.

// rustix has no function for this ioctl.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::FallocateFlags;

use crate::{DiskOp, Flash, FlashKind, Waker};

/// Which trims are carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TrimPolicy {
    /// Trims of block devices. Files keep their space, so the file system under the pool cannot run full later.
    #[default]
    Devices,
    /// Trims of files too: each punches a hole, and other files may take the space.
    All,
    /// No trims.
    Off,
}

/// The most trims under way. Each is a whole segment, and the device queues few.
const UNDER_WAY_MAX: usize = 16;

/// The trims under way of one device, and the writes that wait for them.
pub(crate) struct TrimLane {
    on: bool,
    flash: Arc<Flash>,
    waker: Waker,
    thread: Option<(SyncSender<Range<u64>>, JoinHandle<()>)>,
    under_way: Vec<Range<u64>>,
    finished: Arc<Mutex<Vec<Range<u64>>>>,
    held: VecDeque<DiskOp>,
}

impl TrimLane {
    pub(crate) fn new(flash: Arc<Flash>, policy: TrimPolicy, waker: Waker) -> Self {
        let on = match (policy, flash.kind()) {
            (TrimPolicy::Off, _) | (TrimPolicy::Devices, FlashKind::File) | (_, FlashKind::Far) => false,
            (TrimPolicy::Devices | TrimPolicy::All, _) => true,
        };
        let (under_way, finished, held) = (Vec::new(), Arc::default(), VecDeque::new());
        Self { on, flash, waker, thread: None, under_way, finished, held }
    }

    /// Lets an operation through, or keeps it: all trims, and writes into a range under trim.
    pub(crate) fn admit(&mut self, op: DiskOp) -> Option<DiskOp> {
        match op {
            DiskOp::Trim { offset, len } => {
                self.start(offset..offset + len);
                None
            }
            op if !self.under_way.is_empty() && self.is_touched_by(&op) => {
                self.held.push_back(op);
                None
            }
            op => Some(op),
        }
    }

    /// The writes whose trim is over.
    pub(crate) fn released(&mut self) -> VecDeque<DiskOp> {
        if self.under_way.is_empty() {
            return VecDeque::new();
        }
        for range in self.finished.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            self.under_way.retain(|other| *other != range);
        }
        let held = std::mem::take(&mut self.held);
        let (held, free) = held.into_iter().partition(|op| self.is_touched_by(op));
        self.held = held;
        free
    }

    /// Ends without a wait, and returns the writes that it still held. A trim under way may go on: it has the flash
    /// open and locked until its end, so nobody else has the device by then.
    pub(crate) fn let_go(mut self) -> VecDeque<DiskOp> {
        self.thread = None;
        std::mem::take(&mut self.held)
    }

    fn is_touched_by(&self, op: &DiskOp) -> bool {
        let DiskOp::Write { offset, data, .. } = op else { return false };
        let end = offset + data.len() as u64;
        self.under_way.iter().any(|range| range.start < end && *offset < range.end)
    }

    fn start(&mut self, range: Range<u64>) {
        if !self.on || self.under_way.len() >= UNDER_WAY_MAX {
            return;
        }
        if self.thread.is_none() {
            let (sender, receiver) = sync_channel(UNDER_WAY_MAX);
            let (flash, finished, waker) = (self.flash.clone(), self.finished.clone(), self.waker.clone());
            let work = move || run(&receiver, &flash, &finished, &waker);
            match std::thread::Builder::new().name("trim".into()).spawn(work) {
                Ok(thread) => self.thread = Some((sender, thread)),
                // Without a thread, no trims.
                Err(_) => self.on = false,
            }
        }
        let Some((sender, _)) = &self.thread else { return };
        match sender.try_send(range.clone()) {
            Ok(()) => self.under_way.push(range),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Drop for TrimLane {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            // The flash must not be trimmed once the reactor is gone.
            let _ = thread.join();
        }
    }
}

fn run(jobs: &Receiver<Range<u64>>, flash: &Flash, finished: &Mutex<Vec<Range<u64>>>, waker: &Waker) {
    for range in jobs {
        // A failed trim does no harm.
        let _ = trim(flash, &range);
        finished.lock().unwrap_or_else(PoisonError::into_inner).push(range);
        waker.wake();
    }
}

/// Tells a device that a range of it holds nothing, and waits. A hint: a device that takes none goes on as before. A file
/// keeps its length, and has a hole until [`Flash::allocate`].
pub fn discard_now(flash: &Flash, range: &Range<u64>) {
    // A failed trim does no harm.
    let _ = trim(flash, range);
}

fn trim(flash: &Flash, range: &Range<u64>) -> io::Result<()> {
    let len = range.end - range.start;
    let Some(file) = flash.file() else { return Ok(()) };
    match flash.kind() {
        FlashKind::BlockDevice => discard(file, range.start, len)?,
        FlashKind::File | FlashKind::Far => {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, how, range.start, len)?;
        }
    }
    Ok(())
}

fn discard(device: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    // SAFETY: BLKDISCARD (linux/fs.h) reads two 64-bit integers through its pointer, start and length in bytes, and
    // writes nothing. The array lives until the call returns. The range was checked to lie inside this device. The
    // device is open for writing, and we hold its lock.
    unsafe { rustix::ioctl::ioctl(device, rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}
