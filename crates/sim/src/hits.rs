//! Reads of cached data, as many at once as are allowed, in virtual time. The number of answers depends on the flash,
//! and on other sources of answers.
//!
//! Keeps true: the same load gives the same figures. The pool has all of the file before counting begins.

use headpond_base::{BLOCK_U64, Nanos};
use headpond_engine::{Config, Reply, Request, Stats, Treatment};
use headpond_timed::{Hardware, Machine, Parts, Rng};

/// The load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HitLoad {
    /// The file's size in bytes.
    pub file: u64,
    /// The number of reads under way.
    pub depth: u64,
    /// The length of the run.
    pub time: Nanos,
    /// The seed of the blocks.
    pub seed: u64,
}

/// Reads random blocks of a file that the pool has. Returns their number, and the engine's counters before and after.
///
/// # Panics
/// If a read fails: none does here.
#[must_use]
pub fn read_hits(load: HitLoad, hardware: Hardware, config: Config) -> (u64, Stats, Stats) {
    let mut machine = Machine::new(Parts::of(hardware), config);
    let object = machine.open(load.file);
    let read = |offset| Request::Read { object, offset, len: BLOCK_U64 as u32, how: Treatment::default() };
    let mut rng = Rng::new(load.seed);
    // In random order: otherwise it would count as a stream that bypasses the pool.
    while machine.stats().cached_blocks < load.file / BLOCK_U64 {
        let reply = machine.ask_and_wait(read(rng.below(load.file / BLOCK_U64) * BLOCK_U64));
        assert!(matches!(reply, Reply::Data(..)), "a read is answered with {reply:?}");
    }
    machine.ask_and_wait(Request::flush_all(1));
    let warm = machine.stats();
    let end = machine.now().plus(load.time);
    let (mut under_way, mut answered) = (0, 0);
    while machine.now() < end {
        while under_way < load.depth {
            machine.ask(read(rng.below(load.file / BLOCK_U64) * BLOCK_U64));
            under_way += 1;
        }
        machine.step(end);
        for (_, reply) in machine.take_replies() {
            assert!(matches!(reply, Reply::Data(..)), "a read is answered with {reply:?}");
            under_way -= 1;
            answered += 1;
        }
    }
    (answered, warm, machine.stats())
}
