//! Says what the facts of a host mean for headpond, and what to do. Each function looks at nothing but its arguments.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use headpond_control::Size;
use headpond_shard::SpaceKind;

use super::HostFinding;
use super::read::{Disk, FlashFacts, HostFacts, MemoryNode, PlaceFacts};

/// The kernel sends again what a dead worker had not answered.
const SENDS_AGAIN: (u32, u32) = (6, 9);

/// Pages of a request of 1 MiB, from the start of a page.
const PAGES: u64 = 256;

/// Clocks that programs read without a call of the kernel.
const QUICK_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// Enough for any number of files.
const DESCRIPTORS: u64 = 1024;

/// The memory of the map of a full pool, in thousandths of the pool.
const MAP_PER_MILLE: u64 = 3;

/// What the facts of the host mean.
pub fn host(facts: &HostFacts) -> Vec<HostFinding> {
    vec![
        fuse(facts.fuse, facts.may_mount, facts.has_helper),
        kernel(facts.release.as_deref()),
        max_pages(facts.max_pages),
        clock(facts.clock.as_deref()),
        descriptors(facts.descriptors),
    ]
}

/// What the facts of origin and flash mean.
pub fn places(facts: &PlaceFacts) -> Vec<HostFinding> {
    let flashes = &facts.flashes;
    let mut all: Vec<HostFinding> = flashes.iter().flat_map(|one| [flash(one), spare(one)]).collect();
    all.push(disks(&facts.origin_disks, flashes));
    if flashes.len() > 1 {
        all.push(copies(flashes));
    }
    let bytes: Option<u64> = flashes.iter().map(|flash| flash.bytes).sum();
    all.extend([space(facts), memory(bytes, facts.available_bytes)]);
    if facts.nodes.len() > 1 {
        all.push(node(flashes, &facts.nodes));
    }
    all
}

fn good(name: &'static str, what: impl Into<String>) -> HostFinding {
    HostFinding { name, met: Some(true), what: what.into(), todo: None }
}

fn bad(name: &'static str, what: impl Into<String>, todo: impl Into<String>) -> HostFinding {
    HostFinding { name, met: Some(false), what: what.into(), todo: Some(todo.into()) }
}

fn unseen(name: &'static str, what: impl Into<String>, todo: Option<&str>) -> HostFinding {
    HostFinding { name, met: None, what: what.into(), todo: todo.map(str::to_owned) }
}

fn fuse(device: Result<(), ErrorKind>, may_mount: bool, has_helper: bool) -> HostFinding {
    const NAME: &str = "FUSE";
    const PASS: &str = "in a container, pass it in: --device /dev/fuse";
    match device {
        Err(ErrorKind::NotFound) => {
            bad(NAME, "there is no /dev/fuse: no mount works", format!("modprobe fuse; {PASS}"))
        }
        Err(ErrorKind::PermissionDenied) => {
            bad(NAME, "this user may not open /dev/fuse", format!("chmod 666 /dev/fuse, the usual mode; {PASS}"))
        }
        Err(error) => bad(NAME, format!("/dev/fuse does not open: {error}"), "modprobe fuse"),
        Ok(()) if !may_mount && !has_helper => bad(
            NAME,
            "this user may not mount, and there is no fusermount3",
            "install the package fuse3; in a container: --cap-add SYS_ADMIN",
        ),
        Ok(()) => good(NAME, "/dev/fuse opens"),
    }
}

fn kernel(release: Option<&str>) -> HostFinding {
    const NAME: &str = "kernel";
    let version = release.and_then(|release| {
        let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    let Some((release, version)) = release.zip(version) else {
        return unseen(NAME, "its version is not to be read", None);
    };
    if version < SENDS_AGAIN {
        return bad(
            NAME,
            format!("Linux {release} does not send requests again: headpond keeps two copies of each until its answer"),
            "Linux 6.9 or newer saves them",
        );
    }
    good(NAME, format!("Linux {release} sends requests again when a worker died"))
}

fn max_pages(limit: Option<u64>) -> HostFinding {
    const NAME: &str = "request size";
    match limit {
        Some(pages) if pages < PAGES => bad(
            NAME,
            format!("requests end at {} KiB, and longer writes can tear (docs/untorn.md)", pages * 4),
            "sysctl -w fs.fuse.max_pages_limit=257 before the mount; to keep it: the same in /etc/sysctl.d/",
        ),
        _ => good(NAME, "one request takes 1 MiB"),
    }
}

fn clock(source: Option<&str>) -> HostFinding {
    const NAME: &str = "clock";
    match source {
        None => unseen(NAME, "its source is not to be read", None),
        Some(source) if QUICK_CLOCKS.contains(&source) => good(NAME, format!("{source}, read without a system call")),
        Some(source) => bad(
            NAME,
            format!("{source}: each look at the time costs a system call"),
            "cat /sys/devices/system/clocksource/clocksource0/available_clocksource; if it has tsc, boot with \
             clocksource=tsc. If the kernel gave tsc up, dmesg says why",
        ),
    }
}

fn descriptors(limit: Option<u64>) -> HostFinding {
    const NAME: &str = "descriptors";
    match limit {
        None => unseen(NAME, "their limit is not to be read", None),
        Some(limit) if limit < DESCRIPTORS => bad(
            NAME,
            format!("a process may have {limit}: the mount opens files again and again, and may refuse some (ENFILE)"),
            "ulimit -Hn 1024 as root, or LimitNOFILE= of the service",
        ),
        Some(u64::MAX) => good(NAME, "without limit"),
        Some(limit) => good(NAME, format!("a process may have {limit}")),
    }
}

fn names(disks: &[Disk]) -> String {
    disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn flash(facts: &FlashFacts) -> HostFinding {
    const NAME: &str = "flash";
    let (path, below) = (facts.path.display(), &facts.disks);
    let of = |is: fn(&Disk) -> bool| below.iter().filter(|disk| is(disk)).cloned().collect::<Vec<_>>();
    if below.is_empty() {
        return unseen(NAME, format!("the kernel names no disk for {path}"), Some("use flash in this host"));
    }
    let (turning, volatile) = (of(|disk| disk.rotational == Some(true)), of(|disk| disk.write_back == Some(true)));
    if !turning.is_empty() {
        return bad(
            NAME,
            format!("{path} lies on {}, by its own word a turning disk", names(&turning)),
            "use an SSD. A virtual disk may say so wrongly",
        );
    }
    if !volatile.is_empty() {
        let fua =
            if volatile.iter().all(|disk| disk.fua == Some(true)) { "" } else { ", and takes no single write past it" };
        return bad(
            NAME,
            format!(
                "{} has a volatile write cache{fua}: no protection against power loss. Each sync waits until it has \
                 emptied the cache",
                names(&volatile)
            ),
            "use flash with power-loss protection: syncs are faster. A virtual disk has its host's protection",
        );
    }
    if below.iter().any(|disk| disk.write_back.is_none()) {
        return unseen(NAME, format!("{} does not tell of a write cache", names(below)), None);
    }
    good(NAME, format!("{}: what it has written survives a power loss, it says", names(below)))
}

/// Whether a card has room to work in when the pool is full. The kernel knows neither how much of its own it has, nor how
/// fast it is then.
fn spare(facts: &FlashFacts) -> HostFinding {
    const NAME: &str = "spare";
    let (path, below) = (facts.path.display(), &facts.disks);
    let refusing: Vec<Disk> = below.iter().filter(|disk| disk.discards == Some(false)).cloned().collect();
    if let Some(bytes) = facts.reserve_bytes.filter(|bytes| *bytes > 0) {
        return good(NAME, format!("{path} has {} that the pool leaves unwritten", Size(bytes)));
    }
    if below.iter().any(|disk| disk.rotational == Some(true)) {
        return good(NAME, "a turning disk needs none");
    }
    if !refusing.is_empty() {
        return unseen(
            NAME,
            format!(
                "{} takes no discards, so for a card all that was ever written is in use. Whether its writes slow down by \
                 that, the kernel does not tell",
                names(&refusing)
            ),
            Some(
                "if they do: --reserve 20% with a new pool or device; headpond pool shrink for one in use (docs/devices.md). A \
                 virtual disk may refuse what its host's card takes",
            ),
        );
    }
    if below.is_empty() || below.iter().any(|disk| disk.discards.is_none()) {
        return unseen(NAME, format!("the kernel does not tell whether {path} takes discards"), None);
    }
    if facts.is_device {
        return good(NAME, format!("{} takes discards: headpond says what it does not use", names(below)));
    }
    good(NAME, format!("{} takes discards: what its file system has free is spare after fstrim", names(below)))
}

/// The disks that are in both.
fn shared(one: &[Disk], other: &[Disk]) -> Vec<Disk> {
    one.iter().filter(|disk| other.iter().any(|other| other.name == disk.name)).cloned().collect()
}

/// Whether the kernel names the disks of each flash.
fn are_known(flashes: &[FlashFacts]) -> bool {
    flashes.iter().all(|flash| !flash.disks.is_empty())
}

fn disks(origin: &[Disk], flashes: &[FlashFacts]) -> HostFinding {
    const NAME: &str = "disks";
    let both = flashes.iter().map(|flash| (flash, shared(origin, &flash.disks))).find(|(_, both)| !both.is_empty());
    if let Some((flash, both)) = both {
        let which = if flashes.len() > 1 { flash.path.display().to_string() } else { "flash".to_owned() };
        return bad(
            NAME,
            format!("origin and {which} lie on one disk, {}: they share its speed, and its failure", names(&both)),
            "put the pool on another disk",
        );
    }
    if origin.is_empty() || !are_known(flashes) {
        return unseen(NAME, "the kernel does not name the disks of both: look whether they are two", None);
    }
    good(NAME, "origin and flash share none")
}

/// Whether the copies of dirty data survive the loss of any one disk.
fn copies(flashes: &[FlashFacts]) -> HostFinding {
    const NAME: &str = "copies";
    let pairs =
        flashes.iter().enumerate().flat_map(|(at, one)| flashes[at + 1..].iter().map(move |other| (one, other)));
    let met = pairs.map(|(one, other)| (one, other, shared(&one.disks, &other.disks)));
    if let Some((one, other, both)) = met.into_iter().find(|(_, _, both)| !both.is_empty()) {
        return bad(
            NAME,
            format!(
                "{} and {} lie on one disk, {}: if it fails, both copies of dirty data are lost, and each write goes to it \
                 twice",
                one.path.display(),
                other.path.display(),
                names(&both)
            ),
            "put one of them on another disk: headpond pool replace; or use one, with --mode write-through if its loss \
             must cost nothing",
        );
    }
    if !are_known(flashes) {
        return unseen(NAME, "the kernel does not name the disks of each flash: look whether they differ", None);
    }
    good(NAME, "each flash has disks of its own")
}

fn space(facts: &PlaceFacts) -> HostFinding {
    const NAME: &str = "origin";
    const ROOM: &str =
        "leave a sixteenth of it free, at most 64 MiB, beside twice what may be dirty (docs/operations.md)";
    let path = facts.origin.display();
    match facts.space {
        None => unseen(NAME, format!("{path} does not open"), Some("run the doctor as the user who mounts")),
        Some(SpaceKind::Keeps) => good(NAME, format!("{path} keeps space for what is dirty")),
        Some(SpaceKind::KeepsNone) => {
            bad(NAME, format!("{path} cannot keep space for what is dirty: headpond counts it"), ROOM)
        }
        Some(SpaceKind::Unsure) => {
            unseen(NAME, format!("{path} may not keep space for what is dirty: headpond counts it, too"), Some(ROOM))
        }
    }
}

fn memory(pool: Option<u64>, available: Option<u64>) -> HostFinding {
    const NAME: &str = "memory";
    let Some(pool) = pool else {
        return unseen(NAME, "the map takes up to 0.3 % of the pool, which is not there yet", None);
    };
    let Some(available) = available else { return unseen(NAME, "the kernel does not tell what is available", None) };
    let map = pool / 1000 * MAP_PER_MILLE;
    let what = format!("the map of the full pool takes up to {}; {} are available", Size(map), Size(available));
    if map > available {
        let fits = available / 2 / MAP_PER_MILLE * 1000;
        return bad(NAME, what, format!("more memory, or a pool with --size of at most {}", Size(fits)));
    }
    good(NAME, what)
}

/// On a host with several memory nodes: whether one of them has all of the flash.
fn node(flashes: &[FlashFacts], nodes: &[MemoryNode]) -> HostFinding {
    const NAME: &str = "node";
    let disks: Vec<&Disk> = flashes.iter().flat_map(|flash| &flash.disks).collect();
    let of: BTreeSet<Option<u32>> = disks.iter().map(|disk| disk.node).collect();
    let all = nodes.len();
    match of.into_iter().collect::<Vec<_>>()[..] {
        [Some(number)] if are_known(flashes) => match nodes.iter().find(|node| node.number == number) {
            Some(node) => unseen(
                NAME,
                format!("the flash is near memory node {number} of {all}, as are the processors {}", node.processors),
                Some(&format!("mount with --processors {}, and measure (docs/devices.md)", node.processors)),
            ),
            None => unseen(NAME, format!("the flash is near memory node {number}, which has no processors"), None),
        },
        [Some(_), Some(_), ..] => {
            good(NAME, format!("the flash is spread over memory nodes, of which there are {all}"))
        }
        _ => unseen(
            NAME,
            format!("the host has {all} memory nodes; the kernel does not tell which the flash is near"),
            None,
        ),
    }
}

#[cfg(test)]
mod tests;
