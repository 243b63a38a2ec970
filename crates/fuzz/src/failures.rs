//! Failed inputs, as files.

use std::path::{Path, PathBuf};

use crate::input::Input;

/// Saves an input under a name of its own.
pub(crate) fn save(failures: &Path, input: &Input) -> PathBuf {
    let text = input.to_string();
    let sum = headpond_format::bytes_checksum(text.as_bytes());
    let path = failures.join(format!("{}-{sum:08x}.txt", input.target));
    // If it cannot save an input, it prints the input.
    if std::fs::create_dir_all(failures).and_then(|()| std::fs::write(&path, &text)).is_err() {
        eprintln!("{text}");
    }
    path
}

/// The command that runs a saved input again.
pub(crate) fn command(path: &Path) -> String {
    format!("again:  cargo xtask fuzz --replay {}", path.display())
}
