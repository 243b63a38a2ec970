//! Reads of what the pool has, as many at once as are allowed, in virtual time: how many are answered depends on the
//! flash, and on what else may answer.
//!
//! Keeps true: the same load gives the same figures; all of the file is in the pool before anything is counted.

use headpond_base::{BLOCK_U64, Nanos};
use headpond_engine::{Config, Reply, Request, Stats, Treatment};

use crate::machine::{Hardware, Machine, Parts};
use crate::rng::Rng;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HitLoad {
    /// The file's size in bytes.
    pub file: u64,
    /// Reads under way.
    pub depth: u64,
    /// For how long.
    pub time: Nanos,
    /// Which blocks.
    pub seed: u64,
}

/// Reads random blocks of a file that the pool has. Answers with how many, and what the engine had counted before
/// and after.
///
/// # Panics
/// When a read fails: none does here.
#[must_use]
pub fn read_hits(load: HitLoad, hardware: Hardware, config: Config) -> (u64, Stats, Stats) {
    let mut machine = Machine::new(Parts::of(hardware), config);
    let object = machine.open(load.file);
    let read = |offset| Request::Read { object, offset, len: BLOCK_U64 as u32, how: Treatment::default() };
    let mut rng = Rng::new(load.seed);
    // In no order, or it would be taken for a stream that passes by.
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
