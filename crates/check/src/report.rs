//! What an examination found. `headpond check --json` prints it serialized: the names stay.

use headpond_engine::RecoverError;
use serde::Serialize;

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The conclusion.
    pub verdict: Conclusion,
    /// The conclusion in a sentence.
    pub why: String,
    /// Bytes of the file or device.
    pub device_bytes: u64,
    /// What the pool says about itself. Absent if no superblock is intact.
    pub pool: Option<Pool>,
    /// The two copies of the superblock.
    pub superblocks: Vec<SlotReport>,
    /// The two slots of settings. None if no superblock is intact.
    pub settings: Vec<SlotReport>,
    /// The two checkpoint areas. None if no superblock is intact.
    pub checkpoints: Vec<Area>,
    /// The segments, counted.
    pub segments: SegmentCounts,
    /// Batches after the last complete one: writes that were never synced and that a crash dropped.
    pub dropped_batches: u64,
    /// The cached data, counted. Zeros if recovery refuses the pool.
    pub blocks: Blocks,
    /// Files that the pool remembers.
    pub files: u64,
    /// Files with data, size or time that the origin lacks. Those with most dirty data come first.
    pub dirty_files: Vec<DirtyObject>,
    /// All findings.
    pub findings: Findings,
    /// Why a mount would refuse the pool.
    #[serde(skip)]
    pub refused: Option<RecoverError>,
}

/// The conclusion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// Nothing is damaged.
    Sound,
    /// There is damage, but nothing is lost: a second copy, or the origin, has the damaged data.
    Harmless,
    /// Dirty data is damaged. Reads of it fail.
    Loss,
    /// A mount refuses the pool.
    Refused,
}

/// What the superblock in force says.
#[derive(Debug, Serialize)]
pub struct Pool {
    /// The pool's name.
    pub name: String,
    /// The version of its format.
    pub format_version: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// How many times it was taken into use.
    pub uses: u64,
    /// The cache mode.
    pub mode: &'static str,
    /// Whether it was stopped in order, with nothing after the checkpoint.
    pub clean_stop: bool,
    /// The last path of its origin.
    pub origin: Option<String>,
    /// The key that names its origin.
    pub origin_key: Option<String>,
}

/// One copy of the superblock, or of the settings.
#[derive(Debug, Serialize)]
pub struct SlotReport {
    /// Its offset in bytes.
    pub offset: u64,
    /// Goes up with each write. The larger one counts.
    pub counter: Option<u64>,
    /// Whether it is the one that counts.
    pub counts: bool,
    /// What is wrong with it.
    pub damage: Option<String>,
}

/// One checkpoint area.
#[derive(Debug, Serialize)]
pub struct Area {
    /// Its offset in bytes.
    pub offset: u64,
    /// The superblock that names it, if its checkpoint is whole.
    pub counter: Option<u64>,
    /// Whether its checkpoint is the one that counts.
    pub counts: bool,
    /// Objects in it.
    pub objects: u64,
    /// Why there is no whole checkpoint.
    pub damage: Option<String>,
}

/// The segments, counted.
#[derive(Debug, Default, Serialize)]
pub struct SegmentCounts {
    /// All of them.
    pub all: u64,
    /// Those without anything that counts.
    pub free: u64,
    /// Those with something.
    pub used: u64,
    /// Used ones with a footer.
    pub footers: u64,
    /// Batches in used ones.
    pub batches: u64,
}

/// The cached data, counted in blocks of 4 KiB.
#[derive(Debug, Default, Serialize)]
pub struct Blocks {
    /// Blocks in the pool.
    pub cached: u64,
    /// The dirty ones among them.
    pub dirty: u64,
    /// Blocks compared with their checksums: all except blocks of zeros, which take no space.
    pub verified: u64,
    /// Damaged clean blocks. They come from the origin.
    pub damaged_clean: u64,
    /// Damaged dirty blocks. They are lost.
    pub damaged_dirty: u64,
}

/// An object with something that the origin lacks.
#[derive(Clone, Debug, Serialize)]
pub struct DirtyObject {
    /// Its last known path below the origin's root. Empty if unknown, and for a volume.
    pub path: String,
    /// Its inode number at the origin, if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Its id, if it is a volume: 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Its size.
    pub size: u64,
    /// Bytes that the origin lacks, in whole blocks.
    pub dirty_bytes: u64,
    /// Bytes of it in the pool, in whole blocks.
    pub cached_bytes: u64,
    /// Its damaged dirty blocks.
    pub damaged_dirty_blocks: u64,
    /// Removed at the origin, or being removed. Its dirty data goes with it.
    pub removed: bool,
}

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// What a crash leaves: no known damage.
    Note,
    /// Damage that loses nothing.
    Harmless,
    /// Damage that loses data, or for which a mount refuses the pool.
    Loss,
}

/// A deviation from what should be on flash.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The structure.
    pub structure: String,
    /// The offset of the structure on the device.
    pub offset: u64,
    /// What is wrong with it, and what that means.
    pub what: String,
}

/// The findings, as many as a person would read, and the number of the others.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    /// In the order of the examination.
    pub listed: Vec<Finding>,
    /// How many more there are.
    pub more: u64,
    #[serde(skip)]
    counts: [u64; 3],
}

/// The most findings of one severity in the list.
const LISTED: u64 = 200;

impl Findings {
    pub(crate) fn add(&mut self, severity: Severity, structure: String, offset: u64, what: String) {
        let count = &mut self.counts[severity as usize];
        *count += 1;
        if *count <= LISTED {
            self.listed.push(Finding { severity, structure, offset, what });
        } else {
            self.more += 1;
        }
    }

    /// Takes over what another list has, of the device `of`. With `healthy` another device has what a loss lacks.
    pub(crate) fn take(&mut self, other: Self, of: usize, healthy: bool) {
        for Finding { severity, structure, offset, what } in other.listed {
            let (severity, what) = match severity {
                Severity::Loss if healthy => (Severity::Harmless, format!("{what} Another device has the same.")),
                severity => (severity, what),
            };
            self.add(severity, format!("device {}: {structure}", of + 1), offset, what);
        }
        self.more += other.more;
    }

    /// The worst of them.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        let worst_first = [Severity::Loss, Severity::Harmless, Severity::Note];
        worst_first.into_iter().find(|severity| self.counts[*severity as usize] > 0)
    }
}

/// The progress of an examination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The part under examination.
    pub doing: &'static str,
    /// How much of it is done.
    pub done: u64,
    /// How much there is in all.
    pub of: u64,
}
