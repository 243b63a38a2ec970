//! A mount from its start to its end.
//!
//! Start: places, marker lock, flash lock, ownership, recovery, conflicts; then, and only then,
//! the first write: the marker; then shard, mount, control socket.
//!
//! End: the mount goes first, so that nothing new comes in; then what is dirty is brought to the
//! origin, or not; then the engine writes its last checkpoint; then the marker goes, or says what
//! is left. A crash between any two of these steps is a crash like any other.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use headpond_base::MemberId;
use headpond_device::{FaultHandle, FaultPlan, Faults, Reactor};
use headpond_engine::{Config, Reply, Request};
use headpond_mount::{Beside as BesideMount, MountError, MountOptions, Mounted, THREADS, mount_with};
use headpond_shard::{Budget, FileOrigin, Gate, Handle, Limits, Origin, Shard};
use rustix::fd::{AsFd, OwnedFd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::ending::{BesideOrigin, Ended, end, settle_marker};
use super::last_daemon::{once_free, take_marker};
use crate::mounts::{Detach, Elsewhere, Places, Verdict, check_fuse, describe, detach, holders_of};
use crate::numbers::exposition;
use crate::origin::OriginRoot;
use crate::ownership::{
    Awaited, DURABLE_FILE, Durable, DurableNote, MARKER_VERSION, Marker, MarkerHold, MarkerState, MountClaim,
    ObsoleteNote, Standing, hex, keep_up, keep_watch,
};
use crate::pool::{Beside, DirtyFile, Flash, Superblocks, make_ready};
use crate::process::{Step, Waiting, confine, notify, runtime_dir};
use crate::refusal::Refusal;
use crate::service::{Answer, Client, ControlSocket, Event, MetricsServer, Phase, Service, Token, rules};
use crate::settings::{Keeper, LiveSettings, MountPlan, settings_from_file};
use crate::wording::Size;
use crate::wording::clock::{unix_seconds, utc};

/// How often the main thread looks whether another process unmounted, and whether errors came.
const PERIOD: Duration = Duration::from_millis(250);

/// A mount that serves.
pub struct Running {
    service: Service,
    mounted: Mounted,
    beside: BesideOrigin,
    /// Keeps the note beside the origin up to date as long as it is there.
    keeping: Sender<()>,
    superblocks: Superblocks,
    events: Receiver<Event>,
    socket: Arc<ControlSocket>,
    notes: Vec<String>,
}

impl Running {
    /// Starts a mount. `say` tells what it waits for, if it waits.
    ///
    /// # Errors
    /// Every reason not to; then nothing was changed.
    pub fn start(plan: &MountPlan) -> Result<Self, Refusal> {
        let token = plan.metrics_token.as_deref().map(Token::read).transpose()?;
        let metrics = plan.metrics.map(|address| MetricsServer::listen(address, token)).transpose()?;
        let budget = Budget::of_process();
        confine().map_err(|error| Refusal::Failed { doing: "give up capabilities".to_owned(), error })?;
        let from_file = settings_from_file(plan)?;
        let waiting = Waiting::for_origin(&plan.origin);
        waiting.on(Step::Origin("the directory"));
        let root = Arc::new(OriginRoot::open(&plan.origin)?);
        let places = Places::check(&root, &plan.mountpoint, &plan.flash)?;
        check_fuse(&places.mountpoint, plan.allow_other)?;
        waiting.on(Step::Origin("the lock beside the data"));
        let marker = take_marker(&root)?;
        waiting.on(Step::Origin("the files"));
        let found = match marker.read() {
            Err(Refusal::Marker { .. }) if plan.discard_dirty => None,
            found => found?,
        };
        waiting.on(Step::Pool);
        let mut flash = once_free(|| Flash::take(&places.flash, plan.size, plan.fill))?;
        waiting.on(Step::Origin("the files"));
        let obsolete = ObsoleteNote::in_dir(marker.dir().clone());
        let failure = obsolete.read()?;
        let durable = Durable::read(marker.dir())?;
        let awaited = Awaited { marker: found.as_ref(), durable: durable.as_ref() };
        let beside = Beside { awaited, failure: failure.as_ref() };
        let mut ready = make_ready(&mut flash, &root, &beside, plan, &waiting)?;
        let pool = ready.pool.to_string();
        let keeper = Keeper::open(flash.opened(), ready.pool)
            .map_err(|error| Refusal::from_io("read the settings kept on", &places.flash, error))?;
        let live = LiveSettings::at_start(keeper, ready.mode, &from_file, plan, &mut ready.notes)?;
        let runtime = runtime_dir::make()?;
        runtime_dir::remove_dead();
        let path = runtime.join(format!("{}.sock", runtime_dir::name_of(&places.mountpoint)));
        let socket = Arc::new(once_free(|| ControlSocket::listen(&path, &places.mountpoint))?);
        let superblocks = Superblocks::of(flash.opened())
            .map_err(|error| Refusal::from_io("open once more", &places.flash, error))?;
        let (reactor, faults) = with_fault(flash.start(plan.backend)?, plan.fault.clone());
        let mut claim = Marker {
            about: Marker::about(),
            version: MARKER_VERSION,
            state: MarkerState::Mounted,
            origin_key: hex(&ready.key),
            pool: ready.pool.to_string(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            flash: places.flash.clone(),
            mountpoint: places.mountpoint.clone(),
            pid: std::process::id(),
            since: utc(unix_seconds()),
            dirty_bytes: 0,
            claim: Some(ready.claim),
        };
        let gate = Arc::new(Gate::new(Arc::new(MountClaim::new(&marker, &claim, places.origin.clone()))));
        let origin = open_origin(&root, plan, obsolete.clone(), pool, gate.clone(), budget)?;
        waiting.on(Step::Origin("the files"));
        for DirtyFile { object, found, file } in ready.files {
            let file = file.map_or_else(|| root.open_file(&found), Ok)?;
            origin.attach_lasting(object, file, root.again(found));
        }

        marker.write_over(found.as_ref(), durable.as_ref(), &claim)?;
        waiting.on(Step::Pool);
        flash.settle();
        if let Err(error) = live.keep() {
            ready.notes.push(format!("cannot write the settings to the pool: {error}"));
        }
        let capacity = ready.recovered.superblock().geometry.data_blocks() * headpond_base::BLOCK_U64;
        let config = rules::config(&live.now(), &live.rules().now(), capacity);
        let engine = ready.recovered.into_engine(config, headpond_shard::now());
        let handle = Shard::start(engine, reactor, origin, Limits::default())
            .map_err(|error| Refusal::Failed { doing: "start the shard's threads".to_owned(), error })?;
        begin(&handle, config, &marker, &mut claim);
        let note = begin_note(&handle, &marker, &claim);
        if failure.is_some() {
            forget_failure(&handle, &obsolete);
        }

        // From here on a signal is an orderly end.
        let (send, events) = channel();
        listen_to_signals(&send)?;
        let options = MountOptions {
            origin: places.origin.clone(),
            mountpoint: places.mountpoint.clone(),
            allow_other: plan.allow_other,
            threads: THREADS,
            read_only: false,
        };
        let origin_of_mount = duplicate(&root)?;
        let pond = Arc::new(handle.clone());
        let service =
            Service::new(handle, places, root.clone(), ready.pool, ready.pool_bytes, live, gate).with_faults(faults);
        let beside = BesideMount {
            panel: Some(Arc::new(service.clone())),
            insight: service.insight.clone(),
            rules: service.rules().clone(),
            whole: service.whole.clone(),
            kept_times: ready.kept_times,
            descriptors: Some(budget),
        };
        waiting.on(Step::Origin("the files"));
        let mounted = match mount_with(&options, origin_of_mount, pond, &ready.known, beside) {
            Ok(mounted) => mounted,
            Err(error) => {
                let mut ended = end(&service, None);
                settle_marker(&service, BesideOrigin { marker, note, claim }, &superblocks, &mut ended);
                return Err(mount_refusal(&service, error));
            }
        };
        serve_socket(&socket, &service, send)?;
        if let Some(metrics) = metrics {
            serve_metrics(metrics, &service)?;
        }
        keep_watch(service.gate.clone())
            .map_err(|error| Refusal::Failed { doing: "start the watch of the claim".to_owned(), error })?;
        let keeping = keep_up(note.clone(), service.handle.clone(), service.gate.clone()).map_err(|error| {
            Refusal::Failed { doing: "start the thread of the note beside the origin".to_owned(), error }
        })?;
        drop(waiting);
        notify("READY=1");
        let beside = BesideOrigin { marker, note, claim };
        Ok(Self { service, mounted, beside, keeping, superblocks, events, socket, notes: ready.notes })
    }

    /// What is mounted, and what the operator should know of how it went.
    #[must_use]
    pub fn summary(&self) -> String {
        let status = self.service.status();
        let notes: String = self.notes.iter().map(|note| format!("{note}\n")).collect();
        format!(
            "{notes}mounted {} on {}, {} with flash {} ({}, {}): {} cached, {} dirty",
            status.origin.display(),
            status.mountpoint.display(),
            status.mode,
            status.flash.display(),
            Size(status.size_bytes),
            status.backend,
            Size(status.cached_bytes),
            Size(status.dirty_bytes)
        )
    }

    /// Serves until the mount is gone, and ends it in order.
    ///
    /// # Errors
    /// When the origin did not take everything although it should have: it is in the pool then.
    pub fn serve(mut self) -> Result<Ended, Refusal> {
        let mut elsewhere = Elsewhere::new();
        loop {
            match self.events.recv_timeout(PERIOD) {
                Ok(Event::Unmount { client, keep_dirty }) => match self.mounted.unmount() {
                    Ok(()) => return self.finish(!keep_dirty, Some(client)),
                    Err(error) => client.refuse(&unmount_refusal(&self, error)),
                },
                Ok(Event::Signal(signal)) => {
                    let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
                    eprintln!("headpond: {name}: the daemon ends now; dirty data stays in the pool");
                    return self.leave();
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.service.watch();
                    if self.mounted.is_finished() {
                        eprintln!("headpond: another process unmounted it; the daemon writes dirty data to the origin");
                        return self.finish(true, None);
                    }
                    match elsewhere.look(&self.mounted, Instant::now()) {
                        Verdict::Serve => {}
                        Verdict::Tell => eprintln!(
                            "headpond: the mount is gone here, but still in use{}, by open files or in another mount namespace; \
                             the daemon serves until that ends",
                            self.holders()
                        ),
                        Verdict::End => {
                            eprintln!(
                                "headpond: another process unmounted it, and nothing uses it in other mount namespaces; the daemon \
                                 ends it there and writes dirty data to the origin"
                            );
                            if let Err(error) = self.mounted.end_copies() {
                                eprintln!("headpond: {error}");
                            }
                            return self.finish(true, None);
                        }
                    }
                }
                // The senders are this process's own threads, which do not end.
                Err(RecvTimeoutError::Disconnected) => return self.leave(),
            }
        }
    }

    /// Who uses it, as a part of a sentence.
    fn holders(&self) -> String {
        let device = self.mounted.number().map(|number| (0, number));
        describe(&holders_of(&self.service.mountpoint(), device))
    }

    /// Ends at once, as a signal does: dirty data stays in the pool.
    pub fn leave_at_once(self) -> ! {
        let code = match self.leave() {
            Ok(_) => 0,
            Err(refusal) => refusal.status().code(),
        };
        std::process::exit(code.into())
    }

    fn leave(mut self) -> Result<Ended, Refusal> {
        match self.mounted.unmount() {
            Ok(()) => {}
            Err(error) => {
                eprintln!("headpond: {error}; the daemon detaches the mount all the same");
                if self.mounted.is_here()
                    && let Err(refusal) = detach(&self.service.mountpoint(), Detach::Lazy)
                {
                    eprintln!("headpond: {refusal}");
                }
            }
        }
        self.finish(false, None)
    }

    fn finish(self, flush: bool, client: Option<Client>) -> Result<Ended, Refusal> {
        let Self { service, mounted, beside, keeping, superblocks, events, socket, .. } = self;
        // Of a mount that was in use there are still handles, which end with the process. Waiting for
        // them, as its drop would, might take for ever.
        std::mem::forget(mounted);
        service.enter(Phase::Unmounting);
        notify("STOPPING=1");
        let mut ended = end(&service, flush.then_some(&events));
        settle_marker(&service, beside, &superblocks, &mut ended);
        drop(keeping);
        let refusal = ended.trouble.clone().map(|why| Refusal::FlushFailed { why, dirty_bytes: ended.dirty_bytes });
        // Before the last answer: a later command finds no daemon, rather than one that ends.
        socket.close();
        // Answers the clients that asked for the same while the mount ended.
        for event in events.try_iter() {
            if let Event::Unmount { client, .. } = event {
                client.refuse(&Refusal::Ending { path: service.mountpoint() });
            }
        }
        if let Some(client) = client {
            match &refusal {
                Some(refusal) => client.refuse(refusal),
                None => client.answer(&Answer::Unmounted { dirty_bytes: ended.dirty_bytes, note: ended.note.clone() }),
            }
        }
        refusal.map_or(Ok(ended), Err)
    }
}

/// The flash as it is, or with a fault on it that a test asked for.
fn with_fault(reactor: Box<dyn Reactor>, fault: Option<FaultPlan>) -> (Box<dyn Reactor>, Option<FaultHandle>) {
    match fault {
        Some(fault) => {
            eprintln!("headpond: FOR TESTS ONLY: this flash fails on purpose: {fault:?}");
            let reactor = Faults::new(reactor, MemberId(0), fault);
            let handle = reactor.handle();
            (Box::new(reactor), Some(handle))
        }
        None => (reactor, None),
    }
}

/// The pool has the claim with the engine's first checkpoint. Said before the first write can come in: from then on an
/// image of the pool from before this start is known as one. With the same checkpoint all that was found and decided at this
/// start is durable: killed after it, the next start asks the operator nothing again; and a file that is made may get the
/// inode number of one that the pool was told to forget.
fn begin(handle: &Handle, config: Config, marker: &MarkerHold, claim: &mut Marker) {
    // It is configured already; but every request waits for that checkpoint, and this one does nothing else.
    let configured = handle.call(Request::Configure(Box::new(config)));
    let stats = handle.stats().engine;
    if matches!(configured, Reply::Failed(_)) || stats.checkpoints == 0 || stats.flash_failed != 0 {
        return;
    }
    if let Some(claim) = &mut claim.claim {
        claim.begun = true;
    }
    // If it is not, the gate lets nothing pass to the origin, and tells why.
    let is_ours = matches!(marker.watch(claim).look(), Ok(Standing::Ours));
    if is_ours && let Err(refusal) = marker.write(claim) {
        eprintln!("headpond: {refusal}");
    }
}

/// The note of how far the log is durable, for this use. Where it cannot be made an image of the flash from this use is not told
/// after a crash: no reason not to serve.
fn begin_note(handle: &Handle, marker: &MarkerHold, claim: &Marker) -> Arc<DurableNote> {
    let id = claim.claim.as_ref().map_or("", |claim| &claim.id);
    let note = DurableNote::new(marker.dir().clone(), id);
    if let Err(error) = note.say(handle.stats().engine.durable_host_batch) {
        eprintln!("headpond: {}: {error}", marker.dir().path(DURABLE_FILE).display());
    }
    Arc::new(note)
}

/// The note of a failed pool goes once what was decided on it is durable: with the engine's first
/// checkpoint, for which every request waits. If the flash fails again, or the note cannot be
/// removed, it stays, and the next start asks again.
fn forget_failure(handle: &Handle, note: &ObsoleteNote) {
    let durable = !matches!(handle.call(Request::SyncAll), Reply::Failed(_));
    if !durable || handle.stats().engine.flash_failed != 0 {
        eprintln!("headpond: the flash fails again: the pool caches nothing, and the note of its failure stays");
    } else if let Err(refusal) = note.remove() {
        eprintln!("headpond: {refusal}");
    }
}

/// The origin once more: the very directory that was opened at first, whatever its path leads to by now.
fn duplicate(root: &OriginRoot) -> Result<OwnedFd, Refusal> {
    root.as_fd().try_clone_to_owned().map_err(|error| Refusal::from_io("open the origin", root.path(), error))
}

fn open_origin(
    root: &OriginRoot,
    plan: &MountPlan,
    obsolete: ObsoleteNote,
    pool: String,
    gate: Arc<Gate>,
    budget: Budget,
) -> Result<Arc<dyn Origin>, Refusal> {
    let failed = |error: std::io::Error| Refusal::from_io("open the origin", root.path(), error);
    let files = FileOrigin::below_within(duplicate(root)?, budget).map_err(failed)?;
    files.guard(gate);
    files.when_pool_fails(Box::new(move || obsolete.write(&pool)));
    Ok(match &plan.origin_layer {
        Some(layer) => layer.put_before(files),
        None => Arc::new(files),
    })
}

fn listen_to_signals(events: &Sender<Event>) -> Result<(), Refusal> {
    let failed = |error| Refusal::Failed { doing: "listen to signals".to_owned(), error };
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let events = events.clone();
    let listen = move || {
        for signal in signals.forever() {
            // Nobody listens any more: the end is under way.
            let _ = events.send(Event::Signal(signal));
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
    Ok(())
}

fn serve_socket(socket: &Arc<ControlSocket>, service: &Service, events: Sender<Event>) -> Result<(), Refusal> {
    let (socket, service) = (socket.clone(), service.clone());
    let serve = move || socket.serve(|command, client| service.handle(command, client, &events));
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(serve)
        .map_err(|error| Refusal::Failed { doing: "start the control thread".to_owned(), error })?;
    Ok(())
}

fn serve_metrics(server: MetricsServer, service: &Service) -> Result<(), Refusal> {
    let service = service.clone();
    let serve = move || server.serve(|| exposition(&service.numbers_of_mount()));
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(serve)
        .map(drop)
        .map_err(|error| Refusal::Failed { doing: "start the thread of the metrics".to_owned(), error })
}

fn mount_refusal(service: &Service, error: MountError) -> Refusal {
    let path = service.mountpoint();
    let text = error.to_string();
    match error {
        MountError::MountpointNotEmpty(path) => Refusal::MountPointNotEmpty { path, example: "something".to_owned() },
        MountError::MountpointMissing(_) | MountError::MountpointNotDirectory(_) | MountError::DeadMount { .. } => {
            Refusal::MountPoint { path, why: text }
        }
        MountError::Origin { origin, error } => Refusal::from_io("open the origin", &origin, error),
        MountError::NotPermitted { reason, .. } => {
            Refusal::NoPermission { what: format!("mount on {}", path.display()), advice: reason }
        }
        _ => Refusal::NoFuse { path, why: text },
    }
}

fn unmount_refusal(running: &Running, error: MountError) -> Refusal {
    let path = running.service.mountpoint();
    match error {
        MountError::Busy(_) => {
            let by = running.holders();
            Refusal::Busy { path, by }
        }
        error => Refusal::Failed {
            doing: format!("unmount {}", path.display()),
            error: std::io::Error::other(error.to_string()),
        },
    }
}
