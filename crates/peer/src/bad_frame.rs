//! The rules that a frame may break.
//!
//! Invariant: the receiver of such a frame carries out nothing of it.

use thiserror::Error;

/// A rule that a frame breaks. The connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadFrame {
    /// It does not begin as a frame does.
    #[error("these bytes are none of headpond's frames")]
    Magic,
    /// It has a kind that nobody sends.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// A length or an offset is beyond its bounds.
    #[error("a frame with a length or an offset out of bounds")]
    Length,
    /// A field has a value without a meaning.
    #[error("a frame with a field that makes no sense")]
    Field,
    /// Its bytes changed on the way.
    #[error("a frame with a wrong checksum")]
    Checksum,
    /// It is not due.
    #[error("a frame that is not due")]
    NotDue,
}
