//! What root's daemon may still do once it has begun: what serving a mount needs, and nothing else.
//!
//! Invariants
//! - This comes before the first thread starts and before the daemon reads anything that others wrote. A thread
//!   inherits its capabilities from its parent, and keeps them.
//! - What the daemon gives up, neither it nor a program that it runs can get back.
//! - An ordinary user's daemon stays as it is: it has nothing to give up, and must be able to run `fusermount3`,
//!   which is set-user-id root.

use std::io;

use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The capabilities that stay, each with its purpose. docs/security.md has the same list.
pub const KEPT: [(CapabilitySet, &str); 12] = [
    (CapabilitySet::CHOWN, "give files to the owner whom an application names"),
    (CapabilitySet::DAC_OVERRIDE, "reach every file of the origin: the kernel has checked the caller's permissions"),
    (
        CapabilitySet::FOWNER,
        "set modes, times and attributes of files of others, and read files without moving access times",
    ),
    (CapabilitySet::FSETID, "keep set-group-id bits that the caller may keep"),
    (CapabilitySet::LINUX_IMMUTABLE, "set the file flags that a caller may set"),
    (CapabilitySet::MKNOD, "make the device nodes that a caller may make"),
    (CapabilitySet::SETFCAP, "give programs the capabilities that a caller may give them"),
    (CapabilitySet::SETGID, "make files as the caller's group"),
    (CapabilitySet::SETUID, "make files as the caller"),
    (CapabilitySet::SYS_ADMIN, "mount and unmount; `trusted` and `security` attributes of callers who may set them"),
    (CapabilitySet::SYS_PTRACE, "see which program a process runs, for rules by its name, and who keeps a mount busy"),
    (CapabilitySet::SYS_RESOURCE, "have as many open files as the system allows; space that the origin keeps for root"),
];

/// Gives up all other capabilities.
///
/// # Errors
/// If the system refuses, for which it has no reason.
pub fn confine() -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let own = rustix::thread::capabilities(None)?;
    let kept = own.permitted & kept();
    // The bounding set first, because that takes a capability itself. A daemon without that capability (in a
    // container) has less to give up.
    if own.effective.contains(CapabilitySet::SETPCAP) {
        for bit in 0..u64::BITS {
            let capability = CapabilitySet::from_bits_retain(1 << bit);
            // An error means that the kernel does not know this capability.
            if !kept.contains(capability) && rustix::thread::capability_is_in_bounding_set(capability).unwrap_or(false)
            {
                rustix::thread::remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    // Kernels before 4.3 have no ambient set.
    let _ = rustix::thread::clear_ambient_capability_set();
    let sets = CapabilitySets { effective: own.effective & kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

fn kept() -> CapabilitySet {
    KEPT.iter().fold(CapabilitySet::empty(), |all, (one, _)| all | *one)
}
