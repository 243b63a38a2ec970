//! Processors whose register state is larger than the guest's kernel knows: see `xstate.c`.

use crate::command;
use crate::failure::{Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("xstate.c");
/// The flag of such processors: all that have more than the kernel's 2,696 bytes have tiles.
const TILES: &str = "amx_tile";
pub(super) const COMPILER: &str = "cc";

/// Whether this machine has one.
pub(super) fn here() -> bool {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("flags")).any(|line| line.split(' ').any(|flag| flag == TILES))
}

/// Builds the library that the guest's kernel starts with, in a directory.
pub(super) fn library(directory: &Path) -> Result<PathBuf> {
    let (source, library) = (directory.join("xstate.c"), directory.join("xstate.so"));
    fs::write(&source, SOURCE).map_err(Failure::io(format!("writing {}", source.display())))?;
    let mut compiler = Command::new(COMPILER);
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&library).arg(&source);
    command::run("building what guests need on this processor", &mut compiler)?;
    Ok(library)
}
