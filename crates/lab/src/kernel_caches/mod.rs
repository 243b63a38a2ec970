//! The kernel's caches and headpond side by side: one load after the other on the same slow origin and the same flash,
//! in a guest of User Mode Linux, whose kernel has them all.
//!
//! ```text
//! origin.img    HEADER, then ext4 with `data` and `checked`; copied for each run, served at the pace of a throttle
//! flash.img     empty, as large for each cache; the guest's `ubda`
//! ```
//!
//! The guest's script (`guest.sh`) sets a cache up, runs the load, and takes the cache away again.
//!
//! Invariants
//! - Each run has a guest of its own, the same bytes at the origin, and an empty cache.
//! - The origin is slow exactly while the load runs.
//! - A file written before the load is read back after it through the cache, and at the end from the origin alone. A
//!   byte that differs fails the run.
//! - What a run made is gone at its end: images, processes, sockets.

mod paced_disk;
mod processor_time;

pub use paced_disk::can_pace;

use crate::command;
use crate::failure::{Failure, Result};
use crate::fio::Job;
use crate::guest::Guest;
use crate::place;
use crate::throttled::Throttle;
use paced_disk::{PacedDisk, SERVER};
use processor_time::ProcessorTime;
use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;
use tempfile::TempDir;

/// Sectors before the origin's file system: bcache keeps its superblock there.
const HEADER: u64 = 2048;
const HEADER_MIB: u64 = HEADER / 2048;
/// The file that is verified, in MiB and by name.
const CHECKED_MIB: u32 = 8;
const CHECKED: &str = "checked";
/// The seed of its bytes before any run, which is none of a run's.
const SEED_BEFORE: u64 = 0;
/// Besides the data, and an eighth for ext4 itself.
const SPARE_MIB: u64 = 64;
/// bcache wants more than 512 buckets: 512 KiB each, its default, where the flash has that many.
const LARGE_FLASH_MIB: u64 = 512;
/// Below this no cache has room for its own notes.
pub const FLASH_MIN_MIB: u64 = 64;
/// dm-cache's notes: 16 bytes for each of its blocks of 64 KiB, and 4 MiB.
const METADATA_MIB: u64 = 4;
/// Samples of a second between two looks at what reads found.
const FOUND_EVERY: u32 = 5;
/// A guest may take so much longer than its load: it starts, verifies, and brings everything to the origin.
const BESIDE_LOAD_MAX: Duration = Duration::from_secs(300);
const MODULES: &[&str] = &["virtio_blk", "fuse", "bcache", "dm-mod", "dm-cache", "dm-cache-smq", "dm-writecache"];
/// What each program comes with.
const PACKAGES: [(&str, &str); 5] = [
    (SERVER, "qemu-system-common"),
    ("make-bcache", "bcache-tools"),
    ("dmsetup", "dmsetup"),
    ("mkfs.ext4", "e2fsprogs"),
    ("fio", "fio"),
];

/// What stands between origin and load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestCache {
    /// Nothing: the origin's file system.
    None,
    /// bcache in write-back.
    BcacheWriteBack,
    /// bcache in write-through.
    BcacheWriteThrough,
    /// dm-cache with its policy `smq`, in write-back.
    DmCache,
    /// dm-writecache.
    DmWritecache,
    /// headpond, with its default settings.
    Headpond,
}

impl GuestCache {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::BcacheWriteBack,
        Self::BcacheWriteThrough,
        Self::DmCache,
        Self::DmWritecache,
        Self::Headpond,
    ];

    /// Its name, also in the guest's script.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BcacheWriteBack => "bcache-write-back",
            Self::BcacheWriteThrough => "bcache-write-through",
            Self::DmCache => "dm-cache",
            Self::DmWritecache => "dm-writecache",
            Self::Headpond => "headpond",
        }
    }

    /// For people: what it is, and how it is set.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::None => "no cache, the origin's ext4 alone",
            Self::BcacheWriteBack => {
                "bcache in write-back (sequential_cutoff 0, writeback_percent 40, no congestion thresholds) below ext4"
            }
            Self::BcacheWriteThrough => {
                "bcache in write-through (sequential_cutoff 0, no congestion thresholds) below ext4"
            }
            Self::DmCache => "dm-cache in write-back (smq, blocks of 64 KiB) below ext4",
            Self::DmWritecache => "dm-writecache (blocks of 4 KiB) below ext4",
            Self::Headpond => "headpond in write-back (its defaults) over ext4",
        }
    }
}

impl FromStr for GuestCache {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::ALL.into_iter().find(|cache| cache.name() == text).ok_or_else(|| {
            format!("no cache of guests is called '{text}': one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// What this machine lacks for it, with the packages that have it.
#[must_use]
pub fn missing() -> Option<String> {
    let absent = PACKAGES.into_iter().filter(|(program, _)| !command::absent(&[program]).is_empty());
    let absent = absent.map(|(program, package)| format!("{program} (Debian: {package})"));
    let missing: Vec<String> = Guest::missing(&[]).into_iter().chain(absent).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// The bytes that each run begins with.
pub struct GuestOrigin {
    image: PathBuf,
}

impl GuestOrigin {
    /// Makes them in `scratch`: `data_mib` by `lay_out`, a command that fills the file of that name, and room for as
    /// much again in a file that grows.
    ///
    /// # Errors
    /// When something is missing (the error says what), or there is no room.
    pub fn make(scratch: &Path, data_mib: u64, lay_out: impl Fn(&Path) -> Command) -> Result<Self> {
        if let Some(missing) = missing() {
            return Err(Failure::Other(format!("for a guest with the kernel's caches this machine lacks: {missing}")));
        }
        let mib = data_mib * 2 + u64::from(CHECKED_MIB) + data_mib / 4 + SPARE_MIB;
        // The files, their image, and its copy; none of them has all its blocks.
        let tree = place::directory_in(scratch, data_mib * 3 + mib)?;
        command::run("writing the data", &mut lay_out(&tree.path().join("data")))?;
        // Bytes of before, so that what is stale is told from what is written in a run.
        let before = checked(SEED_BEFORE, false).write(tree.path(), CHECKED);
        command::run("writing the data", &mut { before })?;
        let image = scratch.join("origin.img");
        let file = File::create(&image).and_then(|file| file.set_len((HEADER_MIB + mib) << 20));
        file.map_err(Failure::io(format!("making {}", image.display())))?;
        let mut format = Command::new("mkfs.ext4");
        // Nothing that the file system would do later, while a load is measured; and blocks that every cache takes.
        let offset = format!("lazy_itable_init=0,lazy_journal_init=0,nodiscard,offset={}", HEADER * 512);
        format.args(["-q", "-F", "-b", "4096", "-E", &offset, "-d"]).arg(tree.path()).arg(&image);
        command::run("making the origin's file system", format.arg(format!("{mib}M")))?;
        Ok(Self { image })
    }
}

/// What a run needs.
pub struct GuestRun<'a> {
    /// What stands between.
    pub cache: GuestCache,
    /// How slow the origin is.
    pub throttle: Throttle,
    /// The flash, in MiB.
    pub flash_mib: u64,
    /// headpond's program.
    pub headpond: &'a Path,
    /// What runs: it works in the directory with the file `data`, and prints its result.
    pub load: &'a Command,
    /// How long that takes.
    pub takes: Duration,
    /// Decides the bytes that are verified; not 0 or 1.
    pub seed: u64,
}

/// What came of it.
pub struct GuestOutcome {
    /// What the load printed.
    pub printed: String,
    /// The guest's counters, once a second: see `guest.sh`.
    pub watched: String,
    /// The share of the load's time that the guest waited for a processor of this machine.
    pub waited: Option<f64>,
    /// The commands that made it.
    pub commands: Vec<(String, String)>,
}

impl GuestRun<'_> {
    /// Runs it in `scratch`, with a call of `tick` now and then.
    ///
    /// # Errors
    /// When the guest fails, or bytes differ.
    pub fn run(&self, origin: &GuestOrigin, scratch: &Path, tick: impl FnMut()) -> Result<GuestOutcome> {
        if self.flash_mib < FLASH_MIN_MIB {
            return Err(Failure::Other(format!(
                "a flash of {} MiB is too small for a guest's caches: {FLASH_MIN_MIB} at least",
                self.flash_mib
            )));
        }
        let images = place::directory_in(scratch, self.flash_mib)?;
        let (disk, flash) = (images.path().join("origin.img"), images.path().join("flash.img"));
        let mut copy = Command::new("cp");
        command::run(
            "copying the origin",
            copy.args(["--sparse=always", "--reflink=auto"]).arg(&origin.image).arg(&disk),
        )?;
        let made = File::create(&flash).and_then(|file| file.set_len(self.flash_mib << 20));
        made.map_err(Failure::io(format!("making {}", flash.display())))?;
        let outside = Outside::make()?;
        let paced = RefCell::new(PacedDisk::serve(&disk, outside.directory.path())?);
        let guest = self.guest(&outside, &flash, paced.borrow().socket())?;
        let (tick, answered, verified) = (RefCell::new(tick), RefCell::new(Ok(())), RefCell::new(false));
        let enough = || {
            (tick.borrow_mut())();
            answered.borrow().is_err()
        };
        let answer = |throttle: Option<&Throttle>, word: &str| {
            let paced = paced.borrow_mut().pace(throttle).and_then(|()| outside.say(word));
            if paced.is_err() {
                let _ = answered.replace(paced);
            }
        };
        let (mut began, mut waited) = (ProcessorTime::default(), None);
        let ended = guest.watch_until(enough, |group, line| match line {
            "READY" => {
                began = ProcessorTime::of_group(group);
                answer(Some(&self.throttle), "begin");
            }
            "LOADED" => {
                waited = ProcessorTime::of_group(group).waited_since(&began);
                answer(None, "end");
            }
            "VERIFIED" => drop(verified.replace(true)),
            _ => {}
        });
        answered.into_inner()?;
        ended?;
        if !verified.into_inner() {
            return Err(Failure::Other(format!("{}: nothing says that its bytes were verified", self.cache.name())));
        }
        let commands = vec![
            ("origin".to_owned(), format!("{} ({})", paced.borrow().typed(), self.throttle)),
            ("guest".to_owned(), format!("{}, set up by the lab's kernel_caches/guest.sh", self.cache.describe())),
            ("load".to_owned(), command::typed(self.load)),
        ];
        Ok(GuestOutcome { printed: outside.read("load")?, watched: outside.read("watched")?, waited, commands })
    }

    fn guest(&self, outside: &Outside, flash: &Path, socket: &Path) -> Result<Guest> {
        let checked = checked(self.seed, true);
        let here = Path::new(".");
        let program =
            self.headpond.canonicalize().map_err(Failure::io(format!("looking for {}", self.headpond.display())))?;
        let bucket = if self.flash_mib < LARGE_FLASH_MIB { "64k" } else { "512k" };
        let metadata = METADATA_MIB + (self.flash_mib * 16 * 16).div_ceil(1 << 20).max(1);
        Ok(Guest {
            directory: outside.directory.path().to_owned(),
            modules: MODULES,
            disk: Some(flash.to_owned()),
            sockets: vec![socket.to_owned()],
            script: include_str!("guest.sh").to_owned(),
            environment: vec![
                ("SIDE", self.cache.name().to_owned()),
                ("OUT", outside.told().display().to_string()),
                ("HEADER", HEADER.to_string()),
                ("BUCKET", bucket.to_owned()),
                ("METADATA_MIB", metadata.to_string()),
                ("FOUND_EVERY", FOUND_EVERY.to_string()),
                ("HEADPOND", program.display().to_string()),
                ("LOAD", command::typed(self.load)),
                ("WRITE_CHECKED", command::typed(&checked.write(here, CHECKED))),
                ("READ_CHECKED", command::typed(&checked.verify(here, CHECKED))),
            ],
            limit: self.takes + BESIDE_LOAD_MAX,
        })
    }
}

/// How the file is written that is verified.
fn checked(seed: u64, direct: bool) -> Job {
    Job { mib: CHECKED_MIB, request: 16 << 10, random: true, direct, sync_every: 0, seed }
}

/// Where guest and lab meet: the guest's scripts, the disk's sockets, and files that the guest writes. A guest hides
/// some places behind its own, such as `/dev/shm`; this one it sees.
struct Outside {
    directory: TempDir,
}

impl Outside {
    fn make() -> Result<Self> {
        let made = Self { directory: place::directory_in(Path::new("/var/tmp"), 1)? };
        fs::create_dir(made.told()).map_err(Failure::io("making a directory for what the guest tells"))?;
        Ok(made)
    }

    fn told(&self) -> PathBuf {
        self.directory.path().join("told")
    }

    fn say(&self, word: &str) -> Result<()> {
        fs::write(self.told().join(word), "").map_err(Failure::io("telling the guest to go on"))
    }

    fn read(&self, name: &str) -> Result<String> {
        let path = self.told().join(name);
        fs::read_to_string(&path).map_err(Failure::io(format!("reading {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cache_is_found_by_its_name_and_known_to_the_script() {
        for cache in GuestCache::ALL {
            assert_eq!(cache.name().parse(), Ok(cache));
            let name = cache.name();
            assert!(include_str!("guest.sh").contains(&format!("\n    {name})")), "{name}");
        }
        assert!("zfs".parse::<GuestCache>().is_err_and(|why| why.contains("dm-writecache")));
    }
}
