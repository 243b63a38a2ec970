//! The name layer. It knows the kernel's inodes and where they are, what the engine knows of files, the order of
//! opens and changes of names, and what of all that is not durable yet.
//!
//! It does no I/O, reads no clock, starts no thread and uses no randomness. Its world is two traits, [`Tree`] (the
//! origin's names and inodes) and [`ContentStore`] (the engine). The mount implements them with system calls, the
//! simulator by itself.
//!
//! Invariants
//! - Operations that may wait are futures. They wait only where they `await`: for the tree, for the pond, or for each
//!   other. No lock is held across an `await`, except those made for it (`file_locks.rs`, `slots.rs`, `moves.rs`).
//! - The drop of a future undoes what its operation has begun and not ended, if that needs no waiting.
//! - Requests for data do not pass through it. They find what they need ([`Inode::known`]) without waiting.

mod again;
mod file_locks;
mod found;
mod inode;
mod inodes;
mod known;
mod lasting;
mod moves;
mod names;
mod places;
mod pond;
mod removed;
mod slots;
mod take_over;
mod tree;
mod unsynced;
mod wait;

pub use again::Again;
pub use found::{DeviceNumber, FileKey, FileKind, Found, Moment};
pub use inode::Inode;
pub use inodes::{Inodes, PANEL, ROOT};
pub use known::{Known, KnownFiles, KnownObject, View};
pub use lasting::{Keeper, Lasting};
pub use names::{Content, Counted, Created, FileHandle, MountSettings, Names, Pinned, StatusChange};
pub use pond::{ContentStore, Leaving, See, TreeOperation};
pub use removed::Removed;
pub use slots::{CountedPath, PathInUse, PathSlot};
pub use take_over::TakenOver;
pub use tree::{Access, Freshness, Making, RenameFlags, Tree};
pub use unsynced::Unsynced;
pub use wait::block_on;
