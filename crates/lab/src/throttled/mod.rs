//! A disk that is really slow: a file system of its own on a loop device, over a file that the lab serves at the pace
//! of a throttle.
//!
//! The kernel's block layer, its scheduler and ext4 are the real ones: they merge, queue and split as they do before
//! a slow volume. Models of disks ([`headpond_models`]) slow single calls down instead, above the file system.
//!
//! Invariant: mount, loop device and file go with their owner, even after a failure.

mod served;
mod throttle;

pub use throttle::{Burst, Throttle};

use crate::failure::{Failure, Result};
use crate::loop_file_system::LoopFileSystem;
use crate::place;
use served::ServedFile;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The file system.
pub struct ThrottledDisk {
    // Fields are dropped in order.
    file_system: LoopFileSystem,
    file: ServedFile,
    throttle: Throttle,
    _directory: TempDir,
}

impl ThrottledDisk {
    /// Makes one of `mib` inside `scratch`. It is fast until [`ThrottledDisk::begin`], so that data can be put there.
    ///
    /// # Errors
    /// When something is missing (the error says what), or there is no room.
    pub fn make(scratch: &Path, mib: u64, throttle: &Throttle) -> Result<Self> {
        if let Some(missing) = missing() {
            return Err(Failure::Other(format!(
                "a throttled disk cannot be made here: {missing}. To measure on other storage: --target (headpond lab run --help)"
            )));
        }
        let directory = place::directory_in(scratch, mib)?;
        let image = directory.path().join("image");
        LoopFileSystem::make_image(&image, mib)?;
        let served = directory.path().join("served");
        fs::create_dir(&served).map_err(Failure::io(format!("making {}", served.display())))?;
        let file = ServedFile::serve(&image, &served)?;
        let file_system = LoopFileSystem::mount(file.path(), directory.path().join("throttled"))?;
        Ok(Self { file_system, file, throttle: *throttle, _directory: directory })
    }

    /// Throttles it from now on, with full credits.
    pub fn begin(&self) {
        self.file.throttle(&self.throttle);
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.file_system.path().to_path_buf()
    }

    /// Its loop device.
    #[must_use]
    pub fn device(&self) -> &Path {
        self.file_system.device()
    }
}

/// What this machine lacks for it.
#[must_use]
pub fn missing() -> Option<String> {
    let fuse = || (!Path::new("/dev/fuse").exists()).then(|| "the kernel has no FUSE (/dev/fuse)".to_owned());
    LoopFileSystem::missing().or_else(fuse)
}
