//! `cargo xtask pages`: manual pages and completions, into `target/pages`.
//!
//! The program itself writes those of its commands (`headpond pages`), so xtask needs nothing for it. The pages that
//! people wrote lie in `packaging/man`.

use crate::tree;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo builds.
pub fn target() -> PathBuf {
    tree::root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Builds the program, and writes the pages beside it.
///
/// # Errors
/// What failed.
pub fn run() -> Result<PathBuf, String> {
    let mut build = tree::cargo();
    build.args(["build", "-q", "--package", "headpond"]);
    succeed(&mut build)?;
    let directory = target().join("pages");
    write(&target().join("debug/headpond"), &directory)?;
    Ok(directory)
}

/// Writes the pages of this program into a directory: `man` and `completions`.
///
/// # Errors
/// What failed.
pub fn write(program: &Path, directory: &Path) -> Result<(), String> {
    succeed(Command::new(program).arg("pages").arg(directory))?;
    let written = tree::root().join("packaging/man");
    let failed = |error| format!("copying {}: {error}", written.display());
    for page in fs::read_dir(&written).map_err(failed)? {
        let page = page.map_err(failed)?;
        fs::copy(page.path(), directory.join("man").join(page.file_name())).map_err(failed)?;
    }
    Ok(())
}

/// Runs a command that must succeed.
///
/// # Errors
/// If it fails or cannot start.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(error) => Err(format!("starting {command:?}: {error}")),
    }
}
