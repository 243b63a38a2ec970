//! fio at a fixed rate as an open loop: a request's latency counts from its due time, even if it was sent late.
//!
//! fio has a mode of its own for this (`--io_submit_mode=offload`), but fio 3.33 does not end in that mode. At a
//! rate, fio sends a thread's k-th request no earlier than k divided by the rate. It counts from the thread's start,
//! and not from the request before. So it is enough to know when each request was sent. fio's log has that: the end
//! of each request in milliseconds, and its length. The delay of the sending is added to the latency.
//!
//! Invariants:
//! - No latency is shorter than fio's own, and none is more than a millisecond too short. The log rounds times down
//!   to milliseconds, so a delay below one is not seen, and never made up.
//! - A request counts at its due time, so a stall at the end of the warm-up stays in the warm-up.

use super::record::{Figures, Second};
use crate::failure::{Failure, Result};
use headpond_base::Nanos;
use headpond_measure::{Latency, Schedule};
use std::path::Path;

/// A request as fio's log has it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Request {
    /// When it was sent, in nanoseconds from the start; what the log lacks makes it earlier than it was.
    sent: i64,
    /// How long it took.
    took: u64,
}

/// What the requests of a run waited, from when they were due.
#[derive(Clone, Default)]
pub struct Waits(Vec<(Nanos, Nanos)>);

impl Waits {
    /// Reads the logs of so many threads. Each thread sends `rate` requests a second.
    pub fn read(prefix: &Path, threads: u32, rate: u32) -> Result<Self> {
        let mut waits = Self::default();
        for thread in 1..=threads {
            let path = prefix.with_file_name(format!(
                "{}_lat.{thread}.log",
                prefix.file_name().unwrap_or_default().to_string_lossy()
            ));
            let text =
                std::fs::read_to_string(&path).map_err(Failure::io(format!("reading fio's log {}", path.display())))?;
            waits.add(&text, rate).map_err(|what| Failure::Other(format!("{}: {what}", path.display())))?;
        }
        Ok(waits)
    }

    /// Adds a thread's log: `ended in ms, took in ns, direction, size, ...`.
    fn add(&mut self, log: &str, rate: u32) -> std::result::Result<(), String> {
        let request = |line: &str| {
            let mut words = line.split(',').map(str::trim);
            let (ended, took) = (words.next()?.parse::<i64>().ok()?, words.next()?.parse::<u64>().ok()?);
            Some(Request { sent: ended * 1_000_000 - took as i64, took })
        };
        let lines = log.lines().filter(|line| !line.is_empty());
        let mut requests = lines
            .map(|line| request(line).ok_or_else(|| format!("'{line}' is no request")))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        // They end in any order, and are due in the order in which they were sent.
        requests.sort_by_key(|request| request.sent);
        self.0.extend(Schedule::even(f64::from(rate)).zip(requests).map(|(due, request)| {
            let late = (request.sent - due.0 as i64).max(0) as u64;
            (due, Nanos(request.took + late))
        }));
        Ok(())
    }

    fn between(&self, from: f64, to: f64) -> Latency {
        let mut latency = Latency::default();
        let moment = |seconds: f64| (seconds * 1e9) as u64;
        let within = moment(from)..moment(to);
        self.0.iter().filter(|(due, _)| within.contains(&due.0)).for_each(|(_, waited)| latency.record(*waited));
        latency
    }

    /// Puts them in the place of fio's own latencies, which count from when a request was sent.
    pub fn put_into(&self, warmup: f64, figures: &mut Figures, seconds: &mut [Second]) {
        let latency = self.between(warmup, f64::INFINITY);
        let of = |latency: &Latency, share| latency.percentile(share).map(milliseconds);
        figures.mean_ms = latency.mean().map(|nanos| nanos / 1e6);
        figures.p50_ms = of(&latency, 0.5);
        figures.p95_ms = of(&latency, 0.95);
        figures.p99_ms = of(&latency, 0.99);
        figures.p999_ms = of(&latency, 0.999);
        figures.max_ms = latency.longest().map(milliseconds);
        let mut before = 0.0;
        for second in seconds {
            let latency = self.between(before, second.at);
            (second.p95_ms, second.p99_ms) = (of(&latency, 0.95), of(&latency, 0.99));
            before = second.at;
        }
    }
}

fn milliseconds(nanos: Nanos) -> f64 {
    nanos.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The example that coordinated omission is explained with: 100 a second, each answered in 1 ms for 100 s, and then
    /// nothing is answered for 100 s. One thread has one request under way: it sees one long answer, and sends the
    /// others when they are long due.
    fn log() -> String {
        let mut text = String::new();
        for number in 0..10_000u64 {
            text += &format!("{}, {MS}, 1, 4096, 0, 0\n", number * 10 + 1);
        }
        text += &format!("200000, {}, 1, 4096, 0, 0\n", 100_000 * MS);
        // The rest come as fast as they are answered from then on, in no time.
        for _ in 10_001..20_000 {
            text += "200000, 1000, 1, 4096, 0, 0\n";
        }
        text
    }

    #[test]
    fn a_stall_is_seen_by_all_that_were_due_in_it() {
        let mut waits = Waits::default();
        waits.add(&log(), 100).unwrap();
        let second = |at: f64| Second { at, throughput: 100.0, p95_ms: Some(1.0), p99_ms: Some(1.0) };
        let (mut figures, mut seconds) = (Figures::default(), vec![second(50.0), second(150.0), second(200.0)]);
        waits.put_into(0.0, &mut figures, &mut seconds);
        let near = |found: Option<f64>, expected: f64| {
            assert!((found.unwrap() / expected - 1.0).abs() < 0.002, "{found:?} for {expected}");
        };
        near(figures.p50_ms, 1.0);
        near(figures.p99_ms, 98_000.0);
        near(figures.max_ms, 100_000.0);
        // Half of them waited 50 s on average.
        near(figures.mean_ms, 25_000.0);
        near(seconds[0].p99_ms, 1.0);
        near(seconds[2].p95_ms, 47_500.0);
        // With the first 100 s as warm-up, every one that counts is of the stall.
        waits.put_into(100.0, &mut figures, &mut seconds);
        near(figures.p50_ms, 50_000.0);
    }

    #[test]
    fn what_was_sent_in_time_keeps_its_own_latency_and_order_does_not_matter() {
        let mut waits = Waits::default();
        // Two at once: the second ended first. The log's moments are cut to milliseconds.
        waits.add("12, 2500000, 0, 4096, 0, 0\n9, 8700000, 0, 4096, 0, 0\n", 100).unwrap();
        let mut took: Vec<u64> = waits.0.iter().map(|(_, waited)| waited.0).collect();
        took.sort_unstable();
        assert_eq!(took, [2_500_000, 8_700_000 + 300_000]);
        assert!(Waits::default().add("nonsense", 100).is_err());
    }
}
