//! A client's end of the control socket.
//!
//! Invariant: a client speaks only with a daemon of the user in whose directory the socket lies. It refuses a socket,
//! or a link to one, that leads to another user's process: otherwise root would send that process its commands.

use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headpond_mount::{MountAnswer, ask_mount};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::geteuid;

use super::protocol::{ANSWER_MAX, Answer, ClientCommand};
use crate::mounts::{FS_TYPE, mounted_on, mountpoint_path};
use crate::process::runtime_dir;
use crate::refusal::{ExitStatus, Refusal};

/// The longest time for a short answer. A daemon's control thread never waits for storage.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many workers in a row are asked: as many as may fail to come up before a mount ends.
const ASKED: usize = 5;

/// A running daemon.
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
    /// [`Refusal::NotMounted`] if there is none.
    pub fn of(mountpoint: &Path) -> Result<Self, Refusal> {
        let mountpoint = mountpoint_path(mountpoint);
        let mount = mounted_on(&mountpoint).filter(|mount| mount.fs_type == FS_TYPE);
        let user = mount.as_ref().and_then(|mount| mount.user);
        // While another worker takes over, no one listens. A question to the mount waits for the end of that.
        let mut given = MountAnswer::Gone;
        for is_last in [mount.is_none(), true] {
            for (socket, user) in runtime_dir::sockets_of(&mountpoint, user) {
                match connect(&socket, user) {
                    Ok(_) => return Ok(Self { socket, user, mountpoint }),
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        return Err(Refusal::from_io("speak with the daemon at", &socket, error));
                    }
                    Err(_) => {}
                }
            }
            if is_last {
                break;
            }
            given = ask_mount(&mountpoint);
            if given == MountAnswer::Gone {
                break;
            }
        }
        let hint = match mount {
            Some(_) if given == MountAnswer::None => format!(
                "\n  The kernel shows a mount there that gives no answer: its daemon stands still, or was killed and waits for \
                 its origin. What was synced is safe in the pool. To take the mount away: umount --lazy {}",
                mountpoint.display()
            ),
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

    /// All running daemons of this user. Removes what dead ones left.
    #[must_use]
    pub fn all() -> Vec<Self> {
        runtime_dir::remove_dead();
        let user = geteuid().as_raw();
        let alive = |socket: &PathBuf| connect(socket, user).is_ok();
        let sockets = runtime_dir::all_sockets().into_iter().filter(alive);
        sockets.map(|socket| Self { mountpoint: socket.clone(), socket, user }).collect()
    }

    /// The daemon's mount point.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Sends a command and waits for its short answer.
    ///
    /// # Errors
    /// The daemon's refusal, or [`Refusal::NoAnswer`].
    pub fn ask(&self, command: &ClientCommand) -> Result<Answer, Refusal> {
        let ask = || ask_at(&self.socket, self.user, command, Some(PATIENCE));
        self.take(if command.is_question() { self.also_of_a_successor(ask) } else { ask() })
    }

    /// Asks what does no harm twice: a worker that dies while it is asked is followed by another one, and that may die, too.
    fn also_of_a_successor<T>(&self, ask: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let mut answer = ask();
        for _ in 1..ASKED {
            let may_be_followed = answer.as_ref().is_err_and(|error| !is_silence(error));
            if !may_be_followed || ask_mount(&self.mountpoint) != MountAnswer::Given {
                break;
            }
            answer = ask();
        }
        answer
    }

    /// Sends a command whose answer comes only when the work is done, however long that takes.
    ///
    /// # Errors
    /// The daemon's refusal, or [`Refusal::NoAnswer`].
    pub fn ask_and_wait(&self, command: &ClientCommand) -> Result<Answer, Refusal> {
        self.take(ask_at(&self.socket, self.user, command, None))
    }

    fn take(&self, answer: io::Result<Answer>) -> Result<Answer, Refusal> {
        match answer {
            Ok(Answer::Refused { status, text }) => {
                Err(Refusal::Relayed { text, status: ExitStatus::from_code(status).unwrap_or(ExitStatus::Failed) })
            }
            Ok(answer) => Ok(answer),
            // The daemon ended after it was found and before it was asked.
            Err(_) if connect(&self.socket, self.user).is_err() => {
                Err(Refusal::NotMounted { path: self.mountpoint.clone(), hint: String::new() })
            }
            Err(error) => Err(self.no_answer(&error)),
        }
    }

    fn no_answer(&self, error: &io::Error) -> Refusal {
        let silent = || format!("not a word within {} s", PATIENCE.as_secs());
        let why = if is_silence(error) { silent() } else { error.to_string() };
        Refusal::NoAnswer { path: self.mountpoint.clone(), why }
    }
}

/// Whether a daemon gave no answer in time.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// An origin that stands still for as long as this lives, unless the daemon ends that.
#[derive(Debug)]
pub struct Frozen {
    stream: BufReader<UnixStream>,
    mountpoint: PathBuf,
}

/// How often a client that waits for a standstill looks whether it must end the wait.
const LOOK: Duration = Duration::from_millis(100);

impl Daemon {
    /// Brings the origin to a standstill, complete, for at most so many seconds. `None` if `ends` ended the wait for
    /// that.
    ///
    /// # Errors
    /// The daemon's refusal; [`Refusal::NotFrozen`] if the origin did not come to a standstill in time.
    pub fn freeze(&self, seconds: u64, ends: impl Fn() -> bool) -> Result<Option<Frozen>, Refusal> {
        let failed = |error: io::Error| self.no_answer(&error);
        let mut stream = connect(&self.socket, self.user).map_err(failed)?;
        let mut line = serde_json::to_vec(&ClientCommand::Freeze { seconds }).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        stream.write_all(&line).map_err(failed)?;
        stream.set_read_timeout(Some(LOOK)).map_err(failed)?;
        let mut frozen = Frozen { stream: BufReader::new(stream), mountpoint: self.mountpoint.clone() };
        loop {
            match frozen.hear() {
                Some(Ok(Answer::Frozen)) => return Ok(Some(frozen)),
                Some(Ok(Answer::Thawed { why })) => {
                    let what = "it did not come to a standstill, and the command did not run";
                    return Err(Refusal::NotFrozen { path: self.mountpoint.clone(), what, why });
                }
                Some(answer) => {
                    let answer = self.take(answer)?;
                    return Err(failed(io::Error::other(format!("an answer that does not fit: {answer:?}"))));
                }
                None if ends() => return Ok(None),
                None => {}
            }
        }
    }
}

impl Daemon {
    /// Records what is asked of the mount, until the daemon ends it, or until `ends` does. The daemon writes the trace
    /// into `file`. Calls `begun` once each request is noted.
    ///
    /// # Errors
    /// The daemon's refusal, also of a file that takes no more; or if the daemon goes away before it has begun. If it
    /// goes away later, what is in the file is a trace that was cut.
    pub fn record(
        &self,
        seconds: u64,
        bytes_max: u64,
        file: impl AsFd,
        begun: impl FnOnce(),
        ends: impl Fn() -> bool,
    ) -> Result<(), Refusal> {
        let failed = |error: io::Error| self.no_answer(&error);
        let command = ClientCommand::Record { seconds, bytes_max };
        // Nothing begins before the file is given.
        let ask = || speak_with(&self.socket, self.user, &command, Some(PATIENCE));
        let (answer, mut answers) = match self.also_of_a_successor(ask) {
            Ok((answer, answers)) => (self.take(Ok(answer))?, answers),
            Err(error) => return self.take(Err(error)).map(|_| ()),
        };
        expect(Answer::GiveFile, answer).map_err(failed)?;
        give(answers.get_ref(), file).map_err(failed)?;
        let answer = self.take(hear(&mut answers))?;
        expect(Answer::Recording, answer).map_err(failed)?;
        begun();
        answers.get_ref().set_read_timeout(Some(LOOK)).map_err(failed)?;
        let mut said = String::new();
        let mut asked_to_end: Option<Instant> = None;
        loop {
            match answers.read_line(&mut said) {
                // The daemon is gone.
                Ok(0) => return Ok(()),
                Ok(_) => {
                    let answer = self.take(serde_json::from_str(&said).map_err(io::Error::from))?;
                    return expect(Answer::Recorded, answer).map_err(failed);
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(_) => return Ok(()),
            }
            match asked_to_end {
                None if ends() => {
                    // Fails if the daemon has ended the connection. What it sent before is still there.
                    let _ = answers.get_mut().write_all(b"\n");
                    asked_to_end = Some(Instant::now());
                }
                Some(asked) if asked.elapsed() >= PATIENCE => return Ok(()),
                _ => {}
            }
        }
    }
}

/// Sends an empty line, and a file with it.
fn give(stream: &UnixStream, file: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    with.push(SendAncillaryMessage::ScmRights(&files));
    rustix::net::sendmsg(stream, &[IoSlice::new(b"\n")], &mut with, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn expect(wanted: Answer, answer: Answer) -> io::Result<()> {
    if answer == wanted {
        return Ok(());
    }
    Err(io::Error::other(format!("an answer that does not fit: {answer:?}")))
}

impl Frozen {
    /// Ends the standstill.
    ///
    /// # Errors
    /// [`Refusal::NotFrozen`] if it has ended before.
    pub fn thaw(mut self) -> Result<(), Refusal> {
        // Fails if the daemon has ended the connection. Its last word is still there.
        let _ = self.stream.get_mut().write_all(b"\n");
        let mut answer = None;
        let patience = Instant::now() + PATIENCE;
        while answer.is_none() && Instant::now() < patience {
            answer = self.hear();
        }
        let why = match answer {
            Some(Ok(Answer::Done)) => return Ok(()),
            Some(Ok(Answer::Thawed { why })) => why,
            Some(Err(error)) => format!("the daemon has gone away ({error})"),
            _ => "the daemon does not answer".to_owned(),
        };
        let what = "the origin was not frozen to the end of the command. Do not trust the snapshot";
        Err(Refusal::NotFrozen { path: self.mountpoint, what, why })
    }

    /// An answer, if one comes soon.
    fn hear(&mut self) -> Option<io::Result<Answer>> {
        let mut said = String::new();
        match (&mut self.stream).take(ANSWER_MAX).read_line(&mut said) {
            Ok(0) => Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"))),
            Ok(_) => Some(serde_json::from_str(&said).map_err(io::Error::from)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// Connects to a daemon of this user.
fn connect(socket: &Path, user: u32) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    if socket_peercred(&stream)?.uid.as_raw() == user {
        return Ok(stream);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("another user than {user} listens there")))
}

/// Sends one line to the socket of a user's daemon and reads one line.
///
/// # Errors
/// If no daemon of that user listens, or the line is no answer.
pub fn ask_at(socket: &Path, user: u32, command: &ClientCommand, patience: Option<Duration>) -> io::Result<Answer> {
    speak_with(socket, user, command, patience).map(|(answer, _)| answer)
}

/// As [`ask_at`], with the connection, which goes on.
fn speak_with(
    socket: &Path,
    user: u32,
    command: &ClientCommand,
    patience: Option<Duration>,
) -> io::Result<(Answer, BufReader<UnixStream>)> {
    let mut stream = connect(socket, user)?;
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    let mut line = serde_json::to_vec(command)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answers = BufReader::new(stream);
    Ok((hear(&mut answers)?, answers))
}

/// The daemon's next answer.
fn hear(answers: &mut BufReader<UnixStream>) -> io::Result<Answer> {
    let mut said = String::new();
    answers.take(ANSWER_MAX).read_line(&mut said)?;
    if said.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
    }
    Ok(serde_json::from_str(&said)?)
}
