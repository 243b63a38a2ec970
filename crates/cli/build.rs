//! What `headpond --version` says: the version and, in a release build, the commit that it was built from.
//!
//! A debug build names no commit, so a new commit does not build it anew. Nor does a build without git or from a source
//! archive: a repository around the tree is another project's.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program is built from. A change elsewhere in the tree makes no other program.
const SOURCES: [&str; 4] = ["crates", "Cargo.toml", "Cargo.lock", ".cargo"];

fn main() {
    // Cargo sets all three.
    let [version, profile, directory] =
        ["CARGO_PKG_VERSION", "PROFILE", "CARGO_MANIFEST_DIR"].map(|name| std::env::var(name).unwrap_or_default());
    let root = Path::new(&directory).join("../..");
    println!("cargo::rerun-if-changed=build.rs");
    let build = if profile == "release" {
        for path in watched(&root) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        commit(&root)
    } else {
        Some("debug build".to_owned())
    };
    let build = build.map(|build| format!(" ({build})")).unwrap_or_default();
    println!("cargo::rustc-env=HEADPOND_VERSION={version}{build}");
}

/// The commit of the tree at `root`, such as `586a772d`, or `586a772d, changed` if its sources are not that commit's.
pub fn commit(root: &Path) -> Option<String> {
    let top = PathBuf::from(git(root, ["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let commit = git(root, ["rev-parse", "--short=8", "HEAD"])?;
    let changes = git(root, ["status", "--porcelain", "--"].into_iter().chain(SOURCES))?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, changed") })
}

/// What changes whenever the answer of [`commit`] does. Each path is there: cargo takes a missing one for changed.
pub fn watched(root: &Path) -> Vec<PathBuf> {
    // In a worktree HEAD and branches lie in different directories.
    let path_of = |name: &str| Some(root.join(git(root, ["rev-parse", "--git-path", name])?));
    let branch = git(root, ["symbolic-ref", "-q", "HEAD"]).and_then(|branch| path_of(&branch));
    // A packed branch has no file before its next commit. Until then the directory is watched in which that appears.
    let branch = branch.and_then(|file| file.ancestors().find(|path| path.exists()).map(Path::to_owned));
    let sources = SOURCES.map(|name| root.join(name));
    sources.into_iter().chain(path_of("HEAD")).chain(branch).filter(|path| path.exists()).collect()
}

/// What git prints, or nothing if there is no git, no repository, or no answer.
fn git<'a>(root: &Path, arguments: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut git = Command::new("git");
    // A hook has these, and they may name another repository. Asked for changes, git would also write its index.
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE").arg("--no-optional-locks");
    let output = git.arg("-C").arg(root).args(arguments.into_iter().map(OsStr::new)).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
