//! The numbers of a row: what a mount did between two looks at its counters.

use std::time::Instant;

use headpond_base::BLOCK_U64;
use headpond_format::HISTORY_VALUES;
use headpond_shard::{Histogram, ShardStats};

/// How a number of two rows becomes one of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Joined {
    Sum,
    Largest,
}

use Joined::{Largest, Sum};

/// The numbers of a row in their order in the pool. The names are those of the JSON.
const NUMBERS: [(&str, Joined); HISTORY_VALUES] = [
    ("covered_ms", Sum),
    ("flash_hit_bytes", Sum),
    ("memory_hit_bytes", Sum),
    ("miss_bytes", Sum),
    ("origin_hit_bytes", Sum),
    ("bypassed_read_bytes", Sum),
    ("write_bytes", Sum),
    ("reads", Sum),
    ("writes", Sum),
    ("syncs", Sum),
    ("origin_reads", Sum),
    ("origin_writes_and_syncs", Sum),
    ("flash_write_bytes", Sum),
    ("destaged_bytes", Sum),
    ("read_p50_ns", Largest),
    ("read_p99_ns", Largest),
    ("read_longest_ns", Largest),
    ("write_p50_ns", Largest),
    ("write_p99_ns", Largest),
    ("write_longest_ns", Largest),
    ("sync_p50_ns", Largest),
    ("sync_p99_ns", Largest),
    ("sync_longest_ns", Largest),
    ("dirty_bytes", Largest),
    ("oldest_dirty_age_ms", Largest),
    ("destage_peak_bytes_per_second", Largest),
    ("regretted_quarter_bytes", Sum),
    ("regretted_double_bytes", Sum),
];

/// The names of a row's numbers.
pub(crate) const COLUMNS: [&str; HISTORY_VALUES] = {
    let mut names = [""; HISTORY_VALUES];
    let mut at = 0;
    while at < HISTORY_VALUES {
        names[at] = NUMBERS[at].0;
        at += 1;
    }
    names
};

/// Gauges, of which a row has the largest that was seen.
const GAUGES: std::ops::Range<usize> = 23..26;

pub(super) type Values = [u64; HISTORY_VALUES];

/// The row of the same time that an earlier life of the daemon left, and this one's.
pub(super) fn join(earlier: &Values, now: &Values) -> Values {
    let mut joined = *now;
    for ((value, before), (_, how)) in joined.iter_mut().zip(earlier).zip(NUMBERS) {
        *value = match how {
            Sum => value.saturating_add(*before),
            Largest => (*value).max(*before),
        };
    }
    joined
}

/// The counters at one moment.
#[derive(Clone)]
pub(crate) struct Look {
    at: Instant,
    counters: [u64; 15],
    gauges: [u64; 3],
    latency: [Histogram; 3],
}

impl Look {
    pub(crate) fn new(at: Instant, stats: &ShardStats, destage_rate: f64) -> Self {
        let engine = &stats.engine;
        let blocks = |count: u64| count * BLOCK_U64;
        let other_hits = engine.memory_hits_blocks + engine.origin_hits_blocks;
        let mut reads = stats.latency.read_hit.clone();
        reads.merge(&stats.latency.read_miss);
        reads.merge(&stats.latency.read_bypass);
        let mut writes = stats.latency.write.clone();
        writes.merge(&stats.latency.write_bypass);
        Self {
            at,
            counters: [
                blocks(engine.read_hits_blocks.saturating_sub(other_hits)),
                blocks(engine.memory_hits_blocks),
                blocks(engine.read_miss_blocks),
                blocks(engine.origin_hits_blocks),
                engine.bypassed_read_bytes,
                engine.write_bytes,
                engine.reads,
                engine.writes,
                engine.syncs,
                engine.origin_reads,
                engine.origin_writes + engine.origin_syncs,
                engine.flash_write_bytes,
                blocks(engine.destaged_blocks),
                blocks(engine.saved_by(2)),
                blocks(engine.saved_by(8)),
            ],
            gauges: [blocks(engine.dirty_blocks), engine.oldest_dirty_age_nanos / 1_000_000, destage_rate as u64],
            latency: [reads, writes, stats.latency.sync.clone()],
        }
    }

    /// What came since an earlier look, and the gauges of now.
    pub(super) fn since(&self, earlier: &Self) -> Values {
        let mut values = [0; HISTORY_VALUES];
        let covered = self.at.saturating_duration_since(earlier.at).as_millis();
        values[0] = u64::try_from(covered).unwrap_or(u64::MAX);
        let more = |at: usize| self.counters[at].saturating_sub(earlier.counters[at]);
        (0..13).for_each(|at| values[1 + at] = more(at));
        (values[26], values[27]) = (more(13), more(14));
        for (at, (now, then)) in self.latency.iter().zip(&earlier.latency).enumerate() {
            let came = now.since(then);
            values[14 + 3 * at..17 + 3 * at]
                .copy_from_slice(&[came.per_mille(500), came.per_mille(990), { came.summary().max }]);
        }
        values[GAUGES].copy_from_slice(&self.gauges);
        values
    }

    /// Takes over the larger gauges of the looks in between.
    pub(super) fn remember(largest: &mut [u64; 3], values: &mut Values) {
        for (largest, value) in largest.iter_mut().zip(&mut values[GAUGES]) {
            *largest = (*largest).max(*value);
            *value = *largest;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_row_has_what_came_between_two_looks() {
        let mut stats = ShardStats::default();
        stats.engine.read_hits_blocks = 10;
        stats.latency.read_hit.record(5_000_000);
        let start = Instant::now();
        let before = Look::new(start, &stats, 0.0);
        stats.engine.read_hits_blocks = 14;
        stats.engine.memory_hits_blocks = 1;
        stats.engine.dirty_blocks = 3;
        stats.latency.read_miss.record(1_000);
        let now = Look::new(start + Duration::from_secs(10), &stats, 77.0);
        let values = now.since(&before);
        let of = |name: &str| values[COLUMNS.iter().position(|column| *column == name).unwrap()];
        assert_eq!((of("covered_ms"), of("flash_hit_bytes"), of("memory_hit_bytes")), (10_000, 3 * 4096, 4096));
        assert_eq!((of("dirty_bytes"), of("destage_peak_bytes_per_second")), (3 * 4096, 77));
        assert!(of("read_p99_ns") < 1_100, "the slow read was before: {values:?}");
        let twice = join(&values, &values);
        let at = |name: &str| COLUMNS.iter().position(|column| *column == name).unwrap();
        assert_eq!((twice[at("flash_hit_bytes")], twice[at("dirty_bytes")]), (6 * 4096, 3 * 4096));
    }
}
