//! `headpond top`: what a mount does, second by second.

mod screen;
mod terminal;

use std::time::{Duration, Instant};

use headpond_control::{Daemon, Numbers, Refusal};

use crate::args::TopArgs;
use crate::ask::{ask_all, ask_numbers, ask_status};
use crate::output::print;
use screen::{HEIGHT, Interval};
use terminal::{KeyPress, Screen};

/// `headpond top`.
pub fn run(args: &TopArgs) -> Result<(), Refusal> {
    let daemon = daemon(args)?;
    let interval = Duration::from_secs(args.interval.into());
    let mut before = look(&daemon)?;
    if args.once {
        std::thread::sleep(interval);
        let now = look(&daemon)?;
        return print(&frame(&before, &now).lines().join("\n")).and_then(|()| print("\n"));
    }
    let failed = |error| Refusal::Failed { doing: "use the terminal (in a script, add --once)".to_owned(), error };
    let mut screen = Screen::open().map_err(failed)?;
    let mut shown = Interval::waiting(&before.1);
    loop {
        screen.draw(&shown.lines()).map_err(failed)?;
        if screen.wait(interval).map_err(failed)? == Some(KeyPress::Quit) {
            return Ok(());
        }
        // A key without meaning, or a resized window: it draws the same again.
        if before.0.elapsed() < interval {
            continue;
        }
        let now = look(&daemon)?;
        shown = frame(&before, &now);
        before = now;
    }
}

type Looked = (Instant, Numbers);

fn look(daemon: &Daemon) -> Result<Looked, Refusal> {
    Ok((Instant::now(), ask_numbers(daemon)?))
}

fn frame(before: &Looked, now: &Looked) -> Interval {
    Interval::between(&before.1, &now.1, now.0.duration_since(before.0).as_secs_f64())
}

fn daemon(args: &TopArgs) -> Result<Daemon, Refusal> {
    if let Some(mountpoint) = &args.mountpoint {
        return Daemon::of(mountpoint);
    }
    let mut all = Daemon::all();
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(Refusal::Usage("you have no headpond mount".to_owned())),
        (Some(_), false) => {
            let (mounts, _) = ask_all(ask_status);
            let mounts: Vec<String> =
                mounts.iter().map(|status| format!("  headpond top {}", status.mountpoint.display())).collect();
            Err(Refusal::Usage(format!("you have several mounts. Name one:\n{}", mounts.join("\n"))))
        }
    }
}

const _: () = assert!(HEIGHT <= 24, "the smallest usual terminal has 24 lines");
