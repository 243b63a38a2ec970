//! The worker's tie to its holder.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::net::SendFlags;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::arena::{Arena, ArenaError, Sizes};
use crate::message::{Message, Received, receive, send};

/// The name under which the holder keeps the arena.
pub(crate) const ARENA: &str = "arena";

/// A worker's side. Each message is with the holder once the call returns: a kill of the worker does not take it
/// back.
#[derive(Debug)]
pub struct Tie {
    socket: OwnedFd,
    /// Held from a question to its answer.
    asking: Mutex<()>,
}

/// What a worker gets at its start.
#[derive(Debug)]
pub struct Inherited {
    /// The shared memory.
    pub arena: Arena,
    /// Descriptors by name.
    pub kept: BTreeMap<String, OwnedFd>,
    /// Texts by name.
    pub notes: BTreeMap<String, String>,
    /// How many workers there were before this one.
    pub lives: u64,
}

impl Tie {
    /// Takes over from the last worker, or begins as the first. Call it before anything else: until then the worker
    /// may outlive its holder.
    ///
    /// # Errors
    /// If the holder is gone, or its arena is another version's.
    pub fn take(sizes: Sizes) -> Result<(Self, Inherited), ArenaError> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let socket = io::stdin().as_fd().try_clone_to_owned().map_err(ArenaError::Io)?;
        let gone = || ArenaError::Io(io::Error::other("the holder is gone"));
        if getppid().is_none() {
            return Err(gone());
        }
        let (mut kept, mut notes) = (BTreeMap::new(), BTreeMap::new());
        let lives = loop {
            match receive(&socket, true).map_err(ArenaError::Io)? {
                Received::Message(Message::Keep(name), Some(descriptor)) => drop(kept.insert(name, descriptor)),
                Received::Message(Message::Note(name, text), _) => drop(notes.insert(name, text)),
                Received::Message(Message::Begin(lives), _) => break lives,
                Received::Message(..) | Received::Unknown => {}
                Received::Nothing | Received::End => return Err(gone()),
            }
        };
        let arena = Arena::map(kept.remove(ARENA).ok_or_else(gone)?, sizes)?;
        Ok((Self { socket, asking: Mutex::default() }, Inherited { arena, kept, notes, lives }))
    }

    /// Keeps a descriptor for the workers to come, in place of an earlier one of that name.
    ///
    /// # Errors
    /// If the holder is gone, and this process about to be.
    pub fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.say(&Message::Keep(name.to_owned()), Some(descriptor))
    }

    /// Lets go of a descriptor. The holder has closed it on return: a removed file's space is free once this process
    /// has closed it as well.
    ///
    /// # Errors
    /// As of [`keep`](Self::keep).
    pub fn release(&self, name: &str) -> io::Result<()> {
        self.ask(&Message::Release(name.to_owned()), |answer| match answer {
            Message::Release(released) if released == name => Some(()),
            _ => None,
        })
    }

    /// Keeps a text of at most 60 KiB.
    ///
    /// # Errors
    /// As of [`keep`](Self::keep).
    pub fn note(&self, name: &str, text: &str) -> io::Result<()> {
        self.say(&Message::Note(name.to_owned(), text.to_owned()), None)
    }

    /// This worker serves. From now on the holder starts another one if this one dies.
    ///
    /// # Errors
    /// As of [`keep`](Self::keep).
    pub fn ready(&self) -> io::Result<()> {
        self.say(&Message::Ready, None)
    }

    /// The mount is gone, and nothing that was acknowledged needs the arena. No worker comes after this one.
    ///
    /// # Errors
    /// As of [`keep`](Self::keep).
    pub fn ending(&self) -> io::Result<()> {
        self.say(&Message::Ending, None)
    }

    /// The next worker is the program at `path`. It comes when this one ends. On return the holder has it open.
    ///
    /// # Errors
    /// Why the holder cannot open it: then nothing has changed. Also as of [`keep`](Self::keep).
    pub fn go_on_with(&self, path: &str) -> io::Result<()> {
        let opened = self.ask(&Message::Next(path.to_owned()), |answer| match answer {
            Message::Opened(result) => Some(result),
            _ => None,
        })?;
        opened.map_err(io::Error::from)
    }

    fn say(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        send(&self.socket, message, descriptor, SendFlags::empty())
    }

    /// Tells the holder something, and waits for the answer. Each question has one, so they come one at a time.
    fn ask<T>(&self, question: &Message, is_answer: impl Fn(Message) -> Option<T>) -> io::Result<T> {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        self.say(question, None)?;
        loop {
            match receive(&self.socket, true)? {
                Received::Message(message, _) => {
                    if let Some(answer) = is_answer(message) {
                        return Ok(answer);
                    }
                }
                Received::End => return Err(io::ErrorKind::BrokenPipe.into()),
                Received::Unknown | Received::Nothing => {}
            }
        }
    }
}
