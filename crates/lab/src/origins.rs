//! Origins that are not this machine's own file system: headpond in a guest, in front of an origin that goes away, comes back,
//! forgets and is taken over.
//!
//! One file of this folder for each kind of origin: a script for the guest, with a function for each case. A case prints
//! `CASE name: what was found`, or ends the script.

use crate::failure::{Failure, Result};
use crate::guest::Guest;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An origin to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Origin {
    /// The kernel's NFS server and client, 4.2, over loopback.
    Nfs,
}

/// How long one case may take at most.
const CASE_MAX: Duration = Duration::from_secs(180);

impl Origin {
    /// All cases, in the order in which they are tried.
    #[must_use]
    pub const fn cases(self) -> &'static [&'static str] {
        match self {
            Self::Nfs => {
                &["grace", "away", "back", "forgotten", "taken", "kills", "space", "removal", "reuse", "others"]
            }
        }
    }

    const fn script(self) -> &'static str {
        match self {
            Self::Nfs => include_str!("origins/nfs.sh"),
        }
    }

    const fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Nfs => &["fuse", "nfsd", "nfsv4", "nfs"],
        }
    }

    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Nfs => &["mkfs.ext4", "rpc.nfsd", "rpc.mountd", "exportfs", "mount.nfs4", "python3"],
        }
    }

    /// What this machine lacks to try it, if anything.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        Guest::missing(self.programs())
    }
}

/// Tries these cases, each in a guest of its own, and tells `each` what it found.
pub fn run(
    program: &Path,
    directory: &Path,
    origin: Origin,
    cases: &[String],
    mut each: impl FnMut(&str),
) -> Result<()> {
    let known = origin.cases();
    let cases: Vec<String> =
        if cases.is_empty() { known.iter().map(ToString::to_string).collect() } else { cases.to_vec() };
    for case in &cases {
        let place = crate::pond::directory_in(directory, case)?;
        let guest = Guest {
            directory: place,
            modules: origin.modules(),
            disk_bytes: 512 << 20,
            sockets: Vec::new(),
            script: origin.script().to_owned(),
            environment: vec![("CASE", case.clone()), ("HEADPOND", absolute(program)?.display().to_string())],
            limit: CASE_MAX,
        };
        let mut found = false;
        guest.run(|line| {
            if let Some(told) = line.strip_prefix("CASE ") {
                found = true;
                each(told);
            }
        })?;
        if !found {
            return Err(Failure::Other(format!("case {case} said nothing: there are {}", known.join(", "))));
        }
    }
    Ok(())
}

fn absolute(program: &Path) -> Result<PathBuf> {
    program.canonicalize().map_err(Failure::io(format!("looking for {}", program.display())))
}
