//! A trace in memory, cut into references of blocks, so that it can be replayed many times.
//!
//! Invariants:
//! - Blocks are numbered from 0 in the order of their first reference, so that a replay needs at most four bytes for
//!   each reference.
//! - A request becomes one reference for each 4 KiB-aligned block that it touches, in order. A page is one reference.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::path::Path;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use headpond_base::{BLOCK_U64, Nanos};

use crate::formats::{Format, GoneSink, Sink};
use crate::request::{Extent, ReadFault, TraceError, TraceFacts, TraceFault, TracedRequest, Unit};
use crate::unpack;

/// Spreads numbers over a hash table: keys of traces are often multiples of something.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
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
    /// Take only a sample of the blocks, by their hash: of 2 to this power one. A cache that is smaller by the same
    /// factor then behaves alike (miniature simulation: Waldspurger, Saemundsson, Ahmad and Park, ATC 2017).
    pub sample: u32,
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
    /// A bit for each reference: it is the first of its request.
    firsts: Vec<u64>,
    /// The blocks that leave the pool, each before the reference with this number.
    gone: Vec<(usize, u32)>,
    /// From which reference on so many seconds had passed since the first request, if requests have times.
    seconds: Vec<(usize, u32)>,
    /// References of all blocks, in the sample or not: reads, and writes.
    referred: [u64; 2],
    facts: Option<TraceFacts>,
}

impl LoadedTrace {
    /// Reads a trace.
    ///
    /// # Errors
    /// If it cannot be read, has another format, or is empty.
    pub fn read(path: &Path, options: LoadOptions) -> Result<Self, TraceError> {
        let mut cutter = Cutter { sample: options.sample, ..Cutter::default() };
        cutter.known = (options.format == Format::Headpond).then(BTreeMap::new);
        let cutting = RefCell::new(&mut cutter);
        let read =
            each_request(path, options, &mut |request| cutting.borrow_mut().cut(request), &mut |volume, first, end| {
                cutting.borrow_mut().lose(volume, first, end)
            });
        if cutter.full {
            return Err(TraceError::TooLarge { path: path.display().to_string() });
        }
        cutter.load.facts = read?;
        if cutter.load.references.is_empty() {
            return Err(TraceError::Empty { path: path.display().to_string(), format: options.format.name() });
        }
        Ok(cutter.load)
    }

    /// How many blocks a trace refers to, each as often as it does. It keeps none of them.
    ///
    /// # Errors
    /// If it cannot be read, or has another format.
    pub fn count(path: &Path, options: LoadOptions) -> Result<u64, TraceError> {
        let mut references = 0_u64;
        let mut count = |request: TracedRequest| {
            let (_, first, end) = request.extent.blocks();
            references = references.saturating_add(end - first);
            Ok(())
        };
        each_request(path, options, &mut count, &mut |_, _, _| {})?;
        Ok(references)
    }

    /// A load of keys, for tests and examples. All requests are reads.
    #[must_use]
    pub fn of_keys(keys: impl IntoIterator<Item = u64>) -> Self {
        Self::of_sampled_keys(keys, 0)
    }

    /// The same of a sample of the keys: see [`LoadOptions::sample`].
    #[must_use]
    pub fn of_sampled_keys(keys: impl IntoIterator<Item = u64>, sample: u32) -> Self {
        let mut cutter = Cutter { sample, ..Cutter::default() };
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

    /// Whether a reference is the first of its request.
    #[must_use]
    pub fn begins_request(&self, reference: usize) -> bool {
        self.firsts[reference / 64] >> (reference % 64) & 1 != 0
    }

    /// The blocks that leave the pool, because they are discarded or written past it, each before the reference with
    /// this number.
    #[must_use]
    pub fn gone(&self) -> &[(usize, u32)] {
        &self.gone
    }

    /// From which reference on so many seconds had passed since the first request, if requests have times.
    #[must_use]
    pub fn seconds(&self) -> &[(usize, u32)] {
        &self.seconds
    }

    /// References of all blocks, in the sample or not: reads, and writes.
    #[must_use]
    pub const fn referred(&self) -> [u64; 2] {
        self.referred
    }

    /// What a trace of `headpond record` says beside its requests.
    #[must_use]
    pub const fn facts(&self) -> Option<TraceFacts> {
        self.facts
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
    let mut take = |request| {
        requests.push(request);
        Ok(())
    };
    each_request(path, options, &mut take, &mut |_, _, _| {})?;
    Ok(requests)
}

fn each_request(
    path: &Path,
    options: LoadOptions,
    take: Sink,
    gone: GoneSink,
) -> Result<Option<TraceFacts>, TraceError> {
    let name = || path.display().to_string();
    let io = |doing| move |error| TraceError::Io { doing, path: name(), error };
    let mut from = unpack::open(path).map_err(io("open"))?;
    let mut wanted = |request: TracedRequest| if options.reads_only && request.write { Ok(()) } else { take(request) };
    match options.format.read(&mut *from, options.unit, &mut wanted, gone) {
        Ok(facts) => Ok(facts),
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
    /// See [`LoadOptions::sample`].
    sample: u32,
    /// The blocks of each volume that are in the pool if everything is, for traces in which some leave it.
    known: Option<BTreeMap<u64, BTreeSet<u64>>>,
    /// The time of the first request.
    began: Option<Nanos>,
}

impl Extent {
    /// The volume, its first block of this range, and the one behind the last.
    fn blocks(self) -> (u64, u64, u64) {
        match self {
            Self::Pages { first, count } => (0, first, first.saturating_add(count)),
            Self::Bytes { volume, offset, len } => {
                (volume, offset / BLOCK_U64, offset.saturating_add(len).div_ceil(BLOCK_U64))
            }
        }
    }
}

impl Cutter {
    fn cut(&mut self, request: TracedRequest) -> Result<(), TraceFault> {
        self.load.requests += 1;
        self.load.write_requests += u64::from(request.write);
        let (volume, first, end) = request.extent.blocks();
        if end - first > REQUEST_BLOCKS_MAX {
            return Err(TraceFault { place: format!("request {}", self.load.requests), what: too_large(end - first) });
        }
        self.load.referred[usize::from(request.write)] += end - first;
        let at = self.load.references.len();
        self.note_time(at, request.at);
        (first..end).try_for_each(|block| self.refer(volume, block, request.write))?;
        self.load.firsts.resize(self.load.references.len().div_ceil(64), 0);
        if self.load.references.len() > at {
            self.load.firsts[at / 64] |= 1 << (at % 64);
        }
        Ok(())
    }

    /// Times that go back count as the latest before them.
    fn note_time(&mut self, at: usize, time: Option<Nanos>) {
        let Some(time) = time else { return };
        let since = time.since(*self.began.get_or_insert(time));
        let second = u32::try_from(since.0 / Nanos::SECOND.0).unwrap_or(u32::MAX);
        if self.load.seconds.last().is_none_or(|(_, last)| *last < second) {
            self.load.seconds.push((at, second));
        }
    }

    fn is_sampled(&self, volume: u64, block: u64) -> bool {
        let mut spread = Spread::default();
        // Other bits than those by which a policy samples: its shadows see the usual share of these blocks.
        (volume ^ 0x5bd1_e995, block).hash(&mut spread);
        self.sample == 0 || spread.finish() >> (64 - self.sample) == 0
    }

    fn refer(&mut self, volume: u64, block: u64, write: bool) -> Result<(), TraceFault> {
        if !self.is_sampled(volume, block) {
            return Ok(());
        }
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
        if let Some(known) = &mut self.known {
            known.entry(volume).or_default().insert(block);
        }
        self.load.references.push(Reference(number | if write { Reference::WRITE } else { 0 }));
        Ok(())
    }

    /// Blocks leave the pool. Only those that came in since they left last are noted, so there are never more of them
    /// than references.
    fn lose(&mut self, volume: u64, first: u64, end: u64) {
        let Some(known) = self.known.as_mut().and_then(|known| known.get_mut(&volume)) else { return };
        if first >= end {
            return;
        }
        let mut lost = known.split_off(&first);
        known.append(&mut lost.split_off(&end));
        let at = self.load.references.len();
        let numbers = lost.into_iter().filter_map(|block| self.numbers.get(&(volume, block)));
        self.load.gone.extend(numbers.map(|number| (at, *number)));
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
        let firsts: Vec<bool> = (0..4).map(|at| cutter.load.begins_request(at)).collect();
        assert_eq!(firsts, [true, false, true, true]);
        let seen: Vec<_> = cutter.load.references().iter().map(|one| (one.block(), one.is_write())).collect();
        assert_eq!(seen, [(0, false), (1, false), (1, true), (2, false)]);
        assert_eq!((cutter.load.place(1), cutter.load.place(2)), ((0, 1), (1, 1)));
        assert_eq!(cutter.load.footprint(), 3);
    }

    #[test]
    fn what_leaves_the_pool_is_noted_once_where_it_does() {
        let mut cutter = Cutter { known: Some(BTreeMap::new()), ..Cutter::default() };
        let cut = |cutter: &mut Cutter, block: u64| {
            let extent = Extent::Bytes { volume: 3, offset: block * 4096, len: 4096 };
            assert!(cutter.cut(TracedRequest { extent, write: false, at: None }).is_ok());
        };
        (0..5).for_each(|block| cut(&mut cutter, block));
        cutter.lose(3, 1, 3);
        cutter.lose(3, 0, u64::MAX);
        cutter.lose(3, 0, u64::MAX);
        cutter.lose(4, 0, u64::MAX);
        cutter.lose(3, 5, 2);
        cut(&mut cutter, 2);
        cutter.lose(3, 2, 3);
        assert_eq!(cutter.load.gone(), [(5, 1), (5, 2), (5, 0), (5, 3), (5, 4), (6, 2)]);
        assert_eq!(cutter.load.footprint(), 5, "a block that comes back has its number");
    }

    #[test]
    fn a_sample_has_its_share_of_the_blocks_and_all_references_of_each() {
        let mut cutter = Cutter { sample: 3, ..Cutter::default() };
        for at in 0..80_000 {
            let extent = Extent::Bytes { volume: 1, offset: at % 40_000 * 4096, len: 4096 };
            assert!(cutter.cut(TracedRequest { extent, write: false, at: Some(Nanos(at * 1_000_000)) }).is_ok());
        }
        let blocks = cutter.load.footprint();
        assert!(blocks.abs_diff(5000) < 250, "{blocks}");
        assert_eq!(cutter.load.references().len(), 2 * blocks);
        assert_eq!(cutter.load.referred(), [80_000, 0]);
        assert_eq!(cutter.load.seconds().last().map(|(_, second)| *second), Some(79));
    }
}
