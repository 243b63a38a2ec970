//! How long members take for a sync, and for what they write.
//!
//! A write is timed only where much was queued before it at the same member. It then took as long as all of that, so its
//! time tells what the device can do, however little the device is given of the rest: one that looks slow would otherwise
//! get less, have less at once, and look slower still.
//!
//! Times are fading means.

use headpond_base::{MemberId, Nanos};
use headpond_log::MemberSpeed;

use crate::effect::{Effect, Ticket};

/// An older sync or write counts less in the mean: by this share for each later one.
const REMEMBERED: u64 = 16;

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

/// How long a member took lately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemberTime {
    pub(crate) member: MemberId,
    pub(crate) sync: Mean,
    /// For a MiB, while it has much to write.
    per_mebibyte: Mean,
    /// Bytes that it has to write.
    queued: u64,
}

impl MemberTime {
    pub(crate) const fn of_syncs(member: MemberId, sync: Mean) -> Self {
        Self { member, sync, per_mebibyte: Mean { mean: Nanos(0), count: 0 }, queued: 0 }
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
        let time = self.of(member);
        match write {
            None => time.sync.add(took),
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
/// known counts as the fastest.
pub(crate) fn speeds(times: &[MemberTime]) -> Vec<MemberSpeed> {
    let least = |of: fn(&MemberTime) -> Mean| times.iter().filter_map(|time| of(time).known()).min();
    let (sync, per_mebibyte) = (|time: &MemberTime| time.sync, |time: &MemberTime| time.per_mebibyte);
    let fastest_sync = least(sync).unwrap_or(0);
    let fastest_write = least(per_mebibyte).unwrap_or(PER_MEBIBYTE.0);
    let in_times = |mean: Mean, fastest: u64| {
        let times = mean.known().map_or(1, |nanos| nanos.checked_div(fastest).unwrap_or(1));
        Nanos(times * fastest)
    };
    let speed = |time: &MemberTime| MemberSpeed {
        member: time.member,
        per_mebibyte: in_times(time.per_mebibyte, fastest_write),
        sync: in_times(time.sync, fastest_sync),
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
        MemberTime { per_mebibyte, ..MemberTime::of_syncs(MemberId(member), sync) }
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
