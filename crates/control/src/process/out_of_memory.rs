//! Which processes the system kills when memory is short: other programs first, then a worker, never its holder.
//!
//! Only root may ask for that. For others everything stays as it is.

use std::fs;

/// Where a process says how soon it is killed, and the number for never.
const ADJUSTMENT: &str = "/proc/self/oom_score_adj";
const NEVER: &str = "-1000";

/// For a holder: it takes next to no memory, and its end would be that of the mount.
pub(crate) fn never_kill_for_memory() {
    let _ = fs::write(ADJUSTMENT, NEVER);
}

/// For a worker of such a holder: its end is only a pause.
pub(crate) fn kill_before_holder() {
    if fs::read_to_string(ADJUSTMENT).is_ok_and(|now| now.trim() == NEVER) {
        let _ = fs::write(ADJUSTMENT, "-900");
    }
}
