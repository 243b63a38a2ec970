//! A connection of the server, which says that it is there while a request takes its time.
//!
//! One thread receives, carries out and answers. While it carries out, another one sends a word five times a second; while a
//! request comes in over a slow way, it does so itself. So an owner can tell a slow disk, or way, from a host that is gone.
//!
//! The price: a thread for each connection, which wakes as often, and a lock that nobody else has when a request comes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headpond_peer::{PeerFrame, Said};

use crate::channel::Channel;

/// How often the word is sent.
const EVERY: Duration = Duration::from_millis(200);

/// A connection, shared by the two threads.
pub(crate) struct Line {
    channel: Mutex<Channel>,
    /// The first thread waits for a request.
    receives: AtomicBool,
    /// When it last said the word while one came in.
    said_at: Mutex<Instant>,
    /// The owner is accepted by what is sent next.
    accepts: AtomicBool,
    /// It was told: before that it awaits no such word.
    serves: AtomicBool,
}

impl Line {
    pub(crate) fn new(channel: Channel) -> Self {
        let is = AtomicBool::new;
        let (channel, said_at) = (Mutex::new(channel), Mutex::new(Instant::now()));
        Self { channel, receives: is(true), said_at, accepts: is(false), serves: is(false) }
    }

    /// Does this, and meanwhile says that it is there while it takes its time.
    pub(crate) fn while_alive<T>(&self, serve: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        std::thread::scope(|scope| {
            let (over, ended) = channel::<()>();
            std::thread::Builder::new()
                .name("working".to_owned())
                .spawn_scoped(scope, move || self.say_working(&ended))?;
            let served = serve();
            drop(over);
            served
        })
    }

    /// What is sent next accepts the owner. From then on it awaits such words.
    pub(crate) fn will_accept(&self) {
        self.accepts.store(true, Ordering::Relaxed);
    }

    fn say_working(&self, ended: &Receiver<()>) {
        let word = word();
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
            let is_due = self.serves.load(Ordering::Relaxed) && !self.receives.load(Ordering::Relaxed);
            // An answer may go first, while this waits for the lock: no harm. Where it fails, the first thread finds out.
            if is_due && self.locked().send_all(&word).is_err() {
                return;
            }
        }
    }

    /// Sends all of it. The first thread's.
    pub(crate) fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut channel = self.locked();
        channel.send_all(bytes)?;
        self.serves.store(self.accepts.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }

    /// Appends what has come in, and tells how much; 0 at the end of the stream. The first thread's.
    pub(crate) fn receive(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        self.receives.store(true, Ordering::Relaxed);
        let received = self.locked().receive(into);
        self.receives.store(false, Ordering::Relaxed);
        // What is there is the beginning of a request: the rest is on its way.
        if !into.is_empty() && self.serves.load(Ordering::Relaxed) {
            let mut said_at = self.said_at.lock().unwrap_or_else(PoisonError::into_inner);
            if said_at.elapsed() >= EVERY {
                *said_at = Instant::now();
                self.locked().send_all(&word())?;
            }
        }
        received
    }

    fn locked(&self) -> MutexGuard<'_, Channel> {
        // What a thread that panicked has sent in part, no other can make good: the owner finds the frame broken.
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The word.
fn word() -> Vec<u8> {
    let mut word = Vec::new();
    PeerFrame { tag: 0, said: Said::Working }.encode(&mut word);
    word
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use headpond_peer::Accepted;

    use super::*;
    use crate::channel::Socket;

    /// The next frame that comes.
    fn next(stream: &mut UnixStream, inbox: &mut Vec<u8>) -> u64 {
        loop {
            if let Some((frame, len)) = PeerFrame::decode(inbox).unwrap() {
                let tag = match frame.said {
                    Said::Working => 0,
                    _ => frame.tag,
                };
                inbox.drain(..len);
                return tag;
            }
            let mut bytes = [0; 64];
            let taken = stream.read(&mut bytes).unwrap();
            inbox.extend_from_slice(&bytes[..taken]);
        }
    }

    #[test]
    fn while_a_request_takes_its_time_the_owner_hears_that_the_peer_is_there() {
        let (mut owner, peer) = UnixStream::pair().unwrap();
        let line = Line::new(Channel::open(Socket::Unix(peer), None).unwrap());
        let (heard, hears) = channel::<()>();
        let reads = std::thread::spawn(move || {
            let mut inbox = Vec::new();
            assert_eq!(next(&mut owner, &mut inbox), 7, "nothing comes before the owner is accepted");
            owner.write_all(b"a request").unwrap();
            assert_eq!(next(&mut owner, &mut inbox), 0, "a word");
            heard.send(()).unwrap();
            while next(&mut owner, &mut inbox) != 9 {}
        });
        let frame = |tag, said| {
            let mut out = Vec::new();
            PeerFrame { tag, said }.encode(&mut out);
            out
        };
        let served = line.while_alive(|| {
            line.receives.store(false, Ordering::Relaxed);
            std::thread::sleep(2 * EVERY);
            line.will_accept();
            let accepted = Accepted { version: 1, durable: false, bytes: 1 << 26, member: [1; 16] };
            line.send_all(&frame(7, Said::Accepted(accepted)))?;
            line.receive(&mut Vec::new())?;
            // As long as it takes.
            hears.recv().unwrap();
            line.send_all(&frame(9, Said::Done))
        });
        served.unwrap();
        reads.join().unwrap();
    }

    #[test]
    fn while_a_request_comes_in_bit_by_bit_the_owner_hears_that_the_peer_is_there() {
        let (mut owner, peer) = UnixStream::pair().unwrap();
        let line = Line::new(Channel::open(Socket::Unix(peer), None).unwrap());
        line.serves.store(true, Ordering::Relaxed);
        let mut inbox = Vec::new();
        owner.write_all(b"a part").unwrap();
        line.receive(&mut inbox).unwrap();
        // The first word is due once it is time for it.
        while line.said_at.lock().unwrap().elapsed() < EVERY {
            std::thread::sleep(EVERY / 20);
        }
        owner.write_all(b", and another").unwrap();
        line.receive(&mut inbox).unwrap();
        assert_eq!(next(&mut owner, &mut Vec::new()), 0, "a word");
        assert_eq!(inbox, b"a part, and another");
    }
}
