//! How long a take-over takes with the map of a large pool: a pool is made that has the map, and not the data.
//!
//! The origin has sparse files. A mount learns of them and ends in order. Then a checkpoint is written into the pool in
//! which each of their blocks has a clean slot. Nobody reads those blocks. A client writes and syncs in another file
//! while workers are killed.
//!
//! Invariant: a pause is measured, and decides nothing.

use super::failed;
use crate::failure::{Failure, Result, check_interrupt};
use crate::loop_device::LoopDevice;
use crate::pond::{Headpond, Mount, Mounting};
use headpond_base::{BLOCK, BLOCK_U64, Block, BufMut, Class, Generation, Sequence, Stream};
use headpond_device::Flash;
use headpond_engine::{newest_superblock, recover};
use headpond_format::{
    CheckpointHead, Entry, FrameKind, Geometry, Layout, Place, SUPERBLOCK_SLOTS, SegmentRow, SegmentState, Superblock,
    decode_checkpoint_head, encode_checkpoint_head, encode_frame, encode_superblock,
};
use headpond_map::{ObjectMap, Slot};
use headpond_shard::FlashReader;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one file at the origin.
const FILE: u64 = 4 << 30;
/// The pool is so much larger than what its map covers: reclaim finds free segments.
const SPARE: u64 = 5;
const OF: u64 = 4;
/// How long anything may take at most.
const LIMIT: Duration = Duration::from_secs(300);
/// How often something is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// How long a worker serves before it is killed.
const LIFE: Duration = Duration::from_secs(2);
/// Bytes of map slots in one frame.
const FRAME: usize = 64 << 10;
/// Bytes of a checkpoint that are written at a time.
const PIECE: usize = 4 << 20;

/// What was seen.
#[derive(Clone, Debug)]
pub struct Stalls {
    /// Blocks in the map.
    pub blocks: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// How long the mount took.
    pub mounted_in: Duration,
    /// The longest wait for a write and its sync around each kill.
    pub stalls: Vec<Duration>,
}

impl fmt::Display for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: &Duration| format!("{:.2} s", time.as_secs_f64());
        let stalls: Vec<String> = self.stalls.iter().map(seconds).collect();
        write!(
            f,
            "{} blocks in the map, {} MiB of checkpoint: mounted in {}; a synced write waited {} over the kills",
            self.blocks,
            self.checkpoint_bytes >> 20,
            seconds(&self.mounted_in),
            stalls.join(", ")
        )
    }
}

/// Measures it with a map of `gib`, in `directory`.
///
/// # Errors
/// When something fails, or a program meets an error.
pub fn run(headpond: &Headpond, directory: &Path, gib: u64, kills: u32) -> Result<Stalls> {
    let bytes = gib << 30;
    let image = directory.join("flash.img");
    make_sparse(&image, bytes * SPARE / OF + (1 << 30))?;
    let device = LoopDevice::over(&image)?;
    let mounting = Mounting { flash: device.path().to_owned(), size: None, ..Mounting::below(directory, "1G")? };
    let (files, rest) = (bytes / FILE, bytes % FILE);
    let sizes = (0..files).map(|_| FILE).chain((rest > 0).then_some(rest));
    for (number, size) in sizes.enumerate() {
        make_sparse(&mounting.origin.join(format!("large{number}")), size)?;
    }
    let mount = headpond.mount_with(&mounting, &["--format"])?;
    for entry in std::fs::read_dir(&mounting.mountpoint).map_err(Failure::io("listing the mount"))? {
        let path = entry.map_err(Failure::io("listing the mount"))?.path();
        let open = OpenOptions::new().write(true).open(&path);
        open.and_then(|file| file.write_all_at(&[1; BLOCK], 0)).map_err(Failure::io("writing a block"))?;
    }
    mount.flush()?;
    mount.unmount()?;
    let (blocks, checkpoint_bytes) = fill(device.path())?;

    let start = Instant::now();
    let mount = headpond.mount(&mounting)?;
    let mounted_in = start.elapsed();
    let stalls = measure(&mount, &mounting.mountpoint.join("written"), kills)?;
    mount.unmount_keep_dirty()?;
    Ok(Stalls { blocks, checkpoint_bytes, mounted_in, stalls })
}

fn make_sparse(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path).and_then(|file| file.set_len(bytes));
    file.map_err(Failure::io(format!("making {}", path.display())))
}

/// Writes and syncs while workers are killed. Gives the longest wait around each kill.
fn measure(mount: &Mount, path: &Path, kills: u32) -> Result<Vec<Duration>> {
    let (over, longest) = (AtomicBool::new(false), Mutex::new((Duration::ZERO, 0_u64)));
    let seen = || *longest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> std::io::Result<()> {
            let file = File::create(path)?;
            for number in 0_u64.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let start = Instant::now();
                file.write_all_at(&[number as u8; BLOCK], number % 1024 * BLOCK_U64)?;
                file.sync_data()?;
                let mut longest = longest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                *longest = (longest.0.max(start.elapsed()), number + 1);
            }
            Ok(())
        });
        let killed = (0..kills).map(|number| {
            let (before, start) = (seen().1, Instant::now());
            until("the writer goes on", || Ok(seen().1 > before + 10 && start.elapsed() > LIFE))?;
            longest.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0 = Duration::ZERO;
            let written = seen().1;
            mount.kill_worker().ok_or_else(|| failed("there is no worker to kill"))?;
            until("the writer goes on after a kill", || {
                if writer.is_finished() {
                    return Err(failed("the writer met an error"));
                }
                Ok(seen().1 > written + 10)
            })?;
            until("the take-over is counted", || {
                Ok(mount.lives().is_ok_and(|lives| lives.takeovers == u64::from(number) + 1))
            })?;
            Ok(seen().0)
        });
        let stalls: Result<Vec<Duration>> = killed.collect();
        over.store(true, Ordering::Relaxed);
        match writer.join() {
            Ok(written) => written.map_err(Failure::io("writing and syncing"))?,
            Err(_) => return Err(failed("the writer panicked")),
        }
        stalls
    })
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        check_interrupt()?;
        if start.elapsed() > LIMIT {
            return Err(failed(format!("waited {} s in vain until {what}", LIMIT.as_secs())));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Gives each block of the pool's files a clean slot. Gives how many there are, and the bytes of the checkpoint.
fn fill(path: &Path) -> Result<(u64, u64)> {
    let flash = Flash::open(path).map_err(|error| failed(error.to_string()))?;
    let io = |doing: &'static str| move |errno: headpond_base::Errno| failed(format!("{doing} the pool: {errno}"));
    let mut reader = FlashReader(&flash);
    let superblock = newest_superblock(&mut reader, flash.bytes()).map_err(|error| failed(error.to_string()))?;
    let recovered = recover(&mut reader, flash.bytes()).map_err(|error| failed(error.to_string()))?;
    let geometry = superblock.geometry;
    let old = geometry.checkpoint_start(usize::from(superblock.checkpoint_area));
    let head = decode_checkpoint_head(&flash.read(old, BLOCK).map_err(io("reading"))?);
    let head = head.map_err(|damage| failed(damage.to_string()))?;
    let (counter, area) = (superblock.counter + 1, 1 - superblock.checkpoint_area);

    let mut frames = Vec::new();
    let mut rows = Vec::new();
    let used = |segment: u32| u64::from(segment) < u64::from(geometry.segments) * OF / SPARE + 1;
    for slot in 0..geometry.segments {
        let layout = Layout::Single(Place { member: superblock.member, slot });
        let (state, layout) =
            if used(slot) { (SegmentState::Sealed, Some(layout)) } else { (SegmentState::Free, None) };
        SegmentRow { generation: Generation(1), state, stream: Stream::Cold, layout, copies_differ: false }
            .encode(&mut rows);
    }
    encode_frame(FrameKind::Segments, counter, &rows, &mut frames);
    let mut places = places(geometry);
    let mut blocks = 0;
    for object in recovered.objects() {
        let count = object.state.size / BLOCK_U64;
        let mut entry = Vec::new();
        Entry::Object { object: object.object, state: object.state }.encode(Sequence(0), &mut entry);
        encode_frame(FrameKind::Objects, counter, &entry, &mut frames);
        let mut map = ObjectMap::default();
        for block in 0..count {
            let location = places.next().ok_or_else(|| failed("the pool is too small for the map"))?;
            let checksum = (block as u32).wrapping_mul(2_654_435_761);
            let slot = Slot { location, checksum, packed: false, dirty: false, kept: true, class: Class::EVERYBODY };
            map.insert(Block(block), slot);
        }
        blocks += count;
        let (mut next, mut all) = (0, count == 0);
        while !all {
            let mut payload = object.object.0.to_le_bytes().to_vec();
            while payload.len() < FRAME {
                match map.encode_chunk(next, &mut payload) {
                    Some(number) => next = number + 1,
                    None => {
                        all = true;
                        break;
                    }
                }
            }
            if payload.len() > 8 {
                encode_frame(FrameKind::Chunks, counter, &payload, &mut frames);
            }
        }
    }
    encode_frame(FrameKind::End, counter, &[], &mut frames);
    let frame_bytes = frames.len() as u64;
    if frame_bytes + BLOCK_U64 > geometry.area_bytes {
        return Err(failed("the map is too large for the pool's checkpoint"));
    }
    let head =
        CheckpointHead { counter, frame_bytes, next_generation: Generation(head.next_generation.0.max(2)), ..head };
    let superblock = Superblock {
        counter,
        checkpoint_area: area,
        checkpoint_bytes: frame_bytes + BLOCK_U64,
        dirty_blocks: 0,
        ..superblock
    };
    let start = geometry.checkpoint_start(usize::from(area));
    frames.resize(frames.len().next_multiple_of(BLOCK), 0);
    let write =
        |offset: u64, bytes: &[u8]| flash.write(offset, &BufMut::copy_of(bytes).freeze()).map_err(io("writing"));
    for (piece, bytes) in (0..).zip(frames.chunks(PIECE)) {
        write(start + BLOCK_U64 + piece * PIECE as u64, bytes)?;
    }
    write(start, &encode_checkpoint_head(&head))?;
    flash.sync().map_err(io("syncing"))?;
    for offset in SUPERBLOCK_SLOTS {
        write(offset, &encode_superblock(&superblock))?;
    }
    flash.sync().map_err(io("syncing"))?;
    Ok((blocks, frame_bytes))
}

/// Places for blocks, segment after segment, without the heads and the ends.
fn places(geometry: Geometry) -> impl Iterator<Item = headpond_base::Location> {
    let last = geometry.segment_blocks() - 8;
    (0..geometry.segments).flat_map(move |segment| {
        let first = geometry.first_location(headpond_base::SegmentId(segment));
        (2..last).map(move |block| first.plus(block))
    })
}
