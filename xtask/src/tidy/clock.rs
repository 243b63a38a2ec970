//! headpond reads the clock through the C library.
//!
//! Without its feature `use-libc`, rustix looks up `clock_gettime` in the kernel's vDSO by itself. If that is
//! missing, as in User Mode Linux 7.2, rustix aborts the process, while the C library asks the kernel. Features of a
//! dependency add up over the workspace, so one line decides for all crates.

use super::Complaint;
use crate::tree::SourceFile;

/// Complains if the workspace takes rustix without the C library.
pub fn check(file: &SourceFile) -> Option<Complaint> {
    if file.path != "Cargo.toml" {
        return None;
    }
    let line = file.text.lines().enumerate().find(|(_, line)| line.starts_with("rustix = "));
    let (index, line) = line?;
    let what = "rustix needs the feature `use-libc`: it aborts on kernels whose vDSO has no clock_gettime";
    (!line.contains("\"use-libc\"")).then(|| Complaint::of_line(file, index, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complains(text: &str) -> bool {
        check(&SourceFile { path: "Cargo.toml".to_owned(), text: text.to_owned() }).is_some()
    }

    #[test]
    fn a_clock_that_takes_the_vdso_for_granted_is_found() {
        assert!(complains("[workspace.dependencies]\nrustix = { version = \"1\", features = [\"time\"] }\n"));
        assert!(!complains("[workspace.dependencies]\nrustix = { version = \"1\", features = [\"use-libc\"] }\n"));
    }
}
