//! A mount that comes while the origin's last daemon is still ending: the mount waits, and says so.
//!
//! After a plain `umount` the mount is gone at once, but its daemon still writes dirty data to the origin. If you
//! mount again then, the new mount waits for that instead of refusing.
//!
//! Invariants
//! - The mount does not wait for a daemon that serves.
//! - The wait goes on only while the daemon writes more to the origin.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::mounts::{FS_TYPE, mounts};
use crate::origin::OriginRoot;
use crate::ownership::{Marker, MarkerHold};
use crate::process::background;
use crate::refusal::Refusal;
use crate::service::{Answer, ClientCommand, Daemon};
use crate::wording::Size;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);

/// How long a daemon may take to notice that its mount is gone, or to end after the origin has everything.
const GRACE: Duration = Duration::from_secs(5);

/// How long the daemon may write nothing to the origin.
const STUCK: Duration = Duration::from_secs(60);

/// How often it says how much is left.
const WORD: Duration = Duration::from_secs(1);

/// Takes the origin, as soon as its last daemon has ended. One that has the pool's lease, as an owner of this number,
/// does not wait for one that was deposed.
pub(crate) fn take_marker(origin: &Arc<OriginRoot>, owner: Option<u64>) -> Result<MarkerHold, Refusal> {
    let mut wait = Wait::new(origin.path());
    loop {
        match MarkerHold::take_as(origin, owner) {
            Err(refusal @ Refusal::OriginInUse { .. }) => {
                if !wait.goes_on() {
                    return Err(refusal);
                }
            }
            Ok(hold) => {
                wait.for_the_process();
                return Ok(hold);
            }
            refused => return refused,
        }
        std::thread::sleep(LOOK);
    }
}

/// Tries `take` again as long as it is refused because a daemon that has just let go of its origin still has the
/// flash or the control socket.
pub(crate) fn once_free<T>(mut take: impl FnMut() -> Result<T, Refusal>) -> Result<T, Refusal> {
    let started = Instant::now();
    loop {
        match take() {
            Err(Refusal::FlashInUse { .. } | Refusal::MountPointInUse { .. }) if started.elapsed() < WORD => {}
            result => return result,
        }
        std::thread::sleep(LOOK);
    }
}

struct Wait {
    origin: PathBuf,
    /// The daemon that the mount waits for.
    process: Option<u32>,
    /// Bytes that it had written at the last look.
    written: Option<u64>,
    until: Instant,
    said: Option<Instant>,
}

impl Wait {
    fn new(origin: &Path) -> Self {
        Self { origin: origin.to_owned(), process: None, written: None, until: Instant::now() + GRACE, said: None }
    }

    /// Whether to wait on: the holder of the origin is ending.
    fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        // Without a marker the holder is at its end, or at its beginning.
        let Some(marker) = Marker::beside(&self.origin) else { return now < self.until };
        if marker.host != rustix::system::uname().nodename().to_string_lossy() || self.is_served() {
            return false;
        }
        self.process = Some(marker.pid);
        if let Some((left, written)) = left_by(&marker.mountpoint) {
            // Data that reached the origin is progress, even if other programs make more dirty meanwhile.
            if self.written.is_none_or(|before| before != written) {
                (self.written, self.until) = (Some(written), now + STUCK);
            }
            self.word(now, marker.pid, left);
        }
        now < self.until
    }

    fn word(&mut self, now: Instant, process: u32, left: u64) {
        if self.said.is_some_and(|said| now.duration_since(said) < WORD) {
            return;
        }
        self.said = Some(now);
        let origin = self.origin.display();
        let left = Size(left);
        background::tell(&format!(
            "waiting for the daemon of the last mount (process {process}) to write to {origin}: {left} left"
        ));
    }

    /// Whether the kernel shows a mount of the origin.
    fn is_served(&self) -> bool {
        mounts().iter().any(|mount| mount.fs_type == FS_TYPE && mount.source == self.origin)
    }

    /// Waits for the daemon's process, which has let go of the origin and is about to let go of the rest.
    fn for_the_process(&self) {
        let Some(process) = self.process else { return };
        let started = Instant::now();
        while Path::new(&format!("/proc/{process}")).exists() && started.elapsed() < GRACE {
            std::thread::sleep(LOOK);
        }
    }
}

/// How much the daemon of a mount point must still write, and how much it has written, if an unmount is under way.
/// None otherwise, or if that is not known.
fn left_by(mountpoint: &Path) -> Option<(u64, u64)> {
    match Daemon::of(mountpoint).ok()?.ask(&ClientCommand::Status).ok()? {
        Answer::Status(status) if status.state == "unmounting" => Some((status.dirty_bytes, status.origin_write_bytes)),
        _ => None,
    }
}
