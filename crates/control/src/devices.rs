//! The devices of a pool in use, by member: where each lies, and its open file, which has the lock.
//!
//! Keeps true: a device is here as long as the shard drives it. Who takes it away closes the last file of this process,
//! and so frees it for others. Uses `peers`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headpond_base::{Buf, BufMut, MemberId};
use headpond_device::Flash;

use crate::peers::{Draining, PeerPlan};

/// One device.
#[derive(Clone, Debug)]
pub(crate) struct PoolDevice {
    pub(crate) member: MemberId,
    pub(crate) path: PathBuf,
    /// Bytes that the pool uses of it.
    pub(crate) bytes: u64,
    /// Bytes that it has. The pool never writes to those behind the ones that it uses.
    pub(crate) whole_bytes: u64,
    pub(crate) file: DeviceFile,
}

/// The bytes of a device, beside the shard that drives it.
#[derive(Clone, Debug)]
pub(crate) enum DeviceFile {
    /// A second descriptor of the open file.
    Here(Arc<File>),
    /// The connection with the peer that has it.
    Far(Arc<Flash>),
}

impl DeviceFile {
    /// Those of an opened flash.
    ///
    /// # Errors
    /// If the file cannot be opened once more.
    pub(crate) fn of(flash: &Flash) -> io::Result<Self> {
        match (flash.file(), flash.far_disk()) {
            (Some(file), _) => Ok(Self::Here(Arc::new(file.try_clone()?))),
            (None, Some(disk)) => Ok(Self::Far(Arc::new(Flash::far(disk.clone(), flash.path())))),
            (None, None) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The file, if the device is one of this host.
    pub(crate) const fn here(&self) -> Option<&Arc<File>> {
        match self {
            Self::Here(file) => Some(file),
            Self::Far(_) => None,
        }
    }

    pub(crate) fn read_at(&self, into: &mut BufMut, offset: u64) -> io::Result<()> {
        match self {
            Self::Here(file) => file.read_exact_at(into, offset),
            Self::Far(flash) => {
                let found = flash.read(offset, into.len()).map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
                into.copy_from_slice(&found);
                Ok(())
            }
        }
    }

    pub(crate) fn write_at(&self, data: &Buf, offset: u64) -> io::Result<()> {
        match self {
            Self::Here(file) => file.write_all_at(data, offset),
            Self::Far(flash) => flash.write(offset, data).map_err(|errno| io::Error::from_raw_os_error(errno.0)),
        }
    }

    /// The pool has let it go: a peer frees the room of its copy. Waits for its answer.
    pub(crate) fn let_go(&self) -> io::Result<()> {
        let Self::Far(flash) = self else { return Ok(()) };
        flash.let_go().map_err(|errno| io::Error::from_raw_os_error(errno.0))
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        match self {
            Self::Here(file) => file.sync_data(),
            Self::Far(flash) => flash.sync().map_err(|errno| io::Error::from_raw_os_error(errno.0)),
        }
    }
}

/// All of them. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolDevices(Arc<Mutex<Lists>>);

#[derive(Debug, Default)]
struct Lists {
    here: Vec<PoolDevice>,
    /// Where those lay that have left, or that this start did not find.
    gone: Vec<(MemberId, PathBuf)>,
    /// The hosts that may keep a copy, in the order in which they are tried.
    peers: Vec<PeerPlan>,
    draining: Draining,
}

impl PoolDevices {
    /// None yet. `draining`: what peers that it may have say.
    pub(crate) fn hearing(draining: Draining) -> Self {
        Self(Arc::new(Mutex::new(Lists { draining, ..Lists::default() })))
    }

    /// Which peers are being drained.
    pub(crate) fn draining(&self) -> Draining {
        self.lists().draining.clone()
    }

    pub(crate) fn join(&self, device: PoolDevice) {
        let mut lists = self.lists();
        lists.gone.retain(|(member, _)| *member != device.member);
        lists.here.push(device);
        lists.here.sort_by_key(|device| device.member);
    }

    /// Takes a device away.
    pub(crate) fn leave(&self, member: MemberId) -> Option<PoolDevice> {
        let mut lists = self.lists();
        let place = lists.here.iter().position(|device| device.member == member)?;
        let device = lists.here.remove(place);
        lists.gone.push((member, device.path.clone()));
        Some(device)
    }

    /// A member that is not here lay there when it was last used.
    pub(crate) fn was_at(&self, member: MemberId, path: PathBuf) {
        self.lists().gone.push((member, path));
    }

    /// The pool uses so many bytes of a device from now on, of so many that it has.
    pub(crate) fn resize(&self, member: MemberId, bytes: u64, whole_bytes: u64) {
        for device in self.lists().here.iter_mut().filter(|device| device.member == member) {
            (device.bytes, device.whole_bytes) = (bytes, whole_bytes);
        }
    }

    /// Those here, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<PoolDevice> {
        self.lists().here.clone()
    }

    /// Where a member lies, or lay. Empty if nobody knows.
    pub(crate) fn path_of(&self, member: MemberId) -> PathBuf {
        let lists = self.lists();
        let here = lists.here.iter().find(|device| device.member == member).map(|device| device.path.clone());
        let gone = || lists.gone.iter().rev().find(|(gone, _)| *gone == member).map(|(_, path)| path.clone());
        here.or_else(gone).unwrap_or_default()
    }

    /// A member, if it is here.
    pub(crate) fn of(&self, member: MemberId) -> Option<PoolDevice> {
        self.lists().here.iter().find(|device| device.member == member).cloned()
    }

    /// Whether a member is here.
    pub(crate) fn has(&self, member: MemberId) -> bool {
        self.lists().here.iter().any(|device| device.member == member)
    }

    /// The member at a path, here or gone; one that is here comes first.
    pub(crate) fn at(&self, path: &Path) -> Option<MemberId> {
        let lists = self.lists();
        // A peer has one address: the one that was lost there may not have been let go yet.
        let here = lists.here.iter().rev().find(|device| device.path == path).map(|device| device.member);
        here.or_else(|| lists.gone.iter().rev().find(|(_, gone)| gone == path).map(|(member, _)| *member))
    }

    /// The hosts that the operator named for a copy, in the order in which they are tried.
    pub(crate) fn peers(&self) -> Vec<PeerPlan> {
        self.lists().peers.clone()
    }

    /// Names one more. Returns whether its address is new.
    pub(crate) fn name_peer(&self, peer: &PeerPlan) -> bool {
        let peers = &mut self.lists().peers;
        let known = peers.iter_mut().find(|known| known.address == peer.address);
        let is_new = known.is_none();
        match known {
            Some(known) => known.clone_from(peer),
            None => peers.push(peer.clone()),
        }
        is_new
    }

    /// No copy is wanted there any more.
    pub(crate) fn forget_peer(&self, path: &Path) {
        self.lists().peers.retain(|peer| peer.path() != path);
    }

    /// Where they lie.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.lists().here.iter().map(|device| device.path.clone()).collect()
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        // Each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_left_is_remembered_by_its_path_until_another_takes_the_path() {
        let devices = PoolDevices::default();
        let file = || DeviceFile::Here(Arc::new(tempfile::tempfile().unwrap()));
        let device = |member, path: &str| PoolDevice {
            member: MemberId(member),
            path: path.into(),
            bytes: 1,
            whole_bytes: 1,
            file: file(),
        };
        devices.join(device(1, "/b"));
        devices.join(device(0, "/a"));
        assert_eq!(devices.paths(), [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert!(devices.leave(MemberId(1)).is_some() && devices.leave(MemberId(1)).is_none());
        assert_eq!((devices.at(Path::new("/b")), devices.has(MemberId(1))), (Some(MemberId(1)), false));
        devices.join(device(2, "/b"));
        assert_eq!(devices.at(Path::new("/b")), Some(MemberId(2)));
        assert_eq!(devices.path_of(MemberId(1)), PathBuf::from("/b"));
        assert_eq!(devices.path_of(MemberId(9)), PathBuf::new());
    }
}
