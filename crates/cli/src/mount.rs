//! `headpond mount`: a holder, in the foreground or started once more in the background, and its workers.

use std::ffi::OsString;

use headpond_control::{
    Decisions, MountPlan, OriginLayer, PoolPlan, Processors, Refusal, Running, Succession, hold_mount, leave_terminal,
    log_line, make_runtime_dir, mountpoint_path, report_ready, report_refusal, runtime_name, start_background,
};

use crate::args::{BACKGROUND_CHILD, MountArgs, WORKER};
use crate::on_mount::OnMount;

/// `headpond mount`.
pub fn run(args: &MountArgs, background_child: bool, worker: bool) -> Result<(), Refusal> {
    run_for(args, background_child, worker, &Purpose::default())
}

/// What another command than `mount` wants of a mount.
#[derive(Default)]
pub struct Purpose {
    /// The number of the pool's owner, if the mount needs a certain one.
    pub owner: Option<u64>,
    /// What to start once the mount is there.
    pub on_mount: Option<OnMount>,
    /// What each worker has to know that is not on the command line.
    pub words: Vec<OsString>,
}

/// The same, for another command.
pub fn run_for(args: &MountArgs, background_child: bool, worker: bool, purpose: &Purpose) -> Result<(), Refusal> {
    match (args.background, background_child) {
        (true, false) => in_background(args),
        _ if !worker && !is_alone() => hold(background_child, purpose.words.iter().cloned().chain(args.lease.places())),
        (_, true) => as_daemon(args, purpose),
        (false, false) => in_foreground(args, purpose),
    }
}

/// For measurements: the mount has no holder. So nothing outlives its daemon, and nothing is paid for that.
const WITHOUT_HOLDER: &str = "HEADPOND_WITHOUT_HOLDER";

fn is_alone() -> bool {
    std::env::var_os(WITHOUT_HOLDER).is_some()
}

/// This worker's place behind others, and the plan as they left it.
fn place(plan: MountPlan) -> Result<(Option<Succession>, MountPlan), Refusal> {
    if is_alone() {
        return Ok((None, plan));
    }
    let succession = Succession::take()?;
    let plan = succession.plan(plan);
    Ok((Some(succession), plan))
}

/// Holds the mount, and starts workers that serve it: this program, with the same arguments and `more` options. Ends as
/// the last worker ended, which has said why.
fn hold(background: bool, more: impl Iterator<Item = OsString>) -> Result<(), Refusal> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let options_end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    arguments.splice(options_end..options_end, more);
    arguments.insert(0, OsString::from(format!("--{WORKER}")));
    match hold_mount(arguments, background)? {
        0 => Ok(()),
        status => std::process::exit(status.into()),
    }
}

fn in_foreground(args: &MountArgs, purpose: &Purpose) -> Result<(), Refusal> {
    end_on_panic();
    keep_to_processors(args)?;
    let (succession, plan) = place(plan(args, purpose))?;
    let is_first = succession.as_ref().is_none_or(Succession::is_first);
    let running = Running::start(&plan, succession)?;
    for line in running.summary().lines() {
        log_line(line);
    }
    if is_first {
        log_line("serving until you unmount; ctrl-C ends at once and keeps dirty data in the pool");
    }
    serve(running, is_first, purpose)
}

fn in_background(args: &MountArgs) -> Result<(), Refusal> {
    let log = match &args.log {
        Some(log) => log.clone(),
        None => make_runtime_dir()?.join(format!("{}.log", runtime_name(&mountpoint_path(&args.mountpoint)))),
    };
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let ready = start_background(&format!("--{BACKGROUND_CHILD}"), arguments.into_iter(), &log)?;
    println!("{ready}");
    Ok(())
}

/// Runs the daemon that `--background` started. The waiting command shows a refusal. The daemon's log gets it, too.
fn as_daemon(args: &MountArgs, purpose: &Purpose) -> Result<(), Refusal> {
    end_on_panic();
    let started = (|| {
        let plan = plan(args, purpose).absolute()?;
        keep_to_processors(args)?;
        leave_terminal()?;
        let (succession, plan) = place(plan)?;
        let is_first = succession.as_ref().is_none_or(Succession::is_first);
        log_line(format_args!(
            "headpond {} {} {} at {}, as process {}",
            env!("CARGO_PKG_VERSION"),
            if is_first { "mounts" } else { "takes over" },
            plan.pool.origin.display(),
            plan.mountpoint.display(),
            std::process::id()
        ));
        Ok((Running::start(&plan, succession)?, is_first))
    })();
    let (running, is_first) = started.inspect_err(report_refusal)?;
    if report_ready(&running.summary()).is_err() {
        log_line("the `headpond mount` that started this daemon is gone; the daemon ends");
        running.leave_at_once();
    }
    serve(running, is_first, purpose)
}

/// Before the first thread starts: each gets the processors of the one that starts it.
fn keep_to_processors(args: &MountArgs) -> Result<(), Refusal> {
    args.processors.as_ref().map_or(Ok(()), Processors::keep_to)
}

/// Serves it until its end. Its first worker has started what `purpose` says, and a later one starts nothing again.
fn serve(running: Running, is_first: bool, purpose: &Purpose) -> Result<(), Refusal> {
    if let Some(on_mount) = purpose.on_mount.as_ref().filter(|_| is_first) {
        on_mount.start();
    }
    let ended = running.serve()?;
    log_line(&ended);
    Ok(())
}

fn plan(args: &MountArgs, purpose: &Purpose) -> MountPlan {
    let pool = PoolPlan {
        origin: args.origin.clone(),
        flashes: args.flash.clone(),
        redundancy: args.redundancy,
        copies: args.copies,
        peers: args.peer.plans(),
        lease: args.lease.plan(),
        owner: purpose.owner,
        size: args.size,
        reserve: args.reserve,
        mode: args.mode,
        config: args.config.clone(),
        backend: args.backend.into(),
        fill: args.fill.into(),
        origin_layer: origin_layer(args),
        fault: args.test_fault.clone(),
        format: args.format,
        discard_dirty: args.discard_dirty,
        decisions: Decisions::below(&args.origin, &args.keep_pool, &args.keep_origin),
    };
    MountPlan {
        pool,
        mountpoint: args.mountpoint.clone(),
        allow_other: args.allow_other,
        http: args.http,
        http_token: args.http_token.clone(),
    }
}

/// The modelled disk of `--model-disk`, in front of the origin's files.
#[cfg(feature = "lab")]
fn origin_layer(args: &MountArgs) -> Option<OriginLayer> {
    use headpond_modelled::ModelDisk;
    /// Always the same seed, so that runs can be compared.
    const SEED: u64 = 1;
    let model = args.model_disk?;
    Some(OriginLayer::new(move |files| std::sync::Arc::new(ModelDisk::new(files, model, SEED))))
}

#[cfg(not(feature = "lab"))]
const fn origin_layer(_: &MountArgs) -> Option<OriginLayer> {
    None
}

/// Ends the daemon if a thread panics: crash rather than corrupt. A daemon that lacks a thread would still take
/// requests, and synced data is safe in the pool.
fn end_on_panic() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        told(info);
        std::process::abort();
    }));
}
