//! One copy that is being served, and whose connection may write to it.
//!
//! Invariants:
//! - What is carried out belongs to the newest session, no larger owner's number was in the record when it began, and
//!   no take-over held the copy.
//! - A session that is over carries out nothing more, whatever of it is still on its way, and no sync of it is answered.
//! - After a sync that failed nothing more is carried out: the file may have lost any write before it. One sync runs at
//!   a time, as the kernel tells of a failure once: who syncs next must not take its silence for success.
//!
//! Locks, in this order: `settling`, then `state`. A sync holds the first alone: so a slow one keeps neither requests
//! of a new session from beginning, nor others' copies.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headpond_base::PoolId;
use headpond_peer::{Asked, BadFrame, PeerFrame, Said};
use rustix::fs::FallocateFlags;

use crate::record::Seen;
use crate::store::{Store, open_locked};
use crate::store_error::StoreError;

/// How long a file that another process is just letting go of is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// A file with a copy, locked for this process.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) pool: PoolId,
    /// Its name in the store.
    pub(crate) name: String,
    store: Store,
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
    seen: Option<Seen>,
    /// Something was written since the last sync.
    dirty: bool,
    /// A sync failed, and why.
    failed: Option<String>,
    /// The thread that settles it ends when this goes.
    kept: Option<Sender<()>>,
}

/// Why a session carries out nothing more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// A newer one of the same owner has begun.
    Superseded,
    /// The record has a larger owner's number.
    Deposed(u64),
    /// A take-over holds the copy.
    Held,
    /// The disk failed.
    Failed(String),
    /// The owner broke the protocol.
    Broken(BadFrame),
}

impl Copy {
    /// Opens the file of a copy and locks it.
    pub(crate) fn open(store: &Store, pool: PoolId, name: &str) -> Result<Self, StoreError> {
        let path = store.dir().join(name);
        let file = Some(Arc::new(open_locked(&path, LOCK_PATIENCE)?));
        // A server before this one may have left something in the kernel's memory.
        let state = State { file, session: 0, owner: 0, seen: None, dirty: true, failed: None, kept: None };
        let (store, name) = (store.clone(), name.to_owned());
        Ok(Self { pool, name, store, state: Mutex::new(state), settling: Mutex::default() })
    }

    /// Begins a session of this owner. When this returns, those before it are over.
    pub(crate) fn begin(&self, owner: u64) -> u64 {
        let mut state = self.state();
        (state.session, state.owner, state.seen) = (state.session + 1, owner, None);
        state.session
    }

    /// Ends all sessions. When this returns, none of their requests is under way.
    pub(crate) fn supersede(&self) {
        self.state().session += 1;
    }

    /// Ends all sessions. When this returns, the file is free for others.
    pub(crate) fn close(&self) {
        let _one = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.session += 1;
        (state.file, state.kept) = (None, None);
    }

    /// What goes when the copy is closed.
    pub(crate) fn keep(&self, kept: Sender<()>) {
        let mut state = self.state();
        if state.file.is_some() {
            state.kept = Some(kept);
        }
    }

    /// Whether a session is the newest.
    pub(crate) fn is_newest(&self, session: u64) -> bool {
        self.state().session == session
    }

    /// Whether a session may go on.
    pub(crate) fn look(&self, session: u64) -> Result<(), Over> {
        self.may(session).map(drop)
    }

    fn may(&self, session: u64) -> Result<MutexGuard<'_, State>, Over> {
        let mut state = self.state();
        if state.session != session {
            return Err(Over::Superseded);
        }
        if let Some(why) = &state.failed {
            return Err(Over::Failed(why.clone()));
        }
        if state.seen.as_ref().is_none_or(|seen| !self.store.is_as_seen(self.pool, seen)) {
            match self.store.look(self.pool) {
                Ok(Some((record, _))) if record.owner > state.owner => return Err(Over::Deposed(record.owner)),
                // Who takes a hold changes the record after that: so this looks again.
                Ok(Some(_)) if self.store.is_held(self.pool) => return Err(Over::Held),
                Ok(Some((_, seen))) => state.seen = Some(seen),
                // Without a record nobody knows who the owner is.
                Ok(None) | Err(_) => return Err(Over::Superseded),
            }
        }
        Ok(state)
    }

    /// Carries out a request of a session, and appends the answer.
    pub(crate) fn carry_out(
        &self,
        session: u64,
        tag: u64,
        asked: &Asked<'_>,
        durable: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Over> {
        if durable && matches!(asked, Asked::Sync) {
            self.look(session)?;
            self.settle().map_err(Over::Failed)?;
        }
        // After a sync, too: it took its time, and another owner may have the copy by now.
        let mut state = self.may(session)?;
        let Some(file) = state.file.clone() else { return Err(Over::Superseded) };
        let mut data = Vec::new();
        let done: io::Result<Said<'_>> = match asked {
            Asked::Hello(_) | Asked::LetGo => return Err(Over::Broken(BadFrame::NotDue)),
            Asked::Read { offset, len } => {
                data.resize(*len, 0);
                file.read_exact_at(&mut data, *offset).map(|()| Said::Data(&data))
            }
            Asked::Write { offset, data } => {
                state.dirty = true;
                file.write_all_at(data, *offset).map(|()| Said::Done)
            }
            // All writes before it are with the kernel, or on disk by now.
            Asked::Sync => Ok(Said::Done),
            Asked::Trim { offset, len } => {
                // A hint. The file keeps its space where it can: else others could take it.
                let how = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(&*file, how, *offset, *len);
                return Ok(());
            }
        };
        // With the last descriptor goes the lock of the file.
        drop(file);
        drop(state);
        let said = done.unwrap_or_else(|error| Said::Failed(error.into()));
        PeerFrame { tag, said }.encode(out);
        Ok(())
    }

    /// Brings to disk what was written. An error says why what was answered may be lost.
    pub(crate) fn settle(&self) -> Result<(), String> {
        let _one = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        if let Some(why) = &state.failed {
            return Err(why.clone());
        }
        let dirty = std::mem::take(&mut state.dirty);
        let Some(file) = state.file.clone().filter(|_| dirty) else { return Ok(()) };
        // Requests go on meanwhile.
        drop(state);
        self.store.sync(self.pool, &file).map_err(|error| {
            let why = format!("a sync failed: {error}");
            self.state().failed = Some(why.clone());
            why
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy that is served, shared by its sessions.
pub(crate) type SharedCopy = Arc<Copy>;
