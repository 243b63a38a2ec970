//! The number under which the origin, or a volume's door, has an object.
//!
//! It is the object's alone at any one time, but that of a file goes to another one later.

use headpond_format::{Identity, VolumeId};

/// What the origin gives to one object at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum OriginNumber {
    /// An inode number.
    Inode(u64),
    /// A volume's: never given again.
    Volume(VolumeId),
}

impl OriginNumber {
    /// That of an object.
    pub(crate) const fn of(identity: Identity) -> Self {
        match identity {
            Identity::File(file) => Self::Inode(file.inode),
            Identity::Volume(id) => Self::Volume(id),
        }
    }
}
