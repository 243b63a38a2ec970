//! The three places of a mount: origin, mount point and flash; and that none hides another.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::marker::{MARKER_NAME, Marker};
use crate::mounts::{Detach, FS_TYPE, Mounted, detach, mounted_on, mounts};
use crate::refusal::Refusal;

/// Three checked places, each as an absolute path without symbolic links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// The directory that owns the data.
    pub origin: PathBuf,
    /// The empty directory that will show it.
    pub mountpoint: PathBuf,
    /// The file or device of the pool; need not exist yet.
    pub flash: PathBuf,
}

impl Places {
    /// Checks the places as the operator gave them. The remains of a mount whose daemon died
    /// are cleared from the mount point.
    ///
    /// # Errors
    /// The first reason not to mount; see the statuses 10, 20 to 23 and 30.
    pub fn check(origin: &Path, mountpoint: &Path, flash: &Path) -> Result<Self, Refusal> {
        let origin = check_origin(origin)?;
        let mountpoint = check_mountpoint(mountpoint)?;
        let flash = check_flash(flash)?;
        let places = Self { origin, mountpoint, flash };
        places.check_overlap()?;
        check_neighbours(&places.origin, &mounts())?;
        if let Some(example) = first_name(&places.mountpoint)? {
            return Err(Refusal::MountPointNotEmpty { path: places.mountpoint, example });
        }
        Ok(places)
    }

    fn check_overlap(&self) -> Result<(), Refusal> {
        let Self { origin, mountpoint, flash } = self;
        let overlap = |what: String, advice| Err(Refusal::Overlap { what, advice });
        let (o, m, f) = (origin.display(), mountpoint.display(), flash.display());
        if inside(mountpoint, origin) {
            let what = if inside(origin, mountpoint) {
                format!("origin and mount point are the same directory, {o}")
            } else {
                format!("mount point {m} is inside the origin {o}")
            };
            return overlap(what, "Mount it on an empty directory outside the origin.");
        }
        if inside(origin, mountpoint) {
            return overlap(
                format!("origin {o} is inside the mount point {m}"),
                "The mount would hide its own origin. Use an empty directory elsewhere.",
            );
        }
        if inside(flash, origin) {
            return overlap(
                format!("flash {f} is inside the origin {o}"),
                "The pool would cache itself. Put it on a fast local device, outside the origin.",
            );
        }
        if inside(flash, mountpoint) {
            return overlap(
                format!("flash {f} is inside the mount point {m}"),
                "The mount would hide its own flash. Put it elsewhere.",
            );
        }
        Ok(())
    }
}

fn check_origin(given: &Path) -> Result<PathBuf, Refusal> {
    let refuse = |why: &str| Err(Refusal::Origin { path: given.to_owned(), why: why.to_owned() });
    let path = match fs::canonicalize(given) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return refuse("does not exist"),
        Err(error) => return Err(Refusal::from_io("open the origin", given, error)),
    };
    let metadata = fs::metadata(&path).map_err(|error| Refusal::from_io("open the origin", &path, error))?;
    if !metadata.is_dir() {
        return refuse("is no directory");
    }
    if path.components().any(|part| part.as_os_str() == MARKER_NAME) {
        return refuse("is headpond's own directory");
    }
    if mounted_on(&path).is_some_and(|mount| mount.fs_type == FS_TYPE) {
        return refuse("is itself a headpond mount: a pond in front of a pond only adds cost");
    }
    Ok(path)
}

/// One file has one cache: an origin above or below this one must not be served too. Above, its
/// marker is found; below, only its mount, as no one can look through a whole tree.
fn check_neighbours(origin: &Path, mounts: &[Mounted]) -> Result<(), Refusal> {
    let in_use = |by: String, target: String| Err(Refusal::OriginInUse { path: origin.to_owned(), by, target });
    for above in origin.ancestors().skip(1) {
        if let Some(marker) = Marker::beside(above) {
            return in_use(format!(" as a part of {}", above.display()), marker.mountpoint.display().to_string());
        }
    }
    let ours = mounts.iter().filter(|mount| mount.fs_type == FS_TYPE);
    match ours.into_iter().find(|mount| mount.source.starts_with(origin) && mount.source != origin) {
        Some(below) => {
            in_use(format!(" in a part, {}", below.source.display()), below.mountpoint.display().to_string())
        }
        None => Ok(()),
    }
}

fn check_mountpoint(given: &Path) -> Result<PathBuf, Refusal> {
    let refuse = |why: &str| Err(Refusal::MountPoint { path: given.to_owned(), why: why.to_owned() });
    let path = mountpoint_path(given);
    if let Some(mount) = mounted_on(&path).filter(|mount| mount.fs_type == FS_TYPE) {
        if !headpond_mount::daemon_is_gone(&path) {
            let what = format!("headpond, in front of {},", mount.source.display());
            return Err(Refusal::MountPointInUse { path, what });
        }
        detach(&path, Detach::Lazy)?;
    }
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => {
            fs::canonicalize(&path).map_err(|error| Refusal::from_io("open the mount point", &path, error))
        }
        Ok(_) => refuse("is no directory"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse(&format!("does not exist: mkdir -p {}", given.display()))
        }
        Err(error) => Err(Refusal::from_io("open the mount point", &path, error)),
    }
}

/// The absolute path of a mount point, found without asking the file system mounted there,
/// which may be dead or stuck: first as it is written, then with the links in its parent resolved.
#[must_use]
pub fn mountpoint_path(given: &Path) -> PathBuf {
    let absolute = std::path::absolute(given).unwrap_or_else(|_| given.to_owned());
    // `absolute` keeps a slash at the end, which mountinfo has not.
    let absolute: PathBuf = absolute.components().collect();
    if mounted_on(&absolute).is_some() {
        return absolute;
    }
    let by_parent = absolute.parent().zip(absolute.file_name()).and_then(|(parent, name)| {
        if name == ".." { None } else { fs::canonicalize(parent).ok().map(|parent| parent.join(name)) }
    });
    match by_parent {
        Some(path) if mounted_on(&path).is_some() => path,
        other => fs::canonicalize(&absolute).ok().or(other).unwrap_or(absolute),
    }
}

fn check_flash(given: &Path) -> Result<PathBuf, Refusal> {
    let refuse = |why: String| Err(Refusal::Flash { path: given.to_owned(), why });
    match fs::canonicalize(given) {
        Ok(path) => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Refusal::from_io("open the flash", given, error)),
    }
    let absolute = std::path::absolute(given).unwrap_or_else(|_| given.to_owned());
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return refuse("is no name for a file".to_owned());
    };
    match fs::canonicalize(parent) {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse(format!("the directory {} does not exist", parent.display()))
        }
        Err(error) => Err(Refusal::from_io("open", parent, error)),
    }
}

/// Whether `path` is `dir` or below it. Compared by device and inode as well as by name, so
/// that a bind mount does not deceive.
fn inside(path: &Path, dir: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let wanted = identity(dir);
    path.ancestors().any(|ancestor| ancestor == dir || (wanted.is_some() && identity(ancestor) == wanted))
}

fn first_name(dir: &Path) -> Result<Option<String>, Refusal> {
    let failed = |error| Refusal::from_io("list", dir, error);
    let mut names = fs::read_dir(dir).map_err(failed)?;
    names
        .next()
        .transpose()
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExitStatus;

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for dir in ["origin/sub", "mnt", "full", "fast"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        fs::write(root.path().join("full/file"), "x").unwrap();
        std::os::unix::fs::symlink("origin", root.path().join("link")).unwrap();
        root
    }

    #[test]
    fn good_places_come_out_without_links() {
        let root = tree();
        let at = |name: &str| root.path().join(name);
        let places = Places::check(&at("link"), &at("mnt/"), &at("fast/pond")).unwrap();
        let base = fs::canonicalize(root.path()).unwrap();
        assert_eq!(places.origin, base.join("origin"));
        assert_eq!(places.mountpoint, base.join("mnt"));
        assert_eq!(places.flash, base.join("fast/pond"));
    }

    #[test]
    fn an_origin_above_or_below_another_is_refused() {
        let root = tree();
        let origin = fs::canonicalize(root.path().join("origin")).unwrap();
        assert!(check_neighbours(&origin, &[]).is_ok());
        let below = |source: &str| Mounted {
            device: None,
            mountpoint: "/somewhere".into(),
            fs_type: FS_TYPE.into(),
            source: origin.join(source),
            user: None,
        };
        let refusal = check_neighbours(&origin, &[below("sub")]).unwrap_err();
        assert_eq!(refusal.status(), ExitStatus::OriginInUse);
        assert!(refusal.to_string().contains("headpond unmount /somewhere"), "{refusal}");
        let other = Mounted { fs_type: "ext4".into(), ..below("sub") };
        assert!(check_neighbours(&origin, &[other]).is_ok(), "any other mount is no concern");
        let hold = crate::MarkerHold::take(&origin).unwrap();
        hold.write(&crate::marker::tests::example(crate::MarkerState::DirtyLeft)).unwrap();
        let refusal = check_neighbours(&origin.join("sub"), &[]).unwrap_err();
        assert!(refusal.to_string().contains("as a part of"), "{refusal}");
    }

    #[test]
    fn each_bad_place_has_its_message_and_its_status() {
        let root = tree();
        for (origin, mountpoint, flash, status, says) in [
            ("gone", "mnt", "fast/p", ExitStatus::OriginUnusable, "does not exist"),
            ("full/file", "mnt", "fast/p", ExitStatus::OriginUnusable, "no directory"),
            ("origin", "gone", "fast/p", ExitStatus::MountPointUnusable, "mkdir -p"),
            ("origin", "full/file", "fast/p", ExitStatus::MountPointUnusable, "no directory"),
            ("origin", "full", "fast/p", ExitStatus::MountPointNotEmpty, "'file'"),
            ("origin", "origin", "fast/p", ExitStatus::Overlap, "same directory"),
            ("origin", "link", "fast/p", ExitStatus::Overlap, "same directory"),
            ("origin", "origin/sub", "fast/p", ExitStatus::Overlap, "inside the origin"),
            ("origin/sub", "origin", "fast/p", ExitStatus::Overlap, "inside the mount point"),
            ("origin", "mnt", "origin/p", ExitStatus::Overlap, "inside the origin"),
            ("origin", "mnt", "link/sub/p", ExitStatus::Overlap, "inside the origin"),
            ("origin", "mnt", "mnt/p", ExitStatus::Overlap, "inside the mount point"),
            ("origin", "mnt", "gone/p", ExitStatus::FlashUnusable, "does not exist"),
        ] {
            let at = |name: &str| root.path().join(name);
            let refusal = Places::check(&at(origin), &at(mountpoint), &at(flash)).unwrap_err();
            assert_eq!(refusal.status(), status, "{origin} {mountpoint} {flash}: {refusal}");
            assert!(refusal.to_string().contains(says), "{origin} {mountpoint} {flash}: {refusal}");
        }
    }
}
