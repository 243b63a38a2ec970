//! Reads what the kernel tells of the host. It judges nothing, and changes nothing.
//!
//! Everything in `/proc`, `/sys` and `/dev` is read below a root, so tests read a made-up system.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use headpond_control::mounts;
use headpond_shard::SpaceKind;

use super::KnownFlash;

/// What the host tells.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Whether `/dev/fuse` opens, or the error.
    pub fuse: Result<(), ErrorKind>,
    /// Whether this process may mount by itself (`CAP_SYS_ADMIN`).
    pub may_mount: bool,
    /// Whether `fusermount3` is in the path.
    pub has_helper: bool,
    /// The kernel's version, such as `6.1.0-18-amd64`.
    pub release: Option<String>,
    /// `fs.fuse.max_pages_limit`. None before Linux 6.13, where it is 256.
    pub max_pages: Option<u64>,
    /// The kernel's clock source.
    pub clock: Option<String>,
    /// The most descriptors that a process may have; headpond raises its own limit to this.
    pub descriptors: Option<u64>,
}

/// What origin and flash tell.
#[derive(Clone, Debug)]
pub struct PlaceFacts {
    /// The origin.
    pub origin: PathBuf,
    /// The disks that have its data. Empty if the kernel does not tell.
    pub origin_disks: Vec<Disk>,
    /// How its file system keeps space.
    pub space: Option<SpaceKind>,
    /// Each device of the pool.
    pub flashes: Vec<FlashFacts>,
    /// Memory that programs can still have.
    pub available_bytes: Option<u64>,
    /// The memory nodes of the host.
    pub nodes: Vec<MemoryNode>,
}

/// A part of the host's memory, and the processors that are near.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryNode {
    /// Its number.
    pub number: u32,
    /// The numbers of its processors, as the kernel lists them: `0-7,16`.
    pub processors: String,
}

/// What one device of the pool tells.
#[derive(Clone, Debug)]
pub struct FlashFacts {
    /// The file or device.
    pub path: PathBuf,
    /// The disks below it. Empty if the kernel does not tell.
    pub disks: Vec<Disk>,
    /// Its size. None if there is nothing yet.
    pub bytes: Option<u64>,
    /// Whether it is a block device, and no file.
    pub is_device: bool,
    /// Bytes that its pool leaves unwritten. None if no mount says it.
    pub reserve_bytes: Option<u64>,
}

/// A disk, below partitions, mappings and loop devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disk {
    /// Its name in `/sys/block`.
    pub name: String,
    /// Whether it keeps writes in a volatile cache until a flush (`write back`).
    pub write_back: Option<bool>,
    /// Whether it takes a single write past that cache.
    pub fua: Option<bool>,
    /// Whether it turns.
    pub rotational: Option<bool>,
    /// Whether it takes discards: it can be told what holds nothing.
    pub discards: Option<bool>,
    /// The number of the memory node that it is near.
    pub node: Option<u32>,
}

/// The number of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// How many devices may lie on each other.
const LAYERS_MAX: usize = 8;

/// Reads the facts of the host.
pub fn host(root: &Path) -> HostFacts {
    let status = text(&root.join("proc/self/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    HostFacts {
        fuse: open_device(&root.join("dev/fuse")).map_err(|error| error.kind()),
        may_mount: effective.is_some_and(|set| set >> SYS_ADMIN & 1 == 1),
        has_helper: std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|at| at.join("fusermount3").is_file())),
        release: text(&root.join("proc/sys/kernel/osrelease")),
        max_pages: number(&root.join("proc/sys/fs/fuse/max_pages_limit")),
        clock: text(&root.join("sys/devices/system/clocksource/clocksource0/current_clocksource")),
        descriptors: descriptors(&text(&root.join("proc/self/limits")).unwrap_or_default()),
    }
}

/// Reads the facts of an origin and of flashes, which need not exist yet.
pub fn places(root: &Path, origin: &Path, flashes: &[KnownFlash]) -> PlaceFacts {
    let flash = |KnownFlash { path, reserve_bytes }: &KnownFlash| FlashFacts {
        path: path.clone(),
        disks: disks_of(root, path),
        bytes: flash_bytes(root, path),
        is_device: fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()),
        reserve_bytes: *reserve_bytes,
    };
    PlaceFacts {
        origin: origin.to_owned(),
        origin_disks: disks_of(root, origin),
        space: File::open(origin).ok().map(|directory| SpaceKind::of(&directory)),
        flashes: flashes.iter().map(flash).collect(),
        available_bytes: available(&text(&root.join("proc/meminfo")).unwrap_or_default()),
        nodes: nodes(root),
    }
}

/// The memory nodes that have processors, in order.
fn nodes(root: &Path) -> Vec<MemoryNode> {
    let listed = fs::read_dir(root.join("sys/devices/system/node")).into_iter().flatten().flatten();
    let node = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let processors = text(&entry.path().join("cpulist")).filter(|list| !list.is_empty())?;
        Some(MemoryNode { number, processors })
    };
    let mut nodes: Vec<MemoryNode> = listed.filter_map(node).collect();
    nodes.sort_by_key(|node| node.number);
    nodes
}

/// Opening makes no connection: a mount does that.
fn open_device(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open(path).map(drop)
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number<N: FromStr>(path: &Path) -> Option<N> {
    text(path)?.parse().ok()
}

/// The hard limit in `/proc/self/limits`.
fn descriptors(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let hard = line.split_whitespace().nth(1)?;
    if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
}

/// `MemAvailable` in `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

fn flash_bytes(root: &Path, flash: &Path) -> Option<u64> {
    let found = fs::metadata(flash).ok()?;
    if !found.file_type().is_block_device() {
        return Some(found.len());
    }
    // The kernel counts in sectors of 512 bytes, whatever the disk's are.
    Some(number::<u64>(&device_directory(root, found.rdev())?.join("size"))? << 9)
}

/// The disks that have a path's data.
fn disks_of(root: &Path, path: &Path) -> Vec<Disk> {
    let Some(directory) = device_of(path).and_then(|device| device_directory(root, device)) else { return Vec::new() };
    let mut names = BTreeSet::new();
    bottom(root, &directory, LAYERS_MAX, &mut names);
    names.into_iter().map(|name| disk(root, name)).collect()
}

/// The number of the device that a path is, or lies on.
fn device_of(path: &Path) -> Option<u64> {
    // What does not exist yet will lie where its directory does.
    let path = std::path::absolute(path).ok()?;
    let there = path.ancestors().find_map(|at| Some((fs::canonicalize(at).ok()?, fs::metadata(at).ok()?)));
    let (at, found) = there?;
    if found.file_type().is_block_device() {
        return Some(found.rdev());
    }
    if rustix::fs::major(found.dev()) != 0 {
        return Some(found.dev());
    }
    // btrfs and ZFS have numbers of their own: the table of mounts names the device.
    let around = mounts().into_iter().filter(|mount| at.starts_with(&mount.mountpoint));
    let nearest = around.max_by_key(|mount| mount.mountpoint.as_os_str().len())?;
    let source = fs::metadata(nearest.source).ok()?;
    source.file_type().is_block_device().then(|| source.rdev())
}

fn device_directory(root: &Path, device: u64) -> Option<PathBuf> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    fs::canonicalize(root.join("sys/dev/block").join(number)).ok()
}

/// Follows partitions, mappings (`slaves`) and loop devices down to disks.
fn bottom(root: &Path, directory: &Path, layers: usize, names: &mut BTreeSet<String>) {
    if directory.join("partition").exists()
        && let Some(whole) = directory.parent()
    {
        return bottom(root, whole, layers, names);
    }
    if layers > 0 {
        let slaves = fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
        let mut below: Vec<PathBuf> = slaves.filter_map(|slave| fs::canonicalize(slave.path()).ok()).collect();
        let file = text(&directory.join("loop/backing_file"));
        below.extend(file.and_then(|file| device_directory(root, device_of(Path::new(&file))?)));
        if !below.is_empty() {
            return below.iter().for_each(|below| bottom(root, below, layers - 1, names));
        }
    }
    names.extend(directory.file_name().map(|name| name.to_string_lossy().into_owned()));
}

fn disk(root: &Path, name: String) -> Disk {
    let directory = root.join("sys/block").join(&name);
    let queue = directory.join("queue");
    // It is the bus's device that has a node: some directories above the disk. -1 is none.
    let node = || {
        let own = fs::canonicalize(&directory).ok()?;
        own.ancestors().take_while(|at| at.starts_with(root)).find_map(|at| number(&at.join("numa_node")))
    };
    let flag = |of: &str| number::<u8>(&queue.join(of)).map(|value| value != 0);
    Disk {
        write_back: text(&queue.join("write_cache")).map(|cache| cache == "write back"),
        fua: flag("fua"),
        rotational: flag("rotational"),
        discards: number::<u64>(&queue.join("discard_max_bytes")).map(|most| most > 0),
        node: node(),
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_files_of_the_kernel_are_read() {
        let system = TempDir::new().unwrap();
        let root = system.path();
        assert_eq!(host(root).fuse, Err(ErrorKind::NotFound));
        for (file, text) in [
            ("dev/fuse", ""),
            ("proc/self/status", "Name:\ta\nCapEff:\t0000000000200000\n"),
            ("proc/self/limits", "Limit  Soft Hard\nMax open files            1024                 4096      files\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("proc/sys/fs/fuse/max_pages_limit", "64\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
        ] {
            write(root, file, text);
        }
        let found = host(root);
        assert_eq!((found.fuse, found.may_mount, found.descriptors), (Ok(()), true, Some(4096)));
        assert_eq!((found.release.as_deref(), found.max_pages), (Some("6.1.0-18-amd64"), Some(64)));
        assert_eq!(found.clock.as_deref(), Some("hpet"));
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
    }

    #[test]
    fn a_mapping_leads_through_partitions_to_the_disks() {
        let system = TempDir::new().unwrap();
        let root = &fs::canonicalize(system.path()).unwrap();
        for disk in ["sda", "sdb"] {
            write(root, &format!("sys/devices/{disk}/{disk}1/partition"), "1");
            write(root, &format!("sys/devices/{disk}/queue/write_cache"), "write back\n");
            write(root, &format!("sys/devices/{disk}/queue/fua"), "0\n");
            write(root, &format!("sys/devices/{disk}/queue/discard_max_bytes"), "0\n");
            write(root, &format!("sys/devices/{disk}/queue/rotational"), if disk == "sda" { "1\n" } else { "0\n" });
            fs::create_dir_all(root.join("sys/block")).unwrap();
            symlink(root.join("sys/devices").join(disk), root.join("sys/block").join(disk)).unwrap();
            fs::create_dir_all(root.join("sys/devices/dm-0/slaves")).unwrap();
            let part = format!("{disk}1");
            symlink(root.join("sys/devices").join(disk).join(&part), root.join("sys/devices/dm-0/slaves").join(part))
                .unwrap();
        }
        write(root, "sys/devices/sda/numa_node", "-1\n");
        let mut names = BTreeSet::new();
        bottom(root, &root.join("sys/devices/dm-0"), LAYERS_MAX, &mut names);
        let disks: Vec<Disk> = names.into_iter().map(|name| disk(root, name)).collect();
        let sda = Disk {
            name: "sda".into(),
            write_back: Some(true),
            fua: Some(false),
            rotational: Some(true),
            discards: Some(false),
            node: None,
        };
        assert_eq!(disks, [sda.clone(), Disk { name: "sdb".into(), rotational: Some(false), ..sda }]);
    }

    #[test]
    fn a_disk_is_near_the_node_of_its_bus_and_each_node_has_its_processors() {
        let system = TempDir::new().unwrap();
        let root = &fs::canonicalize(system.path()).unwrap();
        assert_eq!(nodes(root), []);
        for (file, text) in [
            ("sys/devices/system/node/node1/cpulist", "8-15\n"),
            ("sys/devices/system/node/node0/cpulist", "0-7\n"),
            ("sys/devices/system/node/node2/cpulist", "\n"),
            ("sys/devices/system/node/possible", "0-2\n"),
            ("sys/devices/pci0/numa_node", "1\n"),
            ("sys/devices/pci0/nvme/nvme0/nvme0n1/size", "1\n"),
        ] {
            write(root, file, text);
        }
        fs::create_dir_all(root.join("sys/block")).unwrap();
        symlink(root.join("sys/devices/pci0/nvme/nvme0/nvme0n1"), root.join("sys/block/nvme0n1")).unwrap();
        assert_eq!(disk(root, "nvme0n1".to_owned()).node, Some(1));
        let node = |number, processors: &str| MemoryNode { number, processors: processors.to_owned() };
        assert_eq!(nodes(root), [node(0, "0-7"), node(1, "8-15")], "memory alone serves nothing");
    }
}
