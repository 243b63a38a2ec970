//! The full disk: a small origin is filled through the mount, and then in the same way on the bare file system.
//!
//! What must be so
//! - "No space" comes at the write or at its fsync. The flush and the unmount after that succeed.
//! - The origin has all accepted data, byte by byte, once the mount is gone.
//! - It accepts about as much as the bare file system, and the data takes as much space there (`du`).
//! - A removal makes room again. Existing data can be overwritten wherever the bare file system allows that when
//!   full.

use super::TriedOrigin;
use super::host::FileSystem;
use crate::failure::{Failure, Result};
use crate::pond::{Headpond, Mounting, directory_in};
use crate::random::{below, next};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const ENOSPC: i32 = 28;
/// What is left free at the beginning: what `mkfs` takes is too much to be filled each time.
const FREE_MIB: u64 = 64;
/// The pool takes all of it: nothing goes to the origin because the pool is full.
const POOL: &str = "192M";
/// A file of appends, and how much lies between two syncs.
const APPENDED_MAX: u64 = 8 * MIB;
const APPEND: u64 = 64 * KIB;
const SYNC_EVERY: u64 = 2 * MIB;
/// Small files have up to so many bytes.
const SMALL_MAX: u64 = 120 * KIB;
/// Blocks of a file of holes, and what lies between their starts.
const BLOCKS_MAX: u64 = 512;
const STRIDE: u64 = 64 * KIB;
const BLOCK: u64 = 4 * KIB;
/// Of how many files one gets its beginning overwritten when the disk is full.
const OVERWRITTEN: usize = 3;
/// So much less than on the bare file system may be taken, in percent: trees of extents grow in another order.
const LESS: u64 = 4;
/// And so much more may the files take, in percent.
const MORE: u64 = 5;

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// Files that grow.
    Appends,
    /// Many of all sizes.
    Small,
    /// A block, then a hole, and so on.
    Holes,
}

/// What is asked: a shape, and whether all stays dirty until the flush.
const PASSES: [(Shape, bool); 4] =
    [(Shape::Appends, false), (Shape::Appends, true), (Shape::Small, true), (Shape::Holes, true)];

/// One file, as it must be.
struct Written {
    name: String,
    seed: u64,
    /// Of what its beginning is since it was overwritten.
    again: Option<u64>,
    bytes: u64,
    /// A sync of it failed: any part of what was written may be missing.
    doubtful: bool,
}

/// What one filling came to.
struct Filled {
    shape: Shape,
    files: Vec<Written>,
    /// What was told first.
    told: &'static str,
    /// Bytes that the first filling came to.
    first: u64,
    /// Bytes of files that could be overwritten when the disk was full.
    overwritten: u64,
}

/// The same on the bare file system and through a mount, for each shape.
pub fn run(headpond: &Headpond, place: &Path, origin: TriedOrigin, mut said: impl FnMut(&str)) -> Result<String> {
    let mut told = Vec::new();
    let mut bytes = 0;
    for (number, (shape, lazy)) in PASSES.into_iter().enumerate() {
        let place = directory_in(place, &format!("{number}"))?;
        let bare = {
            let fs = nearly_full(origin, &place)?;
            let dir = directory_in(fs.path(), "origin")?;
            let filled = story(&fs, &dir, shape, || Ok(()))?;
            fs.sync()?;
            filled.compare(&dir)?;
            (filled, taken(&dir)?)
        };
        let fs = nearly_full(origin, &place)?;
        let mounting = Mounting::on(fs.path(), &place, POOL)?;
        let mount = headpond.mount(&mounting)?;
        let mut settings = vec!["sequential-cutoff=off"];
        settings.extend(lazy.then_some("flush-period=off"));
        mount.set(&settings)?;
        let filled = story(&fs, &mounting.mountpoint, shape, || mount.flush())?;
        filled.compare(&mounting.mountpoint)?;
        mount.flush()?;
        mount.unmount()?;
        fs.sync()?;
        filled.compare(&mounting.origin)?;
        let through = (filled, taken(&mounting.origin)?);
        said(&format!(
            "{origin}, full, {shape:?}{}: {} without headpond, {} with it",
            if lazy { ", all dirty" } else { "" },
            describe(&bare),
            describe(&through)
        ));
        judge(origin, &bare, &through)?;
        drop(fs);
        super::remove(&place)?;
        bytes += through.0.bytes();
        told.push(through.0.told);
    }
    told.sort_unstable();
    told.dedup();
    Ok(format!(
        "{} MiB in {} fillings, ENOSPC told at the {}, each flush and unmount done, all bytes at the origin",
        bytes / MIB,
        PASSES.len(),
        told.join(" or the ")
    ))
}

fn describe((filled, kib): &(Filled, u64)) -> String {
    format!(
        "{} KiB at first, then {} KiB in {} files, {kib} KiB on disk, told at the {}, {} KiB overwritten when full",
        filled.first / KIB,
        filled.bytes() / KIB,
        filled.files.len(),
        filled.told,
        filled.overwritten / KIB
    )
}

fn judge(origin: TriedOrigin, bare: &(Filled, u64), through: &(Filled, u64)) -> Result<()> {
    let fails = |what: &str| {
        Err(Failure::Other(format!("{what}: {} without headpond, {} with it", describe(bare), describe(through))))
    };
    let [least, there] = [&bare.0, &through.0].map(Filled::bytes);
    if there * 100 < least * (100 - LESS) {
        return fails("what would have fitted was refused");
    }
    // As much on disk for each byte.
    if u128::from(through.1) * u128::from(least) * 100
        > u128::from(bare.1 + 64) * u128::from(there) * u128::from(100 + MORE)
    {
        return fails("the files take more than without headpond");
    }
    // Where nothing is written in place, an overwrite needs space. Which one gets the last of it is chance.
    if origin != TriedOrigin::Btrfs && through.0.overwritten < bare.0.overwritten.min(through.0.may_be_overwritten()) {
        return fails("what is there could not be overwritten");
    }
    Ok(())
}

/// An empty file system, but for what leaves no more than [`FREE_MIB`].
fn nearly_full(origin: TriedOrigin, place: &Path) -> Result<FileSystem> {
    // The smallest that mkfs makes.
    let mib = match origin {
        TriedOrigin::Xfs => 320,
        TriedOrigin::Btrfs => 256,
        _ => FREE_MIB + FREE_MIB / 2,
    };
    let fs = FileSystem::make(origin, place, mib)?;
    let ballast = fs.path().join("ballast");
    let free = free(fs.path())?;
    File::create(&ballast)
        .and_then(|file| {
            let len = free.saturating_sub(FREE_MIB * MIB).max(BLOCK);
            let mut at = 0;
            let piece = vec![1; MIB as usize];
            while at < len {
                file.write_all_at(&piece, at)?;
                at += piece.len() as u64;
            }
            file.sync_all()
        })
        .map_err(Failure::io(format!("writing {}", ballast.display())))?;
    fs.sync()?;
    Ok(fs)
}

pub(super) fn free(path: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(path);
    let found = found.map_err(|errno| Failure::Other(format!("looking at {}: {errno}", path.display())))?;
    Ok(found.f_bavail * found.f_frsize)
}

/// Fills it, removes every second file, fills it again, and overwrites some of the data.
fn story(fs: &FileSystem, dir: &Path, shape: Shape, flush: impl Fn() -> Result<()>) -> Result<Filled> {
    let mut filled = Filled { shape, files: Vec::new(), told: "", first: 0, overwritten: 0 };
    let mut random = 7;
    filled.fill(dir, "a", &mut random)?;
    filled.first = filled.bytes();
    flush()?;
    let mut number = 0;
    for written in &filled.files {
        number += 1;
        if number % 2 == 1 {
            let path = dir.join(&written.name);
            fs::remove_file(&path).map_err(Failure::io(format!("removing {}", path.display())))?;
        }
    }
    number = 0;
    filled.files.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    let before = filled.bytes();
    flush()?;
    fs.sync()?;
    filled.fill(dir, "b", &mut random)?;
    if filled.bytes() <= before {
        return Err(Failure::Other("what was removed made no room".to_owned()));
    }
    filled.overwrite(dir)?;
    Ok(filled)
}

impl Filled {
    /// Writes files until there is no space.
    fn fill(&mut self, dir: &Path, prefix: &str, random: &mut u64) -> Result<()> {
        for number in 0.. {
            let seed = next(random) | 1;
            let bytes = match self.shape {
                Shape::Appends => APPENDED_MAX,
                Shape::Small => 1 + below(random, SMALL_MAX),
                Shape::Holes => BLOCKS_MAX * BLOCK,
            };
            let mut written =
                Written { name: format!("{prefix}{number}"), seed, again: None, bytes: 0, doubtful: false };
            let path = dir.join(&written.name);
            let file = match File::options().write(true).create_new(true).open(&path) {
                Ok(file) => file,
                Err(error) => return self.ends("create", &error, &path),
            };
            let ended = written.write(self.shape, &file, bytes);
            self.files.push(written);
            match ended {
                Ok(()) => {}
                Err((told, error)) => return self.ends(told, &error, &path),
            }
        }
        Ok(())
    }

    fn ends(&mut self, told: &'static str, error: &io::Error, path: &Path) -> Result<()> {
        if error.raw_os_error() != Some(ENOSPC) {
            return Err(Failure::Other(format!("{told} of {}: {error}", path.display())));
        }
        if self.told.is_empty() {
            self.told = told;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.files.iter().filter(|written| !written.doubtful).map(|written| written.bytes).sum()
    }

    fn may_be_overwritten(&self) -> u64 {
        let long = self.files.iter().step_by(OVERWRITTEN).filter(|written| !written.doubtful && written.bytes >= BLOCK);
        long.count() as u64 * BLOCK
    }

    /// Overwrites the first block of some files, as far as that is taken.
    fn overwrite(&mut self, dir: &Path) -> Result<()> {
        for written in self.files.iter_mut().step_by(OVERWRITTEN) {
            if written.doubtful || written.bytes < BLOCK {
                continue;
            }
            let path = dir.join(&written.name);
            let file = File::options().write(true).open(&path);
            let file = file.map_err(Failure::io(format!("opening {}", path.display())))?;
            let seed = written.seed ^ 2;
            let block = pattern(seed, 0, BLOCK);
            let taken = file.write_at(&block, 0);
            let synced = file.sync_all();
            match (taken, synced) {
                (Ok(bytes), Ok(())) if bytes as u64 == BLOCK => {
                    written.again = Some(seed);
                    self.overwritten += BLOCK;
                }
                (Err(error), Ok(())) if error.raw_os_error() == Some(ENOSPC) => {}
                (_, Err(error)) if error.raw_os_error() == Some(ENOSPC) => written.doubtful = true,
                (taken, synced) => {
                    return Err(Failure::Other(format!("overwriting {}: {taken:?}, {synced:?}", path.display())));
                }
            }
        }
        Ok(())
    }

    /// Every byte that was taken is there, and none that was not.
    fn compare(&self, dir: &Path) -> Result<()> {
        self.files.iter().try_for_each(|written| written.compare(self.shape, dir))
    }
}

impl Written {
    /// Writes it to its end, or up to where there is no space: where that was told.
    fn write(&mut self, shape: Shape, file: &File, bytes: u64) -> std::result::Result<(), (&'static str, io::Error)> {
        let mut ended = Ok(());
        while self.bytes < bytes {
            let (len, at) = match shape {
                Shape::Holes => (BLOCK, self.bytes / BLOCK * STRIDE),
                Shape::Appends | Shape::Small => (APPEND.min(bytes - self.bytes), self.bytes),
            };
            match file.write_at(&pattern(self.seed, self.bytes, len), at) {
                Ok(taken) => self.bytes += taken as u64,
                Err(error) => {
                    ended = Err(("write", error));
                    break;
                }
            }
            if self.bytes.is_multiple_of(SYNC_EVERY) && self.bytes < bytes {
                self.sync(file)?;
            }
        }
        self.sync(file)?;
        ended
    }

    fn sync(&mut self, file: &File) -> std::result::Result<(), (&'static str, io::Error)> {
        let synced = file.sync_all();
        self.doubtful = synced.is_err();
        synced.map_err(|error| ("fsync", error))
    }

    fn compare(&self, shape: Shape, dir: &Path) -> Result<()> {
        let path = dir.join(&self.name);
        let found = fs::read(&path).map_err(Failure::io(format!("reading {}", path.display())))?;
        if self.doubtful {
            return Ok(());
        }
        let mut expected = pattern(self.seed, 0, self.bytes);
        if shape == Shape::Holes {
            // The last one may have been taken in part.
            let mut spread = vec![0; (self.bytes / BLOCK * STRIDE + self.bytes % BLOCK) as usize];
            for (number, block) in expected.chunks(BLOCK as usize).enumerate() {
                let at = number * STRIDE as usize;
                spread.resize(spread.len().max(at + block.len()), 0);
                spread[at..at + block.len()].copy_from_slice(block);
            }
            let end = (self.bytes.saturating_sub(1) / BLOCK * STRIDE) as usize
                + (self.bytes.saturating_sub(1) % BLOCK + 1) as usize;
            spread.truncate(if self.bytes == 0 { 0 } else { end });
            expected = spread;
        }
        if let Some(seed) = self.again {
            expected[..BLOCK as usize].copy_from_slice(&pattern(seed, 0, BLOCK));
        }
        if found == expected {
            return Ok(());
        }
        let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        Err(Failure::Other(format!(
            "{} differs from what was taken: {} bytes instead of {}, the first that differs: {first:?}",
            path.display(),
            found.len(),
            expected.len()
        )))
    }
}

/// Bytes of a file by where they lie.
pub(super) fn pattern(seed: u64, at: u64, len: u64) -> Vec<u8> {
    let words = (at / 8)..(at + len).div_ceil(8);
    let bytes: Vec<u8> = words
        .flat_map(|word| {
            let mut state = seed ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            next(&mut state).to_le_bytes()
        })
        .collect();
    let skip = (at % 8) as usize;
    bytes[skip..skip + len as usize].to_vec()
}

/// What the files of a directory take on disk, in KiB.
fn taken(dir: &Path) -> Result<u64> {
    let doing = || format!("looking at {}", dir.display());
    let mut kib = 0;
    for entry in fs::read_dir(dir).map_err(Failure::io(doing()))? {
        let found = entry.and_then(|entry| entry.metadata()).map_err(Failure::io(doing()))?;
        kib += if found.is_file() { found.blocks() / 2 } else { 0 };
    }
    Ok(kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_depend_on_where_they_lie_and_on_nothing_else() {
        let all = pattern(3, 0, 1000);
        assert_eq!(pattern(3, 13, 500), all[13..513]);
        assert_ne!(pattern(4, 0, 1000), all);
    }

    #[test]
    fn a_byte_that_differs_is_found_and_a_hole_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        for shape in [Shape::Appends, Shape::Holes] {
            let mut written = Written { name: format!("{shape:?}"), seed: 5, again: None, bytes: 0, doubtful: false };
            let file = File::create(dir.path().join(&written.name)).expect("a file");
            written.write(shape, &file, 3 * BLOCK + 100).expect("written");
            written.compare(shape, dir.path()).expect("the same");
            file.write_all_at(&[0; 1], 2).expect("written");
            written.compare(shape, dir.path()).expect_err("another byte");
        }
    }
}
