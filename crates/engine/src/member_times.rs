//! How long members take for a sync, and for what they write.
//!
//! A write is timed only where much was queued before it at the same member. It then took as long as all of that, so its
//! time tells what the device can do, however little the device is given of the rest: one that looks slow would otherwise
//! get less, have less at once, and look slower still.
//!
//! Likewise of syncs the shortest of the last ones is what a device can do: the others took longer for what this pool gave
//! it meanwhile. By their mean the device that had least to do would look fastest, get all of the next batches, and be the
//! slowest then.
//!
//! All other times are fading means.

use headpond_base::{MemberId, Nanos};
use headpond_log::MemberSpeed;

use crate::effect::{Effect, Ticket};

/// An older sync or write counts less in the mean: by this share for each later one.
const REMEMBERED: u64 = 16;

/// After so many syncs of other members without one of its own, a member's is taken for as fast as theirs: it gets a batch,
/// and its sync is timed. One that was slow for a while would else never be found fast again. The price of one that is
/// slow for good: one slow sync in so many.
const RESTED: u32 = 512;

/// With so many bytes queued a device has as much to do at once as it can.
const MUCH_QUEUED: u64 = 1 << 20;

/// What a member of unknown speed is taken for, if none is known: 1 GiB/s.
const PER_MEBIBYTE: Nanos = Nanos(Nanos::SECOND.0 / 1024);

/// A fading mean.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Mean {
    pub(crate) mean: Nanos,
    /// How many were timed.
    pub(crate) count: u32,
}

impl Mean {
    /// So many are timed before a member is judged: one may be slow by chance.
    pub(crate) const LEAST: u32 = 16;

    fn add(&mut self, took: Nanos) {
        if self.count == 0 {
            self.mean = took;
        } else {
            self.mean.0 = self.mean.0 - self.mean.0 / REMEMBERED + took.0 / REMEMBERED;
        }
        self.count = self.count.saturating_add(1);
    }

    pub(crate) const fn is_known(&self) -> bool {
        self.count >= Self::LEAST
    }

    fn known(&self) -> Option<u64> {
        self.is_known().then_some(self.mean.0)
    }
}

/// The shortest of the last ones: of 64 to 128.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Shortest {
    now: Option<Nanos>,
    before: Option<Nanos>,
    /// How many `now` is of.
    count: u32,
}

impl Shortest {
    const OF: u32 = 64;

    fn add(&mut self, took: Nanos) {
        if self.count == Self::OF {
            *self = Self { now: None, before: self.now, count: 0 };
        }
        self.now = Some(self.now.map_or(took, |now| now.min(took)));
        self.count += 1;
    }

    fn get(&self) -> Option<Nanos> {
        self.now.into_iter().chain(self.before).min()
    }
}

/// How long a member took lately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemberTime {
    pub(crate) member: MemberId,
    pub(crate) sync: Mean,
    shortest_sync: Shortest,
    /// For a MiB, while it has much to write.
    per_mebibyte: Mean,
    /// Bytes that it has to write.
    queued: u64,
    /// Syncs of others since its last one.
    rested: u32,
}

impl MemberTime {
    pub(crate) const fn of_syncs(member: MemberId, sync: Mean) -> Self {
        let shortest_sync = Shortest { now: None, before: None, count: 0 };
        Self { member, sync, shortest_sync, per_mebibyte: Mean { mean: Nanos(0), count: 0 }, queued: 0, rested: 0 }
    }
}

/// What is timed.
#[derive(Clone, Copy)]
struct UnderWay {
    ticket: Ticket,
    member: MemberId,
    since: Nanos,
    /// Of a write: its bytes, and all that were queued then, with it.
    write: Option<(u64, u64)>,
}

/// Owned by the outbox.
#[derive(Default)]
pub(crate) struct MemberTimes {
    under_way: Vec<UnderWay>,
    members: Vec<MemberTime>,
    /// One was timed since the last look.
    timed: bool,
}

impl MemberTimes {
    fn of(&mut self, member: MemberId) -> &mut MemberTime {
        let found = self.members.iter().position(|time| time.member == member);
        let at = found.unwrap_or_else(|| {
            self.members.push(MemberTime::of_syncs(member, Mean::default()));
            self.members.len() - 1
        });
        &mut self.members[at]
    }

    /// An effect begins.
    pub(crate) fn begun(&mut self, ticket: Ticket, effect: &Effect, now: Nanos) {
        let (member, write) = match effect {
            Effect::FlashSync { member, .. } => (*member, None),
            Effect::FlashWrite { at, data, .. } => {
                let bytes = data.len() as u64;
                let time = self.of(at.member);
                time.queued += bytes;
                (at.member, Some((bytes, time.queued)))
            }
            _ => return,
        };
        self.under_way.push(UnderWay { ticket, member, since: now, write });
    }

    /// An effect has ended.
    pub(crate) fn ended(&mut self, ticket: Ticket, now: Nanos) {
        let Some(at) = self.under_way.iter().position(|other| other.ticket == ticket) else { return };
        let UnderWay { member, since, write, .. } = self.under_way.swap_remove(at);
        let took = now.since(since);
        if write.is_none() {
            self.members.iter_mut().for_each(|other| other.rested = other.rested.saturating_add(1));
        }
        let time = self.of(member);
        match write {
            None => {
                time.rested = 0;
                time.sync.add(took);
                time.shortest_sync.add(took);
            }
            Some((bytes, queued)) => {
                // Less than it has, if another device has its number by now.
                time.queued = time.queued.saturating_sub(bytes);
                if queued < MUCH_QUEUED {
                    return;
                }
                time.per_mebibyte.add(Nanos(took.0.saturating_mul(1 << 20) / queued));
            }
        }
        self.timed = true;
    }

    /// What is known of each member.
    pub(crate) fn all(&self) -> &[MemberTime] {
        &self.members
    }

    /// Another device has the number of a member from now on.
    pub(crate) fn forget(&mut self, member: MemberId) {
        self.members.retain(|time| time.member != member);
    }

    /// Whether something was timed since the last call.
    pub(crate) const fn take_timed(&mut self) -> bool {
        std::mem::replace(&mut self.timed, false)
    }
}

/// The speeds of these members, in whole times of the fastest: devices that are nearly alike take turns. One that is hardly
/// known, or was not synced for long, counts as the fastest.
pub(crate) fn speeds(times: &[MemberTime]) -> Vec<MemberSpeed> {
    let shortest = |time: &MemberTime| time.shortest_sync.get().filter(|_| time.sync.is_known()).map(|sync| sync.0);
    let fastest_sync = times.iter().filter_map(shortest).min().unwrap_or(0);
    let fastest_write = times.iter().filter_map(|time| time.per_mebibyte.known()).min().unwrap_or(PER_MEBIBYTE.0);
    let in_times = |known: Option<u64>, fastest: u64| {
        let times = known.map_or(1, |nanos| nanos.checked_div(fastest).unwrap_or(1));
        Nanos(times * fastest)
    };
    let speed = |time: &MemberTime| MemberSpeed {
        member: time.member,
        per_mebibyte: in_times(time.per_mebibyte.known(), fastest_write),
        sync: in_times(shortest(time).filter(|_| time.rested < RESTED), fastest_sync),
    };
    times.iter().map(speed).collect()
}

#[cfg(test)]
mod tests {
    use headpond_base::BufMut;
    use headpond_format::Address;

    use super::*;

    const MIB: u64 = 1 << 20;
    const LEAST: u32 = Mean::LEAST;

    fn mean(micros: u64, count: u32) -> Mean {
        Mean { mean: Nanos(micros * 1000), count }
    }

    fn time(member: u16, sync: Mean, per_mebibyte: Mean) -> MemberTime {
        let shortest_sync = Shortest { now: Some(sync.mean), before: None, count: 1 };
        MemberTime { per_mebibyte, shortest_sync, ..MemberTime::of_syncs(MemberId(member), sync) }
    }

    #[test]
    fn the_shortest_is_forgotten_after_two_windows() {
        let mut shortest = Shortest::default();
        shortest.add(Nanos(5));
        (0..2 * Shortest::OF - 1).for_each(|_| shortest.add(Nanos(9)));
        assert_eq!(shortest.get(), Some(Nanos(5)));
        shortest.add(Nanos(9));
        assert_eq!(shortest.get(), Some(Nanos(9)));
    }

    /// Two devices that are alike, each the slower the more of three batches it gets at once.
    #[test]
    fn the_device_that_had_less_to_do_does_not_look_faster() {
        let mut times = MemberTimes::default();
        let (mut ticket, mut clock) = (0, 0);
        let mut alike = 0;
        for _ in 0..10 * LEAST {
            let found = speeds(times.all());
            let (first, second) = match &found[..] {
                [a, b] if a.sync < b.sync => (3, 0),
                [a, b] if a.sync > b.sync => (0, 3),
                _ => {
                    alike += 1;
                    if alike % 3 == 0 { (1, 2) } else { (2, 1) }
                }
            };
            for (member, batches) in [(0, first), (1, second)].into_iter().filter(|(_, batches)| *batches > 0) {
                ticket += 1;
                times.begun(
                    Ticket(ticket),
                    &Effect::FlashSync { ticket: Ticket(ticket), member: MemberId(member) },
                    Nanos(clock),
                );
                clock += 1000 * batches * batches;
                times.ended(Ticket(ticket), Nanos(clock));
            }
        }
        assert_eq!(alike, 10 * LEAST);
    }

    /// Each member writes one MiB after the other, so many at once, at its own rate. What a MiB is found to take.
    fn found(micros: u64, at_once: u64) -> MemberTime {
        let mut times = MemberTimes::default();
        let write = |index: u64| Effect::FlashWrite {
            ticket: Ticket(index),
            at: Address { member: MemberId(0), offset: 0 },
            data: BufMut::zeroed(MIB as usize).freeze(),
        };
        let ends = |index: u64| Nanos((index + 1) * micros * 1000);
        (0..at_once).for_each(|index| times.begun(Ticket(index), &write(index), Nanos(0)));
        for index in 0..40 {
            times.ended(Ticket(index), ends(index));
            times.begun(Ticket(index + at_once), &write(index + at_once), ends(index));
        }
        times.all()[0]
    }

    #[test]
    fn a_device_is_found_as_fast_as_it_is_however_much_it_has_at_once() {
        for at_once in [1, 2, 7] {
            let found = found(2000, at_once).per_mebibyte;
            assert!(found.is_known() && found.mean.0.abs_diff(2_000_000) < 1000, "{found:?} with {at_once} at once");
        }
    }

    #[test]
    fn a_small_write_says_nothing_of_how_fast_a_device_can_be() {
        let mut times = MemberTimes::default();
        let at = Address { member: MemberId(0), offset: 0 };
        let write = Effect::FlashWrite { ticket: Ticket(0), at, data: BufMut::zeroed(4096).freeze() };
        times.begun(Ticket(0), &write, Nanos(0));
        times.ended(Ticket(0), Nanos(Nanos::SECOND.0));
        assert!(!times.take_timed() && times.all()[0].per_mebibyte == Mean::default());
        assert_eq!(times.all()[0].queued, 0);
    }

    /// A device was slow while its checkpoint was written, and is as fast as the other ever since. Batches go where a sync
    /// is shortest; of equals they take turns.
    #[test]
    fn one_that_was_slow_for_a_while_is_found_fast_again_and_one_that_is_slow_is_hardly_asked() {
        let share_of_second = |now: u64| {
            let mut times = MemberTimes::default();
            let (mut ticket, mut clock) = (0, 0);
            let mut sync = |times: &mut MemberTimes, member: u16, micros: u64| {
                ticket += 1;
                let effect = Effect::FlashSync { ticket: Ticket(ticket), member: MemberId(member) };
                times.begun(Ticket(ticket), &effect, Nanos(clock));
                clock += micros * 1000;
                times.ended(Ticket(ticket), Nanos(clock));
            };
            for _ in 0..LEAST {
                sync(&mut times, 0, 100);
                sync(&mut times, 1, 600);
            }
            let mut of_second = 0;
            for turn in 0..40_000_u32 {
                let found = speeds(times.all());
                let second = found[1].sync < found[0].sync || found[1].sync == found[0].sync && turn % 2 == 1;
                of_second += u32::from(second);
                sync(&mut times, u16::from(second), if second { now } else { 100 });
            }
            f64::from(of_second) / 40_000.0
        };
        assert!(share_of_second(100) > 0.3, "{}", share_of_second(100));
        assert!(share_of_second(600) < 0.01, "{}", share_of_second(600));
    }

    #[test]
    fn speeds_are_whole_times_of_the_fastest_and_unknown_ones_count_as_that() {
        let times = [
            time(0, mean(400, LEAST), mean(2000, LEAST)),
            time(1, mean(700, LEAST), mean(9000, LEAST)),
            time(2, mean(1300, LEAST), mean(9000, LEAST - 1)),
        ];
        let found: Vec<_> = speeds(&times).iter().map(|speed| (speed.per_mebibyte.0, speed.sync.0)).collect();
        assert_eq!(found, [(2_000_000, 400_000), (8_000_000, 400_000), (2_000_000, 1_200_000)]);
        let unknown = speeds(&[time(0, Mean::default(), Mean::default())]);
        assert_eq!((unknown[0].per_mebibyte, unknown[0].sync), (PER_MEBIBYTE, Nanos(0)));
    }
}
