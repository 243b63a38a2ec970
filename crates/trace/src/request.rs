//! The result of reading any format: requests, or what is wrong with a trace.

use headpond_base::Nanos;

/// The range of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Bytes of a volume.
    Bytes {
        /// Which volume, or file.
        volume: u64,
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// Whole blocks of any size: pages of a database, keys.
    Pages {
        /// The first page.
        first: u64,
        /// The number of pages.
        count: u64,
    },
}

/// One request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedRequest {
    /// Its range.
    pub extent: Extent,
    /// Whether it is a write.
    pub write: bool,
    /// Its time, if the trace says it. Only differences mean something.
    pub at: Option<Nanos>,
}

/// What a trace of `headpond record` says beside its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceFacts {
    /// The size of the pool at that time.
    pub pool_bytes: u64,
    /// How long a block stayed dirty at most; `None` for ever.
    pub flush_period: Option<Nanos>,
    /// How long the recording lasted.
    pub lasted: Nanos,
    /// Its requests, of every kind.
    pub requests: u64,
    /// Requests that were dropped while it was recorded.
    pub dropped: u64,
    /// Reads that passed by the pool, by a rule or in a long sequential run. They are left out.
    pub past_reads: u64,
    /// Such writes.
    pub past_writes: u64,
    /// The good bytes of a trace that was cut or damaged: what follows them is not read.
    pub good_bytes: Option<u64>,
}

/// The unit of a trace's addresses, for formats that do not define it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Blocks of 4096 bytes.
    Block,
    /// Sectors of 512 bytes. A block has eight.
    Sector,
    /// Pages or keys, as they are. Sizes in bytes are ignored.
    Page,
}

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("{doing} {path}: {error}")]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// Its file.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// It does not fit its format.
    #[error("{path}: {place}: {what}. If the format is not {format}, add --format")]
    Malformed {
        /// The file.
        path: String,
        /// The place of the error: a line or a record.
        place: String,
        /// What is wrong.
        what: String,
        /// The assumed format.
        format: &'static str,
    },
    /// It has no request.
    #[error("{path}: found no request to replay (format {format}); --reads-only ignores writes")]
    Empty {
        /// The file.
        path: String,
        /// The assumed format.
        format: &'static str,
    },
    /// It is too large.
    #[error("{path}: more than 2^31 different blocks. Split the trace")]
    TooLarge {
        /// The file.
        path: String,
    },
}

/// What is wrong with one line or record.
pub(crate) struct TraceFault {
    pub(crate) place: String,
    pub(crate) what: String,
}

impl TraceFault {
    pub(crate) fn line(number: usize, what: impl Into<String>) -> Self {
        Self { place: format!("line {number}"), what: what.into() }
    }
}

/// A fault in a trace, or an error in reading it.
pub(crate) enum ReadFault {
    Fault(TraceFault),
    Io(std::io::Error),
}

impl From<std::io::Error> for ReadFault {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<TraceFault> for ReadFault {
    fn from(fault: TraceFault) -> Self {
        Self::Fault(fault)
    }
}
