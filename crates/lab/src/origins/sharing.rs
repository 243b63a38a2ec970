//! Blocks of the origin that are shared past the mount, on a disk that is nearly full. An overwrite that needed no
//! space before now needs some.
//!
//! What must be so
//! - "No space" comes at the write or at its fsync. The flush and the unmount after that succeed.
//! - The origin has all accepted data, byte by byte. The copy is the origin as it was when the copy was made.

use super::TriedOrigin;
use super::full::{free, pattern};
use super::host::FileSystem;
use crate::command;
use crate::failure::{Failure, Result};
use crate::pond::{Headpond, Mounting, directory_in};
use crate::random::below;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const ENOSPC: i32 = 28;
/// The file system, the file, and the free space beside it.
const DISK_MIB: u64 = 320;
const FILE_MIB: u64 = 48;
/// In turn: less than the engine leaves to others, more, and more than it leaves to the trees of btrfs.
const LEFT_MIB: [u64; 3] = [12, 40, 110];
/// Overwrites before the copy is made, if there are any, and after it.
const BEFORE: u64 = 500;
const AFTER: u64 = 9000;
/// Overwrites between two syncs.
const SYNC_EVERY: u64 = 256;
/// The pool takes all of it.
const POOL: &str = "192M";

/// How blocks come to be shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// `cp --reflink` of the file.
    Reflink,
    /// A snapshot of the subvolume that the origin is.
    Snapshot,
}

/// One way it goes.
#[derive(Clone, Copy, Debug)]
struct Way {
    by: By,
    /// Overwrites that are dirty when the copy is made.
    before: u64,
    left_mib: u64,
    /// The files are written in place as long as their blocks are not shared (`chattr +C`).
    in_place: bool,
}

/// Every way, one after the other.
pub fn run(
    headpond: &Headpond,
    place: &Path,
    origin: TriedOrigin,
    by: By,
    mut said: impl FnMut(&str),
) -> Result<String> {
    let mut ways = Vec::new();
    for left_mib in LEFT_MIB {
        for before in [0, BEFORE] {
            ways.push(Way { by, before, left_mib, in_place: false });
            if origin == TriedOrigin::Btrfs {
                ways.push(Way { by, before, left_mib, in_place: true });
            }
        }
    }
    let (mut taken, mut refused) = (0, 0);
    for (number, way) in ways.iter().enumerate() {
        let place = directory_in(place, &number.to_string())?;
        let (overwrites, told) = one(headpond, &place, origin, *way).map_err(|failure| {
            if matches!(failure, Failure::Interrupted) {
                failure
            } else {
                Failure::Other(format!("{way:?}: {failure}"))
            }
        })?;
        super::remove(&place)?;
        said(&format!(
            "{origin}, {way:?}: {overwrites} overwrites taken, ENOSPC told at the {}",
            told.unwrap_or("end of none")
        ));
        taken += overwrites;
        refused += u64::from(told.is_some());
    }
    if refused == 0 {
        return Err(Failure::Other(
            "no overwrite was refused: the disk was never full, and this shows nothing".to_owned(),
        ));
    }
    Ok(format!(
        "{} ways, {taken} overwrites taken and at the origin, {refused} times ENOSPC at the write or its fsync, \
         each flush and unmount done",
        ways.len()
    ))
}

/// What may be in a block: what the last sync covered, and each overwrite since.
#[derive(Default)]
struct Expected {
    seeds: BTreeMap<u64, Vec<u64>>,
    since: Vec<u64>,
}

impl Expected {
    fn wrote(&mut self, block: u64, seed: u64) {
        self.seeds.entry(block).or_insert_with(|| vec![1]).push(seed);
        self.since.push(block);
    }

    /// A sync succeeded: of each block the last overwrite is what counts.
    fn synced(&mut self) {
        for block in self.since.drain(..) {
            if let Some(seeds) = self.seeds.get_mut(&block) {
                seeds.drain(..seeds.len() - 1);
            }
        }
    }

    fn compare(&self, path: &Path) -> Result<()> {
        let found = fs::read(path).map_err(Failure::io(format!("reading {}", path.display())))?;
        for (number, block) in found.chunks(BLOCK as usize).enumerate() {
            let number = number as u64;
            let seeds = self.seeds.get(&number).map_or(&[1][..], Vec::as_slice);
            if !seeds.iter().any(|seed| block == pattern(*seed, number * BLOCK, BLOCK)) {
                return Err(Failure::Other(format!("block {number} of {} is not what was taken", path.display())));
            }
        }
        Ok(())
    }
}

fn one(headpond: &Headpond, place: &Path, origin: TriedOrigin, way: Way) -> Result<(u64, Option<&'static str>)> {
    let fs = FileSystem::make(origin, place, DISK_MIB)?;
    let subvolume = fs.path().join("origin");
    if way.by == By::Snapshot {
        btrfs(&["subvolume", "create"], &[&subvolume])?;
    }
    let mounting = Mounting::on(fs.path(), place, POOL)?;
    if way.in_place {
        command::run("forbidding copies on write", Command::new("chattr").arg("+C").arg(&mounting.origin))?;
    }
    let mount = headpond.mount(&mounting)?;
    mount.set(&["sequential-cutoff=off", "flush-period=off"])?;
    let path = mounting.mountpoint.join("file");
    let doing = || format!("writing {}", path.display());
    let file = File::create(&path).map_err(Failure::io(doing()))?;
    for at in 0..FILE_MIB {
        file.write_all_at(&pattern(1, at * MIB, MIB), at * MIB).map_err(Failure::io(doing()))?;
    }
    file.sync_all().map_err(Failure::io(doing()))?;
    mount.flush()?;
    others_take_all_but(&fs, way.left_mib)?;
    let mut writer = Writer { file, expected: Expected::default(), random: 11, taken: 0 };
    let mut told = writer.overwrite(way.before)?;
    let copy = fs.path().join("copy");
    let there = mounting.origin.join("file");
    let shared = match way.by {
        By::Reflink => {
            // One that is written in place shares blocks with its like only.
            fs::write(&copy, "").map_err(Failure::io("making the copy"))?;
            if way.in_place {
                command::run("forbidding copies on write", Command::new("chattr").arg("+C").arg(&copy))?;
            }
            let mut cp = Command::new("cp");
            command::run("sharing a file", cp.arg("--reflink=always").arg(&there).arg(&copy))?;
            copy
        }
        By::Snapshot => {
            btrfs(&["subvolume", "snapshot", "-r"], &[&subvolume, &copy])?;
            copy.join("file")
        }
    };
    let before = fs::read(&shared).map_err(Failure::io("reading the copy"))?;
    if told.is_none() {
        told = writer.overwrite(AFTER)?;
    }
    let Writer { file, expected, taken, .. } = writer;
    drop(file);
    expected.compare(&path)?;
    mount.flush()?;
    mount.unmount()?;
    expected.compare(&there)?;
    if fs::read(&shared).map_err(Failure::io("reading the copy"))? != before {
        return Err(Failure::Other("the copy was changed".to_owned()));
    }
    Ok((taken, told))
}

struct Writer {
    file: File,
    expected: Expected,
    random: u64,
    taken: u64,
}

impl Writer {
    /// Overwrites so many blocks, or up to the first that finds no space. Returns where that was.
    fn overwrite(&mut self, count: u64) -> Result<Option<&'static str>> {
        let ended = |told, error: io::Error| match error.raw_os_error() {
            Some(ENOSPC) => Ok(Some(told)),
            _ => Err(Failure::Other(format!("{told}: {error}"))),
        };
        for number in 1..=count {
            let block = below(&mut self.random, FILE_MIB * MIB / BLOCK);
            let seed = 100 + self.taken;
            match self.file.write_all_at(&pattern(seed, block * BLOCK, BLOCK), block * BLOCK) {
                Ok(()) => self.expected.wrote(block, seed),
                Err(error) => {
                    // What was taken before is promised.
                    if let Err(error) = self.sync() {
                        return ended("fsync", error);
                    }
                    return ended("write", error);
                }
            }
            self.taken += 1;
            if number.is_multiple_of(SYNC_EVERY)
                && let Err(error) = self.sync()
            {
                return ended("fsync", error);
            }
        }
        self.sync().map_or_else(|error| ended("fsync", error), |()| Ok(None))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.expected.synced();
        Ok(())
    }
}

/// Others fill the disk, until so much is left.
fn others_take_all_but(fs: &FileSystem, left_mib: u64) -> Result<()> {
    let path = fs.path().join("ballast");
    let file = File::create(&path).map_err(Failure::io(format!("making {}", path.display())))?;
    let mut at = 0;
    loop {
        // What was written is in no figure of btrfs before.
        fs.sync()?;
        let much = free(fs.path())?.saturating_sub(left_mib * MIB).div_ceil(MIB);
        if much == 0 {
            return Ok(());
        }
        for _ in 0..much {
            if file.write_all_at(&pattern(9, at, MIB), at).is_err() {
                return fs.sync();
            }
            at += MIB;
        }
    }
}

fn btrfs(words: &[&str], paths: &[&PathBuf]) -> Result<()> {
    command::run("working on a subvolume", Command::new("btrfs").args(words).args(paths)).map(drop)
}
