//! A volume of the origin: a file in the directory with a fixed size, all the space it needs, and no visible times. No
//! operation renames or removes it.

use headpond_engine::OpenVolume;
use headpond_format::{Identity, VolumeId, VolumeWitness};

use super::{FileId, Name, SimOrigin};

/// What its door says of it besides its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Volume {
    id: VolumeId,
    generation: u64,
}

impl SimOrigin {
    /// Makes an empty one.
    pub(crate) fn create_volume(&mut self, size: u64) -> FileId {
        let id = self.create(b"volume");
        if let Some(file) = self.files.get_mut(&id) {
            file.volume = Some(Volume { id: VolumeId([0xb7; 16]), generation: 1 });
            file.live.resize(size);
            file.durable.resize(size);
            (file.stamp.size, file.durable_stamp.size) = (size, size);
        }
        id
    }

    /// Whether it is a volume.
    pub(crate) fn is_volume(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(|file| file.volume.is_some())
    }

    /// What its door finds, if it is one.
    pub(crate) fn volume(&self, id: FileId) -> Option<OpenVolume> {
        let file = self.files.get(&id)?;
        let Volume { id, generation } = file.volume?;
        Some(OpenVolume { id, witness: VolumeWitness { size: file.stamp.size, generation } })
    }

    /// Others change it, and its door knows that they did.
    pub(crate) fn note_changed_volume(&mut self, id: FileId) {
        if let Some(volume) = self.files.get_mut(&id).and_then(|file| file.volume.as_mut()) {
            volume.generation += 1;
        }
    }

    /// The file that has a name and this one's inode number, or the volume.
    pub(crate) fn by_identity(&self, identity: Identity) -> Option<FileId> {
        let is_it = |id: &FileId| {
            self.files.get(id).is_some_and(|file| match (identity, file.volume) {
                (Identity::File(known), None) => known.inode == file.inode,
                (Identity::Volume(known), Some(volume)) => known == volume.id,
                _ => false,
            })
        };
        self.names.values().copied().find(is_it)
    }

    /// Names that users may change.
    pub(crate) fn file_names(&self) -> Vec<Name> {
        self.names.iter().filter(|(_, id)| !self.is_volume(**id)).map(|(name, _)| name.clone()).collect()
    }
}
