//! What the origin charges: learned from how long its reads, writes and syncs take.
//!
//! An I/O is taken to cost so much, and so much more for each byte. What counts is not how long one
//! takes from its start to its end, for others are in its way, but by how much it keeps the origin
//! busy: the time since the later of its own start and the end of the one that ended before it. For
//! one served at a time that is its service; where several are served at once, its share.
//!
//! A volume that is reached over a network may serve the next I/O while the bytes of a large one are still on their
//! way. Then the large one seems to keep it busy for longer, and the next one comes sooner by as much: what comes right
//! behind a large one, and was waiting, counts for that.
//!
//! A straight line is fitted through that, where each sample counts a little less with every one after
//! it. While all sizes were alike, a further MiB is taken to cost as much as an I/O: if that is too
//! little, the larger I/Os that come of it tell. Where writes are buffered and the sync has the work to
//! do, reads tell how cost goes with size. Only arithmetic that is the same on every machine.

use std::collections::HashMap;

use headpond_base::Nanos;
use headpond_policy::OriginCost;

use crate::effect::{Effect, Ticket};

/// A sample counts this much less with each one after it: about the last hundred count.
const FORGET: f64 = 0.99;
/// How much the guess of a slope weighs, in MiB squared: a few I/Os of different size outweigh it.
const GUESS_WEIGHT: f64 = 0.1;
/// A sample counts as at most so many times what was expected: one hiccup is no new origin.
const HICCUP: f64 = 16.0;
/// From so many MiB on an I/O is large: its bytes take a while on their way.
const LARGE: f64 = 1.0 / 16.0;
/// Before anything is known.
const FIRST_GUESS: f64 = 0.005;
/// From so many reads on their line is used for writes that are buffered.
const SAMPLES_MIN: f64 = 8.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
    Sync,
}

/// A line through weighted samples: x in MiB, y in seconds.
#[derive(Clone, Copy, Default)]
struct Line {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Line {
    /// What an I/O of so many MiB should keep the origin busy, in seconds.
    fn expected(&self, x: f64) -> f64 {
        let (each, slope) = self.fit();
        (each + slope * x).max(0.000_05)
    }

    fn add(&mut self, x: f64, y: f64) {
        let expected = self.expected(x);
        let y = if self.n < SAMPLES_MIN { y } else { y.min(HICCUP * expected) };
        for (sum, sample) in
            [(&mut self.n, 1.0), (&mut self.x, x), (&mut self.y, y), (&mut self.xx, x * x), (&mut self.xy, x * y)]
        {
            *sum = *sum * FORGET + sample;
        }
    }

    /// Seconds for each I/O, and for each MiB.
    fn fit(&self) -> (f64, f64) {
        if self.n < 0.5 {
            return (FIRST_GUESS, FIRST_GUESS);
        }
        let (x, y) = (self.x / self.n, self.y / self.n);
        let (xx, xy) = ((self.xx - self.n * x * x).max(0.0), self.xy - self.n * x * y);
        let slope = ((xy + GUESS_WEIGHT * y) / (xx + GUESS_WEIGHT)).max(0.0);
        ((y - slope * x).max(0.0), slope)
    }
}

/// A large I/O that is over, and has yet to be counted.
#[derive(Clone, Copy)]
struct Large {
    kind: Kind,
    mebibytes: f64,
    busy: f64,
    done_at: Nanos,
}

struct UnderWay {
    kind: Kind,
    bytes: u64,
    since: Nanos,
    foreground: bool,
}

/// What is known of the origin's cost. Owned by the engine.
#[derive(Default)]
pub(crate) struct OriginCosts {
    reads: Line,
    writes: Line,
    /// Seconds that writes and syncs kept the origin busy, lately.
    write_busy: f64,
    sync_busy: f64,
    under_way: HashMap<Ticket, UnderWay>,
    last_done: Nanos,
    large: Option<Large>,
    /// When a request last waited for the origin.
    foreground_at: Nanos,
    foreground: usize,
}

impl OriginCosts {
    /// An effect is on its way. `foreground`: a request waits for it.
    pub(crate) fn started(&mut self, ticket: Ticket, effect: &Effect, foreground: bool, now: Nanos) {
        let (kind, bytes) = match effect {
            Effect::OriginRead { len, .. } => (Kind::Read, u64::from(*len)),
            Effect::OriginWrite { data, .. } => (Kind::Write, data.iter().map(|piece| piece.len() as u64).sum()),
            Effect::OriginSync { .. } => (Kind::Sync, 0),
            _ => return,
        };
        if foreground {
            self.foreground += 1;
            self.foreground_at = now;
        }
        self.under_way.insert(ticket, UnderWay { kind, bytes, since: now, foreground });
    }

    /// An effect is over. Failed ones say nothing of the cost.
    pub(crate) fn done(&mut self, ticket: Ticket, succeeded: bool, now: Nanos) {
        let Some(io) = self.under_way.remove(&ticket) else { return };
        if io.foreground {
            self.foreground -= 1;
            self.foreground_at = now;
        }
        let busy = now.since(io.since.max(self.last_done)).0 as f64 / 1e9;
        self.last_done = self.last_done.max(now);
        if !succeeded {
            return;
        }
        let mebibytes = io.bytes as f64 / f64::from(1 << 20);
        match io.kind {
            Kind::Read => {}
            Kind::Write => {
                self.write_busy = self.write_busy * FORGET + busy;
                self.sync_busy *= FORGET;
            }
            Kind::Sync => {
                self.sync_busy += busy;
                return;
            }
        }
        let counted = self.count_large(&io, mebibytes, busy);
        if mebibytes >= LARGE {
            self.large = Some(Large { kind: io.kind, mebibytes, busy, done_at: now });
        } else if !counted {
            self.line(io.kind).add(mebibytes, busy);
        }
    }

    /// Counts the large I/O that waits for it, with what this one behind it came sooner or later than it should; `true`
    /// if that is all that this one says.
    fn count_large(&mut self, io: &UnderWay, mebibytes: f64, busy: f64) -> bool {
        let Some(large) = self.large.take() else { return false };
        let behind = mebibytes * 2.0 < large.mebibytes && io.since < large.done_at;
        let later = if behind { busy - self.line(io.kind).expected(mebibytes) } else { 0.0 };
        self.line(large.kind).add(large.mebibytes, (large.busy + later).max(0.0));
        behind
    }

    fn line(&mut self, kind: Kind) -> &mut Line {
        if kind == Kind::Read { &mut self.reads } else { &mut self.writes }
    }

    /// Since when nobody has waited for the origin.
    pub(crate) fn idle_for(&self, now: Nanos) -> Nanos {
        if self.foreground > 0 { Nanos(0) } else { now.since(self.foreground_at) }
    }

    /// What a read costs.
    pub(crate) fn reads(&self) -> OriginCost {
        cost(self.reads.fit(), 1.0)
    }

    /// What a write costs, its part of the sync after it included.
    pub(crate) fn writes(&self) -> OriginCost {
        let buffered = self.sync_busy > self.write_busy && self.reads.n >= SAMPLES_MIN;
        if buffered {
            return self.reads();
        }
        cost(self.writes.fit(), 1.0 + (self.sync_busy / self.write_busy.max(1e-9)).min(4.0))
    }
}

fn cost((each, slope): (f64, f64), times: f64) -> OriginCost {
    let nanos = |seconds: f64| Nanos((seconds * times * 1e9).clamp(0.0, 1e12) as u64);
    OriginCost { each: nanos(each), mebibyte: nanos(slope) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::ObjectId;

    /// Reads of these sizes, so many at once, of an origin that serves one at a time.
    fn learned(sizes: &[u32], at_once: usize, cost: impl Fn(u32) -> u64) -> OriginCost {
        let mut costs = OriginCosts::default();
        let (mut now, mut number) = (0_u64, 0_u64);
        let mut queue = std::collections::VecDeque::new();
        for round in 0..400 {
            while queue.len() < at_once {
                let len = sizes[(round + queue.len()) % sizes.len()];
                let read = Effect::OriginRead { ticket: Ticket(number), object: ObjectId(1), offset: 0, len };
                costs.started(Ticket(number), &read, true, Nanos(now));
                queue.push_back((number, len));
                number += 1;
            }
            let Some((ticket, len)) = queue.pop_front() else { break };
            now += cost(len);
            costs.done(Ticket(ticket), true, Nanos(now));
        }
        costs.reads()
    }

    #[test]
    fn the_cost_of_an_io_and_of_a_byte_are_told_apart_however_many_are_waiting() {
        // 8 ms and 10 ms/MiB.
        let disk = |len: u32| 8_000_000 + u64::from(len) * 10_000_000 / (1 << 20);
        for at_once in [1, 4, 16] {
            let found = learned(&[16 << 10, 64 << 10, 512 << 10, 1 << 20, 4096], at_once, disk);
            assert!((7_500_000..8_500_000).contains(&found.each.0), "{at_once} at once: {found:?}");
            assert!((9_000_000..11_000_000).contains(&found.mebibyte.0), "{at_once} at once: {found:?}");
        }
    }

    #[test]
    fn bytes_on_their_way_while_the_next_is_served_cost_the_origin_nothing() {
        // A volume that begins an I/O each 5 ms, and whose bytes then take 1 ms and 150 MB a second.
        let mut costs = OriginCosts::default();
        let sizes = |number: u64| if number.is_multiple_of(10) { 512_u64 << 10 } else { 8 << 10 };
        let end = |number: u64| number * 5_000_000 + 1_000_000 + sizes(number) * 1000 / 150;
        let mut ends: Vec<_> = (0..2000).map(|number| (end(number), number)).collect();
        ends.sort_unstable();
        let mut started = 0;
        for (now, number) in ends {
            while started < number + 16 {
                let len = u32::try_from(sizes(started)).unwrap();
                let read = Effect::OriginRead { ticket: Ticket(started), object: ObjectId(1), offset: 0, len };
                let asked = Nanos((started.saturating_sub(16)) * 5_000_000);
                costs.started(Ticket(started), &read, true, asked);
                started += 1;
            }
            costs.done(Ticket(number), true, Nanos(now));
        }
        let found = costs.reads();
        assert!((4_500_000..5_500_000).contains(&found.each.0), "{found:?}");
        assert!(found.mebibyte.0 < 2_000_000, "{found:?}");
    }

    #[test]
    fn while_all_are_alike_a_further_mebibyte_is_taken_to_cost_as_much_as_an_io() {
        let found = learned(&[16 << 10], 4, |_| 5_000_000);
        assert!((4_500_000..5_500_000).contains(&found.each.0), "{found:?}");
        assert!((4_500_000..5_500_000).contains(&found.mebibyte.0), "{found:?}");
    }

    #[test]
    fn it_is_idle_only_while_nobody_waits() {
        let mut costs = OriginCosts::default();
        let sync = Effect::OriginSync { ticket: Ticket(1), object: ObjectId(1) };
        costs.started(Ticket(1), &sync, true, Nanos(10));
        assert_eq!(costs.idle_for(Nanos(50)), Nanos(0));
        costs.done(Ticket(1), true, Nanos(60));
        costs.started(Ticket(2), &sync, false, Nanos(70));
        assert_eq!(costs.idle_for(Nanos(100)), Nanos(40), "what nobody waits for does not count");
    }
}
