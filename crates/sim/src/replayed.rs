//! A recorded load through the whole engine, in virtual time. `headpond replay` runs the policies alone; here is
//! everything around them: reclaim, neighbourhoods, the pace of destage.
//!
//! Keeps true: requests go out in the order of the trace. They go out at its times if it has any, with at most
//! [`AT_ONCE`] under way, and otherwise one after the other. The engine's counters are the result.

use std::collections::BTreeMap;

use headpond_base::{BLOCK_U64, Buf, Nanos, ObjectId, RECORD_BYTES_MAX, UnixNanos};
use headpond_engine::{Config, Reply, Stats, Treatment};
use headpond_timed::{Hardware, Machine, Parts, some_data};
use headpond_trace::{Extent, TracedRequest};

/// The most requests under way. More would wait in the application or the kernel.
const AT_ONCE: usize = 64;

/// The result.
#[derive(Clone, Copy, Debug)]
pub struct Replayed {
    /// Writes that the trace asked for.
    pub trace_writes: u64,
    /// The engine's counters, with the flush at the end.
    pub stats: Stats,
}

impl Replayed {
    /// The share of the blocks asked for by reads that the pool did not have.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        let (hits, misses) = (self.stats.read_hits_blocks, self.stats.read_miss_blocks);
        misses as f64 / (hits + misses).max(1) as f64
    }

    /// Writes of the trace divided by those that the origin got.
    #[must_use]
    pub fn fewer_writes(&self) -> f64 {
        self.trace_writes as f64 / self.stats.origin_writes.max(1) as f64
    }
}

/// A request in bytes of a volume.
fn bytes_of(extent: Extent) -> (u64, u64, u64) {
    match extent {
        Extent::Bytes { volume, offset, len } => (volume, offset, len),
        Extent::Pages { first, count } => (0, first * BLOCK_U64, count * BLOCK_U64),
    }
}

struct Run {
    machine: Machine,
    files: BTreeMap<u64, ObjectId>,
    data: Buf,
    under_way: usize,
}

impl Run {
    /// Waits until at most `most` are under way.
    fn wait(&mut self, most: usize) {
        loop {
            for (_, reply) in self.machine.take_replies() {
                assert!(matches!(reply, Reply::Data(..) | Reply::Changed(_)), "answered with {reply:?}");
                self.under_way -= 1;
            }
            if self.under_way <= most {
                return;
            }
            assert!(self.machine.step(Nanos(u64::MAX)), "a request is answered");
        }
    }

    fn ask(&mut self, request: &TracedRequest) {
        let (volume, offset, len) = bytes_of(request.extent);
        let (object, how) = (self.files[&volume], Treatment::default());
        let mut at = offset;
        while at < offset + len {
            // A piece of a request that is larger than any from the kernel.
            let piece = (offset + len - at).min(RECORD_BYTES_MAX as u64 - at % BLOCK_U64);
            let request = if request.write {
                let data = self.data.slice(0..piece as usize);
                headpond_engine::Request::Write { object, offset: at, data, mtime: UnixNanos(2), durable: false, how }
            } else {
                headpond_engine::Request::Read { object, offset: at, len: piece as u32, how }
            };
            self.machine.ask(request);
            self.under_way += 1;
            at += piece;
        }
    }
}

/// Replays a trace through an engine, and flushes it at the end.
///
/// # Panics
/// If a request fails: none does here.
#[must_use]
pub fn replay_through_engine(requests: &[TracedRequest], hardware: Hardware, config: Config) -> Replayed {
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for request in requests {
        let (volume, offset, len) = bytes_of(request.extent);
        let size = sizes.entry(volume).or_default();
        *size = (*size).max(offset + len);
    }
    let mut machine = Machine::new(Parts::of(hardware), config);
    let files = sizes.into_iter().map(|(volume, size)| (volume, machine.open(size))).collect();
    let mut run = Run { machine, files, data: some_data(), under_way: 0 };
    let start = requests.iter().find_map(|request| request.at).unwrap_or(Nanos(0));
    let begun = run.machine.now();
    for request in requests {
        match request.at {
            Some(at) => {
                let at = begun.plus(at.since(start));
                while run.machine.now() < at && run.machine.step(at) {}
                run.wait(AT_ONCE - 1);
            }
            None => run.wait(0),
        }
        run.ask(request);
    }
    run.wait(0);
    let flushed = run.machine.ask_and_wait(headpond_engine::Request::flush_all(1));
    assert!(matches!(flushed, Reply::Done), "a flush is answered with {flushed:?}");
    let trace_writes = requests.iter().filter(|request| request.write).count() as u64;
    Replayed { trace_writes, stats: run.machine.stats() }
}
