//! A mount from its start to its end: a pool in use, with FUSE as its door and a control socket for commands.
//!
//! Start: the places, the pool (see [`FoundPool`]), the mount, the control socket. End: the mount goes first, so that
//! nothing new comes in; then the pool ends.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use headpond_mount::{Beside as BesideMount, MountError, MountOptions, Mounted, THREADS, mount_with};
use headpond_shard::Budget;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::ending::Ended;
use super::last_daemon::once_free;
use super::pool::{FoundPool, OpenedPool, RunningPool, duplicate};
use crate::mounts::{CheckedPlaces, Detach, Elsewhere, NextStep, check_fuse, describe, detach, holders_of};
use crate::numbers::exposition;
use crate::origin::OriginRoot;
use crate::process::log::log_line;
use crate::process::{Step, Waiting, confine, give_large_buffers_back, notify, runtime_dir};
use crate::refusal::Refusal;
use crate::service::{Answer, Client, ControlSocket, Event, MetricsServer, Phase, Service, Token};
use crate::settings::MountPlan;
use crate::wording::Size;

/// How often the main thread looks for an unmount by another process, and for errors.
const PERIOD: Duration = Duration::from_millis(250);

/// A pool in use, and the mount that is its door.
pub struct Running {
    service: Service,
    mounted: Mounted,
    pool: RunningPool,
    events: Receiver<Event>,
    socket: Arc<ControlSocket>,
    notes: Vec<String>,
}

impl Running {
    /// Starts a mount. `say` gets what the start waits for.
    ///
    /// # Errors
    /// The reason not to start. Nothing was changed then.
    pub fn start(plan: &MountPlan) -> Result<Self, Refusal> {
        let token = plan.metrics_token.as_deref().map(Token::read).transpose()?;
        let metrics = plan.metrics.map(|address| MetricsServer::listen(address, token)).transpose()?;
        let budget = Budget::of_process();
        give_large_buffers_back();
        confine().map_err(|error| Refusal::Failed { doing: "give up capabilities".to_owned(), error })?;
        let waiting = Waiting::for_origin(&plan.pool.origin);
        waiting.on(Step::Origin("the directory"));
        let root = Arc::new(OriginRoot::open(&plan.pool.origin)?);
        let places = CheckedPlaces::check(&root, &plan.mountpoint, &plan.pool.flash)?;
        check_fuse(&places.mountpoint, plan.allow_other)?;
        let found = FoundPool::find(&plan.pool, &root, &places.flash, budget, &waiting)?;
        let runtime = runtime_dir::make()?;
        runtime_dir::remove_dead();
        let path = runtime.join(format!("{}.sock", runtime_dir::name_of(&places.mountpoint)));
        let socket = Arc::new(once_free(|| ControlSocket::listen(&path, &places.mountpoint))?);
        let (pool, opened) = found.start(Some(&places.mountpoint), &waiting)?;

        // From here on a signal ends the mount in order.
        let (send, events) = channel();
        listen_to_signals(&send)?;
        waiting.on(Step::Origin("the files"));
        let service = service_of(&pool, places);
        let mounted = match attach(plan, &pool, &service, &opened, budget) {
            Ok(mounted) => mounted,
            Err(error) => {
                pool.end(None);
                return Err(mount_refusal(&service, error));
            }
        };
        serve_socket(&socket, &service, send)?;
        if let Some(metrics) = metrics {
            serve_metrics(metrics, &service)?;
        }
        drop(waiting);
        notify("READY=1");
        Ok(Self { service, mounted, pool, events, socket, notes: opened.notes })
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
    /// If the origin should have got everything and did not. The rest is in the pool.
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
                    log_line(format_args!("{name}: the daemon ends now; dirty data stays in the pool"));
                    return self.leave();
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.service.watch();
                    if self.mounted.is_finished() {
                        log_line("another process unmounted it; the daemon writes dirty data to the origin");
                        return self.finish(true, None);
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
                            return self.finish(true, None);
                        }
                    }
                }
                // The senders are threads of this process that do not end.
                Err(RecvTimeoutError::Disconnected) => return self.leave(),
            }
        }
    }

    /// The programs that use the mount, as a part of a sentence.
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
                log_line(format_args!("{error}; the daemon detaches the mount all the same"));
                if self.mounted.is_here()
                    && let Err(refusal) = detach(&self.service.mountpoint(), Detach::Lazy)
                {
                    log_line(refusal);
                }
            }
        }
        self.finish(false, None)
    }

    fn finish(self, flush: bool, client: Option<Client>) -> Result<Ended, Refusal> {
        let Self { service, mounted, pool, events, socket, .. } = self;
        // A mount that was in use still has handles, which end with the process. Its drop would wait for them,
        // perhaps for ever.
        std::mem::forget(mounted);
        service.enter(Phase::Unmounting);
        notify("STOPPING=1");
        let mut is_interrupted = || match events.try_recv() {
            Ok(Event::Signal(_)) => true,
            Ok(Event::Unmount { client, .. }) => {
                client.refuse(&Refusal::Ending { path: service.mountpoint() });
                false
            }
            Err(_) => false,
        };
        let ended = pool.end(if flush { Some(&mut is_interrupted) } else { None });
        let refusal = ended.trouble.clone().map(|why| Refusal::FlushFailed { why, dirty_bytes: ended.dirty_bytes });
        // Closed before the last answer: a later command finds no daemon, rather than one that ends.
        socket.close();
        // Answers the clients that asked for an unmount while the mount ended.
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

fn service_of(pool: &RunningPool, places: CheckedPlaces) -> Service {
    let (handle, gate, live) = (pool.handle(), pool.gate(), pool.settings());
    let service = Service::new(handle.clone(), places, pool.id(), pool.bytes(), live.clone(), gate.clone());
    service.with_faults(pool.faults().cloned())
}

/// Attaches a mount to a pool in use, as its door.
fn attach(
    plan: &MountPlan,
    pool: &RunningPool,
    service: &Service,
    opened: &OpenedPool,
    budget: Budget,
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
        kept_times: opened.kept_times.clone(),
        descriptors: Some(budget),
    };
    mount_with(&options, root, Arc::new(pool.handle().clone()), &opened.known, beside)
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
