//! The properties of a run, drawn from its seed: one seed means one pool, one set of faults, one mix of operations.
//!
//! Every run leaves most things out and does the rest often (swarm testing, Groce et al. 2012). Rare combinations
//! come sooner than from one even mix.

use headpond_base::{CacheMode, CopyLoss, Nanos, PoolId, Redundancy};
use headpond_engine::{
    Admission, Class, ClassLimit, Compression, Config, FlashWriteLimit, Mutation, Policy, TailSlots,
};
use headpond_format::{Geometry, Member, MemberName, Members};
use headpond_timed::Rng;

use crate::devices::{Device, Devices};
use crate::flash::Layout;
use crate::origin::SpaceKind;

/// What the caller of a run decides.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of operations.
    pub ops: u32,
    /// Operations to leave out, for shrinking.
    pub skip: Vec<std::ops::Range<u32>>,
    /// A planted bug.
    pub mutation: Option<Mutation>,
    /// Print each event.
    pub verbose: bool,
    /// No faults but power cuts and kills.
    pub no_faults: bool,
    /// In half of the runs the front door forgets the files that the engine lets go of. Off by default, because a
    /// mount does so only with more files than it remembers.
    pub forgets: bool,
    /// One request at a time.
    pub serial: bool,
    /// Every start reads everything: see `thoroughness.rs`.
    pub whole_looks: bool,
    /// Stay in this cache mode.
    pub mode: Option<CacheMode>,
    /// A sequence of the exhaustive cases instead of a run.
    pub exhaustive: bool,
    /// Promise 3 alone: see `untorn.rs`.
    pub untorn: bool,
    /// A history of names: see `names/`.
    pub names: bool,
    /// A bug planted in a history of names.
    pub planted: Option<crate::Planted>,
    /// This many segments filled with host writes at once. Without it the seed decides.
    pub host_segments: Option<usize>,
    /// Whether there is a volume among the files. Without it the seed decides.
    pub volumes: Option<bool>,
    /// Whether the pool has a second tail, in memory that outlives the daemon. Without it the seed decides.
    pub second_tail: Option<bool>,
    /// A history of a pool of up to five members, which are lost, come back, and are added and removed.
    pub members: bool,
    /// Some of them have copies only.
    pub copies: bool,
    /// The same of pools of three to five members, which make rows with a parity.
    pub parity: bool,
    /// The operator's upkeep comes in between: see `upkeep.rs`.
    pub upkeep: bool,
    /// A device that joins often has the number of a member that is gone; and members are asked whether they are there.
    pub reuse: bool,
    /// With each loss of the origin's power comes another kernel: one tells birth times, and the next one does not.
    pub kernels: bool,
    /// A history of uses: see `uses.rs`.
    pub uses: bool,
    /// A bug planted in a history of uses.
    pub planted_use: Option<crate::PlantedUse>,
    /// A history of several hosts: see `hosts/`.
    pub hosts: bool,
    /// A bug planted in a history of hosts.
    pub planted_hosts: Option<crate::planted_hosts::PlantedHosts>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ops: 500,
            skip: Vec::new(),
            mutation: None,
            verbose: false,
            no_faults: false,
            forgets: false,
            serial: false,
            whole_looks: false,
            mode: None,
            exhaustive: false,
            untorn: false,
            names: false,
            planted: None,
            host_segments: None,
            volumes: None,
            second_tail: None,
            members: false,
            copies: false,
            parity: false,
            upkeep: false,
            reuse: false,
            kernels: false,
            uses: false,
            planted_use: None,
            hosts: false,
            planted_hosts: None,
        }
    }
}

/// How often, in a thousand, each fault comes. `docs/fault-model.md` says what each may hit, and what headpond
/// promises then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) clean_rot: u64,
    pub(crate) clean_lost: u64,
    pub(crate) clean_misdirected: u64,
    pub(crate) any_rot: u64,
    pub(crate) flash_read: u64,
    pub(crate) flash_write: u64,
    pub(crate) flash_sync: u64,
    pub(crate) origin_read: u64,
    pub(crate) origin_write: u64,
    pub(crate) origin_sync: u64,
    pub(crate) origin_names: u64,
    pub(crate) slow: u64,
    pub(crate) stuck: u64,
    /// Flash reads during recovery.
    pub(crate) recovery_read: u64,
}

/// The kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    DurableWrite,
    Sync,
    SyncAll,
    Truncate,
    Zero,
    Allocate,
    Create,
    Open,
    Close,
    Rename,
    Unlink,
    SyncDirectory,
    SetMode,
    Flush,
    Seek,
    Chmod,
    Idle,
    LookAtAll,
    Restart,
    Crash,
}

impl Kind {
    pub(crate) const ALL: [Self; 22] = [
        Self::Read,
        Self::Write,
        Self::DurableWrite,
        Self::Sync,
        Self::SyncAll,
        Self::Truncate,
        Self::Zero,
        Self::Allocate,
        Self::Create,
        Self::Open,
        Self::Close,
        Self::Rename,
        Self::Unlink,
        Self::SyncDirectory,
        Self::SetMode,
        Self::Flush,
        Self::Seek,
        Self::Chmod,
        Self::Idle,
        Self::LookAtAll,
        Self::Restart,
        Self::Crash,
    ];

    /// How often it usually comes.
    const fn weight(self) -> u64 {
        match self {
            Self::Read => 200,
            Self::Write => 300,
            Self::DurableWrite => 30,
            Self::Sync => 50,
            Self::SyncAll | Self::Allocate | Self::Seek => 15,
            Self::Truncate | Self::Zero | Self::Open | Self::Close => 30,
            Self::Create | Self::Rename | Self::Unlink => 15,
            Self::SyncDirectory | Self::Chmod | Self::LookAtAll => 5,
            Self::SetMode => 8,
            Self::Flush => 10,
            Self::Idle => 40,
            Self::Restart => 4,
            Self::Crash => 12,
        }
    }
}

/// The treatment of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Treatments {
    /// As the cache mode says.
    Usual,
    /// Each file has its own, drawn with this number.
    ByFile(u64),
    /// Each request has its own.
    ByRequest,
}

/// What the class of a request depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Classes {
    /// Its file, and this number.
    ByFile(u64),
    /// Nothing.
    ByRequest,
}

/// Short enough to find streams in files of this size.
const CUTOFFS: [u64; 3] = [8 << 10, 64 << 10, 256 << 10];

/// How records may be packed.
const CODECS: [Compression; 4] = [Compression::Off, Compression::Lz4, Compression::Zstd(1), Compression::Zstd(3)];

/// The share of the pool from which on records are packed: mostly 0, because the pools here are seldom full for long.
const COMPRESSION_FROM: [u8; 4] = [0, 0, 10, 50];

/// Changes some settings, each to any of its values.
fn change_settings(config: &mut Config, rng: &mut Rng) {
    match rng.below(9) {
        7 if config.sequential_cutoff.is_some() => config.sequential_cutoff = Some(*rng.pick(&CUTOFFS)),
        0 => config.policy = *rng.pick(&Policy::ALL),
        1 => config.admission = *rng.pick(&[Admission::Always, Admission::Always, Admission::Returning]),
        2 => {
            let limits = [None, None, Some(0), Some(100 << 20), Some(1 << 40)];
            config.flash_write_limit = rng.pick(&limits).map(FlashWriteLimit);
        }
        3 => config.fetch_bytes = *rng.pick(&[4 << 10, 16 << 10, 64 << 10, 256 << 10]),
        4 => config.dirty_threshold = *rng.pick(&[0, 5, 20, 50, 70]),
        5 => config.idle_flush = rng.chance(500).then(|| Nanos(rng.below(2 * Nanos::SECOND.0))),
        6 => config.destage_rate = rng.chance(500).then(|| rng.between(64 << 10, 4 << 20)),
        8 if rng.chance(500) => config.hits_to_origin = *rng.pick(&[0, 1, 30, 90]),
        _ if rng.chance(200) => config.flush_period = Config::OFF,
        _ => config.flush_period = Nanos(*rng.pick(&[50, 500, 5_000, 60_000]) * Nanos::MILLISECOND.0),
    }
}

/// Rows are made of full segments with much that is dirty: most histories keep it so for a while.
///
/// Returns whether that is left as it is.
fn keep_dirty(config: &mut Config, weights: &mut [u64], rng: &mut Rng) -> bool {
    let keeps = rng.chance(850);
    if keeps {
        config.destage_rate = None;
        config.mode = CacheMode::WriteBack;
        config.dirty_threshold = *rng.pick(&[40, 70]);
        config.flush_period = *rng.pick(&[Config::OFF, Nanos(60 * Nanos::SECOND.0)]);
        config.idle_flush = None;
        config.sequential_cutoff = None;
    }
    for (kind, weight) in Kind::ALL.iter().zip(weights) {
        match kind {
            Kind::Write => *weight = (*weight * 3).max(300),
            Kind::Idle => *weight = (*weight * 2).max(40),
            Kind::Crash | Kind::Restart | Kind::Truncate | Kind::Unlink => *weight /= 2,
            Kind::SetMode | Kind::Flush => *weight /= 8,
            _ => {}
        }
    }
    keeps
}

/// The classes of requests: everybody's, and rules that pin or give a share.
const CLASSES: u8 = 5;

/// The class of a request, by a draw.
pub(crate) fn class(draw: u64) -> Class {
    Class::from_bits((draw % u64::from(CLASSES)) as u8)
}

/// Gives a class another limit: none, or a pin or a share of a few blocks, of much of the pool, or of more than it
/// has.
fn change_class(config: &mut Config, rng: &mut Rng) {
    let index = rng.between(1, u64::from(CLASSES) - 1) as usize;
    let blocks = *rng.pick(&[0, 1, 7, 40, 200, 600, 5000]);
    let limits = [ClassLimit::default(), ClassLimit { blocks, pinned: true }, ClassLimit { blocks, pinned: false }];
    config.classes[index] = *rng.pick(&limits);
}

/// Blocks of an origin that is never full.
pub(crate) const PLENTY: u64 = 1 << 20;

/// The quota of a seed, if it has one. It is drawn separately, so that the rest of the seed stays what it was.
fn quota(seed: u64, blocks: u64) -> Option<u64> {
    let mut rng = Rng::for_part(seed, u64::MAX - 9);
    rng.chance(120).then(|| rng.between(1, blocks.max(1)))
}

/// The bytes of the volume of a seed, if it has one: by itself, so that all else of a seed stays what it was.
fn volume(seed: u64, file_bytes: u64, wanted: Option<bool>) -> Option<u64> {
    let mut rng = Rng::for_part(seed, u64::MAX - 13);
    let drawn = rng.chance(150);
    wanted.unwrap_or(drawn).then(|| {
        let grain = *rng.pick(&[512, 4096]);
        rng.between(4096 / grain, file_bytes / grain) * grain
    })
}

/// The slots of the second tail of a seed, if it has one: often so few that batches find none. By itself, so that all
/// else of a seed stays what it was.
fn tail_slots(seed: u64, wanted: Option<bool>) -> Option<TailSlots> {
    let mut rng = Rng::for_part(seed, u64::MAX - 14);
    let slots = [(3, 2), (6, 2), (24, 4)].map(|(usual, largest)| TailSlots { usual, largest });
    let drawn = rng.chance(600);
    wanted.unwrap_or(drawn).then(|| *rng.pick(&slots))
}

/// How many members have a number of their own in histories that give numbers again.
pub(crate) const NUMBERS: usize = 7;

/// The pool of every history.
pub(crate) const POOL: PoolId = PoolId([7; 16]);

/// The user of requests. Not the superuser, so that destage's writes differ from those that bypass the pool.
pub(crate) const USER: u32 = 1000;

/// A device of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberShape {
    pub(crate) bytes: u64,
    /// How many times as long everything takes there.
    pub(crate) slowness: u64,
    /// Its slots are lent only, as homes of second copies.
    pub(crate) copies_only: bool,
}

/// The members of a seed's pool, of unequal sizes and speeds, and whether dirty data is mirrored.
fn members(seed: u64, pool_bytes: u64, segment_bytes: u64, parity: bool) -> (Vec<MemberShape>, bool) {
    let mut rng = Rng::for_part(seed, u64::MAX - 16);
    let mirrors = rng.chance(600) || parity;
    let count = *rng.pick(if parity { &[3, 3, 4, 5] } else { &[1, 2, 2, 2, 3, 3, 4, 5] });
    let slow = rng.below(count);
    let slowness = *rng.pick(&[1, 1, 8, 40]);
    if count == 1 {
        return (vec![MemberShape { bytes: pool_bytes, slowness: 1, copies_only: false }], mirrors);
    }
    let shapes = (0..count).map(|index| MemberShape {
        bytes: rng.between(pool_bytes / 2, pool_bytes * 3 / 2) / segment_bytes * segment_bytes,
        slowness: if index == slow { slowness } else { 1 },
        copies_only: false,
    });
    (shapes.collect(), mirrors)
}

/// How these devices are divided, if there are several.
fn divided(shapes: &[MemberShape], segment_bytes: u64) -> Option<(Geometry, Members)> {
    let name = |index: usize| MemberName([index as u8 + 1; 16]);
    let devices: Vec<_> = shapes.iter().enumerate().map(|(index, shape)| (name(index), shape.bytes)).collect();
    let (geometry, rows) = Geometry::for_members(&devices, Some(segment_bytes)).ok()?;
    let (first, others) = rows.split_first()?;
    let of_shape = |(row, shape): (&Member, &MemberShape)| Member { copies_only: shape.copies_only, ..*row };
    let others = others.iter().zip(&shapes[1..]).map(of_shape);
    let list = others.into_iter().try_fold(Members::first(*first), |list, row| Some(list.with(row)?.0))?;
    Some((geometry, list)).filter(|_| shapes.len() > 1)
}

/// The properties of a run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) geometry: Geometry,
    pub(crate) files: u64,
    pub(crate) file_bytes: u64,
    pub(crate) write_bytes: u64,
    /// Positions and lengths are mostly multiples of this.
    pub(crate) alignment: u64,
    pub(crate) concurrency: usize,
    pub(crate) config: Config,
    pub(crate) faults: Faults,
    pub(crate) weights: Vec<u64>,
    pub(crate) origin_blocks: u64,
    /// How the origin handles space.
    pub(crate) space: SpaceKind,
    /// Blocks that files may take beyond those that they have at the beginning: a quota.
    pub(crate) quota_blocks: Option<u64>,
    /// The origin tells birth times.
    pub(crate) births: bool,
    /// One kernel tells birth times, and the next one does not.
    pub(crate) kernels: bool,
    /// The bytes of a volume among the files.
    pub(crate) volume: Option<u64>,
    /// Power cuts in a thousand crashes. The others kill only the daemon.
    pub(crate) power_cuts: u64,
    /// Power cuts in a thousand that take the origin's host down too.
    pub(crate) origin_falls: u64,
    /// Whether the cache mode changes in the middle.
    pub(crate) mode_switches: bool,
    pub(crate) treatments: Treatments,
    /// Whether requests have classes: of each file its own, or of each request.
    pub(crate) classes: Option<Classes>,
    /// Whether settings change in the middle.
    pub(crate) settings_change: bool,
    /// Whether records are sometimes packed.
    pub(crate) packs: bool,
    /// The front door forgets a file as soon as the engine lets go of it, and changes its names silently.
    pub(crate) forgets: bool,
    /// The longest time of a flash operation in nanoseconds, and of an origin operation.
    pub(crate) flash_delay: u64,
    pub(crate) origin_delay: u64,
    /// The devices of the pool when it is made.
    pub(crate) members: Vec<MemberShape>,
    /// Whether two of several members have each dirty block.
    pub(crate) mirrors: bool,
    /// Of a thousand operations so many are preceded by a loss of a member, or a change of the list.
    pub(crate) disturbances: u64,
    /// How many losses may cost data.
    pub(crate) uncovered_losses: u64,
    /// The slots of memory that outlives the process, if the pool has a second tail there.
    pub(crate) tail_slots: Option<TailSlots>,
}

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn new(seed: u64, options: &Options) -> Self {
        let mut rng = Rng::for_part(seed, u64::MAX);
        let rng = &mut rng;
        // Few and small segments, so that reclaim and checkpoints never rest; now and then large
        // ones, which hold the largest write.
        let (segment_bytes, pool_bytes, write_bytes): (u64, u64, u64) = match rng.below(20) {
            0..10 => (128 << 10, 4 << 20, 32 << 10),
            10..16 => (256 << 10, 8 << 20, 96 << 10),
            16..19 => (512 << 10, 12 << 20, 256 << 10),
            _ => (2 << 20, 48 << 20, 1 << 20),
        };
        let geometry = Geometry::with_segment_bytes(pool_bytes, segment_bytes);
        // From a sixteenth of the pool (all is a hit) to three times the pool (nothing fits).
        let total = pool_bytes * *rng.pick(&[1, 4, 8, 16, 48]) / 16;
        // Several devices have room for more; rows take much of it.
        let mut own = Rng::for_part(seed, u64::MAX - 18);
        let (total, write_bytes) =
            if options.parity { (pool_bytes * own.between(1, 3), segment_bytes / 2) } else { (total, write_bytes) };
        let files = rng.between(1, 5);
        let file_bytes = (total / files).clamp(16 << 10, 4 << 20);
        let mut weights: Vec<u64> = Kind::ALL.iter().map(|kind| kind.weight()).collect();
        for (kind, weight) in Kind::ALL.iter().zip(&mut weights) {
            *weight = match rng.below(8) {
                0 if !matches!(kind, Kind::Write | Kind::Crash | Kind::Open | Kind::Create) => 0,
                1 => *weight * 4,
                2 => *weight * 3 / 2,
                _ => *weight,
            };
        }
        let mut faults = Faults::default();
        if !options.no_faults && rng.chance(600) {
            let mut often = |low: u64, high: u64| if rng.chance(300) { rng.between(low, high) } else { 0 };
            faults = Faults {
                clean_rot: often(1, 40),
                clean_lost: often(1, 100),
                clean_misdirected: often(1, 100),
                any_rot: 0,
                flash_read: often(1, 30),
                flash_write: 0,
                flash_sync: 0,
                origin_read: often(1, 50),
                origin_write: often(1, 100),
                origin_sync: often(1, 100),
                origin_names: often(1, 100),
                slow: often(1, 50),
                stuck: often(1, 10),
                recovery_read: 0,
            };
            // Faults after which a sync may fail, or dirty data may be lost with a clear error. Each comes in few
            // runs, because they excuse the engine from so much.
            match rng.below(10) {
                0 => faults.flash_write = rng.between(1, 10),
                1 => faults.flash_sync = rng.between(1, 30),
                2 => faults.any_rot = rng.between(1, 5),
                3 => faults.recovery_read = rng.between(1, 20),
                _ => {}
            }
        }
        let mode = if rng.chance(700) { CacheMode::WriteBack } else { *rng.pick(&CacheMode::ALL) };
        let config = Config {
            mode: options.mode.unwrap_or(mode),
            dirty_threshold: *rng.pick(&[5, 20, 50, 70]),
            flush_period: Nanos(*rng.pick(&[50, 500, 5_000, 60_000]) * Nanos::MILLISECOND.0),
            fetch_bytes: *rng.pick(&[4 << 10, 16 << 10, 64 << 10, 256 << 10]),
            sync_interval: Nanos(*rng.pick(&[5, 100, 1000, 30_000]) * Nanos::MILLISECOND.0),
            mutation: options.mutation,
            ..Config::default()
        };
        // Drawn separately, so that the rest of a seed stays what it was.
        let mut own = Rng::for_part(seed, u64::MAX - 2);
        let mut config = Config {
            dirty_threshold: if own.chance(200) { 0 } else { config.dirty_threshold },
            flush_period: if own.chance(200) { Config::OFF } else { config.flush_period },
            idle_flush: own.chance(300).then(|| Nanos(own.below(2 * Nanos::SECOND.0))),
            destage_rate: own.chance(200).then(|| own.between(64 << 10, 4 << 20)),
            ..config
        };
        // Also drawn separately.
        let mut own = Rng::for_part(seed, u64::MAX - 1);
        let treatments = match own.below(10) {
            0 | 1 => Treatments::ByFile(own.next()),
            2 => Treatments::ByRequest,
            _ => Treatments::Usual,
        };
        config.sequential_cutoff = own.chance(250).then(|| *own.pick(&CUTOFFS));
        for _ in 0..own.below(4) {
            change_settings(&mut config, &mut own);
        }
        let mut settings_change = own.chance(500);
        // Also drawn separately. Half of the runs pack records, in one way or in changing ones.
        let mut own = Rng::for_part(seed, u64::MAX - 4);
        let packs = own.chance(500);
        config.compression_from = 0;
        if packs && own.chance(700) {
            config.compression = *own.pick(&CODECS);
            config.compression_from = *own.pick(&COMPRESSION_FROM);
        }
        // Also drawn separately.
        let mut own = Rng::for_part(seed, u64::MAX - 3);
        let classes = match own.below(10) {
            0..3 => Some(Classes::ByFile(own.next())),
            3 => Some(Classes::ByRequest),
            _ => None,
        };
        if classes.is_some() {
            (0..4).for_each(|_| change_class(&mut config, &mut own));
        }
        // Also drawn separately.
        let mut hits = Rng::for_part(seed, u64::MAX - 4);
        config.hits_to_origin = if hits.chance(300) { *hits.pick(&[10, 50, 90]) } else { config.hits_to_origin };
        // Also drawn separately.
        let mut own = Rng::for_part(seed, u64::MAX - 10);
        let drawn = *own.pick(&[1, 1, 1, 2, 3, 4]);
        config.host_segments = options.host_segments.unwrap_or(drawn);
        if config.host_segments > 1 {
            // So that batches are under way at the same time, although most writes here are small, and many are not
            // synced.
            config.early_blocks = *own.pick(&[1, 1, 4, config.early_blocks]);
            if own.chance(500) {
                config.sync_interval = Nanos(30 * Nanos::SECOND.0);
                let syncs = [Kind::Sync, Kind::SyncAll, Kind::DurableWrite, Kind::SyncDirectory];
                let weights = Kind::ALL.iter().zip(&mut weights).filter(|(kind, _)| syncs.contains(kind));
                weights.for_each(|(_, weight)| *weight /= 10);
            }
        }
        let mut own = Rng::for_part(seed, u64::MAX - 17);
        let disturbances = if options.members { *own.pick(&[3, 20, 60]) } else { 0 };
        let uncovered_losses = u64::from(options.members && own.chance(150));
        let (mut members, mirrors) = if options.members {
            members(seed, pool_bytes, segment_bytes, options.parity)
        } else {
            (vec![MemberShape { bytes: pool_bytes, slowness: 1, copies_only: false }], false)
        };
        if let [_, others @ ..] = &mut members[..] {
            // Copies on one other host, or on two.
            let hosts = *Rng::for_part(seed, u64::MAX - 26).pick(&[1, 1, 2]);
            let own = others.len().saturating_sub(hosts);
            others[own..].iter_mut().for_each(|member| member.copies_only = options.copies);
        }
        let geometry = divided(&members, segment_bytes).map_or(geometry, |(geometry, _)| geometry);
        config.redundancy = match (mirrors, options.parity) {
            (false, _) => Redundancy::None,
            (true, false) => Redundancy::Mirror,
            (true, true) => Redundancy::Parity,
        };
        if options.copies {
            config.copy_loss = *Rng::for_part(seed, u64::MAX - 23).pick(&CopyLoss::ALL);
        }
        if options.reuse {
            config.probe_period = Some(Nanos::SECOND);
            config.numbers = NUMBERS;
        }
        let disturbances = if options.parity {
            settings_change &= !keep_dirty(&mut config, &mut weights, &mut own);
            if own.chance(150) && !options.no_faults {
                faults.any_rot = own.between(1, 10);
            }
            *own.pick(&[1, 3, 10])
        } else {
            disturbances
        };
        // If the origin is slower than the flash, hits seldom go there.
        let slow_flash = config.hits_to_origin > 0 && hits.chance(700);
        Self {
            geometry,
            treatments,
            classes,
            settings_change,
            packs,
            files,
            file_bytes,
            write_bytes,
            alignment: *rng.pick(&[1, 512, 4096, 4096, 16384]),
            concurrency: if options.serial { 1 } else { *rng.pick(&[1, 2, 4, 8]) },
            config,
            faults,
            weights,
            origin_blocks: if rng.chance(150) { total / 4096 } else { PLENTY },
            space: SpaceKind::of(seed),
            quota_blocks: quota(seed, total / 4096),
            births: rng.chance(800) && !options.kernels,
            kernels: options.kernels,
            volume: volume(seed, file_bytes, options.volumes),
            power_cuts: *rng.pick(&[0, 500, 700, 1000]),
            origin_falls: *rng.pick(&[0, 500, 1000]),
            mode_switches: options.mode.is_none(),
            forgets: options.forgets && Rng::for_part(seed, u64::MAX - 8).chance(500),
            members,
            mirrors,
            disturbances,
            uncovered_losses,
            tail_slots: tail_slots(seed, options.second_tail),
            flash_delay: if slow_flash { 20_000_000 } else { *rng.pick(&[100_000, 1_000_000, 20_000_000]) },
            origin_delay: if slow_flash { 1_000_000 } else { *rng.pick(&[1_000_000, 10_000_000, 50_000_000]) },
        }
    }

    /// The devices of the pool, empty.
    pub(crate) fn devices(&self) -> Devices {
        let members = self.list().unwrap_or_else(|| Members::first(self.geometry.member(MemberName::default())));
        let device = |(shape, (_, member)): (&MemberShape, (_, &Member))| {
            let mut device = Device::new(shape.bytes, shape.slowness);
            device.flash.set_layout(Layout {
                start: member.start,
                segment_bytes: u64::from(self.geometry.segment_bytes),
                slots: u64::from(member.slots),
            });
            device
        };
        Devices::new(self.members.iter().zip(members.iter()).map(device).collect())
    }

    /// The list of members of a new pool, if there are several.
    pub(crate) fn list(&self) -> Option<Members> {
        divided(&self.members, u64::from(self.geometry.segment_bytes)).map(|(_, members)| members)
    }

    /// Changes settings while requests are under way.
    pub(crate) fn change_settings(&self, config: &mut Config, rng: &mut Rng) {
        change_settings(config, rng);
        if self.packs && rng.chance(500) {
            config.compression = *rng.pick(&CODECS);
            config.compression_from = *rng.pick(&COMPRESSION_FROM);
        }
        if self.classes.is_some() && rng.chance(500) {
            change_class(config, rng);
        }
    }

    /// The mode never changes.
    #[cfg(test)]
    pub(crate) fn fixed_mode(&mut self) {
        self.mode_switches = false;
    }
}
