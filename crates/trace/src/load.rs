//! A trace in memory, cut into references of blocks, so that it can be replayed many times.
//!
//! Invariants:
//! - Blocks are numbered from 0 in the order of their first reference, so that a replay needs at most four bytes for
//!   each reference.
//! - A request becomes one reference for each 4 KiB-aligned block that it touches, in order. A page is one reference.

use std::path::Path;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use headpond_base::BLOCK_U64;

use crate::formats::{Format, Sink};
use crate::request::{Extent, ReadFault, TraceError, TraceFault, TracedRequest, Unit};
use crate::unpack;

/// Spreads numbers over a hash table: keys of traces are often multiples of something.
#[derive(Default)]
struct Spread(u64);

impl std::hash::Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let x = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
}

type Numbers = HashMap<(u64, u64), u32, std::hash::BuildHasherDefault<Spread>>;

/// What to take from a trace, and how.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Its format.
    pub format: Format,
    /// What its addresses count, for formats that do not say so.
    pub unit: Option<Unit>,
    /// Leave writes out.
    pub reads_only: bool,
}

/// A reference of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference(u32);

impl Reference {
    const WRITE: u32 = 1 << 31;

    /// The block's number.
    #[must_use]
    pub const fn block(self) -> u32 {
        self.0 & !Self::WRITE
    }

    /// Whether it is written.
    #[must_use]
    pub const fn is_write(self) -> bool {
        self.0 & Self::WRITE != 0
    }
}

/// A trace in memory.
#[derive(Debug, Default)]
pub struct LoadedTrace {
    references: Vec<Reference>,
    /// The place of each block: its volume, and its position there. Neighbours follow each other.
    places: Vec<(u64, u64)>,
    requests: u64,
    write_requests: u64,
}

impl LoadedTrace {
    /// Reads a trace.
    ///
    /// # Errors
    /// If it cannot be read, has another format, or is empty.
    pub fn read(path: &Path, options: LoadOptions) -> Result<Self, TraceError> {
        let mut cutter = Cutter::default();
        let read = each_request(path, options, &mut |request| cutter.cut(request));
        if cutter.full {
            return Err(TraceError::TooLarge { path: path.display().to_string() });
        }
        read?;
        if cutter.load.references.is_empty() {
            return Err(TraceError::Empty { path: path.display().to_string(), format: options.format.name() });
        }
        Ok(cutter.load)
    }

    /// A load of keys, for tests and examples. All requests are reads.
    #[must_use]
    pub fn of_keys(keys: impl IntoIterator<Item = u64>) -> Self {
        let mut cutter = Cutter::default();
        for key in keys {
            let extent = Extent::Pages { first: key, count: 1 };
            if cutter.cut(TracedRequest { extent, write: false, at: None }).is_err() {
                break;
            }
        }
        cutter.load
    }

    /// All references, in order.
    #[must_use]
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// The number of different blocks.
    #[must_use]
    pub const fn footprint(&self) -> usize {
        self.places.len()
    }

    /// The place of a block: its volume, and its position there.
    #[must_use]
    pub fn place(&self, block: u32) -> (u64, u64) {
        self.places[block as usize]
    }

    /// The number of requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// The number of writes among them.
    #[must_use]
    pub const fn write_requests(&self) -> u64 {
        self.write_requests
    }
}

/// The requests of a trace, unchanged and in order.
///
/// # Errors
/// If it cannot be read, or has another format.
pub fn read_requests(path: &Path, options: LoadOptions) -> Result<Vec<TracedRequest>, TraceError> {
    let mut requests = Vec::new();
    each_request(path, options, &mut |request| {
        requests.push(request);
        Ok(())
    })?;
    Ok(requests)
}

fn each_request(path: &Path, options: LoadOptions, take: Sink) -> Result<(), TraceError> {
    let name = || path.display().to_string();
    let io = |doing| move |error| TraceError::Io { doing, path: name(), error };
    let mut from = unpack::open(path).map_err(io("open"))?;
    let mut wanted = |request: TracedRequest| if options.reads_only && request.write { Ok(()) } else { take(request) };
    match options.format.read(&mut *from, options.unit, &mut wanted) {
        Ok(()) => Ok(()),
        Err(ReadFault::Io(error)) => Err(io("read")(error)),
        Err(ReadFault::Fault(TraceFault { place, what })) => {
            Err(TraceError::Malformed { path: name(), place, what, format: options.format.name() })
        }
    }
}

#[derive(Default)]
struct Cutter {
    load: LoadedTrace,
    numbers: Numbers,
    full: bool,
}

impl Cutter {
    fn cut(&mut self, request: TracedRequest) -> Result<(), TraceFault> {
        self.load.requests += 1;
        self.load.write_requests += u64::from(request.write);
        let (volume, first, end) = match request.extent {
            Extent::Pages { first, count } => (0, first, first.saturating_add(count)),
            Extent::Bytes { volume, offset, len } => {
                (volume, offset / BLOCK_U64, offset.saturating_add(len).div_ceil(BLOCK_U64))
            }
        };
        if end - first > REQUEST_BLOCKS_MAX {
            return Err(TraceFault { place: format!("request {}", self.load.requests), what: too_large(end - first) });
        }
        (first..end).try_for_each(|block| self.refer(volume, block, request.write))
    }

    fn refer(&mut self, volume: u64, block: u64, write: bool) -> Result<(), TraceFault> {
        let next = self.load.places.len();
        let number = match self.numbers.entry((volume, block)) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let number = u32::try_from(next).ok().filter(|number| number & Reference::WRITE == 0);
                self.full = number.is_none();
                let number = number.ok_or_else(|| TraceFault { place: String::new(), what: String::new() })?;
                self.load.places.push((volume, block));
                *entry.insert(number)
            }
        };
        self.load.references.push(Reference(number | if write { Reference::WRITE } else { 0 }));
        Ok(())
    }
}

/// The largest request: 1 GiB. No block layer lets more through at once.
const REQUEST_BLOCKS_MAX: u64 = 1 << 18;

fn too_large(blocks: u64) -> String {
    format!("a single request of {blocks} blocks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_cut_at_every_aligned_block_that_it_touches() {
        let mut cutter = Cutter::default();
        let mut cut = |volume, offset, len, write| {
            let extent = Extent::Bytes { volume, offset, len };
            cutter.cut(TracedRequest { extent, write, at: None }).is_ok()
        };
        assert!(cut(0, 4095, 2, false));
        assert!(cut(0, 4096, 4096, true));
        assert!(cut(1, 4096, 1, false));
        assert!(!cut(0, 0, 1 << 40, false));
        let seen: Vec<_> = cutter.load.references().iter().map(|one| (one.block(), one.is_write())).collect();
        assert_eq!(seen, [(0, false), (1, false), (1, true), (2, false)]);
        assert_eq!((cutter.load.place(1), cutter.load.place(2)), ((0, 1), (1, 1)));
        assert_eq!(cutter.load.footprint(), 3);
    }
}
