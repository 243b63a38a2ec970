//! The simulated origin's directories: names, hard links, numbers, and what a power cut leaves of them.
//!
//! Keeps true:
//! - A change of names is one step. It is there wholly or not at all, now and after a power cut.
//! - *Live* names are those that programs see. *Durable* names are the least that a power cut leaves. Changes in
//!   between survive one by one, in any order with these exceptions: a change comes after earlier ones of the same
//!   entries, the same file, the same inode number, and of directories that it needs; a renamed or removed directory
//!   comes after all earlier changes.
//! - The file system decides what a sync makes durable ([`Reach`]).
//! - Inode numbers are used again as soon as they are free, with another birth time.
//!
//! Contents, times and modes of all files, directories among them, are [`SimOrigin`]'s.

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{Errno, Result};
use headpond_timed::Rng;

use crate::origin::{FileId, Name, SimOrigin};

/// The names that a sync of a file makes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// All, and a power cut leaves a prefix of the changes: a journal.
    Journal,
    /// All of this file's.
    Own,
    /// None: the directories need a sync of their own.
    Nothing,
}

/// A directory and a name in it.
pub(crate) type NameSlot = (FileId, Name);

/// What to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    File,
    Directory,
}

/// What a rename does with the holder of the new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    number: u64,
    /// Descriptors of all kinds.
    open: u32,
    links: u32,
}

/// A thing that an earlier and a later change may have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Concern {
    Slot(NameSlot),
    Node(FileId),
    Number(u64),
}

/// A change of names that a power cut may take back.
#[derive(Clone, Debug)]
struct Pending {
    order: u64,
    /// What the slots hold after it.
    slots: Vec<(NameSlot, Option<FileId>)>,
    concerns: BTreeSet<Concern>,
    /// It comes after all earlier changes and before all later ones.
    alone: bool,
}

/// The directories.
#[derive(Clone)]
pub(crate) struct Tree {
    reach: Reach,
    nodes: BTreeMap<FileId, Node>,
    live: BTreeMap<NameSlot, FileId>,
    durable: BTreeMap<NameSlot, FileId>,
    pending: Vec<Pending>,
    next: u64,
    root: FileId,
    /// The entry of each name. An open by the name keeps its entry, wherever the name moves.
    entries: BTreeMap<NameSlot, TreeEntry>,
    next_entry: u64,
    /// What slots got, and when, for the check after a power cut.
    given: Vec<(u64, NameSlot, Option<FileId>)>,
}

/// A name that stays the same when it moves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TreeEntry(u64);

impl Tree {
    /// An empty root.
    pub(crate) fn new(reach: Reach, origin: &mut SimOrigin) -> Self {
        let root = origin.make(2, 0o755);
        let node = Node { kind: Kind::Directory, number: 2, open: 1, links: 1 };
        Self {
            reach,
            nodes: BTreeMap::from([(root, node)]),
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            pending: Vec::new(),
            next: 1,
            root,
            entries: BTreeMap::new(),
            next_entry: 1,
            given: Vec::new(),
        }
    }

    pub(crate) const fn root(&self) -> FileId {
        self.root
    }

    /// What has a name.
    pub(crate) fn at(&self, directory: FileId, name: &[u8]) -> Option<FileId> {
        self.live.get(&(directory, name.to_vec())).copied()
    }

    pub(crate) fn kind(&self, id: FileId) -> Option<Kind> {
        self.nodes.get(&id).map(|node| node.kind)
    }

    #[cfg(test)]
    pub(crate) fn number(&self, id: FileId) -> Option<u64> {
        self.nodes.get(&id).map(|node| node.number)
    }

    pub(crate) fn links(&self, id: FileId) -> u32 {
        self.nodes.get(&id).map_or(0, |node| node.links)
    }

    /// All names, of everything.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&NameSlot, FileId)> {
        self.live.iter().map(|(slot, id)| (slot, *id))
    }

    /// The holder of a name, and the name's entry.
    pub(crate) fn entry(&self, directory: FileId, name: &[u8]) -> Option<(FileId, TreeEntry)> {
        let slot = (directory, name.to_vec());
        self.live.get(&slot).copied().zip(self.entries.get(&slot).copied())
    }

    /// The present path of an entry below the root, if it exists.
    pub(crate) fn path_by(&self, entry: TreeEntry) -> Option<Vec<u8>> {
        let ((directory, name), _) = self.entries.iter().find(|(_, there)| **there == entry)?;
        self.path_in(*directory, name)
    }

    /// The directory of an entry.
    pub(crate) fn directory_by(&self, entry: TreeEntry) -> Option<FileId> {
        self.entries.iter().find(|(_, there)| **there == entry).map(|((directory, _), _)| *directory)
    }

    pub(crate) const fn reach(&self) -> Reach {
        self.reach
    }

    /// A moment that nothing else has.
    pub(crate) const fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// What slots got since the last call.
    pub(crate) fn take_given(&mut self) -> Vec<(u64, NameSlot, Option<FileId>)> {
        std::mem::take(&mut self.given)
    }

    /// The names in a directory.
    pub(crate) fn entries(&self, directory: FileId) -> impl Iterator<Item = (&Name, FileId)> {
        let of = move |(slot, _): &(&NameSlot, &FileId)| slot.0 == directory;
        self.live.range((directory, Vec::new())..).take_while(of).map(|(slot, id)| (&slot.1, *id))
    }

    /// A name of a file, the first of several.
    pub(crate) fn slot_of(&self, id: FileId) -> Option<&NameSlot> {
        self.live.iter().find(|(_, named)| **named == id).map(|(slot, _)| slot)
    }

    /// A path of a file below the root.
    pub(crate) fn path_of(&self, id: FileId) -> Option<Vec<u8>> {
        let (directory, name) = self.slot_of(id)?;
        self.path_in(*directory, name)
    }

    /// The path of a name in a directory.
    pub(crate) fn path_in(&self, directory: FileId, name: &[u8]) -> Option<Vec<u8>> {
        let mut path = name.to_vec();
        let mut at = directory;
        while at != self.root {
            let (above, name) = self.slot_of(at)?;
            path = [name, &b"/"[..], &path].concat();
            at = *above;
        }
        Some(path)
    }

    /// The files, not the directories, that have a name.
    pub(crate) fn files(&self) -> BTreeSet<FileId> {
        self.live.values().copied().filter(|id| self.kind(*id) == Some(Kind::File)).collect()
    }

    /// A file with this number that has a name.
    pub(crate) fn by_number(&self, number: u64) -> Option<FileId> {
        let named = |id: &FileId| self.live.values().any(|named| named == id);
        let ids: Vec<FileId> = self.nodes.iter().filter(|(_, node)| node.number == number).map(|(id, _)| *id).collect();
        ids.into_iter().find(named)
    }

    /// One more descriptor, or one less.
    pub(crate) fn count_open(&mut self, id: FileId, more: bool, origin: &mut SimOrigin) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if more {
            node.open += 1;
        } else {
            node.open = node.open.checked_sub(1).expect("closed as often as it was opened");
            self.collect(origin);
        }
    }

    /// Descriptors of everything but the root.
    pub(crate) fn all_open(&self) -> u32 {
        self.nodes.iter().filter(|(id, _)| **id != self.root).map(|(_, node)| node.open).sum()
    }

    /// Makes something.
    pub(crate) fn make(
        &mut self,
        directory: FileId,
        name: &[u8],
        kind: Kind,
        mode: u32,
        origin: &mut SimOrigin,
    ) -> Result<FileId> {
        self.check_directory(directory)?;
        let slot = (directory, name.to_vec());
        if self.live.contains_key(&slot) {
            return Err(Errno(17));
        }
        let taken: BTreeSet<u64> =
            self.nodes.values().filter(|node| node.links > 0 || node.open > 0).map(|node| node.number).collect();
        let number = (11..).find(|number| !taken.contains(number)).unwrap_or(11);
        let id = origin.make(number, mode);
        self.nodes.insert(id, Node { kind, number, open: 0, links: 1 });
        self.change(vec![(slot, Some(id))], &[id, directory], false);
        origin.touch_status(directory);
        Ok(id)
    }

    /// Adds a name.
    pub(crate) fn link(&mut self, id: FileId, directory: FileId, name: &[u8], origin: &mut SimOrigin) -> Result<()> {
        self.check_directory(directory)?;
        let slot = (directory, name.to_vec());
        if self.live.contains_key(&slot) {
            return Err(Errno(17));
        }
        let node = self.nodes.get_mut(&id).ok_or(Errno::NOENT)?;
        if node.kind == Kind::Directory {
            return Err(Errno(1));
        }
        if node.links == 0 {
            return Err(Errno::NOENT);
        }
        node.links += 1;
        self.change(vec![(slot, Some(id))], &[id, directory], false);
        origin.touch_status(id);
        origin.touch_status(directory);
        Ok(())
    }

    /// Removes a name: of a directory, or of anything else.
    pub(crate) fn unlink(&mut self, directory: FileId, name: &[u8], kind: Kind, origin: &mut SimOrigin) -> Result<()> {
        let id = self.at(directory, name).ok_or(Errno::NOENT)?;
        match (kind, self.kind(id)) {
            (Kind::File, Some(Kind::Directory)) => return Err(Errno(21)),
            (Kind::Directory, Some(Kind::File)) => return Err(Errno(20)),
            (Kind::Directory, _) if self.entries(id).next().is_some() => return Err(Errno(39)),
            _ => {}
        }
        self.lose_link(id);
        self.change(vec![((directory, name.to_vec()), None)], &[id, directory], kind == Kind::Directory);
        origin.touch_status(id);
        origin.touch_status(directory);
        self.collect(origin);
        Ok(())
    }

    /// Renames.
    pub(crate) fn rename(&mut self, from: &NameSlot, to: &NameSlot, over: Over, origin: &mut SimOrigin) -> Result<()> {
        self.check_directory(to.0)?;
        let moved = self.at(from.0, &from.1).ok_or(Errno::NOENT)?;
        let target = self.at(to.0, &to.1);
        let is_directory = self.kind(moved) == Some(Kind::Directory);
        if is_directory && self.is_below(to.0, moved) {
            return Err(Errno::INVAL);
        }
        match (over, target) {
            (Over::NoReplace, Some(_)) => return Err(Errno(17)),
            (Over::Exchange, None) => return Err(Errno::NOENT),
            (_, Some(target)) if target == moved => return Ok(()),
            (Over::Exchange, Some(target)) => {
                let other_is_directory = self.kind(target) == Some(Kind::Directory);
                if other_is_directory && self.is_below(from.0, target) {
                    return Err(Errno::INVAL);
                }
                let slots = vec![(from.clone(), Some(target)), (to.clone(), Some(moved))];
                self.change(slots, &[moved, target, from.0, to.0], is_directory || other_is_directory);
                origin.touch_status(target);
            }
            (_, target) => {
                if let Some(target) = target {
                    match (is_directory, self.kind(target) == Some(Kind::Directory)) {
                        (true, false) => return Err(Errno(20)),
                        (false, true) => return Err(Errno(21)),
                        (true, true) if self.entries(target).next().is_some() => return Err(Errno(39)),
                        _ => {}
                    }
                    self.lose_link(target);
                }
                let concerned: Vec<FileId> = [moved, from.0, to.0].into_iter().chain(target).collect();
                self.change(vec![(from.clone(), None), (to.clone(), Some(moved))], &concerned, is_directory);
                if let Some(target) = target {
                    origin.touch_status(target);
                }
            }
        }
        origin.touch_status(moved);
        origin.touch_status(from.0);
        origin.touch_status(to.0);
        self.collect(origin);
        Ok(())
    }

    fn lose_link(&mut self, id: FileId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.links -= 1;
        }
    }

    fn check_directory(&self, id: FileId) -> Result<()> {
        let node = self.nodes.get(&id).ok_or(Errno::NOENT)?;
        if node.kind == Kind::File {
            return Err(Errno(20));
        }
        if node.links == 0 { Err(Errno::NOENT) } else { Ok(()) }
    }

    fn is_below(&self, mut id: FileId, above: FileId) -> bool {
        loop {
            if id == above {
                return true;
            }
            match self.slot_of(id) {
                Some((directory, _)) => id = *directory,
                None => return false,
            }
        }
    }

    /// Makes a change of names that concerns these files.
    fn change(&mut self, slots: Vec<(NameSlot, Option<FileId>)>, of: &[FileId], alone: bool) {
        let mut concerns: BTreeSet<Concern> = slots.iter().map(|(slot, _)| Concern::Slot(slot.clone())).collect();
        for id in of {
            let Some(node) = self.nodes.get(id) else { continue };
            // A directory's entries stand by themselves.
            if node.kind == Kind::File || slots.iter().any(|(_, named)| *named == Some(*id)) {
                concerns.extend([Concern::Node(*id), Concern::Number(node.number)]);
            }
        }
        // A directory is made before its entries.
        concerns.extend(slots.iter().map(|(slot, _)| Concern::Node(slot.0)).filter(|concern| {
            let made = |pending: &Pending| {
                pending.slots.iter().any(|(_, named)| named.is_some_and(|id| Concern::Node(id) == *concern))
            };
            self.pending.iter().any(made)
        }));
        self.move_entries(&slots);
        put(&mut self.live, &slots);
        self.given.extend(slots.iter().map(|(slot, id)| (self.next, slot.clone(), *id)));
        self.pending.push(Pending { order: self.next, slots, concerns, alone });
        self.next += 1;
    }

    /// Names that move keep their entries. New names get one.
    fn move_entries(&mut self, slots: &[(NameSlot, Option<FileId>)]) {
        let before: Vec<(FileId, TreeEntry)> =
            slots.iter().filter_map(|(slot, _)| self.entry(slot.0, &slot.1)).collect();
        for (slot, id) in slots {
            self.entries.remove(slot);
            let Some(id) = id else { continue };
            let moved = before.iter().find(|(there, _)| there == id).filter(|_| slots.len() > 1);
            let entry = moved.map_or(TreeEntry(self.next_entry), |(_, entry)| *entry);
            self.next_entry += 1;
            self.entries.insert(slot.clone(), entry);
        }
    }

    /// A sync begins: it reaches the changes up to now.
    pub(crate) const fn start_sync(&self) -> u64 {
        self.next
    }

    /// A sync of a file that began then is done.
    pub(crate) fn file_synced(&mut self, id: FileId, began: u64) {
        match self.reach {
            Reach::Journal => self.commit(|pending| pending.order < began),
            Reach::Own => self.commit_of(&Concern::Node(id), began),
            Reach::Nothing => {}
        }
    }

    /// The same for a directory.
    pub(crate) fn directory_synced(&mut self, id: FileId, began: u64) {
        if self.reach == Reach::Journal {
            return self.commit(|pending| pending.order < began);
        }
        self.commit_where(|pending| pending.order < began && pending.slots.iter().any(|(slot, _)| slot.0 == id));
        self.commit_of(&Concern::Node(id), began);
    }

    /// Everything is durable.
    pub(crate) fn all_synced(&mut self) {
        self.commit(|_| true);
    }

    fn commit_of(&mut self, concern: &Concern, began: u64) {
        self.commit_where(|pending| pending.order < began && pending.concerns.contains(concern));
    }

    /// Commits these, and what must come before them.
    fn commit_where(&mut self, wanted: impl Fn(&Pending) -> bool) {
        let chosen: BTreeSet<u64> =
            self.pending.iter().filter(|pending| wanted(pending)).map(|pending| pending.order).collect();
        let closed = self.with_earlier(chosen);
        self.commit(|pending| closed.contains(&pending.order));
    }

    /// These changes and all that must come before them.
    fn with_earlier(&self, mut chosen: BTreeSet<u64>) -> BTreeSet<u64> {
        let mut concerns: BTreeSet<&Concern> = BTreeSet::new();
        let mut all = false;
        for pending in self.pending.iter().rev() {
            let needed = chosen.contains(&pending.order)
                || all
                || pending.alone && !chosen.is_empty() && chosen.last().is_some_and(|last| *last > pending.order)
                || pending.concerns.iter().any(|concern| concerns.contains(concern));
            if needed {
                chosen.insert(pending.order);
                concerns.extend(&pending.concerns);
                all |= pending.alone;
            }
        }
        chosen
    }

    fn commit(&mut self, which: impl Fn(&Pending) -> bool) {
        let durable = &mut self.durable;
        self.pending.retain(|pending| {
            let commits = which(pending);
            if commits {
                put(durable, &pending.slots);
            }
            !commits
        });
    }

    /// The power of the origin's host fails.
    pub(crate) fn power_cut(&mut self, rng: &mut Rng, origin: &mut SimOrigin) {
        let survives = match self.reach {
            Reach::Journal => {
                let count = rng.below(self.pending.len() as u64 + 1) as usize;
                self.pending.iter().take(count).map(|pending| pending.order).collect()
            }
            _ => {
                let share = *rng.pick(&[0, 300, 500, 800, 1000]);
                self.pending.iter().filter(|_| rng.chance(share)).map(|pending| pending.order).collect()
            }
        };
        let survives = self.with_earlier(survives);
        self.commit(|pending| survives.contains(&pending.order));
        self.pending.clear();
        self.live.clone_from(&self.durable);
        self.entries = (self.next_entry..)
            .map(TreeEntry)
            .zip(self.live.keys())
            .map(|(entry, slot)| (slot.clone(), entry))
            .collect();
        self.next_entry += self.live.len() as u64;
        for (id, node) in &mut self.nodes {
            node.links = self.live.values().filter(|named| *named == id).count() as u32;
            node.open = u32::from(*id == self.root);
            node.links += u32::from(*id == self.root);
        }
        self.collect(origin);
    }

    /// All holders of descriptors are gone.
    pub(crate) fn daemon_killed(&mut self, origin: &mut SimOrigin) {
        for (id, node) in &mut self.nodes {
            node.open = u32::from(*id == self.root);
        }
        self.collect(origin);
    }

    /// Drops what no program can see any more, whatever happens.
    fn collect(&mut self, origin: &mut SimOrigin) {
        let mut kept: BTreeSet<FileId> = self.durable.values().copied().collect();
        kept.extend(self.pending.iter().flat_map(|pending| pending.slots.iter().filter_map(|(_, named)| *named)));
        self.nodes.retain(|id, node| {
            let stays = node.links > 0 || node.open > 0 || kept.contains(id);
            if !stays {
                origin.drop_kept(*id);
            }
            stays
        });
    }
}

fn put(names: &mut BTreeMap<NameSlot, FileId>, slots: &[(NameSlot, Option<FileId>)]) {
    for (slot, named) in slots {
        match named {
            Some(id) => names.insert(slot.clone(), *id),
            None => names.remove(slot),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::SpaceKind;

    fn tree(reach: Reach) -> (Tree, SimOrigin) {
        let mut origin = SimOrigin::new(100, SpaceKind::Keeps, true);
        (Tree::new(reach, &mut origin), origin)
    }

    /// The names below the root after power cuts, with every possible outcome.
    fn after_cuts(tree: &Tree, origin: &SimOrigin) -> BTreeSet<Vec<Vec<u8>>> {
        let mut rng = Rng::new(1);
        let cut = |_| {
            let (mut tree, mut origin) = (tree.clone(), origin.clone());
            tree.power_cut(&mut rng, &mut origin);
            tree.entries(tree.root()).map(|(name, _)| name.clone()).collect()
        };
        (0..200).map(cut).collect()
    }

    fn all(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_sync_of_a_file_reaches_all_names_or_its_own_or_none() {
        for (reach, surely) in
            [(Reach::Journal, all(&["a", "b"])), (Reach::Own, all(&["b"])), (Reach::Nothing, all(&[]))]
        {
            let (mut tree, mut origin) = tree(reach);
            let root = tree.root();
            tree.make(root, b"a", Kind::File, 0o644, &mut origin).unwrap();
            let b = tree.make(root, b"b", Kind::File, 0o644, &mut origin).unwrap();
            let began = tree.start_sync();
            tree.make(root, b"c", Kind::File, 0o644, &mut origin).unwrap();
            tree.file_synced(b, began);
            let seen = after_cuts(&tree, &origin);
            assert!(seen.contains(&surely), "{reach:?}: {seen:?}");
            assert!(seen.iter().all(|names| surely.iter().all(|name| names.contains(name))), "{reach:?}: {seen:?}");
            let began = tree.start_sync();
            tree.directory_synced(root, began);
            assert_eq!(after_cuts(&tree, &origin), BTreeSet::from([all(&["a", "b", "c"])]));
        }
    }

    #[test]
    fn a_rename_is_whole_and_changes_of_one_file_keep_their_order() {
        let (mut tree, mut origin) = tree(Reach::Nothing);
        let root = tree.root();
        let a = tree.make(root, b"a", Kind::File, 0o644, &mut origin).unwrap();
        tree.all_synced();
        tree.link(a, root, b"b", &mut origin).unwrap();
        tree.unlink(root, b"a", Kind::File, &mut origin).unwrap();
        tree.rename(&(root, b"b".to_vec()), &(root, b"c".to_vec()), Over::Replace, &mut origin).unwrap();
        let expected = [all(&["a"]), all(&["a", "b"]), all(&["b"]), all(&["c"])];
        assert_eq!(after_cuts(&tree, &origin), BTreeSet::from(expected));
    }

    #[test]
    fn what_is_in_a_directory_goes_with_it() {
        let (mut tree, mut origin) = tree(Reach::Nothing);
        let root = tree.root();
        let d = tree.make(root, b"d", Kind::Directory, 0o755, &mut origin).unwrap();
        tree.make(d, b"f", Kind::File, 0o644, &mut origin).unwrap();
        let mut rng = Rng::new(2);
        for _ in 0..100 {
            let (mut tree, mut origin) = (tree.clone(), origin.clone());
            tree.power_cut(&mut rng, &mut origin);
            assert!(tree.at(root, b"d").is_some() || tree.names().next().is_none());
        }
    }

    #[test]
    fn a_number_is_free_when_the_last_descriptor_of_a_nameless_file_is_closed() {
        let (mut tree, mut origin) = tree(Reach::Journal);
        let root = tree.root();
        let a = tree.make(root, b"a", Kind::File, 0o644, &mut origin).unwrap();
        tree.count_open(a, true, &mut origin);
        tree.unlink(root, b"a", Kind::File, &mut origin).unwrap();
        let b = tree.make(root, b"b", Kind::File, 0o644, &mut origin).unwrap();
        assert_ne!(tree.number(a), tree.number(b));
        tree.count_open(a, false, &mut origin);
        let c = tree.make(root, b"c", Kind::File, 0o644, &mut origin).unwrap();
        assert_eq!(tree.number(c), Some(11));
        assert!(origin.identity(c).unwrap().birth > origin.identity(b).unwrap().birth);
    }
}
