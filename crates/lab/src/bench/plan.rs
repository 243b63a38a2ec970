//! Where the bench works, how often, and on what.

use std::path::{Path, PathBuf};

use headpond_device::Backend;

use super::Outcome;
use super::backend::{self, BACKENDS};
use super::fio::{self, Target as On};
use super::pond::Mount;

/// The raw file, and the file that is seen through the mount.
pub const DATA: &str = "1g";

/// Random reads.
pub const READS: [&str; 3] = ["--rw=randread", "--bs=4k", "--direct=1"];

/// One program that appends 16 KiB and syncs, again and again.
pub const SYNCED_APPENDS: [&str; 5] =
    ["--rw=write", "--bs=16k", "--ioengine=psync", "--fdatasync=1", "--file_append=1"];

/// Where, how often and how long.
pub struct Plan {
    /// A directory on the flash.
    pub directory: PathBuf,
    /// A directory for origins.
    pub origin: PathBuf,
    pub rounds: usize,
    pub seconds: u64,
    /// Bytes that are cached for the restart, as fio writes sizes.
    pub restart_size: String,
    /// A pool with room for them.
    pub restart_pool: String,
}

impl Plan {
    pub fn fio(&self, on: &On<'_>, job: &[&[&str]]) -> Outcome<fio::Run> {
        fio::run(on, DATA, self.seconds, &job.concat())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file of the flash's own file system, written once.
    pub fn raw(&self) -> Outcome<PathBuf> {
        self.written("raw", "2g")
    }

    pub fn written(&self, name: &str, size: &str) -> Outcome<PathBuf> {
        let file = self.path(name);
        if !file.exists() {
            fio::fill(&file, size, false)?;
        }
        Ok(file)
    }

    /// Takes away the pools of a work and their origins: they are large. The raw file stays for the next run.
    pub fn clear(&self, name: &str) -> Outcome<()> {
        BACKENDS.iter().try_for_each(|backend| {
            let name = backend::pool(*backend, name);
            forget(&self.origin.join(&name), &self.path(&format!("{name}.pond")))
        })
    }

    /// A mount of an empty origin with a new pool, by the backend that users get.
    pub fn mount(&self, name: &str, size: &str) -> Outcome<Mount> {
        self.mount_by(Backend::Auto, name, size)
    }

    /// The same without a holder: nothing outlives the daemon.
    pub fn mount_without_holder(&self, name: &str, size: &str) -> Outcome<Mount> {
        let (origin, flash) = (self.origin.join(name), self.path(&format!("{name}.pond")));
        forget(&origin, &flash)?;
        Mount::start_without_holder(&origin, &self.path(&format!("{name}.mount")), &flash, size)
    }

    /// The same by this backend.
    pub fn mount_by(&self, backend: Backend, name: &str, size: &str) -> Outcome<Mount> {
        let name = backend::pool(backend, name);
        let (origin, flash) = (self.origin.join(&name), self.path(&format!("{name}.pond")));
        forget(&origin, &flash)?;
        Mount::start(&origin, &self.path(&format!("{name}.mount")), &flash, size, backend)
    }
}

/// Takes away what a run has left.
pub fn forget(origin: &Path, flash: &Path) -> Outcome<()> {
    let _ = std::fs::remove_file(flash);
    if origin.exists() {
        std::fs::remove_dir_all(origin)?;
    }
    Ok(())
}
