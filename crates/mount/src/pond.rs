//! What the mount asks of the engine, and nothing of how the engine does it. Behind it is a shard's handle, or in
//! tests a stand-in that keeps files straight in the origin.
//!
//! Contract
//! - The shard's own thread gives answers, in order. An answer about a file's state is right at that moment.
//! - An answer's closure is short, never blocks, and takes no lock that a thread holds while it sends a request: that
//!   thread may wait until the shard has room again.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use headpond_base::{Errno, ObjectId, Result};
pub use headpond_door::Done;
use headpond_door::Door;
use headpond_engine::{Namespace, Reply, Request};
use headpond_names::{Again, See, block_on};
pub use headpond_shard::Operation;
use headpond_shard::{Handle, LeavingDescriptor, RemovedFile, Reopen};

use crate::tree::OriginTree;

/// Where the mount sends requests for the content of regular files.
pub trait Pond: Send + Sync + 'static {
    /// Asks, and returns. Blocks only while too many requests are under way.
    fn submit(&self, request: Request, done: Done);

    /// Takes in the kernel's requests on the engine's thread. A pond that cannot do that drops the door, which then
    /// serves itself.
    fn serve(&self, door: Box<dyn Door>) {
        drop(door);
    }

    /// Runs a change of the origin's directories in order with the log, and waits for it. Without `change` the log
    /// need not know: the operation runs at once, on this thread.
    ///
    /// # Errors
    /// The operation's own error, or the engine's reason not to run it.
    fn namespace(&self, change: Option<Namespace>, operation: Operation) -> Result<()>;

    /// Gives the origin's file of an object to the threads that read and write it. An earlier one stays, unless it
    /// was read-only and this one is not.
    fn attach(&self, object: ObjectId, file: File);

    /// The same for a file that need not stay open.
    fn attach_lasting(&self, object: ObjectId, file: File, again: Arc<dyn Reopen>) {
        let _ = again;
        self.attach(object, file);
    }

    /// An object's file could not be reopened as it was. It stays open.
    fn keep_open(&self, object: ObjectId) {
        let _ = object;
    }

    /// How to reopen, from now on, the file of an object that was attached before the mount stood.
    fn reopened_by(&self, object: ObjectId, again: Arc<dyn Reopen>) {
        let _ = (object, again);
    }

    /// The last name of an object's file is about to go, and no application has it open. Closes what was attached.
    fn leaving(&self, object: ObjectId) -> Option<LeavingDescriptor> {
        let _ = object;
        None
    }

    /// Makes the origin's file durable as it is now, with what no log has: owner, mode, extended attributes.
    ///
    /// # Errors
    /// Those of fsync.
    fn sync_origin(&self, object: ObjectId) -> Result<()>;

    /// A name of the object's file was just made in this directory, or removed from it. The next sync of the file at
    /// the origin makes that durable, too.
    fn name_changed(&self, object: ObjectId, directory: OwnedFd) {
        let _ = (object, directory);
    }

    /// Calls `tell` when the engine lets go of an object: the origin has all of its file, and no application has it
    /// open. On the shard's own thread, in order with the answers. Only the first `tell` counts.
    fn when_let_go(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        drop(tell);
    }

    /// Calls `tell` with each object of which the origin may have lost bytes that applications have seen: on the
    /// shard's own thread, before any answer that shows the loss. Only the first `tell` counts.
    fn when_lost(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        drop(tell);
    }

    /// Whether this host may change the origin now. May block.
    ///
    /// # Errors
    /// If it may not: another headpond has the origin by now, or this host cannot find out.
    fn may_change_origin(&self) -> Result<()> {
        Ok(())
    }

    /// Whether another headpond is known to have the origin by now, so that writes could never get there. Asks no
    /// other part.
    fn is_barred(&self) -> bool {
        false
    }

    /// The origin's file has just lost its last name. Keep the result until the mount has closed the file.
    fn removed(&self, object: Option<ObjectId>) -> Option<RemovedFile> {
        let _ = object;
        None
    }
}

/// Asks and waits for the answer. `see` gets it first, on the shard's thread. Never call it from a `done`.
pub(crate) fn call_with(pond: &dyn Pond, request: Request, see: impl FnOnce(&Reply) + Send + 'static) -> Reply {
    let (answer, wait) = mpsc::sync_channel(1);
    let done = move |reply| {
        see(&reply);
        // Fails only if the caller is gone, and needs no answer.
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

    fn leaving(&self, object: ObjectId) -> Option<LeavingDescriptor> {
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

    fn removed(&self, object: Option<ObjectId>) -> Option<RemovedFile> {
        self.origin().removed(object)
    }
}

/// The pond for the name layer. Each call waits until it is done.
pub(crate) struct Engine(pub(crate) Arc<dyn Pond>);

/// The names of a mount.
pub(crate) type Names = headpond_names::Names<OriginTree, Engine>;

/// Opens a file again, for a thread that waits.
struct Reopened(Again<OriginTree>);

/// A file of the shard's. It stays closed while its last name goes.
struct Closed(LeavingDescriptor);

/// A file without a name. The shard knows of it.
struct Nameless(RemovedFile);

impl headpond_names::ContentStore<OriginTree> for Engine {
    async fn ask(&self, request: Request, see: See) -> Reply {
        call_with(&*self.0, request, see)
    }

    fn tell(&self, request: Request) {
        self.0.submit(request, Box::new(|_| {}));
    }

    async fn namespace(&self, change: Option<Namespace>, operation: headpond_names::TreeOperation) -> Result<()> {
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
