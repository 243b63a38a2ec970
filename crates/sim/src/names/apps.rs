//! The operations of applications: each is a future of its own, checked at its answer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use headpond_base::{BufMut, Errno, Result};
use headpond_engine::{Reply, Request, Treatment};
use headpond_names::{Access, Content, FileKind, Making, RenameFlags};
use headpond_timed::Rng;

use crate::content::{ContentChange, fill};
use crate::names::env::{Answer, lock, nap, opening, with};
use crate::names::kernel::{Busy, Mount, Open, lock_files};
use crate::origin::{FileId, Name};
use crate::tree;

/// The kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum App {
    Create,
    Open,
    Close,
    Read,
    Write,
    Sync,
    SyncDirectory,
    Truncate,
    TruncatePath,
    Chmod,
    Touch,
    Link,
    Unlink,
    Rename,
    RenameDirectory,
    MakeNode,
    MakeDirectory,
    RemoveDirectory,
    Look,
    DropCaches,
    OpenAgain,
}

impl App {
    pub(crate) const ALL: [(Self, u64); 21] = [
        (Self::Create, 60),
        (Self::Open, 70),
        (Self::Close, 70),
        (Self::Read, 50),
        (Self::Write, 110),
        (Self::Sync, 60),
        (Self::SyncDirectory, 12),
        (Self::Truncate, 15),
        (Self::TruncatePath, 10),
        (Self::Chmod, 30),
        (Self::Touch, 10),
        (Self::Link, 20),
        (Self::Unlink, 45),
        (Self::Rename, 60),
        (Self::RenameDirectory, 6),
        (Self::MakeNode, 10),
        (Self::MakeDirectory, 6),
        (Self::RemoveDirectory, 6),
        (Self::Look, 30),
        (Self::DropCaches, 30),
        (Self::OpenAgain, 8),
    ];
}

/// Directories that exist, or may exist.
const DIRECTORIES: [&[&str]; 5] = [&[], &["d0"], &["d1"], &["d0", "e"], &["d1", "e"]];

/// The size of files.
const FILE_BYTES: u64 = 64 << 10;

/// How often a request is repeated if its node is gone.
const TRIES: u32 = 4;

/// The lock of renames from one directory to another.
const RENAMES: FileId = FileId(u32::MAX);

/// The state of one operation.
pub(crate) struct Doing {
    pub(crate) mount: Rc<Mount>,
    pub(crate) rng: Rng,
    pub(crate) app: App,
}

impl Doing {
    fn directory(&mut self) -> &'static [&'static str] {
        DIRECTORIES[self.rng.weighted(&[4, 4, 3, 1, 1])]
    }

    fn name(&mut self) -> Name {
        format!("f{}", self.rng.below(6)).into_bytes()
    }

    fn handle(&mut self) -> Option<Open> {
        let handles = self.mount.handles();
        if handles.is_empty() { None } else { self.mount.handle(*self.rng.pick(&handles)) }
    }

    /// Passes a result on. An error without an explanation is a broken promise.
    fn allow<R>(&self, result: Result<R>, allowed: &[Errno]) -> Option<R> {
        let error = match result {
            Ok(done) => return Some(done),
            Err(error) => error,
        };
        let app = self.app;
        with(|env| {
            let excused = allowed.contains(&error)
                || error == Errno::IO && env.injected + env.world.injected.origin > 0
                || error == Errno::STALE && env.injected > 0
                || [Errno::MFILE, Errno::NFILE].contains(&error) && env.faults.no_room > 0;
            env.world.trace(|| format!("app   {app:?} failed with {error:?}"));
            if !excused {
                env.fail(format!("{app:?} failed with {error:?} though nothing was wrong"));
            }
        });
        None
    }

    /// Runs the operation.
    pub(crate) async fn run(mut self) {
        nap().await;
        match self.app {
            App::Create => self.create().await,
            App::Open => self.open().await,
            App::Close => {
                let handles = self.mount.handles();
                if !handles.is_empty() {
                    self.mount.close(*self.rng.pick(&handles)).await;
                }
            }
            App::Read => self.read().await,
            App::Write => self.write().await,
            App::Sync => self.sync().await,
            App::SyncDirectory => self.sync_directory().await,
            App::Truncate => self.truncate().await,
            App::TruncatePath => self.truncate_path().await,
            App::Chmod => self.chmod().await,
            App::Touch => self.touch().await,
            App::Link => self.link().await,
            App::Unlink => self.unlink(false).await,
            App::RemoveDirectory => self.unlink(true).await,
            App::Rename => self.rename().await,
            App::RenameDirectory => self.rename_directory().await,
            App::MakeNode => self.make(false).await,
            App::MakeDirectory => self.make(true).await,
            App::Look => self.look().await,
            App::DropCaches => {
                let share = *self.rng.pick(&[200, 500, 1000]);
                self.mount.drop_caches(share);
                if self.rng.chance(300) {
                    self.mount.layer.inodes.forget_all();
                }
            }
            App::OpenAgain => self.open_again().await,
        }
    }

    /// An existing directory.
    async fn enter(&mut self) -> Option<Busy> {
        let path = self.directory();
        let walked = self.mount.walk(path).await;
        self.allow(walked, &[Errno::NOENT, Errno::NOTDIR])
    }

    /// An existing file.
    async fn find(&mut self) -> Option<(Busy, Name, Busy)> {
        let directory = self.enter().await?;
        let name = self.name();
        let found = self.mount.look_up_locked(&directory, &name).await;
        let found = self.allow(found, &[Errno::NOENT])?;
        let is_file = with(|env| env.tree().0.kind(found.file)) == Some(tree::Kind::File);
        is_file.then_some((directory, name, found))
    }

    async fn create(&mut self) {
        let Some(directory) = self.enter().await else { return };
        let (name, exclusive) = (self.name(), self.rng.chance(300));
        let mut lock = Some(lock([directory.file]).await);
        match self.mount.look_up(&directory, &name).await {
            Ok(found) => {
                lock.take();
                if !exclusive && with(|env| env.tree().0.kind(found.file)) == Some(tree::Kind::File) {
                    let truncates = self.rng.chance(300);
                    self.open_this(&directory, &name, found, true, truncates).await;
                }
            }
            Err(Errno::NOENT) => {
                let made = match self.mount.node(&directory) {
                    Ok(parent) => self.mount.layer.create(&parent, OsStr::from_bytes(&name), 0o644, true, &()).await,
                    Err(error) => Err(error),
                };
                // The kernel looks once more: without birth times a file that is just going may have its number.
                let allowed: &[Errno] =
                    if with(|env| env.births) { &[Errno::NOENT] } else { &[Errno::NOENT, Errno::STALE] };
                let Some(made) = self.allow(made, allowed) else { return };
                let Some(file) = with(|env| env.tree().0.at(directory.file, &name)) else {
                    return with(|env| env.fail("a file was made, and has no name"));
                };
                with(|env| env.name_told(directory.file, &name));
                let busy = self.mount.enter(&made.inode, file, Some((&directory, &name)));
                match made.content {
                    Content::Pond(handle) => self.mount.opened(&busy, handle),
                    Content::Straight(..) => with(|env| env.fail("a file of the origin's own went past the engine")),
                }
            }
            Err(error) => {
                self.allow(Err::<(), _>(error), &[]);
            }
        }
    }

    async fn open(&mut self) {
        let Some((directory, name, found)) = self.find().await else { return };
        let writes = self.rng.chance(700);
        let truncates = writes && self.rng.chance(150);
        self.open_this(&directory, &name, found, writes, truncates).await;
    }

    async fn open_this(&mut self, directory: &Busy, name: &Name, mut found: Busy, writes: bool, truncates: bool) {
        let mut tries = 0;
        loop {
            let _lock = if truncates { Some(lock_files([found.file]).await) } else { None };
            let quiet = with(|env| env.model.open_changes(found.file) == 0 && !env.model.has_failed(found.file));
            let changes = |file: FileId| with(|env| env.changes.get(&file).copied().unwrap_or(0));
            let before = changes(found.file);
            let _opening = opening(found.file);
            let opened = match self.mount.node(&found) {
                Ok(node) => self.mount.open(&node, writes, truncates).await,
                Err(error) => Err(error),
            };
            tries += 1;
            let was = with(|env| env.tree().0.at(directory.file, name)) == Some(found.file);
            match opened {
                Ok(handle) => {
                    let empty = with(|env| env.model.contents(found.file).iter().any(|content| content.size == 0));
                    if truncates && quiet && !empty && changes(found.file) == before {
                        with(|env| env.fail(format!("{:?} was truncated by an open, and is not empty", found.file)));
                    }
                    return self.mount.opened(&found, handle);
                }
                Err(Errno::STALE) if tries < TRIES => {
                    // The kernel looks up again what has the name.
                    drop(_lock);
                    self.mount.drop_name(directory, name);
                    match self.mount.look_up_locked(directory, name).await {
                        Ok(now) if with(|env| env.tree().0.kind(now.file)) == Some(tree::Kind::File) => found = now,
                        _ => return,
                    }
                }
                Err(error) => {
                    let allowed: &[Errno] = if was { &[] } else { &[Errno::STALE, Errno::NOENT] };
                    self.allow(Err::<(), _>(error), allowed);
                    return;
                }
            }
        }
    }

    async fn read(&mut self) {
        let Some(open) = self.handle() else { return };
        let (offset, len) = (self.rng.below(FILE_BYTES), self.rng.between(1, 32 << 10));
        let request = Request::Read { object: open.handle.object, offset, len: len as u32, how: Treatment::default() };
        let id = with(|env| env.submit(request, None, false, Box::new(|_| {}), false));
        Answer(id).await;
    }

    async fn write(&mut self) {
        let Some(open) = self.handle().filter(|open| open.writes) else { return };
        let size = with(|env| env.model.some_size(open.file));
        let offset = if self.rng.chance(300) { size.min(FILE_BYTES) } else { self.rng.below(FILE_BYTES) };
        let offset = if self.rng.chance(600) { offset / 4096 * 4096 } else { offset };
        let bounds = [4096, 4096, 16 << 10, 32 << 10];
        let len = 1 + self.rng.below_one_of(&bounds);
        let durable = self.rng.chance(50);
        if with(|env| env.model.open_changes(open.file)) >= 3 {
            return;
        }
        let known = open.handle.known.clone();
        let mtime = with(|env| env.world.origin.now());
        let mtime = known.not_before(mtime);
        let id = with(|env| {
            let writer = env.writer();
            let mut data = BufMut::unwritten(len as usize);
            fill(writer, offset, &mut data);
            let (object, how) = (open.handle.object, Treatment::default());
            let request = Request::Write { object, offset, data: data.freeze(), mtime, durable, how };
            let see = Box::new(move |reply: &Reply| {
                if let Reply::Changed(attributes) = reply {
                    known.changed(*attributes, mtime);
                }
            });
            env.submit(request, Some(ContentChange::Write { offset, len, writer }), false, see, false)
        });
        Answer(id).await;
    }

    async fn sync(&mut self) {
        let Some(open) = self.handle() else { return };
        let (moment, began) = with(|env| (env.model.moment(), env.tree().0.tick()));
        let synced = self.mount.layer.sync(&open.handle).await;
        if self.allow(synced, &[]).is_some() {
            with(|env| {
                env.world.trace(|| format!("app   synced {:?} as of {began}", open.file));
                env.model.synced(open.file, moment);
                let reach = env.tree().0.reach();
                env.promises.file_synced(open.file, began, reach);
            });
        }
    }

    async fn sync_directory(&mut self) {
        let Some(directory) = self.enter().await else { return };
        let opened = match self.mount.node(&directory) {
            Ok(node) => node.open_for(Access::Directory).await,
            Err(error) => Err(error),
        };
        let Some(opened) = self.allow(opened, &[]) else { return };
        let began = with(|env| env.tree().0.tick());
        nap().await;
        with(|env| {
            env.tree().0.directory_synced(opened.file, began);
            env.promises.directory_synced(directory.file, began);
        });
    }

    async fn truncate(&mut self) {
        let Some(open) = self.handle().filter(|open| open.writes) else { return };
        let size = *self.rng.pick(&[0, 1000, 4096, 20_000, 50_000]);
        let _lock = lock_files([open.file]).await;
        let done = self.mount.layer.truncate(&open.handle.inode, size).await;
        self.allow(done, &[]);
    }

    async fn truncate_path(&mut self) {
        let Some((_, _, found)) = self.find().await else { return };
        let size = *self.rng.pick(&[0, 1000, 4096, 20_000, 50_000]);
        let _lock = lock_files([found.file]).await;
        let named = with(|env| env.tree().0.links(found.file)) > 0;
        let Ok(node) = self.mount.node(&found) else { return };
        let _opening = opening(found.file);
        let opened = self.mount.layer.open_for_change(&node).await;
        let allowed: &[Errno] = if named { &[] } else { &[Errno::STALE, Errno::NOENT] };
        let Some(opened) = self.allow(opened, allowed) else { return };
        let done = self.mount.layer.truncate(&node, size).await;
        self.allow(done, &[]);
        drop(opened);
    }

    async fn chmod(&mut self) {
        let Some((_, _, found)) = self.find().await else { return };
        let mode = *self.rng.pick(&[0o600, 0o644, 0o400, 0o640]);
        let _lock = lock_files([found.file]).await;
        let named = with(|env| env.tree().0.links(found.file)) > 0;
        let Ok(node) = self.mount.node(&found) else { return };
        let done = self.mount.layer.set_mode(&node, mode).await;
        let allowed: &[Errno] = if named { &[] } else { &[Errno::STALE, Errno::NOENT] };
        if self.allow(done, allowed).is_some() {
            with(|env| {
                let now = env.tree().0.tick();
                env.promises.mode_told(found.file, now);
                if named && env.world.origin.mode(found.file) != Ok(mode) {
                    env.fail(format!("the mode of {:?} was set, and another file has it", found.file));
                }
            });
        }
    }

    async fn touch(&mut self) {
        let Some(open) = self.handle() else { return };
        let time = with(|env| env.world.origin.now());
        let _lock = lock_files([open.file]).await;
        let done = self.mount.layer.set_mtime(&open.handle.inode, time).await;
        self.allow(done, &[]);
    }

    async fn link(&mut self) {
        let Some((_, _, found)) = self.find().await else { return };
        let Some(directory) = self.enter().await else { return };
        let name = self.name();
        let _directory = lock([directory.file]).await;
        match self.mount.look_up(&directory, &name).await {
            Err(Errno::NOENT) => {}
            Ok(_) => return,
            Err(error) => {
                self.allow(Err::<(), _>(error), &[]);
                return;
            }
        }
        let _file = lock_files([found.file]).await;
        if with(|env| env.tree().0.links(found.file)) == 0 {
            // The kernel checks that first.
            return;
        }
        let (Ok(node), Ok(parent)) = (self.mount.node(&found), self.mount.node(&directory)) else { return };
        let done = self.mount.layer.link(&node, &parent, OsStr::from_bytes(&name)).await;
        if self.allow(done, &[Errno::NOENT]).is_some() {
            self.mount.linked(&found, &directory, &name);
            self.check_name(&directory, &name, Some(found.file));
        }
    }

    /// Checks that an answer about a name is right.
    fn check_name(&self, directory: &Busy, name: &[u8], expected: Option<FileId>) {
        let app = self.app;
        with(|env| {
            env.name_told(directory.file, name);
            let there = env.tree().0.at(directory.file, name);
            if there != expected {
                env.fail(format!("{app:?} was answered, and the name is {there:?} instead of {expected:?}"));
            }
        });
    }

    async fn unlink(&mut self, is_directory: bool) {
        let Some(directory) = self.enter().await else { return };
        let name = if is_directory { (*self.rng.pick(&[&b"d0"[..], b"d1", b"e"])).to_vec() } else { self.name() };
        let _directory = lock([directory.file]).await;
        let found = self.mount.look_up(&directory, &name).await;
        let Some(found) = self.allow(found, &[Errno::NOENT]) else { return };
        if (with(|env| env.tree().0.kind(found.file)) == Some(tree::Kind::Directory)) != is_directory {
            return;
        }
        let _file = lock_files([found.file]).await;
        let Ok(parent) = self.mount.node(&directory) else { return };
        let name = OsStr::from_bytes(&name);
        let done = if is_directory {
            self.mount.layer.remove_directory(&parent, name).await
        } else {
            self.mount.layer.remove(&parent, name).await
        };
        match done {
            Ok(()) => self.check_name(&directory, name.as_bytes(), None),
            Err(error) => {
                self.allow(Err::<(), _>(error), &[Errno(39), Errno::NOENT]);
            }
        }
        if done.is_ok() || done == Err(Errno::IO) {
            self.mount.drop_name(&directory, name.as_bytes());
        }
    }

    async fn rename(&mut self) {
        let (Some(from), Some(to)) = (self.enter().await, self.enter().await) else { return };
        let (name, new_name) = (self.name(), self.name());
        let flags = [RenameFlags::REPLACE, RenameFlags::EXCHANGE, RenameFlags::KEEP][self.rng.weighted(&[6, 3, 1])];
        self.rename_this((&from, &name), (&to, &new_name), flags).await;
    }

    async fn rename_directory(&mut self) {
        let from = DIRECTORIES[self.rng.below(3) as usize];
        let to = DIRECTORIES[self.rng.below(3) as usize];
        let names = if from.is_empty() && to.is_empty() { [&b"d0"[..], b"d1"] } else { [&b"e"[..], b"e"] };
        let flags = [RenameFlags::REPLACE, RenameFlags::EXCHANGE][self.rng.weighted(&[1, 1])];
        let walked = (self.mount.walk(from).await, self.mount.walk(to).await);
        let allowed = [Errno::NOENT, Errno::NOTDIR];
        let (Some(from), Some(to)) = (self.allow(walked.0, &allowed), self.allow(walked.1, &allowed)) else { return };
        self.rename_this((&from, &names[0].to_vec()), (&to, &names[1].to_vec()), flags).await;
    }

    async fn rename_this(&mut self, from: (&Busy, &Name), to: (&Busy, &Name), flags: RenameFlags) {
        if from.0.file == to.0.file && from.1 == to.1 {
            return;
        }
        let across = (from.0.file != to.0.file).then_some(RENAMES);
        let _directories = lock([from.0.file, to.0.file].into_iter().chain(across)).await;
        let source = self.mount.look_up(from.0, from.1).await;
        let Some(source) = self.allow(source, &[Errno::NOENT]) else { return };
        let target = match self.mount.look_up(to.0, to.1).await {
            Ok(target) => Some(target),
            Err(Errno::NOENT) => None,
            Err(error) => {
                self.allow(Err::<(), _>(error), &[]);
                return;
            }
        };
        if target.as_ref().is_some_and(|target| target.file == source.file) || source.file == to.0.file {
            return;
        }
        let files: Vec<FileId> = [Some(source.file), target.as_ref().map(|target| target.file)]
            .into_iter()
            .flatten()
            .filter(|file| with(|env| env.tree().0.kind(*file)) == Some(tree::Kind::File))
            .collect();
        let _files = lock_files(files).await;
        let (Ok(parent), Ok(new_parent)) = (self.mount.node(from.0), self.mount.node(to.0)) else { return };
        let names = (OsStr::from_bytes(from.1), OsStr::from_bytes(to.1));
        let done = self.mount.layer.rename((&parent, names.0), (&new_parent, names.1), flags).await;
        let exchange = flags.exchanges();
        match done {
            Ok(()) => {
                self.mount.moved((from.0, from.1), (to.0, to.1), exchange);
                self.check_name(to.0, to.1, Some(source.file));
                let left = target.as_ref().filter(|_| exchange).map(|target| target.file);
                self.check_name(from.0, from.1, left);
            }
            Err(error) => {
                let allowed = [Errno::NOENT, Errno::EXIST, Errno::INVAL, Errno::NOTDIR, Errno(21), Errno(39)];
                self.allow(Err::<(), _>(error), &allowed);
                if error == Errno::IO {
                    self.mount.drop_name(from.0, from.1);
                    self.mount.drop_name(to.0, to.1);
                }
            }
        }
    }

    async fn make(&mut self, is_directory: bool) {
        let Some(directory) = self.enter().await else { return };
        let name = if is_directory { (*self.rng.pick(&[&b"d0"[..], b"d1", b"e"])).to_vec() } else { self.name() };
        let _lock = lock([directory.file]).await;
        match self.mount.look_up(&directory, &name).await {
            Err(Errno::NOENT) => {}
            Ok(_) => return,
            Err(error) => {
                self.allow(Err::<(), _>(error), &[]);
                return;
            }
        }
        let Ok(parent) = self.mount.node(&directory) else { return };
        let what = if is_directory {
            Making::Directory { mode: 0o755 }
        } else {
            Making::Node { kind: FileKind::File, mode: 0o644, device: 0 }
        };
        let made = self.mount.layer.make(&parent, OsStr::from_bytes(&name), &what, &()).await;
        let allowed: &[Errno] = if with(|env| env.births) { &[Errno::NOENT] } else { &[Errno::NOENT, Errno::STALE] };
        let Some((inode, _)) = self.allow(made, allowed) else { return };
        match with(|env| env.tree().0.at(directory.file, &name)) {
            Some(file) => {
                with(|env| env.name_told(directory.file, &name));
                drop(self.mount.enter(&inode, file, Some((&directory, &name))));
            }
            None => with(|env| env.fail("something was made, and has no name")),
        }
    }

    async fn look(&mut self) {
        let Some((_, _, found)) = self.find().await else { return };
        let named = with(|env| env.tree().0.links(found.file)) > 0;
        let Ok(node) = self.mount.node(&found) else { return };
        let watch = with(|env| {
            let watch = (1 << 62) | env.tree().0.tick();
            env.model.watch(watch, found.file);
            watch
        });
        let looked = node.look().await;
        let size = looked.map(|looked| node.known().map_or(looked.size, |known| known.view().size));
        let allowed: &[Errno] = if named { &[] } else { &[Errno::STALE, Errno::NOENT] };
        // An open that looked at the file long ago shows its old findings for a moment.
        let opens = with(|env| env.opening.get(&found.file).is_some_and(|opening| *opening > 0));
        match self.allow(size, allowed) {
            Some(size) if !opens => with(|env| {
                if let Err(why) = env.model.check_size(watch, size) {
                    env.fail(why);
                }
            }),
            _ => with(|env| env.model.unwatch(watch)),
        }
    }

    /// Reopens, for the engine, a file whose descriptor was closed.
    async fn open_again(&mut self) {
        let index = self.rng.next() as usize;
        let chosen = with(|env| {
            let objects: Vec<_> = env.again.keys().copied().collect();
            let object = *objects.get(index % objects.len().max(1))?;
            let file = env.world.objects.get(&object).copied()?;
            let injected = env.injected;
            Some((object, file, env.again.get(&object)?.clone(), env.tree().0.links(file) > 0, injected))
        });
        let Some((object, file, again, named, injected)) = chosen else { return };
        let opened = again.open(true).await;
        drop(again);
        with(|env| {
            let still = named && env.tree().0.links(file) > 0 && env.world.objects.get(&object) == Some(&file);
            match &opened {
                Ok(opened) if opened.file != file => {
                    env.fail(format!("{object:?} is {file:?}, and is opened again as {:?}", opened.file));
                }
                Err(error) if still && env.injected == injected && env.faults.no_room == 0 => {
                    env.fail(format!("{object:?} is {file:?}, and cannot be opened again: {error:?}"));
                }
                _ => {}
            }
        });
        drop(opened);
    }
}
