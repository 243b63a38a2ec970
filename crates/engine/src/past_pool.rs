//! What goes to one object's file at the origin past the pool, and is not synced there.
//!
//! Invariants
//! - While a change is under way no destage begins on the object, and nothing of it goes to the log.
//! - A sync covers what was made before it was asked for: [`PastPool::is_synced`] counts only where nothing was made
//!   since.
//! - Once the origin has refused a sync, no later one is believed while the file is open (promise 8): kernels forget
//!   what they could not write, and say so once only.

use headpond_base::Errno;

/// Of one object. Owned by it.
#[derive(Default)]
pub(crate) struct PastPool {
    under_way: u32,
    /// Counts what was made, and what was lost.
    made: u64,
    needs_sync: bool,
    /// Blocks that were written, and are not synced.
    blocks: u64,
    refused: Option<Errno>,
}

impl PastPool {
    /// A change begins.
    pub(crate) const fn begins(&mut self) {
        self.under_way += 1;
    }

    /// A change is over, whatever came of it.
    pub(crate) const fn ends(&mut self) {
        self.under_way -= 1;
    }

    /// Whether a change is under way.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// A change writes so many blocks.
    pub(crate) const fn writes(&mut self, blocks: u64) {
        self.blocks += blocks;
    }

    /// A change was made, or may have been in part: the origin has to sync it.
    pub(crate) const fn note_made(&mut self) {
        self.made += 1;
        self.needs_sync = true;
    }

    /// An earlier life may have made some.
    pub(crate) const fn may_have_been_made(&mut self) {
        self.needs_sync = true;
    }

    /// How much was made so far: to be compared when a sync that is asked for now is answered.
    pub(crate) const fn made(&self) -> u64 {
        self.made
    }

    /// Whether the origin has to sync something.
    pub(crate) const fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    /// The origin has synced all that was made. Gives how many blocks that were.
    pub(crate) const fn note_synced(&mut self) -> u64 {
        self.needs_sync = false;
        self.give_up()
    }

    /// Nobody needs it any more. Gives how many blocks were not synced.
    pub(crate) const fn give_up(&mut self) -> u64 {
        std::mem::replace(&mut self.blocks, 0)
    }

    /// The origin has refused to sync it; whether there was anything to lose.
    pub(crate) fn sync_was_refused(&mut self, errno: Errno) -> bool {
        if self.needs_sync {
            self.refused.get_or_insert(errno);
            self.made += 1;
        }
        self.needs_sync
    }

    /// Why the origin refused a sync while the file was open.
    pub(crate) const fn refused(&self) -> Option<Errno> {
        self.refused
    }

    /// Nobody has the file open any more who could have written what was lost.
    pub(crate) const fn note_closed(&mut self) {
        self.refused = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_sync_is_told_until_the_file_is_closed_and_outdates_syncs_under_way() {
        let mut past = PastPool::default();
        assert!(!past.sync_was_refused(Errno::IO), "there was nothing to lose");
        past.writes(3);
        past.note_made();
        let asked = past.made();
        assert!(past.sync_was_refused(Errno::NOSPC) && past.sync_was_refused(Errno::IO));
        assert_eq!(past.refused(), Some(Errno::NOSPC), "the first reason");
        assert!(past.made() != asked && past.needs_sync());
        assert_eq!((past.note_synced(), past.note_synced(), past.needs_sync()), (3, 0, false));
        assert!(past.refused().is_some(), "no later sync is believed");
        past.note_closed();
        assert_eq!(past.refused(), None);
    }
}
