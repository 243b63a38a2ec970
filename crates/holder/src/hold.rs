//! The holder's loop: starts workers one after the other, and keeps what they send.
//!
//! ```text
//! first worker ─ ends before it serves ────────────> the holder ends with its status
//!      │ serves
//!      v
//!   serving ─ ends in order ───────────────────────> the same
//!      │ dies, or hangs
//!      v
//!   next worker ─ serves ─> serving
//!      │ TRIES of these in a row do not come up
//!      v
//!   the holder ends: the kernel ends the connection, and callers get errors
//! ```
//!
//! One thread, no allocation that grows with the data, no parser but that of [`Message`].

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arena::{Arena, Sizes};
use crate::message::{Message, Received, receive, send};
use crate::process::{is_dead_but_for_fuse, is_stopped};

/// So many successors in a row that do not come up end the mount. The first is started at once, the second after
/// [`PAUSE`], which doubles each time.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// A worker that serves this long has come up. One that dies earlier by itself may die of a request that comes again.
const UP: Duration = Duration::from_secs(1);

/// How often the holder looks for a sign of life, however much its worker says meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// Messages that the holder reads before it sees to the rest again: a worker that says more than it can read ends no
/// look.
const MESSAGES: usize = 64;

/// How many looks without a sign of life make a worker hang, one that serves or one that takes over. Each sign counts
/// anew, so a recovery may take as long as it goes on. A program that replaces another on purpose has so many looks
/// until it serves, whatever signs it gives. Looks count and not the clock: a host that was suspended has counted none.
#[derive(Clone, Copy, Debug)]
pub struct Patience(pub u32);

impl Default for Patience {
    fn default() -> Self {
        Self(30)
    }
}

/// The program to run as worker. It stays open, so that a package that replaces its file does not replace it too.
#[derive(Debug)]
pub struct Program {
    file: File,
    arguments: Vec<OsString>,
}

impl Program {
    /// This program, with other arguments.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub fn own(arguments: Vec<OsString>) -> io::Result<Self> {
        Ok(Self { file: File::open("/proc/self/exe")?, arguments })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.arg0("headpond").args(&self.arguments);
        command
    }
}

/// What the holder tells of a mount.
pub enum Told<'a> {
    /// A line for the log.
    Line(&'a str),
    /// Every second or so: the holder looks after its worker.
    Watching,
}

/// Keeps a mount alive until it ends in order, or cannot be kept. Returns the exit status. `tell` hears what happens.
/// `served` is called once, when the first worker serves.
///
/// # Errors
/// If the first worker cannot be started.
pub fn hold(
    program: Program,
    sizes: Sizes,
    patience: Patience,
    tell: impl FnMut(Told<'_>),
    served: impl FnOnce() -> io::Result<()>,
) -> io::Result<u8> {
    let signals = signals()?;
    let arena = Arena::make(sizes)?;
    let beat = Arena::map(&arena, sizes).map_err(io::Error::other)?.beat();
    let kept = BTreeMap::from([(crate::tie::ARENA.to_owned(), arena)]);
    let beats = Box::new(move || beat.load(Ordering::Relaxed));
    let mut holder = Holder {
        program,
        kept,
        notes: BTreeMap::new(),
        next: None,
        signals,
        beats,
        patience,
        tell,
        told_to_end: None,
        ending: false,
        looked: Instant::now(),
        told_of_want: false,
        leaving: Vec::new(),
    };
    holder.run(served)
}

/// Where each signal that ends a mount shows.
fn signals() -> io::Result<Vec<(Signal, UnixStream)>> {
    let all = [(Signal::TERM, SIGTERM), (Signal::INT, SIGINT), (Signal::HUP, SIGHUP)];
    let listen = |(signal, number)| {
        let (shows, comes) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(number, comes)?;
        Ok((signal, shows))
    };
    all.into_iter().map(listen).collect()
}

struct Holder<T> {
    program: Program,
    kept: BTreeMap<String, OwnedFd>,
    notes: BTreeMap<String, String>,
    /// The program to go on with, if not the present one.
    next: Option<File>,
    signals: Vec<(Signal, UnixStream)>,
    /// The worker's count of signs of life.
    beats: Box<dyn Fn() -> u64>,
    patience: Patience,
    tell: T,
    /// The signal to end that came last.
    told_to_end: Option<Signal>,
    /// A worker said that the mount ends with it.
    ending: bool,
    /// When it looked last, in this worker's life or an earlier one.
    looked: Instant,
    /// That a descriptor could not be kept was said.
    told_of_want: bool,
    /// Workers that are dead but for a write to the FUSE device, which the next one's answers bring to its end.
    leaving: Vec<Child>,
}

/// A worker that was started.
struct Worker {
    child: Child,
    /// Our end of what it says.
    socket: OwnedFd,
    /// What it has not been told yet, for want of room: it reads when it likes.
    untold: VecDeque<Message>,
    /// Shows when it is gone.
    gone: OwnedFd,
}

/// A worker's life, as the holder saw it.
struct Life {
    /// How it ended, or why it could not be started.
    status: io::Result<ExitStatus>,
    /// How long it served.
    served: Option<Duration>,
    hung: bool,
}

impl Life {
    /// Whether it came up. A kill comes from outside, and says nothing of the worker.
    fn came_up(&self) -> bool {
        let signal = self.status.as_ref().ok().and_then(ExitStatusExt::signal);
        let killed = signal == Some(Signal::KILL.as_raw());
        self.served.is_some_and(|served| served >= UP || killed)
    }

    /// Why it is over, as a part of a sentence.
    fn cause(&self) -> String {
        match &self.status {
            Ok(_) if self.hung => "hung, and was killed".to_owned(),
            Ok(status) => format!("ended ({status})"),
            Err(error) => format!("could not be started ({error})"),
        }
    }
}

impl<T: FnMut(Told<'_>)> Holder<T> {
    fn run(&mut self, served: impl FnOnce() -> io::Result<()>) -> io::Result<u8> {
        let mut served = Some(served);
        let (mut lives, mut failed) = (0, 0);
        loop {
            let before = self.replace_program();
            let life = match self.start(lives) {
                Ok(worker) => {
                    lives += 1;
                    self.one_life(worker, before.is_some(), &mut served)?
                }
                Err(error) if served.is_some() => return Err(error),
                // For want of processes, memory or descriptors, which may end.
                Err(error) => Life { status: Err(error), served: None, hung: false },
            };
            if let Ok(status) = life.status {
                let in_order = status.code().is_some() && life.served.is_some() && self.next.is_none();
                if served.is_some() || in_order || self.ends() {
                    return Ok(code(status));
                }
            }
            let cause = life.cause();
            if let Some(before) = before.filter(|_| life.served.is_none()) {
                self.note(&format!("the new program {cause}, and did not serve; going on with the last one"));
                self.program.file = before;
                continue;
            }
            if self.next.is_some() {
                self.note("going on with another program");
                continue;
            }
            // The first worker is nobody's successor.
            let is_try = lives > 1 || life.status.is_err();
            failed = if life.came_up() { 0 } else { failed + u32::from(is_try) };
            if failed == TRIES {
                self.note(&format!("the worker {cause}. {TRIES} in a row did not come up: the mount ends"));
                return Ok(1);
            }
            self.note(&format!("the worker {cause}; another one takes over, and what was acknowledged is kept"));
            if failed > 0 {
                self.pause(PAUSE * 2_u32.pow(failed - 1));
            }
        }
    }

    fn note(&mut self, line: &str) {
        (self.tell)(Told::Line(line));
    }

    /// Whether the mount was about to end when the last worker did.
    fn ends(&self) -> bool {
        self.ending || self.told_to_end.is_some()
    }

    /// Goes over to the next program, if one was named. Returns the present one then.
    fn replace_program(&mut self) -> Option<File> {
        let next = self.next.take()?;
        Some(std::mem::replace(&mut self.program.file, next))
    }

    /// A pause that a signal ends.
    fn pause(&mut self, time: Duration) {
        let mut watched: Vec<_> = self.signals.iter().map(|(_, shows)| PollFd::new(shows, PollFlags::IN)).collect();
        let _ = poll(&mut watched, Some(&timespec(time)));
        self.take_signals();
    }

    /// Starts a worker, and gives it all that is kept.
    fn start(&self, lives: u64) -> io::Result<Worker> {
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut child = self
            .program
            .command()
            .stdin(theirs)
            // A ctrl-C comes to the holder alone, which passes it on.
            .process_group(0)
            .spawn()?;
        let gone = match pidfd_open(pid_of(&child), PidfdFlags::empty()) {
            Ok(gone) => gone,
            Err(error) => {
                // It was told nothing yet, so it has done nothing.
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        let notes = self.notes.iter().map(|(name, text)| Message::Note(name.clone(), text.clone()));
        let kept = self.kept.keys().cloned().map(Message::Keep);
        let mut untold = notes.chain(kept).chain([Message::Begin(lives)]).collect();
        self.hand_down(&socket, &mut untold);
        Ok(Worker { child, socket, gone, untold })
    }

    /// Serves a worker until it is gone.
    fn one_life(
        &mut self,
        worker: Worker,
        replaces: bool,
        served: &mut Option<impl FnOnce() -> io::Result<()>>,
    ) -> io::Result<Life> {
        let Worker { mut child, socket: ours, gone, mut untold } = worker;
        let (mut since, mut hung, mut quiet, mut last_beat, mut looks) = (None, false, 0, None, 0);
        let mut is_leaving = false;
        loop {
            let of_ours = if untold.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let mut watched = vec![PollFd::new(&gone, PollFlags::IN), PollFd::new(&ours, of_ours)];
            watched.extend(self.signals.iter().map(|(_, shows)| PollFd::new(shows, PollFlags::IN)));
            let time = if is_leaving { Duration::ZERO } else { LOOK.saturating_sub(self.looked.elapsed()) };
            match poll(&mut watched, Some(&timespec(time))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // For want of memory: nothing shows now.
                Err(_) => std::thread::sleep(PAUSE),
            }
            let mut shown = watched.iter().map(|one| !one.revents().is_empty());
            let (is_gone, said) = (shown.next() == Some(true), shown.next() == Some(true));
            self.hand_down(&ours, &mut untold);
            // The signal itself may have ended the wait, before its byte was seen.
            let mut passes_on = self.take_signals();
            // All that it sent before it died counts.
            let most = if is_gone || is_leaving { usize::MAX } else { MESSAGES };
            if (said || is_gone || is_leaving) && self.listen(&ours, most) && since.is_none() {
                since = Some(Instant::now());
                passes_on = true;
                if let Some(served) = served.take() {
                    served()?;
                }
            }
            // One that takes over gets a signal only once it serves: it has not yet brought to flash what it must not
            // lose.
            if passes_on && (since.is_some() || served.is_some()) {
                self.pass_on(&child);
            }
            if is_gone {
                let status = child.wait()?;
                return Ok(Life { status: Ok(status), served: since.map(|since| since.elapsed()), hung });
            }
            if is_leaving {
                self.leaving.push(child);
                let status = ExitStatus::from_raw(Signal::KILL.as_raw());
                return Ok(Life { status: Ok(status), served: since.map(|since| since.elapsed()), hung });
            }
            if self.looked.elapsed() < LOOK {
                continue;
            }
            self.looked = Instant::now();
            (self.tell)(Told::Watching);
            self.leaving.retain_mut(|child| child.try_wait().is_ok_and(|status| status.is_none()));
            is_leaving = is_dead_but_for_fuse(child.id());
            // The first look of a life may come at once: it has nothing to compare with.
            let beat = Some((self.beats)());
            // A worker that is stopped does not hang. The first one may wait for its operator, and nobody waits for it.
            let is_watched = since.is_some() || served.is_none();
            quiet = if beat == last_beat && is_watched && !is_stopped(child.id()) { quiet + 1 } else { 0 };
            last_beat = beat;
            looks += 1;
            let late = replaces && since.is_none() && looks > self.patience.0;
            if quiet >= self.patience.0 || late {
                (hung, quiet) = (true, 0);
                // It may have ended by itself meanwhile.
                let _ = kill_process(pid_of(&child), Signal::KILL);
            }
        }
    }

    /// Tells a new worker as much of what is kept as it has room for now.
    fn hand_down(&self, socket: &OwnedFd, untold: &mut VecDeque<Message>) {
        while let Some(message) = untold.front() {
            let descriptor = match message {
                Message::Keep(name) => self.kept.get(name).map(AsFd::as_fd),
                _ => None,
            };
            match send(socket, message, descriptor, SendFlags::DONTWAIT).map_err(|error| error.kind()) {
                // A worker that died already is noticed soon enough.
                Ok(()) | Err(io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => drop(untold.pop_front()),
                Err(io::ErrorKind::WouldBlock) => return,
                // For want of memory. A worker that lacks one of these would take itself for another.
                Err(_) => return std::thread::sleep(PAUSE),
            }
        }
    }

    /// Reads what the worker has said, at most so many messages. Returns whether it said that it serves.
    fn listen(&mut self, socket: &OwnedFd, most: usize) -> bool {
        let mut ready = false;
        for _ in 0..most {
            let (message, descriptor) = match receive(socket, false) {
                Ok(Received::Message(message, descriptor)) => (message, descriptor),
                Ok(Received::Unknown) => continue,
                Ok(Received::Nothing | Received::End) | Err(_) => break,
            };
            match (message, descriptor) {
                (Message::Keep(name), Some(descriptor)) => drop(self.kept.insert(name, descriptor)),
                (Message::Release(name), _) => {
                    drop(self.kept.remove(&name));
                    // A worker that is gone does not wait for it.
                    let _ = answer(socket, &Message::Release(name));
                }
                (Message::Note(name, text), _) => drop(self.notes.insert(name, text)),
                (Message::Ready, _) => ready = true,
                (Message::Ending, _) => self.ending = true,
                (Message::Next(path), _) => {
                    // The worker ends only after a good answer, so a program that cannot be opened ends no mount.
                    let opened = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
                    let said = Message::Opened(opened.as_ref().map(drop).map_err(|errno| *errno));
                    self.next = opened.ok().map(File::from);
                    let _ = answer(socket, &said);
                }
                (Message::Keep(name), None) => {
                    if !std::mem::replace(&mut self.told_of_want, true) {
                        self.note(&format!("no descriptor is left to keep {name}: a worker that takes over lacks it"));
                    }
                }
                (Message::Opened(_) | Message::Begin(_), _) => {}
            }
        }
        ready
    }

    /// Passes a signal on that came for the mount.
    fn pass_on(&self, child: &Child) {
        if let Some(signal) = self.told_to_end {
            let _ = kill_process(pid_of(child), signal);
        }
    }

    /// Notes which signals came. Returns whether any did.
    fn take_signals(&mut self) -> bool {
        let mut came = false;
        for (signal, shows) in &self.signals {
            let mut some = [0; 64];
            if rustix::net::recv(shows, &mut some[..], RecvFlags::DONTWAIT).is_ok_and(|(_, len)| len > 0) {
                self.told_to_end = Some(*signal);
                came = true;
            }
        }
        came
    }
}

/// Answers a worker, which waits for nothing else.
fn answer(socket: &OwnedFd, message: &Message) -> io::Result<()> {
    send(socket, message, None, SendFlags::empty())
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// The exit status of a shell's child: that of the worker, or 128 and its signal.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
