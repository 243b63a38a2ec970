//! Copies of a pool on another host: what does I/O for the protocol of `headpond-peer`.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`address`](PeerAddress) | where a peer listens |
//! | [`certificates`](Certificates) | who an owner and a peer are to each other: mutual TLS |
//! | `channel` | a stream of bytes: a unix socket, TCP, TLS |
//! | [`link`](Link) | the owner's end: a disk whose operations go over a connection |
//! | [`store`](Store) | what a peer keeps: a record and a file for each pool |
//! | `copy` | one file that is being served, and who may write to it |
//! | [`server`](PeerServer) | the peer's end |
//! | [`taken_over`](take_over) | a peer's host takes a pool for itself |
//!
//! Invariants:
//! - A record is durable before what it allows happens: an owner's number before the answer to its hello, a raised one
//!   before the copy is opened.
//! - One process has a copy's file open for writing at a time: the lock of the file says which.
//! - Bounded: connections, the bytes of a request, the bytes on the way out, the time without an answer.

mod address;
mod certificates;
mod channel;
mod copy;
mod link;
mod server;
mod store;
mod taken_over;

pub use address::PeerAddress;
pub use certificates::{Certificates, CertificatesError};
pub use link::{Link, LinkEnd, LinkError, PATIENCE};
pub use server::{PeerServer, ServerConfig};
pub use store::{Store, StoreError, StoredCopy};
pub use taken_over::{TakenCopy, take_over, taken_over};
