//! A file's status, as the system and as the name layer write it; and names of open files.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use headpond_names::{DeviceNumber, FileKind, Found, Moment};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Statx, StatxFlags, StatxTimestamp};

use crate::outcome::ReplyOutcome;

/// A descriptor, or a name in a directory: itself, whatever it is.
pub(crate) const AS_NAMED: AtFlags = AtFlags::EMPTY_PATH.union(AtFlags::SYMLINK_NOFOLLOW).union(AtFlags::NO_AUTOMOUNT);

/// The status of a descriptor, or of a name in a directory: all fields that the mount needs anywhere, in one system
/// call.
pub(crate) fn stat(directory: impl AsFd, name: impl rustix::path::Arg) -> ReplyOutcome<Found> {
    raw_stat(directory, name, AS_NAMED).map(|found| found_of(&found))
}

/// The same in the system's form.
pub(crate) fn raw_stat(directory: impl AsFd, name: impl rustix::path::Arg, flags: AtFlags) -> ReplyOutcome<Statx> {
    rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// Turns the system's status into that of the name layer. Where the key counts, see
/// [`OriginTree::found`](crate::tree::OriginTree::found).
pub(crate) fn found_of(stat: &Statx) -> Found {
    let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Found {
        device: DeviceNumber { major: stat.stx_dev_major, minor: stat.stx_dev_minor },
        inode: stat.stx_ino,
        birth: has_birth.then(|| moment(stat.stx_btime)),
        kind: kind_of(FileType::from_raw_mode(RawMode::from(stat.stx_mode))),
        mode: u32::from(stat.stx_mode) & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        links: stat.stx_nlink,
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        block_size: stat.stx_blksize,
        stands_for: DeviceNumber { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor },
        atime: moment(stat.stx_atime),
        mtime: moment(stat.stx_mtime),
        ctime: moment(stat.stx_ctime),
    }
}

fn moment(time: StatxTimestamp) -> Moment {
    Moment { seconds: time.tv_sec, nanos: time.tv_nsec }
}

/// The kind of a file for the name layer.
pub(crate) const fn kind_of(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => FileKind::Unknown,
    }
}

pub(crate) const fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharacterDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Unknown => FileType::Unknown,
    }
}

pub(crate) fn is_same(one: &Found, other: &Found) -> bool {
    (one.device, one.inode) == (other.device, other.inode)
}

/// A name of an open file. Calls that take only paths reach the file itself by it, wherever it was moved, and even if
/// it is a symbolic link.
pub(crate) fn proc_path(open: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", open.as_raw_fd())
}

pub(crate) fn descriptor_path(open: &OwnedFd) -> ReplyOutcome<OsString> {
    let path = rustix::fs::readlink(proc_path(open), Vec::new())?;
    Ok(OsString::from_vec(path.into_bytes()))
}

/// A second descriptor for an open file, which only names it.
pub(crate) fn path_descriptor(file: &impl AsRawFd) -> ReplyOutcome<OwnedFd> {
    rustix::fs::open(proc_path(file), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// The mode of a new file.
pub(crate) fn mode_of(bits: u32) -> Mode {
    Mode::from_raw_mode(RawMode::from(bits) & 0o7777)
}

/// A device number from the 32-bit form that FUSE carries.
pub(crate) fn device_from(number: u32) -> u64 {
    rustix::fs::makedev((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xf_ff00))
}
