//! Waiting for a change of a pool's devices, with what is left, the rate, and the time to go.

use std::time::Duration;

use headpond_control::{Answer, ClientCommand, Daemon, OperationProgress, PoolShown, Refusal};
use indicatif::ProgressBar;

use crate::ask::{ask_pool, confused};
use crate::progress::{Bar, Interrupt};

/// How often the command asks.
const PERIOD: Duration = Duration::from_millis(200);

/// The bar.
const BAR: &str = "[{bar:30}] {msg}";

/// Waits for the end of a change. Returns how the pool is then.
///
/// # Errors
/// Why the change failed, or was taken back; or that ctrl-C ended the wait.
pub fn until_ended(daemon: &Daemon, id: u64, quiet: bool) -> Result<PoolShown, Refusal> {
    let (progress, pool) = follow(daemon, id, quiet, interrupted, show)?;
    match progress {
        OperationProgress::Running | OperationProgress::Done => Ok(pool),
        OperationProgress::Cancelled => {
            let why =
                "another command took it back: the device stays in the pool, and what was moved stays where it is";
            Err(Refusal::Interrupted(why.to_owned()))
        }
        OperationProgress::Failed(why) => {
            Err(Refusal::Failed { doing: "change the pool".to_owned(), error: std::io::Error::other(why) })
        }
    }
}

/// Waits until an operation is not running any more, and shows it meanwhile. Returns how it ended, and how the pool is
/// then. `interrupted` says what goes on after ctrl-C.
///
/// # Errors
/// That ctrl-C ended the wait, or what became of the daemon.
pub(super) fn follow(
    daemon: &Daemon,
    id: u64,
    quiet: bool,
    interrupted: impl FnOnce(&Daemon) -> Refusal,
    show: impl Fn(&mut Bar, &PoolShown),
) -> Result<(OperationProgress, PoolShown), Refusal> {
    let (interrupt, mut bar) = (Interrupt::listen(), Bar::new(quiet, BAR));
    let mut period = Duration::from_millis(5);
    loop {
        if interrupt.came() {
            return Err(interrupted(daemon));
        }
        let Answer::Operation { progress, .. } = daemon.ask(&ClientCommand::Operation { id })? else {
            return Err(confused(daemon));
        };
        let pool = ask_pool(daemon)?;
        if progress != OperationProgress::Running {
            return Ok((progress, pool));
        }
        show(&mut bar, &pool);
        std::thread::sleep(period);
        period = (period * 2).min(PERIOD);
    }
}

/// Waits until nothing is under way, and dirty data has the copies that it should have. Returns how the pool is then.
///
/// # Errors
/// That ctrl-C ended the wait, or what became of the daemon.
pub fn until_settled(daemon: &Daemon, quiet: bool) -> Result<PoolShown, Refusal> {
    let (interrupt, mut bar) = (Interrupt::listen(), Bar::new(quiet, BAR));
    loop {
        if interrupt.came() {
            return Err(interrupted(daemon));
        }
        let pool = ask_pool(daemon)?;
        if pool.is_settled() {
            return Ok(pool);
        }
        show(&mut bar, &pool);
        std::thread::sleep(PERIOD);
    }
}

fn interrupted(daemon: &Daemon) -> Refusal {
    let mount = daemon.mountpoint().display();
    Refusal::Interrupted(format!(
        "interrupted: the mount serves as before, and the change goes on in the background. To see it: headpond pool status \
         {mount}. To wait for it: headpond pool wait {mount}. To take it back, if it empties a device: headpond pool remove {mount} --cancel"
    ))
}

fn show(bar: &mut Bar, pool: &PoolShown) {
    let (what, left, total) = match &pool.change {
        Some(change) if change.state == "running" => (change.to_string(), change.left_bytes, change.total_bytes),
        _ => (pool.exposed(), pool.exposed_bytes, 0),
    };
    let on_bar = |bar: &ProgressBar| {
        let total = total.max(bar.length().unwrap_or(0)).max(left).max(1);
        bar.set_length(total);
        bar.set_position(total - left);
        bar.set_message(what.clone());
    };
    bar.show(on_bar, || what.clone());
}
