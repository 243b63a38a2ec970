//! Copies of a pool on another host: what does I/O for the protocol of `headpond-peer`.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`address`](PeerAddress) | where a peer listens |
//! | [`certificates`](Certificates) | who an owner and a peer are to each other: mutual TLS |
//! | `channel` | a stream of bytes: a unix socket, TCP, TLS |
//! | [`link`](Link) | the owner's end: a disk whose operations go over a connection |
//! | `record` | what is known of a pool's copy, and whether its bytes count |
//! | [`store`](Store) | what a peer keeps: a record and a file for each pool |
//! | [`store_error`](StoreError) | why a store cannot be used |
//! | `copy` | one file that is being served, and who may write to it |
//! | `places` | how many connections there are, and which give way |
//! | `session` | one connection, from its hello to its end |
//! | [`server`](PeerServer) | the peer's end: listens, and stops |
//! | [`removed`](remove_copy) | an operator removes a copy |
//! | [`taken_over`](take_over) | a peer's host takes a pool for itself |
//!
//! Invariants:
//! - A record is durable before what it allows happens: an owner's number before the answer to its hello, a raised one
//!   before the copy is opened.
//! - One process has a copy's file open for writing at a time: the lock of the file says which.
//! - A copy that does not count is known as that on disk, whatever process dies.
//! - Bounded: connections, the bytes of a request, the bytes on the way out, the time without an answer.

mod address;
mod certificates;
mod channel;
mod copy;
mod line;
mod link;
mod places;
mod record;
mod removed;
mod server;
mod session;
mod store;
mod store_error;
mod taken_over;

pub use address::PeerAddress;
pub use certificates::{Certificates, CertificatesError};
pub use link::{Link, LinkEnd, LinkError, LinkNews, PATIENCE, SILENCE};
pub use removed::remove_copy;
pub use server::{PeerServer, ServerConfig, Stopper};
pub use store::{Store, StoredCopy};
pub use store_error::StoreError;
pub use taken_over::{HeldCopy, TakenCopy, hold_copy, take_over, taken_over};
