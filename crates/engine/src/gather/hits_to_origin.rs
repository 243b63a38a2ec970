//! A share of clean hits that goes to the origin, where flash is the bottleneck and the origin has headroom.
//!
//! Flash that is asked for more than it can answers late; an origin with room answers sooner. What counts is how long
//! reads that a request waits for take at either, everything before them in its queue included. While the origin's take
//! less than flash's a larger share goes there, up to what is set; once they take longer, a much smaller one. So the
//! share settles where both answer equally soon, and nothing goes to an origin that is slower than the flash. Misses
//! wait at the origin like everybody: when they pile up there, hits stay away.
//!
//! What goes there is clean, its bytes count at the origin, and its reader has its lock (`blocks.rs`), so no
//! change of it can come in between. What comes back is verified against the map like a read of flash. If it does not
//! match, or the origin fails, flash is read after all.
//!
//! Invariants: without [`crate::Config::hits_to_origin`] nothing goes there; with it, no more than that share of clean
//! hits on flash, but for one in ten seconds that sees how the origin is when nobody else has read it; a share is
//! spread evenly, and the same history gives the same choices.

use headpond_base::Nanos;

/// Reads of flash between two looks at the share, and of the origin while some go there: so a look sees what the last
/// change of the share did, and not what came before it.
const LOOK: u32 = 32;
const LOOK_ORIGIN: u32 = 8;
/// The share grows by this many points at a look, and shrinks to this part of it.
const UP: f64 = 2.0;
const DOWN: f64 = 0.8;
/// A share below this is none.
const LEAST: f64 = 1.0;
/// The origin must answer in this part of flash's time before more goes there: what goes there costs others something.
const SOONER: f64 = 0.8;
/// Where so long nobody has read the origin, one hit goes there to see how it is. And so long none goes there after one
/// that failed.
const FORGOTTEN: Nanos = Nanos(10 * Nanos::SECOND.0);
/// So many hits may wait there without anything having come from there since.
const UNANSWERED_MAX: u32 = 64;

/// Times since the last look, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Times {
    sum: f64,
    count: u32,
}

impl Times {
    fn add(&mut self, took: Nanos) {
        self.sum += took.0 as f64;
        self.count += 1;
    }

    fn mean(self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

/// What is known of both, and the share. Owned by `Gather`.
#[derive(Default)]
pub(crate) struct HitsToOrigin {
    flash: Times,
    origin: Times,
    /// How long the origin took when it was last looked at.
    origin_took_last: Option<f64>,
    /// In percent.
    share: f64,
    /// Percents that add up to a hit.
    owed: f64,
    /// When something last came from the origin.
    heard: Option<Nanos>,
    /// When a hit was last sent to see how the origin is.
    tried: Option<Nanos>,
    /// When a hit there last failed.
    failed: Option<Nanos>,
    /// Hits that went there since something came from there.
    unanswered: u32,
}

impl HitsToOrigin {
    /// A read of flash that a request waited for is over.
    pub(crate) fn flash_took(&mut self, took: Nanos, most: u8, now: Nanos) {
        self.flash.add(took);
        // While none goes there what it took last has to do: then a few tell how it is now.
        let known = self.origin.count > 0 || self.origin_took_last.is_some();
        let heard_enough = if self.share > 0.0 { self.origin.count >= LOOK_ORIGIN } else { known };
        if self.flash.count >= LOOK && heard_enough {
            self.tune(most, now);
            (self.flash, self.origin) = (Times::default(), Times::default());
        }
    }

    /// A read of the origin that a request waited for is over.
    pub(crate) fn origin_took(&mut self, took: Nanos, now: Nanos) {
        self.origin.add(took);
        self.heard = Some(now);
        self.unanswered = 0;
    }

    /// The origin did not answer a hit, or with something else: it is left alone for a while.
    pub(crate) const fn origin_failed(&mut self, now: Nanos) {
        self.share = 0.0;
        self.origin_took_last = None;
        self.failed = Some(now);
        self.heard = Some(now);
        self.unanswered = 0;
    }

    fn tune(&mut self, most: u8, now: Nanos) {
        if self.origin.count > 0 {
            self.origin_took_last = Some(self.origin.mean());
        }
        let (flash, origin) = (self.flash.mean(), self.origin_took_last.unwrap_or(f64::INFINITY));
        if self.has_failed(now) {
            self.share = 0.0;
        } else if origin < flash * SOONER {
            self.share += UP;
        } else if origin > flash {
            self.share *= DOWN;
        }
        if self.share < LEAST {
            self.share = 0.0;
        }
        self.share = self.share.min(f64::from(most));
    }

    fn has_failed(&self, now: Nanos) -> bool {
        self.failed.is_some_and(|failed| now.since(failed) <= FORGOTTEN)
    }

    /// Whether the next clean hit on flash goes to the origin, of which at most `most` percent may.
    pub(crate) fn goes(&mut self, most: u8, now: Nanos) -> bool {
        if most == 0 || self.unanswered >= UNANSWERED_MAX || self.has_failed(now) {
            return false;
        }
        let unknown = self.heard.is_none_or(|heard| now.since(heard) > FORGOTTEN);
        let tried_lately = self.tried.is_some_and(|tried| now.since(tried) <= FORGOTTEN);
        let tries = unknown && !tried_lately && self.flash.count > 0;
        if tries {
            self.tried = Some(now);
        } else {
            self.owed += self.share.min(f64::from(most));
        }
        let goes = tries || self.owed >= 100.0;
        if goes && !tries {
            self.owed -= 100.0;
        }
        self.unanswered += u32::from(goes);
        goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = Nanos::MILLISECOND.0;

    /// So many clean hits, of which each takes so long at flash and at the origin when `share` of the last hundred went
    /// there: the share of the last thousand that went.
    fn share_of(most: u8, hits: u64, flash: impl Fn(f64) -> u64, origin: impl Fn(f64) -> u64) -> f64 {
        let mut known = HitsToOrigin::default();
        let (mut now, mut went) = (Nanos(1), std::collections::VecDeque::new());
        known.origin_took(Nanos(origin(0.0)), now);
        for _ in 0..hits {
            now = now.plus(Nanos(MILLISECOND / 10));
            let lately = went.iter().rev().take(100);
            let share = lately.clone().filter(|went| **went).count() as f64 / lately.count().max(1) as f64;
            let goes = known.goes(most, now);
            if goes {
                known.origin_took(Nanos(origin(share)), now);
            } else {
                known.flash_took(Nanos(flash(share)), most, now);
            }
            went.push_back(goes);
            if went.len() > 1000 {
                went.pop_front();
            }
        }
        went.iter().filter(|went| **went).count() as f64 / went.len() as f64
    }

    #[test]
    fn an_origin_that_answers_later_than_flash_gets_nothing() {
        assert_eq!(share_of(50, 5000, |_| MILLISECOND, |_| 5 * MILLISECOND), 0.0);
    }

    #[test]
    fn an_origin_that_answers_sooner_gets_as_much_as_is_allowed_and_no_more() {
        let share = share_of(30, 5000, |_| 5 * MILLISECOND, |_| MILLISECOND);
        assert!((0.27..=0.301).contains(&share), "{share}");
        assert_eq!(share_of(0, 5000, |_| 5 * MILLISECOND, |_| MILLISECOND), 0.0);
    }

    #[test]
    fn the_share_settles_where_both_answer_equally_soon() {
        // Flash gets faster as less goes there, the origin slower as more does: equal at a quarter.
        let flash = |share: f64| (4e6 * (1.0 - share)) as u64;
        let origin = |share: f64| (12e6 * share) as u64;
        let share = share_of(90, 20_000, flash, origin);
        assert!((0.15..0.35).contains(&share), "{share}");
    }

    #[test]
    fn an_origin_that_nobody_has_read_is_tried_once_in_a_while() {
        let mut known = HitsToOrigin::default();
        known.flash_took(Nanos(MILLISECOND), 50, Nanos(1));
        let at = |second: u64| Nanos(second * Nanos::SECOND.0);
        let tries = (0..1000).filter(|index| known.goes(50, Nanos(at(11).0 + index))).count();
        assert_eq!(tries, 1);
        known.origin_took(Nanos(9 * MILLISECOND), at(12));
        assert!(!known.goes(50, at(13)));
        assert!(known.goes(50, at(23)), "long ago");
    }

    #[test]
    fn an_origin_that_failed_is_left_alone_for_a_while() {
        let mut known = HitsToOrigin::default();
        let feed = |known: &mut HitsToOrigin, from: u64| {
            let at = |index: u64| Nanos(from * Nanos::SECOND.0 + index);
            (0..1000).fold(0, |went, index| {
                known.origin_took(Nanos(MILLISECOND), at(index));
                known.flash_took(Nanos(5 * MILLISECOND), 50, at(index));
                went + u32::from(known.goes(50, at(index)))
            })
        };
        assert!(feed(&mut known, 1) > 0);
        known.origin_failed(Nanos(2 * Nanos::SECOND.0));
        assert_eq!(feed(&mut known, 3), 0);
        assert!(feed(&mut known, 13) > 0, "and then it is used again");
    }

    #[test]
    fn few_hits_wait_for_an_origin_that_says_nothing() {
        let mut known = HitsToOrigin::default();
        for index in 0..5000 {
            if index < 500 {
                known.origin_took(Nanos(MILLISECOND), Nanos(index));
            }
            known.flash_took(Nanos(5 * MILLISECOND), 90, Nanos(index));
        }
        let went = (0..1000).filter(|index| known.goes(90, Nanos(5000 + index))).count();
        assert!(went > 0 && went <= UNANSWERED_MAX as usize, "{went}");
    }
}
