//! Whether this process may make a FUSE mount. A start asks this first, so that a start which the kernel would refuse
//! at its very end leaves nothing behind.
//!
//! The mount itself still refuses what this does not find out.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use crate::refusal::Refusal;

const DEVICE: &str = "/dev/fuse";
const CONFIGURATION: &str = "/etc/fuse.conf";

/// Checks the device, and for ordinary users the conditions of `fusermount3`.
///
/// # Errors
/// The statuses 60 and 61.
pub(crate) fn check(mountpoint: &Path, allow_other: bool) -> Result<(), Refusal> {
    let no_fuse = |why: String| Err(Refusal::NoFuse { path: mountpoint.to_owned(), why });
    if let Err(error) = File::options().read(true).write(true).open(DEVICE) {
        return no_fuse(format!(
            "cannot open {DEVICE}: {error}\n  Load the kernel module (modprobe fuse). In a container, pass the device in."
        ));
    }
    if geteuid().is_root() {
        return Ok(());
    }
    if !is_in_path("fusermount3") {
        let why =
            "fusermount3 is missing, and only root can mount without it\n  Install it (Debian: apt install fuse3).";
        return no_fuse(why.to_owned());
    }
    let not_permitted = |advice: &str| {
        let what = format!("mount on {}", mountpoint.display());
        Err(Refusal::NoPermission { what, advice: advice.to_owned() })
    };
    if access(mountpoint, Access::WRITE_OK).is_err() {
        return not_permitted(
            "You can mount only on a directory that you can write to. Choose another, or run headpond as root.",
        );
    }
    if allow_other && !allows_others(fs::read_to_string(CONFIGURATION)) {
        return not_permitted("--allow-other needs the line user_allow_other in /etc/fuse.conf, or root.");
    }
    Ok(())
}

fn allows_others(configuration: io::Result<String>) -> bool {
    configuration.is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"))
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| access(dir.join(program), Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_let_in_only_where_the_line_stands_by_itself() {
        for (text, allowed) in [("user_allow_other\n", true), ("mount_max = 9\n  user_allow_other", true)] {
            assert_eq!(allows_others(Ok(text.to_owned())), allowed);
        }
        for text in ["", "#user_allow_other\n", "user_allow_others"] {
            assert!(!allows_others(Ok(text.to_owned())), "{text}");
        }
        assert!(!allows_others(Err(io::Error::other("no such file"))));
    }

    #[test]
    fn programs_are_found_where_the_shell_would() {
        assert!(is_in_path("sh") && !is_in_path("no-such-program-anywhere"));
    }
}
