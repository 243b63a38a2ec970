//! The limit of a btrfs subvolume. The file system's own figure of free space does not contain it.
//!
//! The kernel shows quota groups below `/sys/fs/btrfs/UUID/qgroups` (Linux 5.9). A file's `statfs` leads there: its
//! `f_fsid` is the UUID folded to 64 bits, mixed with the number of the file's subvolume (`btrfs_statfs` in the
//! kernel).
//!
//! Only the subvolume's own group counts. The kernel does not show which groups of a higher level it belongs to.

use std::fs::{self, File};
use std::path::Path;

/// Where the kernel shows mounted btrfs file systems.
const SHOWN: &str = "/sys/fs/btrfs";
/// `BTRFS_QGROUP_LIMIT_MAX_RFER`: a limit on all that the subvolume refers to.
const LIMITS_REFERENCED: u64 = 1;
/// `BTRFS_QGROUP_LIMIT_MAX_EXCL`: a limit on what no other subvolume shares.
const LIMITS_EXCLUSIVE: u64 = 2;

/// What a quota leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QuotaLeft {
    /// Bytes that may be written.
    pub(crate) free: u64,
    /// Bytes that may be used in all.
    pub(crate) bytes: u64,
}

/// What the limit of the file's subvolume leaves. `None`: no limit, or the kernel does not show it.
pub(crate) fn left_for(file: &File) -> Option<QuotaLeft> {
    let folded = rustix::fs::fstatvfs(file).ok()?.f_fsid;
    left_in(Path::new(SHOWN), folded)
}

fn left_in(shown: &Path, folded: u64) -> Option<QuotaLeft> {
    fs::read_dir(shown).ok()?.flatten().find_map(|entry| {
        let subvolume = subvolume(entry.file_name().to_str()?, folded)?;
        left_of(&entry.path().join(format!("qgroups/0_{subvolume}")))
    })
}

/// The number of the subvolume of files with this `f_fsid`, if they are on the file system with this UUID.
fn subvolume(uuid: &str, folded: u64) -> Option<u64> {
    let digits: String = uuid.split('-').collect();
    let uuid = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
    let word = |number: u32| u64::from((uuid >> (32 * (3 - number))) as u32);
    // The first word has the upper half of the number. No real number uses that half.
    let of_system = (word(0) ^ word(2)) | (word(1) ^ word(3)) << 32;
    let number = (of_system ^ folded).rotate_left(32);
    (number > 0 && number <= u64::from(u32::MAX)).then_some(number)
}

fn left_of(group: &Path) -> Option<QuotaLeft> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let flags = number("limit_flags")?;
    let limits =
        [(LIMITS_REFERENCED, "max_referenced", "referenced"), (LIMITS_EXCLUSIVE, "max_exclusive", "exclusive")];
    limits
        .into_iter()
        .filter(|(flag, ..)| flags & flag != 0)
        .filter_map(|(_, most, used)| {
            let (bytes, used) = (number(most)?, number(used)?);
            Some(QuotaLeft { free: bytes.saturating_sub(used), bytes })
        })
        .min_by_key(|left| left.free)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "b4019af2-5151-4593-87c6-fa27f71bf871";
    /// The `f_fsid` that `statvfs` gave for subvolume 5 of that file system.
    const FOLDED: u64 = 0xa64a_bde7_33c7_60d5;

    #[test]
    fn the_subvolume_of_a_file_is_told_from_its_file_system() {
        assert_eq!(subvolume(UUID, FOLDED), Some(5));
        assert_eq!(subvolume(UUID, FOLDED ^ (5 ^ 257) << 32), Some(257));
        assert_eq!(subvolume("00000000-5151-4593-87c6-fa27f71bf871", FOLDED), None, "another file system");
        assert_eq!(subvolume("features", FOLDED), None);
    }

    #[test]
    fn the_tighter_limit_counts_and_only_those_that_are_set() {
        let shown = tempfile::tempdir().unwrap();
        let group = shown.path().join(UUID).join("qgroups/0_5");
        fs::create_dir_all(&group).unwrap();
        let set = |name: &str, value: u64| fs::write(group.join(name), format!("{value}\n")).unwrap();
        for (name, value) in [("max_referenced", 100), ("referenced", 40), ("max_exclusive", 50), ("exclusive", 20)] {
            set(name, value);
        }
        for (flags, left) in [(0, None), (1, Some((60, 100))), (2, Some((30, 50))), (3, Some((30, 50)))] {
            set("limit_flags", flags);
            let left = left.map(|(free, bytes)| QuotaLeft { free, bytes });
            assert_eq!(left_in(shown.path(), FOLDED), left, "flags {flags}");
        }
        set("referenced", 101);
        set("limit_flags", 1);
        assert_eq!(left_in(shown.path(), FOLDED), Some(QuotaLeft { free: 0, bytes: 100 }), "past its limit");
    }
}
