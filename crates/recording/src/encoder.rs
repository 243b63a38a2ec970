//! Makes the bytes of a trace.

use std::collections::HashMap;

use headpond_base::Nanos;

use crate::layout::{
    CHUNK_HEAD_BYTES, CHUNK_MOST, ChunkHead, TRACE_HEAD_BYTES, TRACED_BYTES, TraceHead, WhyEnded, encode_request,
};
use crate::ring::Pulled;

/// Makes the bytes of a trace, never more than a limit.
///
/// Invariant: when the limit is reached there is still room for the last chunk.
pub struct TraceEncoder {
    /// The number of each process, in the order in which they came.
    processes: HashMap<u32, u16>,
    /// The last one, and its number: most requests come from the process of the one before.
    last: (u32, u16),
    /// Requests asked so far, dropped ones included, and those in the trace.
    asked: u64,
    kept: u64,
    left: u64,
}

/// The largest number of a process: all later ones share it.
const PROCESS_MOST: u16 = u16::MAX;

impl TraceEncoder {
    /// The least bytes of a trace: the head and the last chunk.
    pub const BYTES_MIN: u64 = (TRACE_HEAD_BYTES + CHUNK_HEAD_BYTES) as u64;

    /// Begins a trace of at most so many bytes, but at least [`TraceEncoder::BYTES_MIN`].
    pub fn begin(head: &TraceHead, bytes_max: u64, into: &mut Vec<u8>) -> Self {
        into.extend_from_slice(&head.encode());
        Self {
            processes: HashMap::new(),
            last: (0, 0),
            asked: 0,
            kept: 0,
            left: bytes_max.saturating_sub(Self::BYTES_MIN),
        }
    }

    /// Appends requests, at the time `at`. Returns `false` once the trace is full: then some, or all, are not in it,
    /// and nothing more fits.
    pub fn append(&mut self, pulled: &[Pulled], at: Nanos, into: &mut Vec<u8>) -> bool {
        let follows = |one: &Pulled, next: &Pulled| one.number + 1 == next.number;
        pulled.chunk_by(follows).flat_map(|run| run.chunks(CHUNK_MOST)).all(|run| self.chunk(run, at, into))
    }

    fn chunk(&mut self, run: &[Pulled], at: Nanos, into: &mut Vec<u8>) -> bool {
        let fit = self.left.saturating_sub(CHUNK_HEAD_BYTES as u64) / TRACED_BYTES as u64;
        let fitting = &run[..usize::try_from(fit).unwrap_or(usize::MAX).min(run.len())];
        let Some(first) = fitting.first() else { return false };
        let start = into.len();
        into.resize(start + CHUNK_HEAD_BYTES, 0);
        for one in fitting {
            let process = self.process(one.request.process);
            encode_request(&one.request, process, into);
        }
        let head = ChunkHead {
            count: u32::try_from(fitting.len()).unwrap_or(u32::MAX),
            number: first.number,
            dropped: first.number - self.kept,
            at,
            why: None,
        };
        head.seal(&mut into[start..]);
        self.left -= (into.len() - start) as u64;
        self.kept += fitting.len() as u64;
        self.asked = first.number + fitting.len() as u64;
        fitting.len() == run.len()
    }

    /// The number of a process. The unknown one has 0.
    fn process(&mut self, process: u32) -> u16 {
        if process != self.last.0 {
            let next = u16::try_from(self.processes.len() + 1).unwrap_or(PROCESS_MOST);
            let number = if process == 0 {
                0
            } else if next == PROCESS_MOST {
                self.processes.get(&process).copied().unwrap_or(PROCESS_MOST)
            } else {
                *self.processes.entry(process).or_insert(next)
            };
            self.last = (process, number);
        }
        self.last.1
    }

    /// Appends the last chunk. `dropped` are all that were dropped; those that did not fit are not among them.
    pub fn end(self, dropped: u64, at: Nanos, why: WhyEnded, into: &mut Vec<u8>) {
        let dropped = dropped.max(self.asked - self.kept);
        let start = into.len();
        into.resize(start + CHUNK_HEAD_BYTES, 0);
        ChunkHead { count: 0, number: self.kept + dropped, dropped, at, why: Some(why) }.seal(&mut into[start..]);
    }

    /// Requests in the trace.
    #[must_use]
    pub const fn kept(&self) -> u64 {
        self.kept
    }
}
