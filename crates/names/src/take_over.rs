//! Going on with the inodes of a process before this one.
//!
//! Invariants
//! - An inode is what it was: node, generation, lookups, and what becomes of it. It opens when something needs it.
//! - What no name leads to is open, by the keeper's path, to its end. If its name stayed after all, that leads to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use headpond_base::UnixNanos;
use headpond_ledger::{InodeMark, StoredInode};

use crate::inode::{Before, Inode, KnownIn};
use crate::inodes::Inodes;
use crate::lasting::{Lasting, Register, kind_of};
use crate::places::{Home, NameInDirectory};
use crate::unsynced::Unsynced;
use crate::{DeviceNumber, FileKey, FileKind, Found, Freshness, Tree};

/// The inodes that a successor took over, by the numbers of their rows. 0 is the root.
pub type TakenOver<T> = BTreeMap<u64, Arc<Inode<T>>>;

impl<T: Tree> Inodes<T> {
    /// Takes over what the ledger has. Call it before the kernel's first request.
    pub(crate) async fn take_over(
        &self,
        lasting: Lasting<T::Path>,
        known: impl Fn(FileKey) -> Option<Arc<KnownIn<T>>>,
    ) -> TakenOver<T> {
        let register = Register::of(&lasting);
        let stored = lasting.ledger.stored_inodes();
        let mut kept = lasting.kept;
        let mut all = TakenOver::from([(0, self.root().clone())]);
        let mut places = Vec::new();
        let mut forgotten = Vec::new();
        let mut of_keeper = Vec::new();
        for mut one in stored {
            let number = one.entry.number();
            let is_superseded = one.has(InodeMark::Superseded);
            if one.has(InodeMark::Kept) {
                of_keeper.push((number, kept.remove(&number)));
            }
            places.extend(one.place.take().map(|place| (number, place)));
            let lookups = one.lookups;
            let inode = restored(&self.home, &register, one, &known);
            if lookups == 0 && !is_superseded {
                forgotten.push(inode.clone());
            }
            self.put(&inode, is_superseded);
            all.insert(number, inode);
        }
        // What was kept a moment before the end, and not noted.
        kept.into_keys().for_each(|number| lasting.keeper.let_go(number));
        for (number, place) in places {
            // A row without its directory is of an inode that nothing holds.
            if let (Some(inode), Some(directory)) = (all.get(&number), all.get(&place.directory)) {
                inode.restore_place(directory, &place.name);
            }
        }
        for (number, path) in of_keeper {
            if let Some(inode) = all.get(&number) {
                self.take_back(inode, path).await;
            }
        }
        for inode in forgotten {
            self.home.remember(&inode);
        }
        all
    }

    /// Puts the path of a file in that no name leads to, or of one whose name stayed after all.
    async fn take_back(&self, inode: &Arc<Inode<T>>, path: Option<T::Path>) {
        let Some(path) = path else {
            // The keeper has lost it.
            inode.slot.set_gone();
            return inode.mark(InodeMark::Gone);
        };
        let links = self.home.tree.look(&path, Freshness::Usual).await.map_or(0, |found| found.links);
        let is_named = inode.is_found().await;
        let open = self.home.open.put(inode, path);
        if is_named {
            inode.let_go_of_kept();
        } else if links == 0 || inode.kind == FileKind::Directory {
            self.home.open.keep(inode, open);
        } else {
            // It has other names, and none of them is known.
            drop(inode.take_place());
        }
    }
}

/// An inode as its row has it, without a place and a path.
fn restored<T: Tree>(
    home: &Arc<Home<T>>,
    register: &Register<T::Path>,
    one: StoredInode,
    known: impl Fn(FileKey) -> Option<Arc<KnownIn<T>>>,
) -> Arc<Inode<T>> {
    let marks = [InodeMark::Gone, InodeMark::Replaced, InodeMark::Lost, InodeMark::Unsynced, InodeMark::Newcomer]
        .map(|mark| one.has(mark));
    let [is_gone, is_replaced, is_lost, is_unsynced, newcomer] = marks;
    let StoredInode { row, lookups, entry, .. } = one;
    let key = FileKey { inode: row.inode, birth: UnixNanos(row.birth) };
    let known = Some(key).filter(|_| row.managed && !is_gone && !is_replaced).and_then(known);
    let unsynced = Unsynced::default();
    if is_unsynced {
        unsynced.note();
    }
    let found = Found {
        device: DeviceNumber { major: row.device.0, minor: row.device.1 },
        inode: row.inode,
        kind: kind_of(row.kind),
        ..Found::default()
    };
    let before = Before { managed: row.managed, known, unsynced, newcomer, lookups };
    let entry = register.entry(entry);
    let inode = Inode::of_row(home, row.node, row.generation.into(), key, &found, before, Some(entry));
    if is_replaced {
        inode.set_replaced();
    }
    if is_lost {
        inode.set_lost();
    }
    if is_gone {
        inode.slot.set_gone();
    }
    inode
}

impl<T: Tree> Inode<T> {
    /// Whether its place leads to it.
    async fn is_found(&self) -> bool {
        let (Some((parent, name)), Ok(home)) = (self.place(), self.home()) else { return false };
        let Ok(directory) = parent.reach().await else { return false };
        home.tree.look_in(&directory, &name).await.is_ok_and(|found| found.key() == self.key)
    }

    pub(crate) fn restore_place(&self, directory: &Arc<Self>, name: &[u8]) {
        let place = NameInDirectory::of(directory, name);
        *self.place_slot() = Some(place);
    }
}
