//! What becomes of a file whose name goes, and of one that gets another.
//!
//! Invariants
//! - A file whose last name goes and that no application has open is closed before, in the mount and where the engine's
//!   data goes to the origin, or at once after: when the removal is answered no descriptor of it is left. Its space is
//!   free then, and on NFS its directory is empty, as no file that is open is hidden there under another name.
//! - One that an application has open, and a directory, stays open here to its end.
//! - A change that fails leaves all as it was.
//!
//! What is under way at the origin for a file that goes (destage) ends first, for which is waited some seconds at most;
//! what was to come after is not written any more.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use headpond_base::ObjectId;
use headpond_shard::Leaving;
use rustix::fs::{AtFlags, FileType, RenameFlags, Statx};
use rustix::io::Errno;

use crate::front::{Front, Outcome};
use crate::inodes::{Inode, kind_of};
use crate::known::Known;
use crate::places::{Home, Place};
use crate::pond::Pond;

/// How long a removal waits for closes, where a file that is open would be hidden in its directory: an application that has
/// closed a file and removes it does not wait until we have heard of the first. One that keeps it open costs it this much.
const RELEASE: Duration = Duration::from_millis(200);

/// Types of file systems that give a file another name, in its directory, when it is removed while it is open: NFS, SMB
/// (two), FUSE.
const HIDING: [i64; 4] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546];

/// Whether the origin is on such a file system.
pub(crate) fn hides_open_files(root: &OwnedFd) -> bool {
    rustix::fs::fstatfs(root).is_ok_and(|found| HIDING.contains(&found.f_type))
}

/// A name that is about to go, and what it names.
pub(crate) struct Going {
    pond: Arc<dyn Pond>,
    directory: Arc<Inode>,
    name: OsString,
    found: Option<Statx>,
    inode: Option<Arc<Inode>>,
    object: Option<ObjectId>,
    /// How long is waited for those who have it open.
    patience: Duration,
}

/// The same with all done that has to be done before. It stays as it was unless the name is [`gone`](Self::gone).
pub(crate) struct Prepared<'a> {
    going: &'a Going,
    becomes: Option<Becomes>,
}

enum Becomes {
    /// Nothing: it has other names, or nobody knows it.
    Same,
    /// Closed, and no more.
    Nothing { path: Option<Leaving>, file: Option<Leaving> },
    /// Open to the end.
    Nameless,
    /// It has other names, none of which is known.
    Elsewhere(Place),
}

impl Front {
    /// A name is about to go, if there is one of that name.
    pub(crate) fn going(
        &self,
        directory: &Arc<Inode>,
        name: &OsStr,
        found: Option<&Statx>,
        known: Option<&Known>,
    ) -> Going {
        Going {
            pond: self.pond.clone(),
            directory: directory.clone(),
            name: name.to_owned(),
            found: found.copied(),
            inode: found.and_then(|found| self.inodes.find(found)),
            object: known.map(Known::object),
            patience: if self.hides_open_files { RELEASE } else { Duration::ZERO },
        }
    }

    /// Somebody closed a file that has no name: if that was the last one, it is no more, whatever the kernel remembers.
    pub(crate) fn end_removed(&self, inode: &Inode) {
        if inode.slot.users() == 0
            && let Ok(found) = inode.stat()
            && found.stx_nlink == 0
        {
            inode.set_last_seen(&found);
            let known = inode.known();
            // The engine's descriptor, too, or what it still has to do there would find no file.
            let file = known.as_ref().and_then(|known| self.pond.leaving(known.object()));
            if inode.slot.end_kept()
                && let Some(known) = known
            {
                file.into_iter().for_each(Leaving::gone);
                // Its number may be a new file's by now.
                self.known.gone_unless_another(inode.key, &known);
            }
        }
    }
}

impl Going {
    /// To be called right before the change at the origin.
    pub(crate) fn prepare(&self) -> Prepared<'_> {
        Prepared { going: self, becomes: Some(self.becomes()) }
    }

    fn becomes(&self) -> Becomes {
        let Some(found) = &self.found else { return Becomes::Same };
        let directory = kind_of(found) == FileType::Directory;
        let last = found.stx_nlink == 1 || directory;
        let Some(inode) = &self.inode else {
            let file = self.object.filter(|_| last).and_then(|object| self.pond.leaving(object));
            return Becomes::Nothing { path: None, file };
        };
        // Numbers of other file systems are the mount's own: one that is in use is not given to another file.
        if last && !directory && inode.device == self.directory.device && self.may_be_let_go(inode) {
            // The file before the inode: who opens the file again just now asks for the inode's path, and is waited for here.
            let object = inode.known().map(|known| known.object()).or(self.object);
            let file = object.and_then(|object| self.pond.leaving(object));
            if let Some(path) = Leaving::of(inode.clone(), self.patience) {
                inode.set_last_seen(found);
                return Becomes::Nothing { path: Some(path), file };
            }
        }
        // Of one that cannot be found any more, no more can be had than there is.
        let (Some(home), Ok(open)) = (inode.home.upgrade(), inode.path()) else { return Becomes::Same };
        if last {
            home.open.keep(inode, open);
            return Becomes::Nameless;
        }
        if inode.is_found_by(&self.directory, &self.name)
            && let Some(place) = home.open.hold(inode, open, || inode.take_place())
        {
            return Becomes::Elsewhere(place);
        }
        Becomes::Same
    }
}

impl Going {
    /// Whether nobody counts on the inode, or may not for long.
    fn may_be_let_go(&self, inode: &Inode) -> bool {
        inode.slot.users() == 0 || !self.patience.is_zero()
    }
}

impl Prepared<'_> {
    /// The name is gone. To be called before that is answered.
    pub(crate) fn gone(mut self) {
        match self.becomes.take() {
            Some(Becomes::Nothing { path, file }) => {
                file.into_iter().chain(path).for_each(Leaving::gone);
            }
            Some(Becomes::Nameless) => {
                if let Some(inode) = self.going.inode.as_ref().filter(|inode| inode.managed)
                    && let Some(removed) = self.going.pond.removed(self.going.object)
                {
                    // Those who need space wait until the file is closed here.
                    inode.set_removed(removed);
                }
            }
            Some(Becomes::Elsewhere(_) | Becomes::Same) | None => {}
        }
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        let Some(inode) = &self.going.inode else { return };
        match self.becomes.take() {
            Some(Becomes::Nameless) => inode.slot.stays(),
            Some(Becomes::Elsewhere(place)) => *inode.place_slot() = Some(place),
            // What is leaving stays when it is dropped.
            Some(Becomes::Nothing { .. } | Becomes::Same) | None => {}
        }
    }
}

/// Removes a name, and closes what it named. `noted` is called when the name is gone, and before anybody counts on that.
pub(crate) fn unlink(going: &Going, flags: AtFlags, noted: impl FnOnce()) -> Outcome<()> {
    let directory = going.directory.path()?;
    let prepared = going.prepare();
    rustix::fs::unlinkat(&directory, &going.name, flags)?;
    noted();
    prepared.gone();
    Ok(())
}

/// A rename that is about to be done.
pub(crate) struct Moving {
    home: Arc<Home>,
    from: (Arc<Inode>, OsString),
    to: (Arc<Inode>, OsString),
    flags: RenameFlags,
    moved: Option<Arc<Inode>>,
    /// What gets the old name, where two change places.
    exchanged: Option<Arc<Inode>>,
    replaced: Going,
}

impl Front {
    /// A rename of `source`, over `target` or in exchange for it.
    pub(crate) fn moving(
        &self,
        from: (&Arc<Inode>, &OsStr),
        to: (&Arc<Inode>, &OsStr),
        flags: RenameFlags,
        source: &Statx,
        target: Option<&Statx>,
        replaced: Going,
    ) -> Moving {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        Moving {
            home: self.inodes.home.clone(),
            from: (from.0.clone(), from.1.to_owned()),
            to: (to.0.clone(), to.1.to_owned()),
            flags,
            moved: self.inodes.find(source),
            exchanged: target.filter(|_| exchange).and_then(|target| self.inodes.find(target)),
            replaced,
        }
    }
}

impl Moving {
    /// Renames. `noted` is called when that is done, and before anybody counts on it.
    pub(crate) fn carry_out(&self, noted: impl FnOnce()) -> Outcome<()> {
        let (from, to) = (self.from.0.path()?, self.to.0.path()?);
        let replaced = self.replaced.prepare();
        // From here on nobody asks for a descriptor.
        let moving = self.home.moving();
        rustix::fs::renameat_with(&from, &self.from.1, &to, &self.to.1, self.flags)?;
        if let Some(moved) = &self.moved {
            moved.set_place(&self.to.0, &self.to.1);
        }
        if let Some(other) = &self.exchanged {
            other.set_place(&self.from.0, &self.from.1);
        }
        drop(moving);
        noted();
        replaced.gone();
        Ok(())
    }

    /// What has the new name now, as the origin says.
    pub(crate) fn look(&self) -> Result<Statx, Errno> {
        crate::inodes::stat(self.to.0.path()?, &*self.to.1)
    }
}
