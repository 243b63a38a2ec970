//! One run: the front door that sends requests. `answers.rs` checks the answers.

mod answers;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use headpond_base::{Buf, BufMut, CacheMode, CopyLoss, Errno, ObjectId, RECORD_BYTES_MAX};
use headpond_engine::{FlushId, FlushScope, Handling, Namespace, OpenFile, OpenObject, Request, RequestId, Treatment};
use headpond_format::FileIdentity;
use headpond_timed::Rng;

use crate::configuration::{Moment, MutationId};
use crate::content::{Content, ContentChange, WriterId, fill};
use crate::model::Model;
use crate::origin::{FileId, Name, SpaceKind};
use crate::roster::{Change, Roster};
use crate::scenario::{Options, Scenario, USER};
use crate::synced_here::SyncedHere;
use crate::thoroughness::Thoroughness;
use crate::under_test::Maker;
use crate::world::{NameOperation, World};

/// What the front door waits for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Open {
        file: FileId,
    },
    Close {
        file: FileId,
    },
    Read {
        file: FileId,
        offset: u64,
        len: u64,
        keep: bool,
    },
    Change {
        file: FileId,
        id: MutationId,
        asked_at: Moment,
        direct: bool,
    },
    Sync {
        file: FileId,
        moment: Moment,
        copies: Option<u8>,
    },
    SyncAll {
        moment: Moment,
        files: Vec<FileId>,
    },
    Seek {
        file: FileId,
        offset: u64,
        data: bool,
        asked_at: Option<Moment>,
    },
    Names {
        moved: Option<Moment>,
    },
    /// Of these files, or of all.
    Flush {
        moment: Moment,
        files: Option<BTreeSet<FileId>>,
    },
    CancelFlush,
    SetMode {
        mode: CacheMode,
    },
    Stop {
        moment: Moment,
    },
    StatusBegins {
        file: FileId,
    },
    StatusEnds,
    Configure,
    /// `mirrors`: when it began, all dirty data had two copies, and bits rotted on one member alone.
    Scrub {
        mirrors: bool,
    },
    CancelScrub,
    /// Another list of members.
    Members {
        change: Change,
    },
    /// The findings of a start are durable.
    Settled,
}

/// A file, as the front door knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Door {
    pub(crate) object: Option<ObjectId>,
    pub(crate) handles: u32,
    pub(crate) opening: u32,
    /// Requests under way that need a handle.
    pub(crate) busy: u32,
    /// A sync, or a durable write, was answered: the file exists for good.
    pub(crate) anchored: bool,
    /// The removal of its last name was requested.
    pub(crate) unlinked: bool,
    /// A change of its status is under way.
    pub(crate) changing: bool,
}

/// A change of a file's status, which the engine has allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusChange {
    file: FileId,
    made: bool,
}

/// A run.
pub(crate) struct Sim<'a> {
    pub(crate) scenario: Scenario,
    pub(crate) options: &'a Options,
    pub(crate) maker: &'a dyn Maker,
    pub(crate) world: World,
    pub(crate) model: Model,
    pub(crate) doors: BTreeMap<FileId, Door>,
    pub(crate) requests: BTreeMap<RequestId, Asked>,
    pub(crate) status_changes: Vec<StatusChange>,
    /// The status change times in answers. A file is not in it if answers may have shown an older time.
    pub(crate) seen_ctimes: BTreeMap<FileId, i64>,
    pub(crate) next_request: u64,
    pub(crate) next_writer: u32,
    /// The place of the last write, in runs where the next one overlaps it.
    pub(crate) last_write: (u64, u64),
    pub(crate) mode: CacheMode,
    /// The mode is changing, or a change of it failed.
    pub(crate) mode_open: bool,
    pub(crate) stopping: bool,
    /// The last stop succeeded.
    pub(crate) stopped_well: bool,
    /// The bytes of reads with `keep`, and the errors of failed ones.
    pub(crate) kept: BTreeMap<RequestId, Result<Vec<Buf>, Errno>>,
    pub(crate) summary: crate::HistorySums,
    /// Dirty data may be damaged: clear errors are allowed from now on.
    pub(crate) damaged: bool,
    /// How often the origin's host has come up again.
    pub(crate) boots: u64,
    /// The last host batch that any daemon reported as durable.
    pub(crate) durable_host_batch: u64,
    /// The boots at the last complete start, if the findings of that start are durable.
    pub(crate) settled_boots: Option<u64>,
    /// The run ends here: what follows could not be judged.
    pub(crate) over: bool,
    pub(crate) thoroughness: Thoroughness,
    /// After a crash: files are being read whose content the model does not know yet.
    pub(crate) observing: bool,
    /// At this start, the pool's data of this file won over a change from outside.
    pub(crate) kept_over: Option<FileId>,
    /// Files whose status the mount changed without telling the engine.
    pub(crate) status_unsaid: BTreeSet<FileId>,
    /// The last file that a front door let go of and has forgotten.
    pub(crate) just_let_go: Option<FileId>,
    /// Files that others removed.
    pub(crate) meddled_away: BTreeSet<FileId>,
    /// What memory that outlives the process promises, since the process died and until it is on flash.
    pub(crate) outlived: Option<Moment>,
    /// A daemon has ended, and nobody has looked at the files since.
    pub(crate) unseen_end: bool,
    /// What is known of the members.
    pub(crate) roster: Roster,
    /// Deaths of the process, by themselves, so that all else of a seed stays what it was.
    pub(crate) deaths: Rng,
    /// Decides when a host is lost with all its flashes.
    pub(crate) host_deaths: Rng,
    /// Decides when a start is tried with fewer devices.
    pub(crate) fewer: Rng,
    pub(crate) synced_here: SyncedHere,
}

impl<'a> Sim<'a> {
    pub(crate) fn new(seed: u64, scenario: Scenario, options: &'a Options, maker: &'a dyn Maker) -> Self {
        Self {
            world: World::new(&scenario, seed, options.verbose),
            mode: scenario.config.mode,
            scenario,
            options,
            maker,
            model: Model::default(),
            doors: BTreeMap::new(),
            requests: BTreeMap::new(),
            status_changes: Vec::new(),
            seen_ctimes: BTreeMap::new(),
            next_request: 1,
            next_writer: 1,
            last_write: (0, 1),
            mode_open: false,
            stopping: false,
            stopped_well: false,
            kept: BTreeMap::new(),
            summary: crate::HistorySums::default(),
            damaged: false,
            boots: 0,
            durable_host_batch: 0,
            settled_boots: None,
            over: false,
            thoroughness: Thoroughness::new(seed, options.whole_looks),
            observing: false,
            kept_over: None,
            status_unsaid: BTreeSet::new(),
            just_let_go: None,
            meddled_away: BTreeSet::new(),
            outlived: None,
            unseen_end: false,
            roster: Roster::default(),
            deaths: Rng::for_part(seed, u64::MAX - 15),
            host_deaths: Rng::for_part(seed, u64::MAX - 25),
            fewer: Rng::for_part(seed, u64::MAX - 27),
            synced_here: SyncedHere::new(seed, options.copies),
        }
    }

    /// A number that no write has had.
    pub(crate) const fn writer(&mut self) -> WriterId {
        self.next_writer += 1;
        WriterId(self.next_writer)
    }

    pub(crate) fn ask(&mut self, asked: Asked, request: Request) -> Result<RequestId, String> {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.world.trace(|| format!("ask   {id:?} {asked:?} {}", short(&request)));
        match &asked {
            Asked::Open { file } if !self.observing => self.model.watch(id.0, *file),
            Asked::Read { file, keep: false, .. } => self.model.watch(id.0, *file),
            Asked::Change { file, .. } => self.model.watch(id.0, *file),
            _ => {}
        }
        if let Some(door) = busy_file(&asked).and_then(|file| self.doors.get_mut(&file)) {
            door.busy += 1;
        }
        let change = if let Asked::Change { id, .. } = asked { Some(id) } else { None };
        self.requests.insert(id, asked);
        self.world.submit(id, request)?;
        if let Some(change) = change.filter(|_| self.world.passes_by == Some(true)) {
            self.model.make_loose(change);
        }
        self.note_names();
        self.note_let_go();
        self.answers()?;
        Ok(id)
    }

    /// Whether writes go to the log and keep their order there.
    pub(crate) fn is_strict(&self) -> bool {
        matches!(self.mode, CacheMode::WriteBack)
            && !self.mode_open
            && self.world.injected.flash_write == 0
            && !self.world.may_pass_by()
    }

    /// What the front door tells the engine about a file at the origin.
    pub(crate) fn describe(&mut self, file: FileId, created: bool) -> Option<OpenObject> {
        if let Some(volume) = self.world.origin.volume(file) {
            return Some(volume.into());
        }
        let FileIdentity { inode, birth } = self.world.origin.identity(file).ok()?;
        let path = self.world.origin.name_of(file).cloned().unwrap_or_default();
        let front = self.world.origin.allocated_front(file);
        let keeps = self.world.origin.kind() == SpaceKind::Keeps;
        let allocated = if self.world.rng.chance(500) && keeps { front } else { 0 };
        let stamp = self.world.origin.stamp(file).ok()?;
        Some(OpenFile { inode, birth, path, stamp, created, allocated }.into())
    }

    /// Opens a file of the origin.
    pub(crate) fn open(&mut self, file: FileId, created: bool) -> Result<(), String> {
        let Some(open) = self.describe(file, created) else { return Ok(()) };
        let door = self.doors.entry(file).or_default();
        door.opening += 1;
        self.world.origin.set_open(file, true);
        self.world.opening.insert(RequestId(self.next_request), file);
        self.ask(Asked::Open { file }, Request::Open(open)).map(|_| ())
    }

    /// Makes a file and opens it.
    pub(crate) fn create(&mut self, name: &Name) -> Result<(), String> {
        let file = self.world.origin.create(name);
        self.world.trace(|| format!("make  {file:?} {}", String::from_utf8_lossy(name)));
        self.model.add_file(file, Content::default());
        self.open(file, true)
    }

    pub(crate) fn close(&mut self, file: FileId) -> Result<(), String> {
        let Some((object, door)) = self.object(file) else { return Ok(()) };
        door.handles -= 1;
        self.ask(Asked::Close { file }, Request::Close { object }).map(|_| ())
    }

    fn object(&mut self, file: FileId) -> Option<(ObjectId, &mut Door)> {
        let door = self.doors.get_mut(&file)?;
        let object = door.object.filter(|_| door.handles > 0)?;
        Some((object, door))
    }

    /// Reads, at most as much as a request may. With `keep` the bytes are put aside unchecked.
    pub(crate) fn read(
        &mut self,
        file: FileId,
        offset: u64,
        len: u64,
        keep: bool,
        how: Treatment,
    ) -> Result<Option<RequestId>, String> {
        let Some((object, _)) = self.object(file) else { return Ok(None) };
        let len = len.min(RECORD_BYTES_MAX as u64);
        let request = Request::Read { object, offset, len: len as u32, how };
        self.ask(Asked::Read { file, offset, len, keep }, request).map(Some)
    }

    /// Changes a file.
    pub(crate) fn change(
        &mut self,
        file: FileId,
        change: ContentChange,
        durable: bool,
        how: Treatment,
    ) -> Result<(), String> {
        let mtime = self.world.origin.now();
        let Some((object, _)) = self.object(file) else { return Ok(()) };
        let request = match change {
            ContentChange::Write { offset, len, writer } => {
                let mut data = BufMut::unwritten(len as usize);
                fill(writer, offset, &mut data);
                Request::Write { object, offset, data: data.freeze(), mtime, durable, how }
            }
            ContentChange::Together { writer, .. } => {
                let piece = |(start, end): (u64, u64)| {
                    let mut data = BufMut::unwritten((end - start) as usize);
                    fill(writer, start, &mut data);
                    (start, data.freeze())
                };
                let pieces = change.places().into_iter().map(piece).collect();
                Request::WriteTogether { object, pieces, mtime, durable, how }
            }
            ContentChange::Truncate { size } => Request::Truncate { object, size, mtime },
            ContentChange::Zero { offset, len, extend } => Request::Zero { object, offset, len, extend, mtime },
            ContentChange::Allocate { offset, len, extend } => {
                Request::Allocate { object, offset, len, extend, mtime, user: USER }
            }
        };
        let asked_at = self.model.moment();
        let write = matches!(change, ContentChange::Write { .. });
        let direct = write && !matches!(how.handling, Handling::Cache | Handling::Whole);
        // A request that waits for the engine's start may turn out to be part of a stream that bypasses the pool.
        let waits = self.world.core.as_ref().is_none_or(|core| core.sequential_writes().is_none());
        let cutoff = self.scenario.config.sequential_cutoff.is_some() && how.handling != Handling::Whole;
        let may_stream = write && !durable && cutoff;
        let loose = !self.is_strict() || direct || may_stream && waits;
        let id = self.model.ask(file, change, mtime.0, durable, loose);
        self.ask(Asked::Change { file, id, asked_at, direct }, request).map(|_| ())
    }

    pub(crate) fn sync(&mut self, file: FileId) -> Result<(), String> {
        let moment = self.model.moment();
        let Some((object, _)) = self.object(file) else { return Ok(()) };
        let copies = self.synced_here.copies();
        self.ask(Asked::Sync { file, moment, copies }, Request::Sync { object, copies }).map(|_| ())
    }

    pub(crate) fn sync_all(&mut self) -> Result<(), String> {
        let files = self.doors.iter().filter(|(_, door)| door.handles > 0).map(|(file, _)| *file).collect();
        self.ask(Asked::SyncAll { moment: self.model.moment(), files }, Request::SyncAll).map(|_| ())
    }

    /// Flushes everything.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        let asked = Asked::Flush { moment: self.model.moment(), files: None };
        self.ask(asked, Request::Flush { id: FlushId(0), scope: FlushScope::All }).map(|_| ())
    }

    /// Flushes one file.
    pub(crate) fn flush_file(&mut self, file: FileId, id: FlushId) -> Result<(), String> {
        let Some(object) = self.known(file) else { return Ok(()) };
        let asked = Asked::Flush { moment: self.model.moment(), files: Some(BTreeSet::from([file])) };
        self.ask(asked, Request::Flush { id, scope: FlushScope::Objects(BTreeSet::from([object])) }).map(|_| ())
    }

    /// Cancels the flushes with this id.
    pub(crate) fn cancel_flush(&mut self, id: FlushId) -> Result<(), String> {
        self.ask(Asked::CancelFlush, Request::CancelFlush(id)).map(|_| ())
    }

    pub(crate) fn stop(&mut self) -> Result<(), String> {
        self.stopping = true;
        self.stopped_well = false;
        self.ask(Asked::Stop { moment: self.model.moment() }, Request::Stop).map(|_| ())
    }

    pub(crate) fn set_mode(&mut self, mode: CacheMode) -> Result<(), String> {
        self.mode_open = true;
        for asked in self.requests.values() {
            if let Asked::Change { id, .. } = asked {
                self.model.make_loose(*id);
            }
        }
        self.ask(Asked::SetMode { mode }, Request::SetMode(mode)).map(|_| ())
    }

    /// Changes settings while everything runs. They survive the next start.
    pub(crate) fn configure(&mut self, rng: &mut Rng) -> Result<(), String> {
        let mut config = self.scenario.config;
        self.scenario.change_settings(&mut config, rng);
        self.scenario.config = config;
        self.world.trace(|| format!("set   {config:?}"));
        self.ask(Asked::Configure, Request::Configure(Box::new(config))).map(|_| ())
    }

    pub(crate) fn seek(&mut self, file: FileId, offset: u64, data: bool) -> Result<(), String> {
        let asked_at = (self.model.open_changes(file) == 0).then(|| self.model.moment());
        let Some((object, _)) = self.object(file) else { return Ok(()) };
        self.ask(Asked::Seek { file, offset, data, asked_at }, Request::Seek { object, offset, data }).map(|_| ())
    }

    /// chmod: asks the engine, changes the origin, then reports to the engine. As in a mount there is one at a time,
    /// and meanwhile no request opens the file or changes its names.
    pub(crate) fn chmod(&mut self, file: FileId) -> Result<(), String> {
        if self.is_opening(file) || self.names_busy() {
            return Ok(());
        }
        let Some((object, door)) = self.object(file) else { return Ok(()) };
        door.changing = true;
        self.ask(Asked::StatusBegins { file }, Request::StatusBegins { object }).map(|_| ())
    }

    /// The next step of an allowed change of status.
    fn change_status(&mut self) -> Result<(), String> {
        let index = self.world.rng.below(self.status_changes.len() as u64) as usize;
        let StatusChange { file, made } = self.status_changes[index];
        if !made {
            if self.world.rng.chance(900) {
                self.world.trace(|| format!("chmod {file:?}"));
                self.world.origin.touch_status(file);
            }
            self.status_changes[index].made = true;
            return Ok(());
        }
        self.status_changes.remove(index);
        self.doors.entry(file).or_default().changing = false;
        let stamp = self.world.origin.stamp(file).ok().filter(|_| self.world.rng.chance(900));
        let Some(object) = self.known(file) else { return Ok(()) };
        self.ask(Asked::StatusEnds, Request::StatusEnds { object, stamp }).map(|_| ())
    }

    /// Whether a directory operation is under way: the directory's lock lets only one through.
    pub(crate) fn names_busy(&self) -> bool {
        self.requests.values().any(|asked| matches!(asked, Asked::Names { .. }))
    }

    /// Whether the file is being opened, so that its object is not known yet. As in a mount, changes of the directory
    /// that concern it wait for that. Otherwise the engine would not hear of them.
    pub(crate) fn is_opening(&self, file: FileId) -> bool {
        self.doors.get(&file).is_some_and(|door| door.opening > 0 || door.changing)
    }

    /// The object by which the engine knows the file or knew it, open or not.
    fn known(&self, file: FileId) -> Option<ObjectId> {
        self.doors.get(&file).and_then(|door| door.object)
    }

    pub(crate) fn rename(&mut self, from: &Name, to: &Name) -> Result<(), String> {
        let names = self.world.origin.names();
        let (Some(moving), replacing) = (names.get(from).copied(), names.get(to).copied()) else { return Ok(()) };
        if self.is_opening(moving) || replacing.is_some_and(|file| self.is_opening(file)) {
            return Ok(());
        }
        let (moved, replaced) = (self.known(moving), replacing.and_then(|file| self.known(file)));
        if let Some(file) = replacing {
            self.doors.entry(file).or_default().unlinked = true;
        }
        if moved.is_none() && self.scenario.forgets {
            self.seen_ctimes.remove(&moving);
            self.status_unsaid.insert(moving);
        }
        if moved.is_none() && replaced.is_none() && self.scenario.forgets {
            return self.world.origin.rename(from, to).map(|_| ()).map_err(|error| error.to_string());
        }
        // The moved file's data must be safe before its new name shows. Only the log promises that.
        let strict = moved.is_some() && self.is_strict();
        let data = strict.then(|| self.model.last_acknowledged(moving));
        let request = Namespace::Rename { moved, replaced, from: from.clone(), to: to.clone(), exchange: false };
        let operation = NameOperation::Rename(from.clone(), to.clone());
        self.ask_names(Asked::Names { moved: data }, operation, request)
    }

    pub(crate) fn unlink(&mut self, name: &Name) -> Result<(), String> {
        let Some(file) = self.world.origin.names().get(name).copied() else { return Ok(()) };
        if self.is_opening(file) {
            return Ok(());
        }
        self.doors.entry(file).or_default().unlinked = true;
        match self.known(file) {
            Some(object) => self.ask_names(
                Asked::Names { moved: None },
                NameOperation::Unlink(name.clone()),
                Namespace::Unlink { object },
            ),
            None => self.world.origin.unlink(name).map_err(|error| error.to_string()),
        }
    }

    fn ask_names(&mut self, asked: Asked, operation: NameOperation, change: Namespace) -> Result<(), String> {
        self.world.names.insert(RequestId(self.next_request), operation);
        self.ask(asked, Request::Namespace(change)).map(|_| ())
    }

    fn note_names(&mut self) {
        for id in std::mem::take(&mut self.world.names_started) {
            if let Some(Asked::Names { moved: Some(moment) }) = self.requests.get(&id)
                && self.is_strict()
            {
                self.model.raise_floor(*moment);
            }
        }
    }

    /// Acts as a mount that remembers no more files: it forgets everything that the engine lets go of.
    fn note_let_go(&mut self) {
        for (object, file) in std::mem::take(&mut self.world.let_go) {
            let door = self.doors.get_mut(&file).filter(|_| self.scenario.forgets);
            if let Some(door) = door.filter(|door| door.object == Some(object) && door.handles == 0 && !door.changing) {
                door.object = None;
                self.just_let_go = Some(file);
            }
        }
    }

    /// Makes the next event happen and checks its effects. `false` if nothing is left to happen.
    pub(crate) fn step(&mut self) -> Result<bool, String> {
        if self.world.killed {
            return Ok(false);
        }
        if !self.status_changes.is_empty() && self.world.rng.chance(300) {
            self.change_status()?;
            return Ok(true);
        }
        let more = self.world.step()?;
        self.note_names();
        self.note_let_go();
        self.answers()?;
        Ok(more || !self.status_changes.is_empty())
    }

    /// The operator does not wait for another copy: what waits for one goes on.
    fn go_on_without_copy(&mut self) -> Result<(), String> {
        if self.scenario.config.copy_loss != CopyLoss::Freeze || self.world.core.is_none() || self.stopping {
            return Ok(());
        }
        self.scenario.config.copy_loss = CopyLoss::GoOn;
        self.ask(Asked::Configure, Request::Configure(Box::new(self.scenario.config))).map(drop)
    }

    /// Lets all requests end.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        if !self.requests.is_empty() {
            self.go_on_without_copy()?;
        }
        let start = self.world.now;
        let mut steps = 0_u64;
        while !self.requests.is_empty() || !self.status_changes.is_empty() {
            let more = self.step()?;
            if self.world.killed {
                return Ok(());
            }
            steps += 1;
            if !more || steps > 400_000 || self.world.now.since(start).0 > 7200 * 1_000_000_000 {
                return Err(format!(
                    "requests that are never answered (after {steps} steps, {} s): {:?}\n{}",
                    self.world.now.since(start).0 / 1_000_000_000,
                    self.requests,
                    self.world.core.as_ref().map_or_else(String::new, |core| core.waiting())
                ));
            }
        }
        Ok(())
    }
}

/// The file on which a request holds a handle.
const fn busy_file(asked: &Asked) -> Option<FileId> {
    match asked {
        Asked::Read { file, .. }
        | Asked::Change { file, .. }
        | Asked::Sync { file, .. }
        | Asked::Seek { file, .. }
        | Asked::Close { file } => Some(*file),
        _ => None,
    }
}

fn short(request: &Request) -> String {
    match request {
        Request::Write { object, offset, data, durable, how, .. } => {
            let durable = if *durable { "durable" } else { "" };
            format!("Write {object:?} {offset}+{} {durable} {:?}", data.len(), how.handling)
        }
        other => format!("{other:?}"),
    }
}
