//! Questions that many commands ask a daemon.

use headpond_control::{Answer, ClientCommand, Daemon, Numbers, PoolShown, Refusal, Status, Value};

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
