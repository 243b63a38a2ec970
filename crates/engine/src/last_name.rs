//! Whether an object's file still has a name at the origin. Should the origin forget a removal in a power cut, the file
//! would be back and want its data. So the pool forgets dirty data only once the origin has made the removal durable.
//!
//! ```text
//! [Linked] --- removed ---> [Gone] --- asked to make that durable ---> [Burying] --- done ---> the object is forgotten
//!                              ^                                           |
//!                              +---------------- refused ------------------+
//! ```

use headpond_base::Errno;

/// Of one object. Owned by it.
#[derive(Default)]
pub(crate) enum LastName {
    /// There, as far as is known.
    #[default]
    Linked,
    /// Removed, and perhaps not durably so.
    Gone {
        /// Why the origin could not make it durable the last time.
        refused: Option<Errno>,
    },
    /// Removed; the origin is asked to make that durable.
    Burying,
}

impl LastName {
    /// The last name is removed.
    pub(crate) const fn note_removed(&mut self) {
        if matches!(self, Self::Linked) {
            *self = Self::Gone { refused: None };
        }
    }

    /// Whether it is removed.
    pub(crate) const fn is_gone(&self) -> bool {
        !matches!(self, Self::Linked)
    }

    /// Whether the origin is being asked to make that durable.
    pub(crate) const fn is_being_buried(&self) -> bool {
        matches!(self, Self::Burying)
    }

    /// The origin is to be asked; `false` if it is already.
    pub(crate) const fn begins_burial(&mut self) -> bool {
        let begins = !self.is_being_buried();
        *self = Self::Burying;
        begins
    }

    /// The origin has answered.
    pub(crate) const fn ends_burial(&mut self, refused: Option<Errno>) {
        *self = Self::Gone { refused };
    }

    /// Why the origin could not make it durable the last time.
    pub(crate) const fn refused(&self) -> Option<Errno> {
        match self {
            Self::Gone { refused } => *refused,
            Self::Linked | Self::Burying => None,
        }
    }
}
