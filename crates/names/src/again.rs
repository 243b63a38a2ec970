//! Opens a file again for the engine, long after everything else has closed it.

use std::fmt;
use std::sync::Arc;

use headpond_base::{Errno, Result};

use crate::inode::Inode;
use crate::places::{Hold, Home};
use crate::{Access, Tree};

/// The owner may read and write.
pub(crate) const OWNERS: u32 = 0o600;

/// Opens a file again, because the engine has work left at the origin and the descriptor was closed.
pub struct Again<T: Tree> {
    inode: Hold<T>,
    /// Destage goes on when the mount is gone.
    _home: Arc<Home<T>>,
    read_only: bool,
}

impl<T: Tree> Again<T> {
    pub(crate) const fn new(inode: Hold<T>, home: Arc<Home<T>>, read_only: bool) -> Self {
        Self { inode, _home: home, read_only }
    }

    /// Opens it, for writing too if asked. Never opens another file that has its name by now.
    ///
    /// # Errors
    /// When its place does not lead to it, or it cannot open.
    pub async fn open(&self, writes: bool) -> Result<T::File> {
        let inode = self.inode.inode();
        // A file whose mode the open must change stays open, so it is not opened again. This is for a change past the
        // mount.
        match open_as_may_be(inode, self.read_only, writes).await? {
            Some(file) => Ok(file),
            None => as_owner(inode).await,
        }
    }
}

impl<T: Tree> fmt::Debug for Again<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Again({:?})", self.inode.inode())
    }
}

/// Opens the origin's file, for reading and writing where possible. `None` if that needs a change of its mode, which
/// only its owner may make.
pub(crate) async fn open_as_may_be<T: Tree>(
    inode: &Inode<T>,
    read_only: bool,
    writes: bool,
) -> Result<Option<T::File>> {
    let opened = if read_only { Err(Errno::ROFS) } else { inode.open_for(Access::Write).await };
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(Errno::ROFS | Errno::PERM | Errno::ACCESS | Errno::TXTBSY) if !writes => {
            inode.open_for(Access::Read).await.map(Some)
        }
        Err(Errno::ACCESS) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file whose mode denies its owner, by changing the mode for a moment. An ordinary user's daemon has no other
/// way to a file that the user made read-only while writing it. The mode is back before anything else happens to the
/// file through the mount.
pub(crate) async fn as_owner<T: Tree>(inode: &Inode<T>) -> Result<T::File> {
    let home = inode.home()?;
    let found = inode.look().await?;
    if found.uid != home.tree.user() {
        return Err(Errno::ACCESS);
    }
    home.tree.set_mode(&*inode.reach().await?, found.mode | OWNERS).await?;
    let opened = inode.open_for(Access::Write).await;
    home.tree.set_mode(&*inode.reach().await?, found.mode).await?;
    opened
}
