//! What the origin says about a file.

use headpond_base::UnixNanos;
use headpond_format::Stamp;

const SECOND: i128 = 1_000_000_000;

/// A point in time, as file systems write it.
///
/// Invariant: a time in the years 1677 to 2262 survives the way to [`UnixNanos`] and back to the nanosecond. A time
/// outside becomes the end of that range, and never wraps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// The nanoseconds after that, less than a second.
    pub nanos: u32,
}

impl Moment {
    /// The time in the engine's form.
    #[must_use]
    pub fn unix_nanos(self) -> UnixNanos {
        let exact = i128::from(self.seconds) * SECOND + i128::from(self.nanos);
        UnixNanos(i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl From<UnixNanos> for Moment {
    fn from(time: UnixNanos) -> Self {
        let second = SECOND as i64;
        let nanos = u32::try_from(time.0.rem_euclid(second)).expect("less than a second");
        Self { seconds: time.0.div_euclid(second), nanos }
    }
}

/// A file system of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DeviceNumber {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

/// A file of the origin's own device, for as long as the origin has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileKey {
    /// Inode number.
    pub inode: u64,
    /// Birth time, which tells a reused inode number; 0 where the origin has none.
    pub birth: UnixNanos,
}

impl FileKey {
    /// The birth time of a file where the origin keeps none.
    pub const NO_BIRTH: UnixNanos = UnixNanos(0);
}

/// The kind of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FileKind {
    /// A regular file.
    #[default]
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A pipe with a name.
    Fifo,
    /// A socket.
    Socket,
    /// A device of characters.
    CharacterDevice,
    /// A device of blocks.
    BlockDevice,
    /// None of these.
    Unknown,
}

/// What the origin says about an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// The file system that it is on.
    pub device: DeviceNumber,
    /// Its inode number.
    pub inode: u64,
    /// Its birth time, if the file system keeps one.
    pub birth: Option<Moment>,
    /// Its kind.
    pub kind: FileKind,
    /// Permissions, with the set-user-id, set-group-id and sticky bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// How many names it has.
    pub links: u32,
    /// Its size in bytes.
    pub size: u64,
    /// Its space, in units of 512 bytes.
    pub blocks: u64,
    /// The best size of a request, in bytes.
    pub block_size: u32,
    /// The device that it stands for, if it is one.
    pub stands_for: DeviceNumber,
    /// Its last read.
    pub atime: Moment,
    /// The last change of its content.
    pub mtime: Moment,
    /// The last change of its status.
    pub ctime: Moment,
}

impl Found {
    /// The file's name under which the engine knows it.
    #[must_use]
    pub fn key(&self) -> FileKey {
        FileKey { inode: self.inode, birth: self.birth.map_or(FileKey::NO_BIRTH, Moment::unix_nanos) }
    }

    /// What the engine compares at the next start.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp { size: self.size, mtime: self.mtime.unix_nanos(), ctime: self.ctime.unix_nanos() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let time = Moment { seconds: -2, nanos: 800_000_000 };
        assert_eq!(time.unix_nanos(), UnixNanos(-1_200_000_000));
        assert_eq!(Moment::from(time.unix_nanos()), time);
    }

    #[test]
    fn times_out_of_range_are_held_at_its_end() {
        assert_eq!(Moment { seconds: i64::MAX, nanos: 0 }.unix_nanos(), UnixNanos(i64::MAX));
        assert_eq!(Moment { seconds: i64::MIN, nanos: 0 }.unix_nanos(), UnixNanos(i64::MIN));
    }
}
