//! fsx, the file system exerciser: random operations on one file, with each read compared with the right bytes. It
//! ends at the first difference.

use crate::command;
use crate::failure::{Failure, Result};
use crate::programs::program;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What the operations look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Small requests of any alignment on a small file: the most operations in a given time.
    Small,
    /// Requests of up to 256 KiB of any alignment on a file of 4 MiB.
    Large,
    /// Whole blocks, as databases write.
    Blocks,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Small, Self::Large, Self::Blocks];

    /// The longest file, the longest request, and what both are a multiple of.
    const fn limits(self) -> (u32, u32, u32) {
        match self {
            Self::Small => (128 << 10, 8 << 10, 1),
            Self::Large => (4 << 20, 256 << 10, 1),
            Self::Blocks => (1 << 20, 64 << 10, 4096),
        }
    }

    fn settings(self) -> String {
        let (file, request, align) = self.limits();
        // fsx must not ask for zero bytes, which POSIX wants refused; with an alignment it does at times.
        let allocate = if align == 1 { 2 } else { 0 };
        format!(
            "flen = {file}\n[opsize]\nmin = 1\nmax = {request}\nalign = {align}\n[weights]\n\
             close_open = 1\ninvalidate = 1\nmapread = 3\nmapwrite = 3\nread = 10\nwrite = 10\ntruncate = 2\n\
             fsync = 1\nfdatasync = 1\nposix_fallocate = {allocate}\npunch_hole = 3\nsendfile = 2\nposix_fadvise = 1\n\
             copy_file_range = 3\n"
        )
    }
}

/// A run of fsx on `file`. Its settings, and what it leaves when it fails, go to the directory `run`.
pub fn command(shape: Shape, operations: u64, seed: u64, file: &Path, run: &Path) -> Result<Command> {
    let settings = run.join(format!("fsx-{shape:?}.toml"));
    fs::create_dir_all(run)
        .and_then(|()| fs::write(&settings, shape.settings()))
        .map_err(Failure::io(format!("writing {}", settings.display())))?;
    let mut command = Command::new(program("fsx"));
    command.arg("-q").arg("-f").arg(settings).arg("-P").arg(run);
    command.args(["-N", &operations.to_string(), "-S", &seed.to_string()]).arg(file);
    Ok(command)
}

/// What this machine lacks.
#[must_use]
pub fn missing() -> Option<String> {
    command::run("looking", Command::new(program("fsx")).arg("--version"))
        .err()
        .map(|_| "fsx (cargo install fsx --root target/tools)".to_owned())
}
