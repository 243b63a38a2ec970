//! The inodes that the kernel knows, each with a path to the origin's file.
//!
//! Invariants
//! - An inode in the table has a path to its file, open or to be opened again by its place
//!   ([`places`](crate::places)). As many stay open as there is room for. The root stays open, and a file in use whose
//!   last name is gone.
//! - A node id *is* the inode number that applications see: the kernel has one field for both. The
//!   origin's root is node 1, whatever its number. Files on other file systems mounted below the
//!   origin get numbers from the top half, so that two files never share one.
//! - If the origin gives a number to another file, that file is another inode with another generation, by which the
//!   kernel tells the two. Their lookups have one count, as the kernel gives them back by the number.
//! - Where the origin keeps no birth times, a number alone does not tell a file from the next one with that number. The
//!   open descriptor does. Before a name counts as one of a file that is open here, the table asks the origin whether
//!   that file is gone. Nothing else makes a new inode of a number: applications that use the earlier one would lose
//!   it.
//! - The table counts the kernel's lookups. At zero, without another hold, the inode leaves the table and its path
//!   closes.
//!
//! Memory: some 400 bytes for each inode that the kernel remembers, and its name; a descriptor, which keeps the
//! origin's inode in the kernel's memory, only for as many as may be open.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use headpond_base::{Errno, Result};
use headpond_ledger::InodeMark;

use crate::inode::{Before, Inode, KnownIn};
use crate::lasting::{Lasting, Register};
use crate::places::Home;
use crate::unsynced::ForgottenUnsynced;
use crate::{DeviceNumber, FileKey, FileKind, Found, Freshness, Tree};

/// The kernel's name for the mount's root directory.
pub const ROOT: u64 = 1;

/// Numbers from here up are the mount's own: no file system that is a fit origin uses them.
const FOREIGN: u64 = 1 << 63;

/// Numbers from here up are the front door's own. A file on another file system would get one only after 2^63 others.
pub const PANEL: u64 = u64::MAX - 0xffff;

pub(crate) struct Table<T: Tree> {
    nodes: BTreeMap<u64, Arc<Inode<T>>>,
    /// Node ids of files on other file systems.
    foreign: BTreeMap<(DeviceNumber, u64), u64>,
    next_foreign: u64,
    /// Files that the kernel forgot before they were synced.
    unsynced: ForgottenUnsynced,
}

impl<T: Tree> Default for Table<T> {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::new(),
            foreign: BTreeMap::new(),
            next_foreign: 0,
            unsynced: ForgottenUnsynced::default(),
        }
    }
}

impl<T: Tree> Table<T> {
    /// Takes an inode out, unless another has its number by now.
    pub(crate) fn remove(&mut self, inode: &Arc<Inode<T>>) {
        if self.nodes.get(&inode.node).is_some_and(|there| Arc::ptr_eq(there, inode)) {
            self.nodes.remove(&inode.node);
            // One without a name never comes back.
            if inode.managed && inode.removed().is_none() && !inode.is_gone() && inode.is_unsynced() {
                self.unsynced.keep(inode.key);
                if let Some(entry) = &inode.entry {
                    entry.row().ledger().note_forgotten_unsynced();
                }
            }
            if inode.node >= FOREIGN {
                self.foreign.remove(&(inode.device, inode.key.inode));
            }
        }
    }
}

impl<T: Tree> Drop for Inodes<T> {
    /// The kernel is gone, and will not forget inodes one by one.
    fn drop(&mut self) {
        let mut table = self.home.table.write().unwrap_or_else(PoisonError::into_inner);
        for inode in table.nodes.values() {
            inode.set_lookups(0);
        }
        let (held, forgotten) = std::mem::take(&mut table.nodes)
            .into_iter()
            .partition(|(_, inode)| inode.holds.load(Ordering::Acquire) > 0);
        let forgotten: BTreeMap<u64, Arc<Inode<T>>> = forgotten;
        table.nodes = held;
        // Each lets go of its directory, which takes the lock.
        drop(table);
        drop(forgotten);
    }
}

/// All inodes that the kernel knows.
pub struct Inodes<T: Tree> {
    root: Arc<Inode<T>>,
    root_inode: u64,
    device: DeviceNumber,
    pub(crate) home: Arc<Home<T>>,
}

impl<T: Tree> Inodes<T> {
    /// A table with only the origin's root. At most so many paths stay open.
    ///
    /// # Errors
    /// When the root cannot be looked at.
    pub async fn new(tree: Arc<T>, root: T::Path, descriptors: usize) -> Result<Self> {
        let found = tree.look(&root, Freshness::Usual).await?;
        let home = Arc::new(Home::new(tree, descriptors));
        let inode = Inode::new(&home, ROOT, 0, &found, Before::default());
        // Without a place, so that it stays open.
        home.open.put(&inode, root);
        Ok(Self { root: inode, root_inode: found.inode, device: found.device, home })
    }

    /// From now on each inode has a row in the ledger. Call it before the first is taken in.
    pub(crate) fn last(&self, lasting: &Lasting<T::Path>) {
        let mut table = self.home.table.write().unwrap_or_else(PoisonError::into_inner);
        table.next_foreign = lasting.ledger.next_foreign();
        if lasting.ledger.forgot_unsynced() {
            table.unsynced.forget_which();
        }
        let _ = self.home.register.set(Register::of(lasting));
    }

    /// Puts in an inode that a process before this one took in. Of two with one node the one that is not superseded
    /// counts.
    pub(crate) fn put(&self, inode: &Arc<Inode<T>>, is_superseded: bool) {
        let mut table = self.home.table.write().unwrap_or_else(PoisonError::into_inner);
        if inode.node >= FOREIGN {
            table.foreign.insert((inode.device, inode.key.inode), inode.node);
        }
        if !is_superseded || !table.nodes.contains_key(&inode.node) {
            table.nodes.insert(inode.node, inode.clone());
        }
    }

    /// Shows all inodes but the root.
    pub fn each(&self, mut see: impl FnMut(&Arc<Inode<T>>)) {
        let table = self.home.table.read().unwrap_or_else(PoisonError::into_inner);
        table.nodes.values().for_each(&mut see);
    }

    /// The directories and names of files that the kernel holds, and nothing else does, among `most` inodes behind a
    /// node. Returns the last node too, unless there was none.
    #[must_use]
    pub fn unused_after(&self, node: u64, most: usize) -> (Vec<(u64, OsString)>, Option<u64>) {
        let table = self.home.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut last = None;
        let mut names = Vec::new();
        for (at, inode) in table.nodes.range((Bound::Excluded(node), Bound::Unbounded)).take(most) {
            last = Some(*at);
            let is_used = inode.kind == FileKind::Directory || inode.holds.load(Ordering::Acquire) > 0;
            if let Some((directory, name)) = inode.place().filter(|_| !is_used) {
                names.push((directory.node, name));
            }
        }
        (names, last)
    }

    /// The mount's root.
    pub fn root(&self) -> &Arc<Inode<T>> {
        &self.root
    }

    /// The inode of a node id that the kernel holds. A request for a node of the front door's own comes here only if it
    /// is a change.
    ///
    /// # Errors
    /// [`Errno::STALE`] if the kernel does not hold it.
    pub fn get(&self, node: u64) -> Result<Arc<Inode<T>>> {
        if node == ROOT {
            return Ok(self.root.clone());
        }
        if node >= PANEL {
            return Err(Errno::ROFS);
        }
        let table = self.home.table.read().unwrap_or_else(PoisonError::into_inner);
        table.nodes.get(&node).cloned().ok_or(Errno::STALE)
    }

    /// A node that the kernel knows by its number alone, from a file handle: it has forgotten the inode. Counts one
    /// lookup.
    ///
    /// # Errors
    /// [`Errno::STALE`] if it is not known here any more.
    pub fn by_number(&self, node: u64) -> Result<Arc<Inode<T>>> {
        // Under the lock, so that nothing lets go of it meanwhile.
        let table = self.home.table.read().unwrap_or_else(PoisonError::into_inner);
        if node == ROOT {
            return Ok(self.root.clone());
        }
        let inode = table.nodes.get(&node).filter(|inode| !inode.is_gone()).ok_or(Errno::STALE)?;
        inode.count_lookup();
        Ok(inode.clone())
    }

    /// The inode of a file that was just looked at, if the kernel holds it. Counts nothing.
    pub fn find(&self, found: &Found) -> Option<Arc<Inode<T>>> {
        let table = self.home.table.read().unwrap_or_else(PoisonError::into_inner);
        let node = self.node_of(&table, found)?;
        if node == ROOT {
            return Some(self.root.clone());
        }
        table.nodes.get(&node).filter(|inode| inode.is(found)).cloned()
    }

    /// The inode with the number that a name has just shown, if that inode's file turns out to be gone. For origins
    /// where only the number names a file.
    pub async fn replaced_by(&self, found: &Found) -> Option<Arc<Inode<T>>> {
        if found.key().birth != FileKey::NO_BIRTH {
            return None;
        }
        // Without a lock: a server may have to answer.
        let inode = self.find(found).filter(|inode| inode.node != ROOT)?;
        inode.lost_its_number_to(found).await.then_some(inode)
    }

    /// The inode of a file that was just looked at, with one more lookup by the kernel, if the
    /// kernel holds it already.
    pub fn look_up(&self, found: &Found) -> Option<Arc<Inode<T>>> {
        // Counting under the read lock is enough: forgetting takes the write lock.
        let table = self.home.table.read().unwrap_or_else(PoisonError::into_inner);
        let node = self.node_of(&table, found)?;
        if node == ROOT {
            return Some(self.root.clone());
        }
        let inode = table.nodes.get(&node).filter(|inode| inode.is(found))?;
        inode.count_lookup();
        Some(inode.clone())
    }

    /// Takes in a file that this name led to, with its path and one lookup by the kernel.
    ///
    /// # Errors
    /// [`Errno::STALE`] if the directory is no more.
    pub fn take_in(
        &self,
        path: T::Path,
        found: &Found,
        place: (&Inode<T>, &OsStr),
        known: impl Fn(FileKey) -> Option<Arc<KnownIn<T>>>,
    ) -> Result<Arc<Inode<T>>> {
        let (parent, name) = (place.0.me()?, place.1);
        let (inode, replaced) = self.enter(found, Some(&known));
        // After the lock on the table: each of these may close something.
        drop(replaced);
        inode.find_by(&parent, name);
        self.home.open.put(&inode, path);
        Ok(inode)
    }

    /// Takes in a file without a name, with one lookup. It stays open, as no name leads to it, and goes straight to the
    /// origin.
    pub fn take_in_nameless(&self, path: T::Path, found: &Found) -> Arc<Inode<T>> {
        let (inode, replaced) = self.enter(found, None);
        drop(replaced);
        let open = self.home.open.put(&inode, path);
        inode.keep_path(&open);
        inode
    }

    /// The inode of what was found, with one more lookup, and the inode that had the number before. If the file can be
    /// `known`, its content goes through the engine.
    fn enter(
        &self,
        found: &Found,
        known: Option<&dyn Fn(FileKey) -> Option<Arc<KnownIn<T>>>>,
    ) -> (Arc<Inode<T>>, Option<Arc<Inode<T>>>) {
        let regular = found.kind == FileKind::File && found.device == self.device;
        let mut table = self.home.table.write().unwrap_or_else(PoisonError::into_inner);
        let node = self.node_of(&table, found).unwrap_or_else(|| {
            let node = FOREIGN + table.next_foreign;
            assert!(node < PANEL, "2^63 files were never known");
            table.next_foreign += 1;
            if let Some(register) = self.home.register.get() {
                register.ledger().set_next_foreign(table.next_foreign);
            }
            table.foreign.insert((found.device, found.inode), node);
            node
        });
        if node == ROOT {
            return (self.root.clone(), None);
        }
        let (lookups, generation, newcomer) = match table.nodes.get(&node) {
            Some(inode) if inode.is(found) => {
                // Another one was faster.
                inode.count_lookup();
                return (inode.clone(), None);
            }
            // Another file has the number by now.
            Some(inode) => {
                let newcomer = inode.key == found.key();
                // Before the new one has a row: of two, the unmarked one counts.
                inode.mark(InodeMark::Superseded);
                (inode.lookups(), next_generation(inode.generation, found), newcomer)
            }
            None => (0, generation_of(found), false),
        };
        let key = found.key();
        let known = known.filter(|_| regular);
        let before = Before {
            managed: known.is_some(),
            known: known.and_then(|known| known(key)),
            unsynced: table.unsynced.taken_in(key),
            newcomer,
            lookups: lookups + 1,
        };
        let inode = Inode::new(&self.home, node, generation, found, before);
        let replaced = table.nodes.insert(node, inode.clone());
        (inode, replaced)
    }

    /// The kernel gave back `count` lookups. Returns the inode if these were the last. It stays in the table until it
    /// is [remembered](Home::remember).
    pub(crate) fn forget(&self, node: u64, count: u64) -> Option<Arc<Inode<T>>> {
        if node == ROOT || node >= PANEL {
            return None;
        }
        let mut table = self.home.table.write().unwrap_or_else(PoisonError::into_inner);
        let inode = table.nodes.get(&node)?.clone();
        let left = inode.lookups().saturating_sub(count);
        inode.set_lookups(left);
        if left > 0 {
            return None;
        }
        if inode.is_gone() {
            table.remove(&inode);
        }
        Some(inode)
    }

    /// Forgets what the kernel forgot: no program will ask for it by a file handle.
    pub fn forget_all(&self) {
        self.home.forget_all();
    }

    /// How many paths are open.
    pub fn open_paths(&self) -> usize {
        self.home.open.open()
    }

    /// Closes unused paths: the process has no descriptor left.
    pub fn make_room(&self) {
        self.home.make_room();
    }

    /// Whether a file is on the origin's own device.
    pub fn same_device(&self, found: &Found) -> bool {
        found.device == self.device
    }

    /// The node id of a file, if it has one already, or its number serves as one.
    fn node_of(&self, table: &Table<T>, found: &Found) -> Option<u64> {
        let own = found.device == self.device;
        if own && found.inode == self.root_inode {
            return Some(ROOT);
        }
        if own && found.inode > ROOT && found.inode < FOREIGN {
            return Some(found.inode);
        }
        table.foreign.get(&(found.device, found.inode)).copied()
    }
}

impl<T: Tree> fmt::Debug for Inodes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inodes({} open)", self.open_paths())
    }
}

/// The generation, by which the kernel tells a file from others that had its number: 32 bits. Where the origin has
/// birth times, a file has the same one after a remount.
fn generation_of(found: &Found) -> u64 {
    let birth = found.key().birth.0.cast_unsigned();
    (birth ^ birth >> 32) & u64::from(u32::MAX)
}

fn next_generation(earlier: u64, found: &Found) -> u64 {
    let own = generation_of(found);
    // Without birth times all files have the same one.
    if own == earlier || found.key().birth == FileKey::NO_BIRTH { (earlier + 1) & u64::from(u32::MAX) } else { own }
}
