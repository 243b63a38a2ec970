//! `headpond pool scrub`: begins a scrub, waits for it, and tells what it found.

use std::path::Path;

use headpond_control::{Answer, ClientCommand, Daemon, OperationProgress, PoolScrubShown, Refusal, ScrubState, Size};
use indicatif::ProgressBar;

use super::args::Changing;
use super::ask_pool;
use super::wait::{BAR, PERIOD};
use crate::ask::confused;
use crate::output::{print, print_json};
use crate::progress::{Bar, Interrupt};

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
        if changing.json {
            return print_json(&serde_json::json!({ "handle": id }));
        }
        let mount = mountpoint.display();
        eprintln!(
            "begun. To see its progress: headpond pool status {mount}. To end it: headpond pool scrub {mount} --cancel"
        );
        return Ok(());
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
    let (interrupt, mut bar) = (Interrupt::listen(), Bar::new(changing.quiet || changing.json, BAR));
    loop {
        if interrupt.came() {
            let mount = daemon.mountpoint().display();
            return Err(Refusal::Interrupted(format!(
                "interrupted: the scrub goes on in the background. To see it: headpond pool status {mount}. To end it: headpond pool scrub {mount} --cancel"
            )));
        }
        let Answer::Operation { progress, .. } = daemon.ask(&ClientCommand::Operation { id })? else {
            return Err(confused(daemon));
        };
        let scrub = ask_pool(daemon)?.scrub.unwrap_or_default();
        match progress {
            OperationProgress::Running => {
                let on_bar = |bar: &ProgressBar| {
                    bar.set_length((scrub.checked_bytes + scrub.left_bytes).max(1));
                    bar.set_position(scrub.checked_bytes);
                    bar.set_message(scrub.to_string());
                };
                bar.show(on_bar, || scrub.to_string());
            }
            OperationProgress::Done if scrub.state == ScrubState::Done => return Ok(scrub),
            // The numbers are a moment older than the end.
            OperationProgress::Done => {}
            OperationProgress::Cancelled => {
                return Err(Refusal::Interrupted(format!(
                    "the scrub was ended by another command, or by the mount's end: {scrub}"
                )));
            }
            OperationProgress::Failed(why) => {
                return Err(Refusal::Failed { doing: "scrub the pool".to_owned(), error: std::io::Error::other(why) });
            }
        }
        std::thread::sleep(PERIOD);
    }
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
