//! What all groups of operations share. Each group is a file of its own with an `impl Front`;
//! `file_system.rs` is where the kernel's requests come in and answers go out.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, OnceLock};

use headpond_engine::{Handling, Reply, Request, Treatment};
use headpond_format::Stamp;
use headpond_rules::Direction;
use headpond_shard::Budget;
use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::batch::Batches;
use crate::forgetting::Forgetting;
use crate::handles::{Handles, OpenDirectory, OpenFile, Way};
use crate::inodes::{DeviceNumber, Inode, Inodes, ROOT, stat};
use crate::insight::Insight;
use crate::kept::KeptTimes;
use crate::known::{FileKey, Known, KnownFiles, KnownObject};
use crate::live_rules::LiveRules;
use crate::mount::Beside;
use crate::nested::NestedOrigins;
use crate::panel::Shown;
use crate::pond::Pond;
use crate::removal::hides_open_files;
use crate::turns::Turns;
use crate::whole::WholeWrites;
use crate::wire::Caller;
use crate::{MARKER_NAME, times};

/// What an operation ends with. Errors are the system's own, passed on as they are.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// Everything behind one mount.
pub(crate) struct Front {
    pub(crate) pond: Arc<dyn Pond>,
    pub(crate) inodes: Inodes,
    pub(crate) known: Arc<KnownFiles>,
    pub(crate) kept_times: KeptTimes,
    pub(crate) turns: Turns,
    pub(crate) files: Handles<OpenFile>,
    pub(crate) directories: Handles<OpenDirectory>,
    /// The largest size that the origin's file system lets a file have.
    pub(crate) file_bytes_max: u64,
    /// A file that is removed while it is open stays in its directory at the origin, under another name.
    pub(crate) hides_open_files: bool,
    pub(crate) read_only: bool,
    /// The origin's file system takes other letters for the same name.
    folds_case: bool,
    pub(crate) panel: Option<Shown>,
    pub(crate) insight: Arc<Insight>,
    pub(crate) nested: NestedOrigins,
    pub(crate) rules: Arc<LiveRules>,
    pub(crate) whole: Arc<WholeWrites>,
    pub(crate) batches: Batches,
    /// To tell the kernel what to forget.
    pub(crate) forgetting: OnceLock<Arc<Forgetting>>,
}

impl Front {
    /// Whether the origin may still be changed: to be asked before each change. May block.
    pub(crate) fn may_change(&self) -> Outcome<()> {
        self.pond.may_change_origin().map_err(errno)
    }

    /// An inode that is to be changed.
    pub(crate) fn to_change(&self, node: u64) -> Outcome<Arc<Inode>> {
        self.may_change()?;
        self.inodes.get(node)
    }

    /// Opens the origin's root and looks at what its file system can do.
    pub(crate) fn new(
        root: OwnedFd,
        read_only: bool,
        pond: Arc<dyn Pond>,
        recovered: &[KnownObject],
        beside: Beside,
    ) -> Outcome<Self> {
        Self::over(root, read_only, pond, KnownFiles::new(recovered), beside)
    }

    /// The same with what is known of files.
    pub(crate) fn over(
        root: OwnedFd,
        read_only: bool,
        pond: Arc<dyn Pond>,
        known: KnownFiles,
        beside: Beside,
    ) -> Outcome<Self> {
        let file_bytes_max = largest_file(&root);
        let known = Arc::new(known);
        let files = known.clone();
        pond.when_let_go(Box::new(move |object| files.let_go(object)));
        let hides_open_files = hides_open_files(&root);
        let marker = stat(&root, MARKER_NAME);
        let folded = stat(&root, MARKER_NAME.to_ascii_uppercase());
        Ok(Self {
            folds_case: marker.is_ok_and(|marker| folded.is_ok_and(|folded| is_same(&marker, &folded))),
            pond,
            inodes: Inodes::new(root, beside.descriptors.unwrap_or_else(Budget::of_process).paths)?,
            known,
            kept_times: KeptTimes::of(&beside.kept_times),
            turns: Turns::default(),
            files: Handles::new(),
            directories: Handles::new(),
            file_bytes_max,
            hides_open_files,
            read_only,
            panel: beside.panel.map(Shown::new),
            insight: beside.insight,
            nested: NestedOrigins::default(),
            rules: beside.rules,
            whole: beside.whole,
            batches: Batches::default(),
            forgetting: OnceLock::new(),
        })
    }

    /// Whether this is headpond's own directory beside the data, which applications do not see.
    pub(crate) fn is_marker(parent: &Inode, name: &OsStr) -> bool {
        parent.node == ROOT && name.as_bytes() == MARKER_NAME.as_bytes()
    }

    /// Whether what was found in a directory is that directory, under a name that the origin's file system takes for the
    /// same: `.Headpond`, or one with letters in it that count for nothing. Asked only where there are such names.
    pub(crate) fn is_marker_by_another_name(&self, parent: &Inode, found: &Statx) -> bool {
        self.folds_case
            && parent.node == ROOT
            && parent.path().and_then(|root| stat(root, MARKER_NAME)).is_ok_and(|marker| is_same(&marker, found))
    }

    /// The path of a directory entry below the origin's root, for the log and for people. Empty
    /// where it is not known.
    pub(crate) fn path_in(&self, directory: &Inode, name: &OsStr) -> Vec<u8> {
        let mut path = if directory.node == ROOT {
            Vec::new()
        } else {
            let path = self.path_of(directory);
            if path.is_empty() {
                return path;
            }
            path
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        path
    }

    /// A path of a file that the engine knows: its path now, where the kernel holds the file, else the last
    /// that was known. Empty if there is none.
    pub(crate) fn path_of_file(&self, inode: u64, birth: headpond_base::UnixNanos) -> Vec<u8> {
        let key = FileKey { inode, birth };
        let held = self.inodes.get(inode).ok().filter(|inode| inode.key == key);
        let now = held.map(|inode| self.path_of(&inode)).filter(|path| !path.is_empty());
        now.unwrap_or_else(|| self.known.find(key).map_or_else(Vec::new, |known| known.path()))
    }

    /// How a request is to be treated, and counted. `None` if its process has to be looked at first, which may
    /// take its time ([`Front::how_after_look`]); does not block.
    pub(crate) fn treat(&self, known: &Known, caller: Caller, size: u64, direction: Direction) -> Option<Treatment> {
        let Some(rules) = self.rules.any() else {
            return Some(kept_whole(
                known,
                direction,
                Treatment { process: caller.pid, user: caller.uid, ..Treatment::default() },
            ));
        };
        let process = if rules.set.needs_process() {
            self.insight.processes_known().mask(caller, &rules)?
        } else {
            rules.set.for_process(None)
        };
        let index = rules.set.decide(known.mask(&rules), process, size, direction, times::unix_seconds());
        let how = rules.treatment(index, caller.pid, self.insight.is_counting().then_some(size));
        let how = Treatment { user: caller.uid, ..how };
        Some(kept_whole(known, direction, how))
    }

    /// The same after a look at the process, which may wait.
    pub(crate) fn how_after_look(&self, file: &OpenFile, caller: Caller, size: u64, direction: Direction) -> Treatment {
        let usual = Treatment { process: caller.pid, user: caller.uid, ..Treatment::default() };
        let Way::Pond { known, .. } = &file.way else { return usual };
        let Some(rules) = self.rules.any() else { return kept_whole(known, direction, usual) };
        let process = self.insight.processes_known().look(caller, &rules);
        let index = rules.set.decide(known.mask(&rules), process, size, direction, times::unix_seconds());
        let how = rules.treatment(index, caller.pid, self.insight.is_counting().then_some(size));
        let how = Treatment { user: caller.uid, ..how };
        kept_whole(known, direction, how)
    }

    /// A path below the origin's root by which the inode can be found now. Empty where there is
    /// none: it was reached by a name that is gone.
    ///
    /// The origin's kernel keeps a descriptor's path right over every rename of it and of the
    /// directories above, so nothing is kept here.
    pub(crate) fn path_of(&self, inode: &Inode) -> Vec<u8> {
        let root = self.inodes.root();
        let (Ok(base), Ok(path)) = (descriptor_path(root), descriptor_path(inode)) else {
            return Vec::new();
        };
        let base = if base.as_bytes() == b"/" { &b""[..] } else { base.as_bytes() };
        let Some(relative) = path.as_bytes().strip_prefix(base).and_then(|rest| rest.strip_prefix(b"/")) else {
            return Vec::new();
        };
        if relative.ends_with(b" (deleted)") {
            // What the kernel appends to a name that is gone, or the end of a strange name.
            let same = root
                .path()
                .and_then(|root| stat(root, OsStr::from_bytes(relative)))
                .is_ok_and(|found| crate::inodes::file_key(&found) == inode.key);
            if !same {
                return Vec::new();
            }
        }
        relative.to_vec()
    }

    /// What was changed only at the origin (mode, owner, links, attributes) is not in the log:
    /// the next fsync has to make it durable there, and the engine is told that the status
    /// change time moved, so that it does not take it for a stranger's doing.
    pub(crate) fn changed_at_origin(&self, inode: &Inode) {
        inode.unsynced.note();
        if let (Some(known), Ok(found)) = (inode.known(), inode.stat()) {
            let stamp = stamp(&found);
            // An engine that has let go of the file needs no stamp.
            self.pond.submit(Request::Restamp { object: known.object(), stamp, seen: true }, Box::new(|_| {}));
            known.touched(stamp.ctime);
        }
    }
}

/// How a write is treated of whose file somebody was told that writes are whole, whatever a rule says: through the
/// log. A rule that says otherwise is for the time after he has closed it.
fn kept_whole(known: &Known, direction: Direction, how: Treatment) -> Treatment {
    let kept = direction == Direction::Write && known.is_whole();
    if kept { Treatment { handling: Handling::Whole, ..how } } else { how }
}

fn is_same(one: &Statx, other: &Statx) -> bool {
    DeviceNumber::of(one) == DeviceNumber::of(other) && one.stx_ino == other.stx_ino
}

/// What the engine compares at the next start.
pub(crate) fn stamp(found: &Statx) -> Stamp {
    Stamp { size: found.stx_size, mtime: times::from_statx(found.stx_mtime), ctime: times::from_statx(found.stx_ctime) }
}

/// The system's error for an error of the engine.
pub(crate) fn errno(error: headpond_base::Errno) -> Errno {
    Errno::from_raw_os_error(error.0)
}

/// The engine's error for an error of the system.
pub(crate) fn engine_errno(error: Errno) -> headpond_base::Errno {
    headpond_base::Errno(error.raw_os_error())
}

/// An answer of a kind that the request cannot have: the engine and the mount disagree.
pub(crate) fn unexpected(reply: &Reply) -> Errno {
    match reply {
        Reply::Failed(error) => errno(*error),
        _ => Errno::IO,
    }
}

fn descriptor_path(inode: &Inode) -> Outcome<OsString> {
    let path = rustix::fs::readlink(inode.proc_path()?, Vec::new())?;
    Ok(OsString::from_vec(path.into_bytes()))
}

/// Finds the largest file size by trying on a file without a name. Where the origin has no such
/// files the engine's own reservation tells.
fn largest_file(root: &OwnedFd) -> u64 {
    let limit = i64::MAX.unsigned_abs();
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", root.as_raw_fd());
    let Ok(file) = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) else {
        return limit;
    };
    let fits = |size| rustix::fs::ftruncate(&file, size).is_ok();
    if fits(limit) {
        return limit;
    }
    let (mut good, mut bad) = (0, limit);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    // Zero means that the trial itself fails, which says nothing about files.
    if good == 0 { limit } else { good }
}

/// Whether a directory gives its own access list to what is made in it; then the caller's umask
/// is not applied.
pub(crate) fn has_default_list(directory: &Inode) -> bool {
    let size = directory.proc_path().and_then(|path| rustix::fs::getxattr_query(path, c"system.posix_acl_default"));
    matches!(size, Ok(size) if size > 0)
}
