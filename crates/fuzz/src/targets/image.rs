//! A whole pool, made by the real engine over a known history, and then spoiled.
//!
//! - Whatever the damage: recovery and the examination have a verdict, and the same one. A pool in use can be read,
//!   written, flushed and stopped without a panic.
//! - If no checksum was forged: each block that is read once was there.
//! - If one block of the pool was damaged: all reads give the state of one moment, and none older than the sync
//!   before the last. (Damage to the very last batch looks like a torn one.) What the examination calls sound or
//!   harmless reads without an error.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use headpond_base::{BLOCK, BufMut, CacheMode, Nanos, PoolId};
use headpond_check::{Conclusion, Report, examine};
use headpond_engine::{Compression, Config, Reply, Request, Treatment, format_pool, recover, recover_mutated};
use headpond_format::{Geometry, MemberName};

use super::without_numbers;
use crate::history::{Found, History};
use crate::input::{Edit, Input};
use crate::origin::Origin;
use crate::seals;
use crate::seed::Seed;
use crate::subject::{Base, PlantedBug, Told};
use crate::world::{MemoryFlash, World};

const POOL_BYTES: u64 = 4 << 20;
const SEGMENT_BYTES: u64 = 128 << 10;
const FILES: u64 = 3;
const FILE_BYTES: usize = 160 << 10;

/// A pool and its history.
struct Made {
    image: Vec<u8>,
    origin: Origin,
    history: History,
}

/// The most pools that are kept: some MiB each.
const KEPT: usize = 64;

fn made(seed: u64) -> Arc<Made> {
    static POOLS: Mutex<Option<HashMap<u64, Arc<Made>>>> = Mutex::new(None);
    if let Some(known) = POOLS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().get(&seed) {
        return known.clone();
    }
    let made = Arc::new(make(seed).unwrap_or_else(|error| panic!("the pool of base {seed} cannot be made: {error}")));
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let pools = pools.get_or_insert_default();
    if pools.len() >= KEPT {
        pools.clear();
    }
    pools.insert(seed, made.clone());
    made
}

/// Every second pool packs its writes.
fn config(base: u64) -> Config {
    Config {
        compression: [Compression::Off, Compression::Lz4, Compression::Off, Compression::Zstd(1)][base as usize % 4],
        compression_from: 0,
        mode: CacheMode::WriteBack,
        flush_period: Nanos::SECOND,
        fetch_bytes: 16 << 10,
        sync_interval: Nanos(100 * Nanos::MILLISECOND.0),
        ..Config::default()
    }
}

/// Some bytes. In pools that pack: bytes that shrink, or only zeros.
fn fill(base: u64, seed: &mut Seed, bytes: &mut [u8]) {
    seed.fill(bytes);
    if base % 2 == 1 {
        let kept = if seed.one_in(4) { 0 } else { 0x0f };
        bytes.iter_mut().for_each(|byte| *byte &= kept);
    }
}

fn start(base: u64, flash: MemoryFlash, origin: Origin) -> Result<World, String> {
    let recovered = recover(&mut flash.clone(), POOL_BYTES).map_err(|error| error.to_string())?;
    match World::start(flash, origin, recovered, config(base), &mut || false)? {
        (world, conflicts) if conflicts.is_empty() => Ok(world),
        (_, conflicts) => Err(format!("a conflict about {conflicts:?}, and nobody changed anything")),
    }
}

/// Some life of a pool, with crashes and clean stops.
fn make(base: u64) -> Result<Made, String> {
    let mut seed = Seed(base);
    let mut files = BTreeMap::new();
    for inode in 1..=FILES {
        let mut bytes = vec![0; seed.index(FILE_BYTES)];
        fill(base, &mut seed, &mut bytes);
        files.insert(inode, bytes);
    }
    let mut flash = MemoryFlash(vec![0; usize::try_from(POOL_BYTES).unwrap_or(0)]);
    let geometry = Geometry::with_segment_bytes(POOL_BYTES, SEGMENT_BYTES);
    for (offset, bytes) in format_pool(PoolId([7; 16]), MemberName([7; 16]), geometry, None, CacheMode::WriteBack) {
        let at = usize::try_from(offset).unwrap_or(0);
        flash.0[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    let mut history = History::new(&files);
    let mut world = start(base, flash, Origin::new(&files))?;
    for _ in 0..20 + seed.below(150) {
        match seed.below(40) {
            0..20 => {
                let request = change(base, &mut seed, &mut world, &mut files)?;
                match world.ask(request)? {
                    Reply::Changed(_) => history.push(&files),
                    other => return Err(format!("a change is answered with {other:?}")),
                }
            }
            20..26 => {
                let inode = 1 + seed.below(FILES);
                world.look(inode)?;
            }
            26..31 => world.sleep(1 + seed.below(700))?,
            31..36 => {
                world.ask(Request::SyncAll)?;
                history.sync();
            }
            36 => {
                world.ask(Request::flush_all(1))?;
            }
            37 => {
                world.ask(Request::Stop)?;
                let (flash, origin) = world.crash(&mut seed);
                world = start(base, flash, origin)?;
            }
            38 => {
                let request = change(base, &mut seed, &mut world, &mut files)?;
                world.ask_and_leave(request, u32::try_from(seed.below(20)).unwrap_or(0))?;
                history.push(&files);
                let (flash, origin) = world.crash(&mut seed);
                world = start(base, flash, origin)?;
                settle(&mut world, &mut history, &mut files)?;
            }
            _ => world.sleep(5000)?,
        }
    }
    // Later batches then say that the earlier ones were durable.
    for _ in 0..3 {
        let request = change(base, &mut seed, &mut world, &mut files)?;
        world.ask(request)?;
        history.push(&files);
        world.ask(Request::SyncAll)?;
        history.sync();
    }
    match seed.below(4) {
        0 => {
            world.ask(Request::Stop)?;
        }
        1 => {
            let request = change(base, &mut seed, &mut world, &mut files)?;
            world.ask(request)?;
            history.push(&files);
        }
        _ => {}
    }
    let (flash, origin) = world.crash(&mut seed);
    Ok(Made { image: flash.0, origin, history })
}

/// A change to one of the files.
fn change(
    base: u64,
    seed: &mut Seed,
    world: &mut World,
    files: &mut BTreeMap<u64, Vec<u8>>,
) -> Result<Request, String> {
    let inode = 1 + seed.below(FILES);
    let (object, _) = world.open(inode)?;
    let file = files.get_mut(&inode).ok_or("a file that was never made")?;
    let mtime = world.origin.tick();
    let grain = if seed.one_in(3) { 1 } else { BLOCK };
    let offset = seed.index(FILE_BYTES) / grain * grain;
    let most = if seed.one_in(4) { 64 << 10 } else { 3 * BLOCK };
    let len = (1 + seed.index(most)).next_multiple_of(grain);
    let end = (offset + len).min(FILE_BYTES);
    Ok(match seed.below(10) {
        0 => {
            file.resize(offset, 0);
            Request::Truncate { object, size: offset as u64, mtime }
        }
        1 => {
            let (from, to) = (offset.min(file.len()), end.min(file.len()));
            file[from..to].fill(0);
            Request::Zero { object, offset: offset as u64, len: (end - offset).max(1) as u64, extend: false, mtime }
        }
        _ => {
            let mut bytes = vec![0; (end - offset).max(1)];
            fill(base, seed, &mut bytes);
            let end = offset + bytes.len();
            file.resize(file.len().max(end), 0);
            file[offset..end].copy_from_slice(&bytes);
            Request::Write {
                object,
                offset: offset as u64,
                data: BufMut::copy_of(&bytes).freeze(),
                mtime,
                durable: seed.one_in(8),
                how: Treatment::default(),
            }
        }
    })
}

/// Makes the survivors of a crash the state from now on.
fn settle(world: &mut World, history: &mut History, files: &mut BTreeMap<u64, Vec<u8>>) -> Result<(), String> {
    let found = look_at_all(world)?;
    let state = history.newest_like(&found).ok_or("after a crash the files are as they never were")?;
    if state < history.synced() {
        return Err("after a crash synced changes are gone".to_owned());
    }
    history.forget_after(state);
    for (inode, bytes) in files.iter_mut() {
        *bytes = world.read_whole(*inode)?;
    }
    Ok(())
}

fn look_at_all(world: &mut World) -> Result<BTreeMap<u64, Found>, String> {
    world.origin.inodes().into_iter().map(|inode| Ok((inode, world.look(inode)?))).collect()
}

pub(super) fn base(seed: u64) -> Base {
    let image = made(seed).image.clone();
    let seals = seals::of_image(&image);
    Base { bytes: image, seals }
}

pub(super) fn run(input: &Input, bytes: Vec<u8>, planted: PlantedBug) -> Result<Told, String> {
    let made = made(input.base);
    let mut flash = MemoryFlash(bytes);
    let report = examine(&mut flash, POOL_BYTES, &mut |_| {});
    let recovered = match recover_mutated(&mut flash, POOL_BYTES, planted.mutation()) {
        Ok(recovered) => recovered,
        Err(error) if report.verdict == Conclusion::Refused => {
            return Ok(Told { verdict: "refused", words: without_numbers(&error.to_string()) });
        }
        Err(error) => return Err(format!("recovery refuses what the examination calls {:?}: {error}", report.verdict)),
    };
    if report.verdict == Conclusion::Refused {
        return Err(format!("recovery takes what the examination says it refuses: {}", report.why));
    }
    let mut seed = Seed(input.base ^ report.device_bytes);
    let (mut world, conflicts) =
        World::start(flash, made.origin.clone(), recovered, config(input.base), &mut || seed.one_in(2))?;
    let mut found = look_at_all(&mut world)?;
    found.retain(|inode, _| !conflicts.contains(inode));
    if !input.forged {
        check_what_is_served(input, &made, &report, &found, conflicts.is_empty())?;
    }
    use_it(&mut world, &mut seed)?;
    let verdict = match report.verdict {
        _ if !conflicts.is_empty() => "conflict",
        Conclusion::Sound => "sound",
        Conclusion::Harmless => "harmless",
        Conclusion::Loss | Conclusion::Refused => "loss",
    };
    Ok(Told { verdict, words: words(verdict, &report) })
}

fn check_what_is_served(
    input: &Input,
    made: &Made,
    report: &Report,
    found: &BTreeMap<u64, Found>,
    all: bool,
) -> Result<(), String> {
    for (inode, found) in found {
        made.history.check_blocks(*inode, found)?;
        if report.verdict != Conclusion::Loss && found.blocks.contains(&None) {
            return Err(format!("file {inode} cannot be read, and the examination says: {}", report.why));
        }
    }
    if !all || !is_one_block(input) {
        return Ok(());
    }
    match made.history.newest_like(found) {
        Some(state) if state >= made.history.synced_before() => Ok(()),
        Some(_) => Err("synced changes are gone, and nothing says so".to_owned()),
        None => Err("the files are as they never were, all together".to_owned()),
    }
}

/// Whether exactly one block of the pool was damaged, and no bytes of other places were copied into it.
fn is_one_block(input: &Input) -> bool {
    let [edit] = &input.edits[..] else { return false };
    let (at, len) = edit.span();
    !matches!(edit, Edit::Copy { .. }) && at / BLOCK == (at + len.max(1) - 1) / BLOCK
}

/// Uses a recovered pool: a write, a flush, a stop in order. Errors are answers, too.
fn use_it(world: &mut World, seed: &mut Seed) -> Result<(), String> {
    for inode in world.origin.inodes() {
        let (object, size) = world.open(inode)?;
        let mut bytes = vec![0; 1 + seed.index(3 * BLOCK)];
        seed.fill(&mut bytes);
        let (offset, mtime) = (seed.below(size.clamp(1, 1 << 20)), world.origin.tick());
        let data = BufMut::copy_of(&bytes).freeze();
        world.ask(Request::Write {
            object,
            offset,
            data,
            mtime,
            durable: seed.one_in(2),
            how: Treatment::default(),
        })?;
    }
    world.sleep(2000)?;
    world.ask(Request::flush_all(1))?;
    world.ask(Request::Stop)?;
    Ok(())
}

fn words(verdict: &str, report: &Report) -> String {
    let mut kinds: Vec<String> = report
        .findings
        .listed
        .iter()
        .map(|finding| without_numbers(&format!("{}: {}", finding.structure, finding.what)))
        .collect();
    kinds.sort();
    kinds.dedup();
    format!("{verdict}: {}", kinds.join("; "))
}
