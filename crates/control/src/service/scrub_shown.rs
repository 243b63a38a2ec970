//! A scrub as a client is shown it, as text and as JSON.

use std::fmt;
use std::path::PathBuf;

use headpond_base::BLOCK_U64;
use serde::{Deserialize, Serialize};

use crate::wording::{Size, clock};

/// Whether a scrub goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScrubState {
    /// It goes on.
    #[default]
    Running,
    /// It has read everything.
    Done,
    /// It was ended early.
    Cancelled,
}

/// A scrub. The field names are those of `headpond pool scrub --json` and stay.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolScrubShown {
    /// Whether it goes on.
    pub state: ScrubState,
    /// Bytes that were read and compared, each copy by itself.
    pub checked_bytes: u64,
    /// Bytes that are still to be.
    pub left_bytes: u64,
    /// Bytes read and compared in a second.
    pub bytes_per_second: f64,
    /// How long it has been running, or ran.
    pub seconds: f64,
    /// How long it still takes at its pace, if known.
    pub left_seconds: Option<f64>,
    /// The devices with damaged blocks.
    pub damaged: Vec<DamagedDeviceShown>,
    /// Damaged bytes that the origin has: they were dropped.
    pub dropped_bytes: u64,
    /// Damaged bytes that the origin lacks and another device has: they are written anew.
    pub mended_bytes: u64,
    /// Damaged bytes that nobody has.
    pub lost_bytes: u64,
    /// The first blocks of those.
    pub lost: Vec<LostBlockShown>,
}

/// A device with damaged blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DamagedDeviceShown {
    /// Where it lies.
    pub flash: PathBuf,
    /// Bytes of data that are not what was written there.
    pub bytes: u64,
}

/// A block that nobody has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LostBlockShown {
    /// The path of its file below the origin.
    pub path: PathBuf,
    /// Its first byte in the file.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl PoolScrubShown {
    /// What is to be done about what it found, if anything is.
    pub(crate) fn action(&self, mountpoint: &std::path::Path) -> Option<String> {
        let mnt = mountpoint.display();
        if let Some(first) = self.lost.first() {
            return Some(format!(
                "{} that the origin lacks are damaged, and no device has them, in {}. Reads of them fail. Restore the file from a backup",
                Size(self.lost_bytes),
                first.path.display()
            ));
        }
        let worst = self.damaged.iter().max_by_key(|damaged| damaged.bytes)?;
        Some(format!(
            "{} on {} were damaged at the last scrub. If that happens again, put another device in its place: headpond pool replace {mnt} {} FLASH",
            Size(worst.bytes),
            worst.flash.display(),
            worst.flash.display()
        ))
    }

    /// What damage it found, in a sentence.
    pub(crate) fn found(&self) -> Option<String> {
        if self.damaged.is_empty() {
            return None;
        }
        let of = |damaged: &DamagedDeviceShown| format!("{} on {}", Size(damaged.bytes), damaged.flash.display());
        let what = [
            (self.mended_bytes, "are written anew from the other copy"),
            (self.dropped_bytes, "were dropped, as the origin has them"),
            (self.lost_bytes, "are LOST"),
        ];
        let ends = what.iter().filter(|(bytes, _)| *bytes > 0).map(|(bytes, end)| format!("{} {end}", Size(*bytes)));
        let mut found = format!(
            "damaged: {}; {}",
            self.damaged.iter().map(of).collect::<Vec<_>>().join(", "),
            ends.collect::<Vec<_>>().join(", ")
        );
        if !self.lost.is_empty() {
            let of = |lost: &LostBlockShown| format!("{} at byte {}", lost.path.display(), lost.offset);
            let told = self.lost.iter().map(of).collect::<Vec<_>>().join(", ");
            found += &format!(": {told}");
            let rest = self.lost_bytes / BLOCK_U64 - self.lost.len() as u64;
            if rest > 0 {
                found += &format!(", and {rest} more blocks");
            }
        }
        Some(found)
    }
}

impl fmt::Display for PoolScrubShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (checked, rate) = (Size(self.checked_bytes), Size(self.bytes_per_second as u64));
        let ran = clock::duration(self.seconds as u64);
        let found = || self.found().unwrap_or_else(|| "nothing is damaged".to_owned());
        match self.state {
            ScrubState::Running => {
                write!(f, "{checked} read, {} left, {rate}/s", Size(self.left_bytes))?;
                if let Some(left) = self.left_seconds {
                    write!(f, ", {} to go", clock::duration(left.ceil() as u64))?;
                }
                self.found().map_or(Ok(()), |found| write!(f, "; {found}"))
            }
            ScrubState::Done => write!(f, "read {checked} in {ran}, {rate}/s; {}", found()),
            ScrubState::Cancelled => write!(f, "ended early after {ran}, with {checked} read; {}", found()),
        }
    }
}
