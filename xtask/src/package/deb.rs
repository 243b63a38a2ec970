//! The Debian package, packed by `dpkg-deb`.

use super::tree::{Tree, compress};
use super::{Contents, HOMEPAGE, VERSION, output};
use crate::pages::succeed;
use crate::tree::root;
use std::fs;
use std::path::Path;
use std::process::Command;

const MAINTAINER: &str = "The headpond authors <headpond@example.org>";

/// Packs `headpond_VERSION-1_ARCHITECTURE.deb`.
pub(super) fn pack(contents: &Contents, scratch: &Path, out: &Path) -> Result<(), String> {
    let tree = Tree::stage(&scratch.join("deb"), contents, "usr/share/zsh/vendor-completions")?;
    let debian = root().join("packaging/debian");
    let doc = "usr/share/doc/headpond";
    tree.text(&read(&debian.join("copyright"))?.replace("@HOMEPAGE@", HOMEPAGE), &format!("{doc}/copyright"), 0o644)?;
    compress(&tree.file(&root().join("CHANGELOG.md"), &format!("{doc}/changelog"), 0o644)?)?;
    compress(&tree.text(&changelog(&contents.epoch)?, &format!("{doc}/changelog.Debian"), 0o644)?)?;
    let size = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(tree.root()))?;
    // The sums of what is installed: without the directory that follows.
    let sums = output(
        Command::new("sh")
            .current_dir(tree.root())
            .args(["-c", "find . -type f | LC_ALL=C sort | sed 's,^\\./,,' | xargs -d '\\n' md5sum"]),
    )?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let control = read(&debian.join("control"))?
        .replace("@VERSION@", VERSION)
        .replace("@ARCHITECTURE@", architecture.trim())
        .replace("@MAINTAINER@", MAINTAINER)
        .replace("@SIZE@", size.split_whitespace().next().unwrap_or("0"))
        .replace("@DEPENDS@", &needs(&contents.program)?)
        .replace("@HOMEPAGE@", HOMEPAGE);
    tree.text(&control, "DEBIAN/control", 0o644)?;
    tree.text(&sums, "DEBIAN/md5sums", 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        tree.file(&debian.join(script), &format!("DEBIAN/{script}"), 0o755)?;
    }
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--build", "--root-owner-group", "-Zxz"]).arg(tree.root()).arg(out);
    succeed(pack.env("SOURCE_DATE_EPOCH", &contents.epoch))
}

fn changelog(epoch: &str) -> Result<String, String> {
    let date = output(Command::new("date").args(["--utc", "--rfc-email", "--date", &format!("@{epoch}")]))?;
    Ok(format!(
        "headpond ({VERSION}-1) unstable; urgency=medium\n\n  * See changelog.gz beside this file.\n\n -- {MAINTAINER}  {date}"
    ))
}

/// The packages of the libraries that the program is linked with. It asks the C library for symbols by the version
/// that brought them, so the newest of these is the oldest library that will do.
fn needs(program: &Path) -> Result<String, String> {
    let bytes = fs::read(program).map_err(|error| format!("reading {}: {error}", program.display()))?;
    let mut needs = Vec::new();
    if let Some((major, minor)) = newest(&bytes) {
        needs.push(format!("libc6 (>= {major}.{minor})"));
    }
    if contains(&bytes, b"libgcc_s.so.1") {
        needs.push("libgcc-s1".to_owned());
    }
    Ok(needs.join(", "))
}

fn newest(bytes: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    let marks = bytes.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let versions = marks.filter_map(|(at, _)| {
        let rest = &bytes[at + MARK.len()..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
        let mut numbers = std::str::from_utf8(&rest[..length]).ok()?.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("reading {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_says_which_c_library_it_takes() {
        assert_eq!(newest(b"..GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0GLIBC_"), Some((2, 34)));
        assert_eq!(newest(b"static"), None);
    }
}
