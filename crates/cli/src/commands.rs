//! The short commands: each asks a daemon and shows what it says.

use headpond_control::{Answer, Command, Daemon, Numbers, Refusal, Status, metrics_reference};

use crate::args::{FaultArgs, StatsArgs, StatusArgs};
use crate::progress::confused;

/// `headpond status`.
pub fn status(args: &StatusArgs) -> Result<(), Refusal> {
    match &args.mountpoint {
        Some(mountpoint) => {
            let status = ask_status(&Daemon::of(mountpoint)?)?;
            if args.json { print_json(&status) } else { print_table(&status) }
        }
        None => {
            // One that ends at this very moment is no error of this command.
            let all: Vec<Status> = Daemon::all().iter().filter_map(|daemon| ask_status(daemon).ok()).collect();
            if args.json {
                return print_json(&all);
            }
            if all.is_empty() {
                println!("no headpond is mounted by this user");
            }
            all.iter().try_for_each(print_table)
        }
    }
}

/// What a daemon says of itself.
pub fn ask_status(daemon: &Daemon) -> Result<Status, Refusal> {
    match daemon.ask(&Command::Status)? {
        Answer::Status(status) => Ok(*status),
        _ => Err(confused(daemon)),
    }
}

fn print_table(status: &Status) -> Result<(), Refusal> {
    print(&format!("{}\n{status}", status.mountpoint.display()))
}

/// To standard output, for programs.
pub fn print_json<T: serde::Serialize>(value: &T) -> Result<(), Refusal> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Refusal::Failed { doing: "write JSON".to_owned(), error: error.into() })?;
    print(&(text + "\n"))
}

/// To standard output; a reader that has seen enough is no error.
pub fn print(text: &str) -> Result<(), Refusal> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Refusal::Failed { doing: "write to standard output".to_owned(), error })
        }
        _ => Ok(()),
    }
}

/// `headpond stats`.
pub fn stats(args: &StatsArgs) -> Result<(), Refusal> {
    let Some(mountpoint) = &args.mountpoint else { return print(&metrics_reference()) };
    let mut numbers = ask_numbers(&Daemon::of(mountpoint)?)?;
    // The percentiles say it in a few numbers.
    numbers.latency.values_mut().for_each(|latency| latency.buckets.clear());
    if args.json { print_json(&numbers) } else { print(&numbers.lines()) }
}

/// All numbers of a daemon.
pub fn ask_numbers(daemon: &Daemon) -> Result<Numbers, Refusal> {
    match daemon.ask(&Command::Numbers)? {
        Answer::Numbers(numbers) => Ok(*numbers),
        _ => Err(confused(daemon)),
    }
}

/// `headpond fault`.
pub fn fault(args: &FaultArgs) -> Result<(), Refusal> {
    Daemon::of(&args.mountpoint)?.ask(&Command::Fault { faults: args.faults.clone() }).map(drop)
}
