//! `headpond pool scrub`: begins a scrub, waits for it, and tells what it found.

use std::path::Path;

use headpond_control::{Answer, ClientCommand, Daemon, OperationProgress, PoolScrubShown, PoolShown, Refusal, Size};
use indicatif::ProgressBar;

use super::args::Changing;
use super::begun;
use super::wait::follow;
use crate::ask::{ask_pool, confused};
use crate::output::{print, print_json};
use crate::progress::Bar;

/// Begins a scrub, and waits for its end unless told otherwise.
pub fn run(mountpoint: &Path, changing: &Changing) -> Result<(), Refusal> {
    let daemon = Daemon::of(mountpoint)?;
    if changing.dry_run {
        let used: u64 = ask_pool(&daemon)?.sum(|member| member.used_bytes);
        if changing.json {
            return print_json(&serde_json::json!({ "would_read_bytes": used, "dry_run": true }));
        }
        return print(&format!("would read {} on the pool's devices. Nothing was done\n", Size(used)));
    }
    let Answer::Started { id } = daemon.ask(&ClientCommand::Scrub)? else { return Err(confused(&daemon)) };
    if changing.background {
        let mount = mountpoint.display();
        return begun(id, changing, &format!("end it: headpond pool scrub {mount} --cancel"), mountpoint);
    }
    let scrub = wait(&daemon, id, changing)?;
    if changing.json {
        print_json(&scrub)?;
    } else if !changing.quiet {
        print(&format!("{scrub}\n"))?;
    }
    if scrub.lost_bytes > 0 { Err(Refusal::DirtyLost { bytes: Size(scrub.lost_bytes) }) } else { Ok(()) }
}

/// Waits for the end of a scrub. Returns what it found.
fn wait(daemon: &Daemon, id: u64, changing: &Changing) -> Result<PoolScrubShown, Refusal> {
    let (progress, pool) = follow(daemon, id, changing.quiet || changing.json, interrupted, show)?;
    let scrub = pool.scrub.unwrap_or_default();
    match progress {
        OperationProgress::Running | OperationProgress::Done => Ok(scrub),
        OperationProgress::Cancelled => {
            let why = format!("the scrub was ended by another command, or by the mount's end: {scrub}");
            Err(Refusal::Interrupted(why))
        }
        OperationProgress::Failed(why) => {
            Err(Refusal::Failed { doing: "scrub the pool".to_owned(), error: std::io::Error::other(why) })
        }
    }
}

fn interrupted(daemon: &Daemon) -> Refusal {
    let mount = daemon.mountpoint().display();
    Refusal::Interrupted(format!(
        "interrupted: the scrub goes on in the background. To see it: headpond pool status {mount}. To end it: headpond pool scrub {mount} --cancel"
    ))
}

fn show(bar: &mut Bar, pool: &PoolShown) {
    let Some(scrub) = &pool.scrub else { return };
    let on_bar = |bar: &ProgressBar| {
        bar.set_length((scrub.checked_bytes + scrub.left_bytes).max(1));
        bar.set_position(scrub.checked_bytes);
        bar.set_message(scrub.to_string());
    };
    bar.show(on_bar, || scrub.to_string());
}

/// Ends the scrub that goes on.
pub fn cancel(mountpoint: &Path, changing: &Changing) -> Result<(), Refusal> {
    let daemon = Daemon::of(mountpoint)?;
    daemon.ask(&ClientCommand::CancelScrub)?;
    if changing.json {
        return print_json(&ask_pool(&daemon)?);
    }
    print("ended: what it found until then was made good, and is in headpond pool status\n")
}
