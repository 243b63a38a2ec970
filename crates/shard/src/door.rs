//! A front door that the shard's own thread serves, along with others.
//!
//! Requests that come through [`Handle::submit`](crate::Handle::submit) cost a hand-over from the
//! thread that took them in to the shard's: a wake-up, which on an idle machine is a good part of what
//! a read of flash costs. Where requests come out of a descriptor, the shard can wait for that
//! descriptor along with the flash, and take them in itself.
//!
//! # Contract
//! - A door's methods run on the shard's thread and never block, nor call
//!   [`Handle::submit`](crate::Handle::submit) or anything that does.
//! - What is done with an answer runs there too, as with every request.
//! - Doors that have something at the same time are served in turn, a portion each.
//! - When the shard ends with the door still open, the door is dropped: it has to see to it that
//!   whoever still comes is told so.

use std::io;
use std::os::fd::OwnedFd;

use headpond_engine::{Reply, Request};

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
