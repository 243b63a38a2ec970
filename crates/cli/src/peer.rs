//! `headpond peer` and `headpond takeover`: copies of other hosts' pools, and going on with one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use headpond_check::{Conclusion, Device, examine_members};
use headpond_control::{
    Certificates, CheckedPlaces, Decisions, ExitStatus, Heir, HeldCopy, HeldFlash, JudgedStart, MarkerHold, OriginRoot,
    PeerServer, Refusal, ServerConfig, Size, Stopper, Store, StoredCopy, TakenCopy, hold_copy, log_line, remove_copy,
    taken_over,
};
use headpond_shard::FlashReader;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Cli, Command, MountArgs};
use crate::check::show;
use crate::mount::{self, Purpose};
use crate::on_mount::{self, OnMount};
use crate::output::{print, print_json};
use crate::peer_args::{PeerCommand, PeerCommandArgs, TakeoverArgs, absolute};
use crate::progress::{Bar, Interrupt};

/// `headpond peer`.
pub fn run(args: &PeerCommandArgs, background_child: bool, worker: bool) -> Result<(), Refusal> {
    match &args.command {
        PeerCommand::Serve { listen, store, size, durable, certificates } => {
            let certificates = certificates.as_deref().map(Certificates::read).transpose();
            let certificates = certificates.map_err(|error| Refusal::Usage(error.to_string()))?;
            let config = ServerConfig {
                listen: listen.clone(),
                limit: size.map_or(u64::MAX, |size| size.0),
                durable: *durable,
                certificates,
            };
            let found = Store::open(store)?;
            let drains = found.is_draining();
            let server = PeerServer::listen(found, config, |line| log_line(line))?;
            let failed = |error| Refusal::Failed { doing: "serve copies".to_owned(), error };
            let address = server.address().map_err(failed)?;
            stop_on_signals(server.stopper()).map_err(failed)?;
            if drains {
                log_line("draining: no new copy is made. To end that: headpond peer drain --undo --store DIR");
            }
            log_line(format_args!("keeps copies in {}, and listens at {address}", store.display()));
            server.serve().map_err(failed)?;
            log_line("stopped: each copy is on disk, and counts");
            Ok(())
        }
        PeerCommand::Guard(args) => guard(args, background_child, worker),
        PeerCommand::Status { store, json } => {
            let known = Store::find(store)?;
            let all = known.all()?;
            if *json {
                return print_json(&all);
            }
            if known.is_draining() {
                let dir = store.display();
                print(&format!(
                    "draining: no new copy is made here. To end that: headpond peer drain --undo --store {dir}\n"
                ))?;
            }
            print(&shown(store, &all))
        }
        PeerCommand::Drain { store, undo: true, .. } => {
            Store::find(store)?.set_draining(false)?;
            print(&format!("{} takes new copies again\n", store.display()))
        }
        PeerCommand::Drain { store, no_wait, json, .. } => drain(store, *no_wait, *json),
        PeerCommand::Remove { store, pool, discard } => {
            let copy = remove_copy(store, pool, *discard)?;
            print(&format!("removed the copy of pool {}: {} are free\n", copy.pool, Size(copy.bytes)))
        }
    }
}

/// How often a drain looks at the store.
const DRAIN_LOOK: Duration = Duration::from_millis(500);

/// How many looks at a store may find no owner connected before the wait ends: one that was just told may reconnect.
const DRAIN_ALONE: u32 = 4;

/// `headpond peer drain`: says it, and waits until no connected owner has a copy here.
fn drain(dir: &Path, no_wait: bool, json: bool) -> Result<(), Refusal> {
    let store = Store::find(dir)?;
    store.set_draining(true)?;
    let interrupt = Interrupt::listen();
    let (mut told, mut alone) = (None, 0);
    let left = loop {
        let mut left = store.all()?;
        left.retain(|copy| copy.counts);
        let going = left.iter().filter(|copy| copy.in_use && !copy.taken_over).count();
        alone = if going == 0 { alone + 1 } else { 0 };
        if no_wait || left.is_empty() || alone >= DRAIN_ALONE || interrupt.came() {
            break left;
        }
        if told.replace(going) != Some(going) {
            log_line(format_args!("{going} connected owners have a copy here; each makes another elsewhere first"));
        }
        std::thread::sleep(DRAIN_LOOK);
    };
    if json {
        return print_json(&left);
    }
    let dir = dir.display();
    if left.is_empty() {
        return print(&format!(
            "{dir} keeps no copy that counts. To take new ones: headpond peer drain --undo --store {dir}\n"
        ));
    }
    let advice = left.iter().map(|copy| stays(copy, &dir)).collect::<String>();
    print(&format!("{advice}The drain goes on. To take it back: headpond peer drain --undo --store {dir}\n"))
}

/// What a copy waits for that stays in a store that is drained.
fn stays(copy: &StoredCopy, dir: &dyn std::fmt::Display) -> String {
    let pool = &copy.pool;
    match (copy.taken_over, copy.in_use) {
        (true, _) => format!("pool {pool}: this host has taken it over, and this is its flash: it stays\n"),
        (false, true) => format!(
            "pool {pool}: its owner is connected, and lets go once another peer has a copy. If that lasts, see there: headpond pool status MOUNTPOINT\n"
        ),
        (false, false) => format!(
            "pool {pool}: its owner is not connected. Start it, or take over. If it does not come back: headpond peer remove --store {dir} --pool {pool}\n"
        ),
    }
}

/// SIGTERM and ctrl-C stop a server in order. A second one ends it at once, as SIGKILL does.
fn stop_on_signals(stopper: Stopper) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let wait = move || {
        for (count, signal) in signals.forever().enumerate() {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
            if count > 0 {
                log_line(format_args!("{name} again: ends at once"));
                std::process::exit(128 + signal);
            }
            log_line(format_args!("{name}: the copies go to disk; a second signal ends at once"));
            stopper.stop();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

fn shown(store: &Path, all: &[StoredCopy]) -> String {
    if all.is_empty() {
        return format!("{} keeps no copies\n", store.display());
    }
    all.iter().map(one_shown).collect()
}

fn one_shown(copy: &StoredCopy) -> String {
    if let Some(why) = copy.why.as_ref().filter(|_| copy.removed) {
        return format!("pool {}\n  no copy: {why}. The owner's number {} stays known\n", copy.pool, copy.owner);
    }
    let state = match (copy.taken_over, copy.in_use, &copy.why) {
        (true, true, _) => "taken over by this host, in use".to_owned(),
        (true, false, _) => "taken over by this host, not in use".to_owned(),
        (false, _, Some(why)) => format!("does not count: {why}"),
        (false, true, None) => "the owner is connected".to_owned(),
        (false, false, None) => "no owner is connected".to_owned(),
    };
    let durable = if copy.durable { ", syncs on disk" } else { "" };
    format!(
        "pool {}\n  {state}\n  owner's number {}, epoch {}, {}{durable}, last connection {}\n  {}\n",
        copy.pool,
        copy.owner,
        copy.epoch,
        Size(copy.bytes),
        headpond_control::utc(copy.last_connection),
        copy.file.display()
    )
}

/// The arguments of a mount of the copy.
fn mount_args(args: &TakeoverArgs, copy: PathBuf) -> Result<MountArgs, Refusal> {
    let mut line: Vec<OsString> = vec!["headpond".into(), "mount".into(), "--flash".into(), copy.into()];
    line.extend(args.background.then(|| "--background".into()));
    line.extend(args.allow_other.then(|| "--allow-other".into()));
    if let Some(log) = &args.log {
        line.extend(["--log".into(), log.into()]);
    }
    for (option, files) in [("--keep-pool", &args.keep_pool), ("--keep-origin", &args.keep_origin)] {
        line.extend(files.iter().flat_map(|file| [option.into(), file.clone().into()]));
    }
    line.extend(args.lease.words());
    line.extend(args.peer.words());
    line.extend(["--".into(), args.origin.clone().into(), args.mountpoint.clone().into()]);
    match Cli::try_parse_from(line).map(|cli| cli.command) {
        Ok(Command::Mount(args)) => Ok(*args),
        Ok(_) => Err(Refusal::Usage("a mount of the copy is no mount".to_owned())),
        Err(error) => Err(Refusal::Usage(error.to_string())),
    }
}

/// `headpond takeover`: becomes the owner, and mounts the copy.
pub fn takeover(args: &TakeoverArgs, background_child: bool, worker: bool) -> Result<(), Refusal> {
    if args.guard().is_none() && !args.old_owner_is_dead {
        return Err(Refusal::Usage(format!(
            "takeover: is the old owner dead, or cut off from {}? Nothing was changed.\n  \
             The peer's store will refuse it, but nothing here keeps it from writing to the origin, and two hosts that \
             write there destroy the data. Turn it off, or take its access away. Then: --old-owner-is-dead",
            args.origin.display()
        )));
    }
    mount_as(args, Heir::Operator, background_child, worker)
}

/// `headpond peer guard`: the same, once there is no owner.
pub fn guard(args: &TakeoverArgs, background_child: bool, worker: bool) -> Result<(), Refusal> {
    let Some(plan) = args.guard() else {
        let why = "peer guard: nothing says when the owner is gone. Give the registry: --registry http://HOST:PORT";
        return Err(Refusal::Usage(why.to_owned()));
    };
    // What would be in the way shows now, and not at the time of need. Not in a process that goes on with a mount.
    if !worker && !background_child {
        plan.check_places()?;
        Store::find(&args.store)?;
    }
    mount_as(args, Heir::Guard, background_child, worker)
}

fn mount_as(args: &TakeoverArgs, heir: Heir, background_child: bool, worker: bool) -> Result<(), Refusal> {
    if let Some(program) = args.on_mount.as_deref().filter(|_| !worker && !background_child) {
        on_mount::check(program)?;
    }
    // Each process after the first goes on with what that one took.
    let taken = match args.guard() {
        _ if worker || background_child => taken_over(&args.store, args.pool.as_deref())?,
        Some(guard) => guard.become_owner(heir)?,
        None => take(args)?,
    };
    let TakenCopy { path, pool, owner } = taken;
    if !worker && !background_child {
        log_line(format_args!("pool {pool}: this host is the owner from now on, with owner's number {owner}"));
    }
    let mount = mount_args(args, path)?;
    let on_mount = args.on_mount.as_deref().map(|program| OnMount::new(program, &args.mountpoint, pool));
    let store = absolute(&args.store).into();
    let words = vec!["--store".into(), store, "--pool".into(), pool.to_string().into()];
    mount::run_for(&mount, background_child, worker, &Purpose { owner: Some(owner), on_mount, words })
}

/// Takes the pool for this host, if a mount of its copy would find nothing to refuse.
fn take(args: &TakeoverArgs) -> Result<TakenCopy, Refusal> {
    let root = Arc::new(OriginRoot::open(&args.origin)?);
    CheckedPlaces::check(&root, &args.mountpoint, &[])?;
    // An owner that lives, and has the lock beside this very origin, is not deposed by mistake.
    let marker = MarkerHold::take(&root)?;
    let held = hold_copy(&args.store, args.pool.as_deref())?;
    if !held.is_taken() {
        let decisions = Decisions::below(&args.origin, &args.keep_pool, &args.keep_origin);
        let copy = (held.file()?, held.path());
        let judged = JudgedStart::of(&root, &marker, copy, held.owner(), false, &decisions)?;
        if !args.even_damaged {
            is_whole(&held)?;
        }
        judged.still_holds(&marker)?;
    }
    Ok(held.take()?)
}

/// Reads all that a copy has, as `headpond check` does.
fn is_whole(held: &HeldCopy) -> Result<(), Refusal> {
    let file = held.file()?;
    let flash = HeldFlash::taken_over(file, held.path())?;
    let mut bar = Bar::new(false, "checking {msg} of the copy [{bar:30}] {percent}%, {eta} to go");
    let mut reader = FlashReader(flash.opened());
    let device = Device { flash: &mut reader, bytes: flash.bytes() };
    let report = examine_members(vec![device], &mut |progress| show(&mut bar, progress));
    match report.verdict {
        Conclusion::Sound | Conclusion::Harmless => Ok(()),
        Conclusion::Loss | Conclusion::Refused => Err(Refusal::Pool {
            path: held.path().to_owned(),
            what: report.why,
            advice: "Nothing was changed: the old owner may connect again. For what is damaged: headpond check. If the owner's flash \
                     is lost for good: --even-damaged, and then the database's own check",
            status: ExitStatus::PoolDamaged,
        }),
    }
}
