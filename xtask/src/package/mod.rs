//! `cargo xtask package`: a Debian package and an RPM, into `target/package`.
//!
//! Both hold the same tree of files (`tree.rs`), which the distributions' own programs pack. The same commit gives the
//! same package: no file is newer than the commit.
//!
//! Invariant: a package restarts no mount, and is not removed under one (`packaging/debian`, `packaging/rpm`).

mod crates;
mod deb;
mod rpm;
mod tree;

use crate::pages::{self, succeed, target};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The version of every crate here.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where the project lives.
const HOMEPAGE: &str = env!("CARGO_PKG_REPOSITORY");

/// What goes into a package.
struct Contents {
    /// The program.
    program: PathBuf,
    /// Its manual pages and completions.
    pages: PathBuf,
    /// The licences of the crates in it.
    licences: String,
    /// When it last changed, in seconds since 1970.
    epoch: String,
}

/// Makes the packages. Takes `--program FILE` (else it makes a release build) and `--out DIR`.
///
/// # Errors
/// What failed, or is missing.
pub fn run(arguments: &[String]) -> Result<PathBuf, String> {
    let (mut program, mut out) = (None, target().join("package"));
    let mut rest = arguments.iter();
    while let Some(option) = rest.next() {
        let value = rest.next().map(|value| std::path::absolute(value).map_err(|error| format!("{value}: {error}")));
        match (option.as_str(), value) {
            ("--program", Some(value)) => program = Some(value?),
            ("--out", Some(value)) => out = value?,
            _ => return Err(format!("{option}: it takes --program FILE and --out DIR")),
        }
    }
    let program = match program {
        Some(program) => program,
        None => {
            succeed(crate::tree::cargo().args(["build", "--release", "--package", "headpond"]))?;
            target().join("release/headpond")
        }
    };
    let scratch = out.join("scratch");
    fs::create_dir_all(&scratch).map_err(|error| format!("making {}: {error}", scratch.display()))?;
    let pages = scratch.join("pages");
    pages::write(&program, &pages)?;
    let contents = Contents { program, pages, licences: crates::licences()?, epoch: epoch()? };
    if is_here("dpkg-deb") {
        deb::pack(&contents, &scratch, &out)?;
    }
    if is_here("rpmbuild") {
        rpm::pack(&contents, &scratch, &out)?;
    }
    fs::remove_dir_all(&scratch).map_err(|error| format!("removing {}: {error}", scratch.display()))?;
    Ok(out)
}

/// Whether this machine has the program that packs. If not, it says what it leaves out.
fn is_here(packer: &str) -> bool {
    let here = Command::new(packer).arg("--version").output().is_ok();
    if !here {
        println!("left out, for this machine lacks: {packer}");
    }
    here
}

/// The time of the commit, or what the variable for builds that can be repeated says.
fn epoch() -> Result<String, String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let mut commit = Command::new("git");
    commit.current_dir(crate::tree::root()).args(["log", "-1", "--format=%ct"]);
    // In a tree without its history: the last change of the list of changes.
    output(&mut commit)
        .or_else(|_| output(Command::new("stat").args(["-c", "%Y"]).arg(crate::tree::root().join("CHANGELOG.md"))))
        .map(|seconds| seconds.trim().to_owned())
}

/// What a command says. It must succeed.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("starting {command:?}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}
