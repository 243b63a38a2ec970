//! The handle for doors; start and stop of a shard.

use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use headpond_base::{Errno, MemberId, ObjectId, Result};
use headpond_device::{Flash, Reactor};
use headpond_door::{Door, DoorId};
use headpond_engine::{Namespace, Reply, Request};

use crate::hold::Hold;
use crate::lanes::Lanes;
use crate::listeners::Listeners;
use crate::mailbox::{DiskChange, Item, Mailbox};
use crate::operation::Operation;
use crate::recorder::Recorder;
use crate::turn::Turner;
use crate::{Core, Limits, Origin, ShardStats, Term};

/// Starts shards.
pub struct Shard;

/// Reaches a shard from any thread. When the last clone is dropped, the shard ends. What was acknowledged and not
/// synced is then lost, as in a crash, so send [`Request::Stop`] first.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

struct Shared {
    mailbox: Arc<Mailbox>,
    origin: Arc<dyn Origin>,
    listeners: Listeners,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why a shard did not stop in good order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopError {
    /// Its thread panicked. Every request was answered with an error.
    Panicked,
    /// The shard's own thread asked, and it cannot wait for itself. The shard still ends.
    Itself,
}

impl std::fmt::Display for StopError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Panicked => "the shard's thread panicked; unsynced writes may be lost, as in a crash",
            Self::Itself => "a shard cannot be stopped from within one of its own answers",
        })
    }
}

impl std::error::Error for StopError {}

impl Shard {
    /// Starts a shard's threads. They end with [`Handle::stop`], or with the last handle.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn start<C: Core>(
        engine: C,
        reactor: Box<dyn Reactor>,
        origin: Arc<dyn Origin>,
        limits: Limits,
    ) -> io::Result<Handle> {
        Self::start_for(engine, reactor, origin, limits, Arc::default())
    }

    /// Like [`Shard::start`]. The shard serves requests for as long as the term stands.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn start_for<C: Core>(
        engine: C,
        reactor: Box<dyn Reactor>,
        origin: Arc<dyn Origin>,
        limits: Limits,
        term: Arc<Term>,
    ) -> io::Result<Handle> {
        let mailbox = Arc::new(Mailbox::new(reactor.waker(), limits.requests.max(1)));
        let lanes = Lanes::start(origin.clone(), reactor.waker(), &limits)?;
        let listeners = Listeners::default();
        let turner = Turner::new(engine, reactor, lanes, mailbox.clone(), limits, term, listeners.clone());
        let thread = std::thread::Builder::new().name("shard".into()).spawn(move || turner.run())?;
        Ok(Handle { shared: Arc::new(Shared { mailbox, origin, listeners, thread: Mutex::new(Some(thread)) }) })
    }
}

impl Handle {
    /// Sends a request. Blocks while [`Limits::requests`] of all callers are under way. The shard's thread calls
    /// `done` with the answer: `done` must be short, must not block and must not call this. After the shard has ended,
    /// this thread calls `done` at once, with an error.
    pub fn submit(&self, request: Request, done: Box<dyn FnOnce(Reply) + Send>) {
        self.send(request, None, done);
    }

    /// Sends a request and waits for the answer. Never call this from an answer.
    #[must_use]
    pub fn call(&self, request: Request) -> Reply {
        self.send_and_wait(request, None)
    }

    /// Changes the origin's directories in order with the log. `operation` runs on an origin thread when the engine
    /// says so, or never.
    ///
    /// # Errors
    /// Those of the operation, or why it did not run.
    pub fn namespace(&self, change: Namespace, operation: Operation) -> Result<()> {
        // The caller gets the operation's own error, whatever the engine returns.
        let own = Arc::new(OnceLock::new());
        let kept = own.clone();
        let operation = move || {
            let result = operation();
            result.as_ref().err().map(|errno| kept.set(*errno));
            result
        };
        match self.send_and_wait(Request::Namespace(change), Some(Box::new(operation))) {
            Reply::Failed(errno) => Err(*own.get().unwrap_or(&errno)),
            _ => own.get().map_or(Ok(()), |errno| Err(*errno)),
        }
    }

    /// Makes the shard's own thread serve a door, together with its other doors, until the door ends or is withdrawn.
    /// The shard drops a door that it cannot serve (see [`Door`]): its reactor waits only for flash or has no watch
    /// left, or the shard has ended.
    #[allow(clippy::must_use_candidate)] // most doors end by themselves
    pub fn serve(&self, door: Box<dyn Door>) -> DoorId {
        self.shared.mailbox.admit(door)
    }

    /// Ends the service of a door. The shard drops it soon, between two turns, and still answers its requests under
    /// way. Does nothing if the door has ended.
    pub fn withdraw(&self, door: DoorId) {
        self.shared.mailbox.withdraw(door);
    }

    /// Notes requests from now on, in place of the recorder before, if there was one; with `None`, no more. The shard
    /// drops the recorder soon, between two turns, and when it ends.
    pub fn record(&self, recorder: Option<Recorder>) {
        self.shared.mailbox.record(recorder);
    }

    /// Sets what waits from now on. [`ShardStats::changes_under_way`] then says what still moves.
    pub fn hold(&self, hold: Hold) {
        self.shared.mailbox.hold(hold);
    }

    /// Gives the shard's reactor one disk more, under a name that it has had for no other. Waits for that, and never for
    /// a device.
    ///
    /// # Errors
    /// Those of [`Reactor::add`]; [`Errno::SHUTDOWN`] if the shard has ended. The flash is closed then.
    pub fn add_disk(&self, disk: MemberId, flash: Flash) -> Result<()> {
        self.change_disk(disk, DiskChange::Join(flash)).map(drop)
    }

    /// Takes a disk away. What it had under way fails. See [`Reactor::remove`].
    ///
    /// # Errors
    /// [`Errno::SHUTDOWN`] if the shard has ended, and with it the use of the disk.
    pub fn remove_disk(&self, disk: MemberId) -> Result<()> {
        self.change_disk(disk, DiskChange::Leave).map(drop)
    }

    /// Measures a disk whose file or device grew, and returns its size.
    ///
    /// # Errors
    /// Those of [`Reactor::measure`]; [`Errno::SHUTDOWN`] if the shard has ended.
    pub fn measure_disk(&self, disk: MemberId) -> Result<u64> {
        self.change_disk(disk, DiskChange::Measure)
    }

    /// Sets `tell`, called with each object that the engine lets go of. It runs on the shard's thread, in order with
    /// the answers: it must be short, must not block and must not call this. Only the first call counts.
    pub fn when_let_go(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        let _ = self.shared.listeners.let_go.set(tell);
    }

    /// Sets `tell`, called with each object whose bytes the origin may have lost after they were read or written here.
    /// Other copies of them are then worthless. It runs before any answer that reports the loss, otherwise as in
    /// [`Handle::when_let_go`].
    pub fn when_lost(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        let _ = self.shared.listeners.lost.set(tell);
    }

    /// The origin.
    #[must_use]
    pub fn origin(&self) -> &Arc<dyn Origin> {
        &self.shared.origin
    }

    /// The counts of the engine and the shard. Taken between two turns, so requests do not pay for it. After the shard
    /// has ended: the last counts.
    #[must_use]
    pub fn stats(&self) -> ShardStats {
        let (sender, receiver) = sync_channel(1);
        let ended = self.shared.mailbox.probe(sender);
        ended.unwrap_or_else(|| receiver.recv().unwrap_or_else(|_| self.shared.mailbox.last()))
    }

    /// Ends the shard's threads, and waits for them. Call it after [`Request::Stop`] was answered: otherwise unsynced
    /// data is lost, as in a crash. Requests under way fail with [`Errno::SHUTDOWN`], for every clone of this
    /// handle.
    ///
    /// # Errors
    /// When the shard's thread panicked, or is the calling one.
    pub fn stop(self) -> std::result::Result<(), StopError> {
        self.shared.stop()
    }

    fn change_disk(&self, disk: MemberId, change: DiskChange) -> Result<u64> {
        let (sender, receiver) = sync_channel(1);
        self.shared.mailbox.change_disk(disk, change, sender);
        receiver.recv().unwrap_or(Err(Errno::SHUTDOWN))
    }

    fn send(&self, request: Request, operation: Option<Operation>, answer: Box<dyn FnOnce(Reply) + Send>) {
        self.shared.mailbox.send(Item { request, answer, operation, since: Instant::now() });
    }

    fn send_and_wait(&self, request: Request, operation: Option<Operation>) -> Reply {
        let (sender, receiver) = sync_channel(1);
        // If the receiver is gone, there is no caller left to answer.
        self.send(request, operation, Box::new(move |reply| drop(sender.send(reply))));
        receiver.recv().unwrap_or(Reply::Failed(Errno::SHUTDOWN))
    }
}

impl Shared {
    fn stop(&self) -> std::result::Result<(), StopError> {
        self.mailbox.stop();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id()) {
            return Err(StopError::Itself);
        }
        thread.take().map_or(Ok(()), |thread| thread.join().map_err(|_| StopError::Panicked))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Without a wait: the last handle may go in an answer, on the shard's own thread.
        self.mailbox.stop();
    }
}
