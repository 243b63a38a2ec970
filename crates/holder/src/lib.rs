//! Three lives: the holder, the worker and the pool.
//!
//! The **worker** is the daemon that serves a mount. It may die at any instruction. The **holder** is its parent: it
//! keeps what must outlive the worker, and starts another one, which goes on. The **pool** on flash outlives both.
//!
//! ```text
//! holder ── keeps ──> the FUSE connection, locks, files without a name, the arena
//!    │ starts, and gives it all of that
//!    └──> worker ── dies ──> worker ── dies ──> ...
//! ```
//!
//! Invariants:
//! - The holder touches no data and parses none. It knows descriptors by name, and short texts.
//! - The next worker starts only after the last one is wholly gone, or dead but for a write to the FUSE device that waits
//!   for the next one's answers; and after all it sent has been read.
//! - A worker does not outlive its holder: the kernel ends it.

mod arena;
mod hold;
mod message;
mod process;
mod tie;

pub use arena::{Arena, ArenaError, Sizes};
pub use hold::{Patience, Program, Told, hold};
pub use process::{has_ended, is_dead};
pub use tie::{Inherited, Tie};
