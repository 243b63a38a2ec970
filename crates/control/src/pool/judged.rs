//! Whether a pool would start from its copy alone: judged before its owner is deposed.
//!
//! Invariant: nothing is written, neither to the copy nor at the origin.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::flashes::HeldFlashes;
use super::recovery::{Beside, would_start};
use crate::origin::OriginRoot;
use crate::ownership::{AwaitedNote, DurableLog, Marker, MarkerHold, ObsoleteNote};
use crate::refusal::{Decisions, Refusal};

/// A start that would be refused nothing, as long as what lies beside the origin stays as it was.
#[derive(Debug)]
pub struct JudgedStart {
    found: Option<Marker>,
    durable: Option<DurableLog>,
}

impl JudgedStart {
    /// Judges a start from the copy in this locked file, by an owner of this number: its superblocks and its log, its
    /// list of members and its claim by the marker, the owner's number there, and each file with dirty data. With `whole`
    /// also whether it has each dirty block.
    ///
    /// # Errors
    /// What the start would be refused for.
    pub fn of(
        root: &Arc<OriginRoot>,
        marker: &MarkerHold,
        (copy, path): (File, &Path),
        owner: u64,
        whole: bool,
        decisions: &Decisions,
    ) -> Result<Self, Refusal> {
        let found = marker.read()?;
        let durable = DurableLog::read(marker.dir())?;
        let failure = ObsoleteNote::in_dir(marker.dir().clone()).read()?;
        let awaited = AwaitedNote { marker: found.as_ref(), durable: durable.as_ref() };
        let beside = Beside { awaited, failure: failure.as_ref() };
        let mut flash = HeldFlashes::taken_over(vec![(copy, path)])?;
        would_start(&mut flash, root, &beside, owner, whole, decisions)?;
        Ok(Self { found, durable })
    }

    /// Looks beside the origin once more: an owner that lives writes there.
    ///
    /// # Errors
    /// [`Refusal::OriginInUse`] if that has changed.
    pub fn still_holds(&self, marker: &MarkerHold) -> Result<(), Refusal> {
        marker.is_still(self.found.as_ref(), self.durable.as_ref())
    }
}
