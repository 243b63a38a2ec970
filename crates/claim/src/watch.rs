//! How long a look at the claim allows changes of the origin.
//!
//! Invariants
//! - A change passes only within the interval after the start of a look that found the claim standing.
//! - After a doubt, no change passes before a look that began later than the doubt.
//! - A lost claim stays lost.
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
    /// The origin does not answer.
    Unknown,
}

/// Whether a change of the origin may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It may begin now.
    Pass,
    /// Look at the claim first.
    Look,
    /// The claim is lost: the change may never begin.
    Barred,
}

/// What is known of the claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Nothing that allows a change.
    Unsure,
    /// A look that began at this time found the claim standing.
    Good(Nanos),
    /// The claim is lost.
    Lost,
}

/// A look under way.
#[derive(Clone, Copy, Debug)]
struct Look {
    began: Nanos,
    /// A doubt came since: its cause may be something that this look does not see.
    doubted: bool,
}

/// Watches over one claim. Times come from a clock that also counts while the machine sleeps.
///
/// The owner makes one look at a time.
#[derive(Debug)]
pub struct Watch {
    interval: Nanos,
    known: Known,
    look: Option<Look>,
}

impl Watch {
    /// A watch before its first look. A look allows changes for less than `interval` from its start.
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

    /// Notes that a look begins.
    pub fn look_begun(&mut self, now: Nanos) {
        self.look = Some(Look { began: now, doubted: false });
    }

    /// Notes what the look under way found. Ask [`Watch::may_change`] afterwards: a look that hung may be too old.
    pub fn looked(&mut self, standing: Standing) {
        let look = self.look.take();
        self.known = match (self.known, standing, look) {
            (Known::Lost, ..) | (_, Standing::Lost, _) => Known::Lost,
            (_, Standing::Ours, Some(Look { began, doubted: false })) => Known::Good(began),
            _ => Known::Unsure,
        };
    }

    /// Notes that the origin failed: it may no longer be ours.
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

    /// How long the look under way has had no answer; `None` if there is none.
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

    /// An event of a watch. Each takes one unit of time.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        LookBegins,
        LookEnds(Standing),
        Doubt,
        /// Nothing happens, or the process is stopped.
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

    /// Whether a change may pass at the end of `story`, judged from all of it: event `n` happens at time `n`. `None`
    /// if a look ends that never began, or a look begins before the last has ended.
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
                        // From now on the earlier look says nothing, as after a doubt.
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
