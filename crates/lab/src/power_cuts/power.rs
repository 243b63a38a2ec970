//! The power of a machine with two disks. It is on until a chosen flush arrives, and then off for both at once.
//!
//! Invariants
//! - Both disks lose power at the same moment, between two requests. From then on no request gets an answer.
//! - The flush that the cut meets is not carried out.
//! - A cut needs something unflushed; otherwise it waits for the next flush.

use super::cache::{Odds, Piece, SECTOR, Unflushed, VolatileCache};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the disks write together, in sectors. The flash tears anywhere. The origin's disk has blocks of 4 KiB, as disks
/// have today: ext4 refuses to be mounted if its journal's last commit block is torn ("journal transaction is
/// corrupt"), with any cache or none.
const ORIGIN_ATOM: u64 = 8;
const FLASH_ATOM: u64 = 1;
/// A trim is lost or kept in pieces of so many sectors.
const TRIM_PIECE: usize = 512;

/// Which of the machine's disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Which {
    /// The disk with the origin's file system.
    Origin,
    /// The disk that is the pool.
    Flash,
}

impl Which {
    /// Both, in the order in which the machine has them.
    pub const BOTH: [Self; 2] = [Self::Origin, Self::Flash];

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::Flash => "flash",
        }
    }
}

/// When the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// Whose flushes count; those of both without it.
    pub disk: Option<Which>,
    /// How many more of them are carried out.
    pub flushes: u64,
    /// How many writes at least must be unflushed then: at that disk, or at both together.
    pub least: u64,
}

/// A power cut, as the disks saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Whose flush it met.
    pub met: Which,
    /// What each disk had unflushed, origin first.
    pub unflushed: [Unflushed; 2],
}

/// A disk: an image as its medium, and a volatile cache before it.
struct Disk {
    medium: File,
    sectors: u64,
    cache: VolatileCache,
    /// Whether flushes are answered and not carried out.
    lies: bool,
}

impl Disk {
    fn put(&self, pieces: &[Piece]) -> io::Result<()> {
        pieces.iter().try_for_each(|piece| self.medium.write_all_at(&piece.bytes, piece.sector * SECTOR as u64))
    }

    fn contains(&self, sector: u64, len: usize) -> io::Result<()> {
        let end = sector.checked_add((len / SECTOR) as u64);
        let inside = len.is_multiple_of(SECTOR) && end.is_some_and(|end| end <= self.sectors);
        if inside { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

struct State {
    disks: [Disk; 2],
    trigger: Option<Trigger>,
    random: u64,
    cut: Option<Cut>,
}

/// What the power's being off makes of a request: it is never answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Off;

/// The outcome of a request: its answer, unless the power is off.
pub type DiskAnswer<T> = Result<io::Result<T>, Off>;

/// The power, and the disks that hang on it.
pub struct Power(Mutex<State>);

impl Power {
    /// Switches it on. The images are those of origin and flash; `seed` decides what a cut leaves.
    pub fn on(images: [&Path; 2], seed: u64) -> io::Result<Self> {
        let disk = |image: &Path, atom: u64| {
            let medium = File::options().read(true).write(true).open(image)?;
            let sectors = medium.metadata()?.len() / SECTOR as u64;
            Ok::<_, io::Error>(Disk { medium, sectors, cache: VolatileCache::new(atom), lies: false })
        };
        let disks = [disk(images[0], ORIGIN_ATOM)?, disk(images[1], FLASH_ATOM)?];
        Ok(Self(Mutex::new(State { disks, trigger: None, random: seed, cut: None })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this disk answers flushes and carries none out.
    pub fn lie(&self, which: Which) {
        self.state().disks[which as usize].lies = true;
    }

    /// Decides when it goes.
    pub fn arm(&self, trigger: Trigger) {
        self.state().trigger = Some(trigger);
    }

    /// The cut, if it has come.
    pub fn cut(&self) -> Option<Cut> {
        self.state().cut
    }

    /// How large a disk is, in sectors.
    pub fn sectors(&self, which: Which) -> u64 {
        self.state().disks[which as usize].sectors
    }

    /// Fills `bytes` from `sector` on.
    pub fn read(&self, which: Which, sector: u64, bytes: &mut [u8]) -> DiskAnswer<()> {
        let state = self.state();
        let disk = &state.disks[which as usize];
        if state.cut.is_some() {
            return Err(Off);
        }
        Ok(disk.contains(sector, bytes.len()).and_then(|()| {
            disk.medium.read_exact_at(bytes, sector * SECTOR as u64)?;
            disk.cache.overlay(sector, bytes);
            Ok(())
        }))
    }

    /// Trims these sectors: they read as zeros once the trim is on the medium.
    pub fn trim(&self, which: Which, sector: u64, sectors: u64) -> DiskAnswer<()> {
        let end = sector.saturating_add(sectors);
        if end > self.sectors(which) {
            return Ok(Err(io::ErrorKind::InvalidInput.into()));
        }
        for sector in (sector..end).step_by(TRIM_PIECE) {
            let bytes = vec![0; TRIM_PIECE.min((end - sector) as usize) * SECTOR];
            if let outcome @ (Err(Off) | Ok(Err(_))) = self.write(which, Piece { sector, bytes, trim: true }) {
                return outcome;
            }
        }
        Ok(Ok(()))
    }

    /// Takes a write into the disk's cache.
    pub fn write(&self, which: Which, piece: Piece) -> DiskAnswer<()> {
        let mut state = self.state();
        if state.cut.is_some() {
            return Err(Off);
        }
        let disk = &mut state.disks[which as usize];
        Ok(disk.contains(piece.sector, piece.bytes.len()).and_then(|()| {
            let over = disk.cache.write(piece);
            disk.put(&over)
        }))
    }

    /// Flushes the disk's cache to its medium, unless the power is gone.
    pub fn flush(&self, which: Which) -> DiskAnswer<()> {
        let state = &mut *self.state();
        if state.cut.is_some() {
            return Err(Off);
        }
        let unflushed = state.disks.each_ref().map(|disk| disk.cache.unflushed());
        if let Some(trigger) = &mut state.trigger
            && trigger.disk.is_none_or(|disk| disk == which)
        {
            let to_lose = trigger.disk.map_or(unflushed[0] + unflushed[1], |disk| unflushed[disk as usize]);
            if trigger.flushes == 0 && to_lose >= trigger.least.max(1) {
                state.lose(which).map_err(|_| Off)?;
                return Err(Off);
            }
            trigger.flushes = trigger.flushes.saturating_sub(1);
        }
        let disk = &mut state.disks[which as usize];
        if disk.lies {
            return Ok(Ok(()));
        }
        let pieces = disk.cache.flush();
        Ok(disk.put(&pieces))
    }
}

impl State {
    fn lose(&mut self, met: Which) -> io::Result<()> {
        let mut unflushed = [Unflushed::default(); 2];
        for (disk, unflushed) in self.disks.iter_mut().zip(&mut unflushed) {
            let odds = Odds::choose(&mut self.random);
            let (left, lost) = disk.cache.cut(odds, &mut self.random);
            disk.put(&left)?;
            *unflushed = lost;
        }
        self.cut = Some(Cut { met, unflushed });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn images(directory: &Path) -> [PathBuf; 2] {
        Which::BOTH.map(|which| {
            let path = directory.join(which.name());
            std::fs::write(&path, vec![0; 64 * SECTOR]).expect("a file");
            path
        })
    }

    fn write(power: &Power, which: Which, sector: u64) -> DiskAnswer<()> {
        power.write(which, Piece { sector, bytes: vec![7; SECTOR], trim: false })
    }

    fn power(images: &[PathBuf; 2]) -> Power {
        Power::on([&images[0], &images[1]], 1).expect("images")
    }

    #[test]
    fn flushed_writes_are_on_the_medium_and_the_flush_that_meets_the_cut_is_not_carried_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let images = images(directory.path());
        let power = power(&images);
        power.arm(Trigger { disk: Some(Which::Flash), flushes: 1, least: 1 });
        for which in Which::BOTH {
            assert!(matches!(write(&power, which, 3), Ok(Ok(()))));
        }
        assert!(matches!(power.flush(Which::Flash), Ok(Ok(()))));
        assert_eq!(power.cut(), None);
        assert!(matches!(write(&power, Which::Flash, 4), Ok(Ok(()))));
        assert!(matches!(power.flush(Which::Flash), Err(Off)));
        let cut = power.cut().expect("it has come");
        assert_eq!((cut.met, cut.unflushed.map(|unflushed| unflushed.writes)), (Which::Flash, [1, 1]));
        assert_eq!(std::fs::read(&images[1]).expect("a file")[3 * SECTOR], 7);
        for outcome in [
            power.flush(Which::Origin),
            write(&power, Which::Origin, 1),
            power.read(Which::Origin, 0, &mut [0; SECTOR]),
        ] {
            assert!(matches!(outcome, Err(Off)), "the power is off for both");
        }
    }

    #[test]
    fn a_flush_with_nothing_to_lose_anywhere_lets_the_cut_wait() {
        let directory = tempfile::tempdir().expect("a directory");
        let power = power(&images(directory.path()));
        power.arm(Trigger { disk: None, flushes: 0, least: 1 });
        assert!(matches!(power.flush(Which::Flash), Ok(Ok(()))));
        assert!(matches!(write(&power, Which::Origin, 1), Ok(Ok(()))));
        assert!(matches!(power.flush(Which::Flash), Err(Off)));
    }

    #[test]
    fn a_disk_that_lies_answers_flushes_and_carries_none_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let images = images(directory.path());
        let power = power(&images);
        power.lie(Which::Origin);
        assert!(matches!(write(&power, Which::Origin, 3), Ok(Ok(()))));
        assert!(matches!(power.flush(Which::Origin), Ok(Ok(()))));
        assert_eq!(std::fs::read(&images[0]).expect("a file")[3 * SECTOR], 0);
        power.arm(Trigger { disk: None, flushes: 0, least: 1 });
        assert!(matches!(power.flush(Which::Origin), Err(Off)), "what it lied about is still there to be lost");
    }

    #[test]
    fn trimmed_sectors_read_as_zeros_and_alone_are_nothing_to_lose() {
        let directory = tempfile::tempdir().expect("a directory");
        let power = power(&images(directory.path()));
        assert!(matches!(write(&power, Which::Flash, 9), Ok(Ok(()))));
        assert!(matches!(power.flush(Which::Flash), Ok(Ok(()))));
        power.arm(Trigger { disk: None, flushes: 0, least: 1 });
        assert!(matches!(power.trim(Which::Flash, 8, 4), Ok(Ok(()))));
        let mut bytes = [1; SECTOR];
        assert!(matches!(power.read(Which::Flash, 9, &mut bytes), Ok(Ok(()))));
        assert_eq!(bytes, [0; SECTOR]);
        assert!(matches!(power.flush(Which::Flash), Ok(Ok(()))));
        assert_eq!(power.cut(), None);
    }

    #[test]
    fn a_cut_waits_until_there_is_as_much_to_lose_as_it_wants() {
        let directory = tempfile::tempdir().expect("a directory");
        let power = power(&images(directory.path()));
        power.arm(Trigger { disk: Some(Which::Origin), flushes: 0, least: 2 });
        for (sector, off) in [(1, false), (2, false)] {
            assert!(matches!(write(&power, Which::Origin, sector), Ok(Ok(()))));
            assert_eq!(power.flush(Which::Origin).is_err(), off);
        }
        assert!(matches!(write(&power, Which::Origin, 1), Ok(Ok(()))));
        assert!(matches!(write(&power, Which::Origin, 2), Ok(Ok(()))));
        assert!(power.flush(Which::Origin).is_err());
    }

    #[test]
    fn a_request_beyond_the_end_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let power = power(&images(directory.path()));
        assert!(matches!(write(&power, Which::Origin, 64), Ok(Err(_))));
        assert!(matches!(power.read(Which::Flash, u64::MAX, &mut [0; SECTOR]), Ok(Err(_))));
    }
}
