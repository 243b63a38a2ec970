//! Status change times that the pool keeps of files without dirty data. Without them applications would see the times
//! of headpond's own writes to the origin.
//!
//! Invariants
//! - A time counts only while the origin says of the file what it said at the start. Any later change, through the
//!   mount or past it, moves the origin's time.
//! - If the engine answers for a file, its answer counts, and these times do not.

use std::collections::HashMap;

use headpond_base::UnixNanos;
use headpond_names::FileKey;

/// The most times that the mount holds, about 64 bytes each. Further files show the origin's time until a program
/// opens them.
pub const KEPT_TIMES_MAX: usize = 1 << 16;

/// The status change time of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptTime {
    /// Its inode number at the origin.
    pub inode: u64,
    /// Its birth time at the origin, 0 where the file system has none.
    pub birth: UnixNanos,
    /// Its status change time at the origin, at the start.
    pub at_origin: UnixNanos,
    /// Its status change time as applications see it.
    pub ctime: UnixNanos,
}

/// The times of all files, from the start of a mount to its end.
pub(crate) struct KeptTimes(HashMap<FileKey, (UnixNanos, UnixNanos)>);

impl KeptTimes {
    pub(crate) fn of(kept: &[KeptTime]) -> Self {
        let entry = |kept: &KeptTime| {
            let key = FileKey { inode: kept.inode, birth: kept.birth };
            (key, (kept.at_origin, kept.ctime))
        };
        Self(kept.iter().take(KEPT_TIMES_MAX).map(entry).collect())
    }

    /// The time that applications see of a file with this time at the origin now. `None` if they see the origin's.
    pub(crate) fn seen(&self, key: FileKey, at_origin: UnixNanos) -> Option<UnixNanos> {
        let (then, ctime) = self.0.get(&key)?;
        (*then == at_origin).then_some(*ctime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_until_the_origins_moves_and_for_no_other_file() {
        let (at_origin, ctime) = (UnixNanos(20), UnixNanos(10));
        let times = KeptTimes::of(&[KeptTime { inode: 3, birth: UnixNanos(1), at_origin, ctime }]);
        let key = FileKey { inode: 3, birth: UnixNanos(1) };
        assert_eq!(times.seen(key, at_origin), Some(ctime));
        assert_eq!(times.seen(key, UnixNanos(21)), None);
        assert_eq!(times.seen(FileKey { birth: UnixNanos(2), ..key }, at_origin), None);
    }
}
