//! One copy that is being served, and whose connection may write to it.
//!
//! Invariants:
//! - What is carried out belongs to the newest session, and no larger owner's number was in the record when it began.
//! - A session that is over carries out nothing more, whatever of it is still on its way.
//! - After a sync that failed nothing more is promised: the file may have lost any write before it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headpond_base::{Errno, PoolId};
use headpond_peer::{Asked, BadFrame, PeerFrame, Said};
use rustix::fs::{FallocateFlags, FlockOperation, flock};

use crate::store::{RecordStamp, Store, StoreError};

/// How long a file that another process is just letting go of is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// A file with a copy, locked for this process.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) pool: PoolId,
    state: Mutex<State>,
    /// One sync at a time: who waits for it knows that all before is on disk.
    settling: Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// With its lock. None once the copy is closed.
    file: Option<Arc<File>>,
    /// The newest session. Those before it are over.
    session: u64,
    /// The owner's number of that.
    owner: u64,
    /// The record that was last looked at.
    stamp: Option<RecordStamp>,
    /// Something was written since the last sync.
    dirty: bool,
    failed: bool,
}

/// Why a session carries out nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// A newer one of the same owner has begun.
    Superseded,
    /// The record has a larger owner's number.
    Deposed(u64),
    /// The owner broke the protocol.
    Broken(BadFrame),
}

impl Copy {
    /// Opens the file of a copy and locks it.
    pub(crate) fn open(pool: PoolId, path: &Path) -> Result<Self, StoreError> {
        let file = File::options().read(true).write(true).open(path).map_err(StoreError::io("open", path))?;
        lock(&file, path, LOCK_PATIENCE)?;
        let file = Some(Arc::new(file));
        // A server before this one may have left something in the kernel's memory.
        let state = State { file, session: 0, owner: 0, stamp: None, dirty: true, failed: false };
        Ok(Self { pool, state: Mutex::new(state), settling: Mutex::default() })
    }

    /// Begins a session of this owner. When this returns, those before it are over.
    pub(crate) fn begin(&self, owner: u64) -> u64 {
        let mut state = self.state();
        (state.session, state.owner, state.stamp) = (state.session + 1, owner, None);
        state.session
    }

    /// Ends all sessions. When this returns, the file is free for others.
    pub(crate) fn close(&self) {
        let _one = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.session += 1;
        state.file = None;
    }

    /// Whether a session is the newest.
    pub(crate) fn is_newest(&self, session: u64) -> bool {
        self.state().session == session
    }

    /// Whether a session may go on.
    pub(crate) fn look(&self, store: &Store, session: u64) -> Result<(), Over> {
        self.may(store, session).map(drop)
    }

    fn may(&self, store: &Store, session: u64) -> Result<MutexGuard<'_, State>, Over> {
        let mut state = self.state();
        if state.session != session {
            return Err(Over::Superseded);
        }
        let now = store.stamp(self.pool).ok();
        if now.is_none() || state.stamp != now {
            match store.read(self.pool) {
                Ok(Some(record)) if record.owner > state.owner => return Err(Over::Deposed(record.owner)),
                Ok(Some(_)) => state.stamp = now,
                // Without a record nobody knows who the owner is.
                Ok(None) | Err(_) => return Err(Over::Superseded),
            }
        }
        Ok(state)
    }

    /// Carries out a request of a session, and appends the answer.
    pub(crate) fn carry_out(
        &self,
        store: &Store,
        session: u64,
        tag: u64,
        asked: &Asked<'_>,
        durable: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Over> {
        let mut state = self.may(store, session)?;
        let Some(file) = state.file.clone() else { return Err(Over::Superseded) };
        let mut data = Vec::new();
        let done: io::Result<Said<'_>> = match asked {
            _ if state.failed => Ok(Said::Failed(Errno::IO)),
            Asked::Hello(_) => return Err(Over::Broken(BadFrame::NotDue)),
            Asked::Read { offset, len } => {
                data.resize(*len, 0);
                file.read_exact_at(&mut data, *offset).map(|()| Said::Data(&data))
            }
            Asked::Write { offset, data } => {
                state.dirty = true;
                file.write_all_at(data, *offset).map(|()| Said::Done)
            }
            Asked::Sync if durable => {
                let synced = file.sync_data();
                (state.dirty, state.failed) = (false, synced.is_err());
                synced.map(|()| Said::Done)
            }
            // All writes before it are with the kernel.
            Asked::Sync => Ok(Said::Done),
            Asked::Trim { offset, len } => {
                // A hint. The file keeps its space where it can: else others could take it.
                let how = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(&*file, how, *offset, *len);
                return Ok(());
            }
        };
        drop(state);
        let said = done.unwrap_or_else(|error| Said::Failed(error.into()));
        PeerFrame { tag, said }.encode(out);
        Ok(())
    }

    /// Brings to disk what was written. Returns whether all that was answered is there.
    pub(crate) fn settle(&self) -> bool {
        let _one = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let dirty = std::mem::take(&mut state.dirty);
        let Some(file) = state.file.clone().filter(|_| dirty && !state.failed) else { return !state.failed };
        // Requests go on meanwhile.
        drop(state);
        let synced = file.sync_data().is_ok();
        self.state().failed |= !synced;
        synced
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks a copy's file, if nobody has it after this time.
pub(crate) fn lock(file: &File, path: &Path, patience: Duration) -> Result<(), StoreError> {
    let until = Instant::now() + patience;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::InUse(path.to_owned())),
            Err(errno) => return Err(StoreError::io("lock", path)(errno.into())),
        }
    }
}

/// A copy that is served, shared by its sessions.
pub(crate) type SharedCopy = Arc<Copy>;
