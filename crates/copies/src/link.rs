//! The owner's end of a connection: a disk whose operations a peer carries out.
//!
//! One thread has the connection. It takes operations in order, sends them, and ends each when the peer has answered. A
//! long operation goes in parts of 1 MiB.
//!
//! Invariants:
//! - Each operation ends once, but for trims: also when the connection ends, and when the link is dropped.
//! - Once the connection has ended, nothing is sent any more. There is no second connection: a request that was on its
//!   way over a first one could arrive after a newer one.
//! - A peer that owes an answer is waited for no longer than the owner's patience after it was last heard of, and no longer
//!   than [`PATIENCE`] after its last answer: one whose disk hangs says all the time that it is there.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headpond_base::{Buf, BufMut, Errno};
use headpond_device::{DiskOp, End, FarDisk, FarEnd};
use headpond_peer::{
    Accepted, BadFrame, Heard, Hello, HelloRefused, OwnerSide, PAYLOAD_MAX, PeerFrame, Said, TRIM_MAX,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use thiserror::Error;

use crate::address::PeerAddress;
use crate::certificates::Certificates;
use crate::channel::{Channel, Socket};

/// How long a peer may owe answers, and give none. A peer whose copy is held for a take-over gives none for as long, so that
/// each owner has given it up by then.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a peer that owes an answer may be silent, if nobody says another time. It says five times a second that it is
/// there; a lost packet is sent again, at the latest, after 0.6 s the second time.
pub const SILENCE: Duration = Duration::from_millis(800);

/// Bytes on the way out, beyond which no further request is put there.
const OUT_MAX: usize = 2 << 20;

/// Why a link ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEnd {
    /// The connection ended.
    Closed(String),
    /// The peer owed an answer, and nothing was heard of it in this time.
    Silent(Duration),
    /// The peer owed an answer, and said for so long that it is at work.
    Slow(Duration),
    /// The peer broke the protocol.
    Broken(BadFrame),
    /// Another host has the pool, with this owner's number.
    Deposed(u64),
}

impl LinkEnd {
    const fn errno(&self) -> Errno {
        match self {
            Self::Closed(_) | Self::Broken(_) => Errno::IO,
            Self::Silent(_) | Self::Slow(_) => Errno::TIMEDOUT,
            Self::Deposed(_) => Errno::STALE,
        }
    }
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(why) => write!(f, "the connection has ended: {why}"),
            Self::Silent(patience) => write!(f, "it owes an answer, and was silent for {} s", patience.as_secs_f64()),
            Self::Slow(time) => {
                write!(f, "it owes an answer for {} s, and says that it is at work", time.as_secs_f64())
            }
            Self::Broken(rule) => write!(f, "it sent {rule}"),
            Self::Deposed(owner) => write!(f, "another host has taken over the pool (owner's number {owner})"),
        }
    }
}

/// What a link hears that is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkNews {
    /// The peer's host is to keep no copies any more. It serves on.
    Draining,
    /// The connection ended. Nothing follows.
    Ended(LinkEnd),
}

/// Why there is no link.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The peer cannot be reached, or does not know us.
    #[error("cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
    /// It is on another host, and there are no certificates.
    #[error(
        "is not on this host, and without certificates its connection is anybody's. Give them with --peer-certificates DIR"
    )]
    NoCertificates,
    /// It refuses to serve.
    #[error("refuses: {}", shown(.0))]
    Refused(HelloRefused),
    /// It speaks something else.
    #[error("sends {0}")]
    Broken(#[from] BadFrame),
}

fn shown(refused: &HelloRefused) -> String {
    use headpond_peer::{Reason, Versions};
    let HelloRefused { reason, versions, owner, epoch, bytes } = refused;
    match reason {
        Reason::Version => {
            let older = if Versions::SPOKEN.are_later_than(*versions) { "there" } else { "here" };
            format!(
                "it speaks {versions} of the protocol, and this host {}: upgrade headpond {older}",
                Versions::SPOKEN
            )
        }
        Reason::Owner => format!("another host has taken over the pool (owner's number {owner})"),
        Reason::Epoch => format!("it knows a later use of the pool (epoch {epoch}): this one is an older image"),
        Reason::NotKept => "it keeps nothing of this pool that counts".to_owned(),
        Reason::NoRoom => format!("it has no room: {} MiB are left", bytes >> 20),
        Reason::InUse => "another process on its host has the copy".to_owned(),
        Reason::Failing => "it cannot read or write its store".to_owned(),
        Reason::Draining => "it is being drained, and takes no new copies".to_owned(),
        Reason::Same => "it has the pool's other copy, by another address: a second copy needs another host".to_owned(),
    }
}

/// A disk of a peer.
pub struct Link {
    address: PeerAddress,
    bytes: u64,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    event: OwnedFd,
}

#[derive(Default)]
struct Queue {
    asked: VecDeque<(Ask, FarEnd)>,
    ended: Option<LinkEnd>,
    stop: bool,
}

/// What an owner wants of a peer.
enum Ask {
    Op(DiskOp),
    /// To forget the member. It ends as a sync does.
    LetGo,
}

impl Ask {
    fn fail(&self, errno: Errno, end: FarEnd) {
        match self {
            Self::Op(DiskOp::Read { .. }) => end(End::Read(Err(errno))),
            Self::Op(DiskOp::Write { .. }) => end(End::Write(Err(errno))),
            Self::Op(DiskOp::Sync { .. }) | Self::LetGo => end(End::Sync(Err(errno))),
            Self::Op(DiskOp::Trim { .. }) => {}
        }
    }
}

impl Shared {
    fn put(&self, ask: Ask, end: FarEnd) {
        let mut queue = self.queue();
        if let Some(ended) = &queue.ended {
            let errno = ended.errno();
            drop(queue);
            return ask.fail(errno, end);
        }
        queue.asked.push_back((ask, end));
        drop(queue);
        self.wake();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It fails only if it is full, and then the thread wakes.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.address)
    }
}

impl Link {
    /// Connects, and asks for a member. A peer that owes an answer may be silent for `patience`: [`SILENCE`], or another
    /// time of [`PATIENCE`] at most.
    /// `hears` gets the news, on the link's thread: also why the connection ended, unless the owner let it go.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn connect(
        address: &PeerAddress,
        certificates: Option<&Certificates>,
        hello: &Hello,
        patience: Duration,
        hears: impl FnMut(LinkNews) + Send + 'static,
    ) -> Result<(Self, Accepted), LinkError> {
        let mut channel = open(address, certificates)?;
        let mut side = OwnerSide::new(hello.versions);
        let mut out = Vec::new();
        PeerFrame { tag: 0, said: Said::Hello(*hello) }.encode(&mut out);
        channel.send_all(&out)?;
        let mut inbox = Vec::new();
        let accepted = loop {
            if let Some((frame, len)) = PeerFrame::decode(&inbox)? {
                match side.take(&frame)? {
                    Heard::Accepted(accepted) => {
                        inbox.drain(..len);
                        break accepted;
                    }
                    Heard::Refused(refused) => return Err(LinkError::Refused(refused)),
                    _ => return Err(BadFrame::NotDue.into()),
                }
            }
            if channel.receive(&mut inbox)? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        };
        channel.socket().set_nonblocking()?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let shared = Arc::new(Shared { queue: Mutex::default(), event });
        let talk = Talk {
            shared: shared.clone(),
            channel,
            side,
            out: Vec::new(),
            sent: 0,
            inbox,
            parts: VecDeque::new(),
            jobs: HashMap::new(),
            next: 1,
            heard_at: Instant::now(),
            answered_at: Instant::now(),
            patience: patience.min(PATIENCE),
            let_go: None,
            hears: Box::new(hears),
        };
        let thread = std::thread::Builder::new().name("peer".to_owned());
        let thread = thread.spawn(move || talk.run())?;
        let bytes = accepted.bytes;
        Ok((Self { address: address.clone(), bytes, shared, thread: Some(thread) }, accepted))
    }

    /// Where the peer listens.
    #[must_use]
    pub const fn address(&self) -> &PeerAddress {
        &self.address
    }
}

/// Connects a blocking channel.
fn open(address: &PeerAddress, certificates: Option<&Certificates>) -> Result<Channel, LinkError> {
    let (socket, tls) = match address {
        PeerAddress::Unix(path) => (Socket::Unix(UnixStream::connect(path)?), None),
        PeerAddress::Tcp { host, .. } => {
            if certificates.is_none() && !address.is_of_this_host()? {
                return Err(LinkError::NoCertificates);
            }
            let mut failed = None;
            let mut connect =
                |address| TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| failed = Some(error));
            let socket = address.resolve()?.into_iter().find_map(|address| connect(address).ok());
            let none = || failed.unwrap_or_else(|| io::ErrorKind::NotFound.into());
            let tls = certificates.map(|certificates| certificates.to_host(host)).transpose();
            (Socket::Tcp(socket.ok_or_else(none)?), tls.map_err(io::Error::other)?)
        }
    };
    socket.tune()?;
    socket.set_patience(PATIENCE, PATIENCE)?;
    Ok(Channel::open(socket, tls)?)
}

impl FarDisk for Link {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn submit(&self, op: DiskOp, end: FarEnd) {
        self.shared.put(Ask::Op(op), end);
    }

    fn let_go(&self, end: FarEnd) {
        self.shared.put(Ask::LetGo, end);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.queue().stop = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // One that panicked has closed the connection by that.
            let _ = thread.join();
        }
    }
}

/// An operation under way.
struct Job {
    ask: Ask,
    end: FarEnd,
    /// Of a read: what came in.
    buf: Option<BufMut>,
    left: usize,
    failed: Option<Errno>,
}

/// A part of an operation that was not sent yet.
struct Part {
    job: u64,
    kind: PartKind,
    offset: u64,
    len: usize,
}

enum PartKind {
    Read,
    /// With what is written, and where in it the part begins.
    Write(Buf, usize),
    Sync,
    Trim,
    LetGo,
}

/// What the thread has.
struct Talk {
    shared: Arc<Shared>,
    channel: Channel,
    side: OwnerSide,
    out: Vec<u8>,
    /// How much of that is sent.
    sent: usize,
    inbox: Vec<u8>,
    parts: VecDeque<Part>,
    jobs: HashMap<u64, Job>,
    next: u64,
    heard_at: Instant,
    /// When the last answer came, or the first request after which one is owed was sent.
    answered_at: Instant,
    /// How long it may be silent then.
    patience: Duration,
    /// The job by which the peer forgets the member.
    let_go: Option<u64>,
    hears: Box<dyn FnMut(LinkNews) + Send>,
}

impl Talk {
    fn run(mut self) {
        // What came with the acceptance wakes nobody any more.
        let mut goes_on = self.hear().map(|()| true);
        let ended = loop {
            match goes_on {
                Ok(true) => goes_on = self.turn(),
                Ok(false) => break None,
                Err(end) => break Some(end),
            }
        };
        let end = ended.clone().unwrap_or_else(|| LinkEnd::Closed("the pool let it go".to_owned()));
        let errno = end.errno();
        // The reason first: who hears of the failure may ask for it.
        if let Some(ended) = ended {
            (self.hears)(LinkNews::Ended(ended));
        }
        let mut queue = self.shared.queue();
        queue.ended = Some(end);
        let asked = std::mem::take(&mut queue.asked);
        drop(queue);
        let jobs = std::mem::take(&mut self.jobs).into_values().map(|job| (job.ask, job.end));
        jobs.chain(asked).for_each(|(ask, end)| ask.fail(errno, end));
    }

    /// Sends, waits and hears once. False if the link was dropped, or the peer has forgotten the member.
    fn turn(&mut self) -> Result<bool, LinkEnd> {
        let closed = |error: io::Error| LinkEnd::Closed(error.to_string());
        if !self.take_asked() {
            return Ok(false);
        }
        let owed_before = self.side.is_owed();
        self.fill();
        if !owed_before {
            // Nothing was owed until now: the silence begins here.
            self.heard_at = Instant::now();
            self.answered_at = self.heard_at;
        }
        match self.send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => sent.map_err(closed)?,
        }
        self.wait().map_err(closed)?;
        let mut nothing_came = false;
        match self.channel.receive(&mut self.inbox) {
            Ok(0) => return Err(LinkEnd::Closed("the peer ended it".to_owned())),
            Ok(_) => self.heard_at = Instant::now(),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                nothing_came = true;
            }
            Err(error) => return Err(closed(error)),
        }
        self.hear()?;
        if self.let_go.is_some_and(|job| !self.jobs.contains_key(&job)) {
            return Ok(false);
        }
        if self.side.is_owed() && self.heard_at.elapsed() >= self.patience {
            return Err(LinkEnd::Silent(self.patience));
        }
        // After a pause of this process the answer may lie behind words that were read before.
        if nothing_came && self.side.is_owed() && self.answered_at.elapsed() >= PATIENCE {
            return Err(LinkEnd::Slow(PATIENCE));
        }
        Ok(true)
    }

    /// Takes over what was asked for. False if the link was dropped.
    fn take_asked(&mut self) -> bool {
        let mut queue = self.shared.queue();
        if queue.stop {
            return false;
        }
        let asked = std::mem::take(&mut queue.asked);
        drop(queue);
        for (ask, end) in asked {
            let job = self.next;
            self.next += 1;
            let (offset, len, most) = match &ask {
                Ask::Op(DiskOp::Read { offset, len, .. }) => (*offset, *len, PAYLOAD_MAX),
                Ask::Op(DiskOp::Write { offset, data, .. }) => (*offset, data.len(), PAYLOAD_MAX),
                Ask::Op(DiskOp::Trim { offset, len }) => {
                    (*offset, usize::try_from(*len).unwrap_or(usize::MAX), TRIM_MAX as usize)
                }
                Ask::Op(DiskOp::Sync { .. }) => (0, 0, PAYLOAD_MAX),
                Ask::LetGo => {
                    self.let_go = Some(job);
                    (0, 0, PAYLOAD_MAX)
                }
            };
            let mut left = 0;
            for first in (0..len.max(1)).step_by(most) {
                let kind = match &ask {
                    Ask::Op(DiskOp::Read { .. }) => PartKind::Read,
                    Ask::Op(DiskOp::Write { data, .. }) => PartKind::Write(data.clone(), first),
                    Ask::Op(DiskOp::Sync { .. }) => PartKind::Sync,
                    Ask::Op(DiskOp::Trim { .. }) => PartKind::Trim,
                    Ask::LetGo => PartKind::LetGo,
                };
                let len = most.min(len - first);
                self.parts.push_back(Part { job, kind, offset: offset + first as u64, len });
                left += 1;
            }
            let buf = if let Ask::Op(DiskOp::Read { len, .. }) = ask { Some(BufMut::zeroed(len)) } else { None };
            if !matches!(ask, Ask::Op(DiskOp::Trim { .. })) {
                self.jobs.insert(job, Job { ask, end, buf, left, failed: None });
            }
        }
        true
    }

    /// Puts requests on the way out.
    fn fill(&mut self) {
        if self.sent == self.out.len() || self.sent >= OUT_MAX {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        while self.out.len() - self.sent < OUT_MAX {
            let Some(part) = self.parts.pop_front() else { break };
            // A part's tag has its job, and where in the job it begins, in units of the longest part.
            let first = match (&part.kind, self.jobs.get(&part.job).map(|job| &job.ask)) {
                (PartKind::Read, Some(Ask::Op(DiskOp::Read { offset, .. }))) => part.offset - offset,
                _ => 0,
            };
            let tag = part.job << 20 | (first / PAYLOAD_MAX as u64) & 0xf_ffff;
            let len = u32::try_from(part.len).unwrap_or(u32::MAX);
            let said = match &part.kind {
                PartKind::Read => Said::Read { offset: part.offset, len },
                PartKind::Write(data, first) => {
                    Said::Write { offset: part.offset, data: &data[*first..first + part.len] }
                }
                PartKind::Sync => Said::Sync,
                PartKind::LetGo => Said::LetGo,
                PartKind::Trim => Said::Trim { offset: part.offset, len },
            };
            let frame = PeerFrame { tag, said };
            if self.side.ask(&frame) {
                frame.encode(&mut self.out);
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        self.channel.push()?;
        while self.sent < self.out.len() {
            match self.channel.send(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for the peer, for room on the way out, or for a request.
    fn wait(&self) -> io::Result<()> {
        let full = self.sent < self.out.len() || self.channel.keeps_some();
        let room = if full { PollFlags::OUT } else { PollFlags::empty() };
        // While there is no room, further requests wait in the queue.
        let asks = if full && self.out.len() - self.sent >= OUT_MAX { PollFlags::empty() } else { PollFlags::IN };
        let descriptor = self.channel.descriptor();
        let mut watched =
            [PollFd::from_borrowed_fd(descriptor, PollFlags::IN | room), PollFd::new(&self.shared.event, asks)];
        let silent = self.patience.saturating_sub(self.heard_at.elapsed());
        let left = silent.min(PATIENCE.saturating_sub(self.answered_at.elapsed())) + Duration::from_millis(1);
        let limit = self
            .side
            .is_owed()
            .then(|| Timespec { tv_sec: left.as_secs().try_into().unwrap_or(0), tv_nsec: left.subsec_nanos().into() });
        match poll(&mut watched, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if watched[1].revents().contains(PollFlags::IN) {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.shared.event, &mut count);
        }
        Ok(())
    }

    /// Ends what the peer has answered.
    fn hear(&mut self) -> Result<(), LinkEnd> {
        let mut taken = 0;
        while let Some((frame, len)) = PeerFrame::decode(&self.inbox[taken..]).map_err(LinkEnd::Broken)? {
            taken += len;
            let (tag, data, failed) = match self.side.take(&frame).map_err(LinkEnd::Broken)? {
                Heard::Data(tag, data) => (tag, Some(data), None),
                Heard::Done(tag) => (tag, None, None),
                Heard::Failed(tag, errno) => (tag, None, Some(errno)),
                Heard::Deposed(owner) => return Err(LinkEnd::Deposed(owner)),
                Heard::Working => continue,
                Heard::Draining => {
                    (self.hears)(LinkNews::Draining);
                    continue;
                }
                Heard::Accepted(_) | Heard::Refused(_) => return Err(LinkEnd::Broken(BadFrame::NotDue)),
            };
            self.answered_at = Instant::now();
            let (job, first) = (tag >> 20, (tag & 0xf_ffff) as usize * PAYLOAD_MAX);
            let Some(under_way) = self.jobs.get_mut(&job) else { continue };
            if let (Some(data), Some(buf)) = (data, &mut under_way.buf)
                && let Some(place) = buf.get_mut(first..first + data.len())
            {
                place.copy_from_slice(data);
            }
            under_way.failed = under_way.failed.or(failed);
            under_way.left -= 1;
            if under_way.left == 0
                && let Some(Job { ask, end, buf, failed, .. }) = self.jobs.remove(&job)
            {
                match (failed, ask, buf) {
                    (Some(errno), ask, _) => ask.fail(errno, end),
                    (None, Ask::Op(DiskOp::Read { .. }), Some(buf)) => end(End::Read(Ok(buf.freeze()))),
                    (None, Ask::Op(DiskOp::Sync { .. }) | Ask::LetGo, _) => end(End::Sync(Ok(()))),
                    (None, ..) => end(End::Write(Ok(()))),
                }
            }
        }
        self.inbox.drain(..taken);
        Ok(())
    }
}
