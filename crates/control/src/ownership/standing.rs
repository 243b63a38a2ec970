//! Whether this daemon may still change the origin, from the lock and the marker beside it.
//!
//! Invariant: it reads the marker after it found the lock held. A headpond that took over while the lock was lost has
//! left another marker, or none.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use headpond_base::Errno;
use headpond_shard::{Gate, LookResult, OriginClaim};

use super::lease::LockState;
use super::marker::{ClaimWatch, Marker, MarkerHold, MarkerStanding, MarkerState};
use crate::deposed::Deposed;
use crate::refusal::Refusal;

/// The claim of a mount.
pub(crate) struct MountClaim {
    watch: ClaimWatch,
    lock: super::marker::LockWatch,
    origin: PathBuf,
    /// Empty without a mount.
    mountpoint: PathBuf,
    deposed: Deposed,
}

impl MountClaim {
    pub(crate) fn new(marker: &MarkerHold, own: &Marker, origin: PathBuf, deposed: Deposed) -> Self {
        let (watch, lock) = (marker.watch(own), marker.watch_lock());
        Self { watch, lock, origin, mountpoint: own.mountpoint.clone(), deposed }
    }

    fn lost(&self, to: &str) -> LookResult {
        let (origin, mountpoint) = (self.origin.display(), self.mountpoint.display());
        let (whose, stays) = if self.mountpoint.as_os_str().is_empty() {
            ("pool", "in it".to_owned())
        } else {
            ("mount", format!("in the pool. To unmount and keep it: headpond unmount {mountpoint} --keep-dirty"))
        };
        LookResult::Lost(format!(
            "{origin} is no longer this {whose}'s: {to}. This {whose} writes nothing more there, and takes no writes. Its dirty \
             data stays {stays}"
        ))
    }
}

impl OriginClaim for MountClaim {
    fn look(&self) -> LookResult {
        if let Some(said) = self.deposed.said() {
            return self.lost(said);
        }
        let held = self.lock.look();
        match self.watch.look() {
            Ok(MarkerStanding::Ours) => match held {
                LockState::Yes => LookResult::Ours,
                // That process is taking over, or was refused and lets go in a moment. The marker will tell.
                LockState::ByAnother => LookResult::Unknown(Errno::BUSY),
                LockState::Unknown(errno) => LookResult::Unknown(Errno(errno.raw_os_error())),
            },
            Ok(MarkerStanding::Theirs(marker)) => self.lost(&by(&marker)),
            Ok(MarkerStanding::Gone) => self.lost("another unmount or an operator removed its marker"),
            Err(refusal) => LookResult::Unknown(errno_of(&refusal)),
        }
    }
}

/// The headpond that has the origin now, in words.
fn by(marker: &Marker) -> String {
    let Marker { host, pid, since, flash, state, .. } = marker;
    let how = match state {
        MarkerState::Mounted => "has taken it over",
        MarkerState::DirtyLeft => "took it over and left dirty data",
    };
    format!("host {host}, process {pid}, {how} with flash {} since {since}", flash.display())
}

fn errno_of(refusal: &Refusal) -> Errno {
    match refusal {
        Refusal::Failed { error, .. } => error.raw_os_error().map_or(Errno::IO, Errno),
        _ => Errno::IO,
    }
}

/// Checks the claim even while nothing changes the origin, on a thread of its own, as long as the result lives.
///
/// # Errors
/// If the thread cannot start.
pub(crate) fn keep_watch(gate: Arc<Gate>) -> std::io::Result<Sender<()>> {
    let (stop, stopped) = channel();
    let watch = move || {
        while !gate.is_lost() {
            gate.keep_watch();
            if !matches!(stopped.recv_timeout(Gate::INTERVAL), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("claim-watch".to_owned()).spawn(watch)?;
    Ok(stop)
}
