//! The life of a pool: the real engine makes it over a known history, with crashes and clean stops.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use headpond_base::{BLOCK, BufMut, CacheMode, MemberId, Nanos, PoolId, Redundancy};
use headpond_engine::{Compression, Config, RecoverError, Reply, Request, Treatment, format_members};
use headpond_format::{Geometry, MemberName, Members};

use crate::devices::{Devices, MemoryFlash};
use crate::history::History;
use crate::origin::Origin;
use crate::seed::Seed;
use crate::world::World;

const SEGMENT_BYTES: u64 = 128 << 10;
/// So many changes, most of which are writes, fill some segments.
const ROW_CHANGES: u32 = 40;
const FILES: u64 = 3;
const FILE_BYTES: usize = 160 << 10;

/// The devices of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Shape {
    /// One device of 4 MiB.
    One,
    /// So many mirrored devices of 2.5 MiB. Every second pool of three goes on without its last one.
    Mirrored(u8),
    /// So many devices of 2.5 MiB with parity. Every second pool of four goes on without its last one.
    Rows(u8),
}

impl Shape {
    /// The devices of a new pool, with nothing on them, and what to write there.
    fn format(self) -> Result<Devices, String> {
        let (geometry, members) = match self {
            Self::One => {
                let geometry = Geometry::with_segment_bytes(4 << 20, SEGMENT_BYTES);
                (geometry, vec![geometry.member(MemberName([7; 16]))])
            }
            Self::Mirrored(count) | Self::Rows(count) => {
                let devices: Vec<_> = (0..count).map(|index| (MemberName([7 + index; 16]), 5 << 19)).collect();
                Geometry::for_members(&devices, Some(SEGMENT_BYTES)).map_err(|error| error.to_string())?
            }
        };
        let first = Members::first(members[0]);
        let with = |list: Members, member| list.with(member).map(|(list, _)| list);
        let list = members[1..].iter().copied().try_fold(first, with).ok_or("too many members")?;
        let flash = |bytes: u64| MemoryFlash(vec![0; usize::try_from(bytes).unwrap_or(0)]);
        let mut devices = Devices::new((0..).map(MemberId).zip(members.iter().map(|member| flash(member.bytes))));
        for (at, bytes) in format_members(PoolId([7; 16]), &list, geometry, None, CacheMode::WriteBack) {
            devices.write(at, &bytes)?;
        }
        Ok(devices)
    }

    /// The member that the pool may lose in its life. It is the last, and so are its bytes.
    const fn spare(self) -> Option<MemberId> {
        match self {
            Self::Mirrored(3) => Some(MemberId(2)),
            Self::Rows(4) => Some(MemberId(3)),
            _ => None,
        }
    }
}

/// A pool and its history.
pub(crate) struct Made {
    /// The devices, by member.
    pub(crate) images: Vec<Vec<u8>>,
    /// The same at an earlier moment. None of a pool of one device.
    pub(crate) earlier: Vec<Vec<u8>>,
    pub(crate) origin: Origin,
    pub(crate) history: History,
    /// The member that the pool went on without.
    pub(crate) lost: Option<MemberId>,
    /// Nothing dirty was on one member alone.
    pub(crate) is_double: bool,
}

type Pools = HashMap<(Shape, u64), Arc<Made>>;

/// The most pools that are kept: some MiB each.
const KEPT: usize = 64;

/// A pool, made once.
pub(crate) fn made(shape: Shape, seed: u64) -> Arc<Made> {
    static POOLS: Mutex<Option<Pools>> = Mutex::new(None);
    let key = (shape, seed);
    if let Some(known) = POOLS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().get(&key) {
        return known.clone();
    }
    let made = make(shape, seed);
    let made = Arc::new(made.unwrap_or_else(|error| panic!("the pool of base {seed} cannot be made: {error}")));
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let pools = pools.get_or_insert_default();
    if pools.len() >= KEPT {
        pools.clear();
    }
    pools.insert(key, made.clone());
    made
}

/// Every second pool packs its writes. One with rows does not destage what it is not asked to: so rows are made, and
/// stay.
pub(crate) fn config(shape: Shape, base: u64) -> Config {
    let has_rows = matches!(shape, Shape::Rows(_));
    Config {
        redundancy: if has_rows { Redundancy::Parity } else { Config::default().redundancy },
        compression: [Compression::Off, Compression::Lz4, Compression::Off, Compression::Zstd(1)][base as usize % 4],
        compression_from: 0,
        mode: CacheMode::WriteBack,
        flush_period: if has_rows { Nanos(60 * Nanos::SECOND.0) } else { Nanos::SECOND },
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

fn start(shape: Shape, base: u64, mut devices: Devices, origin: Origin) -> Result<World, String> {
    let recovered = devices.recover().map_err(|error: RecoverError| error.to_string())?;
    match World::start(devices, origin, recovered, config(shape, base), &mut || false)? {
        (world, conflicts) if conflicts.is_empty() => Ok(world),
        (_, conflicts) => Err(format!("a conflict about {conflicts:?}, and nobody changed anything")),
    }
}

/// Some life of a pool, with crashes and clean stops.
fn make(shape: Shape, base: u64) -> Result<Made, String> {
    let mut seed = Seed(base);
    let mut files = BTreeMap::new();
    for inode in 1..=FILES {
        let mut bytes = vec![0; seed.index(FILE_BYTES)];
        fill(base, &mut seed, &mut bytes);
        files.insert(inode, bytes);
    }
    let mut history = History::new(&files);
    let mut world = start(shape, base, shape.format()?, Origin::new(&files))?;
    let steps = 20 + seed.below(150);
    let earlier_at = if shape == Shape::One { steps } else { seed.below(steps) };
    let lost_at = if shape.spare().is_some() { seed.below(2 * steps) } else { steps };
    let (mut earlier, mut lost) = (Vec::new(), None);
    for step in 0..steps {
        if step == earlier_at {
            earlier = world.devices.images();
        }
        if let Some(spare) = shape.spare().filter(|_| step == lost_at && world.exposed_blocks() == 0) {
            let (mut devices, origin) = world.crash(&mut seed);
            lost = devices.take(spare).map(|flash| (spare, flash));
            world = start(shape, base, devices, origin)?;
            settle(&mut world, &mut history, &mut files)?;
        }
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
                let (devices, origin) = world.crash(&mut seed);
                world = start(shape, base, devices, origin)?;
            }
            38 => {
                let request = change(base, &mut seed, &mut world, &mut files)?;
                world.ask_and_leave(request, u32::try_from(seed.below(20)).unwrap_or(0))?;
                history.push(&files);
                let (devices, origin) = world.crash(&mut seed);
                world = start(shape, base, devices, origin)?;
                settle(&mut world, &mut history, &mut files)?;
            }
            _ => world.sleep(5000)?,
        }
    }
    if matches!(shape, Shape::Rows(_)) {
        // A start finds rows of full segments that a checkpoint names.
        for _ in 0..ROW_CHANGES {
            let request = change(base, &mut seed, &mut world, &mut files)?;
            world.ask(request)?;
            history.push(&files);
        }
        world.ask(Request::SyncAll)?;
        history.sync();
        world.sleep(1000)?;
        world.ask(Request::Stop)?;
        let (devices, origin) = world.crash(&mut seed);
        world = start(shape, base, devices, origin)?;
        settle(&mut world, &mut history, &mut files)?;
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
    let is_double = world.exposed_blocks() == 0;
    let (devices, origin) = world.crash(&mut seed);
    let (lost, flash) = lost.unzip();
    let images = devices.images().into_iter().chain(flash.map(|flash| flash.0)).collect();
    Ok(Made { images, earlier, origin, history, lost, is_double })
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
    let found = world.look_at_all()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_pools_with_parity_are_left_with_rows_that_a_start_finds() {
        let with_rows = |base: &u64| {
            let made = made(Shape::Rows(3), *base);
            let flashes = made.images.iter().map(|bytes| MemoryFlash(bytes.clone()));
            let recovered = Devices::new((0..).map(MemberId).zip(flashes)).recover().unwrap();
            recovered.segments().rows() > 0
        };
        let count = (0..24).filter(with_rows).count();
        println!("{count} of 24");
        assert!(count >= 18, "{count} of 24");
    }
}
