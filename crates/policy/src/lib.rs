//! Which blocks are kept, which are let in, and in what order dirty ones are destaged: decisions only.
//!
//! Invariants: nothing here does I/O, reads a clock or starts a thread. The same calls give the same answers on every
//! machine. So an engine, a simulator and the replay of a trace can run the same code. Memory is bounded when a policy
//! is made.

mod adaptive;
mod aside;
mod budget;
mod cache;
mod fifo;
mod ghosts;
mod index;
mod key;
mod lru;
mod merge;
mod nodes;
mod queues;
mod quotas;
mod reach;
mod replacement;
mod s3_fifo;
mod sequential;
mod sketch;
mod w_tinylfu;

pub use adaptive::Adaptive;
pub use budget::{FlashBudget, FlashWriteLimit};
pub use cache::{Admission, Cache, Policy, UnknownPolicy};
pub use fifo::Fifo;
pub use key::Key;
pub use lru::Lru;
pub use merge::{Gap, Joined, Merge, OriginCost, WriteRun, join};
pub use quotas::{BlockOwner, ClassLimit, Quotas};
pub use reach::{Reach, Regrets};
pub use replacement::{Admitted, Evicted, Host, Insertion, Replacement};
pub use s3_fifo::S3Fifo;
pub use sequential::{ProcessId, SequentialRuns, Transfer};
pub use w_tinylfu::WTinyLfu;
