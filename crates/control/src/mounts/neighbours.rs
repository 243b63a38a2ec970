//! One file has one cache. So an origin above or below another origin is refused, by whatever paths you name the two.
//!
//! How it finds another origin:
//! - By the place of a directory within its file system, from the kernel's table of mounts. Bind mounts, and parts of
//!   a file system that are mounted apart, do not hide it.
//! - By markers in the directories above, even if only another mount shows those directories.
//! - Below, only while the other origin is mounted. An origin below that was left with a marker is found by the mount
//!   itself, which does not enter it (`nested.rs` of the mount).

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::table::{FS_TYPE, ListedMount};
use crate::origin::{OriginRoot, identity, look_at};
use crate::ownership::{Marker, MarkerState};
use crate::refusal::{ExitStatus, Refusal};

/// A directory's place: its file system, and the path there.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FsPlace {
    device: (u32, u32),
    path: PathBuf,
}

impl FsPlace {
    fn is_inside(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

/// Refuses an origin that has another one above or below it.
pub(crate) fn check_neighbours(root: &OriginRoot, mounts: &[ListedMount]) -> Result<(), Refusal> {
    let place = place_of_open(root, root.path(), mounts);
    // On another part of this origin's file system, or unknown. Such a source is not asked: it could hang.
    let is_near = |source: &Path| {
        let theirs = place_of(source, mounts);
        theirs.zip(place.as_ref()).filter(|(theirs, place)| theirs.device == place.device)
    };
    let above = directories_above(root.path(), place.as_ref(), mounts);
    let own = look_at(root, c"").ok().map(|found| identity(&found));
    for mount in mounts.iter().filter(|mount| mount.fs_type == FS_TYPE) {
        let Some((theirs, place)) = is_near(&mount.source) else { continue };
        // The same origin. The marker's lock finds that, and names the holder.
        if theirs == *place {
            continue;
        }
        let it = look_at(CWD, &mount.source).ok().map(|found| identity(&found));
        let is_same = |dir: &OwnedFd| look_at(dir, c"").is_ok_and(|found| Some(identity(&found)) == it);
        if place.is_inside(&theirs) || above.iter().any(|(_, dir)| is_same(dir)) {
            return Err(nested(root, "lies in", &mount.source, &mount.mountpoint));
        }
        let of_theirs = directories_above(&mount.source, Some(&theirs), mounts);
        let is_own = |dir: &OwnedFd| look_at(dir, c"").is_ok_and(|found| Some(identity(&found)) == own);
        if theirs.is_inside(place) || of_theirs.iter().any(|(_, dir)| is_own(dir)) {
            return Err(nested(root, "contains", &mount.source, &mount.mountpoint));
        }
    }
    for (path, dir) in &above {
        match Marker::in_directory(dir) {
            None => {}
            Some(Ok(marker)) => return Err(marked(root, path, &marker)),
            Some(Err(why)) => {
                let what = format!("lies in {}, whose marker {why}", path.display());
                let advice = format!(
                    "Mount {} with its flash, then unmount it. If you are sure that no pool has its data: rm -r '{}'",
                    path.display(),
                    path.join(crate::MARKER_NAME).display()
                );
                return Err(refusal(root, what, advice, ExitStatus::MarkerDamaged));
            }
        }
    }
    Ok(())
}

/// Whether a path lies in the origin, by whatever name.
pub(crate) fn lies_in(path: &Path, root: &OriginRoot, mounts: &[ListedMount]) -> bool {
    let origin = place_of_open(root, root.path(), mounts);
    place_of(path, mounts).zip(origin).is_some_and(|(path, origin)| path.is_inside(&origin))
}

/// Whether a path lies in a directory, by whatever name. It asks no file system.
pub(crate) fn lies_below(path: &Path, dir: &Path, mounts: &[ListedMount]) -> bool {
    place_of(path, mounts).zip(place_of(dir, mounts)).is_some_and(|(path, dir)| path.is_inside(&dir))
}

fn nested(root: &OriginRoot, how: &str, other: &Path, mountpoint: &Path) -> Refusal {
    let (other, mountpoint) = (other.display(), mountpoint.display());
    let what = format!("{how} {other}, which headpond serves on {mountpoint}");
    let advice = format!(
        "A file can have one cache. First unmount the other one: headpond unmount '{mountpoint}'. If its daemon is gone, \
         mount {other} again before that."
    );
    refusal(root, what, advice, ExitStatus::OriginInUse)
}

fn marked(root: &OriginRoot, above: &Path, marker: &Marker) -> Refusal {
    let (above, flash) = (above.display(), marker.flash.display());
    let what = format!(
        "lies in {above}, which {} by headpond with the flash {flash} (host {}, since {})",
        marker.state.describe(),
        marker.host,
        marker.since
    );
    let mountpoint = marker.mountpoint.display();
    match marker.state {
        MarkerState::Mounted => {
            let advice = format!(
                "A file can have one cache. Unmount that one first: headpond unmount '{mountpoint}'. If its daemon is gone, first \
                 mount it again."
            );
            refusal(root, what, advice, ExitStatus::OriginInUse)
        }
        MarkerState::DirtyLeft => {
            let advice = format!(
                "That pool may hold newer data of this origin. To bring it back: headpond mount '{above}' '{mountpoint}' --flash \
                 '{flash}' --background && headpond unmount '{mountpoint}'"
            );
            refusal(root, what, advice, ExitStatus::OriginDirtyElsewhere)
        }
    }
}

fn refusal(root: &OriginRoot, what: String, advice: String, status: ExitStatus) -> Refusal {
    Refusal::OriginNested { path: root.path().to_owned(), what, advice, status }
}

/// The directories above one, open, each by a path that shows it: those of its own path, and those that a bind mount
/// hides, if another mount of the file system shows them. It leaves out what it cannot open.
fn directories_above(path: &Path, place: Option<&FsPlace>, mounts: &[ListedMount]) -> Vec<(PathBuf, OwnedFd)> {
    let open = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).ok()
    };
    let mut found: Vec<(PathBuf, OwnedFd)> =
        path.ancestors().skip(1).filter_map(|above| Some((above.to_owned(), open(above)?))).collect();
    let Some(place) = place else { return found };
    for above in place.path.ancestors().skip(1) {
        let above = FsPlace { device: place.device, path: above.to_owned() };
        for mount in mounts.iter().filter(|mount| mount.device == above.device) {
            let Ok(below) = above.path.strip_prefix(&mount.root) else { continue };
            let shown: PathBuf = mount.mountpoint.join(below).components().collect();
            if path.starts_with(&shown) {
                continue;
            }
            // Only if no other mount covers it there.
            if let Some(dir) = open(&shown)
                && place_of_open(&dir, &shown, mounts).as_ref() == Some(&above)
            {
                found.push((shown, dir));
                break;
            }
        }
    }
    found
}

/// The place of an open directory that is at `path`, from the mount through which it was opened.
fn place_of_open(dir: impl AsFd, path: &Path, mounts: &[ListedMount]) -> Option<FsPlace> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", dir.as_fd().as_raw_fd())).ok()?;
    let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse::<u32>().ok()?;
    place_in(mounts.iter().find(|mount| mount.id == id)?, path)
}

/// The place of a path. It asks no file system, because a mount there may be stuck.
fn place_of(path: &Path, mounts: &[ListedMount]) -> Option<FsPlace> {
    let is_mount = |id: u32| mounts.iter().any(|mount| mount.id == id);
    let mut mount = mounts
        .iter()
        .find(|mount| mount.mountpoint == Path::new("/") && (mount.parent == mount.id || !is_mount(mount.parent)))?;
    // As the kernel walks: from mount to mount, each time to the first that the path meets. The table has no circles.
    for _ in 0..mounts.len() {
        let on_it = mounts
            .iter()
            .filter(|next| next.parent == mount.id && next.id != mount.id && path.starts_with(&next.mountpoint));
        match on_it.min_by_key(|next| next.mountpoint.components().count()) {
            Some(next) => mount = next,
            None => break,
        }
    }
    place_in(mount, path)
}

fn place_in(mount: &ListedMount, path: &Path) -> Option<FsPlace> {
    let below = path.strip_prefix(&mount.mountpoint).ok()?;
    Some(FsPlace { device: mount.device, path: mount.root.join(below).components().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::table::parse;
    use crate::ownership::marker_tests::{example, root};
    use std::fs;

    #[test]
    fn a_path_lies_in_a_mount_and_in_an_origin_by_other_names_too() {
        let mounts = parse(
            b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
              2 1 8:2 / /slow rw - ext4 /dev/b rw\n\
              3 1 0:8 / /db rw - fuse.headpond /slow/db rw,user_id=0\n\
              4 1 0:8 /tables /alias rw - fuse.headpond /slow/db rw,user_id=0\n\
              5 1 8:2 /db/logs /logs rw - ext4 /dev/b rw\n",
        );
        let below = |path: &str, dir: &str| lies_below(Path::new(path), Path::new(dir), &mounts);
        for path in ["/db/pond", "/alias/pond"] {
            assert!(below(path, "/db") && !below(path, "/slow/db"), "{path}");
        }
        for path in ["/slow/db/pond", "/logs/pond"] {
            assert!(below(path, "/slow/db") && !below(path, "/db"), "{path}");
        }
        assert!(!below("/slow/pond", "/slow/db") && !below("/pond", "/db"));
    }

    #[test]
    fn a_place_is_found_through_bind_mounts_stacked_mounts_and_odd_names() {
        let mounts = parse(
            b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
              2 1 8:2 / /slow rw - ext4 /dev/b rw\n\
              3 1 8:2 /db /alias rw - ext4 /dev/b rw\n\
              4 2 8:3 / /slow/db rw - ext4 /dev/c rw\n\
              5 1 8:2 /my\\040db,1 /odd\\012name rw - ext4 /dev/b rw\n\
              6 5 0:9 / /odd\\012name rw - tmpfs none rw\n\
              7 1 0:8 / /x rw - fuse.headpond /slow/my%2Cdb rw,user_id=0\n",
        );
        let place = |path: &str| place_of(Path::new(path), &mounts).map(|place| (place.device, place.path));
        for (path, device, there) in [
            ("/etc", (8, 1), "/etc"),
            ("/slow", (8, 2), "/"),
            ("/slow/pg", (8, 2), "/pg"),
            ("/slow/db/x", (8, 3), "/x"),
            ("/alias/x", (8, 2), "/db/x"),
            ("/aliased", (8, 1), "/aliased"),
            ("/odd\nname/x", (0, 9), "/x"),
        ] {
            assert_eq!(place(path), Some((device, there.into())), "{path}");
        }
        assert_eq!(mounts[4].root, Path::new("/my db,1"));
        assert_eq!(mounts[6].source, Path::new("/slow/my,db"));
    }

    #[test]
    fn an_origin_above_or_below_another_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let origin = fs::canonicalize(top.path()).unwrap().join("a,b");
        fs::create_dir_all(origin.join("sub")).unwrap();
        let table = crate::mounts();
        let live = |source: PathBuf, fs_type: &str| {
            let mut table = table.clone();
            table.push(ListedMount {
                id: 1 << 30,
                parent: 0,
                device: (0, 999),
                root: "/".into(),
                mountpoint: "/somewhere".into(),
                fs_type: fs_type.into(),
                source,
                user: None,
            });
            table
        };
        let (whole, part) = (root(&origin), root(&origin.join("sub")));
        for dir in [&whole, &part] {
            assert!(check_neighbours(dir, &table).is_ok());
            assert!(check_neighbours(dir, &live(origin.join("sub"), "ext4")).is_ok(), "any other mount is no concern");
            assert!(check_neighbours(dir, &live(dir.path().to_owned(), FS_TYPE)).is_ok(), "the lock tells");
        }
        assert!(check_neighbours(&part, &live(top.path().join("su"), FS_TYPE)).is_ok());
        for (dir, source, says) in [(&whole, origin.join("sub"), "contains"), (&part, origin.clone(), "lies in")] {
            let refusal = check_neighbours(dir, &live(source, FS_TYPE)).unwrap_err();
            assert_eq!(refusal.status(), ExitStatus::OriginInUse);
            let text = refusal.to_string();
            assert!(text.contains(says) && text.contains("headpond unmount '/somewhere'"), "{text}");
        }
        let hold = crate::MarkerHold::take(&whole).unwrap();
        for (state, status) in [
            (MarkerState::Mounted, ExitStatus::OriginInUse),
            (MarkerState::DirtyLeft, ExitStatus::OriginDirtyElsewhere),
        ] {
            hold.write(&example(state)).unwrap();
            let refusal = check_neighbours(&part, &table).unwrap_err();
            assert_eq!(refusal.status(), status, "{refusal}");
            assert!(refusal.to_string().contains(&format!("lies in {}", origin.display())), "{refusal}");
        }
        fs::write(origin.join(".headpond/marker.json"), "nonsense").unwrap();
        assert_eq!(check_neighbours(&part, &table).unwrap_err().status(), ExitStatus::MarkerDamaged);
    }
}
