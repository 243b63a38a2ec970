//! Everything of one run: the world with its engine, the model, and all waits. It belongs to the thread that runs the
//! seed.
//!
//! The name layer's traits ask for things that could go to any thread. Here one thread polls all futures of a run.
//! They hold a key to this state, which finds it by the thread.
//!
//! Keeps true:
//! - While this is borrowed, nothing calls the layer or drops parts of the layer.
//! - The remains of an earlier life of the daemon change nothing: each key knows its life.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use headpond_base::{Errno, ObjectId};
use headpond_engine::{Namespace, Reply, Request, RequestId};
use headpond_names::{Again, See, TreeOperation};
use headpond_timed::Rng;

use crate::above::is_let_go;
use crate::configuration::{Moment, MutationId};
use crate::content::{ContentChange, WriterId};
use crate::found::Found;
use crate::model::Model;
use crate::names::keys::Origin;
use crate::names::promises::Promises;
use crate::origin::{FileId, SimOrigin};
use crate::planted::Planted;
use crate::tree::Tree;
use crate::world::World;

/// A future that stays on this thread.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What an answer is for.
#[derive(Clone, Debug)]
enum What {
    Nothing,
    Read { file: FileId, offset: u64, len: u64, keep: bool },
    Change { file: FileId, id: MutationId },
    Names { moved: Option<Moment> },
}

struct Asked {
    what: What,
    see: Option<See>,
    waker: Option<Waker>,
    reply: Option<Reply>,
    /// No task waits for it.
    told: bool,
}

/// How often, in a thousand, something fails that names need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameFaults {
    /// Calls of the origin. Either nothing is done, or everything, and the answer is an error.
    pub(crate) calls: u64,
    /// Its syncs.
    pub(crate) syncs: u64,
    /// No descriptor is left.
    pub(crate) no_room: u64,
}

/// See the head of the file.
pub(crate) struct Env {
    pub(crate) world: World,
    pub(crate) model: Model,
    pub(crate) rng: Rng,
    pub(crate) promises: Promises,
    pub(crate) faults: NameFaults,
    pub(crate) planted: Option<Planted>,
    /// Whether the origin keeps birth times.
    pub(crate) births: bool,
    /// The number of the daemon's life.
    pub(crate) life: u32,
    /// Injected faults of the origin so far.
    pub(crate) injected: u64,
    pub(crate) failure: Option<String>,
    pub(crate) spawned: Vec<Task>,
    /// Files that the kernel has forgotten.
    pub(crate) forgotten: BTreeSet<FileId>,
    /// Files whose status changed while the engine held nothing of them. The engine's clean data of them counts no
    /// more.
    pub(crate) changed_unheld: BTreeSet<FileId>,
    /// How many opens of each are under way.
    pub(crate) opening: BTreeMap<FileId, u32>,
    /// How many changes of each were asked for.
    pub(crate) changes: BTreeMap<FileId, u64>,
    pub(crate) let_go: Option<Arc<dyn Fn(ObjectId) + Send + Sync>>,
    pub(crate) again: BTreeMap<ObjectId, Arc<Again<Origin>>>,
    sleepers: Vec<Waker>,
    asked: BTreeMap<RequestId, Asked>,
    operations: BTreeMap<RequestId, TreeOperation>,
    locked: BTreeSet<FileId>,
    lock_waiters: Vec<Waker>,
    next_request: u64,
    next_writer: u32,
}

thread_local! {
    static RUN: RefCell<Option<Env>> = const { RefCell::new(None) };
}

/// Begins a run on this thread.
pub(crate) fn begin(env: Env) {
    RUN.with_borrow_mut(|run| *run = Some(env));
}

/// Ends the run.
pub(crate) fn end() -> Option<Env> {
    RUN.with_borrow_mut(Option::take)
}

/// Looks at the run, or changes it.
pub(crate) fn with<R>(see: impl FnOnce(&mut Env) -> R) -> R {
    RUN.with_borrow_mut(|run| see(run.as_mut().expect("a run on this thread")))
}

/// The same, if the run still goes on and this is its present life.
pub(crate) fn in_life(life: u32, see: impl FnOnce(&mut Env)) {
    RUN.with_borrow_mut(|run| {
        if let Some(env) = run.as_mut().filter(|env| env.life == life) {
            see(env);
        }
    });
}

impl Env {
    pub(crate) fn new(world: World, rng: Rng, faults: NameFaults, births: bool, planted: Option<Planted>) -> Self {
        Self {
            world,
            model: Model::default(),
            rng,
            promises: Promises::default(),
            faults,
            planted,
            births,
            life: 0,
            injected: 0,
            failure: None,
            spawned: Vec::new(),
            forgotten: BTreeSet::new(),
            changed_unheld: BTreeSet::new(),
            opening: BTreeMap::new(),
            changes: BTreeMap::new(),
            let_go: None,
            again: BTreeMap::new(),
            sleepers: Vec::new(),
            asked: BTreeMap::new(),
            operations: BTreeMap::new(),
            locked: BTreeSet::new(),
            lock_waiters: Vec::new(),
            next_request: 1,
            next_writer: 1,
        }
    }

    /// The directories, and the files.
    pub(crate) fn tree(&mut self) -> (&mut Tree, &mut SimOrigin) {
        let above = self.world.above.as_mut().expect("names are a layer of their own");
        (&mut above.tree, &mut self.world.origin)
    }

    /// The change of this name was answered: it is done.
    pub(crate) fn name_told(&mut self, directory: FileId, name: &[u8]) {
        let now = self.tree().0.tick();
        self.promises.name_told(&(directory, name.to_vec()), now);
    }

    pub(crate) fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    /// Something is wrong. The first report counts.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.failure.get_or_insert(what.into());
    }

    fn check(&mut self, result: Result<(), String>) {
        if let Err(what) = result {
            self.fail(what);
        }
    }

    /// A number that no write had yet.
    pub(crate) const fn writer(&mut self) -> WriterId {
        self.next_writer += 1;
        WriterId(self.next_writer)
    }

    /// Sends a request. `change` is its form in the model, if that is not plain.
    pub(crate) fn submit(
        &mut self,
        request: Request,
        change: Option<ContentChange>,
        keep: bool,
        see: See,
        told: bool,
    ) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let what = self.what(id, &request, change, keep);
        self.world.trace(|| format!("ask   {id:?} {what:?} {}", short(&request)));
        self.asked.insert(id, Asked { what, see: Some(see), waker: None, reply: None, told });
        let sent = self.world.submit(id, request);
        self.check(sent);
        self.note_names();
        id
    }

    fn what(&mut self, id: RequestId, request: &Request, change: Option<ContentChange>, keep: bool) -> What {
        let object = match request {
            Request::Read { object, .. } | Request::Write { object, .. } | Request::Truncate { object, .. } => *object,
            Request::Namespace(Namespace::Rename { moved, .. }) => {
                let file = moved.and_then(|object| self.world.objects.get(&object).copied());
                return What::Names { moved: file.map(|file| self.model.last_acknowledged(file)) };
            }
            _ => return What::Nothing,
        };
        let Some(file) = self.world.objects.get(&object).copied() else {
            self.fail(format!("{object:?} has no file, and is asked about: {}", short(request)));
            return What::Nothing;
        };
        if !matches!(request, Request::Read { .. }) {
            *self.changes.entry(file).or_default() += 1;
        }
        match request {
            Request::Read { offset, len, .. } => {
                if !keep {
                    self.model.watch(id.0, file);
                }
                What::Read { file, offset: *offset, len: u64::from(*len), keep }
            }
            Request::Truncate { size, mtime, .. } => {
                let id = self.model.ask(file, ContentChange::Truncate { size: *size }, mtime.0, false, false);
                What::Change { file, id }
            }
            Request::Write { mtime, durable, .. } => {
                let change = change.expect("who writes says what");
                What::Change { file, id: self.model.ask(file, change, mtime.0, *durable, false) }
            }
            _ => What::Nothing,
        }
    }

    /// Before a rename at the origin, the data of the renamed file is safe.
    pub(crate) fn note_names(&mut self) {
        for id in std::mem::take(&mut self.world.names_started) {
            if let Some(Asked { what: What::Names { moved: Some(moment) }, .. }) = self.asked.get(&id) {
                self.model.raise_floor(*moment);
            }
        }
    }

    /// Checks an answer.
    fn answered(&mut self, id: RequestId, what: &What, reply: &Reply) -> Result<(), String> {
        match (what, reply) {
            (What::Read { file, offset, len, keep }, Reply::Data(pieces, _)) => {
                if *keep {
                    return Ok(());
                }
                let found = Found::at(*offset, pieces.clone());
                let checked = self.model.check_read(id.0, *offset, *len, &found);
                checked.map_err(|why| format!("{file:?} read: {why}"))
            }
            (What::Change { id: change, .. }, Reply::Changed(_)) => {
                self.model.acknowledge(*change);
                Ok(())
            }
            (What::Change { id: change, .. }, Reply::Failed(Errno::IO)) if self.world.injected.excuses_errors() => {
                self.model.fail(*change);
                Ok(())
            }
            (What::Change { file, .. }, Reply::Failed(error)) => {
                Err(format!("a change of {file:?} failed with {error:?} though nothing was wrong"))
            }
            (What::Read { file, .. }, Reply::Failed(error)) => {
                self.model.unwatch(id.0);
                if *error == Errno::IO && self.world.injected.excuses_errors() {
                    return Ok(());
                }
                Err(format!("a read of {file:?} failed with {error:?} though nothing was wrong"))
            }
            _ => Ok(()),
        }
    }

    /// Brings the change of names of a request.
    pub(crate) fn bring(&mut self, id: RequestId, operation: TreeOperation) {
        self.operations.insert(id, operation);
    }

    /// The changes of names that the engine has asked for.
    pub(crate) fn operations_asked(&mut self) -> Vec<(headpond_engine::Ticket, TreeOperation)> {
        let mut asked = Vec::new();
        let ids: Vec<RequestId> = self.operations.keys().copied().collect();
        for id in ids {
            let ticket = self.world.above.as_mut().and_then(|above| above.asked(id));
            if let Some((ticket, operation)) = ticket.and_then(|ticket| Some((ticket, self.operations.remove(&id)?))) {
                asked.push((ticket, operation));
            }
        }
        asked
    }

    /// The daemon is gone. Returns everything that waits for it: drop it while nothing is borrowed.
    pub(crate) fn lose_life(&mut self) -> impl Sized + use<> {
        self.life += 1;
        self.injected = 0;
        self.sleepers.clear();
        self.locked.clear();
        self.opening.clear();
        self.lock_waiters.clear();
        (
            std::mem::take(&mut self.asked),
            std::mem::take(&mut self.operations),
            std::mem::take(&mut self.again),
            std::mem::take(&mut self.spawned),
            self.let_go.take(),
        )
    }

    /// Requests that have no answer yet, and were not given up.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        self.asked
            .iter()
            .filter(|(_, asked)| asked.reply.is_none())
            .map(|(id, asked)| format!("{id:?} {:?}", asked.what))
            .collect()
    }

    /// A sleeping task wakes up.
    pub(crate) fn wake_one(&mut self) -> Option<Waker> {
        let count = self.sleepers.len() as u64;
        (count > 0).then(|| {
            let index = self.rng.below(count) as usize;
            self.sleepers.remove(index)
        })
    }

    pub(crate) fn sleepers(&self) -> usize {
        self.sleepers.len()
    }
}

/// Delivers answers in their order. Call it while nothing is borrowed.
pub(crate) fn dispatch() {
    while let Some((id, reply)) = with(|env| env.world.replies.pop_front()) {
        if let Some(object) = is_let_go(id) {
            let (tell, again) = with(|env| (env.let_go.clone(), env.again.remove(&object)));
            drop(again);
            if let Some(tell) = tell {
                tell(object);
            }
            continue;
        }
        let see = with(|env| {
            env.world.trace(|| format!("reply {id:?} {}", short_reply(&reply)));
            let Some(asked) = env.asked.get_mut(&id) else {
                env.fail(format!("{id:?} is answered twice, or was never asked: {reply:?}"));
                return None;
            };
            let (what, see) = (asked.what.clone(), asked.see.take());
            let checked = env.answered(id, &what, &reply);
            env.check(checked);
            see
        });
        if let Some(see) = see {
            see(&reply);
        }
        let waker = with(|env| {
            let unused = env.operations.remove(&id);
            let asked = env.asked.get_mut(&id)?;
            asked.reply = Some(reply);
            let waker = asked.waker.take();
            if asked.told {
                env.asked.remove(&id);
            }
            Some((waker, unused))
        });
        if let Some((Some(waker), _)) = waker {
            waker.wake();
        }
    }
}

/// A wait for an answer.
pub(crate) struct Answer(pub(crate) RequestId);

impl Future for Answer {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        with(|env| {
            let Some(asked) = env.asked.get_mut(&self.0) else { return Poll::Ready(Reply::Failed(Errno::SHUTDOWN)) };
            if let Some(reply) = asked.reply.take() {
                env.asked.remove(&self.0);
                return Poll::Ready(reply);
            }
            asked.waker = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

/// A while of random length, in which others run.
pub(crate) struct Nap(Option<u64>);

/// See [`Nap`].
pub(crate) const fn nap() -> Nap {
    Nap(None)
}

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        with(|env| {
            let left = self.0.unwrap_or_else(|| env.rng.below_one_of(&[1, 2, 3]));
            if left == 0 {
                return Poll::Ready(());
            }
            self.0 = Some(left - 1);
            env.sleepers.push(context.waker().clone());
            Poll::Pending
        })
    }
}

/// An open of a file that is under way.
pub(crate) struct Opening {
    life: u32,
    file: FileId,
}

/// Begins an open.
pub(crate) fn opening(file: FileId) -> Opening {
    let life = with(|env| {
        *env.opening.entry(file).or_default() += 1;
        env.life
    });
    Opening { life, file }
}

impl Drop for Opening {
    fn drop(&mut self) {
        in_life(self.life, |env| *env.opening.entry(self.file).or_insert(1) -= 1);
    }
}

/// The kernel's locks of some inodes, until it is dropped.
pub(crate) struct Locked {
    life: u32,
    ids: BTreeSet<FileId>,
}

/// Waits for the locks of all of these.
pub(crate) async fn lock(ids: impl IntoIterator<Item = FileId>) -> Locked {
    let ids: BTreeSet<FileId> = ids.into_iter().collect();
    let life = with(|env| env.life);
    std::future::poll_fn(|context| {
        with(|env| {
            if env.locked.is_disjoint(&ids) {
                env.locked.extend(&ids);
                Poll::Ready(())
            } else {
                env.lock_waiters.push(context.waker().clone());
                Poll::Pending
            }
        })
    })
    .await;
    Locked { life, ids }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut waiters = Vec::new();
        in_life(self.life, |env| {
            env.locked.retain(|id| !self.ids.contains(id));
            waiters = std::mem::take(&mut env.lock_waiters);
        });
        waiters.into_iter().for_each(Waker::wake);
    }
}

fn short(request: &Request) -> String {
    match request {
        Request::Write { object, offset, data, .. } => format!("Write {object:?} {offset}+{}", data.len()),
        other => format!("{other:?}"),
    }
}

fn short_reply(reply: &Reply) -> String {
    match reply {
        Reply::Data(pieces, _) => format!("{} bytes", pieces.iter().map(|piece| piece.len()).sum::<usize>()),
        other => format!("{other:?}"),
    }
}
