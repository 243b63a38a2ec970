//! What an examination found. Serialized, this is what `headpond check --json` prints: names stay.

use headpond_engine::RecoverError;
use serde::Serialize;

/// All of it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The conclusion.
    pub verdict: Conclusion,
    /// The conclusion in a sentence.
    pub why: String,
    /// Bytes of the file or device.
    pub device_bytes: u64,
    /// What the pool says of itself; absent where no superblock is intact.
    pub pool: Option<Pool>,
    /// The two copies of the superblock.
    pub superblocks: Vec<SlotReport>,
    /// The two slots of settings; none where no superblock is intact.
    pub settings: Vec<SlotReport>,
    /// The two checkpoint areas; none where no superblock is intact.
    pub checkpoints: Vec<Area>,
    /// The segments, counted.
    pub segments: SegmentCounts,
    /// Batches behind the last complete one: writes that nobody had synced, dropped by a crash.
    pub dropped_batches: u64,
    /// The cached data, counted; zeros where recovery refuses the pool.
    pub blocks: Blocks,
    /// Files that the pool remembers.
    pub files: u64,
    /// Files with data, size or time that the origin has not got: most dirty first.
    pub dirty_files: Vec<DirtyObject>,
    /// Everything that is not as it should be.
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
    /// There is damage, and it loses nothing: a second copy, or the origin, has what is damaged.
    Harmless,
    /// Dirty data is damaged: reads of it are answered with an error.
    Loss,
    /// A mount refuses the pool.
    Refused,
}

/// What the superblock that counts says.
#[derive(Debug, Serialize)]
pub struct Pool {
    /// The pool's name.
    pub name: String,
    /// The version of its format.
    pub format_version: u32,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// How often it was taken into use.
    pub uses: u64,
    /// The cache mode.
    pub mode: &'static str,
    /// Left in good order, with nothing after the checkpoint.
    pub clean_stop: bool,
    /// The path at which its origin was mounted last.
    pub origin: Option<String>,
    /// The key that names its origin.
    pub origin_key: Option<String>,
}

/// One copy of the superblock, or of the settings.
#[derive(Debug, Serialize)]
pub struct SlotReport {
    /// Where it is.
    pub offset: u64,
    /// Goes up with each that is written: the larger one counts.
    pub counter: Option<u64>,
    /// Whether it is the one that counts.
    pub counts: bool,
    /// What is wrong with it.
    pub damage: Option<String>,
}

/// One checkpoint area.
#[derive(Debug, Serialize)]
pub struct Area {
    /// Where it is.
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
    /// Hold nothing that counts.
    pub free: u64,
    /// Hold something.
    pub used: u64,
    /// Of those used, with a footer.
    pub footers: u64,
    /// Batches in those used.
    pub batches: u64,
}

/// The cached data, counted in blocks of 4 KiB.
#[derive(Debug, Default, Serialize)]
pub struct Blocks {
    /// In the pool.
    pub cached: u64,
    /// Of those, newer than the origin.
    pub dirty: u64,
    /// Compared with their checksums: all but blocks of zeros, which take no space.
    pub verified: u64,
    /// Clean ones that are damaged: they come from the origin.
    pub damaged_clean: u64,
    /// Dirty ones that are damaged: they are lost.
    pub damaged_dirty: u64,
}

/// An object with something that the origin has not got.
#[derive(Clone, Debug, Serialize)]
pub struct DirtyObject {
    /// Its path below the origin's root, as last known; empty where unknown, and of a volume.
    pub path: String,
    /// Its inode number at the origin, if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Its name, if it is a volume: 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Its size.
    pub size: u64,
    /// Bytes that the origin has not got, in whole blocks.
    pub dirty_bytes: u64,
    /// Bytes of it in the pool, in whole blocks.
    pub cached_bytes: u64,
    /// Dirty blocks of it that are damaged.
    pub damaged_dirty_blocks: u64,
    /// Removed at the origin, or being removed: what is dirty goes with it.
    pub removed: bool,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// As a crash leaves it: no damage, as far as can be told.
    Note,
    /// Damage that loses nothing.
    Harmless,
    /// Damage that loses data, or for which a mount refuses the pool.
    Loss,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The structure.
    pub structure: String,
    /// Where it starts on the device.
    pub offset: u64,
    /// What is wrong with it, and what that means.
    pub what: String,
}

/// Findings, as many as a person would read, and the number of the others.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    /// In the order of the examination.
    pub listed: Vec<Finding>,
    /// How many more there are.
    pub more: u64,
    #[serde(skip)]
    counts: [u64; 3],
}

/// How many findings of one severity are listed.
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

    /// The worst of them.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        let worst_first = [Severity::Loss, Severity::Harmless, Severity::Note];
        worst_first.into_iter().find(|severity| self.counts[*severity as usize] > 0)
    }
}

/// How far an examination is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What is being looked at.
    pub doing: &'static str,
    /// How much of it is done.
    pub done: u64,
    /// Of how much.
    pub of: u64,
}
