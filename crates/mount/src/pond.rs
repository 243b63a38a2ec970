//! The door between the mount and the engine: what the front door asks, and nothing of how it
//! is done. Behind it is a shard's handle; in tests, a stand-in that keeps files straight in
//! the origin.
//!
//! Contract
//! - Answers are given on the shard's own thread, in order. One that says how a file is says how
//!   it is at that moment.
//! - An answer's closure is short, never blocks, and takes no lock that a thread holds while it sends
//!   a request: that thread may wait until the shard has room again.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use headpond_base::{Errno, ObjectId, Result};
pub use headpond_door::Done;
use headpond_door::Door;
use headpond_engine::{Namespace, Reply, Request};
use headpond_names::{Again, See, block_on};
pub use headpond_shard::Operation;
use headpond_shard::{Handle, Leaving, Removed, Reopen};

use crate::tree::OriginTree;

/// Where the mount sends what concerns the content of regular files.
pub trait Pond: Send + Sync + 'static {
    /// Asks, and returns. Blocks only while as many requests are under way as are allowed.
    fn submit(&self, request: Request, done: Done);

    /// Has the kernel's requests taken in where the engine is. A pond that cannot do that drops the
    /// door, which then serves itself.
    fn serve(&self, door: Box<dyn Door>) {
        drop(door);
    }

    /// Runs a change to the origin's directories in order with the log, and waits for it. One that is no concern of
    /// the log's comes without a word for it, and runs at once, on this thread.
    ///
    /// # Errors
    /// The operation's own error, or the engine's reason not to run it.
    fn namespace(&self, change: Option<Namespace>, operation: Operation) -> Result<()>;

    /// Gives the origin's file of an object to those who will read and write it. One that is
    /// already there stays, unless it was read-only and this one is not.
    fn attach(&self, object: ObjectId, file: File);

    /// The same of a file that need not stay open.
    fn attach_lasting(&self, object: ObjectId, file: File, again: Arc<dyn Reopen>) {
        let _ = again;
        self.attach(object, file);
    }

    /// The file of an object could not be opened again as it was: it stays open.
    fn keep_open(&self, object: ObjectId) {
        let _ = object;
    }

    /// The file of an object that was attached before the mount stood is opened again like this from now on.
    fn reopened_by(&self, object: ObjectId, again: Arc<dyn Reopen>) {
        let _ = (object, again);
    }

    /// The last name of an object's file is about to be removed, and no application has it open: closes what was attached.
    fn leaving(&self, object: ObjectId) -> Option<Leaving> {
        let _ = object;
        None
    }

    /// Makes the origin's file durable as it is now, which includes what no log has of it:
    /// owner, mode, extended attributes.
    ///
    /// # Errors
    /// As of fsync.
    fn sync_origin(&self, object: ObjectId) -> Result<()>;

    /// A name of the object's file was just made in this directory, or has gone from it: the next sync of the file at
    /// the origin makes that durable, too.
    fn name_changed(&self, object: ObjectId, directory: OwnedFd) {
        let _ = (object, directory);
    }

    /// Has `tell` called whenever the engine lets go of an object: nothing of its file is only here any more, and nobody
    /// has it open. On the shard's own thread, in order with the answers. Only the first counts.
    fn when_let_go(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        drop(tell);
    }

    /// Has `tell` called with each object of which the origin may have lost bytes that applications have seen, on the shard's
    /// own thread and before any answer that tells of it. Only the first counts.
    fn when_lost(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        drop(tell);
    }

    /// Whether the origin may be changed now. May block.
    ///
    /// # Errors
    /// Why not: it is another's by now, or that cannot be told.
    fn may_change_origin(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the origin is known to be another's by now: what is written could never get there. Asks nobody.
    fn is_barred(&self) -> bool {
        false
    }

    /// The origin's file has just lost its last name. What is returned is to be kept until the mount has closed it.
    fn removed(&self, object: Option<ObjectId>) -> Option<Removed> {
        let _ = object;
        None
    }
}

/// Asks and waits for the answer, which is first shown to `see` on the shard's thread. Never to be
/// called from a `done`.
pub(crate) fn call_with(pond: &dyn Pond, request: Request, see: impl FnOnce(&Reply) + Send + 'static) -> Reply {
    let (answer, wait) = mpsc::sync_channel(1);
    let done = move |reply| {
        see(&reply);
        // Fails only if the caller is gone, and then nobody wants the answer.
        let _ = answer.send(reply);
    };
    pond.submit(request, Box::new(done));
    wait.recv().unwrap_or(Reply::Failed(Errno::SHUTDOWN))
}

impl Pond for Handle {
    fn submit(&self, request: Request, done: Done) {
        Handle::submit(self, request, done);
    }

    fn serve(&self, door: Box<dyn Door>) {
        Handle::serve(self, door);
    }

    fn namespace(&self, change: Option<Namespace>, operation: Operation) -> Result<()> {
        match change {
            Some(change) => Handle::namespace(self, change, operation),
            None => operation().map(drop),
        }
    }

    fn attach(&self, object: ObjectId, file: File) {
        self.origin().attach(object, file);
    }

    fn attach_lasting(&self, object: ObjectId, file: File, again: Arc<dyn Reopen>) {
        self.origin().attach_lasting(object, file, again);
    }

    fn keep_open(&self, object: ObjectId) {
        self.origin().keep_open(object);
    }

    fn reopened_by(&self, object: ObjectId, again: Arc<dyn Reopen>) {
        self.origin().reopened_by(object, again);
    }

    fn leaving(&self, object: ObjectId) -> Option<Leaving> {
        self.origin().leaving(object)
    }

    fn sync_origin(&self, object: ObjectId) -> Result<()> {
        self.origin().sync_aside(object)
    }

    fn name_changed(&self, object: ObjectId, directory: OwnedFd) {
        self.origin().name_changed(object, directory);
    }

    fn when_let_go(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        Handle::when_let_go(self, tell);
    }

    fn when_lost(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        Handle::when_lost(self, tell);
    }

    fn may_change_origin(&self) -> Result<()> {
        self.origin().may_change()
    }

    fn is_barred(&self) -> bool {
        self.origin().is_barred()
    }

    fn removed(&self, object: Option<ObjectId>) -> Option<Removed> {
        self.origin().removed(object)
    }
}

/// The pond, as the name layer uses it. Each call waits until it is done.
pub(crate) struct Engine(pub(crate) Arc<dyn Pond>);

/// The names of a mount.
pub(crate) type Names = headpond_names::Names<OriginTree, Engine>;

/// Opens a file again, for a thread that waits.
struct Reopened(Again<OriginTree>);

/// A file of the shard's that is closed while its last name goes.
struct Closed(Leaving);

/// A file without a name. The shard knows of it.
struct Nameless(Removed);

impl headpond_names::Pond<OriginTree> for Engine {
    async fn ask(&self, request: Request, see: See) -> Reply {
        call_with(&*self.0, request, see)
    }

    fn tell(&self, request: Request) {
        self.0.submit(request, Box::new(|_| {}));
    }

    async fn namespace(&self, change: Option<Namespace>, operation: headpond_names::Operation) -> Result<()> {
        self.0.namespace(change, Box::new(|| block_on(operation)))
    }

    async fn attach(&self, object: ObjectId, file: File, again: Option<Again<OriginTree>>) {
        match again {
            Some(again) => self.0.attach_lasting(object, file, Arc::new(Reopened(again))),
            None => self.0.attach(object, file),
        }
    }

    async fn keep_open(&self, object: ObjectId) {
        self.0.keep_open(object);
    }

    fn reopened_by(&self, object: ObjectId, again: Again<OriginTree>) {
        self.0.reopened_by(object, Arc::new(Reopened(again)));
    }

    async fn leaving(&self, object: ObjectId) -> Option<Box<dyn headpond_names::Leaving>> {
        let leaving = self.0.leaving(object)?;
        Some(Box::new(Closed(leaving)))
    }

    async fn sync_origin(&self, object: ObjectId) -> Result<()> {
        self.0.sync_origin(object)
    }

    fn name_changed(&self, object: ObjectId, directory: File) {
        self.0.name_changed(object, directory.into());
    }

    fn when_let_go(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        self.0.when_let_go(tell);
    }

    fn removed(&self, object: Option<ObjectId>) -> Option<Box<dyn headpond_names::Removed>> {
        let removed = self.0.removed(object)?;
        Some(Box::new(Nameless(removed)))
    }
}

impl Reopen for Reopened {
    fn reopen(&self, writes: bool) -> Result<File> {
        block_on(self.0.open(writes))
    }
}

impl headpond_names::Leaving for Closed {
    fn gone(self: Box<Self>) {
        self.0.gone();
    }
}

impl headpond_names::Removed for Nameless {
    fn is_let_go(&self) {
        self.0.is_let_go();
    }

    fn is_closing(&self) {
        self.0.is_closing();
    }
}
