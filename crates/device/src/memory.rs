//! A device that is memory, for tests: every operation is done when it is submitted.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headpond_base::{BLOCK, BufMut};

use crate::{Device, Done, Op, Waker};

/// A device in memory.
pub struct Memory {
    image: MemoryImage,
    bytes: u64,
    ready: VecDeque<Done>,
    waker: Waker,
}

/// The bytes of a [`Memory`], which outlive it and can be given to another one.
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

impl Memory {
    /// A device of zeros.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self::on(MemoryImage::zeroed(bytes))
    }

    /// A device on bytes that exist already.
    #[must_use]
    pub fn on(image: MemoryImage) -> Self {
        let bytes = image.lock().len() as u64;
        Self { image, bytes, ready: VecDeque::new(), waker: Waker::parking() }
    }

    /// The bytes.
    #[must_use]
    pub fn image(&self) -> MemoryImage {
        self.image.clone()
    }
}

impl Device for Memory {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    fn submit(&mut self, op: Op) {
        if let Err(errno) = op.check(self.bytes) {
            self.ready.extend(op.failed(errno));
            return;
        }
        let mut image = self.image.lock();
        // In range by the check, and a Vec's length fits usize.
        self.ready.push_back(match op {
            Op::Read { tag, offset, len } => {
                let start = offset as usize;
                Done::Read { tag, result: Ok(BufMut::copy_of(&image[start..start + len]).freeze()) }
            }
            Op::Write { tag, offset, data } => {
                let start = offset as usize;
                image[start..start + data.len()].copy_from_slice(&data);
                Done::Write { tag, result: Ok(()) }
            }
            Op::Sync { tag } => Done::Sync { tag, result: Ok(()) },
            Op::Trim { .. } => return,
        });
    }

    fn wait(&mut self, done: &mut Vec<Done>, timeout: Option<Duration>) -> io::Result<()> {
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
