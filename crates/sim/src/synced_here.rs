//! Syncs that were content with this host (`copies=0`). What they cover outlives the daemon and a power cut, as long as no
//! flash of this host is lost with it. What the host's loss leaves is still one moment of all files.

use std::collections::BTreeMap;

use headpond_timed::Rng;

use crate::configuration::Moment;
use crate::origin::FileId;
use crate::sim::Sim;

/// One that was answered.
#[derive(Clone, Debug)]
struct Answered {
    file: FileId,
    moment: Moment,
    /// The flashes of the host then, with how often each had been lost.
    flashes: BTreeMap<usize, u64>,
}

/// Those since the last crash, and which sync asks for how many copies.
pub(crate) struct SyncedHere {
    answered: Vec<Answered>,
    /// Some syncs of this history ask for a number of copies.
    has_rules: bool,
    copies: Rng,
}

impl SyncedHere {
    pub(crate) fn new(seed: u64) -> Self {
        let mut copies = Rng::for_part(seed, u64::MAX - 29);
        Self { answered: Vec::new(), has_rules: copies.chance(500), copies }
    }

    /// A stop in order made all of it durable everywhere.
    pub(crate) fn is_everywhere(&mut self) {
        self.answered.clear();
    }
}

impl Sim<'_> {
    /// On how many other hosts the next sync must be: by itself, so that all else of a seed stays what it was.
    pub(crate) fn copies_of_a_sync(&mut self) -> Option<u8> {
        let SyncedHere { has_rules, copies, .. } = &mut self.synced_here;
        let all = [None, Some(0), Some(0), Some(0), Some(0), Some(1), Some(2)];
        if *has_rules && self.options.copies { *copies.pick(&all) } else { None }
    }

    /// A sync that was content with this host is answered.
    pub(crate) fn is_synced_here(&mut self, file: FileId, moment: Moment) {
        let flashes = self.world.own_flashes();
        self.synced_here.answered.push(Answered { file, moment, flashes });
    }

    /// A crash came, and the next daemon serves: what was synced here must be there, unless a flash was lost.
    pub(crate) fn meet_what_was_synced_here(&mut self) {
        for Answered { file, moment, flashes } in std::mem::take(&mut self.synced_here.answered) {
            if self.world.has_all_along(&flashes) {
                self.model.synced(file, moment);
                self.summary.synced_here += 1;
            }
        }
    }
}
