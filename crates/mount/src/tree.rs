//! The origin as the name layer uses it. Each step is a system call or two, and blocks. The futures here are ready
//! when they return.
//!
//! Invariant: a thread takes on a caller's identity only within one step.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;

use headpond_base::{Result, UnixNanos};
use headpond_door::{RulesOfPath, Tally};
use headpond_names::{Access, Found, Freshness, Making, RenameFlags, Tree};
use headpond_shard::{SpaceKind, birth_times_last};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags as SystemFlags, SeekFrom, Statx};
use rustix::io::Errno;

use crate::caller::{self, AsCaller, Caller};
use crate::kernel_pages::KernelPages;
use crate::nested::{self, NestedOrigins};
use crate::outcome::{ReplyOutcome, engine_errno};
use crate::seen_privileges::Seen;
use crate::stat::{
    AS_NAMED, descriptor_path, device_from, file_type, found_of, is_same, mode_of, path_descriptor, proc_path,
    raw_stat, stat,
};
use crate::{MARKER_NAME, times};

/// A file, directory or other that the kernel knows.
pub(crate) type Inode = headpond_names::Inode<OriginTree>;

/// One file that the engine knows.
pub(crate) type Known = headpond_names::Known<OfKnown>;

/// All files that the engine may know better than the origin.
pub(crate) type KnownFiles = headpond_names::KnownFiles<OfKnown>;

/// Counts on a file, so that it outlives its last name.
pub(crate) type Pinned = headpond_names::Pinned<OriginTree>;

// The memory of an inode, as the name layer promises it.
const _: () = assert!(size_of::<Inode>() <= 384);

/// File systems that rename a file in its directory when it is removed while open: NFS, SMB (two), FUSE.
const HIDING: [i64; 4] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546];

/// What the mount keeps with each inode.
#[derive(Default)]
pub(crate) struct OfInode {
    /// Which bytes of it the kernel may keep.
    pub(crate) pages: KernelPages,
    /// Whether a write must take something away from it.
    pub(crate) privileges: Seen,
}

/// What the mount keeps with each file that the engine knows.
#[derive(Default)]
pub(crate) struct OfKnown {
    /// The requests for it.
    pub(crate) tally: Tally,
    /// The rules that match its path.
    pub(crate) rules: RulesOfPath,
}

/// The origin, below its root.
pub(crate) struct OriginTree {
    root: OwnedFd,
    /// The origin's file system takes different letters for the same name.
    folds_case: bool,
    /// Its birth times tell its files apart.
    has_births: bool,
    nested: NestedOrigins,
}

impl OriginTree {
    /// Finds out what the origin's file system can do.
    pub(crate) fn new(root: OwnedFd) -> Self {
        let marker = stat(&root, MARKER_NAME);
        let folded = stat(&root, MARKER_NAME.to_ascii_uppercase());
        let folds_case = marker.is_ok_and(|marker| folded.is_ok_and(|folded| is_same(&marker, &folded)));
        let has_births = birth_times_last(&root);
        Self { root, folds_case, has_births, nested: NestedOrigins::default() }
    }

    /// What the system says of a file, as far as it tells the file from others for as long as it lives.
    pub(crate) fn found(&self, stat: &Statx) -> Found {
        let found = found_of(stat);
        Found { birth: found.birth.filter(|_| self.has_births), ..found }
    }

    /// The same of a descriptor, or of a name in a directory.
    pub(crate) fn stat(&self, directory: impl AsFd, name: impl rustix::path::Arg) -> ReplyOutcome<Found> {
        raw_stat(directory, name, AS_NAMED).map(|found| self.found(&found))
    }

    /// Whether a file that is removed while open gets another name.
    pub(crate) fn hides_open_files(&self) -> bool {
        rustix::fs::fstatfs(&self.root).is_ok_and(|found| HIDING.contains(&found.f_type))
    }

    /// The other origins below this one that requests met and did not enter.
    pub(crate) fn nested(&self) -> Vec<Vec<u8>> {
        self.nested.all()
    }

    /// The path below the root by which a descriptor's file can be found now. Empty if its name is gone.
    ///
    /// The origin's kernel keeps a descriptor's path right over every rename of it and of the directories above. So
    /// the mount need not.
    fn path_below(&self, of: &OwnedFd) -> Vec<u8> {
        let (Ok(base), Ok(path)) = (descriptor_path(&self.root), descriptor_path(of)) else {
            return Vec::new();
        };
        let base = if base.as_bytes() == b"/" { &b""[..] } else { base.as_bytes() };
        let Some(relative) = path.as_bytes().strip_prefix(base).and_then(|rest| rest.strip_prefix(b"/")) else {
            return Vec::new();
        };
        if relative.ends_with(b" (deleted)") {
            // Either the kernel's mark for a name that is gone, or the end of a strange name.
            let named = self.stat(&self.root, OsStr::from_bytes(relative));
            let same = named.is_ok_and(|named| self.stat(of, c"").is_ok_and(|found| found.key() == named.key()));
            if !same {
                return Vec::new();
            }
        }
        relative.to_vec()
    }
}

/// Opens a file so that the cache's reads do not move its access time, if the system allows that.
fn open_quietly(path: &OwnedFd, access: OFlags) -> ReplyOutcome<OwnedFd> {
    let open = |flags| rustix::fs::open(proc_path(path), flags | OFlags::CLOEXEC, Mode::empty());
    match open(access | OFlags::NOATIME) {
        Err(Errno::PERM) => open(access),
        other => other,
    }
}

/// Makes something as a caller.
fn as_caller<R>(caller: &Caller, make: impl FnOnce() -> ReplyOutcome<R>) -> Result<R> {
    caller::without_umask();
    let _as = AsCaller::of_caller(*caller).map_err(engine_errno)?;
    make().map_err(engine_errno)
}

impl Tree for OriginTree {
    type Path = OwnedFd;
    type File = File;
    type Caller = Caller;
    type OfInode = OfInode;
    type OfKnown = OfKnown;

    fn now(&self) -> UnixNanos {
        times::now()
    }

    fn user(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    async fn pause(&self, time: Duration) {
        thread::sleep(time);
    }

    async fn look(&self, path: &OwnedFd, how: Freshness) -> Result<Found> {
        let flags = match how {
            Freshness::Usual => AtFlags::empty(),
            Freshness::AsHeld => AtFlags::STATX_DONT_SYNC,
            Freshness::Asked => AtFlags::STATX_FORCE_SYNC,
        };
        let found = raw_stat(path, c"", AtFlags::EMPTY_PATH | flags).map_err(engine_errno)?;
        Ok(self.found(&found))
    }

    async fn look_in(&self, directory: &OwnedFd, name: &OsStr) -> Result<Found> {
        self.stat(directory, name).map_err(engine_errno)
    }

    async fn look_at(&self, file: &File) -> Result<Found> {
        self.stat(file, c"").map_err(engine_errno)
    }

    async fn find(&self, directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(engine_errno)
    }

    async fn path_of(&self, file: &File) -> Result<OwnedFd> {
        path_descriptor(file).map_err(engine_errno)
    }

    async fn name_of(&self, path: &OwnedFd) -> Vec<u8> {
        self.path_below(path)
    }

    async fn open(&self, path: &OwnedFd, access: Access) -> Result<File> {
        let opened = match access {
            Access::Write => open_quietly(path, OFlags::RDWR),
            Access::Read => open_quietly(path, OFlags::RDONLY),
            Access::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::open(proc_path(path), flags, Mode::empty())
            }
        };
        opened.map(File::from).map_err(engine_errno)
    }

    /// The first hole ends the allocated bytes. There are none if a write may take new space all the same.
    async fn allocated(&self, file: &File, found: &Found) -> u64 {
        // A file without blocks has its bytes in the inode.
        if found.size == 0 || found.blocks == 0 || SpaceKind::of(file) != SpaceKind::Keeps {
            return 0;
        }
        let end = rustix::fs::seek(file, SeekFrom::Hole(0)).unwrap_or(0);
        end.next_multiple_of(u64::from(found.block_size).max(1))
    }

    async fn create(&self, directory: &OwnedFd, name: &OsStr, mode: u32, caller: &Caller) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOATIME | OFlags::CLOEXEC;
        as_caller(caller, || rustix::fs::openat(directory, name, flags, mode_of(mode))).map(File::from)
    }

    async fn make(&self, directory: &OwnedFd, name: &OsStr, what: &Making, caller: &Caller) -> Result<()> {
        as_caller(caller, || match what {
            Making::Directory { mode } => rustix::fs::mkdirat(directory, name, mode_of(*mode)),
            Making::Node { kind, mode, device } => {
                rustix::fs::mknodat(directory, name, file_type(*kind), mode_of(*mode), device_from(*device))
            }
            Making::Symlink { target } => rustix::fs::symlinkat(target, directory, name),
        })
    }

    async fn link(&self, path: &OwnedFd, directory: &OwnedFd, name: &OsStr) -> Result<()> {
        rustix::fs::linkat(CWD, proc_path(path), directory, name, AtFlags::SYMLINK_FOLLOW).map_err(engine_errno)
    }

    async fn unlink(&self, directory: &OwnedFd, name: &OsStr, is_directory: bool) -> Result<()> {
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(directory, name, flags).map_err(engine_errno)
    }

    async fn rename(&self, from: (&OwnedFd, &OsStr), to: (&OwnedFd, &OsStr), flags: RenameFlags) -> Result<()> {
        let flags = SystemFlags::from_bits_retain(flags.0);
        rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags).map_err(engine_errno)
    }

    async fn set_mode(&self, path: &OwnedFd, mode: u32) -> Result<()> {
        rustix::fs::chmod(proc_path(path), mode_of(mode)).map_err(engine_errno)
    }

    /// Whether it is headpond's own directory beside the data, under a name that the origin's file system takes for
    /// the same: `.Headpond`, or one with letters that do not count. The name layer asks only if there are such
    /// names.
    async fn hides(&self, found: &Found) -> bool {
        self.folds_case && stat(&self.root, MARKER_NAME).is_ok_and(|marker| is_same(&marker, found))
    }

    /// Refuses a directory that is another headpond's origin, and the marker's directory of one that became an origin
    /// meanwhile.
    async fn may_enter(&self, above: &OwnedFd, name: &OsStr, directory: &OwnedFd, found: &Found) -> Result<()> {
        let is_marker =
            name == MARKER_NAME && stat(above, c"").is_ok_and(|above| nested::has_marker(directory, &above));
        if !is_marker && !nested::is_origin(directory, found) {
            return Ok(());
        }
        let met = if is_marker { above } else { directory };
        self.nested.met(self.path_below(met));
        Err(engine_errno(nested::REFUSED))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use headpond_names::{FileKind, Inodes, block_on};

    use super::*;
    use crate::reached::Reached;

    struct Origin {
        directory: tempfile::TempDir,
        inodes: Inodes<OriginTree>,
    }

    impl Origin {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = rustix::fs::open(directory.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
            let tree = Arc::new(OriginTree::new(root.try_clone().unwrap()));
            Self { inodes: block_on(Inodes::new(tree, root, 16)).unwrap(), directory }
        }

        fn make(&self, name: &str, kind: FileKind) {
            let path = self.directory.path().join(name);
            if kind == FileKind::Directory { fs::create_dir(path).unwrap() } else { fs::write(path, name).unwrap() }
        }

        /// The status of a name at an origin without birth times, which gives every file the same number.
        fn see(&self, name: &str) -> Found {
            let found = stat(self.inodes.root().path().unwrap(), name).unwrap();
            Found { birth: None, inode: 77, ..found }
        }

        fn replaced_by(&self, seen: &Found) -> Option<Arc<Inode>> {
            block_on(self.inodes.replaced_by(seen))
        }

        fn take_in(&self, name: &str) -> Arc<Inode> {
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            let path = rustix::fs::openat(self.inodes.root().path().unwrap(), name, flags, Mode::empty()).unwrap();
            self.inodes.take_in(path, &self.see(name), (self.inodes.root(), OsStr::new(name)), |_| None).unwrap()
        }
    }

    #[test]
    fn a_number_that_is_given_to_another_is_noticed_where_there_are_no_birth_times() {
        for kind in [FileKind::Directory, FileKind::File] {
            let origin = Origin::new();
            let mut generations = Vec::new();
            let mut held = Vec::new();
            for round in 0..4_u64 {
                origin.make("name", kind);
                let seen = origin.see("name");
                if let Some(earlier) = origin.replaced_by(&seen) {
                    earlier.set_replaced();
                }
                assert!(origin.inodes.look_up(&seen).is_none(), "{kind:?}: an earlier one is not taken for it");
                let inode = origin.take_in("name");
                assert_eq!((inode.lookups(), inode.is_newcomer()), (round + 1, round > 0), "{kind:?}");
                assert!(Arc::ptr_eq(&inode, &origin.inodes.get(77).unwrap()));
                generations.push(inode.generation);
                // Stays open to the end, as in an application.
                held.push((inode.path().unwrap(), inode));
                let path = origin.directory.path().join("name");
                if kind == FileKind::Directory { fs::remove_dir(path).unwrap() } else { fs::remove_file(path).unwrap() }
            }
            assert_eq!(generations, [0, 1, 2, 3], "{kind:?}");
        }
    }

    #[test]
    fn a_file_that_was_changed_or_renamed_is_not_taken_for_another_where_there_are_no_birth_times() {
        for kind in [FileKind::Directory, FileKind::File] {
            let origin = Origin::new();
            origin.make("name", kind);
            let inode = origin.take_in("name");
            let before = origin.see("name");
            let path = origin.directory.path().join("name");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o711)).unwrap();
            fs::rename(&path, origin.directory.path().join("hidden")).unwrap();
            // A status from before the change counts no more than one from after it.
            for seen in [before, origin.see("hidden")] {
                assert!(origin.replaced_by(&seen).is_none(), "{kind:?}");
                assert!(Arc::ptr_eq(&inode, &origin.inodes.find(&seen).unwrap()), "{kind:?}");
            }
        }
    }
}
