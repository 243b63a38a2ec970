//! The source tree: its place, and its text files.
//!
//! Invariant: it sees only files of the project. It leaves out what git ignores by rule (`target`) and git's own
//! files.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file of the project.
pub struct SourceFile {
    /// The path below the root, with `/` between its parts.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl SourceFile {
    /// Whether this is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether this is a document.
    pub fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// Whether this is a script, which names its interpreter.
    pub fn is_script(&self) -> bool {
        self.text.starts_with("#!/")
    }
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// A cargo that works on this workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Every text file of the project in the order of their paths.
///
/// A file that is not UTF-8 (a picture, a golden image) is not a text file.
pub fn files(root: &Path) -> Vec<SourceFile> {
    let mut paths = Vec::new();
    walk(root, &mut paths);
    paths.sort();
    let name = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    paths
        .iter()
        .filter_map(|path| Some(SourceFile { path: name(path), text: std::fs::read_to_string(path).ok()? }))
        .collect()
}

fn walk(directory: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && name != "target" && name != ".git" => walk(&path, paths),
            Ok(kind) if kind.is_file() && name != "Cargo.lock" && name != ".git" => paths.push(path),
            _ => {}
        }
    }
}
