//! Syncs that were content with this host (`copies=0`). What they cover outlives the daemon and a power cut, as long as no
//! flash of this host is lost with it. What the host's loss leaves is still one moment of all files.

use std::collections::BTreeMap;

use headpond_timed::Rng;

use crate::configuration::Moment;
use crate::origin::FileId;

/// One that was answered.
#[derive(Clone, Debug)]
pub(crate) struct SyncedFile {
    pub(crate) file: FileId,
    pub(crate) moment: Moment,
    /// The flashes of the host then, with how often each had been lost.
    pub(crate) flashes: BTreeMap<usize, u64>,
}

/// Those since the last crash, and which sync asks for how many copies.
pub(crate) struct SyncedHere {
    answered: Vec<SyncedFile>,
    /// Some syncs of this history ask for a number of copies.
    has_rules: bool,
    copies: Rng,
}

impl SyncedHere {
    /// Draws by itself, so that all else of a seed stays what it was.
    pub(crate) fn new(seed: u64, with_copies: bool) -> Self {
        let mut copies = Rng::for_part(seed, u64::MAX - 29);
        Self { answered: Vec::new(), has_rules: with_copies && copies.chance(500), copies }
    }

    /// On how many other hosts the next sync must be.
    pub(crate) fn copies(&mut self) -> Option<u8> {
        let all = [None, Some(0), Some(0), Some(0), Some(0), Some(1), Some(2)];
        if self.has_rules { *self.copies.pick(&all) } else { None }
    }

    /// One is answered.
    pub(crate) fn note(&mut self, synced: SyncedFile) {
        self.answered.push(synced);
    }

    /// A crash came, and the next daemon serves: what must be there, if no flash was lost.
    pub(crate) fn take(&mut self) -> Vec<SyncedFile> {
        std::mem::take(&mut self.answered)
    }
}
