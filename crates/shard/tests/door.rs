//! Front doors that the shard serves itself.
#![allow(clippy::unwrap_used)]

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use headpond_base::{MemberId, Nanos};
use headpond_device::{Backend, Fill, Flash, MemoryDisks, Reactor, TrimPolicy, start_reactor};
use headpond_door::{Done, Door, Taken};
use headpond_engine::{Effect, Outcome, Reply, Request, RequestId, Stats, Ticket};
use headpond_shard::{Core, FileOrigin, Handle, Limits, Shard};

/// Answers each request when the next turn begins.
#[derive(Default)]
struct Slow {
    held: Vec<RequestId>,
    effects: Vec<Effect>,
    most: usize,
}

impl Core for Slow {
    fn advance(&mut self, _: Nanos) {
        self.most = self.most.max(self.held.len());
        for request in self.held.drain(..) {
            self.effects.push(Effect::Reply { request, reply: Reply::Offset(self.most as u64) });
        }
    }

    fn submit(&mut self, id: RequestId, _: Request) {
        self.held.push(id);
    }

    fn complete(&mut self, _: Ticket, _: Outcome) {}

    fn take_effects(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    fn next_wake(&self) -> Option<Nanos> {
        (!self.held.is_empty()).then(headpond_shard::now)
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// Takes one request for each byte that comes out of a pipe.
struct Pipe {
    reader: io::PipeReader,
    answer: Arc<dyn Fn(Reply) + Send + Sync>,
    /// Told when the door goes.
    gone: Sender<Taken>,
    end: Taken,
    /// Takes nothing before this is set.
    open: Arc<AtomicBool>,
}

impl Door for Pipe {
    fn descriptor(&self) -> io::Result<OwnedFd> {
        self.reader.as_fd().try_clone_to_owned()
    }

    fn take(&mut self, room: usize, submit: &mut dyn FnMut(Request, Done)) -> Taken {
        assert!((1..=8).contains(&room), "no more than a portion, and never for nothing");
        if !self.open.load(Ordering::SeqCst) {
            return Taken::Some;
        }
        for _ in 0..room {
            match self.reader.read(&mut [0]) {
                Ok(1) => {
                    let answer = self.answer.clone();
                    submit(Request::SyncAll, Box::new(move |reply| answer(reply)));
                }
                Ok(_) => {
                    self.end = Taken::Closed;
                    return Taken::Closed;
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    return Taken::All;
                }
            }
        }
        Taken::Some
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // The test may have ended.
        let _ = self.gone.send(self.end);
    }
}

type Ends = (io::PipeWriter, Receiver<Reply>, Receiver<Taken>);

fn pipe() -> (Box<Pipe>, Ends) {
    let (reader, writer) = io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&reader).unwrap();
    rustix::fs::fcntl_setfl(&reader, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    let ((answers, answered), (gone, went)) = (channel(), channel());
    // The test may have ended.
    let answer = Arc::new(move |reply| drop(answers.send(reply)));
    let open = Arc::new(true.into());
    (Box::new(Pipe { reader, answer, gone, end: Taken::All, open }), (writer, answered, went))
}

fn shard(device: Box<dyn Reactor>) -> Handle {
    shard_within(device, 4)
}

fn shard_within(device: Box<dyn Reactor>, requests: usize) -> Handle {
    let limits = Limits { requests, ..Limits::default() };
    Shard::start(Slow::default(), device, Arc::new(FileOrigin::new()), limits).unwrap()
}

/// Each reactor that watches doors.
fn all() -> [(Box<dyn Reactor>, tempfile::TempDir); 2] {
    [Backend::Uring, Backend::Psync].map(|backend| {
        let dir = tempfile::tempdir().unwrap();
        let flash = Flash::create(&dir.path().join("flash"), 1 << 20, Fill::Reserved).unwrap();
        (start_reactor(vec![(MemberId(0), flash)], backend, TrimPolicy::Off).unwrap(), dir)
    })
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn all_that_comes_through_the_door_is_answered_and_never_more_is_under_way_than_allowed() {
    for (device, _dir) in all() {
        let handle = shard(device);
        let (door, (mut writer, answered, went)) = pipe();
        handle.serve(door);
        for burst in [1, 3, 4, 5, 100] {
            writer.write_all(&vec![0; burst]).unwrap();
            for _ in 0..burst {
                let Reply::Offset(most) = answered.recv_timeout(LONG).unwrap() else { panic!("another's answer") };
                assert!(most <= 4, "{most} at once");
            }
        }
        // Others ask in the usual way meanwhile.
        assert!(matches!(handle.call(Request::SyncAll), Reply::Offset(_)));
        drop(writer);
        assert_eq!(went.recv_timeout(LONG), Ok(Taken::Closed));
        assert!(matches!(handle.call(Request::SyncAll), Reply::Offset(_)), "the shard goes on without it");
        handle.stop().unwrap();
    }
}

#[test]
fn a_door_that_cannot_be_served_is_dropped_so_that_it_serves_itself() {
    let handle = shard(Box::new(MemoryDisks::new(1 << 20)));
    let (door, (_writer, _answered, went)) = pipe();
    handle.serve(door);
    assert_eq!(went.recv_timeout(LONG), Ok(Taken::All));
    handle.clone().stop().unwrap();
    let (late, (_writer, _answered, went)) = pipe();
    handle.serve(late);
    assert_eq!(went.recv_timeout(LONG), Ok(Taken::All), "the shard has ended");
}

#[test]
fn a_door_that_always_has_more_keeps_no_other_waiting_for_more_than_its_portion() {
    const FEW: usize = 10;
    // There is room for one portion, or for many.
    for (requests, (device, _dir)) in [4, 256].into_iter().flat_map(|requests| all().map(|one| (requests, one))) {
        let handle = shard_within(device, requests);
        let ((mut busy, (mut to_busy, ..)), (mut quiet, (mut to_quiet, ..))) = (pipe(), pipe());
        let (answers, answered) = channel();
        for (door, name) in [(&mut busy, "busy"), (&mut quiet, "quiet")] {
            let answers = answers.clone();
            door.answer = Arc::new(move |_| {
                // The test may have ended.
                let _ = answers.send(name);
            });
        }
        quiet.open = busy.open.clone();
        let open = busy.open.clone();
        open.store(false, Ordering::SeqCst);
        to_busy.write_all(&[0; 2000]).unwrap();
        to_quiet.write_all(&[0; FEW]).unwrap();
        handle.serve(busy);
        handle.serve(quiet);
        // Both are there once a request that came after them is answered.
        assert!(matches!(handle.call(Request::SyncAll), Reply::Offset(_)));
        open.store(true, Ordering::SeqCst);
        let (mut of_busy, mut of_quiet) = (0, 0);
        while of_quiet < FEW {
            match answered.recv_timeout(LONG).unwrap() {
                "busy" => of_busy += 1,
                _ => of_quiet += 1,
            }
        }
        assert!(of_busy <= FEW + 8, "{of_busy} of the busy door came before {FEW} of the quiet one");
        handle.stop().unwrap();
    }
}

#[test]
fn doors_come_and_go_while_the_others_are_served() {
    for (device, _dir) in all() {
        let handle = shard_within(device, 256);
        let ends = [pipe(), pipe(), pipe()].map(|(door, ends)| (handle.serve(door), ends));
        let [(first, mut one), (second, mut other), (third, mut last)] = ends;
        let ask = |ends: &mut Ends| {
            ends.0.write_all(&[0; 20]).unwrap();
            for _ in 0..20 {
                ends.1.recv_timeout(LONG).unwrap();
            }
        };
        for ends in [&mut one, &mut other, &mut last] {
            ask(ends);
        }
        let answered = |handle: &Handle| -> Vec<_> {
            handle.stats().doors.iter().map(|door| (door.door, door.under_way, door.answered)).collect()
        };
        assert_eq!(answered(&handle), [(first, 0, 20), (second, 0, 20), (third, 0, 20)]);
        // One is withdrawn, one ends by itself.
        handle.withdraw(first);
        assert_eq!(one.2.recv_timeout(LONG), Ok(Taken::All), "it was open, and its owner learns of it");
        drop(other.0);
        assert_eq!(other.2.recv_timeout(LONG), Ok(Taken::Closed));
        handle.withdraw(second);
        ask(&mut last);
        let (door, mut new) = pipe();
        let fourth = handle.serve(door);
        ask(&mut new);
        assert_eq!(answered(&handle), [(third, 0, 40), (fourth, 0, 20)]);
        handle.stop().unwrap();
    }
}

#[test]
fn an_open_door_is_dropped_when_the_shard_ends() {
    for (device, _dir) in all() {
        let handle = shard(device);
        let (door, (mut writer, answered, went)) = pipe();
        handle.serve(door);
        writer.write_all(&[0]).unwrap();
        answered.recv_timeout(LONG).unwrap();
        handle.stop().unwrap();
        assert_eq!(went.recv_timeout(LONG), Ok(Taken::All));
    }
}
