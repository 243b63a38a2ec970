//! Writes of random pages, in virtual time, on an origin as slow as a modelled volume. It answers questions of pace,
//! which histories with random delays cannot. Nothing fails here, and all bytes are checked.
//!
//! Invariants: the same load gives the same report, to the nanosecond. A request counts when it is answered. At the
//! end of a run the origin is flushed, and every page compared with its last write.

use std::collections::BTreeMap;

use headpond_base::{BufMut, Nanos, ObjectId, UnixNanos};
use headpond_engine::{Config, Reply, Request, RequestId, Stats, Treatment};
use headpond_format::Geometry;
use headpond_models::Network;
use headpond_timed::{
    Contents, FlashModel, Machine, ModelledCard, OnCard, Parts, QUICK_FLASH, Rng, Traffic, one_member,
};

/// A page: the unit of a database's writes.
pub const PAGE: u64 = 16 << 10;

/// How requests come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrival {
    /// This many are always under way.
    Depth(u32),
    /// This many a second, however long they take.
    PerSecond(f64),
}

/// The load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PagedLoad {
    /// The pool's size in bytes.
    pub pool: u64,
    /// The file's size in bytes.
    pub file: u64,
    /// How the writes of random pages come.
    pub arrival: Arrival,
    /// The length of the run in seconds.
    pub seconds: u64,
    /// The origin.
    pub origin: Network,
    /// The flash card under the pool. Without one each I/O of the flash takes the same time.
    pub card: Option<OnCard>,
    /// The seed of the random pages.
    pub seed: u64,
}

/// The result, second by second.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TimedReport {
    /// Writes answered in each second.
    pub writes: Vec<u64>,
    /// The longest write answered in each second, in nanoseconds.
    pub longest: Vec<u64>,
    /// Bytes that the origin was given in each second.
    pub origin_bytes: Vec<u64>,
    /// I/Os of the origin in each second.
    pub origin_ios: Vec<u64>,
    /// The engine's counters at the end, before the last flush.
    pub stats: Stats,
    /// Pages that the card wrote for each page that it got. 0 without a card.
    pub amplification: f64,
}

impl TimedReport {
    /// The mean of some seconds.
    #[must_use]
    pub fn mean(seconds: &[u64]) -> f64 {
        seconds.iter().sum::<u64>() as f64 / seconds.len().max(1) as f64
    }

    /// The variation of averages over 10 s: their standard deviation as a share of their mean.
    #[must_use]
    pub fn variation(seconds: &[u64]) -> f64 {
        let tens: Vec<f64> = seconds.chunks_exact(10).map(Self::mean).collect();
        let mean = tens.iter().sum::<f64>() / tens.len().max(1) as f64;
        let squares = tens.iter().map(|ten| (ten - mean) * (ten - mean)).sum::<f64>();
        (squares / tens.len().max(1) as f64).sqrt() / mean.max(1e-9)
    }
}

/// The bytes of a page's version. No block of them is all zeros.
fn page(number: u64, version: u32) -> BufMut {
    let mut bytes = BufMut::zeroed(PAGE as usize);
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = (number << 32 | u64::from(version)).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (at as u64 + 1);
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The writer of pages, with what it has written.
struct Writer {
    object: ObjectId,
    versions: Vec<u32>,
    rng: Rng,
    /// The start of each write under way.
    asked: BTreeMap<RequestId, Nanos>,
}

impl Writer {
    fn write_some_page(&mut self, machine: &mut Machine) {
        let number = self.rng.below(self.versions.len() as u64);
        self.versions[number as usize] += 1;
        let request = Request::Write {
            object: self.object,
            offset: number * PAGE,
            data: page(number, self.versions[number as usize]).freeze(),
            mtime: UnixNanos(9),
            durable: false,
            how: Treatment::default(),
        };
        let now = machine.now();
        self.asked.insert(machine.ask(request), now);
    }

    /// How long each write took that was answered since the last call.
    fn answered(&mut self, machine: &mut Machine) -> Vec<Nanos> {
        let now = machine.now();
        let took = |(id, reply): (RequestId, Reply)| {
            assert!(matches!(reply, Reply::Changed(_)), "a write is answered with {reply:?}");
            self.asked.remove(&id).map(|since| now.since(since))
        };
        machine.take_replies().into_iter().filter_map(took).collect()
    }
}

/// Runs a load.
///
/// # Panics
/// If a write fails, or the origin differs at the end from what was written.
#[must_use]
pub fn run_paged(load: &PagedLoad, config: Config) -> TimedReport {
    let pages = load.file / PAGE;
    let mut bytes = Vec::with_capacity(load.file as usize);
    (0..pages).for_each(|number| bytes.extend_from_slice(&page(number, 0)));
    let geometry = Geometry::with_segment_bytes(load.pool, 1 << 20);
    let parts = Parts {
        geometry,
        members: one_member(&geometry, load.card.map_or(FlashModel::Volume(QUICK_FLASH), FlashModel::Card)),
        origin: load.origin,
        contents: Contents::Kept(bytes),
        by_block: false,
    };
    let mut machine = Machine::new(parts, config);
    let object = machine.open(load.file);
    let versions = vec![0; pages as usize];
    let mut writer = Writer { object, versions, rng: Rng::for_part(load.seed, 0), asked: BTreeMap::new() };
    let end = Nanos(load.seconds * Nanos::SECOND.0);
    if let Arrival::Depth(depth) = load.arrival {
        (0..depth).for_each(|_| writer.write_some_page(&mut machine));
    }
    let mut report = TimedReport { writes: vec![0; load.seconds as usize], ..TimedReport::default() };
    report.longest = report.writes.clone();
    let mut arrived = 0_u64;
    while machine.now() < end {
        let next = match load.arrival {
            Arrival::Depth(_) => end,
            Arrival::PerSecond(rate) => Nanos((arrived as f64 * 1e9 / rate) as u64).min(end),
        };
        if next < end && machine.now() >= next {
            arrived += 1;
            writer.write_some_page(&mut machine);
        } else {
            machine.step(next);
        }
        let second = (machine.now().0 / Nanos::SECOND.0) as usize;
        for took in writer.answered(&mut machine) {
            if let (Some(writes), Some(longest)) = (report.writes.get_mut(second), report.longest.get_mut(second)) {
                *writes += 1;
                *longest = took.0.max(*longest);
            }
            if matches!(load.arrival, Arrival::Depth(_)) {
                writer.write_some_page(&mut machine);
            }
        }
    }
    report.stats = machine.stats();
    report.amplification = machine.card().map_or(0.0, ModelledCard::amplification);
    let mut traffic = machine.traffic().to_vec();
    traffic.resize(load.seconds as usize, Traffic::default());
    report.origin_bytes = traffic.iter().map(|second| second.written).collect();
    report.origin_ios = traffic.iter().map(|second| second.ios).collect();
    while !writer.asked.is_empty() {
        assert!(machine.step(Nanos(u64::MAX)), "a write is answered");
        writer.answered(&mut machine);
    }
    let flushed = machine.ask_and_wait(Request::flush_all(1));
    assert!(matches!(flushed, Reply::Done), "a flush is answered with {flushed:?}");
    let Contents::Kept(bytes) = machine.contents() else { unreachable!("it was made so") };
    for (number, version) in (0..).zip(&writer.versions) {
        let at = number as usize * PAGE as usize;
        assert!(bytes[at..at + PAGE as usize] == page(number, *version)[..], "page {number} is not as written");
    }
    report
}
