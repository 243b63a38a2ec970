//! What the log remembers of an object: its identity, its attributes, and which content of the origin counts.
//!
//! Invariants:
//! - An object keeps its kind. Its identity and its witness are of that kind.
//! - A volume has no times, no path and no size of its own. Its size is the witness's, and all content of the origin
//!   counts.
//! - An object of an unknown kind does not decode. A start that meets one refuses the pool.

use std::fmt;

use headpond_base::UnixNanos;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Damage;

const WHAT: &str = "object";

/// The longest path in an object's entry, in bytes. A file with a longer path is found again by its inode number.
pub const OBJECT_PATH_MAX: usize = 1024;

/// Which file of the origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FileIdentity {
    /// Inode number.
    pub inode: u64,
    /// Birth time: tells two files apart that had the same inode number.
    pub birth: UnixNanos,
}

impl FileIdentity {
    /// The birth time where the origin keeps none.
    pub const NO_BIRTH: UnixNanos = UnixNanos(0);

    /// Whether only the inode number tells the file from others.
    #[must_use]
    pub const fn lacks_birth(self) -> bool {
        self.birth.0 == Self::NO_BIRTH.0
    }

    /// Whether this can be a file that was `before`, at another start. Another kernel may tell birth times where the one
    /// before told none (NFS, ZFS), or none where it told them: then the inode number alone speaks for it.
    #[must_use]
    pub const fn may_be(self, before: Self) -> bool {
        self.inode == before.inode && (self.birth.0 == before.birth.0 || self.lacks_birth() || before.lacks_birth())
    }
}

/// Which volume. The door draws this number when it first serves the volume, and gives it to no other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeId(pub [u8; 16]);

/// 32 hexadecimal digits.
impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What an object is at the origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Identity {
    /// A file.
    File(FileIdentity),
    /// A volume.
    Volume(VolumeId),
}

impl Identity {
    /// The file, if it is one.
    #[must_use]
    pub const fn file(self) -> Option<FileIdentity> {
        match self {
            Self::File(file) => Some(file),
            Self::Volume(_) => None,
        }
    }

    /// The same as [`FileIdentity::may_be`]; a volume's number is its own.
    #[must_use]
    pub fn may_be(self, before: Self) -> bool {
        match (self, before) {
            (Self::File(file), Self::File(before)) => file.may_be(before),
            _ => self == before,
        }
    }

    /// Whether it is a file without a birth time.
    #[must_use]
    pub const fn lacks_birth(self) -> bool {
        matches!(self, Self::File(file) if file.lacks_birth())
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::File(FileIdentity::default())
    }
}

/// What the origin said of a file when headpond last left it complete. The next start compares: another value means
/// that others wrote to the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: UnixNanos,
    /// Status change time. No program can set it.
    pub ctime: UnixNanos,
}

/// What the door says of a volume. headpond changes none of it, so another value always means a change by others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeWitness {
    /// Size in bytes.
    pub size: u64,
    /// A new number with each change past headpond that the door knows of; 0 if the door knows of none.
    pub generation: u64,
}

/// What shows that others changed the origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Witness {
    /// For a file.
    File(Stamp),
    /// For a volume.
    Volume(VolumeWitness),
}

impl Witness {
    /// The size at the origin.
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            Self::File(stamp) => stamp.size,
            Self::Volume(volume) => volume.size,
        }
    }

    /// The modification time; 0 for a volume.
    #[must_use]
    pub const fn mtime(self) -> UnixNanos {
        match self {
            Self::File(stamp) => stamp.mtime,
            Self::Volume(_) => UnixNanos(0),
        }
    }

    /// The status change time; 0 for a volume.
    #[must_use]
    pub const fn ctime(self) -> UnixNanos {
        match self {
            Self::File(stamp) => stamp.ctime,
            Self::Volume(_) => UnixNanos(0),
        }
    }

    /// Whether both show the same content. For a volume everything is compared; for a file all but the status change
    /// time.
    #[must_use]
    pub fn shows_the_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(other)) => (one.size, one.mtime) == (other.size, other.mtime),
            (Self::Volume(one), Self::Volume(other)) => one == other,
            _ => false,
        }
    }
}

impl Default for Witness {
    fn default() -> Self {
        Self::File(Stamp::default())
    }
}

/// Yes-or-no facts about an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectFlags {
    /// Its directory entry is not known to be durable at the origin. If the file is missing after a crash, nothing of
    /// it was ever synced.
    pub unanchored: bool,
    /// Destage, or a change that reserves space, may have changed the origin's file since the stamp. So the stamp
    /// proves nothing.
    pub destaging: bool,
    /// Its last name is removed, or is being removed. If the file is missing, that is right.
    pub unlinked: bool,
    /// The size or times at the origin differ from those here.
    pub attributes_dirty: bool,
    /// Changes go to the origin directly, without entries in the log. Until an entry says otherwise, the origin's size
    /// and time count.
    pub direct: bool,
    /// Only with `direct`: the size and the time here count all the same. A change at the origin failed, and may have
    /// left others there.
    pub size_counts: bool,
    /// The stamp's status change time counts: the pool was left in good order, and headpond has not touched the file
    /// since the stamp. No object has this while the pool is in use.
    pub ctime_counts: bool,
    /// A status change time later than the stamp's is a change by others, also after a crash: headpond has done
    /// nothing that sets a later one. Before it does, the log durably clears this flag. An earlier time proves
    /// nothing: a power cut may have undone at the origin what headpond did.
    pub ctime_bounds: bool,
}

impl ObjectFlags {
    pub(crate) const fn bits(self) -> u8 {
        self.unanchored as u8
            | (self.destaging as u8) << 1
            | (self.unlinked as u8) << 2
            | (self.attributes_dirty as u8) << 3
            | (self.direct as u8) << 4
            | (self.size_counts as u8) << 5
            | (self.ctime_counts as u8) << 6
            | (self.ctime_bounds as u8) << 7
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self {
            unanchored: bits & 1 != 0,
            destaging: bits & 2 != 0,
            unlinked: bits & 4 != 0,
            attributes_dirty: bits & 8 != 0,
            direct: bits & 16 != 0,
            size_counts: bits & 32 != 0,
            ctime_counts: bits & 64 != 0,
            ctime_bounds: bits & 128 != 0,
        }
    }
}

/// All that is remembered of an object, without its blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectState {
    /// What it is at the origin.
    pub identity: Identity,
    /// The file's status change time when a program made it through headpond, on a file system without birth times;
    /// otherwise 0. If a file's status last changed before that, it is another file with the same inode number.
    pub made_at: UnixNanos,
    /// Facts.
    pub flags: ObjectFlags,
    /// Size in bytes, as applications see it.
    pub size: u64,
    /// The origin's content counts below this byte. From it on, what is not in the log is zero, whatever the origin
    /// has there. `u64::MAX` when the whole file at the origin counts.
    pub origin_valid: u64,
    /// Modification time, as applications see it; 0 for a volume.
    pub mtime: UnixNanos,
    /// Status change time, as applications see it. Writes by headpond do not change it, unlike the witness's. 0 if
    /// unknown.
    pub ctime: UnixNanos,
    /// The state of the origin when headpond last left it complete.
    pub witness: Witness,
    /// Last known path below the origin's root. Empty if unknown or too long, and for a volume.
    pub path: Vec<u8>,
}

impl ObjectState {
    /// Whether the status change time of `found` shows a change by others since the stamp. If neither `ctime_counts`
    /// nor `ctime_bounds` is set, it shows nothing. A volume has none.
    #[must_use]
    pub const fn status_changed(&self, found: Witness) -> bool {
        let (left, now, flags) = (self.witness.ctime().0, found.ctime().0, self.flags);
        flags.ctime_counts && left != now || flags.ctime_bounds && !flags.destaging && left < now
    }

    /// The status change time that applications see, for a file as headpond left it. If headpond did not cause the
    /// time at the origin, a change through the front door may have; then it counts if it is later.
    #[must_use]
    pub fn ctime_at(&self, found: Witness) -> UnixNanos {
        let (left, now, flags) = (self.witness.ctime(), found.ctime(), self.flags);
        let accounted_for = now == left || flags.ctime_bounds && !flags.destaging && now < left;
        match self.ctime {
            UnixNanos(0) => now.max(self.mtime),
            kept if accounted_for => kept,
            kept => kept.max(now),
        }
    }

    /// Appends the tail of the object's entry.
    ///
    /// # Panics
    /// When the path is longer than [`OBJECT_PATH_MAX`], when a file has both a birth time and `made_at`, or when a
    /// volume has what volumes do not have. The writer bounds all of them.
    pub(crate) fn encode_tail(&self, out: &mut Vec<u8>) {
        assert!(self.path.len() <= OBJECT_PATH_MAX, "a path longer than its room");
        let mut raw = RawTail {
            identity: [0; 16],
            origin_valid: self.origin_valid.into(),
            witness: [0; 24],
            path_len: u32::try_from(self.path.len()).expect("bounded by OBJECT_PATH_MAX").into(),
            flags: self.flags.bits(),
            more: 0,
            kind: kind::FILE,
            reserved: 0,
        };
        match (self.identity, self.witness) {
            (Identity::File(file), Witness::File(stamp)) => {
                let without_birth = self.made_at != UnixNanos(0);
                assert!(!without_birth || file.lacks_birth(), "a birth time, and the time that stands in for one");
                let birth = if without_birth { self.made_at } else { file.birth };
                let identity = RawFile { inode: file.inode.into(), birth: birth.0.into() };
                let stamp =
                    RawStamp { size: stamp.size.into(), mtime: stamp.mtime.0.into(), ctime: stamp.ctime.0.into() };
                raw.identity.copy_from_slice(identity.as_bytes());
                raw.witness.copy_from_slice(stamp.as_bytes());
                raw.more = if without_birth { WITHOUT_BIRTH } else { 0 };
            }
            (Identity::Volume(id), Witness::Volume(found)) => {
                assert!(self.fits_a_volume(), "a volume with what only files have: {self:?}");
                let witness = RawVolume { size: found.size.into(), generation: found.generation.into(), zero: [0; 8] };
                raw.kind = kind::VOLUME;
                raw.identity = id.0;
                raw.witness.copy_from_slice(witness.as_bytes());
            }
            _ => unreachable!("identity and witness are of one kind: {self:?}"),
        }
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(&self.path);
    }

    /// Reads a tail. Size and times come from the entry before it.
    pub(crate) fn decode((size, mtime, ctime): (u64, UnixNanos, UnixNanos), tail: &[u8]) -> Result<Self, Damage> {
        let short = Damage::Short(WHAT);
        let (raw, path) = RawTail::ref_from_prefix(tail).map_err(|_| short.clone())?;
        let path_len = raw.path_len.get() as usize;
        if path_len > OBJECT_PATH_MAX {
            return Err(Damage::Senseless(WHAT, "path longer than its room"));
        }
        let mut state = Self {
            flags: ObjectFlags::from_bits(raw.flags),
            size,
            origin_valid: raw.origin_valid.get(),
            mtime,
            ctime,
            path: path.get(..path_len).ok_or(short)?.to_vec(),
            ..Self::default()
        };
        match raw.kind {
            kind::FILE => {
                let file: &RawFile = zerocopy::transmute_ref!(&raw.identity);
                let stamp: &RawStamp = zerocopy::transmute_ref!(&raw.witness);
                let time = UnixNanos(file.birth.get());
                let (birth, made_at) = match raw.more {
                    0 => (time, UnixNanos(0)),
                    WITHOUT_BIRTH => (FileIdentity::NO_BIRTH, time),
                    _ => return Err(Damage::Senseless(WHAT, "unknown facts")),
                };
                state.identity = Identity::File(FileIdentity { inode: file.inode.get(), birth });
                state.made_at = made_at;
                state.witness = Witness::File(Stamp {
                    size: stamp.size.get(),
                    mtime: UnixNanos(stamp.mtime.get()),
                    ctime: UnixNanos(stamp.ctime.get()),
                });
            }
            kind::VOLUME => {
                let volume: &RawVolume = zerocopy::transmute_ref!(&raw.witness);
                let (size, generation) = (volume.size.get(), volume.generation.get());
                state.identity = Identity::Volume(VolumeId(raw.identity));
                state.witness = Witness::Volume(VolumeWitness { size, generation });
                if raw.more != 0 || !state.fits_a_volume() {
                    return Err(Damage::Senseless(WHAT, "a volume with what only files have"));
                }
            }
            _ => return Err(Damage::Unsupported(WHAT, "it is of another kind than file and volume")),
        }
        Ok(state)
    }

    /// Whether it has only what volumes have.
    fn fits_a_volume(&self) -> bool {
        let ObjectFlags { destaging, attributes_dirty, direct, .. } = self.flags;
        let timeless = [self.mtime, self.ctime, self.made_at] == [UnixNanos(0); 3];
        timeless
            && self.path.is_empty()
            && (self.size, self.origin_valid) == (self.witness.size(), u64::MAX)
            && self.flags == ObjectFlags { destaging, attributes_dirty, direct, ..ObjectFlags::default() }
    }
}

mod kind {
    pub const FILE: u8 = 0;
    pub const VOLUME: u8 = 1;
}

/// The tail of an object's entry; its path follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawTail {
    /// A [`RawFile`] or a [`VolumeId`].
    identity: [u8; 16],
    origin_valid: U64,
    /// A [`RawStamp`] or a [`RawVolume`].
    witness: [u8; 24],
    path_len: U32,
    flags: u8,
    more: u8,
    kind: u8,
    reserved: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawFile {
    inode: U64,
    /// The birth time; with [`WITHOUT_BIRTH`], `made_at`.
    birth: I64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawStamp {
    size: U64,
    mtime: I64,
    ctime: I64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawVolume {
    size: U64,
    generation: U64,
    zero: [u8; 8],
}

/// In `RawTail::more`: the file has no birth time, and `made_at` is in its place.
const WITHOUT_BIRTH: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: usize = 54;

    fn volume() -> ObjectState {
        ObjectState {
            identity: Identity::Volume(VolumeId([7; 16])),
            witness: Witness::Volume(VolumeWitness { size: 1 << 30, generation: 3 }),
            flags: ObjectFlags { destaging: true, direct: true, attributes_dirty: true, ..ObjectFlags::default() },
            size: 1 << 30,
            origin_valid: u64::MAX,
            ..ObjectState::default()
        }
    }

    fn read(size: u64, mtime: i64, tail: &[u8]) -> Result<ObjectState, Damage> {
        ObjectState::decode((size, UnixNanos(mtime), UnixNanos(0)), tail)
    }

    #[test]
    fn a_volume_reads_back_and_one_with_what_only_files_have_does_not() {
        let mut tail = Vec::new();
        volume().encode_tail(&mut tail);
        assert_eq!(read(1 << 30, 0, &tail), Ok(volume()));

        let forged = |at: usize, byte: u8| {
            let mut forged = tail.clone();
            forged[at] = byte;
            forged
        };
        let with_path = [&forged(48, 1)[..], b"p"].concat();
        for (why, result) in [
            ("another size than the origin's", read(1 << 29, 0, &tail)),
            ("a modification time", read(1 << 30, 1, &tail)),
            ("a path", read(1 << 30, 0, &with_path)),
            ("an end from which on the origin does not count", read(1 << 30, 0, &forged(16, 1))),
            ("a name that may be lost", read(1 << 30, 0, &forged(52, 1))),
            ("a status change time that counts", read(1 << 30, 0, &forged(52, 64))),
            ("a time in place of a birth time", read(1 << 30, 0, &forged(53, 1))),
        ] {
            assert!(matches!(result, Err(Damage::Senseless(..))), "{why}: {result:?}");
        }
    }

    #[test]
    fn an_object_of_an_unknown_kind_is_refused_with_what_to_do() {
        let mut tail = Vec::new();
        volume().encode_tail(&mut tail);
        for kind in 2..=255 {
            tail[KIND] = kind;
            let refused = read(1 << 30, 0, &tail).unwrap_err();
            assert!(matches!(refused, Damage::Unsupported(..)));
            assert!(refused.to_string().contains("Use the headpond that wrote it"), "{refused}");
        }
    }

    #[test]
    fn a_change_of_a_volume_shows_by_its_size_and_by_its_generation() {
        let left = VolumeWitness { size: 8192, generation: 1 };
        let witness = |size, generation| Witness::Volume(VolumeWitness { size, generation });
        assert!(Witness::Volume(left).shows_the_same(witness(8192, 1)));
        assert!(!Witness::Volume(left).shows_the_same(witness(8192, 2)));
        assert!(!Witness::Volume(left).shows_the_same(witness(4096, 1)));
        let file = Witness::File(Stamp { size: 8192, ..Stamp::default() });
        assert!(!Witness::Volume(left).shows_the_same(file), "of another kind");
        let touched = Witness::File(Stamp { size: 8192, ctime: UnixNanos(9), ..Stamp::default() });
        assert!(file.shows_the_same(touched), "a status change alone");
    }
}
