//! The machine's own counters, second by second beside the load's: processors, and the device under a target.

use super::record::{CacheReads, PondCounts, System};
use crate::pond::Mount;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the counters are read.
const EVERY: Duration = Duration::from_secs(1);
/// How often the watch looks whether it is over.
const LOOK: Duration = Duration::from_millis(50);
/// `/proc/diskstats` counts in these.
const SECTOR: u64 = 512;

/// Counters at one moment.
#[derive(Clone, Copy, Default)]
struct Moment {
    user: u64,
    system: u64,
    waiting: u64,
    all: u64,
    device: Option<Device>,
    flash: Option<Device>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Device {
    read: u64,
    written: u64,
    busy_ms: u64,
}

/// Reads the counters once a second until `over`. `path` lies on the device under the target, or is the device; `flash`
/// on that of a mount's flash. Of the processors those count that are named, or all.
pub fn watch(
    path: &Path,
    flash: Option<&Path>,
    mount: Option<&Mount>,
    cores: Option<&[usize]>,
    start: Instant,
    over: &AtomicBool,
) -> (Vec<System>, Vec<PondCounts>) {
    let number = |path: &Path| {
        let metadata = fs::metadata(path);
        metadata.map_or(0, |metadata| if metadata.rdev() != 0 { metadata.rdev() } else { metadata.dev() })
    };
    let devices = (number(path), flash.map(number));
    let (mut systems, mut ponds) = (Vec::new(), Vec::new());
    let (mut before, mut before_at) = (now(devices, cores), start.elapsed());
    let take_pond = |ponds: &mut Vec<PondCounts>| ponds.extend(mount.and_then(|mount| pond(mount, start)));
    take_pond(&mut ponds);
    loop {
        let next = before_at + EVERY;
        let mut ended = false;
        while start.elapsed() < next && !ended {
            std::thread::sleep(LOOK);
            ended = over.load(Ordering::Relaxed);
        }
        let (moment, at) = (now(devices, cores), start.elapsed());
        // A stump of a second says little, and a lot of it by chance.
        if at.saturating_sub(before_at) >= EVERY / 2 {
            systems.push(between(&before, &moment, (at - before_at).as_secs_f64(), at.as_secs_f64()));
            (before, before_at) = (moment, at);
        }
        take_pond(&mut ponds);
        if ended {
            return (systems, ponds);
        }
    }
}

/// What a guest told of itself once a second: lines `at SECONDS`, and after each the processors' line of `/proc/stat`,
/// those of `/proc/diskstats` for the origin's disk and for the flash, and seldom `reads FOUND MISSED`.
#[must_use]
pub fn told(text: &str) -> (Vec<System>, Vec<CacheReads>) {
    let (mut systems, mut reads) = (Vec::new(), Vec::new());
    let (mut start, mut before): (Option<f64>, Option<(f64, Moment)>) = (None, None);
    for sample in text.split("at ").skip(1) {
        let (at, lines) = sample.split_once('\n').unwrap_or((sample, ""));
        let Ok(at) = at.trim().parse::<f64>() else { continue };
        let at = at - *start.get_or_insert(at);
        let numbers = lines.lines().find_map(|line| line.strip_prefix("reads ")).map(str::split_whitespace);
        let numbers: Vec<u64> = numbers.into_iter().flatten().filter_map(|word| word.parse().ok()).collect();
        if let [found, missed] = numbers[..] {
            reads.push(CacheReads { at, found, missed });
        }
        if !lines.starts_with("cpu") {
            continue;
        }
        let mut moment = processors(lines, None);
        let named = |name: &str| lines.lines().find(|line| line.split_whitespace().nth(2) == Some(name));
        (moment.device, moment.flash) = (named("vda").and_then(disk_line), named("ubda").and_then(disk_line));
        if let Some((then, before)) = before.filter(|(then, _)| at > *then) {
            systems.push(between(&before, &moment, at - then, at));
        }
        before = Some((at, moment));
    }
    (systems, reads)
}

fn pond(mount: &Mount, start: Instant) -> Option<PondCounts> {
    // A mount that does not answer for a moment leaves a gap in a picture, and no more.
    let figures = mount.figures().ok()?;
    Some(PondCounts {
        at: start.elapsed().as_secs_f64(),
        hit_blocks: figures.hit_blocks,
        miss_blocks: figures.miss_blocks,
        origin_reads: figures.origin_reads,
        origin_writes: figures.origin_writes,
        origin_read_bytes: figures.origin_read_bytes,
        origin_write_bytes: figures.origin_write_bytes,
        dirty_blocks: figures.dirty_blocks,
        held_blocks: figures.held_blocks,
        stalls: figures.stalls,
    })
}

fn between(before: &Moment, now: &Moment, seconds: f64, at: f64) -> System {
    let all = now.all.saturating_sub(before.all).max(1) as f64;
    let share = |value: fn(&Moment) -> u64| value(now).saturating_sub(value(before)) as f64 / all;
    let device = before.device.zip(now.device);
    let rate = |value: fn(&Device) -> u64| {
        device.map_or(0.0, |(before, now)| value(&now).saturating_sub(value(&before)) as f64 / seconds)
    };
    let flash = before.flash.zip(now.flash);
    System {
        at,
        user: share(|moment| moment.user),
        system: share(|moment| moment.system),
        waiting: share(|moment| moment.waiting),
        device_read: rate(|device| device.read),
        device_written: rate(|device| device.written),
        device_busy: device.map(|_| (rate(|device| device.busy_ms) / 1000.0).min(1.0)),
        flash_written: flash.map(|(before, now)| now.written.saturating_sub(before.written) as f64 / seconds),
    }
}

/// Of a device and a flash.
fn now((device, flash): (u64, Option<u64>), cores: Option<&[usize]>) -> Moment {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut moment = processors(&text("/proc/stat"), cores);
    let disks = text("/proc/diskstats");
    moment.device = disk(&disks, device);
    moment.flash = flash.and_then(|flash| disk(&disks, flash));
    moment
}

/// Reads `cpu  user nice system idle iowait irq softirq steal ...`, or of some processors the lines `cpu0 ...`.
fn processors(stat: &str, cores: Option<&[usize]>) -> Moment {
    let names: Option<Vec<String>> = cores.map(|cores| cores.iter().map(|core| format!("cpu{core}")).collect());
    let mut ticks = [0; 8];
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        if names.as_ref().map_or(name == "cpu", |names| names.iter().any(|wanted| wanted == name)) {
            ticks.iter_mut().zip(words).for_each(|(sum, word)| *sum += word.parse().unwrap_or(0));
        }
    }
    let tick = |index: usize| ticks[index];
    Moment {
        user: tick(0) + tick(1),
        system: tick(2) + tick(5) + tick(6),
        waiting: tick(4),
        all: ticks.iter().sum(),
        device: None,
        flash: None,
    }
}

/// Reads `major minor name reads merged sectors ms writes merged sectors ms under-way busy-ms ...`.
fn disk(diskstats: &str, device: u64) -> Option<Device> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    diskstats.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words.get(index)?.parse::<u64>().ok();
        (number(0)? == u64::from(major) && number(1)? == u64::from(minor)).then_some(())?;
        disk_line(line)
    })
}

fn disk_line(line: &str) -> Option<Device> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| words.get(index)?.parse::<u64>().ok();
    Some(Device { read: number(5)? * SECTOR, written: number(9)? * SECTOR, busy_ms: number(12)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_time_is_split() {
        let before = processors("cpu  100 0 50 800 50 0 0 0 0 0\n", None);
        let after = processors("cpu  140 10 60 860 60 5 5 10 0 0\n", None);
        let system = between(&before, &after, 1.0, 1.0);
        let shares = [system.user, system.system, system.waiting].map(|share| (share * 150.0).round());
        assert_eq!(shares, [50.0, 20.0, 10.0]);
        assert_eq!(system.device_busy, None);
    }

    #[test]
    fn what_a_guest_told_is_as_if_seen_here() {
        let text = "at 100.0\ncpu  0 0 0 0 0 0 0 0 0 0\n 254 0 vda 1 0 8 0 0 0 0 0 0 0 0\n  98 0 ubda 0 0 0 0 0 0 0 0 0 0 0\nreads 1 2\n\
                    at 102.0\ncpu  50 0 50 100 0 0 0 0 0 0\n 254 0 vda 9 0 24 0 0 0 0 0 0 500 0\n  98 0 ubda 0 0 0 0 3 0 40 0 0 9 0\n\
                    at 102.5\nreads 5 4\n";
        let (systems, reads) = told(text);
        assert_eq!(systems.len(), 1);
        let system = &systems[0];
        assert_eq!((system.at, system.user, system.system), (2.0, 0.25, 0.25));
        assert_eq!((system.device_read, system.device_busy), (16.0 * 512.0 / 2.0, Some(0.25)));
        assert_eq!(system.flash_written, Some(40.0 * 512.0 / 2.0));
        let of = |at, found, missed| CacheReads { at, found, missed };
        assert_eq!(reads, [of(0.0, 1, 2), of(2.5, 5, 4)]);
        assert_eq!(told("").0, []);
    }

    #[test]
    fn of_some_processors_only_their_time_counts() {
        let text = "cpu  9 0 0 99 0 0 0 0 0 0\ncpu0 1 0 0 9 0 0 0 0\ncpu1 3 0 0 7 0 0 0 0\ncpu10 5 0 0 5 0 0 0 0\n";
        let of = |cores: &[usize]| processors(text, Some(cores));
        assert_eq!((of(&[1]).user, of(&[1]).all), (3, 10));
        assert_eq!((of(&[0, 10]).user, of(&[0, 10]).all), (6, 20));
    }

    #[test]
    fn the_device_is_found_by_its_number() {
        let text = "   8       0 sda 10 0 80 5 20 0 160 9 0 700 14 0 0 0 0 0 0\n 254       0 vda 1 0 8 0 2 0 16 0 0 30 0 0 0 0\n";
        let found = disk(text, rustix::fs::makedev(8, 0));
        assert_eq!(found, Some(Device { read: 80 * 512, written: 160 * 512, busy_ms: 700 }));
        assert_eq!(disk(text, rustix::fs::makedev(8, 1)), None);
    }
}
