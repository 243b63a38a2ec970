//! `headpond mount`: a holder, in the foreground or started once more in the background, and its workers.

use std::ffi::OsString;

use headpond_control::{
    Decisions, MountPlan, OriginLayer, PoolPlan, Processors, Refusal, Running, Succession, hold_mount, leave_terminal,
    log_line, make_runtime_dir, mountpoint_path, report_ready, report_refusal, runtime_name, start_background,
};

use crate::args::{BACKGROUND_CHILD, MountArgs, WORKER};

/// `headpond mount`.
pub fn run(args: &MountArgs, background_child: bool, worker: bool) -> Result<(), Refusal> {
    run_planned(args, background_child, worker, &|plan| Ok(plan))
}

/// The same, with a plan that another command makes of that of `mount`.
pub fn run_planned(
    args: &MountArgs,
    background_child: bool,
    worker: bool,
    also: &dyn Fn(MountPlan) -> Result<MountPlan, Refusal>,
) -> Result<(), Refusal> {
    match (args.background, background_child) {
        (true, false) => in_background(args),
        _ if !worker && !is_alone() => hold(background_child),
        (_, true) => as_daemon(args, also),
        (false, false) => in_foreground(args, also),
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

/// Holds the mount, and starts workers that serve it: this program, with the same arguments. Ends as the last worker
/// ended, which has said why.
fn hold(background: bool) -> Result<(), Refusal> {
    let own: Vec<OsString> = std::env::args_os().skip(1).collect();
    let arguments = [OsString::from(format!("--{WORKER}"))].into_iter().chain(own).collect();
    match hold_mount(arguments, background)? {
        0 => Ok(()),
        status => std::process::exit(status.into()),
    }
}

fn in_foreground(args: &MountArgs, also: &dyn Fn(MountPlan) -> Result<MountPlan, Refusal>) -> Result<(), Refusal> {
    end_on_panic();
    keep_to_processors(args)?;
    let (succession, plan) = place(also(plan(args))?)?;
    let is_first = succession.as_ref().is_none_or(Succession::is_first);
    let running = Running::start(&plan, succession)?;
    for line in running.summary().lines() {
        log_line(line);
    }
    if is_first {
        log_line("serving until you unmount; ctrl-C ends at once and keeps dirty data in the pool");
    }
    finish(running)
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
fn as_daemon(args: &MountArgs, also: &dyn Fn(MountPlan) -> Result<MountPlan, Refusal>) -> Result<(), Refusal> {
    end_on_panic();
    let started = (|| {
        let plan = plan(args).absolute()?;
        keep_to_processors(args)?;
        leave_terminal()?;
        let (succession, plan) = place(also(plan)?)?;
        let is_first = succession.as_ref().is_none_or(Succession::is_first);
        log_line(format_args!(
            "headpond {} {} {} at {}, as process {}",
            env!("CARGO_PKG_VERSION"),
            if is_first { "mounts" } else { "takes over" },
            plan.pool.origin.display(),
            plan.mountpoint.display(),
            std::process::id()
        ));
        Running::start(&plan, succession)
    })();
    let running = started.inspect_err(report_refusal)?;
    if report_ready(&running.summary()).is_err() {
        log_line("the `headpond mount` that started this daemon is gone; the daemon ends");
        running.leave_at_once();
    }
    finish(running)
}

/// Before the first thread starts: each gets the processors of the one that starts it.
fn keep_to_processors(args: &MountArgs) -> Result<(), Refusal> {
    args.processors.as_ref().map_or(Ok(()), Processors::keep_to)
}

fn finish(running: Running) -> Result<(), Refusal> {
    let ended = running.serve()?;
    log_line(&ended);
    Ok(())
}

fn plan(args: &MountArgs) -> MountPlan {
    let pool = PoolPlan {
        origin: args.origin.clone(),
        flashes: args.flash.clone(),
        redundancy: args.redundancy,
        copies: args.copies,
        peers: args.peer.plans(),
        lease: args.lease.plan(),
        owner: None,
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
