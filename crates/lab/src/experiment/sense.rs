//! Whether the numbers of a run make sense. Every run is checked, and the report prints the doubts.

use super::Record;

/// How far a sum over seconds may be from the total: the last second may be cut, and samples lie between requests.
const SUM_MAX: f64 = 0.10;
/// How much more or less the mount may have served than the load read: it is asked a little before and after.
const SERVED_MAX: f64 = 0.35;
/// Below so many blocks the moments of the samples weigh more than their values.
const BLOCKS_MIN: u64 = 2_000;

/// What does not add up in a run; nothing if all is well. `block` is the size of a request in KiB, where all have one.
#[must_use]
pub fn doubts(record: &Record, block: Option<u32>) -> Vec<String> {
    let mut doubts = Vec::new();
    let figures = &record.figures;
    if figures.operations == 0 {
        doubts.push("nothing was done in the part that counts".to_owned());
    }
    let row = [figures.p50_ms, figures.p95_ms, figures.p99_ms, figures.p999_ms, figures.max_ms];
    let known: Vec<f64> = row.into_iter().flatten().collect();
    if known.windows(2).any(|pair| pair[0] > pair[1] * 1.02) {
        doubts.push(format!("percentiles that fall: {known:?} ms"));
    }
    let bytes = figures.read_bytes + figures.write_bytes;
    if let Some(block) = block
        && bytes != figures.operations * u64::from(block) * 1024
    {
        doubts.push(format!("{} requests of {block} KiB are not {bytes} bytes", figures.operations));
    }
    let counted = || record.seconds.iter().filter(|second| second.at > record.warmup);
    let sum: f64 = counted()
        .map(|second| {
            let before = record.seconds.iter().rfind(|other| other.at < second.at).map_or(0.0, |other| other.at);
            second.throughput * (second.at - before)
        })
        .sum();
    let operations = figures.operations as f64;
    // A handful of seconds, or of requests, is rough by nature.
    if counted().count() >= 5 && operations >= 100.0 && (sum / operations - 1.0).abs() > SUM_MAX {
        doubts.push(format!("the seconds add up to {sum:.0} operations of {operations:.0}"));
    }
    if let (Some(hits), Some(misses)) = (record.gained(|pond| pond.hit_blocks), record.gained(|pond| pond.miss_blocks))
        && block.is_some_and(|block| block % 4 == 0)
        && hits + misses >= BLOCKS_MIN
    {
        let served = ((hits + misses) * 4096) as f64;
        let share = served / figures.read_bytes.max(1) as f64;
        if figures.seconds >= 5.0 && (share - 1.0).abs() > SERVED_MAX {
            doubts.push(format!("the mount served {served:.0} bytes of {} read", figures.read_bytes));
        }
    }
    doubts
}

/// What does not add up in a run during which everything dirty is flushed.
#[must_use]
pub fn flush_doubts(record: &Record) -> Vec<String> {
    let mut doubts = Vec::new();
    if record.gained(|pond| pond.origin_writes) == Some(0) {
        doubts.push("nothing was flushed in the part that counts".to_owned());
    } else if record.figures.seconds >= 5.0 && record.pond.last().is_some_and(|pond| pond.dirty_blocks == 0) {
        doubts.push("the flush was over before the load: in part these are figures without one".to_owned());
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::super::{Figures, PondCounts, Second};
    use super::*;

    fn record() -> Record {
        let second = |at: u32| Second { at: f64::from(at), throughput: 100.0, p95_ms: None, p99_ms: None };
        let pond = |at: u32| PondCounts { at: f64::from(at), hit_blocks: u64::from(at) * 400, ..PondCounts::default() };
        Record {
            warmup: 2.0,
            figures: Figures {
                throughput: 100.0,
                operations: 800,
                seconds: 8.0,
                read_bytes: 800 * 16 * 1024,
                p50_ms: Some(1.0),
                p95_ms: Some(2.0),
                p99_ms: Some(3.0),
                p999_ms: Some(4.0),
                max_ms: Some(5.0),
                ..Figures::default()
            },
            seconds: (1..=10).map(second).collect(),
            pond: (1..=10).map(pond).collect(),
            ..Record::blank()
        }
    }

    #[test]
    fn a_run_that_adds_up_raises_no_doubt() {
        assert_eq!(doubts(&record(), Some(16)), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_does_not_add_up_is_told() {
        let doubted = |change: fn(&mut Record), told: &str| {
            let mut record = record();
            change(&mut record);
            let doubts = doubts(&record, Some(16));
            assert!(doubts.len() == 1 && doubts[0].contains(told), "{told}: {doubts:?}");
        };
        doubted(|record| record.figures.p99_ms = Some(1.5), "fall");
        doubted(|record| record.figures.write_bytes = 5, "bytes");
        doubted(|record| record.seconds.iter_mut().for_each(|second| second.throughput = 50.0), "add up to 400");
        doubted(|record| record.pond.iter_mut().for_each(|pond| pond.hit_blocks *= 3), "the mount served");
    }

    #[test]
    fn a_flush_that_ends_before_the_load_is_told() {
        let mut flushing = record();
        for pond in &mut flushing.pond {
            (pond.origin_writes, pond.dirty_blocks) = (pond.hit_blocks, 8_000 - pond.hit_blocks);
        }
        assert_eq!(flush_doubts(&flushing), Vec::<String>::new());
        flushing.pond[9].dirty_blocks = 0;
        assert!(flush_doubts(&flushing)[0].contains("before the load"));
        assert!(flush_doubts(&record())[0].contains("nothing was flushed"));
    }

    #[test]
    fn five_rounds_judge_the_part_that_counts_alone() {
        let mut steady = record();
        steady.seconds[0].throughput = 9_000.0;
        steady.judge_steadiness();
        assert!(steady.steadiness.is_some_and(|found| found.steady && found.range == 0.0));
        steady.seconds[9].throughput = 300.0;
        steady.judge_steadiness();
        assert!(steady.steadiness.is_some_and(|found| !found.steady));
    }
}
