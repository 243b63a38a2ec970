//! The daemon's end of the control socket: one thread, one connection at a time, each bounded in time and in bytes.
//!
//! Invariant: the daemon listens only to root and its own user.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use headpond_holder::is_dead;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::geteuid;

use super::protocol::{Answer, COMMAND_MAX, ClientCommand};
use crate::process::runtime_dir;
use crate::refusal::{ExitStatus, Refusal};

/// The longest time for a client to send its line, or to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A client that waits for its answer.
#[derive(Debug)]
pub struct Client(UnixStream);

impl Client {
    /// Answers, and ends the connection. A client that went away is no error.
    pub fn answer(mut self, answer: &Answer) {
        self.answer_first(answer);
    }

    /// Sends the answer or the refusal.
    pub fn answer_or_refuse(self, answer: Result<Answer, Refusal>) {
        match answer {
            Ok(answer) => self.answer(&answer),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    /// Answers, and goes on listening to the client.
    pub(crate) fn answer_first(&mut self, answer: &Answer) {
        if let Ok(mut line) = serde_json::to_vec(answer) {
            line.push(b'\n');
            let _ = self.0.write_all(&line);
        }
    }

    /// The file that the client gives to the daemon, within its patience. It was opened with the client's rights.
    ///
    /// # Errors
    /// If none came.
    pub(crate) fn receive_file(&mut self) -> io::Result<File> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut [0])], &mut with, RecvFlags::CMSG_CLOEXEC)?;
        let file = with.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        file.map(File::from).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no file came with it"))
    }

    /// What the client says within `patience`.
    pub(crate) fn listen(&mut self, patience: Duration) -> Heard {
        if self.0.set_read_timeout(Some(patience)).is_err() {
            return Heard::Gone;
        }
        match self.0.read(&mut [0]) {
            Ok(0) => Heard::Gone,
            Ok(_) => Heard::Line,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Heard::Nothing
            }
            Err(_) => Heard::Gone,
        }
    }

    /// Refuses, and ends the connection.
    pub fn refuse(self, refusal: &Refusal) {
        self.answer(&Answer::from(refusal));
    }
}

/// What a client says after its command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// Nothing yet.
    Nothing,
    /// A line.
    Line,
    /// It has closed the connection.
    Gone,
}

/// The listening socket. [`ControlSocket::close`] removes its name, and so does the drop.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Listens at `path`, in place of a dead daemon's socket.
    ///
    /// # Errors
    /// [`Refusal::MountPointInUse`] if a living daemon listens there.
    pub fn listen(path: &Path, mountpoint: &Path) -> Result<Self, Refusal> {
        let dir = path.parent().unwrap_or(Path::new("."));
        let _lock = runtime_dir::lock(dir).map_err(|error| Refusal::from_io("lock", dir, error))?;
        match UnixStream::connect(path) {
            Ok(stream) if !is_of_the_dead(&stream) => {
                let what = "another headpond".to_owned();
                return Err(Refusal::MountPointInUse { path: mountpoint.to_owned(), what });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) | Err(_) => {
                fs::remove_file(path)
                    .map_err(|error| Refusal::from_io("remove the old control socket", path, error))?;
            }
        }
        let listener =
            UnixListener::bind(path).map_err(|error| Refusal::from_io("make the control socket", path, error))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Removes the name, so that no new client finds it.
    pub fn close(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Serves clients one after the other, for ever. Give it a thread of its own.
    pub fn serve(&self, mut handle: impl FnMut(ClientCommand, Client)) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => receive(stream, &mut handle),
                // Out of descriptors or memory: try again, but not at full speed.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.close();
    }
}

fn receive(stream: UnixStream, handle: &mut impl FnMut(ClientCommand, Client)) {
    let patient = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    let known = socket_peercred(&stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid());
    if patient.is_err() || !known {
        return;
    }
    let mut line = String::new();
    if BufReader::new((&stream).take(COMMAND_MAX)).read_line(&mut line).is_err() {
        return;
    }
    match serde_json::from_str(&line) {
        Ok(command) => handle(command, Client(stream)),
        Err(error) => {
            let text = format!("the daemon does not know this command: {error}. It may be another version of headpond");
            Client(stream).answer(&Answer::Refused { status: ExitStatus::Usage.code(), text });
        }
    }
}

/// Whether the process that listens there is dead. A thread of it that the kernel does not let go keeps all its descriptors
/// open, and nobody answers.
fn is_of_the_dead(stream: &UnixStream) -> bool {
    let process = socket_peercred(stream).map(|peer| peer.pid.as_raw_nonzero().get().cast_unsigned());
    process.is_ok_and(is_dead)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    use super::*;
    use crate::service::client::ask_at;

    #[test]
    fn clients_are_answered_one_after_the_other_and_nonsense_harms_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let socket = ControlSocket::listen(&path, Path::new("/mnt")).unwrap();
        std::thread::spawn(move || {
            socket.serve(|command, client| match command {
                ClientCommand::Flush { .. } => client.answer(&Answer::Started { id: 3 }),
                _ => client.refuse(&Refusal::Usage("no".into())),
            });
        });
        let patience = Some(Duration::from_secs(10));
        for nonsense in ["\n", "{}\n", "{\"do\":\"dance\"}\n", "not json"] {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(nonsense.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).unwrap();
            assert!(said.contains("refused"), "{nonsense}: {said}");
        }
        let me = geteuid().as_raw();
        assert_eq!(
            ask_at(&path, me, &ClientCommand::Flush { path: None }, patience).unwrap(),
            Answer::Started { id: 3 }
        );
        let refused = ask_at(&path, me, &ClientCommand::Status, patience).unwrap();
        assert_eq!(refused, Answer::Refused { status: 2, text: "no".into() });
        // As with a socket in another user's directory that leads to a process that is not that user's.
        let not_theirs = ask_at(&path, me + 1, &ClientCommand::Status, patience).unwrap_err();
        assert_eq!(not_theirs.kind(), io::ErrorKind::PermissionDenied);
        let second = ControlSocket::listen(&path, Path::new("/mnt")).unwrap_err();
        assert_eq!(second.status(), ExitStatus::MountPointInUse);
    }

    #[test]
    fn who_is_neither_root_nor_the_daemons_user_is_not_listened_to() {
        use std::os::unix::fs::PermissionsExt;
        if !geteuid().is_root() {
            eprintln!("left out: needs root to become another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let socket = ControlSocket::listen(&path, Path::new("/mnt")).unwrap();
        // As if nothing else kept others out.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        std::thread::spawn(move || socket.serve(|_, client| client.answer(&Answer::Done)));
        let ask = || {
            ask_at(
                &path,
                rustix::process::geteuid().as_raw(),
                &ClientCommand::Flush { path: None },
                Some(Duration::from_secs(10)),
            )
        };
        assert_eq!(ask().unwrap(), Answer::Done);
        let stranger = std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let user = rustix::fs::Uid::from_raw(65_533);
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                ask()
            });
            asking.join().unwrap()
        });
        assert!(stranger.is_err(), "{stranger:?}");
        assert_eq!(ask().unwrap(), Answer::Done, "and the next one is");
    }

    /// The descriptor that is kept here stands for those of a thread that the kernel does not let go.
    #[test]
    fn a_worker_listens_although_the_dead_one_still_has_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let mut living = Command::new("perl");
        living.args(["-e", "listen(STDIN, 9) or die; $| = 1; print 1; sleep 60"]);
        living.stdin(socket.try_clone().unwrap()).stdout(Stdio::piped());
        let mut living = living.spawn().unwrap();
        living.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let refused = ControlSocket::listen(&path, Path::new("/mnt")).unwrap_err();
        assert_eq!(refused.status(), ExitStatus::MountPointInUse);
        living.kill().unwrap();
        living.wait().unwrap();
        assert!(UnixStream::connect(&path).is_ok(), "the descriptor listens on");
        let next = ControlSocket::listen(&path, Path::new("/mnt")).unwrap();
        std::thread::spawn(move || next.serve(|_, client| client.answer(&Answer::Done)));
        let answer = ask_at(&path, geteuid().as_raw(), &ClientCommand::Status, Some(Duration::from_secs(10)));
        assert_eq!(answer.unwrap(), Answer::Done);
    }

    #[test]
    fn what_a_dead_daemon_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = ControlSocket::listen(&path, Path::new("/mnt")).unwrap();
        drop(socket);
        assert!(!path.exists());
    }
}
