//! A door that the shard's own thread serves.
//!
//! A request through the shard's handle costs a hand-over between threads. On an idle machine its wake-up costs nearly
//! as much as a read of flash. If requests come from a descriptor, the shard can wait for it together with the flash,
//! and take them in itself.
//!
//! # Contract
//! - A door's methods run on the shard's thread. They never block, and never send a request through the handle.
//! - The closure of an answer runs there, too, as for every request.
//! - Doors with requests at the same time take turns, a portion each.
//! - A door may end, or be withdrawn, while its requests are under way. They are still answered.
//! - A shard that ends drops its open doors. The door must then refuse later requests.

use std::io;
use std::os::fd::OwnedFd;

use headpond_engine::{Reply, Request};

/// Names a door of a shard. A shard never gives a name twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DoorId(pub u64);

/// Takes the answer to a request.
pub type Done = Box<dyn FnOnce(Reply) + Send>;

/// A source of requests. Its descriptor becomes readable when it has some.
pub trait Door: Send {
    /// The descriptor, or a duplicate of it.
    ///
    /// # Errors
    /// When the descriptor cannot be duplicated.
    fn descriptor(&self) -> io::Result<OwnedFd>;

    /// Takes in at most `room` requests, and gives each to `submit`.
    fn take(&mut self, room: usize, submit: &mut dyn FnMut(Request, Done)) -> Taken;
}

/// What a door has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Nothing: wait for the descriptor.
    All,
    /// Perhaps more: there was no more room, or the requests taken should be answered first.
    Some,
    /// Nothing, ever again: the shard drops the door.
    Closed,
}
