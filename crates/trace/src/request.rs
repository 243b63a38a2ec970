//! What every format is read into: requests, and what is wrong with a trace.

use headpond_base::Nanos;

/// What a request covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Bytes of a volume.
    Bytes {
        /// Which volume, or file.
        volume: u64,
        /// The first byte.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Whole blocks whose size does not matter: pages of a database, keys.
    Pages {
        /// The first page.
        first: u64,
        /// How many.
        count: u64,
    },
}

/// One request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedRequest {
    /// What it covers.
    pub extent: Extent,
    /// Whether it is a write.
    pub write: bool,
    /// When it came, if the trace says so; only differences mean something.
    pub at: Option<Nanos>,
}

/// What an address of a trace counts. Formats that say it themselves do not need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Blocks of 4096 bytes.
    Block,
    /// Sectors of 512 bytes: eight of them are one block.
    Sector,
    /// Pages or keys, taken as they are; sizes in bytes are ignored.
    Page,
}

/// Something is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("{doing} {path}: {error}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: String,
        /// What went wrong.
        error: std::io::Error,
    },
    /// It does not look like its format.
    #[error("{path}: {place}: {what}. If the format is not {format}, add --format")]
    Malformed {
        /// The file.
        path: String,
        /// Where in it: a line or a record.
        place: String,
        /// What is wrong.
        what: String,
        /// The format that it was taken for.
        format: &'static str,
    },
    /// There is no request in it.
    #[error("{path}: found no request to replay (format {format}); --reads-only ignores writes")]
    Empty {
        /// The file.
        path: String,
        /// The format that it was taken for.
        format: &'static str,
    },
    /// It is more than can be handled.
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

/// A fault in a trace, or one in getting at it.
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
