//! The answer to one request that the kernel sent and the mount serves without fuser.
//!
//! Invariant: each request gets exactly one answer. A dropped answer sends an error; otherwise the caller would wait
//! for ever. The answer to a direct write waits until the kernel has dropped the pages that the write bypassed.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use headpond_base::Buf;
use rustix::io::Errno;

use crate::fuse::forgetting::Passing;
use crate::fuse::journal::AnsweredInJournal;
use crate::fuse::wire::{AGAIN, ANSWER_HEAD, WRITTEN, answer_head, written_body};

/// Pieces of data that an answer sends in one call: far more than any request has.
const PIECES: usize = 16;

/// An answer that the kernel waits for.
pub(crate) struct Answer {
    /// The kernel's device. None after the answer.
    device: Option<Arc<OwnedFd>>,
    unique: u64,
    /// The write, if the request is a direct write.
    passing: Option<Passing>,
    /// Where the answer is noted, if the kernel cannot send requests again.
    journal: Option<Arc<AnsweredInJournal>>,
}

impl Answer {
    /// The answer to a request that came from this device.
    pub(crate) const fn new(device: Arc<OwnedFd>, unique: u64) -> Self {
        Self { device: Some(device), unique, passing: None, journal: None }
    }

    /// Notes in a journal that it was sent.
    pub(crate) fn noted_in(mut self, journal: Option<Arc<AnsweredInJournal>>) -> Self {
        self.journal = journal;
        self
    }

    /// Makes it the answer to a direct write.
    pub(crate) fn of_direct(mut self, passing: Passing) -> Self {
        self.passing = Some(passing);
        self
    }

    /// Answers with data from where it lies: only the kernel copies it.
    pub(crate) fn data(self, pieces: &[Buf]) {
        if pieces.len() > PIECES {
            let mut whole = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
            pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
            return self.bytes(&whole);
        }
        let empty: &[u8] = &[];
        let mut parts = [empty; PIECES];
        for (part, piece) in parts.iter_mut().zip(pieces) {
            *part = piece;
        }
        self.send(0, &parts[..pieces.len()]);
    }

    /// Answers with data.
    pub(crate) fn bytes(self, data: &[u8]) {
        self.send(0, &[data]);
    }

    /// Answers that `size` bytes were written.
    pub(crate) fn written(self, size: u32) {
        self.send(0, &[&written_body(size)]);
    }

    /// Answers with success.
    pub(crate) fn ok(self) {
        self.send(0, &[]);
    }

    /// Answers with an error.
    pub(crate) fn error(self, error: Errno) {
        self.send(error.raw_os_error(), &[]);
    }

    /// Drops the answer silently: another part sends it, or the request needs none.
    pub(crate) fn elsewhere(mut self) {
        self.device = None;
    }

    fn send(mut self, errno: i32, parts: &[&[u8]]) {
        let Some(device) = self.device.take() else { return };
        let (unique, journal) = (self.unique, self.journal.take());
        let send = move |parts: &[&[u8]]| match &journal {
            None => send(&device, unique, errno, parts),
            Some(journal) => {
                send(&device, unique & !AGAIN, errno, parts);
                journal.is_answered(unique & !AGAIN);
            }
        };
        match self.passing.take() {
            None => send(parts),
            Some(passing) => {
                // The count of bytes written, or no body.
                let (mut body, mut len) = ([0; WRITTEN], 0);
                for part in parts {
                    body[len..len + part.len()].copy_from_slice(part);
                    len += part.len();
                }
                passing.answer(move || send(&[&body[..len]]));
            }
        }
    }
}

/// Sends head and body in one call: the kernel takes an answer whole or not at all.
fn send(device: &OwnedFd, unique: u64, errno: i32, parts: &[&[u8]]) {
    let body = parts.iter().map(|part| part.len()).sum();
    let head: [u8; ANSWER_HEAD] = answer_head(unique, body, errno);
    let mut slices = [IoSlice::new(&[]); PIECES + 1];
    slices[0] = IoSlice::new(&head);
    for (slice, part) in slices[1..].iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    // Fails if the caller was killed or the mount is gone. No program wants the answer then.
    let _ = rustix::io::writev(device, &slices[..=parts.len()]);
}

impl Drop for Answer {
    fn drop(&mut self) {
        let Some(device) = self.device.take() else { return };
        let (passing, journal) = (self.passing.take(), self.journal.take());
        Self { device: Some(device), unique: self.unique, passing, journal }.send(Errno::IO.raw_os_error(), &[]);
    }
}
