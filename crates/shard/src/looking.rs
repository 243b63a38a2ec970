//! How long the shard looks for work before it sleeps.
//!
//! A wake-up costs some 20 us where the processor sleeps, so a shard that looks answers earlier. It pays with processor
//! time. So it looks only where that found work lately. A sleep tells as much as a look: work that came within the
//! patience would have been found. After a look in vain the shard looks again once sleeps were short, and each further
//! look in vain asks for twice as many short sleeps. Each kind of wait learns for itself: the flash may answer
//! soon, though the next request takes long.
//!
//! Invariants, for each kind of wait:
//! - After a wait that was longer than the patience, the shard does not look.
//! - If fewer than [`WORTH`] looks found work since the last one in vain, the next look comes after twice as many short
//!   sleeps in a row, up to [`PROOF_MAX`]. So in the long run at most one look of [`WORTH`] is in vain, or one wait of
//!   [`PROOF_MAX`].

use std::time::{Duration, Instant};

/// The shard looks this many times longer while the flash reads: the answer comes soon, and a sleep costs more than
/// the look. Writes and syncs do not prolong it: the kernel's own threads carry them out, and need the processor
/// (docs/benchmarks.md).
const READ_PATIENCE: u32 = 10;

/// Looks that found work and so make up for one in vain.
const WORTH: u32 = 8;

/// The most short sleeps in a row that the next look waits for.
const PROOF_MAX: u32 = 256;

/// If another thread runs for this long while the shard looks, that thread has work of its own. The scheduler prefers
/// a shard that wakes up to such a thread, but not one that looks. So the shard sleeps.
const CROWDED: Duration = Duration::from_micros(500);

/// How long the shard then looks less.
const CROWDED_PAUSE: Duration = Duration::from_millis(10);

/// What a wait is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// The flash has reads to do.
    FlashReads,
    /// The flash has other operations to do.
    Flash,
    /// The flash has nothing to do: requests, or the origin.
    Others,
}

/// What the last waits tell about the next.
pub(crate) struct Looking {
    spin: Duration,
    /// Other threads want the processor: until then the shard looks less.
    crowded_until: Option<Instant>,
    habits: [Habit; 3],
}

/// What was learned of one kind of wait.
struct Habit {
    /// Short sleeps that are still missing before the next look.
    missing: u32,
    /// How many the next look in vain asks for.
    proof: u32,
    /// Looks that found work since the last one in vain.
    found: u32,
}

impl Looking {
    /// Looks of `spin`, and longer while the flash reads. Zero: never.
    pub(crate) fn new(spin: Duration) -> Self {
        let habits = std::array::from_fn(|_| Habit { missing: 1, proof: 1, found: 0 });
        Self { spin, crowded_until: None, habits }
    }

    /// Looks of `spin` from now on.
    pub(crate) const fn looks_for(&mut self, spin: Duration) {
        self.spin = spin;
    }

    /// Whether there are no looks at all.
    pub(crate) const fn is_off(&self) -> bool {
        self.spin.is_zero()
    }

    /// How long to look in a wait that begins now. Zero: sleep at once.
    pub(crate) fn patience(&self, awaited: Awaited, now: Instant) -> Duration {
        if self.habits[awaited as usize].missing > 0 {
            return Duration::ZERO;
        }
        let crowded = self.crowded_until.is_some_and(|until| now < until);
        if crowded { self.spin } else { self.longest(awaited) }
    }

    /// Notes that other threads ran for `took` while the shard looked. True: it should sleep.
    pub(crate) fn yielded(&mut self, took: Duration, now: Instant) -> bool {
        let crowded = took >= CROWDED;
        if crowded {
            self.crowded_until = Some(now + CROWDED_PAUSE);
        }
        crowded
    }

    /// Notes how long a wait took until work came, by a look, a sleep or both.
    pub(crate) fn waited(&mut self, awaited: Awaited, took: Duration) {
        let short = took < self.longest(awaited);
        self.habits[awaited as usize].learn(short);
    }

    fn longest(&self, awaited: Awaited) -> Duration {
        if awaited == Awaited::FlashReads { self.spin * READ_PATIENCE } else { self.spin }
    }
}

impl Habit {
    fn learn(&mut self, short: bool) {
        match (self.missing, short) {
            // A look, and it found work.
            (0, true) => self.found = self.found.saturating_add(1),
            // A look in vain.
            (0, false) => {
                self.proof = if self.found >= WORTH { 1 } else { (self.proof * 2).min(PROOF_MAX) };
                self.found = 0;
                self.missing = self.proof;
            }
            (_, true) => self.missing -= 1,
            (_, false) => self.missing = self.proof,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Duration = Duration::from_micros(100);
    const SHORT: Duration = Duration::from_micros(20);
    const LONG: Duration = Duration::from_millis(5);

    /// Waits that take so long. Returns how many of them looked, and how many of those in vain.
    fn looks(looking: &mut Looking, awaited: Awaited, waits: impl IntoIterator<Item = Duration>) -> (u32, u32) {
        let (mut looks, mut vain) = (0, 0);
        let now = Instant::now();
        for took in waits {
            let patience = looking.patience(awaited, now);
            looks += u32::from(!patience.is_zero());
            vain += u32::from(!patience.is_zero() && took >= patience);
            looking.waited(awaited, took);
        }
        (looks, vain)
    }

    fn repeated(pattern: &[Duration], times: usize) -> impl Iterator<Item = Duration> {
        pattern.iter().copied().cycle().take(pattern.len() * times)
    }

    #[test]
    fn where_work_comes_soon_the_shard_looks_each_time() {
        assert_eq!(looks(&mut Looking::new(SPIN), Awaited::Others, [SHORT; 1000]), (999, 0));
        assert_eq!(looks(&mut Looking::new(SPIN), Awaited::Others, [LONG; 1000]), (0, 0));
        assert_eq!(looks(&mut Looking::new(Duration::ZERO), Awaited::Others, [SHORT; 1000]), (0, 0));
    }

    #[test]
    fn looks_in_vain_become_ever_rarer() {
        let each = &mut Looking::new(SPIN);
        let (tries, vain) = looks(each, Awaited::Others, repeated(&[SHORT, LONG], 10_000));
        assert_eq!((tries, vain), (1, 1), "half of the waits are too long");
        let bursts = &mut Looking::new(SPIN);
        let pattern: Vec<_> = [SHORT; 5].into_iter().chain([LONG]).collect();
        let first = looks(bursts, Awaited::Others, repeated(&pattern, 100)).1;
        let later = looks(bursts, Awaited::Others, repeated(&pattern, 10_000)).1;
        assert!(first <= 4 && later == 0, "{first}, then {later}");
        let worth: Vec<_> = [SHORT; 20].into_iter().chain([LONG]).collect();
        let (tries, vain) = looks(&mut Looking::new(SPIN), Awaited::Others, repeated(&worth, 100));
        assert_eq!((tries, vain), (2000, 100), "bursts that are long enough are worth a look in vain");
    }

    #[test]
    fn whatever_the_waits_few_looks_are_in_vain_and_work_that_comes_soon_again_is_looked_for() {
        let mut random = 1_u64;
        let waits = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if random >> 63 == 0 { SHORT } else { LONG }
        });
        let looking = &mut Looking::new(SPIN);
        let (_, vain) = looks(looking, Awaited::Others, waits.take(100_000));
        assert!(vain < 20, "{vain} looks in vain");
        let (tries, _) = looks(looking, Awaited::Others, [SHORT; 1000]);
        assert!(tries >= 1000 - PROOF_MAX, "{tries} of 1000");
    }

    #[test]
    fn each_kind_of_wait_learns_for_itself_and_reads_are_looked_for_longer() {
        let (looking, now) = (&mut Looking::new(SPIN), Instant::now());
        let read = SPIN * 5;
        for _ in 0..10 {
            looking.waited(Awaited::FlashReads, read);
            looking.waited(Awaited::Flash, read);
            looking.waited(Awaited::Others, LONG);
        }
        assert_eq!(looking.patience(Awaited::FlashReads, now), SPIN * READ_PATIENCE);
        assert_eq!(looking.patience(Awaited::Flash, now), Duration::ZERO);
        assert_eq!(looking.patience(Awaited::Others, now), Duration::ZERO);
    }

    #[test]
    fn where_others_want_the_processor_even_reads_are_looked_for_only_briefly() {
        let (looking, now) = (&mut Looking::new(SPIN), Instant::now());
        looking.waited(Awaited::FlashReads, SHORT);
        assert!(!looking.yielded(SHORT, now));
        assert_eq!(looking.patience(Awaited::FlashReads, now), SPIN * READ_PATIENCE);
        assert!(looking.yielded(CROWDED, now));
        assert_eq!(looking.patience(Awaited::FlashReads, now), SPIN);
        assert_eq!(looking.patience(Awaited::FlashReads, now + CROWDED_PAUSE), SPIN * READ_PATIENCE);
    }
}
