//! The pool at a start: its flash, what its log holds, and which file at the origin each of its objects is.
//!
//! Keeps true: a pool is written to only after it was found to belong to this origin, and dirty data is never given
//! up unless the operator says so. Uses `ownership`, `origin`, `settings`, `process`, `refusal` and `wording`.

mod flash;
mod recovery;
mod resolve;

pub(crate) use flash::Superblocks;
pub use flash::{FlashContent, HeldFlash};
pub(crate) use recovery::{Beside, DirtyFile, Ready, make_ready};
pub use resolve::{OriginFile, Wanted};
