//! What the control socket's commands do to a running mount.
//!
//! Invariant: nothing here waits for storage. The shard does long work, and an operation notes its end.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headpond_base::{BLOCK_U64, CacheMode};
use headpond_door::LiveRules;
use headpond_engine::{Reply, Request, Stats};
use headpond_mount::{Insight, Standstill, WholeFile, WholeWrites};
use headpond_shard::{Gate, Handle};

use super::Status;
use super::copy_search::CopySearch;
use super::countdown::Countdown;
use super::faults::MemberFaults;
use super::frozen::Freeze;
use super::members::PoolMembers;
use super::operations::Operations;
use super::protocol::{Answer, ClientCommand, OperationProgress};
use super::recordings::Recordings;
use super::socket::Client;
use super::watch::WatchNotes;
use crate::history::{EventKind, History, Look};
use crate::mounts::CheckedPlaces;
use crate::numbers::{self, Numbers, Rate, Snapshot};
use crate::refusal::Refusal;
use crate::settings::{LiveSettings, SettingChange, Settings};

/// An event on which the daemon's main thread acts.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client asks for an unmount.
    Unmount { client: Client, keep_dirty: bool, bounded: bool },
    /// A client asks to give the pool to another host.
    HandOver { client: Client, to: String },
    /// A client asks for another program.
    Upgrade { client: Client, program: PathBuf, layout: String },
    /// SIGTERM or SIGINT.
    Signal(i32),
}

impl Event {
    /// Refuses what a client asked for.
    pub(crate) fn refuse(self, refusal: &Refusal) {
        match self {
            Self::Unmount { client, .. } | Self::HandOver { client, .. } | Self::Upgrade { client, .. } => {
                client.refuse(refusal);
            }
            Self::Signal(_) => {}
        }
    }
}

/// The phase in the life of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Serving.
    Running,
    /// The mount is gone. Dirty data goes to the origin, or the pool keeps it.
    Unmounting,
}

/// A running mount, for the control thread and the main thread.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) handle: Handle,
    pub(crate) places: CheckedPlaces,
    pub(crate) members: PoolMembers,
    /// The dirty bytes of the device that is being emptied.
    pub(super) emptying: Arc<Mutex<Countdown>>,
    /// The dirty bytes that one device has where two should.
    pub(super) exposed: Arc<Mutex<Countdown>>,
    faults: MemberFaults,
    /// The gate that each change of the origin passes.
    pub(crate) gate: Arc<Gate>,
    live: LiveSettings,
    destage: Arc<Mutex<Rate>>,
    watch: Arc<Mutex<WatchNotes>>,
    /// What the mount was like.
    pub(crate) history: History,
    started: Instant,
    /// The process that keeps the mount alive. 0: there is none.
    holder: u32,
    /// How many workers served the mount before.
    lives: u64,
    ticked: Arc<Mutex<Instant>>,
    pub(crate) operations: Operations,
    pub(crate) insight: Arc<Insight>,
    /// The files whose writes the mount promised to keep whole.
    pub(crate) whole: Arc<WholeWrites>,
    /// Holds changes of names back while the origin stands still.
    pub(crate) standstill: Arc<Standstill>,
    pub(crate) freeze: Freeze,
    pub(crate) recordings: Recordings,
    copy_search: Arc<Mutex<CopySearch>>,
    now: Arc<Mutex<(CacheMode, Phase)>>,
}

/// After this long an unanswered operation of the origin is reported.
const SILENT: Duration = Duration::from_secs(3);

pub(crate) const FLUSH: &str = "flush";
const SET_MODE: &str = "set-mode";

impl Service {
    pub(crate) fn new(
        handle: Handle,
        places: CheckedPlaces,
        members: PoolMembers,
        live: LiveSettings,
        gate: Arc<Gate>,
    ) -> Self {
        let settings = live.now();
        let service = Self {
            handle,
            places,
            members,
            emptying: Arc::default(),
            exposed: Arc::default(),
            faults: MemberFaults::default(),
            gate,
            live,
            destage: Arc::default(),
            watch: Arc::default(),
            history: History::in_memory(),
            started: Instant::now(),
            ticked: Arc::new(Mutex::new(Instant::now())),
            operations: Operations::default(),
            insight: Arc::default(),
            whole: Arc::default(),
            standstill: Arc::default(),
            freeze: Freeze::default(),
            recordings: Recordings::default(),
            copy_search: Arc::default(),
            now: Arc::new(Mutex::new((settings.mode(), Phase::Running))),
            holder: 0,
            lives: 0,
        };
        service.insight.set_counting(settings.counts());
        service.hold_if(settings.mode());
        service
    }

    /// The same, with a flash that a test can make fail.
    pub(crate) fn with_faults(self, faults: MemberFaults) -> Self {
        Self { faults, ..self }
    }

    /// The same, of an origin that can stand still.
    pub(crate) fn with_freeze(self, freeze: Freeze) -> Self {
        Self { freeze, ..self }
    }

    /// The same, with the pool's history.
    pub(crate) fn with_history(self, history: History) -> Self {
        Self { history, ..self }
    }

    /// The same, of a worker with a holder, after so many others.
    pub(crate) fn held(self, holder: u32, lives: u64) -> Self {
        Self { holder, lives, ..self }
    }

    /// Carries out a client's command.
    pub(crate) fn handle(&self, command: ClientCommand, client: Client, events: &Sender<Event>) {
        let changes = matches!(
            command,
            ClientCommand::Flush { .. }
                | ClientCommand::Freeze { .. }
                | ClientCommand::Record { .. }
                | ClientCommand::Set { .. }
                | ClientCommand::AddRule { .. }
                | ClientCommand::RemoveRule { .. }
                | ClientCommand::ChangePool { .. }
                | ClientCommand::Scrub
                | ClientCommand::Upgrade { .. }
                | ClientCommand::Unmount { .. }
                | ClientCommand::HandOver { .. }
        );
        if changes && self.phase() == Phase::Unmounting {
            return client.refuse(&Refusal::Ending { path: self.mountpoint() });
        }
        match command {
            ClientCommand::Status => client.answer(&Answer::Status(Box::new(self.status()))),
            ClientCommand::Numbers => client.answer(&Answer::Numbers(Box::new(self.numbers()))),
            ClientCommand::Flush { path } => client.answer_or_refuse(self.start_flush(path.as_deref())),
            ClientCommand::Freeze { seconds } => self.freeze(seconds, client),
            ClientCommand::Record { seconds, bytes_max } => self.record(seconds, bytes_max, client),
            ClientCommand::CancelFlush { id } => client.answer_or_refuse(self.cancel_flush(id)),
            ClientCommand::Rules => client.answer(&Answer::Rules { rules: self.shown_rules() }),
            ClientCommand::AddRule { words, before, dry_run } => self.add_rule(&words, before, dry_run, client),
            ClientCommand::RemoveRule { number, dry_run } => self.remove_rule(number, dry_run, client),
            ClientCommand::TestRules { words } => client.answer_or_refuse(self.test_rules(&words)),
            ClientCommand::Get => client.answer(&Answer::Settings { values: self.live.now().values() }),
            ClientCommand::Set { settings, dry_run } => self.set(&settings, dry_run, client),
            ClientCommand::Fault { faults, flash } => {
                client.answer_or_refuse(self.inject(&faults, flash.as_deref()).map(|()| Answer::Done));
            }
            ClientCommand::Pool => client.answer(&Answer::Pool(Box::new(self.pool_shown()))),
            ClientCommand::ChangePool { change, dry_run } => self.change_pool(change, dry_run, client),
            ClientCommand::CancelPoolChange { dry_run } => {
                client.answer_or_refuse(self.cancel_pool_change(dry_run));
            }
            ClientCommand::Scrub => client.answer_or_refuse(self.start_scrub()),
            ClientCommand::CancelScrub => client.answer_or_refuse(self.cancel_scrub()),
            ClientCommand::Operation { id } => match self.operations.get(id) {
                Some(operation) => {
                    let engine = self.handle.stats().engine;
                    let dirty_bytes = engine.dirty_blocks * BLOCK_U64;
                    client.answer(&Answer::Operation {
                        progress: operation.progress,
                        dirty_bytes,
                        left_bytes: self.flush_left(id).unwrap_or(dirty_bytes),
                        origin_write_bytes: engine.origin_write_bytes,
                        silent_seconds: self.origin_silent_seconds(),
                    });
                }
                None => client.refuse(&Refusal::Usage(format!("the daemon has no operation {id}"))),
            },
            ClientCommand::Upgrade { program, layout } => {
                self.pass(Event::Upgrade { client, program, layout }, events);
            }
            ClientCommand::HandOver { to } => self.pass(Event::HandOver { client, to }, events),
            ClientCommand::Unmount { keep_dirty, bounded } => {
                self.pass(Event::Unmount { client, keep_dirty, bounded }, events);
            }
        }
    }

    /// Gives an event to the main thread.
    fn pass(&self, event: Event, events: &Sender<Event>) {
        if let Err(gone) = events.send(event) {
            gone.0.refuse(&Refusal::Ending { path: self.mountpoint() });
        }
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Settings {
        self.live.now()
    }

    /// The rules in force, which the mount reads.
    pub(crate) fn rules(&self) -> &Arc<LiveRules> {
        self.live.rules()
    }

    /// Writes settings and rules to the pool, on a thread of its own.
    pub(crate) fn keep_aside(&self, then: impl FnOnce(std::io::Result<()>) + Send + 'static) {
        self.live.keep_aside(then);
    }

    /// The present rate of destage, in bytes a second.
    pub(crate) fn destage_rate(&self) -> f64 {
        self.destage.lock().unwrap_or_else(PoisonError::into_inner).per_second()
    }

    /// Writes new trouble to the log, and keeps it for the panel. Also finds out the present rates.
    pub(crate) fn watch(&self) {
        let stats = self.look();
        if let Some(lost) = self.gate.lost() {
            self.watch.lock().unwrap_or_else(PoisonError::into_inner).claim_lost(lost, &self.history);
        }
        if stats.flash_failed != 0 {
            self.whole.lost();
        }
        self.insight.name_processes();
        let mut ticked = self.ticked.lock().unwrap_or_else(PoisonError::into_inner);
        if ticked.elapsed() >= Duration::from_secs(1) {
            *ticked = Instant::now();
            self.insight.tick();
        }
        drop(ticked);
        let nested = self.nested_origins();
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).look(
            &stats,
            self.gate.lost().is_none() && !self.members.another_owns(),
            &nested,
            self.origin_silent_seconds(),
            &self.history,
        );
    }

    pub(super) fn copy_search(&self) -> MutexGuard<'_, CopySearch> {
        self.copy_search.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nested_origins(&self) -> Vec<PathBuf> {
        self.insight.nested_origins().into_iter().map(|path| OsString::from_vec(path).into()).collect()
    }

    /// The counters of now, for the history.
    pub(crate) fn look_for_history(&self) -> Look {
        let rate = self.destage_rate();
        Look::new(Instant::now(), &self.handle.stats(), rate)
    }

    /// The last troubles in the log.
    pub(crate) fn news(&self) -> Vec<String> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).told()
    }

    fn inject(&self, what: &str, flash: Option<&Path>) -> Result<(), Refusal> {
        let member = flash.map(|flash| self.members.find(Some(flash))).transpose()?;
        self.faults.inject(member, what)
    }

    /// Takes the statistics, updates the rates from them, and lets go of devices that are gone.
    fn look(&self) -> Stats {
        let shard = self.handle.stats();
        self.members.look(&shard);
        self.look_for_copy(&shard);
        self.members.events().look(self.is_mirrored(&shard));
        self.exposed_pace(&shard);
        let engine = shard.engine;
        let destaged = engine.destaged_blocks * BLOCK_U64;
        self.destage.lock().unwrap_or_else(PoisonError::into_inner).look(Instant::now(), destaged);
        engine
    }

    /// All numbers, with the busiest files and processes. It looks at every known file.
    pub(crate) fn numbers(&self) -> Numbers {
        let files = numbers::files(&self.insight, &self.handle.stats().holdings);
        Numbers { files, processes: numbers::processes(&self.insight), ..self.numbers_of_mount() }
    }

    /// All numbers, without files and processes.
    pub(crate) fn numbers_of_mount(&self) -> Numbers {
        let shard = self.handle.stats();
        let snapshot = Snapshot {
            lost_devices: self.members.lost(&shard),
            shard,
            pool_bytes: self.members.bytes(),
            uptime: self.started.elapsed(),
            destage_rate: self.destage_rate(),
            flush_period: self.live.now().config().period(),
            takeovers: self.lives,
            origin_silent_seconds: self.origin_silent_seconds(),
            claim_lost: self.gate.lost().is_some(),
            lease_waiting: self.members.lease() == "waiting",
        };
        let Status { mountpoint, origin, flash, mode, state, .. } = self.status();
        let settings = self.live.now().values().into_iter().map(|value| (value.name, value.value)).collect();
        let (metrics, latency) = (snapshot.metrics(), snapshot.latency());
        let (files, processes) = (Vec::new(), Vec::new());
        Numbers { mountpoint, origin, flash, mode, state, metrics, latency, files, processes, settings }
    }

    /// Begins an operation.
    pub(crate) fn begin(&self, name: &'static str, about: &str) -> Result<u64, Refusal> {
        let full = || Refusal::Usage("too many flushes and mode changes are running. Wait for one to end".to_owned());
        self.operations.begin(name, about).ok_or_else(full)
    }

    fn set(&self, pairs: &[(String, String)], dry_run: bool, client: Client) {
        let before = self.live.now();
        let mut next = before.clone();
        if let Err(why) = next.set_all(pairs) {
            return client.refuse(&Refusal::Usage(format!("{why}\n  Nothing was changed.")));
        }
        if let Err(why) = next.fit_devices(&before, self.members.in_use().len()) {
            return client.refuse(&Refusal::Usage(format!("{why}\n  Nothing was changed.")));
        }
        let changes = before.changes(&next);
        let leaves_write_back = before.mode() == CacheMode::WriteBack && next.mode() != CacheMode::WriteBack;
        let to_flush_bytes = if leaves_write_back { self.handle.stats().engine.dirty_blocks * BLOCK_U64 } else { 0 };
        if leaves_write_back {
            let counted_on = if dry_run { self.whole.files() } else { self.whole.leave().err().unwrap_or_default() };
            if !counted_on.is_empty() {
                return client.refuse(&counted_on_refusal(next.mode(), &counted_on));
            }
        }
        if dry_run || changes.is_empty() {
            return client.answer(&Answer::Set { changes, operation: None, to_flush_bytes, not_kept: None });
        }
        let operation = if before.mode() == next.mode() {
            None
        } else {
            if self.operations.state_of(SET_MODE) == Some(OperationProgress::Running) {
                self.hold_if(before.mode());
                let why = "the mode is already changing. Nothing was changed. Wait until it is done: headpond status";
                return client.refuse(&Refusal::Usage(why.to_owned()));
            }
            match self.begin(SET_MODE, "") {
                Ok(id) => Some(id),
                Err(refusal) => {
                    self.hold_if(before.mode());
                    return client.refuse(&refusal);
                }
            }
        };
        self.live.replace(next.clone());
        self.configure();
        for SettingChange { name, from, to } in &changes {
            self.history.note(EventKind::Setting, 1, &format!("{name}: {from} -> {to}"));
        }
        if let Some(id) = operation {
            self.start_mode(id, &before, next.mode());
        }
        self.live.keep_aside(move |kept| {
            let not_kept = kept.err().map(|error| error.to_string());
            client.answer(&Answer::Set { changes, operation, to_flush_bytes, not_kept });
        });
    }

    fn start_mode(&self, id: u64, before: &Settings, mode: CacheMode) {
        let (service, operations, now, live, before) =
            (self.clone(), self.operations.clone(), self.now.clone(), self.live.clone(), before.mode());
        self.handle.submit(
            Request::SetMode(mode),
            Box::new(move |reply| {
                let result = outcome(&reply);
                if result.is_ok() {
                    now.lock().unwrap_or_else(PoisonError::into_inner).0 = mode;
                    service.hold_if(mode);
                } else {
                    live.back_to(before);
                    service.hold_if(before);
                }
                operations.finish(id, result.map_or_else(OperationProgress::Failed, |()| OperationProgress::Done));
            }),
        );
    }

    /// Lets the mount promise whole writes, if this mode keeps them whole. Also runs on the shard's thread: it never
    /// waits.
    fn hold_if(&self, mode: CacheMode) {
        if mode == CacheMode::WriteBack {
            self.whole.hold();
        }
    }

    /// Enters the next phase.
    pub(crate) fn enter(&self, phase: Phase) {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).1 = phase;
    }

    pub(super) fn phase(&self) -> Phase {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// For how many seconds the origin has left a request without an answer. 0 if that is not long.
    pub(crate) fn origin_silent_seconds(&self) -> u64 {
        let longest = self.handle.stats().origin_silent.max(self.gate.silent_for());
        longest.filter(|silent| *silent >= SILENT).map_or(0, |silent| silent.as_secs())
    }

    /// The given reason; or, if the origin is another's by now, that.
    pub(crate) fn why(&self, why: String) -> String {
        self.gate.lost().map_or(why, str::to_owned)
    }

    /// The status of the mount.
    pub(crate) fn status(&self) -> Status {
        let stats = self.handle.stats();
        let engine = &stats.engine;
        let (mode, phase) = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let flush = self.operations.state_of(FLUSH);
        let changing = self.operations.state_of(SET_MODE) == Some(OperationProgress::Running);
        let frozen = self.freeze.seconds_left();
        let state = match phase {
            Phase::Unmounting => "unmounting",
            Phase::Running if frozen.is_some() => "frozen",
            Phase::Running if changing => "changing mode",
            Phase::Running if flush == Some(OperationProgress::Running) => "flushing",
            Phase::Running => "running",
        };
        let (hits, misses) = (engine.read_hits_blocks, engine.read_miss_blocks);
        let clean = engine.cached_blocks.saturating_sub(engine.dirty_blocks);
        let flashes = self.members.devices().paths();
        Status {
            mountpoint: self.places.mountpoint.clone(),
            origin: self.places.origin.clone(),
            flash: flashes.first().cloned().unwrap_or_default(),
            flashes,
            pool_state: self.pool_state(&stats).to_owned(),
            pool: self.members.pool.to_string(),
            mode: mode.name().to_owned(),
            state: state.to_owned(),
            frozen_left_seconds: frozen.unwrap_or(0),
            pid: std::process::id(),
            holder: self.holder,
            takeovers: self.lives,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            backend: stats.device.to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            size_bytes: self.members.bytes(),
            capacity_bytes: engine.pool_blocks * BLOCK_U64,
            used_blocks: engine.cached_blocks,
            used_bytes: engine.cached_blocks * BLOCK_U64,
            stored_bytes: engine.stored_bytes,
            packed_bytes: engine.packed_blocks * BLOCK_U64,
            cached_blocks: clean,
            cached_bytes: clean * BLOCK_U64,
            dirty_blocks: engine.dirty_blocks,
            dirty_bytes: engine.dirty_blocks * BLOCK_U64,
            dirty_files: engine.dirty_objects,
            read_hits_blocks: hits,
            read_miss_blocks: misses,
            hit_ratio: if hits + misses == 0 { 0.0 } else { hits as f64 / (hits + misses) as f64 },
            origin_reads: engine.origin_reads,
            origin_writes: engine.origin_writes,
            origin_read_bytes: engine.origin_read_bytes,
            origin_write_bytes: engine.origin_write_bytes,
            origin_syncs: engine.origin_syncs,
            origin_silent_seconds: self.origin_silent_seconds(),
            claim_lost: self.gate.lost().unwrap_or_default().to_owned(),
            lease: self.members.lease().to_owned(),
            flash_reads: engine.flash_reads,
            flash_writes: engine.flash_writes,
            flash_read_bytes: engine.flash_read_bytes,
            flash_write_bytes: engine.flash_write_bytes,
            flash_syncs: engine.flash_syncs,
            flash_errors_masked: engine.masked_flash_errors,
            flash_failed: engine.flash_failed != 0,
            lost_blocks: engine.lost_blocks,
            origin_errors: engine.origin_errors,
            flush: match flush {
                None => "none".to_owned(),
                Some(OperationProgress::Running) => "running".to_owned(),
                Some(OperationProgress::Done) => "done".to_owned(),
                Some(OperationProgress::Cancelled) => "cancelled".to_owned(),
                Some(OperationProgress::Failed(why)) => format!("failed: {why}"),
            },
            flushes: self.flushes(),
            nested_origins: self.nested_origins(),
            whole_write_files: self.whole.files().len() as u64,
            engine: serde_json::to_value(engine).unwrap_or_default(),
        }
    }

    /// Where the mount is.
    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.places.mountpoint.clone()
    }
}

/// Why the mode stays: databases rely on untorn writes, which the new mode does not give.
fn counted_on_refusal(mode: CacheMode, files: &[WholeFile]) -> Refusal {
    let first = &files[0];
    let path = String::from_utf8_lossy(&first.path);
    let more = if files.len() == 1 { String::new() } else { format!(" and {} more", files.len() - 1) };
    Refusal::Usage(format!(
        "{mode} can tear writes, and {} (process {}) relies on untorn writes to {path}{more}\n  Nothing was changed. Stop the database \
         first, or let it protect itself again (MariaDB: `headpond atomic disable`, then restart it). To list such files: cat \
         MOUNTPOINT/.headpond/whole",
        first.name, first.process
    ))
}

/// The outcome of a request whose success has no data.
pub(crate) fn outcome(reply: &Reply) -> Result<(), String> {
    match reply {
        Reply::Failed(errno) => Err(errno.to_string()),
        _ => Ok(()),
    }
}
