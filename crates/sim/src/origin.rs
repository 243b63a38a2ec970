//! The simulated origin: a flat directory of files on a journaling file system.
//!
//! Keeps true:
//! - Applications' view (*live*) and the state after a power cut (*durable*) are kept apart. A sync of a file makes
//!   the changes durable that were complete when it was issued. It also commits the journal: all directory changes
//!   until then, as on ext4 and XFS.
//! - After a power cut a file's size and times are those of some moment since its last sync. Each data page that was
//!   not synced is by itself kept or lost. Directory changes survive as a prefix of their order.
//! - A failed sync may lose what destage wrote since the last good one, with its size. It keeps what went there past
//!   the pool.
//! - Space is limited, and counted in blocks for each file. Punched and cut-off blocks become free: at once, or with
//!   the file's next sync if the file system writes nothing in place.
//! - Inode numbers are used again as soon as they are free, with another birth time.

mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{BLOCK, BLOCK_U64, Buf, Errno, Result, UnixNanos};
use headpond_format::{FileIdentity, Identity, Stamp};
use headpond_timed::{FileBytes, Rng};

use crate::found::Found;

use volumes::Volume;

/// How the file system handles space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpaceKind {
    /// It keeps the space that it reserved.
    Keeps,
    /// It reserves nothing: a write takes what it needs.
    KeepsNone,
    /// The same, and it writes nothing in place: overwritten blocks become free with the next sync.
    CopyOnWrite,
}

impl SpaceKind {
    /// The kind of a seed, drawn separately so that the rest of the seed stays what it was.
    pub(crate) fn of(seed: u64) -> Self {
        match Rng::for_part(seed, u64::MAX - 5).below(10) {
            0..6 => Self::Keeps,
            6..8 => Self::KeepsNone,
            _ => Self::CopyOnWrite,
        }
    }
}

/// Names a file for the whole run, even if another file gets its inode number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FileId(pub(crate) u32);

/// A name in the directory.
pub(crate) type Name = Vec<u8>;

/// What a sync covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    changes: u64,
    names: u64,
}

/// A change of a file's data.
#[derive(Clone, Debug)]
pub(crate) enum OriginChange {
    /// Writes bytes, one piece after the other.
    Write { offset: u64, data: Vec<Buf> },
    /// Makes a range zeros; the size stays.
    Zero { offset: u64, len: u64 },
    /// Sets the size.
    Resize { size: u64 },
    /// Sets times.
    Times { mtime: i64 },
}

#[derive(Clone, Debug)]
struct Unsynced {
    change: OriginChange,
    after: Stamp,
    mode: u32,
    /// Destage wrote it, so the pool has it until a sync has succeeded.
    by_destage: bool,
}

#[derive(Clone, Debug)]
struct File {
    inode: u64,
    birth: i64,
    live: FileBytes,
    stamp: Stamp,
    /// Its permissions. Only names/ looks at them.
    mode: u32,
    durable: FileBytes,
    durable_stamp: Stamp,
    durable_mode: u32,
    unsynced: Vec<Unsynced>,
    /// How many changes became durable and left `unsynced` at its front.
    synced: u64,
    allocated: BTreeSet<u64>,
    /// Changes whose bytes a sync has reached. A file system that writes nothing in place writes them elsewhere.
    settled: BTreeSet<u64>,
    /// Blocks that become free with the next sync.
    held: u64,
    written: BTreeSet<u64>,
    open: bool,
    /// Its names are kept above, in a tree of directories, which also decides when it goes.
    kept_above: bool,
    volume: Option<Volume>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(Name, FileId),
    Unlink(Name),
    Rename(Name, Name),
}

/// The origin.
#[derive(Clone)]
pub(crate) struct SimOrigin {
    files: BTreeMap<FileId, File>,
    names: BTreeMap<Name, FileId>,
    durable_names: BTreeMap<Name, FileId>,
    journal: Vec<NameChange>,
    /// How many directory changes were committed and left the journal at its front.
    committed: u64,
    next_file: u32,
    capacity_blocks: u64,
    /// The most blocks that files may take, whatever is free: a quota that no figure shows.
    quota_blocks: Option<u64>,
    /// The last figure of free blocks that it gave.
    told_free: Option<u64>,
    kind: SpaceKind,
    /// Whether the file system keeps birth times.
    births: bool,
    /// It keeps them, and one kernel tells them, and the next one does not: whether this one does.
    told: Option<bool>,
    /// Without birth times: a number went to another file since everything was durable.
    number_again: bool,
    /// Wall-clock time. Grows with each change, so that no two changes share a time unless it has steps.
    clock: i64,
    /// The step of its times.
    step: i64,
}

impl SimOrigin {
    /// An empty directory with room for `capacity_blocks`.
    pub(crate) fn new(capacity_blocks: u64, kind: SpaceKind, births: bool) -> Self {
        Self {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            journal: Vec::new(),
            committed: 0,
            next_file: 0,
            capacity_blocks,
            quota_blocks: None,
            told_free: None,
            kind,
            births,
            told: None,
            number_again: false,
            clock: 1_000_000,
            step: 1000,
        }
    }

    /// One kernel tells birth times, and the next one does not. This one does not.
    pub(crate) const fn tell_births_by_turns(&mut self) {
        (self.births, self.told) = (false, Some(false));
    }

    /// Another kernel runs.
    pub(crate) fn has_another_kernel(&mut self) {
        self.told = self.told.map(|told| !told);
    }

    fn tick(&mut self) -> UnixNanos {
        self.clock += 1000;
        UnixNanos(self.clock / self.step * self.step)
    }

    /// From now on times have steps of `step` nanoseconds.
    pub(crate) const fn tell_time_in(&mut self, step: i64) {
        self.step = step;
    }

    /// The time now, for applications' requests.
    pub(crate) fn now(&mut self) -> UnixNanos {
        self.tick()
    }

    /// The present names.
    pub(crate) fn names(&self) -> &BTreeMap<Name, FileId> {
        &self.names
    }

    /// Makes an empty file, live at once.
    pub(crate) fn create(&mut self, name: &[u8]) -> FileId {
        let id = FileId(self.next_file);
        self.next_file += 1;
        let taken: BTreeSet<u64> = self
            .files
            .iter()
            .filter(|(id, file)| file.open || self.names.values().any(|named| named == *id))
            .map(|(_, file)| file.inode)
            .collect();
        let inode = (11..).find(|inode| !taken.contains(inode)).unwrap_or(11);
        self.enter(id, inode, false);
        self.change_names(NameChange::Link(name.to_vec(), id));
        id
    }

    /// Makes an empty file with this inode number, whose names are kept above.
    pub(crate) fn make(&mut self, inode: u64, mode: u32) -> FileId {
        let id = FileId(self.next_file);
        self.next_file += 1;
        self.enter(id, inode, true);
        if let Some(file) = self.files.get_mut(&id) {
            (file.mode, file.durable_mode) = (mode, mode);
        }
        id
    }

    fn enter(&mut self, id: FileId, inode: u64, kept_above: bool) {
        let now = self.tick();
        self.number_again |= !self.births && self.files.values().any(|file| file.inode == inode);
        let stamp = Stamp { size: 0, mtime: now, ctime: now };
        // Finer than the times that programs see: the file system itself tells files apart by it.
        let birth = if self.births || self.told.is_some() { self.clock } else { 0 };
        let file = File {
            inode,
            birth,
            live: FileBytes::empty(),
            stamp,
            mode: 0o644,
            durable: FileBytes::empty(),
            durable_stamp: stamp,
            durable_mode: 0o644,
            unsynced: Vec::new(),
            synced: 0,
            allocated: BTreeSet::new(),
            settled: BTreeSet::new(),
            held: 0,
            written: BTreeSet::new(),
            open: false,
            kept_above,
            volume: None,
        };
        self.files.insert(id, file);
    }

    /// Whether a power cut may leave one file in place of another with its number and no birth time.
    pub(crate) const fn may_confuse_files(&self) -> bool {
        self.number_again
    }

    /// A file whose names were kept above is gone.
    pub(crate) fn drop_kept(&mut self, id: FileId) {
        self.files.remove(&id);
    }

    /// The mode of a file.
    pub(crate) fn mode(&self, id: FileId) -> Result<u32> {
        self.file(id).map(|file| file.mode)
    }

    /// Sets the mode of a file.
    pub(crate) fn set_mode(&mut self, id: FileId, mode: u32) {
        if let Some(file) = self.files.get_mut(&id) {
            file.mode = mode;
        }
        self.touch_status(id);
    }

    fn file(&self, id: FileId) -> Result<&File> {
        self.files.get(&id).ok_or(Errno::BADF)
    }

    /// Inode number and birth time, as far as this kernel tells it.
    pub(crate) fn identity(&self, id: FileId) -> Result<FileIdentity> {
        let told = self.told.unwrap_or(true);
        let birth = |file: &File| if told { UnixNanos(file.birth) } else { FileIdentity::NO_BIRTH };
        self.file(id).map(|file| FileIdentity { inode: file.inode, birth: birth(file) })
    }

    /// For a file that was known by a birth time which this kernel does not tell: whether it is the same file.
    pub(crate) fn is_told_no_more(&self, id: FileId, before: Identity) -> Option<bool> {
        let (file, before) = (self.files.get(&id)?, before.file()?);
        (self.told == Some(false) && !before.lacks_birth()).then_some(file.birth == before.birth.0)
    }

    /// A name of the file.
    pub(crate) fn name_of(&self, id: FileId) -> Option<&Name> {
        self.names.iter().find(|(_, named)| **named == id).map(|(name, _)| name)
    }

    /// Size and times.
    pub(crate) fn stamp(&self, id: FileId) -> Result<Stamp> {
        self.file(id).map(|file| file.stamp)
    }

    /// Bytes from 0 on that certainly have space.
    pub(crate) fn allocated_front(&self, id: FileId) -> u64 {
        let Some(file) = self.files.get(&id) else { return 0 };
        (0..).find(|block| !file.allocated.contains(block)).unwrap_or(0) * BLOCK_U64
    }

    /// Keeps the file from vanishing with its last name, or lets it go.
    pub(crate) fn set_open(&mut self, id: FileId, open: bool) {
        if let Some(file) = self.files.get_mut(&id) {
            file.open = open;
        }
    }

    /// Changes the status only, as chmod does.
    pub(crate) fn touch_status(&mut self, id: FileId) {
        let now = self.tick();
        if let Some(file) = self.files.get_mut(&id) {
            file.stamp.ctime = now;
            let after = file.stamp;
            let change = OriginChange::Times { mtime: after.mtime.0 };
            file.unsynced.push(Unsynced { change, after, mode: file.mode, by_destage: false });
        }
    }

    /// Free blocks, as the file system reports them. If it writes nothing in place: as of its last complete
    /// transaction.
    pub(crate) fn told_free_blocks(&mut self, complete: bool) -> u64 {
        let free = self.free_blocks();
        let told = self.told_free.get_or_insert(free);
        if complete || self.kind != SpaceKind::CopyOnWrite {
            *told = free;
        }
        *told
    }

    /// Blocks that no file has.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.capacity_blocks.saturating_sub(self.used_blocks())
    }

    fn used_blocks(&self) -> u64 {
        self.files
            .iter()
            .filter(|(_, file)| file.volume.is_none())
            .filter(|(id, file)| file.open || file.kept_above || self.names.values().any(|named| named == *id))
            .map(|(_, file)| file.allocated.len() as u64 + file.held)
            .sum()
    }

    /// From now on files may take only this many more blocks. `None`: as many as are free.
    pub(crate) fn set_quota(&mut self, more: Option<u64>) {
        self.quota_blocks = more.map(|more| self.used_blocks() + more);
    }

    /// Whether `wanted` blocks are free.
    fn has_room(&self, wanted: u64) -> Result<()> {
        let used = self.used_blocks();
        if wanted > self.capacity_blocks.saturating_sub(used) {
            return Err(Errno::NOSPC);
        }
        // A file system above the quota may keep what it has.
        if wanted > 0 && self.quota_blocks.is_some_and(|most| used + wanted > most) {
            Err(Errno::DQUOT)
        } else {
            Ok(())
        }
    }

    /// Reserves space.
    pub(crate) fn reserve(&mut self, id: FileId, offset: u64, len: u64) -> Result<()> {
        let file = self.file(id)?;
        let wanted: Vec<u64> = blocks(offset, len).filter(|block| !file.allocated.contains(block)).collect();
        self.has_room(wanted.len() as u64)?;
        let file = self.files.get_mut(&id).ok_or(Errno::BADF)?;
        let moves = !wanted.is_empty();
        file.allocated.extend(wanted);
        if moves {
            // An unseen change of the file: the time is put back.
            self.touch_status(id);
        }
        Ok(())
    }

    /// A crash interrupts a reservation: the space may be there, and the file's time was not put back.
    pub(crate) fn reserve_in_part(&mut self, id: FileId, ranges: &[(u64, u64)], rng: &mut Rng) {
        let asked = rng.chance(500);
        let keeps = self.kind == SpaceKind::Keeps;
        if !asked || keeps && ranges.iter().any(|(from, to)| self.reserve(id, *from, to - from).is_err()) {
            return;
        }
        if rng.chance(500) {
            let mtime = self.tick().0;
            self.change(id, OriginChange::Times { mtime }).ok();
        }
    }

    /// The origin reserves nothing. The call may have moved the file's time, which is then put back: as ext4 does for a
    /// file without extents. Returns the stamp after that.
    pub(crate) fn refuse(&mut self, id: FileId, rng: &mut Rng) -> Option<Stamp> {
        if !rng.chance(300) {
            return None;
        }
        self.touch_status(id);
        self.stamp(id).ok()
    }

    /// There is no space for a reservation: it may have changed the file's time all the same.
    pub(crate) fn touch_in_vain(&mut self, id: FileId, rng: &mut Rng) {
        if rng.chance(300) {
            let mtime = self.tick().0;
            self.change(id, OriginChange::Times { mtime }).ok();
        }
    }

    /// There is no space for a write: what comes first of it may be there.
    pub(crate) fn fill_up(&mut self, id: FileId, write: &OriginChange, rng: &mut Rng) {
        let OriginChange::Write { offset, data } = write else { return };
        for (at, page) in pages(*offset, data) {
            if !rng.chance(700) || self.change(id, OriginChange::Write { offset: at, data: page }).is_err() {
                return;
            }
        }
    }

    /// How it treats space.
    pub(crate) const fn kind(&self) -> SpaceKind {
        self.kind
    }

    /// All blocks.
    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity_blocks
    }

    /// The blocks from one on that have space, as far as there is no hole.
    pub(crate) fn allocated_from(&self, id: FileId, offset: u64) -> (u64, u64) {
        let first = offset / BLOCK_U64;
        let Some(file) = self.files.get(&id) else { return (offset, offset) };
        let end = (first..).find(|block| !file.allocated.contains(block)).unwrap_or(first);
        (first * BLOCK_U64, end * BLOCK_U64)
    }

    /// Makes a range zeros that keeps its space.
    pub(crate) fn blank(&mut self, id: FileId, offset: u64, len: u64) -> Result<()> {
        let kept: Vec<u64> = self.file(id)?.allocated.iter().copied().collect();
        let held = self.file(id)?.held;
        self.change(id, OriginChange::Zero { offset, len })?;
        if self.kind == SpaceKind::Keeps {
            let file = self.files.get_mut(&id).ok_or(Errno::BADF)?;
            file.allocated = kept.into_iter().collect();
            file.held = held;
        }
        Ok(())
    }

    /// What a write needs besides what the file has, where nothing is written in place.
    fn written_elsewhere(&mut self, id: FileId, offset: u64, len: u64) -> Result<()> {
        let file = self.file(id)?;
        let again: Vec<u64> = blocks(offset, len).filter(|block| file.settled.contains(block)).collect();
        let new = blocks(offset, len).filter(|block| !file.allocated.contains(block)).count();
        self.has_room((again.len() + new) as u64)?;
        let file = self.files.get_mut(&id).ok_or(Errno::BADF)?;
        file.held += again.len() as u64;
        file.settled.retain(|block| !again.contains(block));
        Ok(())
    }

    /// Makes a change.
    pub(crate) fn change(&mut self, id: FileId, change: OriginChange) -> Result<()> {
        if let OriginChange::Write { offset, data } = &change
            && !self.is_volume(id)
        {
            if self.kind == SpaceKind::CopyOnWrite {
                self.written_elsewhere(id, *offset, length(data))?;
            }
            self.reserve(id, *offset, length(data))?;
        }
        let now = self.tick();
        let file = self.files.get_mut(&id).ok_or(Errno::BADF)?;
        make(&mut file.live, &change);
        let mtime = if let OriginChange::Times { mtime } = &change { UnixNanos(*mtime) } else { now };
        match &change {
            OriginChange::Write { offset, data } => file.written.extend(blocks(*offset, length(data))),
            OriginChange::Zero { offset, len } => {
                let inner = offset.div_ceil(BLOCK_U64)..(offset + len) / BLOCK_U64;
                file.held += file.settled.iter().filter(|block| inner.contains(block)).count() as u64;
                file.settled.retain(|block| !inner.contains(block));
                file.allocated.retain(|block| !inner.contains(block));
                file.written.retain(|block| !inner.contains(block));
            }
            // A file that grows keeps what was reserved beyond its end.
            OriginChange::Resize { size } if *size > file.stamp.size => {}
            OriginChange::Resize { size } => {
                let end = size.div_ceil(BLOCK_U64);
                file.allocated.split_off(&end);
                file.held += file.settled.split_off(&end).len() as u64;
                file.written.retain(|block| *block < end);
            }
            OriginChange::Times { .. } => {}
        }
        file.stamp = Stamp { size: file.live.len(), mtime, ctime: now };
        file.unsynced.push(Unsynced { change, after: file.stamp, mode: file.mode, by_destage: false });
        Ok(())
    }

    /// Reads; shorter at the end.
    pub(crate) fn read(&self, id: FileId, offset: u64, len: usize) -> Result<Buf> {
        self.file(id).map(|file| file.live.read(offset, len))
    }

    /// All live bytes.
    pub(crate) fn live(&self, id: FileId) -> Result<Found> {
        self.file(id).map(|file| Found::at(0, file.live.views()))
    }

    /// All durable bytes.
    pub(crate) fn durable(&self, id: FileId) -> Result<Found> {
        self.file(id).map(|file| Found::at(0, file.durable.views()))
    }

    /// Finds data or a hole.
    pub(crate) fn seek(&self, id: FileId, offset: u64, data: bool) -> Result<u64> {
        let file = self.file(id)?;
        let size = file.live.len();
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let found = (offset / BLOCK_U64..size.div_ceil(BLOCK_U64)).find(|block| file.written.contains(block) == data);
        match found {
            Some(block) => Ok((block * BLOCK_U64).max(offset)),
            None if data => Err(Errno::NXIO),
            None => Ok(size),
        }
    }

    /// How far a sync that is issued now will reach: give it to [`SimOrigin::finish_sync`].
    pub(crate) fn start_sync(&self, id: FileId) -> Reach {
        let file = self.files.get(&id);
        Reach {
            changes: file.map_or(0, |file| file.synced + file.unsynced.len() as u64),
            names: self.committed + self.journal.len() as u64,
        }
    }

    /// A sync completes. Others may have completed in between and taken some of it along.
    pub(crate) fn finish_sync(&mut self, id: FileId, reach: Reach) {
        if let Some(file) = self.files.get_mut(&id) {
            let count = (reach.changes.saturating_sub(file.synced) as usize).min(file.unsynced.len());
            for Unsynced { change, after, mode, .. } in file.unsynced.drain(..count) {
                make(&mut file.durable, &change);
                (file.durable_stamp, file.durable_mode) = (after, mode);
            }
            file.synced += count as u64;
            if self.kind == SpaceKind::CopyOnWrite {
                // Even if the sync does not reach all: what it does not reach is in place all the same.
                file.held = 0;
                file.settled = file.written.clone();
            }
        }
        self.commit_journal(reach.names);
    }

    /// The last change of a file was destage's.
    pub(crate) fn was_destaged(&mut self, id: FileId) {
        let last = self.files.get_mut(&id).and_then(|file| file.unsynced.last_mut());
        last.into_iter().for_each(|last| last.by_destage = true);
    }

    /// A sync failed, and the file system has let go of what it could not write: of each write of destage since the
    /// last good sync a front of it is left, and with the rest goes the size that it made.
    pub(crate) fn lose_destaged(&mut self, id: FileId, rng: &mut Rng) {
        let Some(file) = self.files.get_mut(&id) else { return };
        file.live.clone_from(&file.durable);
        for Unsynced { change, after, by_destage, .. } in &mut file.unsynced {
            if *by_destage
                && let OriginChange::Write { data, .. } = change
                && rng.chance(700)
            {
                let bytes: u64 = data.iter().map(|piece| piece.len() as u64).sum();
                let mut left = if rng.chance(500) { 0 } else { rng.below(bytes) / BLOCK_U64 * BLOCK_U64 };
                for piece in data.iter_mut() {
                    let kept = left.min(piece.len() as u64);
                    *piece = piece.slice(0..kept as usize);
                    left -= kept;
                }
                data.retain(|piece| !piece.is_empty());
                if data.is_empty() {
                    // Not taken out: syncs under way count what they reach.
                    *change = OriginChange::Times { mtime: after.mtime.0 };
                }
            }
            make(&mut file.live, change);
            after.size = file.live.len();
        }
        file.stamp.size = file.live.len();
    }

    /// The directory is synced.
    pub(crate) fn sync_directory(&mut self) {
        self.commit_journal(u64::MAX);
    }

    /// Makes everything durable.
    pub(crate) fn sync_all(&mut self) {
        self.number_again = false;
        let ids: Vec<FileId> = self.files.keys().copied().collect();
        for id in ids {
            self.finish_sync(id, Reach { changes: u64::MAX, names: u64::MAX });
        }
    }

    fn commit_journal(&mut self, through: u64) {
        let count = (through.saturating_sub(self.committed) as usize).min(self.journal.len());
        for change in self.journal.drain(..count) {
            rename(&mut self.durable_names, &change);
        }
        self.committed += count as u64;
    }

    fn change_names(&mut self, change: NameChange) {
        rename(&mut self.names, &change);
        self.journal.push(change);
    }

    /// Renames, over another file if there is one.
    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Stamp>> {
        let id = *self.names.get(from).ok_or(Errno::NOENT)?;
        if let Some(replaced) = self.names.get(to).copied() {
            self.touch_status(replaced);
        }
        self.change_names(NameChange::Rename(from.to_vec(), to.to_vec()));
        self.touch_status(id);
        self.stamp(id).map(Some)
    }

    /// Removes a name.
    pub(crate) fn unlink(&mut self, name: &[u8]) -> Result<()> {
        let id = *self.names.get(name).ok_or(Errno::NOENT)?;
        self.change_names(NameChange::Unlink(name.to_vec()));
        self.touch_status(id);
        Ok(())
    }

    /// All users of open files are gone; files without a name go.
    pub(crate) fn daemon_killed(&mut self) {
        for file in self.files.values_mut() {
            file.open = false;
        }
        let kept: BTreeSet<FileId> = self.names.values().chain(self.durable_names.values()).copied().collect();
        // Files in the middle of the journal may come back at a power cut, too.
        let linked: BTreeSet<FileId> = self
            .journal
            .iter()
            .filter_map(|change| if let NameChange::Link(_, id) = change { Some(*id) } else { None })
            .collect();
        self.files.retain(|id, file| file.kept_above || kept.contains(id) || linked.contains(id));
    }

    /// Whether a power cut may take something back.
    pub(crate) fn has_unsynced(&self) -> bool {
        !self.journal.is_empty() || self.files.values().any(|file| !file.unsynced.is_empty())
    }

    /// The power of the origin's host fails.
    pub(crate) fn power_cut(&mut self, rng: &mut Rng) {
        let survives = rng.below(self.journal.len() as u64 + 1);
        self.commit_journal(self.committed + survives);
        self.journal.clear();
        self.names.clone_from(&self.durable_names);
        for file in self.files.values_mut() {
            file.open = false;
            let metadata = rng.below(file.unsynced.len() as u64 + 1) as usize;
            let style = rng.below(4);
            for (index, Unsynced { change, after, mode, .. }) in
                std::mem::take(&mut file.unsynced).into_iter().enumerate()
            {
                let seen = index < metadata;
                if seen {
                    (file.durable_stamp, file.durable_mode) = (after, mode);
                }
                match change {
                    OriginChange::Resize { .. } if !seen => {}
                    OriginChange::Write { offset, data } => {
                        for (at, page) in pages(offset, &data) {
                            if style == 0 || style > 1 && rng.chance(500) {
                                file.durable.put(at, &page);
                            }
                        }
                    }
                    OriginChange::Zero { .. } if !rng.chance(500) => {}
                    other => make(&mut file.durable, &other),
                }
            }
            file.durable.resize(file.durable_stamp.size);
            file.live.clone_from(&file.durable);
            (file.stamp, file.mode) = (file.durable_stamp, file.durable_mode);
            // Space that a cut or a hole gave back is taken again where the old data is back;
            // what never had data has none for it.
            file.written = file.live.with_data().collect();
            file.allocated.extend(&file.written);
            file.held = 0;
            file.settled = if self.kind == SpaceKind::CopyOnWrite { file.written.clone() } else { BTreeSet::new() };
        }
        let named: BTreeSet<FileId> = self.names.values().copied().collect();
        self.files.retain(|id, file| file.kept_above || named.contains(id));
    }

    /// In-flight changes of a daemon that was killed: done, not done, or done for some pages.
    pub(crate) fn change_in_part(&mut self, id: FileId, change: OriginChange, rng: &mut Rng) {
        match (rng.below(3), change) {
            (0, _) => {}
            (1, OriginChange::Write { offset, data }) => {
                for (at, page) in pages(offset, &data) {
                    if rng.chance(500) {
                        self.change(id, OriginChange::Write { offset: at, data: page }).ok();
                    }
                }
            }
            (_, change) => {
                self.change(id, change).ok();
            }
        }
    }
}

fn blocks(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / BLOCK_U64..(offset + len).div_ceil(BLOCK_U64)
}

/// How many bytes pieces are.
fn length(pieces: &[Buf]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// Pieces, cut where blocks of the file begin.
fn pages(offset: u64, pieces: &[Buf]) -> Vec<(u64, Vec<Buf>)> {
    let mut pages: Vec<(u64, Vec<Buf>)> = Vec::new();
    let mut place = offset;
    for piece in pieces {
        let mut at = 0;
        while at < piece.len() {
            let take = (BLOCK - (place % BLOCK_U64) as usize).min(piece.len() - at);
            let part = piece.slice(at..at + take);
            match pages.last_mut() {
                Some((_, parts)) if !place.is_multiple_of(BLOCK_U64) => parts.push(part),
                _ => pages.push((place, vec![part])),
            }
            at += take;
            place += take as u64;
        }
    }
    pages
}

fn make(bytes: &mut FileBytes, change: &OriginChange) {
    match change {
        OriginChange::Write { offset, data } => bytes.put(*offset, data),
        OriginChange::Zero { offset, len } => bytes.clear(*offset, *len),
        OriginChange::Resize { size } => bytes.resize(*size),
        OriginChange::Times { .. } => {}
    }
}

fn rename(names: &mut BTreeMap<Name, FileId>, change: &NameChange) {
    match change {
        NameChange::Link(name, id) => {
            names.insert(name.clone(), *id);
        }
        NameChange::Unlink(name) => {
            names.remove(name);
        }
        NameChange::Rename(from, to) => {
            if let Some(id) = names.remove(from) {
                names.insert(to.clone(), id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
