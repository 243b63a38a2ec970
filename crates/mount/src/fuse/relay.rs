//! The way to fuser and back: a pair of sockets in place of the kernel's device.
//!
//! fuser reads requests from one end as if the kernel had sent them, and answers there. A thread of its own passes
//! these answers on to the kernel.
//!
//! Price: two hand-overs for a request that is not for data. The kernel keeps names and attributes, the
//! most frequent ones, so few of them come here.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use fuser::{BackgroundSession, Config, Filesystem, Session};
use headpond_door::Workers;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use crate::fuse::answer::Answer;
use crate::fuse::journal::AnsweredInJournal;
use crate::fuse::wire::{AGAIN, HEAD, RequestHead, answered, opcode};
use crate::standstill::Standstill;

/// The longest answer of fuser's. The kernel asks for lists of a directory's entries in pieces of at most
/// [`LIST_BYTES_MAX`]; names and attributes have at most 64 KiB.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// The socket's buffer bounds a message. It has 208 KiB by default.
const LIST_BYTES_MAX: u32 = 64 << 10;

/// Bytes of one entry in a list of inodes to forget.
const FORGOTTEN: usize = 16;

/// Entries in one message of a long list that was split.
const FORGOTTEN_MAX: usize = 1024;

/// The protocol version in our greeting to fuser. The greeting of the real kernel has agreed on all that matters.
const VERSION: [u32; 2] = [7, 31];

/// The door's end.
#[derive(Clone)]
pub(crate) struct Socket {
    end: Arc<OwnedFd>,
    /// How many threads fuser has: each ends with a message of its own.
    threads: usize,
    /// Where answers are noted, if the kernel cannot send requests again.
    journal: Option<Arc<AnsweredInJournal>>,
}

/// Starts fuser on the other end of a new socket. `device` is where its answers go.
pub(crate) fn start<F: Filesystem + Send + 'static>(
    file_system: F,
    config: &Config,
    device: Arc<OwnedFd>,
    journal: Option<Arc<AnsweredInJournal>>,
    standstill: Arc<Standstill>,
) -> io::Result<(Socket, BackgroundSession)> {
    let flags = SocketFlags::CLOEXEC;
    let (end, other) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let socket = Socket { end: Arc::new(end), threads: config.n_threads.unwrap_or(1), journal: journal.clone() };
    let mut greeting = [0; 64];
    greeting[..4].copy_from_slice(&VERSION[0].to_ne_bytes());
    greeting[4..8].copy_from_slice(&VERSION[1].to_ne_bytes());
    socket.send(&[&RequestHead::message(opcode::INIT, 1, &greeting)], SendFlags::empty())?;
    let session = Session::from_fd(file_system, other, config.acl, config.clone())?;
    let mut answer = [0; 256];
    rustix::net::recv(&socket.end, &mut answer, RecvFlags::empty())?;
    let session = session.spawn()?;
    let from = socket.end.clone();
    let relay = std::thread::Builder::new().name("mount-relay".into());
    let _: JoinHandle<()> = relay.spawn(move || pass_answers(&from, &device, journal.as_deref(), &standstill))?;
    Ok((socket, session))
}

/// Passes fuser's answers on to the kernel until fuser closes its end.
fn pass_answers(from: &OwnedFd, device: &OwnedFd, journal: Option<&AnsweredInJournal>, standstill: &Standstill) {
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    loop {
        match rustix::net::recv(from, &mut answer[..], RecvFlags::empty()) {
            Ok((0, _)) => return,
            // The kernel refuses if the caller was killed or the mount is gone. No program wants the answer then.
            Ok((len, _)) => {
                // By the number with which the request came in, which may be marked as sent again.
                let came = answered(&answer[..len]);
                let unique = journal.and_then(|_| as_first_asked(&mut answer[..len]));
                let _ = rustix::io::write(device, &answer[..len]);
                if let Some((journal, unique)) = journal.zip(unique) {
                    journal.is_answered(unique);
                }
                if let Some(unique) = came {
                    standstill.ended(unique);
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Gives an answer the number by which the kernel knows its request, which it did not send again.
fn as_first_asked(answer: &mut [u8]) -> Option<u64> {
    let number = answer.get_mut(8..16)?;
    let unique = u64::from_ne_bytes(number.try_into().ok()?) & !AGAIN;
    number.copy_from_slice(&unique.to_ne_bytes());
    Some(unique)
}

impl Socket {
    /// Passes a request on without blocking. If fuser's threads are all busy and the socket is full, a worker waits
    /// for them.
    pub(crate) fn pass(&self, device: &Arc<OwnedFd>, asked: &RequestHead, head: &[u8], body: &[u8], workers: &Workers) {
        if asked.opcode == opcode::BATCH_FORGET && body.len() > FORGOTTEN * FORGOTTEN_MAX {
            let whole = [head, body].concat();
            let socket = self.clone();
            return workers.push(move || socket.pass_forgotten(&whole));
        }
        let mut head = head.to_vec();
        if matches!(asked.opcode, opcode::READDIR)
            && let Some(size) = head.get_mut(HEAD + 16..HEAD + 20)
        {
            let wanted = u32::from_ne_bytes([size[0], size[1], size[2], size[3]]);
            size.copy_from_slice(&wanted.min(LIST_BYTES_MAX).to_ne_bytes());
        }
        match self.send(&[&head, body], SendFlags::DONTWAIT) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::NOBUFS) => {
                let (socket, device, unique) = (self.clone(), device.clone(), asked.unique);
                head.extend_from_slice(body);
                workers.push(move || socket.pass_waiting(device, unique, &head));
            }
            Err(error) => {
                Answer::new(device.clone(), asked.unique).noted_in(self.journal.clone()).error(error);
            }
        }
    }

    /// Passes a request on, however long that blocks.
    pub(crate) fn pass_waiting(&self, device: Arc<OwnedFd>, unique: u64, message: &[u8]) {
        if let Err(error) = self.send(&[message], SendFlags::empty()) {
            Answer::new(device, unique).noted_in(self.journal.clone()).error(error);
        }
    }

    /// Passes on a long list of inodes to forget, in several messages.
    fn pass_forgotten(&self, message: &[u8]) {
        let Some(entries) = message.get(HEAD + 8..) else { return };
        for some in entries.chunks(FORGOTTEN * FORGOTTEN_MAX) {
            let count = u32::try_from(some.len() / FORGOTTEN).expect("at most as many as fit a message");
            let mut body = Vec::with_capacity(8 + some.len());
            body.extend_from_slice(&count.to_ne_bytes());
            body.extend_from_slice(&[0; 4]);
            body.extend_from_slice(some);
            // A mount that has ended has nothing to forget.
            let _ = self.send(&[&RequestHead::message(opcode::BATCH_FORGET, 0, &body)], SendFlags::empty());
        }
    }

    /// Ends fuser's threads after they have done all earlier requests.
    pub(crate) fn close(&self, workers: &Workers) {
        let socket = self.clone();
        workers.push(move || {
            for _ in 0..socket.threads {
                // It fails if they have ended already, which is as good.
                let _ = socket.send(&[&RequestHead::message(opcode::DESTROY, 0, &[])], SendFlags::empty());
            }
        });
    }

    /// Ends fuser's threads at once.
    pub(crate) fn shut(&self) {
        let _ = rustix::net::shutdown(&self.end, Shutdown::Both);
    }

    fn send(&self, parts: &[&[u8]], flags: SendFlags) -> Result<(), Errno> {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut none: [MaybeUninit<u8>; 0] = [];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut none);
        loop {
            match rustix::net::sendmsg(&self.end, &slices, &mut control, flags | SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                result => return result.map(drop),
            }
        }
    }
}
