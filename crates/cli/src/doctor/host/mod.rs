//! What `headpond doctor` finds out about the host, and about an origin and the flash on it. [`read`] reads the facts,
//! [`judge`] says what they mean.

mod judge;
mod read;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// One look at the host, and what it means for headpond.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HostFinding {
    /// What was looked at.
    pub name: &'static str,
    /// Whether it is as it should be. None if the doctor cannot see that.
    pub met: Option<bool>,
    /// What was found, and what it costs.
    pub what: String,
    /// What to do. None if there is nothing to do.
    pub todo: Option<String>,
}

/// A device of the pool, and what its mount says of it.
#[derive(Clone, Debug)]
pub struct KnownFlash {
    /// The file or device.
    pub path: PathBuf,
    /// Bytes that the pool leaves unwritten. None if no mount says it.
    pub reserve_bytes: Option<u64>,
}

/// Where the real system is; tests have one of their own.
const SYSTEM: &str = "/";

/// Looks at the host.
pub fn host() -> Vec<HostFinding> {
    judge::host(&read::host(Path::new(SYSTEM)))
}

/// Looks at the places of a mount.
pub fn places(origin: &Path, flashes: &[KnownFlash]) -> Vec<HostFinding> {
    judge::places(&read::places(Path::new(SYSTEM), origin, flashes))
}

impl fmt::Display for HostFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = match self.met {
            Some(true) => "[yes]",
            Some(false) => "[NO]",
            None => "[check]",
        };
        writeln!(f, "  {:<12} {met:<8} {}", self.name, self.what)?;
        self.todo.as_ref().map_or(Ok(()), |todo| writeln!(f, "  {:<12} {:<8} {todo}", "", "do:"))
    }
}
