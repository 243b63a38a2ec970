//! The places of other people's test programs. fsx and pjdfstest come from the registry of crates; the set-up of
//! `./test` builds them into `target/tools`.

use std::path::{Path, PathBuf};

/// The program of that name: from `target/tools` of this source tree, or else from the `PATH`.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin").join(name);
    tools.canonicalize().unwrap_or_else(|_| PathBuf::from(name))
}
