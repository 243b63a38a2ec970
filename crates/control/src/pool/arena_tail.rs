//! The log's tail in the arena: what the last worker acknowledged and had not written to flash, and the room for what
//! this one will.

use std::sync::atomic::AtomicU64;

use headpond_base::MemberId;
use headpond_engine::{LeftWrite, SecondTail, TailSlots, left_by};

use super::flashes::HeldFlashes;
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

    /// Writes what is left to its places on flash, and syncs. Then the memory is free for this worker. A batch that two
    /// members have may be refused by one of them: the pool then goes on without that one.
    ///
    /// # Errors
    /// If the flash does not take it, or another version of headpond left it: nothing is freed then.
    pub(crate) fn bring_to(self, flashes: &mut HeldFlashes) -> Result<SecondTail, Refusal> {
        let path = flashes.first().path().display().to_string();
        let failed = |error: String| Refusal::Failed {
            doing: format!("bring what the last worker acknowledged to {path}"),
            error: std::io::Error::other(error),
        };
        let left = left_by(self.words, &self.memory).map_err(|error| failed(error.to_string()))?;
        if left.unreadable > 0 {
            return Err(failed(format!("{} batches in the shared memory make no sense", left.unreadable)));
        }
        if !left.writes.is_empty() {
            let Some(superblock) = flashes.muster()? else {
                return Err(failed("it holds no pool any more".to_owned()));
            };
            if !left.belongs_to(&superblock) {
                return Err(failed("another process has used the pool since".to_owned()));
            }
            let count = left.writes.len();
            let mut refused: Vec<MemberId> = Vec::new();
            for LeftWrite { places, data, .. } in &left.writes {
                for at in places {
                    if let Err(errno) = flashes.write(*at, data) {
                        log_line(format_args!("member {} refuses a write: {errno}", at.member.0));
                        refused.push(at.member);
                    }
                }
            }
            for (member, flash) in flashes.members() {
                if let Err(errno) = flash.opened().sync() {
                    log_line(format_args!("{} refuses a sync: {errno}", flash.path().display()));
                    refused.push(member);
                }
            }
            let lost = |write: &LeftWrite| write.places.iter().all(|at| refused.contains(&at.member));
            if left.writes.iter().any(lost) {
                return Err(failed("no device took it".to_owned()));
            }
            log_line(format_args!("{count} batches that the last worker had acknowledged are on flash"));
        }
        Ok(SecondTail::new(self.words, self.slots, self.memory))
    }
}
