//! A front door that the shard's own thread serves, along with others.
//!
//! A request through the shard's handle costs a hand-over between threads: a
//! wake-up, which on an idle machine costs nearly as much as a read of flash. If requests come from a
//! descriptor, the shard can wait for it along with the flash, and take them in itself.
//!
//! # Contract
//! - A door's methods run on the shard's thread and never block, nor send a request through the handle.
//! - An answer's closure runs there, too, as for every request.
//! - Doors with requests at the same time take turns, a portion each.
//! - A door may end, or be withdrawn, while its requests are under way. They are answered all the same.
//! - A shard that ends drops its open doors. The door must then refuse the requests that still come.

use std::io;
use std::os::fd::OwnedFd;

use headpond_engine::{Reply, Request};

/// Names a door of a shard, from when the shard is asked to serve it. A shard gives no name twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DoorId(pub u64);

/// What is done with the answer to a request.
pub type Done = Box<dyn FnOnce(Reply) + Send>;

/// A source of requests with a descriptor that becomes readable when there are some.
pub trait Door: Send {
    /// The descriptor, or a duplicate of it.
    ///
    /// # Errors
    /// When it cannot be duplicated.
    fn descriptor(&self) -> io::Result<OwnedFd>;

    /// Takes in at most `room` requests and gives each to `submit`.
    fn take(&mut self, room: usize, submit: &mut dyn FnMut(Request, Done)) -> Taken;
}

/// What a door has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Nothing: wait for the descriptor.
    All,
    /// Perhaps more: there was no more room, or what was taken should be answered first.
    Some,
    /// Nothing will ever come again: the door is dropped.
    Closed,
}
