//! Blocking reads of flash for recovery, before the shard starts.

use headpond_base::{Buf, Result};
use headpond_device::Flash;
use headpond_engine::FlashRead;

/// An open flash, as recovery reads it.
pub struct FlashReader<'a>(pub &'a Flash);

impl FlashRead for FlashReader<'_> {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        self.0.read(offset, len)
    }
}
