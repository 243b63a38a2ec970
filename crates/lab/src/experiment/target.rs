//! What an experiment runs on, as the user names it: `[NAME=]PLACE`.
//!
//! ```text
//! /slow                                       a directory: the lab works in a new one inside it
//! flash                                       a bare directory on the experiment's own flash, as headpond gets it
//! throttled:volume-200                        a bare directory on a disk that is really slow, as an origin gets it
//! /dev/sdb                                    a whole device; must be named with --destroy too
//! headpond:mode=write-back,origin=/slow,...   a mount that the lab makes; see the keys below
//! guest:bcache-write-back                     a cache, or none, in a guest of User Mode Linux; see below
//! model:tachion                               a modelled flash card, in modelled time (random writes only)
//! ```
//!
//! Keys of `headpond:`, all optional: `mode`; `origin` (a directory; without it a scratch directory behind a slow
//! disk); `disk` (which one: a model, `hdd-7200` unless said; `throttled:` and a profile, or keys joined with `+`, for
//! one that is really slow; `none` for the bare directory); `flash` (a directory, a
//! new file, or a device; without it a scratch file); `size` (in MiB, of a flash file); `memory` (the most that the
//! daemon may have in MiB, with the page cache of what it reads); `copy` (a peer on this host has a copy of what is
//! dirty, over a wire that adds so many microseconds to a round trip: `copy=0` is the loopback).
//!
//! `guest:` and one of `none`, `bcache-write-back`, `bcache-write-through`, `dm-cache`, `dm-writecache`, `headpond`; and
//! optionally `disk`, as above but throttled: `volume-200` unless said.

use crate::failure::{Failure, Result};
use crate::kernel_caches::GuestCache;
use crate::throttled::Throttle;
use headpond_models::DiskModel;
use headpond_models::flash::Model;
use std::path::PathBuf;

/// What makes an origin slow.
#[derive(Clone, PartialEq, Debug)]
pub enum SlowDisk {
    /// A model in front of it, by name: `headpond mount --model-disk`.
    Modelled(String),
    /// A disk of its own that serves at the pace of a throttle.
    Throttled(Throttle),
}

/// How a throttled disk begins, as the user writes it.
const THROTTLED: &str = "throttled:";

impl SlowDisk {
    /// The disk of this name; none for `none`.
    fn parse(name: &str) -> std::result::Result<Option<Self>, String> {
        if let Some(throttle) = name.strip_prefix(THROTTLED) {
            return throttle.parse().map(|throttle| Some(Self::Throttled(throttle)));
        }
        if name == "none" {
            return Ok(None);
        }
        name.parse::<DiskModel>()
            .map(|_| Some(Self::Modelled(name.to_owned())))
            .map_err(|error| format!("{error}, or {THROTTLED} and {}", Throttle::words()))
    }

    /// The model's name, if it is one.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        if let Self::Modelled(name) = self { Some(name) } else { None }
    }

    /// What throttles it, if it is throttled.
    #[must_use]
    pub fn throttle(&self) -> Option<&Throttle> {
        if let Self::Throttled(throttle) = self { Some(throttle) } else { None }
    }
}

/// Whether a disk of this name is really slow, and no model.
#[must_use]
pub fn is_throttled(disk: &str) -> bool {
    disk.starts_with(THROTTLED)
}

/// The target without the throttled disk that it names for its origin.
#[must_use]
pub fn without_throttled_disk(text: &str) -> String {
    let Some((name, keys)) = text.split_once("headpond:") else { return text.to_owned() };
    let is_other = |key: &&str| key.strip_prefix("disk=").is_none_or(|disk| !is_throttled(disk));
    let keys: Vec<&str> = keys.split(',').filter(is_other).collect();
    format!("{name}headpond:{}", keys.join(","))
}

/// The target in the user's words, on this disk, unless it names one itself, or where its origin is.
#[must_use]
pub fn on_disk(text: &str, disk: &str) -> String {
    if text.contains(GUEST) && !text.contains(",disk=") {
        return format!("{text},disk={}", disk.replace(',', "+"));
    }
    if is_throttled(disk)
        && let Some((name, _)) = text.split_once(THROTTLED).filter(|(name, _)| name.is_empty() || name.ends_with('='))
        && !name.contains(':')
    {
        return format!("{name}{disk}");
    }
    let Some((name, keys)) = text.split_once("headpond:") else { return text.to_owned() };
    let named = keys.split(',').any(|key| key.starts_with("disk=") || key.starts_with("origin="));
    // A comma ends a key of the target.
    let disk = disk.replace(',', "+");
    let comma = if keys.is_empty() { "" } else { "," };
    if named { text.to_owned() } else { format!("{name}headpond:{keys}{comma}disk={disk}") }
}

/// A mount that the lab makes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PondTarget {
    /// The cache mode.
    pub mode: String,
    /// The user's slow directory.
    pub origin: Option<PathBuf>,
    /// What makes the origin slow.
    pub disk: Option<SlowDisk>,
    /// The user's flash.
    pub flash: Option<PathBuf>,
    /// The size of a new flash file in MiB.
    pub size: Option<u32>,
    /// The most memory of the daemon in MiB, with the page cache of what it reads.
    pub memory: Option<u32>,
    /// What the wire to the host with a copy adds to a round trip, in microseconds. None: there is no copy.
    pub copy: Option<u32>,
}

/// A cache, or none, between an origin and flash in a guest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GuestTarget {
    /// Which one.
    pub cache: GuestCache,
    /// How slow the origin is.
    pub throttle: Throttle,
}

/// What it is.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// A directory, whatever is under it.
    Directory(PathBuf),
    /// A directory on the experiment's own flash, with nothing in front of it.
    Flash,
    /// A directory on a throttled disk, with nothing in front of it.
    Throttled(Throttle),
    /// A whole block device.
    Device(PathBuf),
    /// headpond in front of a directory.
    Headpond(PondTarget),
    /// A modelled flash card.
    Card(Model),
    /// A cache in a guest.
    Guest(GuestTarget),
}

/// What an experiment runs on.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// As the user wrote it.
    pub text: String,
}

const MODES: [&str; 4] = ["write-back", "write-through", "write-around", "pass-through"];
/// The longest wire: a round trip around the world.
const COPY_MOST: u32 = 1_000_000;
/// The experiment's own flash, by itself.
const FLASH: &str = "flash";
/// How a guest begins, as the user writes it.
const GUEST: &str = "guest:";
/// What a scratch origin is made to behave like, unless said otherwise.
const DISK: &str = "hdd-7200";

impl Target {
    /// Reads what the user wrote.
    pub fn parse(text: &str) -> Result<Self> {
        let named = text.split_once('=').filter(|(name, _)| !name.is_empty() && !name.contains(['/', ':']));
        let (name, place) = named.map_or((None, text), |(name, place)| (Some(name), place));
        let kind = Self::kind(place).map_err(|what| Failure::Other(format!("target '{text}': {what}")))?;
        let name = name.map_or_else(|| Self::own_name(&kind), str::to_owned);
        Ok(Self { name, kind, text: text.to_owned() })
    }

    fn own_name(kind: &Kind) -> String {
        match kind {
            Kind::Directory(path) | Kind::Device(path) => path.display().to_string(),
            Kind::Flash => FLASH.to_owned(),
            Kind::Throttled(_) => "throttled disk".to_owned(),
            Kind::Headpond(pond) => format!("headpond {}", pond.mode),
            Kind::Card(model) => format!("modelled {}", model.name),
            Kind::Guest(guest) => guest.cache.name().to_owned(),
        }
    }

    fn kind(place: &str) -> std::result::Result<Kind, String> {
        if let Some(rest) = place.strip_prefix("headpond:") {
            return Self::pond(rest).map(Kind::Headpond);
        }
        if let Some(rest) = place.strip_prefix(GUEST) {
            return Self::guest(rest).map(Kind::Guest);
        }
        if place == FLASH {
            return Ok(Kind::Flash);
        }
        if let Some(throttle) = place.strip_prefix(THROTTLED) {
            return throttle.parse().map(Kind::Throttled);
        }
        if place == "headpond" {
            return Self::pond("").map(Kind::Headpond);
        }
        if let Some(name) = place.strip_prefix("model:") {
            return name.parse().map(Kind::Card);
        }
        let path = PathBuf::from(place);
        if !path.is_absolute() {
            return Err(
                "a directory or device is named by its absolute path; others are flash, or begin with throttled:, headpond:, guest: or model:".to_owned()
            );
        }
        Ok(if place.starts_with("/dev/") && !path.is_dir() { Kind::Device(path) } else { Kind::Directory(path) })
    }

    fn guest(text: &str) -> std::result::Result<GuestTarget, String> {
        let (cache, disk) = text.split_once(",disk=").map_or((text, None), |(cache, disk)| (cache, Some(disk)));
        let throttle = match disk.map(SlowDisk::parse).transpose()?.flatten() {
            Some(SlowDisk::Throttled(throttle)) => throttle,
            None if disk.is_none() => Throttle::VOLUME_200,
            _ => return Err(format!("the origin of a guest is {THROTTLED} and {}", Throttle::words())),
        };
        crate::kernel_caches::can_pace(&throttle)?;
        Ok(GuestTarget { cache: cache.parse()?, throttle })
    }

    fn pond(text: &str) -> std::result::Result<PondTarget, String> {
        let mut pond = PondTarget { mode: "write-back".to_owned(), ..PondTarget::default() };
        let mut disk = None;
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("'{part}' is not of the form key=value"))?;
            match key {
                "mode" if MODES.contains(&value) => pond.mode = value.to_owned(),
                "mode" => return Err(format!("no mode is called '{value}': one of {}", MODES.join(", "))),
                "origin" => pond.origin = Some(PathBuf::from(value)),
                "flash" => pond.flash = Some(PathBuf::from(value)),
                "disk" => disk = Some(value.to_owned()),
                "size" => pond.size = Some(value.parse().map_err(|_| format!("size={value} is not a number of MiB"))?),
                "memory" => {
                    let memory = value.parse().ok().filter(|mib| *mib > 0);
                    pond.memory = Some(memory.ok_or_else(|| format!("memory={value} is not a number of MiB"))?);
                }
                "copy" => {
                    let added = value.parse().ok().filter(|added| *added <= COPY_MOST);
                    let why = || format!("copy={value} is not a number of microseconds, {COPY_MOST} at most");
                    pond.copy = Some(added.ok_or_else(why)?);
                }
                _ => return Err(format!("'{key}' is not one of mode, origin, disk, flash, size, memory, copy")),
            }
        }
        pond.disk = match disk {
            Some(disk) => SlowDisk::parse(&disk)?,
            None => pond.origin.is_none().then(|| SlowDisk::Modelled(DISK.to_owned())),
        };
        Ok(pond)
    }

    /// For people: what it is, beside its name.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Directory(path) => format!("the directory {}", path.display()),
            Kind::Flash => "a bare directory on the lab's own flash".to_owned(),
            Kind::Throttled(throttle) => format!("a bare directory on a throttled disk ({throttle})"),
            Kind::Device(path) => format!("the device {}, overwritten", path.display()),
            Kind::Card(model) => {
                format!("a modelled flash card, {:.1} % spare, in modelled time: no I/O is done", model.spare * 100.0)
            }
            Kind::Guest(guest) => {
                format!("{} in a guest, over an origin of {}", guest.cache.describe(), guest.throttle)
            }
            Kind::Headpond(pond) => {
                let origin =
                    pond.origin.as_ref().map_or("a scratch directory".to_owned(), |path| path.display().to_string());
                let disk = match &pond.disk {
                    Some(SlowDisk::Modelled(name)) => format!(" behind a modelled disk ({name})"),
                    Some(SlowDisk::Throttled(throttle)) => format!(" on a throttled disk ({throttle})"),
                    None => String::new(),
                };
                let flash = pond.flash.as_ref().map_or("a scratch file".to_owned(), |path| path.display().to_string());
                let memory = pond.memory.map_or(String::new(), |mib| format!(", at most {mib} MiB of memory"));
                let copy = match pond.copy {
                    Some(0) => ", with a copy at a peer over the loopback".to_owned(),
                    Some(added) => format!(", with a copy at a peer over a wire that adds {added} us"),
                    None => String::new(),
                };
                format!("headpond in {} over {origin}{disk}, flash: {flash}{memory}{copy}", pond.mode)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart_and_named() {
        let of = |text: &str| Target::parse(text).unwrap();
        assert_eq!(of("/slow").kind, Kind::Directory("/slow".into()));
        assert_eq!((of("nvme=/a=b").name.as_str(), of("/a=b").name.as_str()), ("nvme", "/a=b"));
        assert_eq!(of("/dev/sdz").kind, Kind::Device("/dev/sdz".into()));
        assert!(matches!(of("model:tachion").kind, Kind::Card(model) if model == Model::TACHION));
        let Kind::Headpond(pond) = of("a=headpond:mode=write-through,origin=/slow,flash=/nvme,size=900").kind else {
            panic!("a mount")
        };
        assert_eq!((pond.mode.as_str(), pond.size, pond.disk), ("write-through", Some(900), None));
        let Kind::Headpond(scratch) = of("headpond:mode=pass-through").kind else { panic!("a mount") };
        assert_eq!(scratch.disk.as_ref().and_then(SlowDisk::model), Some("hdd-7200"));
        let Kind::Headpond(slow) = of("headpond:disk=throttled:iops=200+mib=150,memory=512").kind else {
            panic!("a mount")
        };
        assert_eq!(slow.disk, Some(SlowDisk::Throttled(Throttle::VOLUME_200)));
        assert_eq!(of("slow=throttled:volume-200").kind, Kind::Throttled(Throttle::VOLUME_200));
        let Kind::Headpond(bare) = of("headpond:disk=none").kind else { panic!("a mount") };
        assert_eq!(bare.disk, None);
        let Kind::Guest(guest) = of("guest:dm-cache,disk=throttled:iops=100+mib=50").kind else { panic!("a guest") };
        assert_eq!((guest.cache, guest.throttle.iops), (GuestCache::DmCache, Some(100.0)));
        assert_eq!(of("guest:bcache-write-back").name, "bcache-write-back");
        let bounded = of("headpond:memory=256");
        assert!(matches!(&bounded.kind, Kind::Headpond(pond) if pond.memory == Some(256)));
        assert!(bounded.describe().contains("256 MiB"), "{}", bounded.describe());
        let copied = of("headpond:copy=200");
        assert!(copied.describe().contains("adds 200 us"), "{}", copied.describe());
    }

    #[test]
    fn a_disk_for_all_is_taken_by_targets_that_name_none() {
        for (text, expected) in [
            ("a=headpond:mode=write-back", "a=headpond:mode=write-back,disk=throttled:iops=200+mib=150"),
            ("headpond:", "headpond:disk=throttled:iops=200+mib=150"),
            ("headpond:disk=none", "headpond:disk=none"),
            ("headpond:origin=/slow", "headpond:origin=/slow"),
            ("/slow", "/slow"),
            ("a=guest:none", "a=guest:none,disk=throttled:iops=200+mib=150"),
            ("guest:none,disk=throttled:far", "guest:none,disk=throttled:far"),
            ("none=throttled:volume-3000", "none=throttled:iops=200,mib=150"),
        ] {
            assert_eq!(on_disk(text, "throttled:iops=200,mib=150"), expected);
        }
    }

    #[test]
    fn sides_that_share_a_throttled_disk_share_the_one_in_its_place() {
        let other = |text: &str| on_disk(&without_throttled_disk(text), "throttled:iops=9,mib=1");
        assert_eq!(other("bare=throttled:volume-200"), "bare=throttled:iops=9,mib=1");
        assert_eq!(
            other("a=headpond:mode=write-back,disk=throttled:volume-200,copy=0"),
            "a=headpond:mode=write-back,copy=0,disk=throttled:iops=9+mib=1"
        );
        assert_eq!(other("headpond:disk=throttled:far"), "headpond:disk=throttled:iops=9+mib=1");
        assert_eq!(other("a=headpond:disk=none"), "a=headpond:disk=none");
        assert_eq!(other("flash"), "flash");
    }

    #[test]
    fn what_is_wrong_is_told_with_what_there_is() {
        for (text, told) in [
            ("slow", "absolute"),
            ("headpond:mode=fast", "write-around"),
            ("headpond:colour=red", "origin"),
            ("headpond:disk=floppy", "hdd-10000"),
            ("headpond:disk=throttled:fast", "volume-3000"),
            ("headpond:memory=little", "MiB"),
            ("headpond:copy=yes", "microseconds"),
            ("model:unobtainium", "iodrive-duo"),
            ("guest:zfs", "dm-writecache"),
            ("guest:none,disk=hdd-7200", "volume-3000"),
            ("guest:none,disk=throttled:far", "latency"),
        ] {
            let error = Target::parse(text).expect_err(text).to_string();
            assert!(error.contains(told) && error.contains(text), "{error}");
        }
    }
}
