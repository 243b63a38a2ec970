//! The pool at a start: its flash, what its log holds, and which file at the origin each of its objects is.
//!
//! Keeps true: headpond writes to a pool only after it found that the pool belongs to this origin, and gives dirty
//! data up only if the operator says so. Uses `devices`, `ownership`, `origin`, `settings`, `process`, `refusal`, `reserve` and `wording`.

mod arena_tail;
mod flash;
mod flashes;
mod judged;
mod recovery;
mod resolve;

pub(crate) use arena_tail::ArenaTail;
pub use flash::{FlashContent, HeldFlash};
pub(crate) use flash::{Superblocks, newest_superblock};
pub(crate) use flashes::HeldFlashes;
pub use judged::JudgedStart;
pub(crate) use recovery::{Beside, DirtyFile, Inherited, Ready, known_members, make_ready};
pub(crate) use resolve::NamelessFiles;
pub use resolve::{OriginFile, Wanted};
