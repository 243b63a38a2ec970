//! Reads a trace, one chunk at a time.

use std::io::{self, BufRead, Read};

use headpond_base::Nanos;

use crate::asked::AskedRequest;
use crate::layout::{
    CHUNK_HEAD_BYTES, CHUNK_MOST, ChunkHead, TRACE_HEAD_BYTES, TRACED_BYTES, TraceHead, WhyEnded, decode_request,
};

/// Why nothing of a trace can be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceUnreadable {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It does not begin like a trace.
    #[error("{0}")]
    Head(String),
}

/// How far a trace reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceEnd {
    /// To its end.
    Complete(WhyEnded),
    /// The file ends in the middle, after this many good bytes.
    Cut(u64),
    /// What follows this many good bytes is damaged.
    Damaged(u64),
}

/// Gives the requests of a trace.
pub struct TraceReader<R> {
    from: R,
    head: TraceHead,
    /// The requests of the present chunk, and how many bytes of them were given.
    chunk: Vec<u8>,
    given: usize,
    /// Bytes that are good.
    good: u64,
    asked: u64,
    kept: u64,
    lasted: Nanos,
    end: Option<TraceEnd>,
}

impl<R: BufRead> TraceReader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// If it cannot be read, or does not begin like a trace.
    pub fn open(mut from: R) -> Result<Self, TraceUnreadable> {
        let mut bytes = [0; TRACE_HEAD_BYTES];
        if fill(&mut from, &mut bytes)? < bytes.len() {
            return Err(TraceUnreadable::Head("it is shorter than the head of a trace".to_owned()));
        }
        let head = TraceHead::decode(&bytes).map_err(TraceUnreadable::Head)?;
        let good = bytes.len() as u64;
        let (chunk, lasted) = (Vec::new(), Nanos(0));
        Ok(Self { from, head, chunk, given: 0, good, asked: 0, kept: 0, lasted, end: None })
    }

    /// The head.
    #[must_use]
    pub const fn head(&self) -> &TraceHead {
        &self.head
    }

    /// The next request; `None` after the last one that is good.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn next_request(&mut self) -> io::Result<Option<AskedRequest>> {
        while self.given == self.chunk.len() {
            if self.end.is_some() {
                return Ok(None);
            }
            self.next_chunk()?;
        }
        let mut bytes = [0; TRACED_BYTES];
        bytes.copy_from_slice(&self.chunk[self.given..self.given + TRACED_BYTES]);
        self.given += TRACED_BYTES;
        let request = decode_request(&bytes);
        if request.is_none() {
            // The checksum holds, so another program wrote it.
            self.chunk.clear();
            self.given = 0;
            self.end = Some(TraceEnd::Damaged(self.good));
        }
        self.kept += u64::from(request.is_some());
        Ok(request)
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        self.given = 0;
        self.chunk.clear();
        let mut bytes = [0; CHUNK_HEAD_BYTES];
        if fill(&mut self.from, &mut bytes)? < bytes.len() {
            self.end = Some(TraceEnd::Cut(self.good));
            return Ok(());
        }
        // Bytes behind a chunk that is damaged are never believed, so a count is bounded before it is used.
        let Some(head) = ChunkHead::decode(&bytes) else {
            self.end = Some(TraceEnd::Damaged(self.good));
            return Ok(());
        };
        let len = (head.count as usize).min(CHUNK_MOST) * TRACED_BYTES;
        self.chunk.resize(len, 0);
        let filled = fill(&mut self.from, &mut self.chunk)?;
        let counts = head.dropped.checked_add(self.kept) == Some(head.number) && head.number >= self.asked;
        if filled < len || !counts || !ChunkHead::holds(&bytes, &self.chunk) {
            self.chunk.clear();
            let end = if filled < len { TraceEnd::Cut } else { TraceEnd::Damaged };
            self.end = Some(end(self.good));
            return Ok(());
        }
        self.good += (CHUNK_HEAD_BYTES + len) as u64;
        self.asked = head.number.saturating_add(u64::from(head.count));
        self.lasted = self.lasted.max(head.at);
        self.end = head.why.map(TraceEnd::Complete);
        Ok(())
    }

    /// How far the trace reads; `None` before [`TraceReader::next_request`] returned `None`.
    #[must_use]
    pub const fn end(&self) -> Option<TraceEnd> {
        self.end
    }

    /// Requests given so far.
    #[must_use]
    pub const fn kept(&self) -> u64 {
        self.kept
    }

    /// Requests that were dropped while it was recorded, as far as it reads.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.asked - self.kept_so_far()
    }

    /// Requests of all chunks so far, those included that were not given yet.
    const fn kept_so_far(&self) -> u64 {
        self.kept + ((self.chunk.len() - self.given) / TRACED_BYTES) as u64
    }

    /// How long the recording lasted, as far as it reads.
    #[must_use]
    pub const fn lasted(&self) -> Nanos {
        self.lasted
    }
}

/// Fills `into`, as far as there is something.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
