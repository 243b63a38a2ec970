//! Whether this daemon may still change the origin, as what lies beside the origin says: its lock and its marker.
//!
//! Invariant: the marker is read after the lock was found held. Who took over in a time without the lock has left another
//! marker, or none.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use headpond_base::Errno;
use headpond_shard::{Gate, LookResult, OriginClaim};

use super::lease::LockState;
use super::marker::{ClaimWatch, Marker, MarkerHold, MarkerStanding, MarkerState};
use crate::refusal::Refusal;

/// The claim of a mount.
pub(crate) struct MountClaim {
    watch: ClaimWatch,
    lock: super::marker::LockWatch,
    origin: PathBuf,
    /// Empty without a mount.
    mountpoint: PathBuf,
}

impl MountClaim {
    pub(crate) fn new(marker: &MarkerHold, own: &Marker, origin: PathBuf) -> Self {
        Self { watch: marker.watch(own), lock: marker.watch_lock(), origin, mountpoint: own.mountpoint.clone() }
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
        let held = self.lock.look();
        match self.watch.look() {
            Ok(MarkerStanding::Ours) => match held {
                LockState::Yes => LookResult::Ours,
                // It takes over, or was refused and lets go in a moment: the marker will say.
                LockState::ByAnother => LookResult::Unknown(Errno::BUSY),
                LockState::Unknown(errno) => LookResult::Unknown(Errno(errno.raw_os_error())),
            },
            Ok(MarkerStanding::Theirs(marker)) => self.lost(&by(&marker)),
            Ok(MarkerStanding::Gone) => self.lost("another unmount or an operator removed its marker"),
            Err(refusal) => LookResult::Unknown(errno_of(&refusal)),
        }
    }
}

/// Who has the origin now.
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

/// Looks at the claim also while nothing is changed, on a thread of its own, for as long as the result is kept.
///
/// # Errors
/// When no thread can be started.
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
