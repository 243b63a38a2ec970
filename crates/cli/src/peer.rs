//! `headpond peer` and `headpond takeover`: copies of other hosts' pools, and going on with one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use headpond_control::{
    Certificates, Heir, MarkerHold, OriginRoot, PeerServer, Refusal, ServerConfig, Size, Store, StoredCopy, TakenCopy,
    log_line, take_over, taken_over,
};

use crate::args::{Cli, Command, MountArgs};
use crate::mount;
use crate::output::{print, print_json};
use crate::peer_args::{PeerCommand, PeerCommandArgs, TakeoverArgs};

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
            let opened = Store::open(store).and_then(|store| PeerServer::listen(store, config, |line| log_line(line)));
            let server = opened.map_err(|error| Refusal::Usage(error.to_string()))?;
            let failed = |error| Refusal::Failed { doing: "serve copies".to_owned(), error };
            let address = server.address().map_err(failed)?;
            log_line(format_args!("keeps copies in {}, and listens at {address}", store.display()));
            server.serve().map_err(failed)
        }
        PeerCommand::Guard(args) => guard(args, background_child, worker),
        PeerCommand::Status { store, json } => {
            if !store.is_dir() {
                return Err(Refusal::Usage(format!("there is no store at {}", store.display())));
            }
            let all = Store::open(store).and_then(|store| store.all());
            let all = all.map_err(|error| Refusal::Usage(error.to_string()))?;
            if *json { print_json(&all) } else { print(&shown(store, &all)) }
        }
    }
}

fn shown(store: &Path, all: &[StoredCopy]) -> String {
    if all.is_empty() {
        return format!("{} keeps no copies\n", store.display());
    }
    all.iter().map(one_shown).collect()
}

fn one_shown(copy: &StoredCopy) -> String {
    let state = match (copy.taken_over, copy.in_use, copy.counts) {
        (true, true, _) => "taken over by this host, in use",
        (true, false, _) => "taken over by this host, not in use",
        (false, _, false) => "does not count: this host went down while the owner was connected",
        (false, true, true) => "the owner is connected",
        (false, false, true) => "no owner is connected",
    };
    format!(
        "pool {}\n  {state}\n  owner's number {}, epoch {}, {}, last connection {}\n  {}\n",
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
    line.extend(args.lease.words());
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
    if !worker && !background_child && args.guard().is_none() {
        // An owner that lives, and has the lock beside this very origin, is not deposed by mistake.
        MarkerHold::take(&Arc::new(OriginRoot::open(&args.origin)?))?;
    }
    mount_as(args, Heir::Operator, background_child, worker)
}

/// `headpond peer guard`: the same, once there is no owner.
pub fn guard(args: &TakeoverArgs, background_child: bool, worker: bool) -> Result<(), Refusal> {
    if args.guard().is_none() {
        let why = "peer guard: nothing says when the owner is gone. Give the registry: --registry http://HOST:PORT";
        return Err(Refusal::Usage(why.to_owned()));
    }
    // A typing error shows now, and not at the time of need.
    OriginRoot::open(&args.origin)?;
    Store::open(&args.store).map_err(|error| Refusal::Usage(error.to_string()))?;
    mount_as(args, Heir::Guard, background_child, worker)
}

fn mount_as(args: &TakeoverArgs, heir: Heir, background_child: bool, worker: bool) -> Result<(), Refusal> {
    let usage = |error: headpond_control::StoreError| Refusal::Usage(error.to_string());
    // The holder does it before each of its workers is there. A worker goes on with what that one has.
    let is_first = !worker && !background_child;
    let taken = match args.guard() {
        Some(guard) if is_first => guard.become_owner(heir)?,
        None if !worker => take_over(&args.store, args.pool.as_deref()).map_err(usage)?,
        _ => taken_over(&args.store, args.pool.as_deref()).map_err(usage)?,
    };
    let TakenCopy { path, pool, owner } = taken;
    if is_first {
        log_line(format_args!("pool {pool}: this host is the owner from now on, with owner's number {owner}"));
    }
    let mount = mount_args(args, path)?;
    mount::run_planned(&mount, background_child, worker, &|mut plan| {
        plan.pool.owner = Some(owner);
        Ok(plan)
    })
}
