//! Promise 3 on trial alone: *every write request of up to a mebibyte is old or new as a whole after any crash.*
//!
//! The random histories of `run.rs` do everything, and so seldom tear anything: that takes large writes on a log whose
//! segments are just large enough for one. This family does only that: write-back, no faults but crashes, few files,
//! and
//! - writes of a database's pages, of any length at any byte, of whole blocks, of exactly a mebibyte (which spans 257
//!   blocks when it begins inside one), and writes that overlap the one before, while that is still under way;
//! - several writes as one (`WriteTogether`), from two places to as many as are allowed;
//! - segments of 2 MiB, of which most are left with too little room for the next large write;
//! - power cuts that drop, keep, reorder, and tear at 512 bytes each device write that was not synced, at any moment,
//!   recovery and the first checkpoint after it included.
//!
//! - in every other run, a `sequential-cutoff` that long writes go beyond, and writes to files of which a database was
//!   told that they are whole ([`Handling::Whole`]).
//!
//! What judges is the model that all runs have: after a crash every file must be as it was after some of its writes in
//! order, each of them there with all its bytes, in all its places, or with none.

use headpond_base::{BLOCK_U64, CacheMode, Nanos, RECORD_BYTES_MAX};
use headpond_engine::{Handling, Treatment};
use headpond_format::Geometry;
use headpond_timed::Rng;

use crate::content::{ContentChange, WriterId};
use crate::origin::{FileId, SpaceKind};
use crate::scenario::{Faults, MemberShape, Scenario, Treatments};
use crate::sim::Sim;

/// The smallest segment that holds the largest write.
const SEGMENT_BYTES: u64 = 2 << 20;

/// A segment for every few of the largest writes, so that reclaim never rests either.
const POOL_BYTES: u64 = 40 << 20;

/// The largest request that is promised to be whole.
const UNIT: u64 = RECORD_BYTES_MAX as u64;

/// What an operation is, and how often out of a thousand.
#[derive(Clone, Copy)]
enum Step {
    Write,
    DurableWrite,
    Together,
    Sync,
    Read,
    Idle,
    Flush,
    Crash,
}

const STEPS: [(Step, u64); 8] = [
    (Step::Write, 500),
    (Step::Together, 120),
    (Step::DurableWrite, 60),
    (Step::Sync, 80),
    (Step::Read, 60),
    (Step::Idle, 40),
    (Step::Flush, 10),
    (Step::Crash, 130),
];

impl Scenario {
    /// The same, made for large writes and crashes.
    pub(crate) fn untorn(self, seed: u64) -> Self {
        let mut rng = Rng::for_part(seed, u64::MAX - 3);
        Self {
            geometry: Geometry::with_segment_bytes(POOL_BYTES, SEGMENT_BYTES),
            members: vec![MemberShape { bytes: POOL_BYTES, slowness: 1, copies_only: false }],
            files: rng.between(1, 2),
            file_bytes: 4 << 20,
            write_bytes: UNIT,
            faults: Faults::default(),
            power_cuts: if self.tail_slots.is_some() { 600 } else { 900 },
            mode_switches: false,
            settings_change: false,
            treatments: Treatments::Usual,
            origin_blocks: 1 << 20,
            space: SpaceKind::Keeps,
            quota_blocks: None,
            volume: None,
            config: headpond_engine::Config {
                mode: CacheMode::WriteBack,
                sequential_cutoff: rng.chance(500).then_some(64 << 10),
                ..self.config
            },
            ..self
        }
    }
}

/// Where a write goes, and how long it is. `last` is where the one before went.
fn place(last: (u64, u64), file_bytes: u64, rng: &mut Rng) -> (u64, u64) {
    let (offset, len) = match rng.below(100) {
        // A page of a database.
        0..20 => {
            let page = *rng.pick(&[4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10]);
            (rng.below(file_bytes / page) * page, page)
        }
        // Any bytes.
        20..35 => (rng.below(file_bytes), rng.between(1, 64 << 10)),
        // Many blocks.
        35..55 => (rng.below(file_bytes / BLOCK_U64) * BLOCK_U64, rng.between(16, UNIT / BLOCK_U64) * BLOCK_U64),
        // Many bytes.
        55..75 => (rng.below(file_bytes), rng.between(64 << 10, UNIT)),
        // As much as is promised, anywhere.
        75..85 => (rng.below(file_bytes - UNIT), UNIT),
        // Across an end of the one before, or inside of it.
        _ => {
            let from = last.0 + rng.below(last.1.max(1));
            (from.saturating_sub(rng.below(20_000)), rng.between(1, last.1.max(2)))
        }
    };
    let offset = offset.min(file_bytes - 1);
    (offset, len.min(UNIT).min(file_bytes - offset).max(1))
}

/// Writes in several places, as a database's transaction makes them: pages, or pieces of any length.
fn together(file_bytes: u64, writer: WriterId, rng: &mut Rng) -> ContentChange {
    let (len, gap) = match rng.below(4) {
        0 => (512, 512 * rng.between(1, 20)),
        1 => (rng.between(1, 5000), rng.between(1, 20_000)),
        _ => (4096, 4096 * rng.between(1, 15)),
    };
    let stride = len + gap;
    let offset = rng.below(file_bytes / 2) / 512 * 512;
    let fits = |count: u64| {
        let places = (0..count).map(|at| offset + at * stride).map(|start| start..start + len);
        offset + count * stride <= file_bytes && headpond_engine::fits_together(places)
    };
    let wanted = *rng.pick(&[2, 3, 8, 66]);
    let count = (1..=wanted).rev().find(|count| fits(*count)).unwrap_or(1);
    ContentChange::Together { offset, len, stride, count, writer }
}

impl Sim<'_> {
    /// One operation.
    pub(crate) fn operate_untorn(&mut self, rng: &mut Rng) -> Result<(), String> {
        let weights = STEPS.map(|(_, weight)| weight);
        let step = STEPS[rng.weighted(&weights)].0;
        let open: Vec<FileId> =
            self.doors.iter().filter(|(_, door)| door.handles > 0 && door.object.is_some()).map(|(f, _)| *f).collect();
        if open.is_empty() {
            let names: Vec<FileId> = self.world.origin.names().values().copied().collect();
            match names.as_slice() {
                [] => self.create_some(rng)?,
                names => self.open(*rng.pick(names), false)?,
            }
            return self.drain();
        }
        let file = *rng.pick(&open);
        let streams = self.scenario.config.sequential_cutoff.is_some();
        let handling = if streams { Handling::Whole } else { Handling::Cache };
        let how = Treatment { handling, ..Treatment::default() };
        self.light_fuse();
        match step {
            Step::Write | Step::DurableWrite if self.model.open_changes(file) < 3 => {
                let (offset, len) = place(self.last_write, self.scenario.file_bytes, rng);
                self.last_write = (offset, len);
                let writer = self.writer();
                let durable = matches!(step, Step::DurableWrite);
                self.change(file, ContentChange::Write { offset, len, writer }, durable, how)?;
            }
            Step::Together if self.model.open_changes(file) < 3 => {
                let change = together(self.scenario.file_bytes, self.writer(), rng);
                self.last_write = (change.range().0, change.range().1 - change.range().0);
                self.change(file, change, rng.chance(500), how)?;
            }
            Step::Write | Step::DurableWrite | Step::Together => self.drain()?,
            Step::Sync => self.sync(file)?,
            Step::Read => {
                let (offset, len) = place(self.last_write, self.scenario.file_bytes, rng);
                self.read(file, offset, len, false, Treatment::default())?;
            }
            Step::Idle => self.idle(rng.below(Nanos::SECOND.0))?,
            Step::Flush => self.flush()?,
            Step::Crash => {
                for _ in 0..rng.below_one_of(&[1, 4, 20]) {
                    self.step()?;
                }
                self.crash(rng)?;
            }
        }
        for _ in 0..rng.below_one_of(&[1, 1, 4, 20]) {
            self.step()?;
        }
        Ok(())
    }
}
