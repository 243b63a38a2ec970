//! Until when a look at the claim is good for changes of the origin.
//!
//! Invariants
//! - A change passes only within the interval after the beginning of a look that found the claim standing.
//! - After a doubt, no change passes before a look that began later than the doubt.
//! - A claim that was lost stays lost.
//!
//! ```text
//!             looked(Ours), no doubt meanwhile
//!   Unsure ------------------------------------> Good(when the look began)
//!      ^  <------------------------------------     |
//!      |      doubt(), looked(Unknown)              |
//!      +---- looked(Lost) ----> Lost <--------------+
//! ```

use headpond_base::Nanos;

/// What a look at the claim found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The claim stands.
    Ours,
    /// The claim is lost for good.
    Lost,
    /// The origin does not say.
    Unknown,
}

/// How a change of the origin goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It may begin now.
    Pass,
    /// The claim has to be looked at first.
    Look,
    /// The claim is lost: it may never begin.
    Barred,
}

/// What is known of the claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Nothing that a change may rest on.
    Unsure,
    /// A look that began then found the claim standing.
    Good(Nanos),
    /// The claim is lost.
    Lost,
}

/// A look that is under way.
#[derive(Clone, Copy, Debug)]
struct Look {
    began: Nanos,
    /// A doubt came since: it may be of something that this look does not see.
    doubted: bool,
}

/// Watches over one claim. Times are of a clock that goes on while the machine sleeps.
///
/// Its owner makes one look at a time.
#[derive(Debug)]
pub struct Watch {
    interval: Nanos,
    known: Known,
    look: Option<Look>,
}

impl Watch {
    /// A watch that has not looked yet. A look is good for less than `interval` from its beginning.
    #[must_use]
    pub const fn new(interval: Nanos) -> Self {
        Self { interval, known: Known::Unsure, look: None }
    }

    /// Whether a change of the origin may begin at `now`.
    #[must_use]
    pub fn may_change(&self, now: Nanos) -> Way {
        match self.known {
            Known::Good(seen) if now.since(seen) < self.interval => Way::Pass,
            Known::Good(_) | Known::Unsure => Way::Look,
            Known::Lost => Way::Barred,
        }
    }

    /// A look begins.
    pub fn look_begun(&mut self, now: Nanos) {
        self.look = Some(Look { began: now, doubted: false });
    }

    /// The look that was under way found this. [`Watch::may_change`] says what follows: a look that hung is old by now.
    pub fn looked(&mut self, standing: Standing) {
        let look = self.look.take();
        self.known = match (self.known, standing, look) {
            (Known::Lost, ..) | (_, Standing::Lost, _) => Known::Lost,
            (_, Standing::Ours, Some(Look { began, doubted: false })) => Known::Good(began),
            _ => Known::Unsure,
        };
    }

    /// The origin failed: perhaps because it is no longer ours.
    pub fn doubt(&mut self) {
        if let Some(look) = &mut self.look {
            look.doubted = true;
        }
        if self.known != Known::Lost {
            self.known = Known::Unsure;
        }
    }

    /// Whether the claim is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.known == Known::Lost
    }

    /// For how long the look that is under way, if any, has had no answer.
    #[must_use]
    pub fn silent_for(&self, now: Nanos) -> Option<Nanos> {
        self.look.map(|look| now.since(look.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Nanos = Nanos(5);

    /// A watch whose look began at `began` and found the claim standing.
    fn good(began: u64) -> Watch {
        let mut watch = Watch::new(INTERVAL);
        watch.look_begun(Nanos(began));
        watch.looked(Standing::Ours);
        watch
    }

    #[test]
    fn a_look_is_good_for_an_interval_from_its_beginning() {
        assert_eq!(Watch::new(INTERVAL).may_change(Nanos(0)), Way::Look);
        let watch = good(100);
        assert_eq!(watch.may_change(Nanos(104)), Way::Pass);
        assert_eq!(watch.may_change(Nanos(105)), Way::Look, "also for a process that was stopped meanwhile");
    }

    #[test]
    fn a_doubt_counts_against_the_look_that_is_under_way() {
        let mut watch = Watch::new(INTERVAL);
        watch.look_begun(Nanos(100));
        watch.doubt();
        watch.looked(Standing::Ours);
        assert_eq!(watch.may_change(Nanos(100)), Way::Look);
        watch.look_begun(Nanos(101));
        watch.looked(Standing::Ours);
        assert_eq!(watch.may_change(Nanos(101)), Way::Pass);
    }

    #[test]
    fn who_does_not_know_does_not_write() {
        let mut watch = good(100);
        watch.doubt();
        watch.look_begun(Nanos(101));
        assert_eq!(watch.silent_for(Nanos(103)), Some(Nanos(2)));
        watch.looked(Standing::Unknown);
        assert_eq!((watch.may_change(Nanos(103)), watch.silent_for(Nanos(103))), (Way::Look, None));
    }

    #[test]
    fn what_is_lost_stays_lost() {
        let mut watch = good(100);
        watch.look_begun(Nanos(105));
        watch.looked(Standing::Lost);
        watch.doubt();
        watch.look_begun(Nanos(106));
        watch.looked(Standing::Ours);
        assert_eq!((watch.may_change(Nanos(106)), watch.is_lost()), (Way::Barred, true));
    }

    /// What may happen to a watch, one unit of time after the other.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        LookBegins,
        LookEnds(Standing),
        Doubt,
        /// The process is stopped, or nothing happens.
        TimePasses,
    }

    const EVENTS: [Event; 6] = [
        Event::LookBegins,
        Event::LookEnds(Standing::Ours),
        Event::LookEnds(Standing::Lost),
        Event::LookEnds(Standing::Unknown),
        Event::Doubt,
        Event::TimePasses,
    ];

    /// Whether a change may pass at the end of `story`, from the whole of it: event `n` happens at time `n`. `None` if a
    /// look ends that never began, or one begins before the last has ended.
    fn may_pass(story: &[Event], interval: u64) -> Option<bool> {
        let (mut began, mut good, mut doubt, mut lost) = (None, None, None, false);
        for (now, event) in (0_u64..).zip(story) {
            match event {
                Event::LookBegins if began.is_some() => return None,
                Event::LookBegins => began = Some(now),
                Event::LookEnds(standing) => {
                    let began = began.take()?;
                    match standing {
                        Standing::Ours => good = Some(began),
                        Standing::Lost => lost = true,
                        // From here on the earlier look says nothing, as after a doubt.
                        Standing::Unknown => doubt = Some(now),
                    }
                }
                Event::Doubt => doubt = Some(now),
                Event::TimePasses => {}
            }
        }
        let now = story.len() as u64;
        Some(!lost && good.is_some_and(|good| now - good < interval && doubt.is_none_or(|doubt| doubt < good)))
    }

    #[test]
    fn in_each_story_of_seven_events_a_change_passes_where_the_claim_is_known_to_stand_and_only_there() {
        let interval = 4;
        let (mut told, mut passed) = (0, 0);
        for number in 0..EVENTS.len().pow(7) {
            let story: Vec<Event> =
                (0..7).map(|place| EVENTS[number / EVENTS.len().pow(place) % EVENTS.len()]).collect();
            let Some(expected) = may_pass(&story, interval) else { continue };
            let mut watch = Watch::new(Nanos(interval));
            for (now, event) in (0..).zip(&story) {
                match event {
                    Event::LookBegins => watch.look_begun(Nanos(now)),
                    Event::LookEnds(standing) => watch.looked(*standing),
                    Event::Doubt => watch.doubt(),
                    Event::TimePasses => {}
                }
            }
            let way = watch.may_change(Nanos(story.len() as u64));
            assert_eq!(way == Way::Pass, expected, "{story:?}: {way:?}");
            told += 1;
            passed += u32::from(expected);
        }
        assert!(told > 1000 && passed > 100, "{told} stories, {passed} in which a change passed");
    }
}
