//! A log that comes round again, in virtual time. It is written piece by piece over bytes that the origin has and the
//! pool lacks. The pool is full of other data, which is read all the while.
//!
//! Keeps true: the same load gives the same figures. One piece is written after the other, as commits are.

use headpond_base::{Nanos, UnixNanos};
use headpond_engine::{Config, Reply, Request, Stats, Treatment};
use headpond_timed::{Hardware, Machine, Parts, Rng, some_data};

/// A page of the other data.
const PAGE: u64 = 8 << 10;

/// The load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLoad {
    /// The log's size in bytes.
    pub log: u64,
    /// Bytes of each write.
    pub piece: u64,
    /// Writes for each read of other data.
    pub writes_each: u64,
    /// The seed of the pages read.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Copy, Debug)]
pub struct LogRun {
    /// The engine's counters before the log was written.
    pub before: Stats,
    /// The engine's counters after that.
    pub after: Stats,
    /// How long it took.
    pub took: Nanos,
    /// Writes that waited for the origin, because they needed bytes of it that were not there yet.
    pub waited: u64,
}

/// Writes a log once round.
///
/// # Panics
/// If a request fails: none does here.
#[must_use]
pub fn rewrite_log(load: LogLoad, hardware: Hardware, config: Config) -> LogRun {
    let mut machine = Machine::new(Parts::of(hardware), config);
    let pages = hardware.pool * 3 / PAGE;
    let (log, read) = (machine.open(load.log), machine.open(pages * PAGE));
    let mut rng = Rng::new(load.seed);
    let mut read_some = |machine: &mut Machine| {
        let (offset, how) = (rng.below(pages) * PAGE, Treatment::default());
        let reply = machine.ask_and_wait(Request::Read { object: read, offset, len: PAGE as u32, how });
        assert!(matches!(reply, Reply::Data(..)), "a read is answered with {reply:?}");
    };
    (0..pages).for_each(|_| read_some(&mut machine));
    let (before, begun, data) = (machine.stats(), machine.now(), some_data());
    let mut waited = 0;
    for (number, offset) in (0..load.log).step_by(load.piece as usize).enumerate() {
        let data = data.slice(0..load.piece.min(load.log - offset) as usize);
        let (mtime, how, missed) = (UnixNanos(2), Treatment::default(), machine.stats().read_miss_blocks);
        let reply = machine.ask_and_wait(Request::Write { object: log, offset, data, mtime, durable: true, how });
        assert!(matches!(reply, Reply::Changed(_)), "a write is answered with {reply:?}");
        waited += u64::from(machine.stats().read_miss_blocks > missed);
        if (number as u64).is_multiple_of(load.writes_each) {
            read_some(&mut machine);
        }
    }
    LogRun { before, after: machine.stats(), took: machine.now().since(begun), waited }
}
