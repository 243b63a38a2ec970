//! The caller of a request. The mount creates files as the caller. Only the caller's own rights allow what needs
//! privileges.
//!
//! Invariant: a thread that took on a caller's identity gives it up when the guard is dropped; if it cannot, the
//! process ends. Otherwise the thread would serve the next request with it.

use std::cell::Cell;
use std::fs;

use fuser::Request;
use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The user, group and thread that made a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Caller {
    /// The process that made a request.
    pub(crate) fn of(request: &Request) -> Self {
        Self { uid: request.uid(), gid: request.gid(), pid: request.pid() }
    }
}

/// Capabilities that stay with a thread that acts as a caller. The kernel has already checked the caller's
/// permissions, with all of the caller's groups. The mount does not know those groups, so the origin must not check
/// directories (DAC), set-group-id (FSETID) and device nodes (MKNOD) again.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::FSETID).union(CapabilitySet::MKNOD);

/// The thread acts as a caller until this is dropped.
#[must_use = "the identity lasts as long as this value"]
pub(crate) struct AsCaller {
    daemon: Option<(Uid, Gid, CapabilitySets)>,
}

impl AsCaller {
    /// Takes on the user and group of a request's process. An ordinary user's daemon serves
    /// only that user and stays as it is.
    pub(crate) fn of_caller(caller: Caller) -> Result<Self, Errno> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let (caller_uid, caller_gid) = (Uid::from_raw(caller.uid), Gid::from_raw(caller.gid));
        if !uid.is_root() || (caller_uid == uid && caller_gid == gid) {
            return Ok(Self { daemon: None });
        }
        let own = rustix::thread::capabilities(None)?;
        // The group first: without the user's rights it could not be changed any more.
        rustix::thread::set_thread_res_gid(None, caller_gid, None)?;
        let guard = Self { daemon: Some((uid, gid, own)) };
        if caller_uid != uid {
            rustix::thread::set_thread_res_uid(None, caller_uid, None)?;
            let effective = own.effective & KEPT;
            rustix::thread::set_capabilities(None, CapabilitySets { effective, ..own })?;
        }
        Ok(guard)
    }
}

impl Drop for AsCaller {
    fn drop(&mut self) {
        if let Some((uid, gid, own)) = self.daemon {
            let restored = rustix::thread::set_thread_res_uid(None, uid, None)
                .and_then(|()| rustix::thread::set_capabilities(None, own))
                .and_then(|()| rustix::thread::set_thread_res_gid(None, gid, None));
            // Going on as another user would create files with wrong owners: crash rather than that.
            restored.expect("a thread can always take back its own identity, which stays its saved one");
        }
    }
}

thread_local! {
    static OWN_UMASK: Cell<bool> = const { Cell::new(false) };
}

/// Removes this thread's umask, so that modes given on it count as they are. The mount applies the caller's own umask
/// where it makes the file.
pub(crate) fn without_umask() {
    OWN_UMASK.with(|own| {
        if !own.get() {
            // Unshare first: then only this thread loses its umask. Some sandboxes refuse that; there the whole
            // process does without a umask.
            #[allow(deprecated, reason = "only unsharing descriptors is unsound; this unshares the umask")]
            let _ = rustix::thread::unshare(rustix::thread::UnshareFlags::FS);
            rustix::process::umask(Mode::empty());
            own.set(true);
        }
    });
}

/// What a caller may do beyond its user id, as far as the mount needs it.
///
/// Capabilities count only in the daemon's user namespace: any user may have all of them in a namespace of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rights {
    capabilities: CapabilitySet,
    groups: Vec<u32>,
}

impl Rights {
    /// Looks at the process that made the request: neither fuser nor older kernels say this. If the caller is already
    /// gone, its user id decides.
    pub(crate) fn of(request: &Request) -> Self {
        Self::of_caller(Caller::of(request))
    }

    /// The same for a request that fuser did not see.
    pub(crate) fn of_caller(caller: Caller) -> Self {
        let status = fs::read_to_string(format!("/proc/{}/status", caller.pid)).unwrap_or_default();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let capabilities = match line("CapEff:").and_then(|bits| u64::from_str_radix(bits, 16).ok()) {
            Some(bits) if bits != 0 && !shares_our_users(caller.pid) => CapabilitySet::empty(),
            Some(bits) => CapabilitySet::from_bits_retain(bits),
            None if caller.uid == 0 => CapabilitySet::all(),
            None => CapabilitySet::empty(),
        };
        let mut groups: Vec<u32> =
            line("Groups:").unwrap_or_default().split_whitespace().filter_map(|group| group.parse().ok()).collect();
        groups.push(caller.gid);
        Self { capabilities, groups }
    }

    /// For a caller whose set-user-id and set-group-id bits the kernel drops. For some bits the caller's groups still
    /// decide.
    pub(crate) fn of_unprivileged(caller: Caller) -> Self {
        Self { capabilities: CapabilitySet::empty(), ..Self::of_caller(caller) }
    }

    /// May keep set-user-id and set-group-id bits on what it writes to.
    pub(crate) fn keeps_set_id(&self) -> bool {
        self.capabilities.contains(CapabilitySet::FSETID)
    }

    /// May change files of others.
    pub(crate) fn acts_as_owner(&self) -> bool {
        self.capabilities.contains(CapabilitySet::FOWNER)
    }

    /// May make files immutable or for appending only, and undo that.
    pub(crate) fn fixes_files(&self) -> bool {
        self.capabilities.contains(CapabilitySet::LINUX_IMMUTABLE)
    }

    /// Is in a group.
    pub(crate) fn in_group(&self, group: u32) -> bool {
        self.groups.contains(&group)
    }
}

/// Whether users have the same ids in that process's user namespace as in this one's. Only root here may make another
/// namespace with the same ids.
fn shares_our_users(process: u32) -> bool {
    let names = |process: &str| fs::read_to_string(format!("/proc/{process}/uid_map")).ok();
    let ours = names("self");
    ours.is_some() && names(&process.to_string()) == ours
}

#[cfg(test)]
impl Rights {
    pub(crate) fn of_groups(groups: &[u32]) -> Self {
        Self { capabilities: CapabilitySet::empty(), groups: groups.to_vec() }
    }

    pub(crate) fn of_all() -> Self {
        Self { capabilities: CapabilitySet::all(), groups: Vec::new() }
    }
}
