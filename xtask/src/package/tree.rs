//! The files of a package, as they will lie on the system.
//!
//! Invariant: modes do not depend on who builds, and files that compress well are compressed without a time.

use super::Contents;
use crate::pages::succeed;
use crate::tree::root;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The names by which `mount` and `umount` find a helper for the types `headpond` and `fuse.headpond`. A mount is of
/// the second type in the kernel's table, and `umount` looks there.
const HELPERS: [&str; 3] = ["mount.headpond", "mount.fuse.headpond", "umount.fuse.headpond"];

/// A tree of files in a directory.
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Stages what all packages have. `zsh` is where a distribution's zsh looks for completions.
    pub(super) fn stage(at: &Path, contents: &Contents, zsh: &str) -> Result<Self, String> {
        if at.exists() {
            fs::remove_dir_all(at).map_err(|error| format!("removing {}: {error}", at.display()))?;
        }
        let tree = Self { root: at.to_owned() };
        tree.directory("etc/headpond")?;
        let program = tree.file(&contents.program, "usr/bin/headpond", 0o755)?;
        succeed(Command::new("strip").arg(&program))?;
        for helper in HELPERS {
            tree.link("../bin/headpond", &format!("usr/sbin/{helper}"))?;
        }
        let packaging = root().join("packaging");
        for unit in ["headpond@.service", "headpond-peer.service", "headpond-guard@.service"] {
            tree.file(&packaging.join("systemd").join(unit), &format!("usr/lib/systemd/system/{unit}"), 0o644)?;
        }
        tree.pages(&contents.pages.join("man"))?;
        let completions = contents.pages.join("completions");
        for (name, to) in [
            ("headpond.bash", "usr/share/bash-completion/completions/headpond"),
            ("headpond.fish", "usr/share/fish/vendor_completions.d/headpond.fish"),
            ("_headpond", &format!("{zsh}/_headpond")),
        ] {
            tree.file(&completions.join(name), to, 0o644)?;
        }
        tree.copy(&packaging.join("examples"), "usr/share/doc/headpond/examples")?;
        for watching in ["grafana", "prometheus"] {
            tree.copy(&packaging.join(watching), &format!("usr/share/headpond/{watching}"))?;
        }
        compress(&tree.text(&contents.licences, "usr/share/doc/headpond/crates.txt", 0o644)?)?;
        tree.documents()?;
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The manual pages, compressed; those of the helpers' other names lead to the one that explains them.
    fn pages(&self, man: &Path) -> Result<(), String> {
        for (name, page) in entries(man)? {
            let section = name.rsplit('.').next().unwrap_or("8");
            let to = self.file(&page, &format!("usr/share/man/man{section}/{name}"), 0o644)?;
            compress(&to)?;
        }
        for helper in HELPERS.iter().filter(|helper| **helper != "mount.headpond") {
            self.link("mount.headpond.8.gz", &format!("usr/share/man/man8/{helper}.8.gz"))?;
        }
        Ok(())
    }

    /// The documents that `--help` and messages name.
    fn documents(&self) -> Result<(), String> {
        for (name, document) in entries(&root().join("docs"))? {
            if document.is_file() {
                self.file(&document, &format!("usr/share/doc/headpond/docs/{name}"), 0o644)?;
            }
        }
        Ok(())
    }

    /// Copies a file, and returns its new place.
    pub(super) fn file(&self, from: &Path, to: &str, mode: u32) -> Result<PathBuf, String> {
        let bytes = fs::read(from).map_err(|error| format!("reading {}: {error}", from.display()))?;
        self.write(&bytes, to, mode)
    }

    /// Writes a file.
    pub(super) fn text(&self, text: &str, to: &str, mode: u32) -> Result<PathBuf, String> {
        self.write(text.as_bytes(), to, mode)
    }

    fn write(&self, bytes: &[u8], to: &str, mode: u32) -> Result<PathBuf, String> {
        let path = self.make_way(to)?;
        let failed = |error| format!("writing {}: {error}", path.display());
        fs::write(&path, bytes).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(failed)?;
        Ok(path)
    }

    /// Copies a directory with all below it.
    fn copy(&self, from: &Path, to: &str) -> Result<(), String> {
        for (name, path) in entries(from)? {
            let to = format!("{to}/{name}");
            if path.is_dir() {
                self.copy(&path, &to)?;
            } else {
                self.file(&path, &to, 0o644)?;
            }
        }
        Ok(())
    }

    fn link(&self, target: &str, at: &str) -> Result<(), String> {
        let path = self.make_way(at)?;
        symlink(target, &path).map_err(|error| format!("linking {}: {error}", path.display()))
    }

    /// Makes a directory with those above it.
    pub(super) fn directory(&self, at: &str) -> Result<PathBuf, String> {
        let path = self.root.join(at);
        let failed = |error| format!("making {}: {error}", path.display());
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&path).map_err(failed)?;
        // Whatever this process masks.
        for made in path.ancestors().take_while(|dir| dir.starts_with(&self.root)) {
            fs::set_permissions(made, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        }
        Ok(path)
    }

    fn make_way(&self, to: &str) -> Result<PathBuf, String> {
        if let Some((above, _)) = to.rsplit_once('/') {
            self.directory(above)?;
        }
        Ok(self.root.join(to))
    }
}

/// Compresses a file in its place; it then ends with `.gz`.
pub(super) fn compress(file: &Path) -> Result<(), String> {
    succeed(Command::new("gzip").args(["-9", "--no-name", "--force"]).arg(file))
}

/// What lies in a directory, by name.
fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let failed = |error| format!("listing {}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    found.sort();
    Ok(found)
}
