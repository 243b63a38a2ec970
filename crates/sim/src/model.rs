//! The model of what applications may see. Every answer and every crash is checked against it.
//!
//! All checks follow one rule: *an answer, or the state after a crash, must be the state of all files at one moment,
//! in an order of the requests that agrees with when each was asked and answered* (linearizability; for a crash, of a
//! snapshot).
//!
//! - While several requests are under way their order is open. So each file has a set of *configurations*: contents
//!   that it may have, each with the requests under way that are in it. A configuration has a write wholly or not at
//!   all (promise 3).
//! - Every request and every answer is an *event*. After a crash all files together must show the contents of one
//!   configuration each after some number of events (promise 2). That number is at least that at the start of the
//!   last sync (promise 1).
//! - Writes to the origin itself (all modes but write-back) have only the origin's promises: until the next sync each
//!   of their sectors may be there or not. They are called *loose*.

mod after_crash;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use headpond_base::BLOCK_U64;

use crate::configuration::{Configuration, Event, Moment, Mutation, MutationId, step};
use crate::content::{Content, ContentChange, WriterId, is_found_from, is_from};
use crate::flash::SECTOR;
use crate::found::Found;
use crate::origin::FileId;

/// A look does not pass over less than this: one more request costs as much.
const WORTH_A_REQUEST: u64 = 16 << 10;

#[derive(Clone, Debug, Default)]
struct FileModel {
    /// When the events start.
    base: Vec<Configuration>,
    /// Now.
    now: Vec<Configuration>,
    /// Asked but not acknowledged. Failed ones stay until a look at the file shows their fate.
    open: Vec<MutationId>,
    /// What a sync of the origin's file covered. No crash may lose direct writes from before it.
    loose_floor: Moment,
    /// Contents and changes from before a daemon's death that a power cut may still bring back, because they went to
    /// the origin and were not synced there.
    earlier: Vec<Rc<Content>>,
    earlier_changes: Vec<ContentChange>,
    /// The sizes that the file had in all of that time.
    earlier_sizes: Vec<u64>,
}

/// A read under way, with every content that the file may have had since it was asked.
#[derive(Clone, Debug)]
struct Watch {
    file: FileId,
    seen: Vec<Rc<Content>>,
    /// A change had failed in part, so the read checks nothing.
    torn: bool,
    /// No change has been under way since the read was asked: it sees the present content.
    quiet: bool,
}

/// Names a read under way.
pub(crate) type WatchId = u64;

/// The model of all files.
#[derive(Clone, Default)]
pub(crate) struct Model {
    files: BTreeMap<FileId, FileModel>,
    mutations: Vec<Mutation>,
    events: Vec<Event>,
    /// The contents that looks found.
    findings: Vec<Rc<Content>>,
    /// The number of events that no crash may go back behind.
    floor: Moment,
    /// Durable changes that were acknowledged since the last crash.
    musts: Vec<MutationId>,
    watches: BTreeMap<WatchId, Watch>,
}

impl Model {
    /// A file with this content, all of it durable.
    pub(crate) fn add_file(&mut self, file: FileId, content: Content) {
        let configuration = Configuration { content: Rc::new(content), applied: Vec::new() };
        let model = FileModel { base: vec![configuration.clone()], now: vec![configuration], ..FileModel::default() };
        self.files.insert(file, model);
    }

    /// The file is gone for good.
    pub(crate) fn remove_file(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// The files that the model knows.
    pub(crate) fn files(&self) -> Vec<FileId> {
        self.files.keys().copied().collect()
    }

    /// How many events there have been.
    pub(crate) fn moment(&self) -> Moment {
        self.events.len()
    }

    /// Changes of the file that are under way or failed.
    pub(crate) fn open_changes(&self, file: FileId) -> usize {
        self.files.get(&file).map_or(0, |model| model.open.len())
    }

    /// Whether the file has failed changes that may or may not be there.
    pub(crate) fn has_failed(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|model| model.open.iter().any(|id| self.mutations[id.0 as usize].failed))
    }

    /// The size that the file has, or one that it may have.
    pub(crate) fn some_size(&self, file: FileId) -> u64 {
        self.files.get(&file).and_then(|model| model.now.last()).map_or(0, |last| last.content.size)
    }

    /// A request for a change.
    pub(crate) fn ask(
        &mut self,
        file: FileId,
        change: ContentChange,
        mtime: i64,
        durable: bool,
        loose: bool,
    ) -> MutationId {
        let id = MutationId(self.mutations.len() as u32);
        self.mutations.push(Mutation { file, change, mtime, durable, loose, acknowledged: None, failed: false });
        self.happen(Event::Asked(id));
        id
    }

    /// The requested change.
    pub(crate) fn change(&self, id: MutationId) -> ContentChange {
        self.mutations[id.0 as usize].change
    }

    /// The mode changed while the change was under way, so it may have gone to the origin.
    pub(crate) fn make_loose(&mut self, id: MutationId) {
        self.mutations[id.0 as usize].loose = true;
    }

    /// A change is acknowledged.
    pub(crate) fn acknowledge(&mut self, id: MutationId) {
        self.happen(Event::Acknowledged(id));
        let mutation = &mut self.mutations[id.0 as usize];
        mutation.acknowledged = Some(self.events.len());
        if mutation.durable {
            self.musts.push(id);
        }
    }

    /// A change failed. It may still be there.
    pub(crate) fn fail(&mut self, id: MutationId) {
        self.mutations[id.0 as usize].failed = true;
    }

    fn happen(&mut self, event: Event) {
        self.events.push(event);
        let file = self.file_of(event);
        let Some(model) = self.files.get_mut(&file) else { return };
        step(&mut model.now, &mut model.open, event, &self.mutations, &self.findings);
        for watch in self.watches.values_mut().filter(|watch| watch.file == file) {
            watch.see(&model.now);
            watch.quiet = false;
        }
    }

    fn file_of(&self, event: Event) -> FileId {
        match event {
            Event::Asked(id) | Event::Acknowledged(id) | Event::Absent(id) => self.mutations[id.0 as usize].file,
            Event::Found(file, _) | Event::Replaced(file, _) => file,
        }
    }

    /// Whether a change failed and may be there in part: one at the origin.
    fn is_torn(&self, file: FileId) -> bool {
        let torn = |id: &MutationId| {
            let mutation = &self.mutations[id.0 as usize];
            mutation.failed && mutation.loose
        };
        self.files.get(&file).is_some_and(|model| model.open.iter().any(torn))
    }

    /// A sync of one file. Durable now: everything in the log acknowledged by `moment`, and this file's direct
    /// writes.
    pub(crate) fn synced(&mut self, file: FileId, moment: Moment) {
        self.floor = self.floor.max(moment);
        if let Some(model) = self.files.get_mut(&file) {
            model.synced(moment);
        }
    }

    /// The origin's file is durable as it was at `moment`.
    pub(crate) fn synced_at_origin(&mut self, file: FileId, moment: Moment) {
        if let Some(model) = self.files.get_mut(&file) {
            model.synced(moment);
        }
    }

    /// Whether the change was asked to be durable.
    pub(crate) fn is_durable(&self, id: MutationId) -> bool {
        self.mutations[id.0 as usize].durable
    }

    /// Everything acknowledged by `moment` is durable, except direct writes to files that are gone.
    pub(crate) fn synced_all(&mut self, moment: Moment, gone: &BTreeSet<FileId>) {
        self.floor = self.floor.max(moment);
        for (_, model) in self.files.iter_mut().filter(|(file, _)| !gone.contains(file)) {
            model.synced(moment);
        }
    }

    /// No crash may go back behind this moment: the engine's actions showed so.
    pub(crate) fn raise_floor(&mut self, moment: Moment) {
        self.floor = self.floor.max(moment);
    }

    /// The flash failed: from the last sync on, writes may have gone to the origin.
    pub(crate) fn loosen_all(&mut self) {
        for mutation in &mut self.mutations {
            mutation.loose = true;
        }
    }

    /// The order of this file's changes relative to those of others counts no more.
    pub(crate) fn loosen(&mut self, file: FileId) {
        for mutation in self.mutations.iter_mut().filter(|mutation| mutation.file == file) {
            mutation.loose = true;
        }
    }

    /// Dirty data may be damaged: the only promise left is that every byte was once written at its place.
    pub(crate) fn excuse_all(&mut self) {
        self.loosen_all();
        self.floor = 0;
        for (file, model) in &mut self.files {
            // A replacement by others stays.
            let replaced = |event: &Event| matches!(event, Event::Replaced(replaced, _) if replaced == file);
            model.loose_floor = self.events.iter().rposition(replaced).map_or(0, |at| at + 1);
        }
        self.musts.clear();
    }

    /// The file may hold its own content or another, sector by sector: the operator decided a conflict for the pool.
    pub(crate) fn mix_with(&mut self, file: FileId, other: Content) {
        if let Some(model) = self.files.get_mut(&file) {
            model.earlier_sizes.push(other.size);
            model.earlier_sizes.extend(model.now.iter().map(|configuration| configuration.content.size));
            model.earlier.push(Rc::new(other));
            model.earlier.extend(model.now.iter().map(|configuration| configuration.content.clone()));
        }
    }

    /// Changes that a crash now finds under way, or acknowledged but not synced.
    pub(crate) fn at_risk(&self) -> u64 {
        let open: usize = self.files.values().map(|model| model.open.len()).sum();
        let since = self.events.iter().skip(self.floor);
        (open + since.filter(|event| matches!(event, Event::Acknowledged(_))).count()) as u64
    }

    /// Whether no request could still be lost.
    pub(crate) fn is_all_synced(&self) -> bool {
        self.floor >= self.events.len()
    }

    /// The last moment by which all changes of `file` were acknowledged.
    pub(crate) fn last_acknowledged(&self, file: FileId) -> Moment {
        let of_file = |event: &&Event| matches!(event, Event::Acknowledged(_)) && self.file_of(**event) == file;
        self.events.iter().rev().position(|event| of_file(&event)).map_or(0, |back| self.events.len() - back)
    }

    /// The moment by which all changes were acknowledged that went to the log.
    pub(crate) fn last_logged(&self) -> Moment {
        let logged = |event: &Event| match event {
            Event::Acknowledged(id) => !self.mutations[id.0 as usize].loose,
            _ => false,
        };
        self.events.iter().rposition(logged).map_or(0, |at| at + 1)
    }

    /// A look at the file begins.
    pub(crate) fn watch(&mut self, id: WatchId, file: FileId) {
        let mut watch = Watch { file, seen: Vec::new(), torn: self.is_torn(file), quiet: false };
        if let Some(model) = self.files.get(&file) {
            watch.quiet = model.open.is_empty();
            watch.see(&model.now);
        }
        self.watches.insert(id, watch);
    }

    /// The look ended without a result.
    pub(crate) fn unwatch(&mut self, id: WatchId) {
        self.watches.remove(&id);
    }

    /// Checks a read's answer.
    pub(crate) fn check_read(&mut self, id: WatchId, offset: u64, len: u64, bytes: &Found) -> Result<(), String> {
        let Some(watch) = self.watches.remove(&id) else { return Ok(()) };
        if watch.torn || self.is_torn(watch.file) {
            return Ok(());
        }
        let differences: Vec<u64> =
            watch.seen.iter().map_while(|content| content.difference(offset, len, bytes)).collect();
        if differences.len() < watch.seen.len() || watch.seen.is_empty() {
            if watch.quiet {
                self.learn(watch.file, |content| content.difference(offset, len, bytes).is_none());
            }
            return Ok(());
        }
        let at = differences.iter().copied().max().unwrap_or(offset);
        let expected = watch.seen.last().map(|content| (content.size, content.pieces(at, at + 1)));
        Err(format!(
            "read of {:?} at {offset} for {len} gave {} bytes that no order of the requests allows: wrong at {at}: {}; expected {}",
            watch.file,
            bytes.len(),
            self.who(watch.file, bytes, at),
            expected.map_or(String::new(), |(size, pieces)| format!("{pieces:?} of a file of {size} bytes")),
        ))
    }

    /// Checks an answer with the file's size.
    pub(crate) fn check_size(&mut self, id: WatchId, size: u64) -> Result<(), String> {
        let Some(watch) = self.watches.remove(&id) else { return Ok(()) };
        if watch.torn
            || self.is_torn(watch.file)
            || watch.seen.is_empty()
            || watch.seen.iter().any(|content| content.size == size)
        {
            return Ok(());
        }
        let sizes: Vec<u64> = watch.seen.iter().map(|content| content.size).collect();
        Err(format!("{:?} has {size} bytes, an answer says; it can only be one of {sizes:?}", watch.file))
    }

    /// If no change was under way, the read decides between contents.
    fn learn(&mut self, file: FileId, fits: impl Fn(&Content) -> bool) {
        if let Some(model) = self.files.get_mut(&file)
            && model.now.len() > 1
        {
            let fitting: Vec<_> = model.now.iter().filter(|c| fits(&c.content)).cloned().collect();
            if !fitting.is_empty() {
                model.now = fitting;
            }
        }
    }

    /// The whole file was read while nothing was under way. This shows what became of failed changes.
    pub(crate) fn settle(&mut self, file: FileId, bytes: &Found) -> Result<(), String> {
        if self.is_torn(file) {
            return self.settle_torn(file, bytes);
        }
        let Some(model) = self.files.get(&file) else { return Ok(()) };
        if model.open.is_empty() {
            return self.check_whole(file, bytes);
        }
        let fitting = model.now.iter().filter(|configuration| configuration.content.is(bytes));
        let Some(found) = fitting.max_by_key(|configuration| configuration.applied.len()).cloned() else {
            return self.check_whole(file, bytes);
        };
        for id in model.open.clone() {
            let there = found.applied.contains(&id);
            self.happen(if there { Event::Acknowledged(id) } else { Event::Absent(id) });
            if there {
                self.mutations[id.0 as usize].acknowledged = Some(self.events.len());
            }
        }
        Ok(())
    }

    fn settle_torn(&mut self, file: FileId, bytes: &Found) -> Result<(), String> {
        let Some(model) = self.files.get(&file) else { return Ok(()) };
        let open = model.open.clone();
        let contents: Vec<_> = model.now.iter().map(|configuration| configuration.content.clone()).collect();
        let changes = open.iter().map(|id| self.mutations[id.0 as usize].change).collect();
        let sizes = contents.iter().map(|content| content.size).collect();
        let content = self.explain_sectors(file, bytes, &contents, changes, sizes)?;
        for id in open {
            // From now on it is part of the found content.
            self.mutations[id.0 as usize].acknowledged = Some(self.events.len() + 1);
        }
        self.findings.push(Rc::new(content));
        self.happen(Event::Found(file, self.findings.len() as u32 - 1));
        Ok(())
    }

    /// Whether the file's content, seen from outside at this moment, is possible.
    pub(crate) fn check_whole(&self, file: FileId, bytes: &Found) -> Result<(), String> {
        let Some(model) = self.files.get(&file) else { return Ok(()) };
        if model.now.iter().any(|configuration| configuration.content.is(bytes)) {
            return Ok(());
        }
        let Some(best) = model.now.last() else { return Ok(()) };
        let at = best.content.difference(0, bytes.len().max(best.content.size), bytes);
        let at = at.unwrap_or(best.content.size.min(bytes.len()));
        Err(format!(
            "{} bytes where the model has {}; first difference at {at}: found {}, expected {:?}",
            bytes.len(),
            best.content.size,
            self.who(file, bytes, at),
            best.content.pieces(at, at + 1),
        ))
    }

    /// The contents that the file may have.
    pub(crate) fn contents(&self, file: FileId) -> Vec<Rc<Content>> {
        let now = self.files.get(&file).map(|model| &model.now);
        now.into_iter().flatten().map(|configuration| configuration.content.clone()).collect()
    }

    /// The writer of the bytes at `at`, in words.
    pub(crate) fn who(&self, file: FileId, bytes: &Found, at: u64) -> String {
        let piece = &bytes.copied(at, at + 8)[..];
        if piece.is_empty() {
            return "nothing".into();
        }
        if is_from(None, at, piece) {
            return "zeros".into();
        }
        let by = self.mutations.iter().enumerate().find_map(|(id, mutation)| match mutation.change {
            ContentChange::Write { writer, .. } | ContentChange::Together { writer, .. }
                if is_from(Some(writer), at, piece) =>
            {
                Some(format!("written by {writer:?} (change {id}, {:?} of {:?})", mutation.change, mutation.file))
            }
            _ => None,
        });
        by.or_else(|| {
            (0..5000)
                .map(WriterId)
                .find(|writer| is_from(Some(*writer), at, piece))
                .map(|writer| format!("written by {writer:?}, not through the mount"))
        })
        .unwrap_or_else(|| format!("bytes {piece:02x?} that nobody wrote at this place of {file:?}"))
    }

    /// Where the file may hold something else than after the last crash: whole blocks, in order, up to beyond its end.
    /// With `crashed`, now that another one has come. `None` if that may be anywhere.
    pub(crate) fn in_question(&self, file: FileId, crashed: bool) -> Option<Vec<(u64, u64)>> {
        let model = self.files.get(&file)?;
        let [Configuration { content: base, .. }] = model.base.as_slice() else { return None };
        let mut changed = vec![last_byte(base.size)];
        let mut change = |change: &ContentChange| changed.push(reach(change));
        for event in self.events.iter().filter(|event| self.file_of(**event) == file) {
            match event {
                Event::Asked(id) => change(&self.mutations[id.0 as usize].change),
                // What was found is a mixture of what was asked for.
                Event::Acknowledged(_) | Event::Absent(_) | Event::Found(..) => {}
                Event::Replaced(..) => return None,
            }
        }
        if crashed {
            model.earlier_changes.iter().for_each(change);
            changed.extend(model.earlier.iter().flat_map(|earlier| base.differences(earlier)));
            // Where one ended the file may end again.
            changed.extend(model.earlier_sizes.iter().map(|size| last_byte(*size)));
        }
        Some(in_blocks(changed))
    }

    /// Where it is open what the file holds, as changes failed or their order is not known: whole blocks, in order, up
    /// to beyond its end.
    pub(crate) fn in_question_for_failures(&self, file: FileId) -> Option<Vec<(u64, u64)>> {
        let model = self.files.get(&file)?;
        let changes = model.open.iter().map(|id| reach(&self.mutations[id.0 as usize].change));
        let contents = || model.now.iter().map(|configuration| &configuration.content);
        let first = contents().next()?;
        let orders = contents().flat_map(|content| first.differences(content));
        let smallest = contents().map(|content| content.size).min()?;
        Some(in_blocks(changes.chain(orders).chain([last_byte(smallest)]).collect()))
    }

    /// Finds for each sector one content or change that it may come from.
    fn explain_sectors(
        &self,
        file: FileId,
        bytes: &Found,
        contents: &[Rc<Content>],
        changes: Vec<ContentChange>,
        sizes: Vec<u64>,
    ) -> Result<Content, String> {
        let size = bytes.len();
        let smallest = sizes.iter().copied().min().unwrap_or(0);
        let largest = sizes.iter().copied().max().unwrap_or(0);
        if size < smallest || size > largest {
            return Err(format!(
                "{file:?} has {size} bytes after the crash; it had from {smallest} to {largest} since the last sync"
            ));
        }
        // What was passed over is the same in all contents, and needs no cuts of its own.
        let sectors =
            |(at, part): (u64, &[u8])| (at.next_multiple_of(SECTOR as u64)..=at + part.len() as u64).step_by(SECTOR);
        let mut cuts: Vec<u64> = bytes.parts(0, size).flat_map(sectors).chain([0, smallest, size]).collect();
        for change in &changes {
            let (start, end) = change.range();
            cuts.extend([start, end]);
            cuts.extend(change.places().iter().flat_map(|(start, end)| [*start, *end]));
            if let ContentChange::Truncate { size } = change {
                cuts.push(*size);
            }
        }
        for content in contents {
            cuts.extend(content.pieces(0, size).iter().map(|(start, _, _)| *start));
        }
        // Bytes of others, over which the pool is kept, end where the file once did; so do those of a write that
        // failed. Nothing of today's content need begin or end there.
        let of_file = self.mutations.iter().filter(|mutation| mutation.file == file);
        cuts.extend(of_file.map(|mutation| match mutation.change {
            ContentChange::Truncate { size } => size,
            change => change.range().1,
        }));
        cuts.retain(|cut| *cut <= size);
        cuts.sort_unstable();
        cuts.dedup();
        let mut result = Content::of(WriterId(0), 0);
        result.size = size;
        for pair in cuts.windows(2) {
            let (start, end) = (pair[0], pair[1]);
            let by_change = |change: &ContentChange| {
                let (from, to) = change.range();
                match change {
                    ContentChange::Write { writer, .. } | ContentChange::Together { writer, .. }
                        if from <= start && end <= to =>
                    {
                        Some(Some(*writer))
                    }
                    ContentChange::Truncate { size } if *size <= start => Some(None),
                    ContentChange::Zero { .. } if from <= start && end <= to => Some(None),
                    _ => None,
                }
            };
            let of_contents = contents.iter().map(|content| content.writer_at(start));
            let beyond = (start >= smallest).then_some(None);
            let writers = of_contents.chain(changes.iter().filter_map(by_change)).chain(beyond);
            let Some(writer) = writers.clone().find(|writer| is_found_from(*writer, start, end, bytes)) else {
                let allowed: Vec<Option<WriterId>> = writers.collect();
                return Err(format!(
                    "{file:?} after the crash, bytes {start}..{end}: found {}; allowed are {allowed:?}",
                    self.who(file, bytes, start)
                ));
            };
            result.put_behind(start, end, writer);
        }
        Ok(result)
    }

    /// Replaces the model of a file that was changed from outside.
    pub(crate) fn replace(&mut self, file: FileId, content: Content) {
        self.findings.push(Rc::new(content));
        self.happen(Event::Replaced(file, self.findings.len() as u32 - 1));
        self.floor = self.events.len();
        if let Some(model) = self.files.get_mut(&file) {
            model.synced(self.floor);
        }
    }
}

impl FileModel {
    fn synced(&mut self, moment: Moment) {
        self.loose_floor = self.loose_floor.max(moment);
        self.earlier.clear();
        self.earlier_changes.clear();
        self.earlier_sizes.clear();
    }
}

impl Watch {
    fn see(&mut self, configurations: &[Configuration]) {
        for configuration in configurations {
            if !self.seen.iter().any(|seen| Rc::ptr_eq(seen, &configuration.content)) {
                self.seen.push(configuration.content.clone());
            }
        }
    }
}

/// The bytes that a change may change.
fn reach(change: &ContentChange) -> (u64, u64) {
    match change {
        ContentChange::Truncate { size } => (*size, u64::MAX),
        change => change.range(),
    }
}

/// From the last byte of a file on: reading there tells how long it is.
const fn last_byte(size: u64) -> (u64, u64) {
    (size.saturating_sub(1), u64::MAX)
}

/// Whole blocks with all of these ranges, in order, and with gaps that are worth a request.
fn in_blocks(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    for (from, to) in &mut ranges {
        *from = *from / BLOCK_U64 * BLOCK_U64;
        *to = to.checked_next_multiple_of(BLOCK_U64).unwrap_or(u64::MAX);
    }
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let close = next.0 <= last.1.saturating_add(WORTH_A_REQUEST);
        if close {
            last.1 = last.1.max(next.1);
        }
        close
    });
    ranges
}
