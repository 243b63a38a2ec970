//! A front door that the shard serves itself.
#![allow(clippy::unwrap_used)]

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use headpond_base::Nanos;
use headpond_device::{Backend, Device, Fill, Flash, Memory, TrimPolicy, start_device};
use headpond_engine::{Effect, Outcome, Reply, Request, RequestId, Stats, Ticket};
use headpond_shard::{Core, Done, Door, FileOrigin, Handle, Limits, Shard, Taken};

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
    answers: Sender<Reply>,
    /// Told when the door goes.
    gone: Sender<Taken>,
    end: Taken,
}

impl Door for Pipe {
    fn descriptor(&self) -> io::Result<OwnedFd> {
        self.reader.as_fd().try_clone_to_owned()
    }

    fn take(&mut self, room: usize, submit: &mut dyn FnMut(Request, Done)) -> Taken {
        assert!(room <= 4, "no more than the limit");
        for _ in 0..room {
            match self.reader.read(&mut [0]) {
                Ok(1) => {
                    let answers = self.answers.clone();
                    submit(Request::SyncAll, Box::new(move |reply| drop(answers.send(reply))));
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
    (Box::new(Pipe { reader, answers, gone, end: Taken::All }), (writer, answered, went))
}

fn shard(device: Box<dyn Device>) -> Handle {
    let limits = Limits { requests: 4, ..Limits::default() };
    Shard::start(Slow::default(), device, Arc::new(FileOrigin::new()), limits).unwrap()
}

fn uring() -> (Box<dyn Device>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let flash = Flash::create(&dir.path().join("flash"), 1 << 20, Fill::Reserved).unwrap();
    (start_device(flash, Backend::Uring, TrimPolicy::Off).unwrap(), dir)
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn all_that_comes_through_the_door_is_answered_and_never_more_is_under_way_than_allowed() {
    let (device, _dir) = uring();
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

#[test]
fn a_door_that_cannot_be_served_is_dropped_so_that_it_serves_itself() {
    let handle = shard(Box::new(Memory::new(1 << 20)));
    let (door, (_writer, _answered, went)) = pipe();
    handle.serve(door);
    assert_eq!(went.recv_timeout(LONG), Ok(Taken::All));
    handle.clone().stop().unwrap();
    let (late, (_writer, _answered, went)) = pipe();
    handle.serve(late);
    assert_eq!(went.recv_timeout(LONG), Ok(Taken::All), "the shard has ended");
}

#[test]
fn an_open_door_is_dropped_when_the_shard_ends() {
    let (device, _dir) = uring();
    let handle = shard(device);
    let (door, (mut writer, answered, went)) = pipe();
    handle.serve(door);
    writer.write_all(&[0]).unwrap();
    answered.recv_timeout(LONG).unwrap();
    handle.stop().unwrap();
    assert_eq!(went.recv_timeout(LONG), Ok(Taken::All));
}
