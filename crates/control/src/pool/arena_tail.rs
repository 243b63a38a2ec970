//! The log's tail in the arena: what the last worker acknowledged and had not written to flash, and the room for what
//! this one will.

use std::sync::atomic::AtomicU64;

use headpond_engine::{LeftWrite, SecondTail, TailSlots, left_by};

use super::flash::{FlashContent, HeldFlash};
use crate::process::log::log_line;
use crate::refusal::Refusal;

/// The memory of a tail, with what the last worker left there.
#[derive(Debug)]
pub(crate) struct ArenaTail {
    words: &'static [AtomicU64],
    slots: TailSlots,
    memory: Vec<&'static mut [u8]>,
}

impl ArenaTail {
    pub(crate) const fn of(words: &'static [AtomicU64], slots: TailSlots, memory: Vec<&'static mut [u8]>) -> Self {
        Self { words, slots, memory }
    }

    /// Writes what is left to its place on flash, and syncs. Then the memory is free for this worker.
    ///
    /// # Errors
    /// If the flash does not take it, or another version of headpond left it: nothing is freed then.
    pub(crate) fn bring_to(self, flash: &HeldFlash) -> Result<SecondTail, Refusal> {
        let failed = |error: String| Refusal::Failed {
            doing: format!("bring what the last worker acknowledged to {}", flash.path().display()),
            error: std::io::Error::other(error),
        };
        let left = left_by(self.words, &self.memory).map_err(|error| failed(error.to_string()))?;
        if left.unreadable > 0 {
            return Err(failed(format!("{} batches in the shared memory make no sense", left.unreadable)));
        }
        if !left.writes.is_empty() {
            let FlashContent::Pool(superblock) = flash.recognise()? else {
                return Err(failed("it holds no pool any more".to_owned()));
            };
            if !left.belongs_to(&superblock) {
                return Err(failed("another process has used the pool since".to_owned()));
            }
            let count = left.writes.len();
            for LeftWrite { places, data, .. } in left.writes {
                for at in places {
                    flash.opened().write(at.offset, &data).map_err(|errno| failed(errno.to_string()))?;
                }
            }
            flash.opened().sync().map_err(|errno| failed(errno.to_string()))?;
            log_line(format_args!("{count} batches that the last worker had acknowledged are on flash"));
        }
        Ok(SecondTail::new(self.words, self.slots, self.memory))
    }
}
