//! An origin on overlayfs, as in a container's own file system.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use crate::lacking::{has_root, lacks_nothing};
use crate::pond::{Pond, SIZE};

/// Longer than the kernel believes a name.
const FORGOTTEN: Duration = Duration::from_millis(1200);

/// An overlay of two directories of the pond.
struct Overlay<'a>(&'a Pond);

impl<'a> Overlay<'a> {
    /// `None` where the kernel has no overlays, or has none over the file system of the tests.
    fn new(pond: &'a Pond) -> Option<Self> {
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| pond.at(name).display().to_string());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o", &options]).arg(pond.at("merged"));
        let made = mount.status().is_ok_and(|status| status.success());
        lacks_nothing((!made).then_some("an overlay over the directory for temporary files")).then_some(Self(pond))
    }
}

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.at("merged")).status();
    }
}

/// The first open for writing makes a copy of the file, which has the same number and another birth time.
#[test]
fn a_file_of_a_lower_layer_stays_itself_when_it_is_first_written() {
    if !has_root("for an overlay") {
        return;
    }
    let pond = Pond::new();
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(pond.at(name)).unwrap();
    }
    fs::write(pond.at("lower/file"), [1; 8192]).unwrap();
    // The copy is born noticeably later.
    std::thread::sleep(Duration::from_millis(20));
    let Some(overlay) = Overlay::new(&pond) else { return };
    pond.mount_places("merged", "mnt", "flash", &["--size", SIZE]).ok();
    let path = pond.mnt().join("file");
    assert_eq!(fs::read(&path).unwrap(), [1; 8192]);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&[2; 4096], 0).unwrap();
    file.sync_all().unwrap();
    for round in 3..6 {
        std::thread::sleep(FORGOTTEN);
        assert_eq!(fs::metadata(&path).unwrap().len(), 8192);
        file.write_all_at(&[round; 4096], 0).unwrap();
        file.sync_all().unwrap();
        let whole = [[round; 4096], [1; 4096]].concat();
        assert_eq!(fs::read(&path).unwrap(), whole, "by its name");
    }
    drop(file);
    // The next start finds it again, with what is dirty.
    pond.unmount(&["--keep-dirty"]).ok();
    pond.mount_places("merged", "mnt", "flash", &[]).ok();
    assert_eq!(fs::read(&path).unwrap(), [[5; 4096], [1; 4096]].concat());
    pond.unmount(&[]).ok();
    assert_eq!(fs::read(pond.at("merged/file")).unwrap(), [[5; 4096], [1; 4096]].concat());
    assert_eq!(fs::read(pond.at("lower/file")).unwrap(), [1; 8192]);
    drop(overlay);
}
