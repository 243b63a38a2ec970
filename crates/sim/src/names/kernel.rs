//! The kernel before the name layer: its inodes, names and handles, and its counts on each.
//!
//! Keeps true, as Linux does:
//! - An inode is one node with one generation. If another inode gets its number, it is bad from then on.
//! - Each answer that names a node is one more lookup. The kernel gives the lookups back when no name, handle or
//!   request has the inode.
//! - A lookup or a change of names in a directory holds the directory's lock. A change of a file's status or names
//!   holds the file's.
//!
//! The origin itself says which file each inode stands for. If an inode turns out to be two files, the layer is
//! wrong.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;

use headpond_base::{Errno, Result};
use headpond_names::{FileHandle, Inode, Names, Pinned};

use crate::names::env::{Locked, lock, with};
use crate::names::keys::{Engine, Origin};
use crate::origin::{FileId, Name};

pub(crate) type Layer = Names<Origin, Engine>;
pub(crate) type Node = Arc<Inode<Origin>>;

/// Names one of the kernel's inodes as long as it exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Kid(u32);

#[derive(Debug)]
struct Cached {
    node: u64,
    generation: u64,
    file: FileId,
    lookups: u64,
    handles: u32,
    busy: u32,
    bad: bool,
}

/// An open file.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) kid: Kid,
    pub(crate) file: FileId,
    pub(crate) handle: Rc<FileHandle<Origin>>,
    pub(crate) writes: bool,
}

/// The kernel's state.
#[derive(Default)]
struct Kernel {
    inodes: BTreeMap<Kid, Cached>,
    current: BTreeMap<u64, Kid>,
    names: BTreeMap<(Kid, Name), Kid>,
    open: BTreeMap<u32, Open>,
    next: u32,
}

/// A mount in use: the kernel, and the layer behind it.
pub(crate) struct Mount {
    pub(crate) layer: Arc<Layer>,
    kernel: RefCell<Kernel>,
    life: u32,
}

/// An inode in use by a request.
pub(crate) struct Busy {
    mount: Rc<Mount>,
    pub(crate) kid: Kid,
    pub(crate) file: FileId,
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(cached) = self.mount.kernel.borrow_mut().inodes.get_mut(&self.kid) {
            cached.busy -= 1;
        }
        self.mount.evict(self.kid);
    }
}

const ROOT: Kid = Kid(0);

impl Mount {
    pub(crate) fn new(layer: Layer) -> Rc<Self> {
        let mut kernel = Kernel { next: 1, ..Kernel::default() };
        let (file, life) = with(|env| (env.tree().0.root(), env.life));
        let root = Cached { node: 1, generation: 0, file, lookups: 1, handles: 0, busy: 1, bad: false };
        kernel.inodes.insert(ROOT, root);
        kernel.current.insert(1, ROOT);
        Rc::new(Self { layer: Arc::new(layer), kernel: RefCell::new(kernel), life })
    }

    pub(crate) fn root(self: &Rc<Self>) -> Busy {
        self.busy(ROOT).expect("the root is there")
    }

    /// A request uses the inode from now on.
    pub(crate) fn busy(self: &Rc<Self>, kid: Kid) -> Option<Busy> {
        let mut kernel = self.kernel.borrow_mut();
        let cached = kernel.inodes.get_mut(&kid)?;
        cached.busy += 1;
        Some(Busy { mount: self.clone(), kid, file: cached.file })
    }

    /// The layer's inode: what a request that names the node finds.
    pub(crate) fn node(&self, busy: &Busy) -> Result<Node> {
        let (node, generation, bad) = {
            let kernel = self.kernel.borrow();
            let cached = &kernel.inodes[&busy.kid];
            (cached.node, cached.generation, cached.bad)
        };
        if bad {
            return Err(Errno::STALE);
        }
        let inode = self.layer.inodes.get(node).inspect_err(|error| {
            with(|env| {
                env.fail(format!(
                    "the kernel holds node {node} ({:?}), and the layer has forgotten it: {error:?}",
                    busy.file
                ))
            });
        })?;
        // The kernel names only the number. It learns with the next lookup that the number is another's by now.
        if inode.generation == generation { Ok(inode) } else { Err(Errno::STALE) }
    }

    /// An answer has named a node for this file.
    pub(crate) fn enter(self: &Rc<Self>, inode: &Node, file: FileId, name: Option<(&Busy, &[u8])>) -> Busy {
        let mut kernel = self.kernel.borrow_mut();
        let there = kernel.current.get(&inode.node).copied();
        let same = there.filter(|kid| kernel.inodes[kid].generation == inode.generation);
        let kid = if let Some(kid) = same {
            let cached = kernel.inodes.get_mut(&kid).expect("it is there");
            cached.lookups += 1;
            if cached.file != file {
                let was = cached.file;
                with(|env| {
                    env.fail(format!("node {} was {was:?} and is {file:?}: one file is taken for another", inode.node))
                });
            }
            kid
        } else {
            if let Some(kid) = there {
                kernel.inodes.get_mut(&kid).expect("it is there").bad = true;
                kernel.current.remove(&inode.node);
                kernel.names.retain(|_, named| *named != kid);
            }
            let kid = Kid(kernel.next);
            kernel.next += 1;
            let (node, generation) = (inode.node, inode.generation);
            kernel.inodes.insert(kid, Cached { node, generation, file, lookups: 1, handles: 0, busy: 0, bad: false });
            kernel.current.insert(node, kid);
            kid
        };
        if let Some((directory, name)) = name {
            kernel.names.insert((directory.kid, name.to_vec()), kid);
        }
        drop(kernel);
        if let Some(there) = there.filter(|there| *there != kid) {
            self.evict(there);
        }
        self.busy(kid).expect("it was entered")
    }

    /// One more lookup of an inode that got one more name.
    pub(crate) fn linked(&self, busy: &Busy, directory: &Busy, name: &[u8]) {
        let mut kernel = self.kernel.borrow_mut();
        kernel.inodes.get_mut(&busy.kid).expect("a request has it").lookups += 1;
        kernel.names.insert((directory.kid, name.to_vec()), busy.kid);
    }

    /// Drops an inode that nothing uses.
    fn evict(&self, kid: Kid) {
        let mut kernel = self.kernel.borrow_mut();
        let used = kernel.inodes.get(&kid).is_none_or(|cached| cached.handles > 0 || cached.busy > 0);
        if used || kernel.names.iter().any(|((directory, _), named)| *directory == kid || *named == kid) {
            return;
        }
        let Some(cached) = kernel.inodes.remove(&kid) else { return };
        if kernel.current.get(&cached.node) == Some(&kid) {
            kernel.current.remove(&cached.node);
        }
        drop(kernel);
        let layer = self.layer.clone();
        let life = self.life;
        crate::names::env::in_life(life, |env| {
            env.forgotten.insert(cached.file);
            env.spawned.push(Box::pin(async move { layer.forget(cached.node, cached.lookups).await }));
        });
    }

    /// Forgets the name.
    pub(crate) fn drop_name(&self, directory: &Busy, name: &[u8]) {
        let removed = self.kernel.borrow_mut().names.remove(&(directory.kid, name.to_vec()));
        if let Some(kid) = removed {
            self.evict(kid);
        }
    }

    /// A name was moved; or two were exchanged.
    pub(crate) fn moved(&self, from: (&Busy, &[u8]), to: (&Busy, &[u8]), exchange: bool) {
        let mut kernel = self.kernel.borrow_mut();
        let (from, to) = ((from.0.kid, from.1.to_vec()), (to.0.kid, to.1.to_vec()));
        let moved = kernel.names.remove(&from);
        let other = kernel.names.remove(&to);
        if let Some(moved) = moved {
            kernel.names.insert(to, moved);
        }
        if let Some(other) = other.filter(|_| exchange) {
            kernel.names.insert(from, other);
        }
        drop(kernel);
        other.into_iter().for_each(|kid| self.evict(kid));
    }

    /// Forgets some unused names, as if memory were short; or all unused names.
    pub(crate) fn drop_caches(&self, share: u64) {
        loop {
            let leaves: Vec<(Kid, Name)> = {
                let kernel = self.kernel.borrow();
                let leaf = |kid: &Kid| !kernel.names.keys().any(|(directory, _)| directory == kid);
                kernel.names.iter().filter(|(_, kid)| leaf(kid)).map(|(name, _)| name.clone()).collect()
            };
            let mut dropped = false;
            for leaf in leaves {
                if with(|env| env.rng.chance(share)) {
                    let kid = self.kernel.borrow_mut().names.remove(&leaf);
                    kid.into_iter().chain([leaf.0]).for_each(|kid| self.evict(kid));
                    dropped = true;
                }
            }
            if share < 1000 || !dropped {
                return;
            }
        }
    }

    /// Looks a name up. The directory's lock is held.
    pub(crate) async fn look_up(self: &Rc<Self>, directory: &Busy, name: &[u8]) -> Result<Busy> {
        let cached = self.kernel.borrow().names.get(&(directory.kid, name.to_vec())).copied();
        if let Some(busy) = cached.and_then(|kid| self.busy(kid)) {
            return Ok(busy);
        }
        let parent = self.node(directory)?;
        let (inode, _) = self.layer.look_up(&parent, OsStr::from_bytes(name)).await?;
        let Some(file) = with(|env| env.tree().0.at(directory.file, name)) else {
            self.give_back(&inode);
            return Err(Errno::NOENT);
        };
        Ok(self.enter(&inode, file, Some((directory, name))))
    }

    /// Gives back a lookup that nothing uses.
    fn give_back(&self, inode: &Node) {
        let (layer, node) = (self.layer.clone(), inode.node);
        with(|env| env.spawned.push(Box::pin(async move { layer.forget(node, 1).await })));
    }

    /// The same with the directory's lock.
    pub(crate) async fn look_up_locked(self: &Rc<Self>, directory: &Busy, name: &[u8]) -> Result<Busy> {
        let _lock = lock([directory.file]).await;
        self.look_up(directory, name).await
    }

    /// The directory of a path.
    pub(crate) async fn walk(self: &Rc<Self>, path: &[&str]) -> Result<Busy> {
        let mut at = self.root();
        for name in path {
            at = self.look_up_locked(&at, name.as_bytes()).await?;
            if with(|env| env.tree().0.kind(at.file)) == Some(crate::tree::Kind::File) {
                return Err(Errno(20));
            }
        }
        Ok(at)
    }

    /// Opens a file in the layer, as the mount does.
    pub(crate) async fn open(&self, node: &Node, writes: bool, truncates: bool) -> Result<FileHandle<Origin>> {
        let pinned = if writes { Pinned::for_writing(node).await? } else { Pinned::of(node).await? };
        self.layer.open(pinned, truncates).await
    }

    /// An application has opened the file.
    pub(crate) fn opened(&self, busy: &Busy, handle: FileHandle<Origin>) {
        let attached = with(|env| env.world.objects.get(&handle.object).copied());
        if attached != Some(busy.file) {
            with(|env| env.fail(format!("{:?} was opened, and the handle leads to {attached:?}", busy.file)));
        }
        let mut kernel = self.kernel.borrow_mut();
        kernel.inodes.get_mut(&busy.kid).expect("a request has it").handles += 1;
        let number = kernel.next;
        kernel.next += 1;
        let writes = handle.writes;
        kernel.open.insert(number, Open { kid: busy.kid, file: busy.file, handle: Rc::new(handle), writes });
    }

    /// The open handles.
    pub(crate) fn handles(&self) -> Vec<u32> {
        self.kernel.borrow().open.keys().copied().collect()
    }

    pub(crate) fn handle(&self, number: u32) -> Option<Open> {
        self.kernel.borrow().open.get(&number).cloned()
    }

    /// Closes a handle that no request uses.
    pub(crate) async fn close(&self, number: u32) {
        let open = {
            let mut kernel = self.kernel.borrow_mut();
            if kernel.open.get(&number).is_none_or(|open| Rc::strong_count(&open.handle) > 1) {
                return;
            }
            kernel.open.remove(&number)
        };
        let Some(Open { kid, handle, .. }) = open else { return };
        // The kernel sends the release after it has let go of the file: it may come late.
        let handle = Rc::into_inner(handle).expect("no request uses it");
        if let Some(cached) = self.kernel.borrow_mut().inodes.get_mut(&kid) {
            cached.handles -= 1;
            cached.busy += 1;
        }
        self.layer.release(handle).await;
        if let Some(cached) = self.kernel.borrow_mut().inodes.get_mut(&kid) {
            cached.busy -= 1;
        }
        self.evict(kid);
    }

    /// Inodes in the kernel, without the root.
    pub(crate) fn held(&self) -> usize {
        self.kernel.borrow().inodes.len() - 1
    }
}

/// Locks of files, taken after those of directories.
pub(crate) async fn lock_files(files: impl IntoIterator<Item = FileId>) -> Locked {
    lock(files).await
}
