//! What this machine refuses headpond: io_uring. Says why, how to allow it, and what a mount costs without it.

use std::fmt;
use std::fs;

use headpond_control::probe_uring;
use rustix::io::Errno;
use serde::Serialize;

/// Whether a mount by this user on this machine gets io_uring.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct IoUring {
    /// The kernel gave a ring.
    pub usable: bool,
    /// The backend that `headpond mount` takes by itself. None if the mount fails for now.
    pub backend: Option<&'static str>,
    /// The kernel's error, such as `EPERM`.
    pub error: Option<String>,
    /// Who refuses it; or, where it is usable, whom it is refused to.
    pub why: Option<String>,
    /// What allows it: one way a line.
    pub allow: Vec<String>,
    /// What a mount without it costs.
    pub cost: Option<&'static str>,
}

/// What psync costs, as measured beside the ring.
const COST: &str = "one request at a time comes at nine tenths of the rate of io_uring. 32 reads at once come at half the \
     rate, and take two and a half times the CPU time (docs/benchmarks.md)";

const ALLOW_ALL: &str = "sysctl -w kernel.io_uring_disabled=0    # to keep it: the same in /etc/sysctl.d/";
const ALLOW_GROUP: &str = "sysctl -w kernel.io_uring_disabled=1 kernel.io_uring_group=GID    # for one group, and root";
const ALLOW_FILTER: &str = "let the filter pass io_uring_setup, io_uring_enter and io_uring_register: \
     a container's with --security-opt seccomp=PROFILE, a service's with SystemCallFilter=@aio";

/// Asks the kernel for a ring.
pub fn io_uring() -> IoUring {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    // 2: there is a filter.
    let filtered = status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"));
    let refused = probe_uring().err().map(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
    judge(refused, number("/proc/sys/kernel/io_uring_disabled"), filtered)
}

/// Says what an answer of the kernel means. `disabled` is the setting `kernel.io_uring_disabled`, which kernels before
/// 6.6 do not have.
fn judge(refused: Option<Errno>, disabled: Option<u8>, filtered: bool) -> IoUring {
    const OF_A_FILTER: &str = "a seccomp filter, as that of a container or of a service";
    let Some(errno) = refused else {
        let others = disabled == Some(1);
        let why = "kernel.io_uring_disabled = 1 refuses it to users other than root and kernel.io_uring_group";
        return IoUring {
            usable: true,
            backend: Some("uring"),
            error: None,
            why: others.then(|| why.to_owned()),
            allow: if others { vec![ALLOW_ALL.to_owned()] } else { Vec::new() },
            cost: None,
        };
    };
    let (name, why, allow) = match errno {
        Errno::PERM if disabled == Some(2) => {
            ("EPERM", "kernel.io_uring_disabled = 2 refuses it to all", vec![ALLOW_ALL, ALLOW_GROUP])
        }
        // A filter answers before the kernel looks at its setting. Which of the two it was cannot be seen.
        Errno::PERM if disabled == Some(1) => (
            "EPERM",
            "kernel.io_uring_disabled = 1 refuses it to users other than root and kernel.io_uring_group",
            vec!["mount as root, or as a user in kernel.io_uring_group", ALLOW_ALL],
        ),
        Errno::PERM | Errno::NOSYS if filtered => {
            (if errno == Errno::PERM { "EPERM" } else { "ENOSYS" }, OF_A_FILTER, vec![ALLOW_FILTER])
        }
        Errno::PERM | Errno::ACCESS => (
            if errno == Errno::PERM { "EPERM" } else { "EACCES" },
            "a security module, such as SELinux",
            vec!["allow it in the module's policy: its log says what it refused"],
        ),
        Errno::NOSYS => ("ENOSYS", "this kernel has no io_uring", vec!["a kernel from 5.11 on, with CONFIG_IO_URING"]),
        Errno::INVAL => ("EINVAL", "this kernel's io_uring is too old", vec!["a kernel from 5.11 on"]),
        Errno::NOMEM => ("ENOMEM", "the limit on locked memory", vec!["ulimit -l, or LimitMEMLOCK= of the service"]),
        _ => {
            return IoUring {
                usable: false,
                backend: None,
                error: Some(errno.to_string()),
                why: Some(
                    "not a refusal, but trouble of the moment: a mount fails unless it has --backend psync".into(),
                ),
                allow: Vec::new(),
                cost: Some(COST),
            };
        }
    };
    IoUring {
        usable: false,
        backend: Some("psync"),
        error: Some(name.to_owned()),
        why: Some(why.to_owned()),
        allow: allow.into_iter().map(str::to_owned).collect(),
        cost: Some(COST),
    }
}

impl fmt::Display for IoUring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: &str| writeln!(f, "  {name:<9} {value}");
        match (self.usable, self.backend) {
            (true, _) => row("now", "usable: mounts of this user have the backend uring")?,
            (false, Some(backend)) => {
                row("now", &format!("refused: mounts work with the backend {backend}, and take it by themselves"))?;
            }
            (false, None) => row("now", "not to be had")?,
        }
        if let Some(why) = &self.why {
            let error = self.error.as_ref().map_or(String::new(), |error| format!(" ({error})"));
            row("why", &format!("{why}{error}"))?;
        }
        if let Some(cost) = self.cost {
            row("cost", cost)?;
        }
        for (index, way) in self.allow.iter().enumerate() {
            row(if index == 0 { "allow" } else { "or" }, way)?;
        }
        if !self.usable && self.backend.is_some() {
            row("verify", "headpond status MOUNTPOINT, after the next mount, shows (uring)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_told_from_the_others_and_leaves_the_mount_with_psync() {
        let cases = [
            (Errno::PERM, Some(2), false, "io_uring_disabled = 2", "sysctl -w"),
            (Errno::PERM, Some(1), false, "io_uring_disabled = 1", "io_uring_group"),
            (Errno::PERM, Some(0), true, "seccomp filter", "io_uring_setup"),
            (Errno::NOSYS, None, true, "seccomp filter", "io_uring_setup"),
            (Errno::PERM, None, false, "security module", "policy"),
            (Errno::ACCESS, Some(0), true, "security module", "policy"),
            (Errno::NOSYS, None, false, "has no io_uring", "5.11"),
            (Errno::INVAL, None, false, "too old", "5.11"),
            (Errno::NOMEM, None, false, "locked memory", "ulimit"),
        ];
        for (errno, disabled, filtered, why, allow) in cases {
            let found = judge(Some(errno), disabled, filtered);
            assert_eq!((found.usable, found.backend), (false, Some("psync")), "{found:?}");
            assert!(found.why.as_ref().is_some_and(|found| found.contains(why)), "{found:?}");
            assert!(found.allow.concat().contains(allow), "{found:?}");
            let text = found.to_string();
            for part in [why, allow, "docs/benchmarks.md"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }

    #[test]
    fn a_ring_that_only_root_gets_is_usable_and_the_others_are_told() {
        assert_eq!(judge(None, Some(0), true).to_string().lines().count(), 1);
        let found = judge(None, Some(1), false);
        assert!(found.usable && found.to_string().contains("io_uring_group"), "{found}");
    }

    #[test]
    fn trouble_of_the_moment_is_no_refusal() {
        let found = judge(Some(Errno::MFILE), Some(0), false);
        assert_eq!((found.usable, found.backend), (false, None));
        assert!(found.to_string().contains("--backend psync"), "{found}");
    }
}
