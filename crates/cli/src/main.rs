//! The `headpond` command: reads the command line, runs the command, and ends with an exit status of
//! [`headpond_control::ExitStatus`]. Under the name of a mount helper it is that helper.

mod args;
mod ask;
mod atomic;
mod by_mount;
mod check;
mod commands;
mod doctor;
mod flush;
mod freeze;
#[cfg(feature = "lab")]
mod lab;
mod mount;
mod on_mount;
mod output;
mod pages;
mod peer;
mod peer_args;
mod pool;
mod progress;
mod record;
mod replay;
mod rules;
mod seconds;
mod settings;
mod size;
mod top;
mod traces;
mod unmount;
mod upgrade;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use headpond_control::Refusal;

use crate::args::{Cli, Command};
use crate::by_mount::Helper;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let arguments: Vec<OsString> = arguments.collect();
    if let Some(helper) = Helper::called(&name, arguments.first()) {
        return helper.run(&arguments);
    }
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Mount(args) => mount::run(args, cli.background_child, cli.worker),
        Command::Status(args) => commands::status(args),
        Command::Top(args) => top::run(args),
        Command::Stats(args) => commands::stats(args),
        Command::Flush(args) => flush::run(args),
        Command::Freeze(args) => return freeze::run(args).unwrap_or_else(|refusal| fail(&refusal)),
        Command::Rules(args) => rules::run(args),
        Command::Set(args) => settings::set(args),
        Command::Get(args) => settings::get(args),
        Command::Pool(args) => pool::run(args),
        Command::Peer(args) => peer::run(args, cli.background_child, cli.worker),
        Command::Takeover(args) => peer::takeover(args, cli.background_child, cli.worker),
        Command::Handover(args) => unmount::hand_over(args),
        Command::Unmount(args) => unmount::run(args),
        Command::Upgrade(args) => upgrade::run(args),
        Command::SharedLayout => output::print(&format!("{}\n", headpond_control::shared_layout())),
        Command::Check(args) => check::run(args),
        Command::Record(args) => record::run(args),
        Command::Size(args) => size::run(args),
        Command::Replay(args) => replay::run(args),
        #[cfg(feature = "lab")]
        Command::Lab(args) => return lab::lab(args),
        Command::Atomic(args) => atomic::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Fault(args) => commands::fault(args),
        Command::Pages(args) => pages::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => fail(&refusal),
    }
}

fn fail(refusal: &Refusal) -> ExitCode {
    headpond_control::log_line(refusal);
    ExitCode::from(refusal.status().code())
}
