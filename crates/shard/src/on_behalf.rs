//! Reserves space at the origin as the user who writes. So quotas, and the blocks that a file system keeps for the
//! superuser, work as without headpond.
//!
//! Invariant: a thread that took on a user's identity gives it up after the work, or the process ends. Otherwise the
//! next job would run with another user's rights.
//!
//! Price: five system calls, for users other than the superuser. The groups stay the daemon's: a user who may use kept
//! blocks only through a group gets ENOSPC.

use rustix::fs::Uid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_res_uid};

/// The superuser, and the daemon itself.
const ROOT: u32 = 0;

/// The capability that the thread keeps as a user. The mount decides which writes remove set-group-id, by the groups
/// of the caller. Without this capability the origin would decide again, by the daemon's groups.
const KEPT: CapabilitySet = CapabilitySet::FSETID;

/// Does `work` on an open file as `user`, with only one of the daemon's capabilities. If the daemon runs as an ordinary
/// user, it serves only that user, and nothing changes. The same holds if it may not become the user (a container may
/// lack that user).
pub fn as_user<T>(user: u32, work: impl FnOnce() -> T) -> T {
    let daemon = rustix::process::geteuid();
    if user == ROOT || !daemon.is_root() {
        return work();
    }
    // Changes only the effective user: the others stay, so the thread can return. Its capabilities go with it.
    let Ok(own) = capabilities(None) else { return work() };
    if set_thread_res_uid(None, Uid::from_raw(user), None).is_err() {
        return work();
    }
    let guard = Back { daemon, own };
    // If this is refused, the thread keeps all that the change of user left.
    let _ = set_capabilities(None, CapabilitySets { effective: own.effective & KEPT, ..own });
    let result = work();
    drop(guard);
    result
}

struct Back {
    daemon: Uid,
    own: CapabilitySets,
}

impl Drop for Back {
    fn drop(&mut self) {
        let restored = set_thread_res_uid(None, self.daemon, None).and_then(|()| set_capabilities(None, self.own));
        restored.expect("a thread can always take back its own identity, which stays its saved one");
    }
}
