//! The name layer's world: the simulated origin as its [`Tree`], the engine as its [`ContentStore`].
//!
//! Keeps true: each call is one step, somewhere between its beginning and its end. Others run before and after it.

use std::ffi::OsStr;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use headpond_base::{Errno, ObjectId, Result, UnixNanos};
use headpond_engine::{Namespace, Outcome, Reply, Request};
use headpond_format::FileIdentity;
use headpond_names::{
    Access, Again, ContentStore, DeviceNumber, FileKind, Found, Freshness, Leaving, Making, Moment, Removed,
    RenameFlags, See, Tree, TreeOperation,
};

use crate::names::env::{Answer, Env, in_life, nap, with};
use crate::names::keys::{Engine, Origin};
use crate::origin::{FileId, SpaceKind};
use crate::planted::Planted;
use crate::tree::{self, Over, TreeEntry};

/// A descriptor, of whatever kind.
#[derive(Debug)]
pub(crate) struct Descriptor {
    life: u32,
    pub(crate) file: FileId,
    /// How it was opened. `None` for the root.
    pub(crate) entry: Option<TreeEntry>,
}

impl Descriptor {
    pub(crate) fn new(env: &mut Env, file: FileId, entry: Option<TreeEntry>) -> Self {
        let (tree, origin) = env.tree();
        tree.count_open(file, true, origin);
        Self { life: env.life, file, entry }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let file = self.file;
        in_life(self.life, |env| {
            let (tree, origin) = env.tree();
            tree.count_open(file, false, origin);
        });
    }
}

/// One step of the origin. It may fail before it is done, or after.
async fn step<R>(opens: bool, step: impl FnOnce(&mut Env) -> Result<R>) -> Result<R> {
    nap().await;
    let (before, room, after) = with(|env| {
        let faults = env.faults;
        let half = faults.calls / 2;
        let room = opens && env.rng.chance(faults.no_room);
        let drawn = (env.rng.chance(half), room, env.rng.chance(faults.calls - half));
        env.injected += u64::from(drawn.0 || drawn.2);
        drawn
    });
    if room {
        return Err(Errno::MFILE);
    }
    if before {
        return Err(Errno::IO);
    }
    let done = with(|env| {
        let done = step(env);
        env.promises_follow();
        done
    });
    let done = if after { done.and(Err(Errno::IO)) } else { done };
    nap().await;
    done
}

impl Env {
    /// Notes changed names.
    pub(crate) fn promises_follow(&mut self) {
        let given = self.tree().0.take_given();
        if !given.is_empty() {
            self.world.trace(|| format!("names {given:?}"));
        }
        self.promises.given(given);
    }

    /// The status of this file is about to change.
    fn changes(&mut self, file: Option<FileId>) {
        if let Some(file) = file
            && !self.world.objects.values().any(|held| *held == file)
        {
            self.changed_unheld.insert(file);
        }
    }

    /// The same for what has a name.
    fn changes_at(&mut self, directory: FileId, name: &[u8]) {
        let file = self.tree().0.at(directory, name);
        self.changes(file);
    }

    /// The status of a file.
    pub(crate) fn found(&mut self, file: FileId) -> Result<Found> {
        let stamp = self.world.origin.stamp(file)?;
        let FileIdentity { inode, birth } = self.world.origin.identity(file)?;
        let mode = self.world.origin.mode(file)?;
        let same = self.has(Planted::BirthsAlike);
        let (tree, _) = self.tree();
        let kind = match tree.kind(file).ok_or(Errno::NOENT)? {
            tree::Kind::File => FileKind::File,
            tree::Kind::Directory => FileKind::Directory,
        };
        Ok(Found {
            device: DeviceNumber { major: 8, minor: 1 },
            inode,
            birth: (birth.0 != 0).then(|| if same { Moment { seconds: 1, nanos: 0 } } else { Moment::from(birth) }),
            kind,
            mode,
            links: tree.links(file),
            size: stamp.size,
            blocks: stamp.size.div_ceil(512),
            block_size: 4096,
            mtime: Moment::from(stamp.mtime),
            ctime: Moment::from(stamp.ctime),
            ..Found::default()
        })
    }
}

fn bytes(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

impl Tree for Origin {
    type Path = Descriptor;
    type File = Descriptor;
    type Caller = ();
    type OfInode = ();
    type OfKnown = ();

    fn now(&self) -> UnixNanos {
        with(|env| env.world.origin.now())
    }

    fn user(&self) -> u32 {
        0
    }

    fn pause(&self, _: Duration) -> impl Future<Output = ()> + Send {
        nap()
    }

    async fn look(&self, path: &Descriptor, _: Freshness) -> Result<Found> {
        step(false, |env| env.found(path.file)).await
    }

    async fn look_in(&self, directory: &Descriptor, name: &OsStr) -> Result<Found> {
        let name = bytes(name);
        step(false, |env| {
            let file = env.tree().0.at(directory.file, &name).ok_or(Errno::NOENT)?;
            let found = env.found(file)?;
            Ok(if env.has(Planted::LinksBelieved) { Found { links: 1, ..found } } else { found })
        })
        .await
    }

    async fn look_at(&self, file: &Descriptor) -> Result<Found> {
        step(false, |env| env.found(file.file)).await
    }

    async fn find(&self, directory: &Descriptor, name: &OsStr) -> Result<Descriptor> {
        let name = bytes(name);
        step(true, |env| {
            let (file, entry) = env.tree().0.entry(directory.file, &name).ok_or(Errno::NOENT)?;
            Ok(Descriptor::new(env, file, Some(entry)))
        })
        .await
    }

    async fn path_of(&self, file: &Descriptor) -> Result<Descriptor> {
        step(true, |env| Ok(Descriptor::new(env, file.file, file.entry))).await
    }

    async fn name_of(&self, path: &Descriptor) -> Vec<u8> {
        let (entry, life) = (path.entry, path.life);
        let named = step(false, |env| {
            let current = env.life == life;
            let found = entry.filter(|_| current).and_then(|entry| env.tree().0.path_by(entry));
            found.ok_or(Errno::NOENT)
        });
        named.await.unwrap_or_default()
    }

    async fn open(&self, path: &Descriptor, _: Access) -> Result<Descriptor> {
        step(true, |env| Ok(Descriptor::new(env, path.file, path.entry))).await
    }

    async fn allocated(&self, file: &Descriptor, _: &Found) -> u64 {
        let file = file.file;
        let front = step(false, |env| {
            let keeps = env.world.origin.kind() == SpaceKind::Keeps && env.rng.chance(500);
            Ok(if keeps { env.world.origin.allocated_front(file) } else { 0 })
        });
        front.await.unwrap_or(0)
    }

    async fn create(&self, directory: &Descriptor, name: &OsStr, mode: u32, (): &()) -> Result<Descriptor> {
        let name = bytes(name);
        let made = step(true, |env| {
            let (tree, origin) = env.tree();
            let file = tree.make(directory.file, &name, tree::Kind::File, mode, origin)?;
            let entry = tree.entry(directory.file, &name).map(|(_, entry)| entry);
            env.made(file);
            Ok(Descriptor::new(env, file, entry))
        });
        made.await
    }

    async fn make(&self, directory: &Descriptor, name: &OsStr, what: &Making, (): &()) -> Result<()> {
        let name = bytes(name);
        let (kind, mode) = match what {
            Making::Directory { mode } => (tree::Kind::Directory, *mode),
            Making::Node { mode, .. } => (tree::Kind::File, *mode),
            Making::Symlink { .. } => return Err(Errno::OPNOTSUPP),
        };
        step(false, |env| {
            let (tree, origin) = env.tree();
            let file = tree.make(directory.file, &name, kind, mode, origin)?;
            if kind == tree::Kind::File {
                env.made(file);
            }
            Ok(())
        })
        .await
    }

    async fn link(&self, path: &Descriptor, directory: &Descriptor, name: &OsStr) -> Result<()> {
        let name = bytes(name);
        step(false, |env| {
            env.changes(Some(path.file));
            let (tree, origin) = env.tree();
            tree.link(path.file, directory.file, &name, origin)
        })
        .await
    }

    async fn unlink(&self, directory: &Descriptor, name: &OsStr, is_directory: bool) -> Result<()> {
        let name = bytes(name);
        step(false, |env| {
            env.changes_at(directory.file, &name);
            let kind = if is_directory { tree::Kind::Directory } else { tree::Kind::File };
            let (tree, origin) = env.tree();
            tree.unlink(directory.file, &name, kind, origin)
        })
        .await
    }

    async fn rename(&self, from: (&Descriptor, &OsStr), to: (&Descriptor, &OsStr), flags: RenameFlags) -> Result<()> {
        let (from, to) = ((from.0.file, bytes(from.1)), (to.0.file, bytes(to.1)));
        let over = match flags {
            RenameFlags::EXCHANGE => Over::Exchange,
            RenameFlags::KEEP => Over::NoReplace,
            _ => Over::Replace,
        };
        step(false, |env| {
            env.changes_at(from.0, &from.1);
            env.changes_at(to.0, &to.1);
            let (tree, origin) = env.tree();
            tree.rename(&from, &to, over, origin)
        })
        .await
    }

    async fn set_mode(&self, path: &Descriptor, mode: u32) -> Result<()> {
        let file = path.file;
        step(false, |env| {
            env.changes(Some(file));
            let now = env.tree().0.tick();
            env.world.origin.set_mode(file, mode);
            env.promises.mode_set(file, now, mode);
            Ok(())
        })
        .await
    }
}

impl Env {
    /// Whether a planted bug keeps the origin's file from being synced.
    fn skips_sync(&self, file: FileId) -> bool {
        self.has(Planted::SyncSkipped) || self.has(Planted::ForgottenUnsynced) && self.forgotten.contains(&file)
    }

    /// A file was made. The model knows it from now on.
    pub(crate) fn made(&mut self, file: FileId) {
        self.world.trace(|| format!("make  {file:?}"));
        self.model.add_file(file, crate::content::Content::default());
        let mode = self.world.origin.mode(file).unwrap_or(0);
        self.promises.mode_set(file, 0, mode);
    }
}

/// A file that is leaving.
struct Going {
    life: u32,
    object: ObjectId,
}

impl Leaving for Going {
    fn gone(self: Box<Self>) {
        let object = self.object;
        in_life(self.life, |env| {
            if let Some(file) = env.world.objects.get(&object).copied()
                && let Some(above) = &mut env.world.above
            {
                above.gone(object, file, &mut env.world.origin);
            }
        });
    }
}

struct Nameless;

impl Removed for Nameless {
    fn is_let_go(&self) {}
    fn is_closing(&self) {}
}

impl ContentStore<Origin> for Engine {
    async fn ask(&self, request: Request, see: See) -> Reply {
        nap().await;
        let dropped = with(|env| env.planted.is_some_and(|planted| planted.swallows(&request)));
        if dropped {
            see(&Reply::Done);
            return Reply::Done;
        }
        let id = with(|env| env.submit(request, None, false, see, false));
        Answer(id).await
    }

    fn tell(&self, request: Request) {
        let told =
            with(|env| env.world.core.is_some() && !env.planted.is_some_and(|planted| planted.swallows(&request)));
        if told {
            with(|env| env.submit(request, None, false, Box::new(|_| {}), true));
        }
    }

    async fn namespace(&self, change: Option<Namespace>, operation: TreeOperation) -> Result<()> {
        nap().await;
        let change = change.filter(|change| !with(|env| env.planted.is_some_and(|planted| planted.hides(change))));
        let Some(change) = change else { return operation.await.map(drop) };
        let id = with(|env| {
            let id = env.submit(Request::Namespace(change), None, false, Box::new(|_| {}), false);
            env.bring(id, operation);
            id
        });
        match Answer(id).await {
            Reply::Failed(error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn attach(&self, object: ObjectId, file: Descriptor, again: Option<Again<Origin>>) {
        nap().await;
        let replaced = with(|env| {
            if let Some(other) = env.world.objects.insert(object, file.file)
                && other != file.file
            {
                env.fail(format!("one object is two files: {object:?} is {other:?} and {:?}", file.file));
            }
            let above = env.world.above.as_mut().expect("names are a layer of their own");
            above.attach(object, file.file, file.entry, &mut env.world.origin);
            again.and_then(|again| env.again.insert(object, Arc::new(again)))
        });
        drop((replaced, file));
    }

    async fn keep_open(&self, object: ObjectId) {
        nap().await;
        // A file that cannot be reopened is not closed.
        let before = with(|env| env.again.remove(&object));
        drop(before);
    }

    fn reopened_by(&self, object: ObjectId, again: Again<Origin>) {
        let replaced = with(|env| {
            if env.world.objects.contains_key(&object) {
                env.again.insert(object, Arc::new(again))
            } else {
                Some(Arc::new(again))
            }
        });
        drop(replaced);
    }

    async fn leaving(&self, object: ObjectId) -> Option<Box<dyn Leaving>> {
        nap().await;
        let (life, known) = with(|env| (env.life, env.again.contains_key(&object)));
        known.then(|| Box::new(Going { life, object }) as Box<dyn Leaving>)
    }

    async fn sync_origin(&self, object: ObjectId) -> Result<()> {
        let began = with(|env| {
            let file = env.world.objects.get(&object).copied().ok_or(Errno::BADF)?;
            Ok::<_, Errno>((file, env.world.origin.start_sync(file), env.tree().0.start_sync()))
        });
        let (file, reach, names) = began?;
        nap().await;
        if with(|env| env.skips_sync(file)) {
            return Ok(());
        }
        let fails = with(|env| {
            let fails = env.rng.chance(env.faults.syncs);
            let above = env.world.above.as_mut().expect("names are a layer of their own");
            if fails {
                above.note_refused(object);
                env.injected += 1;
                env.world.injected.origin += 1;
                let mut rng = env.rng.clone();
                env.world.origin.lose_destaged(file, &mut rng);
                env.rng = rng;
            } else {
                env.world.origin.finish_sync(file, reach);
                above.file_synced(object, file, names);
            }
            fails
        });
        nap().await;
        if fails { Err(Errno::IO) } else { Ok(()) }
    }

    fn name_changed(&self, object: ObjectId, directory: Descriptor) {
        with(|env| {
            if env.has(Planted::DirectoryNotNoted) {
                return;
            }
            if let Some(above) = &mut env.world.above {
                above.note(object, directory.file);
            }
        });
    }

    fn when_let_go(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        with(|env| env.let_go = Some(Arc::from(tell)));
    }

    fn removed(&self, _: Option<ObjectId>) -> Option<Box<dyn Removed>> {
        Some(Box::new(Nameless))
    }
}

/// The outcome of a change of names, for the engine.
pub(crate) fn outcome(result: Result<Option<headpond_format::Stamp>>) -> Outcome {
    match result {
        Ok(Some(stamp)) => Outcome::Stamp(stamp),
        Ok(None) => Outcome::Done,
        Err(error) => Outcome::Failed(error),
    }
}
