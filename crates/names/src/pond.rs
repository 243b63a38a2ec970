//! The engine, as the name layer uses it.
//!
//! Contract
//! - Answers come in the engine's order. An answer with a file's state has its state at that moment, and the listener
//!   sees it in that moment.
//! - The listener is short, never waits, and sends no request.

use std::future::Future;
use std::pin::Pin;

use headpond_base::{ObjectId, Result};
use headpond_engine::{Namespace, Reply, Request};
use headpond_format::Stamp;

use crate::{Again, Removed, Tree};

/// A change of the origin's directories. Its result is the moved file's new stamp, if the engine knows the file.
pub type TreeOperation = Pin<Box<dyn Future<Output = Result<Option<Stamp>>> + Send>>;

/// Sees an answer in the moment in which the engine gives it.
pub type See = Box<dyn FnOnce(&Reply) + Send>;

/// The engine, and the origin's files that it reads and writes.
pub trait ContentStore<T: Tree>: Send + Sync + 'static {
    /// Asks, and waits for the answer.
    fn ask(&self, request: Request, see: See) -> impl Future<Output = Reply> + Send;

    /// Asks, in order with all other requests, and ignores the answer.
    fn tell(&self, request: Request);

    /// Makes a change of the origin's directories in order with the log. Without `change` the log need not know.
    ///
    /// # Errors
    /// The operation's own error, or the engine's reason to refuse.
    fn namespace(&self, change: Option<Namespace>, operation: TreeOperation)
    -> impl Future<Output = Result<()>> + Send;

    /// Gives an object its file, to be read and written. One that it has stays, unless that was for reading only and
    /// this one is not. One that is given a way to be opened `again` need not stay open.
    fn attach(&self, object: ObjectId, file: T::File, again: Option<Again<T>>) -> impl Future<Output = ()> + Send;

    /// The file of an object, if it has one, could not be opened again without a change of its mode: it is open when
    /// this is done, and stays so. To open it for that may change its mode.
    fn keep_open(&self, object: ObjectId) -> impl Future<Output = ()> + Send;

    /// The file of an object, if it has one, is opened again like this from now on.
    fn reopened_by(&self, object: ObjectId, again: Again<T>);

    /// The last name of an object's file is about to go, and no application has it open: closes what the object was
    /// given, for as long as the result is kept.
    fn leaving(&self, object: ObjectId) -> impl Future<Output = Option<Box<dyn Leaving>>> + Send;

    /// Makes the origin's file durable as it is now.
    ///
    /// # Errors
    /// Those of fsync.
    fn sync_origin(&self, object: ObjectId) -> impl Future<Output = Result<()>> + Send;

    /// A name of the object's file was just made in this directory, or removed from it. The next sync of the file at
    /// the origin makes that durable, too.
    fn name_changed(&self, object: ObjectId, directory: T::File);

    /// Calls `tell` whenever the engine lets go of an object, in order with the answers. Only the first `tell`
    /// counts.
    fn when_let_go(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>);

    /// The origin's file has just lost its last name. Keep the result until the file is closed here.
    fn removed(&self, object: Option<ObjectId>) -> Option<Box<dyn Removed>>;
}

/// A file that is closed while its last name is removed. Its drop puts it back.
pub trait Leaving: Send {
    /// The name is gone, and the file with it.
    fn gone(self: Box<Self>);
}
