//! A client's end of the control socket.
//!
//! Invariant: only a daemon of the user in whose directory its socket lies is spoken with. A socket, or a link to
//! one, that leads to another user's process is not: root would give it its commands.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::protocol::{ANSWER_MAX, Answer, ClientCommand};
use crate::mounts::{FS_TYPE, mounted_on, mountpoint_path};
use crate::process::runtime_dir;
use crate::refusal::{ExitStatus, Refusal};

/// How long a daemon may take for a short answer. Its control thread never waits for storage.
const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon that was found.
#[derive(Clone, Debug)]
pub struct Daemon {
    socket: PathBuf,
    user: u32,
    mountpoint: PathBuf,
}

impl Daemon {
    /// The daemon of a mount point.
    ///
    /// # Errors
    /// [`Refusal::NotMounted`] when there is none.
    pub fn of(mountpoint: &Path) -> Result<Self, Refusal> {
        let mountpoint = mountpoint_path(mountpoint);
        let mount = mounted_on(&mountpoint).filter(|mount| mount.fs_type == FS_TYPE);
        let user = mount.as_ref().and_then(|mount| mount.user);
        for (socket, user) in runtime_dir::sockets_of(&mountpoint, user) {
            match connect(&socket, user) {
                Ok(_) => return Ok(Self { socket, user, mountpoint }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(Refusal::from_io("speak with the daemon at", &socket, error));
                }
                Err(_) => {}
            }
        }
        let hint = match mount {
            Some(mount) => format!(
                "\n  Its daemon is gone, but the kernel still shows the mount of {}. What was synced is safe in the pool. Run the \
                 same `headpond mount` again. If the origin is mounted elsewhere by now: umount {}",
                mount.source.display(),
                mountpoint.display()
            ),
            None => String::new(),
        };
        Err(Refusal::NotMounted { path: mountpoint, hint })
    }

    /// All living daemons of this user. What dead ones left is cleared away.
    #[must_use]
    pub fn all() -> Vec<Self> {
        runtime_dir::remove_dead();
        let user = geteuid().as_raw();
        let alive = |socket: &PathBuf| connect(socket, user).is_ok();
        let sockets = runtime_dir::all_sockets().into_iter().filter(alive);
        sockets.map(|socket| Self { mountpoint: socket.clone(), socket, user }).collect()
    }

    /// The mount point, as it was found.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Asks, and waits for the short answer.
    ///
    /// # Errors
    /// What the daemon refuses, or [`Refusal::NoAnswer`].
    pub fn ask(&self, command: &ClientCommand) -> Result<Answer, Refusal> {
        self.take(ask_at(&self.socket, self.user, command, Some(PATIENCE)))
    }

    /// Asks for something that is answered when it is over, however long that takes.
    ///
    /// # Errors
    /// What the daemon refuses, or [`Refusal::NoAnswer`].
    pub fn ask_and_wait(&self, command: &ClientCommand) -> Result<Answer, Refusal> {
        self.take(ask_at(&self.socket, self.user, command, None))
    }

    fn take(&self, answer: io::Result<Answer>) -> Result<Answer, Refusal> {
        match answer {
            Ok(Answer::Refused { status, text }) => {
                Err(Refusal::Relayed { text, status: ExitStatus::from_code(status).unwrap_or(ExitStatus::Failed) })
            }
            Ok(answer) => Ok(answer),
            // It ended between being found and being asked.
            Err(_) if connect(&self.socket, self.user).is_err() => {
                Err(Refusal::NotMounted { path: self.mountpoint.clone(), hint: String::new() })
            }
            Err(error) => Err(Refusal::NoAnswer { path: self.mountpoint.clone(), why: error.to_string() }),
        }
    }
}

/// Connects with a daemon of this user.
fn connect(socket: &Path, user: u32) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    if socket_peercred(&stream)?.uid.as_raw() == user {
        return Ok(stream);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("another user than {user} listens there")))
}

/// Says one line to the socket of a user's daemon and reads one.
///
/// # Errors
/// When nobody of that user listens, or what is said is no answer.
pub fn ask_at(socket: &Path, user: u32, command: &ClientCommand, patience: Option<Duration>) -> io::Result<Answer> {
    let mut stream = connect(socket, user)?;
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    let mut line = serde_json::to_vec(command)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut said = String::new();
    BufReader::new(stream.take(ANSWER_MAX)).read_line(&mut said)?;
    if said.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
    }
    Ok(serde_json::from_str(&said)?)
}
