//! What all groups of operations share. Each group is a file of its own with an `impl Front`. The kernel's requests
//! come in, and the answers go out, in `file_system.rs`.

pub(crate) mod asked_again;
pub(crate) mod attributes;
pub(crate) mod commit;
pub(crate) mod data;
pub(crate) mod direct;
pub(crate) mod dirs;
pub(crate) mod ioctl;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod panel;
pub(crate) mod pruning;
pub(crate) mod scope;
pub(crate) mod space;
pub(crate) mod status;
pub(crate) mod take_over;
pub(crate) mod xattr;

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use headpond_door::{InForce, LiveRules};
use headpond_engine::{Handling, Treatment};
use headpond_ledger::{HandleKind, MountLedger};
use headpond_names::{KnownObject, MountSettings, ROOT, block_on};
use headpond_rules::{Direction, Mask};
use headpond_shard::Budget;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::atomic_write::atomic_writes;
use crate::beside::Beside;
use crate::caller::Caller;
use crate::front::asked_again::AskedBefore;
use crate::front::panel::Shown;
use crate::front::pruning::Pruning;
use crate::fuse::forgetting::Forgetting;
use crate::handles::{ContentWay, Handles, OpenDirectory, OpenHandle};
use crate::insight::Insight;
use crate::kept::KeptTimes;
use crate::lasting::{LastingMount, TakenOver};
use crate::outcome::{ReplyOutcome, errno, outcome};
use crate::pond::{Engine, Names, Pond};
use crate::reached::Reached;
use crate::shares::{Share, Shares};
use crate::standstill::Standstill;
use crate::stat::proc_path;
use crate::tree::{Inode, Known, OriginTree};
use crate::whole::WholeWrites;
use crate::{MARKER_NAME, times};

/// Everything behind one mount.
pub(crate) struct Front {
    pub(crate) pond: Arc<dyn Pond>,
    /// What outlives this process, if anything does.
    pub(crate) ledger: Option<Arc<MountLedger>>,
    pub(crate) before: AskedBefore,
    /// It has said that no other process could go on with the mount.
    pub(crate) said: AtomicBool,
    pub(crate) names: Names,
    pub(crate) kept_times: KeptTimes,
    pub(crate) files: Handles<OpenHandle>,
    pub(crate) directories: Handles<OpenDirectory>,
    /// The largest size of a file on the origin's file system.
    pub(crate) file_bytes_max: u64,
    pub(crate) read_only: bool,
    pub(crate) panel: Option<Shown>,
    pub(crate) insight: Arc<Insight>,
    pub(crate) rules: Arc<LiveRules>,
    pub(crate) whole: Arc<WholeWrites>,
    pub(crate) standstill: Arc<Standstill>,
    pub(crate) atomic_writes: Shares,
    /// Descriptors at the origin that handles hold for themselves: directories being read, and files that bypass the
    /// pool.
    pub(crate) held: Shares,
    /// Makes the kernel forget pages and attributes.
    pub(crate) forgetting: OnceLock<Arc<Forgetting>>,
    /// Makes it forget files that nobody uses.
    pub(crate) pruning: OnceLock<Pruning>,
}

/// The rules that the path of a file satisfies.
pub(crate) fn mask_of(known: &Known, rules: &InForce) -> Mask {
    // Counted before the path is asked for: the next request notices a rename in between.
    let renames = known.renames();
    known.beside.rules.mask(rules, renames, || known.path())
}

impl Front {
    /// Whether this host may still change the origin. Asked before each change. May block.
    pub(crate) fn may_change(&self) -> ReplyOutcome<()> {
        self.pond.may_change_origin().map_err(errno)
    }

    /// An inode for a request that changes it.
    pub(crate) fn to_change(&self, node: u64) -> ReplyOutcome<Arc<Inode>> {
        self.may_change()?;
        outcome(self.names.inodes.get(node))
    }

    /// Lets a user hold one more descriptor at the origin through a handle. Refused if the user's share is used up,
    /// so that root and the other users still get theirs.
    pub(crate) fn held_by(&self, user: u32) -> ReplyOutcome<Share> {
        self.held.take(user).ok_or(Errno::NFILE)
    }

    /// Opens the origin's root and looks at what its file system can do.
    #[cfg(test)]
    pub(crate) fn new(
        root: OwnedFd,
        read_only: bool,
        pond: Arc<dyn Pond>,
        recovered: &[KnownObject],
        beside: Beside,
    ) -> ReplyOutcome<Self> {
        Self::remembering(root, read_only, pond, recovered, beside, None)
    }

    /// Opens the origin's root and looks at what its file system can do. Of a mount that outlives this process it
    /// returns the inodes of the process before, for [`take_over`](Self::take_over).
    pub(crate) fn lasting(
        root: OwnedFd,
        read_only: bool,
        pond: Arc<dyn Pond>,
        recovered: &[KnownObject],
        beside: Beside,
        lasting: Option<LastingMount>,
    ) -> ReplyOutcome<(Self, TakenOver)> {
        Self::start(root, read_only, pond, recovered, beside, (None, lasting))
    }

    /// The same, with a limit on the unused files that it remembers.
    #[cfg(test)]
    pub(crate) fn remembering(
        root: OwnedFd,
        read_only: bool,
        pond: Arc<dyn Pond>,
        recovered: &[KnownObject],
        beside: Beside,
        remembered: Option<usize>,
    ) -> ReplyOutcome<Self> {
        Self::start(root, read_only, pond, recovered, beside, (remembered, None)).map(|(front, _)| front)
    }

    fn start(
        root: OwnedFd,
        read_only: bool,
        pond: Arc<dyn Pond>,
        recovered: &[KnownObject],
        beside: Beside,
        (remembered, lasting): (Option<usize>, Option<LastingMount>),
    ) -> ReplyOutcome<(Self, TakenOver)> {
        let file_bytes_max = largest_file(&root);
        let budget = beside.descriptors.unwrap_or_else(Budget::of_process);
        let tree = Arc::new(OriginTree::new(
            root.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
        ));
        let settings = MountSettings {
            descriptors: budget.paths,
            remembered,
            read_only,
            hides_open_files: tree.hides_open_files(),
        };
        let engine = Arc::new(Engine(pond.clone()));
        let ledger = lasting.as_ref().map(|lasting| lasting.ledger.clone());
        let (names, taken_over) = match lasting {
            Some(lasting) => {
                outcome(block_on(Names::lasting(tree, root, engine, recovered, settings, lasting.for_names())))?
            }
            None => (outcome(block_on(Names::new(tree, root, engine, recovered, settings)))?, TakenOver::new()),
        };
        let front = Self {
            names,
            pond,
            said: AtomicBool::new(false),
            before: ledger.as_deref().map(AskedBefore::of).unwrap_or_default(),
            kept_times: KeptTimes::of(&beside.kept_times),
            files: Handles::new(ledger.as_ref(), HandleKind::File),
            directories: Handles::new(ledger.as_ref(), HandleKind::Directory),
            file_bytes_max,
            read_only,
            panel: beside.panel.map(|panel| Shown::new(panel, ledger.as_ref())),
            insight: beside.insight,
            rules: beside.rules,
            whole: beside.whole,
            standstill: beside.standstill,
            atomic_writes: atomic_writes(),
            held: Shares::of(budget.handles),
            forgetting: OnceLock::new(),
            pruning: OnceLock::new(),
            ledger,
        };
        Ok((front, taken_over))
    }

    /// Whether this is headpond's own directory beside the data, which applications do not see.
    pub(crate) fn is_marker(parent: &Inode, name: &OsStr) -> bool {
        parent.node == ROOT && name.as_bytes() == MARKER_NAME.as_bytes()
    }

    /// How to treat and count a request. `None` if the request's process must be looked at first, which may take time
    /// ([`Front::how_after_look`]). Does not block.
    pub(crate) fn treat(&self, known: &Known, caller: Caller, size: u64, direction: Direction) -> Option<Treatment> {
        let Some(rules) = self.rules.any() else {
            return Some(kept_whole(
                known,
                direction,
                Treatment { process: caller.pid, user: caller.uid, ..Treatment::default() },
            ));
        };
        let process = self.process_known(caller, &rules)?;
        let index = rules.set.decide(mask_of(known, &rules), process, size, direction, times::unix_seconds());
        let how = rules.treatment(index, caller.pid, self.insight.is_counting().then_some(size));
        let how = Treatment { user: caller.uid, ..how };
        Some(kept_whole(known, direction, how))
    }

    /// The rules that a caller satisfies. `None` if its process must be looked at first.
    fn process_known(&self, caller: Caller, rules: &InForce) -> Option<Mask> {
        if rules.set.needs_process() {
            self.insight.processes_known().mask(caller, rules)
        } else {
            Some(rules.set.for_process(None))
        }
    }

    /// On how many other hosts a sync of this file must be. `None` if the request's process must be looked at first. Does
    /// not block.
    pub(crate) fn copies_of_sync(&self, known: &Known, caller: Caller) -> Option<Option<u8>> {
        let Some(rules) = self.rules.any().filter(|rules| rules.set.asks_for_copies()) else { return Some(None) };
        let process = self.process_known(caller, &rules)?;
        Some(rules.copies(mask_of(known, &rules), process, times::unix_seconds()))
    }

    /// The same after a look at the process. May wait.
    pub(crate) fn copies_after_look(&self, known: &Known, caller: Caller) -> Option<u8> {
        let rules = self.rules.any().filter(|rules| rules.set.asks_for_copies())?;
        let process = self.insight.processes_known().look(caller, &rules);
        rules.copies(mask_of(known, &rules), process, times::unix_seconds())
    }

    /// How to treat and count a request, after a look at the process. May wait.
    pub(crate) fn how_after_look(
        &self,
        file: &OpenHandle,
        caller: Caller,
        size: u64,
        direction: Direction,
    ) -> Treatment {
        let usual = Treatment { process: caller.pid, user: caller.uid, ..Treatment::default() };
        let ContentWay::Pond { known, .. } = &file.way else { return usual };
        let Some(rules) = self.rules.any() else { return kept_whole(known, direction, usual) };
        let process = self.insight.processes_known().look(caller, &rules);
        let index = rules.set.decide(mask_of(known, &rules), process, size, direction, times::unix_seconds());
        let how = rules.treatment(index, caller.pid, self.insight.is_counting().then_some(size));
        let how = Treatment { user: caller.uid, ..how };
        kept_whole(known, direction, how)
    }
}

/// Keeps writes whole if the mount promised that to a program: they go through the log, whatever a rule says. The
/// rule counts again once the program has closed the file.
fn kept_whole(known: &Known, direction: Direction, how: Treatment) -> Treatment {
    let kept = direction == Direction::Write && known.is_whole();
    if kept { Treatment { handling: Handling::Whole, ..how } } else { how }
}

/// Finds the largest file size by trying on a file without a name. If the origin has no such files, the engine's own
/// reservation finds it.
fn largest_file(root: &OwnedFd) -> u64 {
    let limit = i64::MAX.unsigned_abs();
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(proc_path(root), flags, Mode::RUSR | Mode::WUSR) else {
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
    // Zero means that the trial itself failed, which says nothing about files.
    if good == 0 { limit } else { good }
}

/// Whether a directory gives its own access list to new files in it. The caller's umask then does not count.
pub(crate) fn has_default_list(directory: &Inode) -> bool {
    let size = directory.proc_path().and_then(|path| rustix::fs::getxattr_query(path, c"system.posix_acl_default"));
    matches!(size, Ok(size) if size > 0)
}
