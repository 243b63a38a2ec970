//! Space at the origin, reserved as the user who writes. So quotas, and the blocks that a file system keeps for the
//! superuser, work as they do without headpond.
//!
//! Invariant: a thread that took on a user's identity gives it up after the work, or the process ends. Otherwise the
//! next job would run with another user's rights.
//!
//! Price: five system calls, for users other than the superuser. Groups stay the daemon's: a user who may use kept blocks
//! by a group alone gets ENOSPC.

use rustix::fs::Uid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_res_uid};

/// The superuser, and the daemon itself.
const ROOT: u32 = 0;

/// What the thread keeps as a user. The mount decides which writes take set-group-id away, by the groups of the caller.
/// Without this the origin would decide, too, by the daemon's groups.
const KEPT: CapabilitySet = CapabilitySet::FSETID;

/// Does something on an open file as a user, without the daemon's capabilities but one. An ordinary user's daemon serves only that
/// user, and stays as it is; so does one that may not become the user (in a container that has no such user).
pub fn as_user<T>(user: u32, work: impl FnOnce() -> T) -> T {
    let daemon = rustix::process::geteuid();
    if user == ROOT || !daemon.is_root() {
        return work();
    }
    // The effective user alone: the others stay, so that it can come back. Its capabilities go with it.
    let Ok(own) = capabilities(None) else { return work() };
    if set_thread_res_uid(None, Uid::from_raw(user), None).is_err() {
        return work();
    }
    let guard = Back { daemon, own };
    // Refused, it is a bit less that stays.
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
