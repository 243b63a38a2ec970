//! The name layer: which inodes the kernel knows and where they are, what the engine knows of files, who may open a file
//! while its names change, and what of all that is not durable yet.
//!
//! It does no I/O, reads no clock, starts no thread and leaves nothing to chance: its world is two traits, [`Tree`] (the
//! origin's names and inodes) and [`Pond`] (the engine). The mount has one of system calls, the simulator one of its own.
//!
//! Invariants
//! - Operations that may wait are futures, and wait only where they `await`: for the tree, for the pond, or for each other.
//!   No lock is held across such a place, but those made for it (`turns.rs`, `slots.rs`, `moves.rs`).
//! - What an operation has begun and not ended is undone when its future is dropped, as far as that can be done without waiting.
//! - Requests for data are no concern of it: they find what they need ([`Inode::known`]) without waiting.

mod again;
mod found;
mod inode;
mod inodes;
mod known;
mod moves;
mod names;
mod places;
mod pond;
mod removed;
mod slots;
mod tree;
mod turns;
mod unsynced;
mod wait;

pub use again::Again;
pub use found::{DeviceNumber, FileKey, Found, Kind, Moment};
pub use inode::Inode;
pub use inodes::{Inodes, PANEL, ROOT};
pub use known::{Known, KnownFiles, KnownObject, View};
pub use names::{Content, Counted, Created, Handle, Names, Pinned, Settings, StatusChange};
pub use pond::{Leaving, Operation, Pond, See};
pub use removed::Removed;
pub use slots::{Descriptor, Opened, Slot};
pub use tree::{Access, Freshness, Making, RenameFlags, Tree};
pub use unsynced::Unsynced;
pub use wait::block_on;
