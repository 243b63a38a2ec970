//! The short commands: each asks a daemon and shows the answer.

use headpond_control::{ClientCommand, Daemon, FS_TYPE, Refusal, Status, metrics_reference, mounts};

use crate::args::{FaultArgs, StatsArgs, StatusArgs};
use crate::ask::{ask_all, ask_numbers, ask_status};
use crate::output::{print, print_json};

/// `headpond status`.
pub fn status(args: &StatusArgs) -> Result<(), Refusal> {
    match &args.mountpoint {
        Some(mountpoint) => {
            let status = ask_status(&Daemon::of(mountpoint)?)?;
            if args.json { print_json(&status) } else { print_table(&status) }
        }
        None => {
            let (all, silent) = ask_all(ask_status);
            // Standard output has the mounts that answer, for programs. People see the others, too.
            let dead = dead_mounts(&all);
            for refusal in &dead {
                eprintln!("{refusal}");
            }
            if args.json {
                return print_json(&all);
            }
            if all.is_empty() && dead.is_empty() && silent == 0 {
                println!("you have no headpond mount");
            }
            all.iter().try_for_each(print_table)
        }
    }
}

/// The mounts that the kernel still shows although their daemon is gone, with advice.
fn dead_mounts(alive: &[Status]) -> Vec<Refusal> {
    let ours = mounts().into_iter().filter(|mount| mount.fs_type == FS_TYPE);
    ours.filter(|mount| alive.iter().all(|status| status.mountpoint != mount.mountpoint))
        .filter_map(|mount| Daemon::of(&mount.mountpoint).err())
        .filter(|refusal| matches!(refusal, Refusal::NotMounted { .. }))
        .collect()
}

fn print_table(status: &Status) -> Result<(), Refusal> {
    print(&format!("{}\n{status}", status.mountpoint.display()))
}

/// `headpond stats`.
pub fn stats(args: &StatsArgs) -> Result<(), Refusal> {
    let Some(mountpoint) = &args.mountpoint else { return print(&metrics_reference()) };
    let mut numbers = ask_numbers(&Daemon::of(mountpoint)?)?;
    // The percentiles say the same in a few numbers.
    numbers.latency.values_mut().for_each(|latency| latency.buckets.clear());
    if args.json { print_json(&numbers) } else { print(&numbers.lines()) }
}

/// `headpond fault`.
pub fn fault(args: &FaultArgs) -> Result<(), Refusal> {
    let flash = args.flash.as_ref().map(|flash| std::fs::canonicalize(flash).unwrap_or_else(|_| flash.clone()));
    Daemon::of(&args.mountpoint)?.ask(&ClientCommand::Fault { faults: args.faults.clone(), flash }).map(drop)
}
