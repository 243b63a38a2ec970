//! The packages that `cargo xtask package` makes, installed in a directory of their own.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::lacking::{has_root, lacks_nothing};
use crate::pond::{Pond, SIZE, Said};

fn run<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = S>) -> Said {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap().into()
}

fn lacks(program: &str, package: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    !lacks_nothing(missing.then(|| format!("{program} (Debian: package {package})")))
}

/// Packages of this very program, and the directory that has them.
fn packages(out: &Path) -> Vec<PathBuf> {
    let mut make = Command::new(env!("CARGO"));
    make.current_dir(env!("CARGO_MANIFEST_DIR")).args([
        "run",
        "-q",
        "--package",
        "xtask",
        "--",
        "package",
        "--program",
    ]);
    make.arg(env!("CARGO_BIN_EXE_headpond")).arg("--out").arg(out);
    // The smallest package takes longest.
    Said::from(make.env("DPKG_DEB_COMPRESSOR_LEVEL", "0").output().unwrap()).ok();
    fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn with_end<'a>(packages: &'a [PathBuf], end: &str) -> &'a Path {
    packages.iter().find(|path| path.extension().is_some_and(|extension| extension == end)).unwrap()
}

#[test]
fn the_packages_install_the_program_its_helpers_pages_and_units() {
    if lacks("dpkg-deb", "dpkg") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let packages = packages(&dir.path().join("out"));
    let deb = with_end(&packages, "deb");
    let root = dir.path().join("root");
    run("dpkg-deb", [OsStr::new("-x"), deb.as_os_str(), root.as_os_str()]).ok();
    for file in [
        "etc/headpond",
        "usr/lib/systemd/system/headpond@.service",
        "usr/lib/systemd/system/headpond-guard@.service",
        "usr/share/doc/headpond/examples/headpond/fence-nfs",
        "usr/share/man/man1/headpond.1.gz",
        "usr/share/man/man5/headpond.5.gz",
        "usr/share/man/man7/headpond.7.gz",
        "usr/share/man/man8/headpond-mount.8.gz",
        "usr/share/man/man8/umount.fuse.headpond.8.gz",
        "usr/share/bash-completion/completions/headpond",
        "usr/share/zsh/vendor-completions/_headpond",
        "usr/share/fish/vendor_completions.d/headpond.fish",
        "usr/share/doc/headpond/copyright",
        "usr/share/doc/headpond/changelog.gz",
        "usr/share/doc/headpond/examples/systemd/mariadb.service.d/headpond.conf",
        "usr/share/doc/headpond/docs/rules.md",
        "usr/share/headpond/grafana/headpond.json",
        "usr/share/headpond/prometheus/headpond.rules.yml",
    ] {
        assert!(root.join(file).exists(), "{file}");
    }
    let version = concat!("headpond ", env!("CARGO_PKG_VERSION"));
    run(root.join("usr/bin/headpond"), ["--version"]).ok().refused(0, &[version]);
    for helper in ["mount.headpond", "mount.fuse.headpond", "umount.fuse.headpond"] {
        run(root.join("usr/sbin").join(helper), ["/nowhere", "-x"]).refused(1, &["unknown option -x", "usage: "]);
    }
    run("bash", [OsStr::new("-n"), root.join("usr/share/bash-completion/completions/headpond").as_os_str()]).ok();
    if !lacks("rpmbuild", "rpm") {
        let rpm = with_end(&packages, "rpm");
        let listed = run("rpm", [OsStr::new("-qpl"), rpm.as_os_str()]);
        listed.ok().refused(
            0,
            &["/usr/bin/headpond\n", "/usr/sbin/mount.headpond\n", "/etc/headpond\n", "/grafana/headpond.json\n"],
        );
        let scripts = run("rpm", [OsStr::new("-qp"), OsStr::new("--scripts"), rpm.as_os_str()]);
        scripts.ok().refused(0, &["headpond upgrade MOUNTPOINT", "first unmount these"]);
        if has_root("to install a package") {
            rpm_comes_and_goes(rpm, &dir.path().join("installed-rpm"));
        }
    }
    if !lacks("lintian", "lintian") {
        run("lintian", [OsStr::new("--fail-on"), OsStr::new("error"), deb.as_os_str()]).ok();
    }
    if has_root("to install a package") {
        comes_and_goes(deb, &dir.path().join("installed"));
    }
}

/// Installs an RPM, again as an upgrade, examines what is there, and removes it.
fn rpm_comes_and_goes(package: &Path, root: &Path) {
    fs::create_dir_all(root).unwrap();
    let rpm = |arguments: &[&OsStr]| {
        // There is no shell in that directory, and no C library.
        let options = ["--root", root.to_str().unwrap(), "--dbpath", "/var/lib/rpm", "--nodeps", "--noscripts"];
        run("rpm", options.map(OsStr::new).iter().chain(arguments))
    };
    rpm(&["-U".as_ref(), package.as_os_str()]).ok();
    let own = root.join("etc/headpond/mysql.conf");
    fs::write(&own, "ORIGIN=/slow/mysql\n").unwrap();
    rpm(&["-U".as_ref(), "--replacepkgs".as_ref(), package.as_os_str()]).ok();
    run(root.join("usr/bin/headpond"), ["--version"]).ok();
    rpm(&["-V".as_ref(), "headpond".as_ref()]).ok();
    rpm(&["-e".as_ref(), "headpond".as_ref()]).ok();
    assert!(!root.join("usr/bin/headpond").exists() && own.exists());
}

/// A mount of the installed program has the same processes after an upgrade of its package, and an open file goes on.
/// The package cannot be removed meanwhile.
fn a_mount_goes_on_while(program: &Path, prerm: &Path, upgrade: impl FnOnce()) {
    let pond = Pond::new();
    let places = [pond.origin(), pond.mnt(), "--flash".into(), pond.flash(), "--size".into(), SIZE.into()];
    let log = ["--background".into(), "--log".into(), pond.at("log")];
    run(program, ["mount".into()].into_iter().chain(places).chain(log)).ok();
    let before = fs::metadata(program).unwrap().ino();
    let processes = || ["pid", "holder"].map(|name| pond.status()[name].as_u64().unwrap());
    let (first, mut file) = (processes(), fs::File::create(pond.mnt().join("file")).unwrap());
    file.write_all(b"before, ").unwrap();
    upgrade();
    assert_ne!(fs::metadata(program).unwrap().ino(), before, "the program is another file");
    assert_eq!(processes(), first);
    file.write_all(b"after").unwrap();
    file.sync_all().unwrap();
    drop(file);
    // Without the mark that dpkg gives to scripts of a root elsewhere.
    let script = |word: &str| run("sh", [prerm.as_os_str(), OsStr::new(word)]);
    script("upgrade").ok();
    script("remove").refused(1, &[pond.mnt().to_str().unwrap(), "first unmount these"]);
    assert_eq!(processes(), first);
    run(program, [OsStr::new("unmount"), pond.mnt().as_os_str()]).ok();
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), b"before, after");
}

/// Installs a Debian package, again as an upgrade, and removes it.
fn comes_and_goes(deb: &Path, root: &Path) {
    for directory in ["updates", "info"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(directory)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |what: &str, package: &OsStr| {
        let root = format!("--root={}", root.display());
        // There is no shell in that directory, and no C library.
        let options = ["--force-script-chrootless", "--force-depends", "--log=/dev/null", what];
        run("dpkg", [OsStr::new(&root)].into_iter().chain(options.map(OsStr::new)).chain([package]))
    };
    dpkg("--install", deb.as_os_str()).ok();
    let own = root.join("etc/headpond/mysql.conf");
    fs::write(&own, "ORIGIN=/slow/mysql\n").unwrap();
    a_mount_goes_on_while(&root.join("usr/bin/headpond"), &root.join("var/lib/dpkg/info/headpond.prerm"), || {
        dpkg("--install", deb.as_os_str()).ok();
    });
    run(root.join("usr/bin/headpond"), ["--version"]).ok();
    dpkg("--remove", OsStr::new("headpond")).ok();
    assert!(!root.join("usr/bin/headpond").exists() && own.exists());
}
