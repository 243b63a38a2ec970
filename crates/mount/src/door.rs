//! The door: the kernel's requests come in here.
//!
//! One thread reads all of them: the shard's own, or one of the mount if the shard has ended or watches too many doors.
//! It takes reads, writes and syncs of managed files straight to the engine, and their answers straight to the kernel.
//! It passes everything else on, unopened, to fuser's threads, which may block (see [`relay`](crate::fuse::relay)), or
//! to a few workers.
//!
//! ```text
//!            ┌ read, write, fsync ─> engine ─> answer ─────────────────┐
//!  kernel ──>│ the same, if it may block ─> workers ─> engine, origin ─┤──> kernel
//!            └ all else ─> socket ─> fuser ─> socket ─> relay ─────────┘
//! ```
//!
//! Gain: a read hit wakes one thread twice (for the request, for the flash), and hands nothing over.
//! Price: all work here delays every other request, so nothing here blocks.
//!
//! Invariants
//! - The door passes on or answers every request exactly once.
//! - As long as the mount stands, a thread reads: a door that is dropped while open goes on with a
//!   thread of its own. If the shard has ended, callers get errors.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use headpond_door::{Done, Door, Taken, Workers};
use headpond_engine::Treatment;
use headpond_rules::Direction;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::caller::Caller;
use crate::file_system::open_flags;
use crate::front::Front;
use crate::front::asked_again::Asked;
use crate::front::data::{ReadPlan, Send, Writing};
use crate::fuse::answer::Answer;
use crate::fuse::buffers::RequestBuffers;
use crate::fuse::forgetting::Passing;
use crate::fuse::journal::RequestJournal;
use crate::fuse::relay::Socket;
use crate::fuse::wire::opcode::CHANGES;
use crate::fuse::wire::{AGAIN, Create, Fsync, Read, RequestHead, WRITE_HEAD, Write, opcode};
use crate::handles::{ContentWay, OpenHandle};
use crate::panel::is_panel;
use crate::standstill::Going;
use crate::telling::tell;

/// Messages that one turn takes in. After these the shard works on what came in.
const BATCH: usize = 64;

/// An open mount's side of the kernel's device.
pub(crate) struct FuseDoor {
    /// None once the mount is gone.
    open: Option<Open>,
}

struct Open {
    device: Arc<OwnedFd>,
    front: Arc<Front>,
    socket: Socket,
    workers: Workers,
    /// The head of a message. As long as that of a write, so that a write's data begins in `buffers`.
    head: [u8; WRITE_HEAD],
    buffers: RequestBuffers,
    /// For a kernel that cannot send requests again.
    journal: Option<RequestJournal>,
    /// What a process before this one took and did not answer.
    left: VecDeque<Vec<u8>>,
}

impl FuseDoor {
    /// A door that reads from `device`, which does not block.
    pub(crate) fn new(
        device: Arc<OwnedFd>,
        front: Arc<Front>,
        socket: Socket,
        workers: Workers,
        mut journal: Option<RequestJournal>,
    ) -> Self {
        let left = journal.as_mut().map_or_else(VecDeque::new, |journal| journal.take_left().into());
        let (head, buffers) = ([0; WRITE_HEAD], RequestBuffers::new());
        Self { open: Some(Open { device, front, socket, workers, head, buffers, journal, left }) }
    }

    /// Serves the mount on this thread until the mount is gone.
    fn serve(mut self, front: &Front) {
        loop {
            let Some(open) = &self.open else { return };
            let device = open.device.clone();
            let mut watched = [PollFd::new(&device, PollFlags::IN)];
            // A signal alone makes it fail; the loop looks again.
            let _ = poll(&mut watched, None);
            self.take(usize::MAX, &mut |request, done| front.pond.submit(request, done));
        }
    }
}

impl Door for FuseDoor {
    fn descriptor(&self) -> io::Result<OwnedFd> {
        match &self.open {
            Some(open) => open.device.as_fd().try_clone_to_owned(),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn take(&mut self, room: usize, submit: &mut dyn FnMut(headpond_engine::Request, Done)) -> Taken {
        for _ in 0..room.min(BATCH) {
            let Some(open) = &mut self.open else { return Taken::Closed };
            match open.receive() {
                Ok(len) => {
                    let Some(asked) = RequestHead::parse(&open.head[..len.min(WRITE_HEAD)]) else { continue };
                    open.handle(&asked, len, submit);
                    // If nothing was written since the last sync, the answer is there already. The kernel sends the
                    // next sync of that file only after this answer. So the answer goes out before the door looks for
                    // further messages.
                    if asked.opcode == opcode::FSYNC {
                        return Taken::Some;
                    }
                }
                Err(Errno::AGAIN) => return Taken::All,
                // The kernel took the request back while it handed it over.
                Err(Errno::NOENT | Errno::INTR) => {}
                // Unmounted (ENODEV), or aborted.
                Err(_) => {
                    if let Some(open) = self.open.take() {
                        open.socket.close(&open.workers);
                    }
                    return Taken::Closed;
                }
            }
        }
        Taken::Some
    }
}

impl Drop for FuseDoor {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        let front = open.front.clone();
        let socket = open.socket.clone();
        let door = Self { open: Some(open) };
        let thread = std::thread::Builder::new().name("mount-door".into());
        let mut door = Some(door);
        if let Err(error) = thread.spawn(move || door.take().map_or((), |door| door.serve(&front))) {
            // No thread can serve any more: the mount ends, and the kernel fails the callers' requests.
            tell(format_args!("the mount ends, as no thread can be started to serve it: {error}"));
            socket.shut();
        }
    }
}

impl Open {
    /// Receives the next message, into the head and the next buffer. Returns its length.
    fn receive(&mut self) -> Result<usize, Errno> {
        let Self { device, head, buffers, journal, left, .. } = self;
        if let Some(mut message) = left.pop_front() {
            // Like one that the kernel sends again.
            message[15] |= AGAIN.to_be_bytes()[0];
            return Ok(take_in(&message, head, buffers));
        }
        match journal {
            None => rustix::io::readv(device, &mut [IoSliceMut::new(head), IoSliceMut::new(buffers.next())]),
            Some(journal) => {
                let len = rustix::io::read(device, journal.landing())?;
                take_in(journal.landed(len), head, buffers);
                journal.keep(len);
                Ok(len)
            }
        }
    }

    /// Handles the message of `len` bytes that has arrived and begins with `asked`.
    fn handle(&mut self, asked: &RequestHead, len: usize, submit: Send<'_>) {
        let head = &self.head[..len.min(WRITE_HEAD)];
        let journal = self.journal.as_ref().map(|journal| journal.answered().clone());
        let answer = Answer::new(self.device.clone(), asked.unique).noted_in(journal);
        let (front, caller) = (self.front.clone(), asked.caller);
        let opcode = Some(asked.opcode).filter(|opcode| *opcode == opcode::STATX || !is_panel(asked.node));
        let handled = match opcode {
            Some(opcode::READ) => Read::parse(head).map(|read| match front.files.get(read.handle) {
                Ok(file) => {
                    if !read.direct {
                        file.inode.beside.pages.used();
                    }
                    let reading = ReadPlan { offset: read.offset, size: read.size, caller: asked.caller };
                    match self.how(&file, asked.caller, read.size.into(), Direction::Read) {
                        Some(how) => front.read(&file, reading, how, answer, submit),
                        None => self.aside(file, move |front, file| {
                            let how = front.how_after_look(file, reading.caller, reading.size.into(), Direction::Read);
                            front.read(file, reading, how, answer, &mut |request, done| {
                                front.pond.submit(request, done)
                            });
                        }),
                    }
                }
                Err(error) => answer.error(error),
            }),
            Some(opcode::WRITE) => Write::parse(head).map(|write| {
                let there = len.saturating_sub(WRITE_HEAD);
                if write.size as usize != there {
                    return answer.error(Errno::INVAL);
                }
                if front.pond.is_barred() {
                    return answer.error(Errno::ROFS);
                }
                match front.files.get(write.handle) {
                    Ok(file) => {
                        let answer = match self.front.forgetting.get().filter(|_| write.direct) {
                            Some(forgetting) => {
                                answer.of_direct(Passing::new(forgetting, &file, write.offset, write.size))
                            }
                            None => answer,
                        };
                        if !write.direct {
                            file.inode.beside.pages.used();
                        }
                        let data = self.buffers.take(there);
                        let flags = open_flags(write.flags);
                        let uid = if write.of_mapping { file.opener } else { asked.caller.uid };
                        let (caller, size) = (Caller { uid, ..asked.caller }, there as u64);
                        let kills = write.kills_set_id.then_some(caller);
                        let writing = Writing { offset: write.offset, data, kills, flags, caller };
                        let how = self.how(&file, caller, size, Direction::Write);
                        if file.atomic_writing.is_open() && !write.of_mapping {
                            let front = self.front.clone();
                            return self.workers.push(move || front.write_later(&file, writing, answer));
                        }
                        match how.filter(|_| file.inode.beside.privileges.is_none()) {
                            Some(how) => self.front.write_data(&file, writing, how, answer, submit),
                            None if matches!(file.way, ContentWay::Straight(..)) => {
                                let front = self.front.clone();
                                self.aside_as_change(asked.unique, move || {
                                    let how = front.how_after_look(&file, caller, size, Direction::Write);
                                    front.write(&file, writing, how, answer, &mut |request, done| {
                                        front.pond.submit(request, done);
                                    });
                                });
                            }
                            None => self.aside(file, move |front, file| {
                                let how =
                                    how.unwrap_or_else(|| front.how_after_look(file, caller, size, Direction::Write));
                                front.write(file, writing, how, answer, &mut |request, done| {
                                    front.pond.submit(request, done);
                                });
                            }),
                        }
                    }
                    Err(error) => answer.error(error),
                }
            }),
            Some(opcode::FSYNC) => Fsync::parse(head).map(|sync| match front.files.get(sync.handle) {
                Ok(file) => match self.copies_of_sync(&file, caller, sync.data_only) {
                    Some(copies) => front.sync_data(&file, copies, answer, submit),
                    None => self.aside(file, move |front, file| {
                        let send = &mut |request, done| front.pond.submit(request, done);
                        front.sync(file, caller, sync.data_only, answer, send);
                    }),
                },
                Err(error) => answer.error(error),
            }),
            Some(opcode::SYNCFS) => {
                let front = self.front.clone();
                self.workers.push(move || front.sync_all(answer));
                Some(())
            }
            Some(opcode::STATX) => {
                let node = asked.node;
                self.workers.push(move || front.answer_statx(node, answer));
                Some(())
            }
            Some(opcode::TMPFILE) => Create::parse(head).map(|create| {
                let (parent, caller, unique) = (asked.node, asked.caller, asked.unique);
                self.aside_as_change(unique, move || {
                    front.answer_tmpfile(parent, create, caller, Asked::by(unique), answer);
                });
            }),
            _ => {
                let body = &self.buffers.next()[..len.saturating_sub(WRITE_HEAD)];
                // Forgetting has no answer, so dropping `answer` must not send one.
                answer.elsewhere();
                let (socket, device, unique) = (&self.socket, &self.device, asked.unique);
                let changes = CHANGES.contains(&asked.opcode) && !is_panel(asked.node);
                let later = || -> Going {
                    let (socket, device, message) = (socket.clone(), device.clone(), [head, body].concat());
                    Box::new(move || socket.pass_waiting(device, unique, &message))
                };
                if !changes || front.standstill.lets_in(unique, later) {
                    socket.pass(device, asked, head, body, &self.workers);
                }
                Some(())
            }
        };
        // A message shorter than its head says has dropped its answer, which sends an error.
        let _ = handled;
    }

    /// Gives a worker a change of the origin that may block; not before the end of a standstill of the origin.
    fn aside_as_change(&self, unique: u64, change: impl FnOnce() + std::marker::Send + 'static) {
        let standstill = self.front.standstill.clone();
        let mut job = Some(move || {
            change();
            standstill.ended(unique);
        });
        let now = self.front.standstill.lets_in(unique, || {
            let (job, workers) = (job.take(), self.workers.clone());
            Box::new(move || job.map_or((), |job| workers.push(job)))
        });
        if let Some(job) = job.filter(|_| now) {
            self.workers.push(job);
        }
    }

    /// How to treat a request. `None` if a worker must do it: its file does not go through the engine, or the process
    /// must be looked at first.
    fn how(&self, file: &OpenHandle, caller: Caller, size: u64, direction: Direction) -> Option<Treatment> {
        match &file.way {
            ContentWay::Pond { known, .. } => self.front.treat(known, caller, size, direction),
            ContentWay::Straight(..) => None,
        }
    }

    /// On how many other hosts a sync must be. `None` if a worker must do it: its file does not go through the engine, the
    /// origin has something to sync, or the process must be looked at first.
    fn copies_of_sync(&self, file: &OpenHandle, caller: Caller, data_only: bool) -> Option<Option<u8>> {
        match &file.way {
            ContentWay::Pond { known, .. } if data_only || !file.inode.is_unsynced() => {
                self.front.copies_of_sync(known, caller)
            }
            _ => None,
        }
    }

    /// Gives a worker a job that may block.
    fn aside(&self, file: Arc<OpenHandle>, job: impl FnOnce(&Front, &OpenHandle) + std::marker::Send + 'static) {
        let front = self.front.clone();
        self.workers.push(move || job(&front, &file));
    }
}

/// Takes in a message that lies elsewhere.
fn take_in(message: &[u8], head: &mut [u8; WRITE_HEAD], buffers: &mut RequestBuffers) -> usize {
    let (first, body) = message.split_at(message.len().min(WRITE_HEAD));
    head[..first.len()].copy_from_slice(first);
    buffers.next()[..body.len()].copy_from_slice(body);
    message.len()
}
