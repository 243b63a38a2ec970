//! `headpond pool`: shows the devices of a pool, and changes them while it is in use.
//!
//! Invariant: the daemon does the work. A command that stops waiting changes nothing, and says what goes on.

mod args;
mod scrub;
mod wait;

use std::path::{Path, PathBuf};

use headpond_control::{Answer, ClientCommand, Daemon, PeerAddress, PoolChange, Refusal, Size};

pub use self::args::PoolArgs;
use self::args::{Changing, NewDevice, PoolCommand, Resize};
use crate::ask::{ask_all, ask_pool, confused};
use crate::output::{print, print_json};

/// `headpond pool`.
pub fn run(args: &PoolArgs) -> Result<(), Refusal> {
    match &args.command {
        PoolCommand::Status { mountpoint, json } => status(mountpoint, *json),
        PoolCommand::List { json } => list(*json),
        PoolCommand::Wait { mountpoint, quiet, json } => {
            let daemon = Daemon::of(mountpoint)?;
            let pool = wait::until_settled(&daemon, *quiet)?;
            if *json { print_json(&pool) } else { print(&pool.to_string()) }
        }
        PoolCommand::Add { mountpoint, flash, peer, making, changing } => {
            let NewDevice { size, reserve, format } = *making;
            let size = size.map(bytes);
            let change = match (peer.absolute_plan()?, flash) {
                (Some(peer), _) => PoolChange::AddPeer { peer, size },
                (None, Some(flash)) => PoolChange::Add { flash: absolute(flash)?, size, reserve, format },
                (None, None) => return Err(Refusal::Usage("say which FLASH to add".to_owned())),
            };
            change_pool(mountpoint, change, changing)
        }
        PoolCommand::Remove { mountpoint, cancel: true, changing, .. } => cancel(mountpoint, changing),
        PoolCommand::Remove { mountpoint, flash, changing, .. } => {
            let flash = flash.as_ref().ok_or_else(|| Refusal::Usage("say which FLASH to remove".to_owned()))?;
            change_pool(mountpoint, PoolChange::Remove { flash: absolute(flash)? }, changing)
        }
        PoolCommand::Replace { mountpoint, old, new, making, changing } => {
            change_pool(mountpoint, replace(Some(absolute(old)?), absolute(new)?, *making), changing)
        }
        PoolCommand::Move { mountpoint, new, making, changing } => {
            change_pool(mountpoint, replace(None, absolute(new)?, *making), changing)
        }
        PoolCommand::Scrub { mountpoint, cancel: true, changing } => scrub::cancel(mountpoint, changing),
        PoolCommand::Scrub { mountpoint, changing, .. } => scrub::run(mountpoint, changing),
        PoolCommand::Offline { mountpoint, flash, changing } => {
            change_pool(mountpoint, PoolChange::Offline { flash: absolute(flash)? }, changing)
        }
        PoolCommand::Online { mountpoint, flash, reserve, changing } => {
            change_pool(mountpoint, PoolChange::Online { flash: absolute(flash)?, reserve: *reserve }, changing)
        }
        PoolCommand::Shrink(to) => resize(to, |flash, bytes| PoolChange::Shrink { flash, bytes }),
        PoolCommand::Grow(to) => resize(to, |flash, bytes| PoolChange::Grow { flash, bytes }),
    }
}

fn replace(old: Option<PathBuf>, new: PathBuf, making: NewDevice) -> PoolChange {
    let NewDevice { size, reserve, format } = making;
    PoolChange::Replace { old, new, size: size.map(bytes), reserve, format }
}

fn resize(to: &Resize, change: impl FnOnce(Option<PathBuf>, u64) -> PoolChange) -> Result<(), Refusal> {
    let flash = to.flash.as_deref().map(absolute).transpose()?;
    change_pool(&to.mountpoint, change(flash, to.size.0), &to.changing)
}

const fn bytes(size: Size) -> u64 {
    size.0
}

/// The path that means the same in the daemon's directory, with the links in it resolved as far as it exists.
fn absolute(path: &Path) -> Result<PathBuf, Refusal> {
    if let Ok(path) = std::fs::canonicalize(path) {
        return Ok(path);
    }
    // A copy is named by the address of its peer.
    if path.to_str().is_some_and(|text| text.parse::<PeerAddress>().is_ok()) {
        return Ok(path.to_owned());
    }
    let path = std::path::absolute(path).map_err(|error| Refusal::from_io("find", path, error))?;
    let parent = path.parent().and_then(|parent| std::fs::canonicalize(parent).ok());
    Ok(parent.zip(path.file_name()).map_or(path.clone(), |(parent, name)| parent.join(name)))
}

fn status(mountpoint: &Path, json: bool) -> Result<(), Refusal> {
    let pool = ask_pool(&Daemon::of(mountpoint)?)?;
    if json { print_json(&pool) } else { print(&pool.to_string()) }
}

fn list(json: bool) -> Result<(), Refusal> {
    let (pools, silent) = ask_all(ask_pool);
    if json {
        return print_json(&pools);
    }
    if pools.is_empty() && silent == 0 {
        println!("you have no headpond mount");
        return Ok(());
    }
    let mut text = row(&["size", "used", "dirty", "free", "devices", "state"].map(str::to_owned), "mount");
    for pool in &pools {
        let sizes = [pool.size_bytes, pool.sum(|one| one.used_bytes), pool.sum(|one| one.dirty_bytes)];
        let mut cells: Vec<String> = sizes.iter().map(|bytes| Size(*bytes).to_string()).collect();
        cells.push(Size(pool.sum(|one| one.free_bytes)).to_string());
        cells.extend([pool.members.len().to_string(), pool.state.clone()]);
        text += &row(&cells, &pool.mountpoint.display().to_string());
    }
    print(&text)
}

fn row(cells: &[String], mount: &str) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>10}")).collect();
    format!("{}  {mount}\n", cells.join(" "))
}

/// Starts a change, and waits for its end unless told otherwise.
fn change_pool(mountpoint: &Path, change: PoolChange, changing: &Changing) -> Result<(), Refusal> {
    let daemon = Daemon::of(mountpoint)?;
    let command = ClientCommand::ChangePool { change, dry_run: changing.dry_run };
    // The daemon opens the device first, and may make a file of it.
    match daemon.ask_and_wait(&command)? {
        Answer::PoolPlanned { what, effect } => show_plan(&what, &effect, changing),
        Answer::Started { id } if changing.background => {
            let mount = mountpoint.display();
            begun(id, changing, &format!("wait for it: headpond pool wait {mount}"), mountpoint)
        }
        Answer::Started { id } => {
            let quiet = changing.quiet || changing.json;
            let pool = wait::until_ended(&daemon, id, quiet)?;
            match &pool.change {
                _ if changing.json => print_json(&pool),
                Some(change) if !changing.quiet => print(&format!("{change}\n")),
                _ => Ok(()),
            }
        }
        _ => Err(confused(&daemon)),
    }
}

/// An operation goes on in the background. `hint` says what else can be done about it.
fn begun(id: u64, changing: &Changing, hint: &str, mountpoint: &Path) -> Result<(), Refusal> {
    if changing.json {
        return print_json(&serde_json::json!({ "handle": id }));
    }
    eprintln!("begun. To see its progress: headpond pool status {}. To {hint}", mountpoint.display());
    Ok(())
}

/// What a dry run found.
fn show_plan(what: &str, effect: &str, changing: &Changing) -> Result<(), Refusal> {
    if changing.json {
        return print_json(&serde_json::json!({ "what": what, "effect": effect, "dry_run": true }));
    }
    print(&format!("would be {what}: {effect}. Nothing was changed\n"))
}

fn cancel(mountpoint: &Path, changing: &Changing) -> Result<(), Refusal> {
    let daemon = Daemon::of(mountpoint)?;
    let answer = daemon.ask_and_wait(&ClientCommand::CancelPoolChange { dry_run: changing.dry_run })?;
    if let Answer::PoolPlanned { what, effect } = answer {
        return show_plan(&what, &effect, changing);
    }
    if changing.json {
        return print_json(&ask_pool(&daemon)?);
    }
    print("taken back: the device stays in the pool, and what was moved stays where it is\n")
}
