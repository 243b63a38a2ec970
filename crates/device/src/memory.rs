//! Disks that are memory, for tests: every operation is done when it is submitted.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headpond_base::{BLOCK, BufMut, MemberId};

use crate::reactor::no_such_disk;
use crate::{Completion, DiskOp, End, Reactor, Waker};

/// Disks in memory.
pub struct MemoryDisks {
    disks: Vec<(MemberId, MemoryImage)>,
    ready: VecDeque<Completion>,
    waker: Waker,
}

/// The bytes of one disk. They outlive its [`MemoryDisks`], and you can give them to another one.
#[derive(Clone, Debug)]
pub struct MemoryImage(Arc<Mutex<Vec<u8>>>);

impl MemoryImage {
    /// `bytes` zeros, rounded down to whole blocks.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![0; bytes / BLOCK * BLOCK])))
    }

    /// The bytes, for looking at and for damaging.
    pub fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryDisks {
    /// One disk of zeros, the first member.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self::on(vec![(MemberId(0), MemoryImage::zeroed(bytes))])
    }

    /// Disks on bytes that exist already.
    #[must_use]
    pub fn on(disks: Vec<(MemberId, MemoryImage)>) -> Self {
        Self { disks, ready: VecDeque::new(), waker: Waker::parking() }
    }

    fn image(&self, disk: MemberId) -> Option<&MemoryImage> {
        self.disks.iter().find(|(name, _)| *name == disk).map(|(_, image)| image)
    }
}

impl Reactor for MemoryDisks {
    fn bytes(&self, disk: MemberId) -> u64 {
        self.image(disk).map_or(0, |image| image.lock().len() as u64)
    }

    fn remove(&mut self, disk: MemberId) {
        // Each operation is done already.
        self.disks.retain(|(name, _)| *name != disk);
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    fn submit(&mut self, disk: MemberId, op: DiskOp) {
        let Some(image) = self.image(disk) else {
            self.ready.extend(no_such_disk(disk, &op));
            return;
        };
        let mut image = image.lock();
        if let Err(errno) = op.check(image.len() as u64) {
            drop(image);
            self.ready.extend(op.failed(disk, errno));
            return;
        }
        // In range by the check, and a Vec's length fits usize.
        let (tag, end) = match op {
            DiskOp::Read { tag, offset, len } => {
                let start = offset as usize;
                (tag, End::Read(Ok(BufMut::copy_of(&image[start..start + len]).freeze())))
            }
            DiskOp::Write { tag, offset, data } => {
                let start = offset as usize;
                image[start..start + data.len()].copy_from_slice(&data);
                (tag, End::Write(Ok(())))
            }
            DiskOp::Sync { tag } => (tag, End::Sync(Ok(()))),
            DiskOp::Trim { .. } => return,
        };
        drop(image);
        self.ready.push_back(Completion { disk, tag, end });
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> io::Result<()> {
        if self.ready.is_empty() && timeout != Some(Duration::ZERO) && self.waker.doze() {
            self.waker.park(timeout);
        }
        self.waker.rise();
        done.extend(self.ready.drain(..));
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
