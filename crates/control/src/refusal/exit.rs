//! Exit statuses: one for each class of refusal, so that scripts and unit files need not read text to tell them
//! apart.
//!
//! Invariant: a released number keeps its meaning. `docs/operations.md` and `headpond --help` show this very table,
//! and a test compares them.

/// How a `headpond` command ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ExitStatus {
    /// Done.
    Done = 0,
    /// An error without a status of its own.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Origin missing, or no directory.
    OriginUnusable = 10,
    /// Another headpond serves this origin now.
    OriginInUse = 11,
    /// The origin's newest data is in another pool.
    OriginDirtyElsewhere = 12,
    /// The marker beside the origin cannot be read.
    MarkerDamaged = 13,
    /// The origin's file system fails at the start.
    OriginFailed = 14,
    /// What lies beside the origin under headpond's names is not headpond's.
    BesideNotOurs = 15,
    /// Mount point missing, or no directory.
    MountPointUnusable = 20,
    /// Mount point holds files.
    MountPointNotEmpty = 21,
    /// Mount point is in use by a mount already.
    MountPointInUse = 22,
    /// Origin, mount point or flash lie inside one another.
    Overlap = 23,
    /// Flash missing without a size, or cannot be opened.
    FlashUnusable = 30,
    /// Another headpond uses this flash now.
    FlashInUse = 31,
    /// Flash holds something that is no pool.
    FlashForeign = 32,
    /// Flash holds dirty data of another origin, or of an unknown one.
    FlashDirtyElsewhere = 33,
    /// Flash too small for a pool.
    FlashTooSmall = 34,
    /// No room to make the flash file.
    FlashNoSpace = 35,
    /// Pool shorter than it says.
    PoolTruncated = 36,
    /// Pool of a newer headpond.
    PoolVersion = 37,
    /// Pool damaged.
    PoolDamaged = 38,
    /// Flash failed while it was read at the start.
    FlashFailed = 39,
    /// Flash failed in an earlier use: the origin went on without it.
    PoolObsolete = 40,
    /// Pool with damage that loses nothing: only `check` ends with it.
    PoolBlemished = 41,
    /// Pool as it was earlier, or a copy of it: not the pool that the origin waits for.
    PoolImage = 42,
    /// A device of the pool is missing, and is needed.
    MemberMissing = 43,
    /// Devices that are not one pool.
    NotOnePool = 44,
    /// Another host has taken over the pool.
    Deposed = 45,
    /// Another host owns the pool now.
    OwnedElsewhere = 46,
    /// Dirty data of files that others changed at the origin.
    Conflict = 50,
    /// No FUSE here, or the mount itself was refused.
    NoFuse = 60,
    /// Not allowed.
    NoPermission = 61,
    /// The mount is in use.
    Busy = 70,
    /// Nothing is mounted there by headpond.
    NotMounted = 71,
    /// The origin did not take all dirty data.
    FlushFailed = 72,
    /// Interrupted by the operator.
    Interrupted = 73,
    /// The daemon does not answer.
    NoAnswer = 74,
    /// The origin did not stand still for as long as it had to.
    NotFrozen = 75,
    /// Damaged data that neither the origin nor another device has.
    DirtyLost = 76,
    /// The registry of owners does not answer.
    RegistryAway = 77,
}

impl ExitStatus {
    /// All statuses with their meanings, in the order of their numbers.
    pub const TABLE: [(Self, &'static str); 41] = [
        (Self::Done, "done"),
        (Self::Failed, "failed; the message says why"),
        (Self::Usage, "the command line is wrong"),
        (Self::OriginUnusable, "the origin is missing, or is not a directory"),
        (Self::OriginInUse, "another headpond serves this origin, a directory above it, or one below it"),
        (Self::OriginDirtyElsewhere, "the newest data of the origin, or of a directory above it, is in another pool"),
        (Self::MarkerDamaged, "the marker beside the origin, or beside a directory above it, is unreadable"),
        (Self::OriginFailed, "the origin failed to sync the writes from before a crash"),
        (Self::BesideNotOurs, ".headpond beside the origin is not headpond's, or others can write there"),
        (Self::MountPointUnusable, "the mount point is missing, or is not a directory"),
        (Self::MountPointNotEmpty, "the mount point is not empty"),
        (Self::MountPointInUse, "the mount point is in use by another mount"),
        (Self::Overlap, "origin, mount point and flash lie inside one another"),
        (Self::FlashUnusable, "the flash is missing without --size, or headpond cannot open it"),
        (Self::FlashInUse, "the flash is in use by another headpond"),
        (Self::FlashForeign, "the flash holds something else than a pool (--format overwrites it)"),
        (Self::FlashDirtyElsewhere, "the pool holds dirty data of another origin (--discard-dirty drops it)"),
        (Self::FlashTooSmall, "the flash is too small for a pool"),
        (Self::FlashNoSpace, "there is no room to make the flash file"),
        (Self::PoolTruncated, "the pool's file or device is shorter than it was"),
        (Self::PoolVersion, "the pool has another format version"),
        (Self::PoolDamaged, "the pool is damaged"),
        (Self::FlashFailed, "the flash failed during a read or write at the start"),
        (Self::PoolObsolete, "the flash failed in an earlier use, and the origin went on without the pool"),
        (Self::PoolBlemished, "the pool is damaged, but loses nothing (only from check)"),
        (Self::PoolImage, "the pool is an older image or a copy, or its flash lost synced writes"),
        (Self::MemberMissing, "a device of the pool is missing, and has what no other device has"),
        (Self::NotOnePool, "the devices are not one pool: of several pools, copies, or used without each other"),
        (Self::Deposed, "another host has taken over the pool"),
        (Self::OwnedElsewhere, "another host owns the pool, by its lease"),
        (Self::Conflict, "files with dirty data changed at the origin (decide with --keep-pool or --keep-origin)"),
        (Self::NoFuse, "FUSE is missing or refused the mount"),
        (Self::NoPermission, "not permitted"),
        (Self::Busy, "the mount is in use"),
        (Self::NotMounted, "no headpond is mounted there, or it is being unmounted"),
        (Self::FlushFailed, "the origin did not take all dirty data; it stays safe in the pool"),
        (Self::Interrupted, "interrupted; the mount stays as it was"),
        (Self::NoAnswer, "the daemon does not answer"),
        (Self::NotFrozen, "the origin was not frozen to the end of the command: do not trust the snapshot"),
        (Self::DirtyLost, "a scrub found damaged data that neither the origin nor another device has"),
        (Self::RegistryAway, "the registry of owners does not answer, or what it keeps cannot be read"),
    ];

    /// The number that the process ends with.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The status of a number, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::TABLE.into_iter().map(|(status, _)| status).find(|status| status.code() == code)
    }

    /// The table as text, one status a line.
    #[must_use]
    pub fn table() -> String {
        Self::TABLE.into_iter().map(|(status, meaning)| format!("{:>4}  {meaning}\n", status.code())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_classes_share_a_status() {
        let mut codes: Vec<u8> = ExitStatus::TABLE.into_iter().map(|(status, _)| status.code()).collect();
        let listed = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), listed);
        assert!(codes.iter().all(|&code| ExitStatus::from_code(code).is_some_and(|status| status.code() == code)));
    }
}
