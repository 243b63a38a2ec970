//! Whether records are packed from now on, and how much that saves.
//!
//! Invariants:
//! - Nothing is packed before so much of the pool is in use as the settings say (`compression-from`).
//! - Nothing is packed or blank before the superblock durably says that the pool may have packed and blank records.

use headpond_base::{BLOCK, Compression};

/// How records are packed, and what came of it. Owned by the store.
#[derive(Default)]
pub(crate) struct Packing {
    /// For files of which no request said otherwise.
    compression: Compression,
    /// Only while at least so much is stored, in units of 512 bytes.
    from_units: u64,
    /// The superblock says that the pool may have packed and blank records.
    allowed: bool,
    /// A request said that its file is to be packed.
    asked_for: bool,
    record_bytes: u64,
    payload_bytes: u64,
}

impl Packing {
    /// The settings, and whether the superblock allows packed records by now.
    pub(crate) const fn set(&mut self, compression: Compression, from_units: u64, allowed: bool) {
        (self.compression, self.from_units, self.allowed) = (compression, from_units, allowed);
    }

    /// Whether a request ever said that its file is to be packed.
    pub(crate) const fn is_asked_for(&self) -> bool {
        self.asked_for
    }

    /// A request says that its file is to be packed, or is not.
    pub(crate) fn note_asked(&mut self, compression: Option<Compression>) {
        self.asked_for |= compression.is_some_and(|compression| compression != Compression::Off);
    }

    /// Bytes of the records appended since the start, as they were given.
    pub(crate) const fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// What those records took in the log.
    pub(crate) const fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// How the records of a file are packed whose own setting this is.
    pub(crate) fn of_file(&self, own: Option<Compression>) -> Compression {
        if self.allowed { own.unwrap_or(self.compression) } else { Compression::Off }
    }

    /// Where there is room for all as it is, packing would take time and gain nothing. Zeros are seen at once, and take
    /// no room all the same.
    pub(crate) const fn with_stored(&self, compression: Compression, units: u64) -> Compression {
        if units < self.from_units { Compression::Off } else { compression }
    }

    /// A record of so many blocks took so many bytes.
    pub(crate) const fn appended(&mut self, blocks: u32, payload_bytes: u64) {
        self.record_bytes += blocks as u64 * BLOCK as u64;
        self.payload_bytes += payload_bytes;
    }
}
