//! Promises 1 to 3 alone, on a real mount. A writer that hardly ever syncs is killed, and its daemon's flash loses
//! unsynced writes. Afterwards the files must be as they were after one of the writes, all files together. That write
//! may not be earlier than the last sync. No later write may be there without all earlier ones, and none in part.
//!
//! The kernel has one exception. If a write begins inside a page that its cache lacks, it comes as two requests:
//! first the part in that page, then the rest. Such a write counts as two here.
//!
//! Databases sync before they promise anything, so they would not notice a log that broke its order between two
//! syncs.

use crate::failure::{Failure, Result};
use crate::kill::FlashAtKill;
use crate::pond::{Headpond, Mount, Mounting};
use crate::random::{below, next};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files that are written in turns.
const FILES: usize = 4;
/// None grows beyond this.
const FILE_MAX: u64 = 4 << 20;
/// The longest write: with a start at any byte it is still one request of the kernel.
const WRITE_MAX: u64 = 512 << 10;
/// A sync of its file follows one of so many writes.
const SYNC_EVERY: u64 = 40;
/// One of so many changes makes a file shorter or longer instead.
const RESIZE_EVERY: u64 = 15;
/// The kill comes at most so long after the first write.
const LATEST: Duration = Duration::from_millis(700);

/// The kernel's page.
const PAGE: u64 = 4096;

/// A change of a file: one system call, or one of the requests that the kernel makes of it.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Of the bytes with this number, `len` from `skip` on.
    Write {
        file: usize,
        at: u64,
        skip: u64,
        len: u64,
        number: u64,
    },
    Resize {
        file: usize,
        size: u64,
    },
}

/// What a round showed.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Changes that were acknowledged.
    pub acknowledged: usize,
    /// Of those, changes that a sync covered.
    pub synced: usize,
    /// Changes that were there afterwards.
    pub survived: usize,
    /// Whether the flash lost what was not synced.
    pub lossy: bool,
}

/// Runs `rounds` in `directory`.
pub fn run(
    headpond: &Headpond,
    directory: &Path,
    rounds: u32,
    seed: u64,
    flash: FlashAtKill,
    each: impl FnMut(&Round),
) -> Result<()> {
    run_with(headpond, Mounting::below(directory, "96M")?, rounds, seed, flash, each)
}

/// The same with places of the caller's.
pub fn run_with(
    headpond: &Headpond,
    mut mounting: Mounting,
    rounds: u32,
    seed: u64,
    flash: FlashAtKill,
    mut each: impl FnMut(&Round),
) -> Result<()> {
    let mut random = seed;
    let mut state = vec![Vec::new(); FILES];
    for round in 0..rounds {
        mounting.fault = flash.fault(round, &mut random);
        let mount = headpond.mount(&mounting)?;
        let story = write_until_killed(mount, &mounting.mountpoint, &mut state.clone(), &mut random)?;
        let mount = headpond.mount(&mounting)?;
        let found = read_all(&mounting.mountpoint)?;
        let survived = story.prefix_that_is(&mut state, &found)?;
        mount.unmount_keep_dirty()?;
        let Story { acknowledged, synced, .. } = story;
        each(&Round { acknowledged, synced, survived, lossy: mounting.fault.is_some() });
    }
    Ok(())
}

/// What was done in a round; the last system call was not acknowledged any more.
struct Story {
    changes: Vec<Change>,
    acknowledged: usize,
    synced: usize,
}

/// Changes files until the daemon, which is killed by another thread, is gone.
fn write_until_killed(mount: Mount, root: &Path, state: &mut [Vec<u8>], random: &mut u64) -> Result<Story> {
    let files: Vec<File> = (0..FILES)
        .map(|file| File::options().read(true).write(true).create(true).truncate(false).open(path(root, file)))
        .collect::<io::Result<_>>()
        .map_err(Failure::io(format!("opening files in {}", root.display())))?;
    let after = LATEST.mul_f64(below(random, 1000) as f64 / 1000.0);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(after);
        mount.kill();
    });
    let mut story = Story { changes: Vec::new(), acknowledged: 0, synced: 0 };
    let start = Instant::now();
    loop {
        let change = choose(state, random);
        story.changes.extend(change.requests());
        if change.carry_out(&files).is_err() {
            break;
        }
        story.acknowledged = story.changes.len();
        change.apply(state);
        if below(random, SYNC_EVERY) == 0 && files[change.file()].sync_data().is_ok() {
            // In order: the sync of one file covers every change before it, of any file.
            story.synced = story.changes.len();
        }
        if start.elapsed() > Duration::from_secs(60) {
            return Err(Failure::Other("the daemon was killed, and its mount still takes writes".to_owned()));
        }
    }
    killer.join().map_err(|_| Failure::Other("the thread that kills panicked".to_owned()))?;
    Ok(story)
}

fn choose(state: &[Vec<u8>], random: &mut u64) -> Change {
    let file = below(random, FILES as u64) as usize;
    if below(random, RESIZE_EVERY) == 0 {
        return Change::Resize { file, size: below(random, FILE_MAX) };
    }
    // Mostly small, as databases write, and of any alignment half of the time.
    let limit = [4096, 16 << 10, 64 << 10, WRITE_MAX][below(random, 4) as usize];
    let (mut at, mut len) = (below(random, state[file].len() as u64 + 64 * 1024), 1 + below(random, limit));
    if below(random, 2) == 0 {
        (at, len) = (at / 4096 * 4096, len.next_multiple_of(4096));
    }
    let at = at.min(FILE_MAX - len);
    Change::Write { file, at, skip: 0, len, number: next(random) }
}

impl Change {
    fn file(&self) -> usize {
        match *self {
            Self::Write { file, .. } | Self::Resize { file, .. } => file,
        }
    }

    /// What the kernel may make of it.
    fn requests(&self) -> Vec<Self> {
        match *self {
            Self::Write { file, at, skip, len, number } if !at.is_multiple_of(PAGE) && at % PAGE + len > PAGE => {
                let first = PAGE - at % PAGE;
                let rest = Self::Write { file, at: at + first, skip: skip + first, len: len - first, number };
                vec![Self::Write { file, at, skip, len: first, number }, rest]
            }
            _ => vec![*self],
        }
    }

    fn carry_out(&self, files: &[File]) -> io::Result<()> {
        match *self {
            Self::Write { file, at, skip, len, number } => files[file].write_all_at(&bytes(skip, len, number), at),
            Self::Resize { file, size } => files[file].set_len(size),
        }
    }

    fn apply(&self, state: &mut [Vec<u8>]) {
        match *self {
            Self::Write { file, at, skip, len, number } => {
                let (start, end) = (at as usize, (at + len) as usize);
                if state[file].len() < end {
                    state[file].resize(end, 0);
                }
                state[file][start..end].copy_from_slice(&bytes(skip, len, number));
            }
            Self::Resize { file, size } => state[file].resize(size as usize, 0),
        }
    }
}

/// The bytes of a write, told from those of every other.
fn bytes(skip: u64, len: u64, number: u64) -> Vec<u8> {
    let mut state = number;
    let all = (0..(skip + len).div_ceil(8)).flat_map(|_| next(&mut state).to_le_bytes());
    all.skip(skip as usize).take(len as usize).collect()
}

fn path(root: &Path, file: usize) -> PathBuf {
    root.join(format!("file-{file}"))
}

fn read_all(root: &Path) -> Result<Vec<Vec<u8>>> {
    (0..FILES)
        .map(|file| {
            let path = path(root, file);
            fs::read(&path).map_err(Failure::io(format!("reading {}", path.display())))
        })
        .collect()
}

impl Story {
    /// How many of the changes make `state` what was found; it is that afterwards.
    fn prefix_that_is(&self, state: &mut Vec<Vec<u8>>, found: &[Vec<u8>]) -> Result<usize> {
        let mut same: Vec<bool> = state.iter().zip(found).map(|(state, found)| state == found).collect();
        let begin = state.clone();
        let mut survived = None;
        let mut at = Vec::new();
        for number in 0..=self.changes.len() {
            if let Some(change) = number.checked_sub(1).map(|before| self.changes[before]) {
                change.apply(state);
                same[change.file()] = state[change.file()] == found[change.file()];
            }
            for (file, _) in same.iter().enumerate().filter(|(_, same)| **same) {
                at.push((file, number));
            }
            // The longest prefix counts: a change may have changed nothing.
            if number >= self.synced && same.iter().all(|same| *same) {
                survived = Some(number);
            }
        }
        let Some(survived) = survived else {
            let each: Vec<String> = (0..FILES)
                .map(|file| describe(file, &at).unwrap_or_else(|| self.nearest(file, &begin, found)))
                .collect();
            return Err(Failure::Other(format!(
                "of {} changes, {} of them synced, no number gives what was found; {}",
                self.changes.len(),
                self.synced,
                each.join(", ")
            )));
        };
        found.clone_into(state);
        Ok(survived)
    }

    /// For a file that is as it never was: after which change it was nearest, and where it differs.
    fn nearest(&self, file: usize, begin: &[Vec<u8>], found: &[Vec<u8>]) -> String {
        let mut state = begin.to_vec();
        let mut best = (usize::MAX, String::new());
        for (number, change) in self.changes.iter().enumerate() {
            change.apply(&mut state);
            if change.file() != file || number + 50 < self.synced {
                continue;
            }
            let (was, is) = (&state[file], &found[file]);
            let differs = |at: &usize| was.get(*at) != is.get(*at);
            let places: Vec<usize> = (0..was.len().max(is.len())).filter(differs).collect();
            if let (Some(first), Some(last)) = (places.first(), places.last())
                && places.len() < best.0
            {
                let zeros = places.iter().all(|at| is.get(*at).is_none_or(|byte| *byte == 0));
                let words = format!(
                    "file {file} is as it never was, nearest to change {} ({change:?}): {} bytes differ between {first} and \
                     {last}{}, its size is {} and was {}",
                    number + 1,
                    places.len(),
                    if zeros { ", all zeros now" } else { "" },
                    is.len(),
                    was.len()
                );
                best = (places.len(), words);
            }
        }
        best.1
    }
}

/// After which changes one file was as it was found.
fn describe(file: usize, at: &[(usize, usize)]) -> Option<String> {
    let mut numbers = at.iter().filter(|(other, _)| *other == file).map(|(_, number)| number);
    let first = numbers.next()?;
    Some(format!("file {file} is as after change {first} to {}", numbers.next_back().unwrap_or(first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: usize, number: u64) -> Change {
        Change::Write { file, at: 0, skip: 0, len: 8, number }
    }

    #[test]
    fn a_write_that_begins_inside_a_page_counts_as_two_and_any_other_as_one() {
        let write = |at, len| Change::Write { file: 0, at, skip: 0, len, number: 9 };
        assert_eq!([write(0, 9000), write(4095, 1), write(8192, 4096)].map(|write| write.requests().len()), [1, 1, 1]);
        let (mut whole, mut parts) = (vec![Vec::new()], vec![Vec::new()]);
        write(4000, 5000).apply(&mut whole);
        let requests = write(4000, 5000).requests();
        requests.iter().for_each(|request| request.apply(&mut parts));
        assert_eq!((requests.len(), whole), (2, parts));
    }

    #[test]
    fn a_prefix_is_found_and_anything_else_is_refused() {
        let changes = vec![write(0, 1), write(1, 2), write(0, 3), write(1, 4)];
        let story = Story { changes: changes.clone(), acknowledged: 4, synced: 1 };
        let after = |count: usize| {
            let mut state = vec![Vec::new(); FILES];
            changes[..count].iter().for_each(|change| change.apply(&mut state));
            state
        };
        let judge = |found: &[Vec<u8>]| story.prefix_that_is(&mut vec![Vec::new(); FILES], found);
        assert_eq!(judge(&after(3)).expect("a prefix"), 3);
        assert!(judge(&after(0)).is_err(), "less than what was synced");
        let mut mixed = after(1);
        mixed[1] = after(4)[1].clone();
        assert!(judge(&mixed).is_err(), "a later write without an earlier one");
        let mut torn = after(3);
        torn[0][4..].fill(0);
        let said = judge(&torn).expect_err("half of a write").to_string();
        assert!(said.contains("file 0 is as it never was"), "{said}");
    }
}
