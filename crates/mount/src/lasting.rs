//! What of a mount outlives the process that serves it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use headpond_base::Errno as EngineErrno;
use headpond_ledger::MountLedger;
use headpond_names::{Keeper, Lasting};

use crate::fuse::journal::RequestJournal;
use crate::tree::OriginTree;

/// Keeps descriptors where the end of this process does not reach them.
pub trait DescriptorKeeper: Send + Sync + 'static {
    /// Keeps a copy of a descriptor under a number until [`let_go`](Self::let_go). The descriptor only names its file
    /// (`O_PATH`). Returns when the copy is safe.
    ///
    /// # Errors
    /// If it cannot. The mount goes on, but no successor can take it over while that file is in use.
    fn keep(&self, number: u64, file: BorrowedFd<'_>) -> io::Result<()>;

    /// The copy is not needed any more.
    fn let_go(&self, number: u64);
}

/// What of a mount outlives this process.
pub struct LastingMount {
    /// A new one for a new mount; for a successor, what the process before left.
    pub ledger: Arc<MountLedger>,
    /// Keeps descriptors of files that no name leads to.
    pub keeper: Arc<dyn DescriptorKeeper>,
    /// For a successor: what the keeper has, by number.
    pub kept: BTreeMap<u64, OwnedFd>,
    /// For kernels that cannot send requests again: see [`can_send_again`](crate::can_send_again).
    pub journal: Option<RequestJournal>,
}

/// The keeper for the name layer.
struct OfPaths(Arc<dyn DescriptorKeeper>);

impl Keeper<OwnedFd> for OfPaths {
    fn keep(&self, number: u64, path: &OwnedFd) -> headpond_base::Result<()> {
        self.0.keep(number, path.as_fd()).map_err(|_| EngineErrno::IO)
    }

    fn let_go(&self, number: u64) {
        self.0.let_go(number);
    }
}

impl LastingMount {
    pub(crate) fn for_names(self) -> Lasting<OwnedFd> {
        Lasting { ledger: self.ledger, keeper: Arc::new(OfPaths(self.keeper)), kept: self.kept }
    }
}

impl fmt::Debug for LastingMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LastingMount({:?}, {} kept)", self.ledger.counts(), self.kept.len())
    }
}

/// The inodes that a successor took over, by the numbers of their rows.
pub(crate) type TakenOver = headpond_names::TakenOver<OriginTree>;
