//! The cost of something that can be switched on and off: one load runs on one mount all the time, and the bench
//! switches meanwhile. It counts the mount's answers, and the daemon's processor time, between two switches.
//!
//! A slice is so short that the machine is about the same for both slices of a pair. The order within the pairs
//! changes from pair to pair. The cost is one minus the median of the pairs' ratios, with its interval at 95 %
//! (percentile bootstrap over the pairs).

use std::time::{Duration, Instant};

use super::Outcome;
use super::fio::RunningJob;
use super::plan::{DATA, Plan};
use super::pond::Mount;
use super::table::{Line, Target};

/// What counts of a slice, and what passes before it: a switch may do some work as well.
const SLICE: Duration = Duration::from_millis(250);
const SWITCH: Duration = Duration::from_millis(50);

/// Pairs for each second of each round that is asked for.
const PAIRS: u64 = 2;

/// One slice.
struct Slice {
    /// Requests a second.
    rate: f64,
    /// Processor seconds of the daemon for a million requests.
    processor: f64,
    /// The share of it that one thread used.
    share: f64,
}

/// The slices with it and without it, pair by pair.
pub struct Turns {
    on: Vec<Slice>,
    off: Vec<Slice>,
}

impl Turns {
    /// Runs a load on the file `data` of a mount, and switches. `thread` is one of the daemon's.
    pub fn take(
        plan: &Plan,
        mount: &Mount,
        job: &[&str],
        thread: &str,
        switch: &mut dyn FnMut(bool) -> Outcome<()>,
    ) -> Outcome<Self> {
        let load = RunningJob::start(&mount.file("data"), DATA, &[job, &["--ioengine=io_uring"]].concat())?;
        let mut turns = Self { on: Vec::new(), off: Vec::new() };
        for pair in 0..plan.rounds as u64 * plan.seconds * PAIRS {
            for on in [pair % 2 == 0, pair % 2 != 0] {
                switch(on)?;
                let slice = slice(mount, thread)?;
                if on { turns.on.push(slice) } else { turns.off.push(slice) }
            }
        }
        load.end()?;
        Ok(turns)
    }

    /// How much of the rate it costs.
    pub fn rate(&self, work: String, names: [&'static str; 2], most: f64) -> Outcome<Line> {
        self.cost(work, "% of the rate", names, most, |slice| slice.rate)
    }

    /// How much processor time of the daemon it costs, for each request.
    pub fn processor(&self, work: String, names: [&'static str; 2], most: f64) -> Outcome<Line> {
        self.cost(work, "% of the daemon's CPU time a request", names, most, |slice| 1.0 / slice.processor)
    }

    /// How much of the daemon's processor time the thread uses while it is on.
    pub fn share(&self, work: String, figure: &'static str, most: f64) -> Line {
        let rounds: Vec<f64> = self.on.iter().map(|slice| slice.share * 100.0).collect();
        Line { work, figure, rounds, interval: None, parts: Vec::new(), target: Target::AtMost(most) }
    }

    /// The cost in something of which more is better.
    fn cost(
        &self,
        work: String,
        figure: &'static str,
        names: [&'static str; 2],
        most: f64,
        of: impl Fn(&Slice) -> f64,
    ) -> Outcome<Line> {
        let each = |slices: &[Slice]| slices.iter().map(&of).collect();
        Line::cost(work, figure, names, (each(&self.on), each(&self.off)), most)
    }
}

fn slice(mount: &Mount, thread: &str) -> Outcome<Slice> {
    std::thread::sleep(SWITCH);
    let used = || (mount.processor_nanos(None), mount.processor_nanos(Some(thread)));
    let (begun, answered_before, before) = (Instant::now(), answered(mount)?, used());
    std::thread::sleep(SLICE);
    let after = used();
    let (answered, time) = (answered(mount)?, begun.elapsed());
    let (requests, all) = (answered - answered_before, after.0 - before.0);
    let share = (after.1 - before.1) / all.max(1.0);
    Ok(Slice { rate: requests / time.as_secs_f64(), processor: all / 1e3 / requests, share })
}

/// Requests of applications that the mount has answered.
fn answered(mount: &Mount) -> Outcome<f64> {
    Ok(mount.number("reads_total")? + mount.number("writes_total")?)
}
