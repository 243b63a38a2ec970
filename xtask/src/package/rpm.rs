//! The RPM, packed by `rpmbuild`.

use super::tree::Tree;
use super::{Contents, HOMEPAGE, VERSION};
use crate::pages::succeed;
use crate::tree::root;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Packs `headpond-VERSION-1.ARCHITECTURE.rpm`.
pub(super) fn pack(contents: &Contents, scratch: &Path, out: &Path) -> Result<(), String> {
    let tree = Tree::stage(&scratch.join("rpm"), contents, "usr/share/zsh/site-functions")?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        tree.file(&root().join(licence), &format!("usr/share/licenses/headpond/{licence}"), 0o644)?;
    }
    tree.file(&root().join("CHANGELOG.md"), "usr/share/doc/headpond/CHANGELOG.md", 0o644)?;
    let work = scratch.join("rpmbuild");
    fs::create_dir_all(&work).map_err(|error| format!("making {}: {error}", work.display()))?;
    let mut pack = Command::new("rpmbuild");
    for (name, value) in [
        ("_topdir", work.display().to_string()),
        ("_rpmdir", out.display().to_string()),
        ("_build_name_fmt", "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned()),
        ("stage", tree.root().display().to_string()),
        ("headpond_version", VERSION.to_owned()),
        ("headpond_homepage", HOMEPAGE.to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
        ("_buildhost", "localhost".to_owned()),
    ] {
        pack.args(["--define", &format!("{name} {value}")]);
    }
    pack.args(["-bb", "--quiet"]).arg(root().join("packaging/rpm/headpond.spec")).stdout(Stdio::null());
    succeed(pack.env("SOURCE_DATE_EPOCH", &contents.epoch))
}
