//! Questions that many commands ask a daemon.

use std::panic::resume_unwind;

use headpond_control::{Answer, ClientCommand, Daemon, Numbers, PoolShown, Refusal, Status, Value};

/// What the daemons of this user say. Asks all at once, so that several silent ones take no longer than one, and shows on
/// standard error which give no answer. Returns also how many these are.
pub fn ask_all<T: Send>(ask: impl Fn(&Daemon) -> Result<T, Refusal> + Sync) -> (Vec<T>, usize) {
    let (mut answers, mut silent) = (Vec::new(), 0);
    for answer in at_once(&Daemon::all(), ask) {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(refusal @ Refusal::NoAnswer { .. }) => {
                eprintln!("{refusal}");
                silent += 1;
            }
            // A daemon that ends at this moment is no error of the command.
            Err(_) => {}
        }
    }
    (answers, silent)
}

/// The answers of what is asked at once, in the order of those asked.
fn at_once<D: Sync, T: Send>(of: &[D], ask: impl Fn(&D) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = of.iter().map(|one| scope.spawn(|| ask(one))).collect();
        asked.into_iter().map(|answer| answer.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// The status of a daemon.
pub fn ask_status(daemon: &Daemon) -> Result<Status, Refusal> {
    match daemon.ask(&ClientCommand::Status)? {
        Answer::Status(status) => Ok(*status),
        _ => Err(confused(daemon)),
    }
}

/// All numbers of a daemon.
pub fn ask_numbers(daemon: &Daemon) -> Result<Numbers, Refusal> {
    match daemon.ask(&ClientCommand::Numbers)? {
        Answer::Numbers(numbers) => Ok(*numbers),
        _ => Err(confused(daemon)),
    }
}

/// The devices of a daemon's pool.
pub fn ask_pool(daemon: &Daemon) -> Result<PoolShown, Refusal> {
    match daemon.ask(&ClientCommand::Pool)? {
        Answer::Pool(pool) => Ok(*pool),
        _ => Err(confused(daemon)),
    }
}

/// All settings of a mount.
pub fn ask_settings(daemon: &Daemon) -> Result<Vec<Value>, Refusal> {
    match daemon.ask(&ClientCommand::Get)? {
        Answer::Settings { values } => Ok(values),
        _ => Err(confused(daemon)),
    }
}

/// The refusal for an answer that does not fit its question.
pub fn confused(daemon: &Daemon) -> Refusal {
    let why = "its answer does not match the question. It may be another version of headpond".to_owned();
    Refusal::NoAnswer { path: daemon.mountpoint().to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn all_are_asked_before_any_has_answered() {
        let all_ask = Barrier::new(3);
        let answers = at_once(&[1, 2, 3], |one| {
            all_ask.wait();
            one * 10
        });
        assert_eq!(answers, [10, 20, 30]);
    }
}
