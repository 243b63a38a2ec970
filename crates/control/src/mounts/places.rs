//! The places of a mount: origin, mount point and flash, which may be several. None hides another.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headpond_mount::{MountAnswer, ask_mount};

use super::neighbours::{check_neighbours, lies_below, lies_in};
use super::table::{Detach, FS_TYPE, detach, mounted_on, mounts};
use crate::origin::OriginRoot;
use crate::ownership::MARKER_NAME;
use crate::refusal::Refusal;

/// Checked places, each as an absolute path without symbolic links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedPlaces {
    /// The directory that owns the data.
    pub origin: PathBuf,
    /// The empty directory that will show it.
    pub mountpoint: PathBuf,
    /// The files or devices of the pool. They need not exist yet.
    pub flashes: Vec<PathBuf>,
}

impl CheckedPlaces {
    /// Checks the places that the operator gave. Removes from the mount point a dead mount, whose daemon has ended.
    ///
    /// # Errors
    /// The first reason not to mount: the statuses 10, 20 to 23 and 30.
    pub fn check(origin_root: &OriginRoot, mountpoint: &Path, flashes: &[PathBuf]) -> Result<Self, Refusal> {
        let origin = check_origin(origin_root)?;
        let mountpoint = check_mountpoint(mountpoint)?;
        let flashes = flashes.iter().map(|flash| check_flash(flash)).collect::<Result<Vec<_>, _>>()?;
        let places = Self { origin, mountpoint, flashes };
        places.check_overlap()?;
        let mounts = mounts();
        if let Some(flash) = places.flashes.iter().find(|flash| lies_in(flash, origin_root, &mounts)) {
            return Err(flash_in_origin(flash, &places.origin));
        }
        check_neighbours(origin_root, &mounts)?;
        if let Some(example) = first_name(&places.mountpoint)? {
            return Err(Refusal::MountPointNotEmpty { path: places.mountpoint, example });
        }
        Ok(places)
    }

    /// Checks another flash beside these places, while they are mounted. The path is one without links. It asks nothing of
    /// the mount point: the question would wait for this very process, and keep it from its end if it is killed.
    ///
    /// # Errors
    /// If it lies in the origin or the mount point.
    pub(crate) fn check_another(&self, flash: &Path) -> Result<(), Refusal> {
        let mounts = mounts();
        if flash.starts_with(&self.mountpoint) || lies_below(flash, &self.mountpoint, &mounts) {
            return Err(flash_in_mount(flash, &self.mountpoint));
        }
        if lies_below(flash, &self.origin, &mounts) || inside(flash, &self.origin) {
            Err(flash_in_origin(flash, &self.origin))
        } else {
            Ok(())
        }
    }

    fn check_overlap(&self) -> Result<(), Refusal> {
        let Self { origin, mountpoint, flashes } = self;
        let overlap = |what: String, advice| Err(Refusal::Overlap { what, advice });
        let (o, m) = (origin.display(), mountpoint.display());
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
        for (index, flash) in flashes.iter().enumerate() {
            if inside(flash, origin) {
                return Err(flash_in_origin(flash, origin));
            }
            if inside(flash, mountpoint) {
                return Err(flash_in_mount(flash, mountpoint));
            }
            if flashes[..index].contains(flash) {
                return Err(Refusal::Usage(format!("flash {} is named twice", flash.display())));
            }
        }
        Ok(())
    }
}

fn flash_in_mount(flash: &Path, mountpoint: &Path) -> Refusal {
    let what = format!("flash {} is inside the mount point {}", flash.display(), mountpoint.display());
    Refusal::Overlap { what, advice: "The mount would hide its own flash. Put it elsewhere." }
}

fn flash_in_origin(flash: &Path, origin: &Path) -> Refusal {
    let what = format!("flash {} is inside the origin {}", flash.display(), origin.display());
    Refusal::Overlap { what, advice: "The pool would cache itself. Put it on a fast local device, outside the origin." }
}

fn check_origin(root: &OriginRoot) -> Result<PathBuf, Refusal> {
    let path = root.path();
    let refuse = |why: &str| Err(Refusal::Origin { path: path.to_owned(), why: why.to_owned() });
    if path.components().any(|part| part.as_os_str() == MARKER_NAME) {
        return refuse("is headpond's own directory");
    }
    if mounted_on(path).is_some_and(|mount| mount.fs_type == FS_TYPE) {
        return refuse("is itself a headpond mount. A second cache in front of it would only add cost");
    }
    Ok(path.to_owned())
}

fn check_mountpoint(given: &Path) -> Result<PathBuf, Refusal> {
    let refuse = |why: &str| Err(Refusal::MountPoint { path: given.to_owned(), why: why.to_owned() });
    let path = mountpoint_path(given);
    if let Some(mount) = mounted_on(&path).filter(|mount| mount.fs_type == FS_TYPE) {
        if ask_mount(&path) != MountAnswer::Gone {
            let what = format!("headpond, in front of {},", mount.source.display());
            return Err(Refusal::MountPointInUse { path, what });
        }
        detach(&path, Detach::Lazy)?;
    }
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => {
            fs::canonicalize(&path).map_err(|error| Refusal::from_io("open the mount point", &path, error))
        }
        Ok(_) => refuse("is not a directory"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse(&format!("does not exist. To make it: mkdir -p {}", given.display()))
        }
        Err(error) => Err(Refusal::from_io("open the mount point", &path, error)),
    }
}

/// The absolute path of a mount point. It does not ask the file system mounted there, which may be dead or stuck.
/// First it takes the path as written, then with the links in its parent resolved.
#[must_use]
pub fn mountpoint_path(given: &Path) -> PathBuf {
    let absolute = std::path::absolute(given).unwrap_or_else(|_| given.to_owned());
    // `absolute` keeps a slash at the end. mountinfo has none.
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
        return refuse("is not a file name".to_owned());
    };
    match fs::canonicalize(parent) {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse(format!("the directory {} does not exist", parent.display()))
        }
        Err(error) => Err(Refusal::from_io("open", parent, error)),
    }
}

/// Whether `path` is `dir` or below it. It compares device and inode as well as the name, so that a bind mount does
/// not deceive it.
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
    use crate::refusal::ExitStatus;

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
        let places =
            CheckedPlaces::check(&OriginRoot::open(&at("link")).unwrap(), &at("mnt/"), &[at("fast/pond")]).unwrap();
        let base = fs::canonicalize(root.path()).unwrap();
        assert_eq!(places.origin, base.join("origin"));
        assert_eq!(places.mountpoint, base.join("mnt"));
        assert_eq!(places.flashes[0], base.join("fast/pond"));
    }

    #[test]
    fn each_bad_place_has_its_message_and_its_status() {
        let root = tree();
        for (origin, mountpoint, flash, status, says) in [
            ("gone", "mnt", "fast/p", ExitStatus::OriginUnusable, "does not exist"),
            ("full/file", "mnt", "fast/p", ExitStatus::OriginUnusable, "not a directory"),
            ("origin", "gone", "fast/p", ExitStatus::MountPointUnusable, "mkdir -p"),
            ("origin", "full/file", "fast/p", ExitStatus::MountPointUnusable, "not a directory"),
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
            let places = |root: OriginRoot| CheckedPlaces::check(&root, &at(mountpoint), &[at(flash)]);
            let refusal = OriginRoot::open(&at(origin)).and_then(places).unwrap_err();
            assert_eq!(refusal.status(), status, "{origin} {mountpoint} {flash}: {refusal}");
            assert!(refusal.to_string().contains(says), "{origin} {mountpoint} {flash}: {refusal}");
        }
    }
}
