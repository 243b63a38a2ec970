//! A mount from its start to its end: a pool in use, with FUSE as its door and a control socket for commands.
//!
//! Start: the places, the pool (see [`FoundPool`]), the mount, the control socket. End: the mount goes first, so that
//! nothing new comes in; then the pool ends.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use headpond_engine::{Reply, Request};
use headpond_mount::{
    Beside as BesideMount, LastingMount, MountError, MountOptions, Mounted, THREADS, attach_to, mount_lasting,
};
use headpond_shard::Budget;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::ending::Ended;
use super::last_daemon::once_free;
use super::pool::{FoundPool, Inheritance, OpenedPool, RunningPool, duplicate};
use super::succession::{Heirs, Left, Succession};
use crate::history::{EventKind, Pace};
use crate::mounts::{CheckedPlaces, Detach, Elsewhere, NextStep, check_fuse, describe, detach, holders_of};
use crate::origin::OriginRoot;
use crate::process::log::log_line;
use crate::process::{Step, Waiting, confine, give_large_buffers_back, notify, runtime_dir};
use crate::refusal::{ExitStatus, Refusal};
use crate::service::{Answer, Client, ControlSocket, Event, Freeze, Phase, PoolMembers, Service, listed};
use crate::settings::MountPlan;
use crate::web::{HttpServer, Session, Token, show_mount, show_mount_later};
use crate::wording::Size;

/// How often the main thread looks for an unmount by another process, and for errors.
const PERIOD: Duration = Duration::from_millis(250);

/// How often the history looks at the counters: as often as its finest rows.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What goes to the origin before a mount ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EndFlush {
    Nothing,
    /// What can until then.
    Within(Instant),
    Everything,
}

impl EndFlush {
    /// What can from now on in so much time. `None`: the setting is off.
    fn within(bound: Option<Duration>) -> Self {
        bound.map_or(Self::Nothing, |bound| Self::Within(Instant::now() + bound))
    }
}

/// A pool in use, and the mount that is its door.
pub struct Running {
    service: Service,
    mounted: Mounted,
    pool: RunningPool,
    events: Receiver<Event>,
    socket: Arc<ControlSocket>,
    notes: Vec<String>,
    heirs: Heirs,
}

impl Running {
    /// Starts a mount, or takes over from a worker that served it: then with a plan of [`Succession::plan`].
    ///
    /// # Errors
    /// The reason not to start. Nothing was changed then.
    pub fn start(plan: &MountPlan, mut succession: Option<Succession>) -> Result<Self, Refusal> {
        let tail = succession.as_mut().and_then(Succession::take_tail);
        let nameless = succession.as_ref().map_or_else(Vec::new, Succession::nameless);
        let lasting = succession.as_mut().map(Succession::lasting).transpose()?;
        let heirs = Heirs::of(succession.as_ref());
        let left = succession.as_ref().and_then(Succession::left);
        let session = match left.and_then(Left::session) {
            Some(session) => session,
            None => Session::new().map_err(|error| Refusal::Failed { doing: "get random bytes".to_owned(), error })?,
        };
        let listen = plan.http.map(|address| {
            let (file, session) = (plan.http_token.clone(), session.clone());
            move || HttpServer::listen(address, file.as_deref().map(Token::read).transpose()?, session.clone())
        });
        let http = match listen.as_ref().map(|listen| listen()).transpose() {
            Err(refusal) if left.is_some() => {
                // The page is no reason to end a mount that programs use.
                log_line(format_args!("{refusal}\nserving without the page until that is mended"));
                None
            }
            http => http?,
        };
        let budget = Budget::of_process();
        give_large_buffers_back();
        confine().map_err(|error| Refusal::Failed { doing: "give up capabilities".to_owned(), error })?;
        if let Some(succession) = &succession {
            succession.hang();
        }
        let waiting = Waiting::for_origin(&plan.pool.origin, succession.as_ref().map(Succession::beat));
        waiting.on(Step::Origin("the directory"));
        let root = Arc::new(OriginRoot::open(&plan.pool.origin)?);
        let places = match left {
            Some(left) => left.places().clone(),
            None => {
                let check = || CheckedPlaces::check(&root, &plan.mountpoint, &plan.pool.flashes);
                let places = once_free(check)?;
                check_fuse(&places.mountpoint, plan.allow_other)?;
                places
            }
        };
        let holder = succession.as_ref().map(Succession::holder);
        let inheritance = Inheritance { left, holder, beat: succession.as_ref().map(Succession::beat), tail, nameless };
        let found = FoundPool::find(&plan.pool, &root, &places.flashes, budget, inheritance, &waiting)?;
        let runtime = runtime_dir::make()?;
        runtime_dir::remove_dead();
        let path = runtime.join(format!("{}.sock", runtime_dir::name_of(&places.mountpoint)));
        let socket = Arc::new(once_free(|| ControlSocket::listen(&path, &places.mountpoint))?);
        let (mut pool, opened) = found.start(Some(&places.mountpoint), &waiting)?;

        // From here on a signal ends the mount in order.
        let (send, events) = channel();
        listen_to_signals(&send)?;
        if left.is_some_and(|left| !left.is_connected()) {
            log_line("the last worker died at the end of the mount; this one writes dirty data to the origin");
            let ended = pool.end(Some(&mut || events.try_recv().is_ok()));
            heirs.end();
            log_line(&ended);
            std::process::exit(ended.trouble.map_or(0, |_| ExitStatus::Failed.code().into()));
        }
        waiting.on(Step::Origin("the files"));
        let service = service_of(&mut pool, places, &heirs)?;
        let service = match &succession {
            Some(succession) => service.held(succession.holder(), succession.lives()),
            None => service,
        };
        // What is counted before the first look is in no row of the history.
        service.history.look(&service.look_for_history());
        let mut mounted = match attach(plan, &pool, &service, &opened, budget, left, lasting) {
            Ok(mounted) => mounted,
            Err(error) => {
                pool.end(None);
                return Err(mount_refusal(&service, error));
            }
        };
        serve_socket(&socket, &service, send)?;
        keep_history(&service, opened.after_crash)?;
        let shown = match (http, listen) {
            (Some(http), _) => show_mount(http, service.clone()),
            (None, Some(listen)) => show_mount_later(listen, service.clone()),
            (None, None) => Ok(()),
        };
        shown.map_err(|error| Refusal::Failed { doing: "start the threads of --http".to_owned(), error })?;
        drop(waiting);
        let failed = |error| Refusal::Failed { doing: "leave the mount to the holder".to_owned(), error };
        if let Some(keeper) = heirs.lock_keeper() {
            pool.lock_kept_by(keeper).map_err(failed)?;
        }
        heirs.leave_session(&session).map_err(failed)?;
        heirs
            .serve(mounted.device().map_err(failed)?, pool.devices(), &service.places, plan.http_token.as_ref())
            .map_err(failed)?;
        let mut notes = opened.notes;
        if left.is_none() {
            match service.begin_copies(&plan.pool.peers) {
                Ok(told) => notes.extend(told),
                // Another host has the pool: nothing of this start may serve.
                Err(refusal) => {
                    let _ = mounted.unmount();
                    pool.end(None);
                    return Err(refusal);
                }
            }
        }
        Ok(Self { service, mounted, pool, events, socket, notes, heirs })
    }

    /// What is mounted, with notes for the operator.
    #[must_use]
    pub fn summary(&self) -> String {
        let status = self.service.status();
        let notes: String = self.notes.iter().map(|note| format!("{note}\n")).collect();
        format!(
            "{notes}mounted {} on {}, {} with flash {} ({}, {}): {} cached, {} dirty",
            status.origin.display(),
            status.mountpoint.display(),
            status.mode,
            listed(&status.flashes),
            Size(status.size_bytes),
            status.backend,
            Size(status.cached_bytes),
            Size(status.dirty_bytes)
        )
    }

    /// Serves until the mount is gone, and ends it in order.
    ///
    /// # Errors
    /// If the origin should have got everything and did not. The rest is in the pool.
    pub fn serve(mut self) -> Result<Ended, Refusal> {
        let mut elsewhere = Elsewhere::new();
        loop {
            match self.events.recv_timeout(PERIOD) {
                Ok(Event::Unmount { client, keep_dirty, bounded }) => {
                    // Requests that wait for the thaw would keep the mount busy.
                    self.service.thaw();
                    self.pool.leaves(true);
                    match self.mounted.unmount() {
                        Ok(()) => {
                            let flush = match (keep_dirty, bounded) {
                                (true, _) => EndFlush::Nothing,
                                (false, true) => EndFlush::within(self.service.settings().shutdown_flush()),
                                (false, false) => EndFlush::Everything,
                            };
                            return self.finish(flush, Some(client));
                        }
                        Err(error) => {
                            self.pool.leaves(false);
                            client.refuse(&unmount_refusal(&self, error));
                        }
                    }
                }
                Ok(Event::HandOver { client, to }) => match self.may_hand_over(&to) {
                    Ok(()) => {
                        self.service.thaw();
                        match self.mounted.unmount() {
                            Ok(()) => {
                                self.pool.hand_to(to);
                                return self.finish(EndFlush::Nothing, Some(client));
                            }
                            Err(error) => client.refuse(&unmount_refusal(&self, error)),
                        }
                    }
                    Err(refusal) => client.refuse(&refusal),
                },
                Ok(Event::Upgrade { client, program, layout }) => self.go_on_with(&program, &layout, client),
                Ok(Event::Signal(signal)) => {
                    let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
                    let bound = self.service.settings().shutdown_flush().filter(|_| signal == SIGTERM);
                    match bound {
                        Some(bound) => log_line(format_args!(
                            "{name}: the daemon writes dirty data to the origin for at most {} s, and ends. What is left \
                             stays in the pool; a second signal ends at once",
                            bound.as_secs()
                        )),
                        None => log_line(format_args!("{name}: the daemon ends now; dirty data stays in the pool")),
                    }
                    return self.leave(bound);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.service.watch();
                    if self.mounted.is_finished() {
                        log_line("another process unmounted it; the daemon writes dirty data to the origin");
                        return self.finish(EndFlush::Everything, None);
                    }
                    match elsewhere.look(&self.mounted, Instant::now()) {
                        NextStep::Serve => {}
                        NextStep::Tell => log_line(format_args!(
                            "the mount is gone here, but still in use{}, by open files or in another mount namespace; \
                             the daemon serves until that ends",
                            self.holders()
                        )),
                        NextStep::End => {
                            log_line(format_args!(
                                "another process unmounted it, and nothing uses it in other mount namespaces; the daemon \
                                 ends it there and writes dirty data to the origin"
                            ));
                            if let Err(error) = self.mounted.end_copies() {
                                log_line(error);
                            }
                            return self.finish(EndFlush::Everything, None);
                        }
                    }
                }
                // The senders are threads of this process that do not end.
                Err(RecvTimeoutError::Disconnected) => return self.leave(None),
            }
        }
    }

    /// Whether another host has all that this one has.
    fn may_hand_over(&self, to: &str) -> Result<(), Refusal> {
        let mnt = self.service.mountpoint();
        let refuse = |what: &str| Err(Refusal::Usage(format!("{} is not handed over: {what}", mnt.display())));
        let pool = self.service.pool_shown();
        match self.pool.node() {
            None => return refuse("it has no lease that could go to another host. Mount with --registry"),
            Some(node) if node == to => return refuse("this host is that node"),
            Some(_) => {}
        }
        if !pool.members.iter().any(|member| member.copies_only && member.state == "ONLINE") {
            return refuse("no other host has a copy. For one: headpond pool add MOUNTPOINT --peer HOST:PORT");
        }
        if !self.pool.is_owner() {
            return refuse("it stands still, as its lease is not renewed");
        }
        if pool.exposed_bytes > 0 {
            return refuse("the copy is not complete yet. To wait for it: headpond pool wait MOUNTPOINT");
        }
        Ok(())
    }

    /// Ends this worker, so that another program takes over. What was acknowledged is durable before, so that the next
    /// one has little to recover. Requests that come meanwhile wait in the kernel.
    fn go_on_with(&self, program: &Path, layout: &str, client: Client) {
        if let Err(refusal) = self.heirs.may_be(program, layout) {
            return client.refuse(&refusal);
        }
        if !self.pool.is_owner() {
            let what =
                "upgrade: the mount stands still, as its lease is not renewed. Nothing was changed. Try again later";
            return client.refuse(&Refusal::Usage(what.to_owned()));
        }
        if let Reply::Failed(errno) = self.pool.handle().call(Request::SyncAll) {
            log_line(format_args!("an upgrade: the pool cannot be synced before: {errno}"));
        }
        match self.heirs.go_on_with(program) {
            Ok(()) => {
                log_line(format_args!("{} takes over", program.display()));
                let look = self.service.look_for_history();
                self.service.history.end(&look, EventKind::Upgraded, &format!("{} takes over", program.display()));
                self.service.recordings.end();
                client.answer(&Answer::Done);
                // As by a kill: the next worker relies on nothing that this one would still do.
                std::process::exit(0)
            }
            Err(refusal) => client.refuse(&refusal),
        }
    }

    /// The programs that use the mount, as a part of a sentence.
    fn holders(&self) -> String {
        let device = self.mounted.number().map(|number| (0, number));
        describe(&holders_of(&self.service.mountpoint(), device))
    }

    /// Ends at once, as a signal does: dirty data stays in the pool.
    pub fn leave_at_once(self) -> ! {
        let code = match self.leave(None) {
            Ok(_) => 0,
            Err(refusal) => refusal.status().code(),
        };
        std::process::exit(code.into())
    }

    /// Ends the mount even if it is in use. Dirty data goes to the origin for at most `flush`.
    fn leave(mut self, flush: Option<Duration>) -> Result<Ended, Refusal> {
        self.service.thaw();
        self.pool.leaves(true);
        match self.mounted.unmount() {
            Ok(()) => {}
            Err(error) => {
                log_line(format_args!("{error}; the daemon detaches the mount all the same"));
                if self.mounted.is_here()
                    && let Err(refusal) = detach(&self.service.mountpoint(), Detach::Lazy)
                {
                    log_line(refusal);
                }
            }
        }
        self.finish(EndFlush::within(flush), None)
    }

    fn finish(self, flush: EndFlush, client: Option<Client>) -> Result<Ended, Refusal> {
        let Self { service, mounted, pool, events, socket, heirs, .. } = self;
        // A mount that was in use still has handles, which end with the process. Its drop would wait for them,
        // perhaps for ever.
        std::mem::forget(mounted);
        service.enter(Phase::Unmounting);
        service.thaw();
        pool.leaves(true);
        service.recordings.end();
        notify("STOPPING=1");
        let mut is_interrupted = || match events.try_recv() {
            Ok(Event::Signal(_)) => true,
            Ok(event) => {
                event.refuse(&Refusal::Ending { path: service.mountpoint() });
                false
            }
            Err(_) => matches!(flush, EndFlush::Within(end) if Instant::now() >= end),
        };
        let said = match flush {
            EndFlush::Nothing => "the mount ended; what is dirty stays in the pool",
            EndFlush::Within(_) | EndFlush::Everything => "the mount ended; what is dirty goes to the origin",
        };
        service.history.end(&service.look_for_history(), EventKind::Stopped, said);
        let ended = pool.end(if flush == EndFlush::Nothing { None } else { Some(&mut is_interrupted) });
        heirs.end();
        // A flush that was to end by then has not failed.
        let expected = matches!(flush, EndFlush::Within(_)) && ended.in_order;
        let refusal = ended
            .trouble
            .clone()
            .filter(|_| !expected)
            .map(|why| Refusal::FlushFailed { why, dirty_bytes: ended.dirty_bytes });
        // Closed before the last answer: a later command finds no daemon, rather than one that ends.
        socket.close();
        // Answers the clients that asked for an unmount while the mount ended.
        for event in events.try_iter() {
            event.refuse(&Refusal::Ending { path: service.mountpoint() });
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

fn service_of(pool: &mut RunningPool, places: CheckedPlaces, heirs: &Heirs) -> Result<Service, Refusal> {
    let again = || Refusal::Failed { doing: "serve the pool".to_owned(), error: std::io::Error::other("it is served") };
    let started = pool.started().ok_or_else(again)?;
    let (handle, gate, live) = (pool.handle(), pool.gate(), pool.settings());
    let devices = pool.devices().clone();
    let marker = pool.marker().clone();
    let kept = (pool.history().clone(), live.clone());
    let members = PoolMembers::of(started, handle.clone(), devices, Arc::new(heirs.clone()), marker, kept);
    let service = Service::new(handle.clone(), places, members, live.clone(), gate.clone());
    let freeze = Freeze::of(pool.root().clone(), pool.note().clone());
    let service = service.with_faults(pool.faults().clone()).with_freeze(freeze);
    Ok(service.with_history(pool.history().clone()))
}

/// Attaches a mount to a pool in use, as its door: a new mount, or the one that the last worker left.
fn attach(
    plan: &MountPlan,
    pool: &RunningPool,
    service: &Service,
    opened: &OpenedPool,
    budget: Budget,
    left: Option<&Left>,
    lasting: Option<LastingMount>,
) -> Result<Mounted, MountError> {
    let options = MountOptions {
        origin: service.places.origin.clone(),
        mountpoint: service.places.mountpoint.clone(),
        allow_other: plan.allow_other,
        threads: THREADS,
        read_only: false,
    };
    let root = duplicate(pool.root()).map_err(|error| MountError::Origin { origin: options.origin.clone(), error })?;
    let beside = BesideMount {
        panel: Some(Arc::new(service.clone())),
        insight: service.insight.clone(),
        rules: service.rules().clone(),
        whole: service.whole.clone(),
        standstill: service.standstill.clone(),
        kept_times: opened.kept_times.clone(),
        descriptors: Some(budget),
    };
    let pond = Arc::new(pool.handle().clone());
    let (left, lasting) = match (left, lasting) {
        (Some(left), Some(lasting)) => (left, lasting),
        (_, lasting) => return mount_lasting(&options, root, pond, &opened.known, beside, lasting),
    };
    let refused = |error| MountError::Mount { mountpoint: options.mountpoint.clone(), error };
    let connection = left.connection().map_err(refused)?;
    let attached = attach_to(connection, &options, root, pond, &opened.known, beside, lasting)?;
    if attached.lost > 0 {
        log_line(format_args!("{} open files could not be opened again: requests for them fail", attached.lost));
    }
    if !attached.sends_again {
        return Err(refused(std::io::Error::other(
            "this kernel cannot send requests again (Linux 6.9 can): those under way would wait for ever",
        )));
    }
    Ok(attached.mounted)
}

fn listen_to_signals(events: &Sender<Event>) -> Result<(), Refusal> {
    let failed = |error| Refusal::Failed { doing: "listen to signals".to_owned(), error };
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let events = events.clone();
    let listen = move || {
        for signal in signals.forever() {
            // No thread listens any more: the end is under way.
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

/// Keeps the history of the mount, on a thread of its own.
fn keep_history(service: &Service, after_crash: bool) -> Result<(), Refusal> {
    let (history, status) = (service.history.clone(), service.status());
    let (kind, text) = match status.takeovers {
        0 if after_crash => (
            EventKind::StartedAfterCrash,
            "mounted after a crash or a loss of power; what was synced is here".to_owned(),
        ),
        0 => (EventKind::Started, format!("mounted, {} with headpond {}", status.mode, status.version)),
        _ if history.last_kind() == Some(EventKind::Upgraded as u8) => {
            (EventKind::Upgraded, format!("headpond {} serves", status.version))
        }
        lives => (EventKind::TakenOver, format!("the worker died; worker {} of this mount took over", lives + 1)),
    };
    history.note(kind, 1, &text);
    service.members.tell_missing();
    let service = service.clone();
    let keep = move || {
        loop {
            service.history.look(&service.look_for_history());
            service.history.write_if_due();
            if service.history.wait(LOOK_EVERY) == Pace::Ended {
                return service.history.finish();
            }
        }
    };
    std::thread::Builder::new()
        .name("history".to_owned())
        .spawn(keep)
        .map(drop)
        .map_err(|error| Refusal::Failed { doing: "start the thread of the history".to_owned(), error })
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
