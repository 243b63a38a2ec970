//! What the engine has asked for: effects that nobody has taken yet, those that are under way, and what the origin
//! charges.
//!
//! Invariants
//! - Effects are taken in the order in which they were asked for, but for answers that have to wait.
//! - Each ticket is given once, and finished once.
//! - A read out of a row is one of each of its places until the last part has come. Who asks whether one place is being
//!   read asks for the row: with the row the others are given back, too.
//! - All that goes to the origin is timed, so that its costs are those of all of it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use headpond_base::{Buf, Errno, MemberId, Nanos, ObjectId};
use headpond_format::{Address, combined};
use headpond_log::ReadFrom;

use crate::effect::{Effect, Outcome, Ticket};
use crate::member_times::MemberTimes;
use crate::origin_cost::OriginCosts;
use crate::purpose::Purpose;
use crate::request::Reply;
use crate::spread::Spread;
use crate::stats::Stats;

/// What an answer says.
pub(crate) struct Answered {
    /// The member that has refused a write or a sync.
    pub(crate) refused: Option<(MemberId, Errno)>,
    /// What the effect was for, and how that ended. `None`: others that serve the same are still under way.
    pub(crate) ended: Option<(Purpose, Outcome)>,
}

/// What of flash an effect has to do with.
#[derive(Clone, Copy, Default)]
struct Touched {
    /// The member that it writes to, or makes durable.
    changed: Option<MemberId>,
    /// Where it reads.
    read: Option<Address>,
}

impl Touched {
    const fn by(effect: &Effect) -> Self {
        match effect {
            Effect::FlashWrite { at, .. } => Self { changed: Some(at.member), read: None },
            Effect::FlashSync { member, .. } => Self { changed: Some(*member), read: None },
            Effect::FlashRead { at, .. } => Self { changed: None, read: Some(*at) },
            _ => Self { changed: None, read: None },
        }
    }
}

/// A purpose that one effect on each of several members serves. It ends with the last of them, and fails with any.
struct Joint {
    purpose: Purpose,
    /// Where they read: those that came, too.
    reads: Vec<Address>,
    /// What they read, to be combined.
    read: Vec<Buf>,
    left: Vec<(Ticket, Touched)>,
    failed: Option<Errno>,
}

/// Owned by the engine.
#[derive(Default)]
pub(crate) struct Outbox {
    effects: Vec<Effect>,
    under_way: HashMap<Ticket, (Purpose, Touched), BuildHasherDefault<Spread>>,
    /// Empty in a pool of one member.
    joint: Vec<Joint>,
    member_times: MemberTimes,
    next: u64,
    /// What was asked of flash and origin; nothing else is counted here.
    asked: Stats,
    origin_costs: OriginCosts,
    now: Nanos,
}

impl Outbox {
    /// Tells the time.
    pub(crate) const fn advance(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Asks for an effect that is answered, and says for what.
    pub(crate) fn start(&mut self, purpose: Purpose, effect: impl FnOnce(Ticket) -> Effect) {
        let (ticket, touched) = self.ask(purpose.is_foreground(), effect);
        self.under_way.insert(ticket, (purpose, touched));
    }

    fn ask(&mut self, foreground: bool, effect: impl FnOnce(Ticket) -> Effect) -> (Ticket, Touched) {
        let ticket = Ticket(self.next);
        self.next += 1;
        let effect = effect(ticket);
        count(&mut self.asked, &effect);
        self.origin_costs.started(ticket, &effect, foreground, self.now);
        let touched = Touched::by(&effect);
        self.member_times.begun(ticket, &effect, self.now);
        self.effects.push(effect);
        (ticket, touched)
    }

    /// Asks for all that was written to these members to become durable: one answer for all of them.
    pub(crate) fn sync_flash(&mut self, purpose: Purpose, members: &[MemberId]) {
        if let [member] = *members {
            return self.start(purpose, |ticket| Effect::FlashSync { ticket, member });
        }
        let sync = |member: &MemberId| self.ask(false, |ticket| Effect::FlashSync { ticket, member: *member });
        let left = members.iter().map(sync).collect();
        self.joint.push(Joint { purpose, reads: Vec::new(), read: Vec::new(), left, failed: None });
    }

    /// Asks for bytes of flash. Out of a row they come combined.
    pub(crate) fn read_flash(&mut self, purpose: Purpose, from: &ReadFrom, len: u32) {
        match from {
            ReadFrom::Place(at) => {
                let at = *at;
                self.start(purpose, |ticket| Effect::FlashRead { ticket, at, len });
            }
            ReadFrom::Row(places) => {
                let foreground = purpose.is_foreground();
                self.asked.row_reads += 1;
                let read = |at: &Address| self.ask(foreground, |ticket| Effect::FlashRead { ticket, at: *at, len });
                let left = places.iter().map(read).collect();
                self.joint.push(Joint { purpose, reads: places.clone(), read: Vec::new(), left, failed: None });
            }
        }
    }

    /// Asks for bytes to be written to flash.
    pub(crate) fn write_flash(&mut self, purpose: Purpose, at: Address, data: Buf) {
        self.start(purpose, |ticket| Effect::FlashWrite { ticket, at, data });
    }

    /// Asks for an effect that nobody answers.
    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// An effect was answered.
    ///
    /// # Panics
    /// When no such effect is under way.
    pub(crate) fn finish(&mut self, ticket: Ticket, outcome: Outcome) -> Answered {
        self.origin_costs.done(ticket, !matches!(outcome, Outcome::Failed(_)), self.now);
        let errno = if let Outcome::Failed(errno) = outcome { Some(errno) } else { None };
        if let Some((purpose, touched)) = self.under_way.remove(&ticket) {
            self.note_time(ticket, touched);
            return Answered { refused: touched.changed.zip(errno), ended: Some((purpose, outcome)) };
        }
        let part_of = |joint: &Joint| joint.left.iter().position(|(other, _)| *other == ticket);
        let found = self.joint.iter().enumerate().find_map(|(place, joint)| Some((place, part_of(joint)?)));
        let (place, part) = found.expect("an effect is completed once");
        let joint = &mut self.joint[place];
        let (_, touched) = joint.left.swap_remove(part);
        self.note_time(ticket, touched);
        let joint = &mut self.joint[place];
        let refused = touched.changed.zip(errno);
        joint.failed = joint.failed.or(errno);
        if let Outcome::Bytes(bytes) = outcome {
            joint.read.push(bytes);
        }
        if !joint.left.is_empty() {
            return Answered { refused, ended: None };
        }
        let Joint { purpose, read, failed, .. } = self.joint.swap_remove(place);
        let whole = || match read.first().map(|bytes| bytes.len()) {
            None => Outcome::Done,
            Some(len) if read.iter().all(|bytes| bytes.len() == len) => {
                Outcome::Bytes(combined(read.iter().map(|bytes| &bytes[..]), len))
            }
            Some(_) => Outcome::Failed(Errno::IO),
        };
        Answered { refused, ended: Some((purpose, failed.map_or_else(whole, Outcome::Failed))) }
    }

    /// Reads are not timed, and look for nothing.
    fn note_time(&mut self, ticket: Ticket, touched: Touched) {
        if touched.changed.is_some() {
            self.member_times.ended(ticket, self.now);
        }
    }

    /// How long members took lately.
    pub(crate) const fn member_times(&self) -> &MemberTimes {
        &self.member_times
    }

    /// The same, to be changed.
    pub(crate) const fn member_times_mut(&mut self) -> &mut MemberTimes {
        &mut self.member_times
    }

    /// What the origin charges.
    pub(crate) const fn origin_costs(&self) -> &OriginCosts {
        &self.origin_costs
    }

    /// Whether a write to a member, or a sync of it, is under way.
    pub(crate) fn is_changing(&self, member: MemberId) -> bool {
        let alone = self.under_way.values().map(|(_, touched)| touched);
        let joint = self.joint.iter().flat_map(|joint| joint.left.iter().map(|(_, touched)| touched));
        alone.chain(joint).any(|touched| touched.changed == Some(member))
    }

    /// Whether a read of the `bytes` from there on is under way, or came as a part of one that is.
    pub(crate) fn is_reading(&self, from: Address, bytes: u64) -> bool {
        let within = |at: &Address| at.member == from.member && (from.offset..from.offset + bytes).contains(&at.offset);
        let alone = self.under_way.values().filter_map(|(_, touched)| touched.read.as_ref());
        alone.chain(self.joint.iter().flat_map(|joint| &joint.reads)).any(within)
    }

    /// Appends what was asked for since the last call.
    pub(crate) fn take(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    /// The same without answers, which stay. With the answer to an open stays what is to be done with its file: who
    /// does it learns from the answer which file that is.
    pub(crate) fn take_but_answers(&mut self, out: &mut Vec<Effect>) {
        let opened = |effect: &Effect| match effect {
            Effect::Reply { reply: Reply::Opened { object, .. }, .. } => Some(*object),
            _ => None,
        };
        let opened: Vec<ObjectId> = self.effects.iter().filter_map(opened).collect();
        let stays = |effect: &Effect| {
            matches!(effect, Effect::Reply { .. }) || effect.file().is_some_and(|file| opened.contains(&file))
        };
        out.extend(self.effects.extract_if(.., |effect| !stays(effect)));
    }

    /// These numbers, and what was asked of flash and origin.
    pub(crate) const fn add_to(&self, others: Stats) -> Stats {
        let asked = &self.asked;
        Stats {
            row_reads: asked.row_reads,
            flash_reads: asked.flash_reads,
            flash_read_bytes: asked.flash_read_bytes,
            flash_writes: asked.flash_writes,
            flash_write_bytes: asked.flash_write_bytes,
            flash_syncs: asked.flash_syncs,
            origin_reads: asked.origin_reads,
            origin_read_bytes: asked.origin_read_bytes,
            origin_writes: asked.origin_writes,
            origin_write_bytes: asked.origin_write_bytes,
            origin_syncs: asked.origin_syncs,
            ..others
        }
    }
}

fn count(asked: &mut Stats, effect: &Effect) {
    match effect {
        Effect::FlashRead { len, .. } => {
            asked.flash_reads += 1;
            asked.flash_read_bytes += u64::from(*len);
        }
        Effect::FlashWrite { data, .. } => {
            asked.flash_writes += 1;
            asked.flash_write_bytes += data.len() as u64;
        }
        Effect::FlashSync { .. } => asked.flash_syncs += 1,
        Effect::OriginRead { len, .. } => {
            asked.origin_reads += 1;
            asked.origin_read_bytes += u64::from(*len);
        }
        Effect::OriginWrite { data, .. } => {
            asked.origin_writes += 1;
            asked.origin_write_bytes += data.iter().map(|piece| piece.len() as u64).sum::<u64>();
        }
        Effect::OriginSync { .. } => asked.origin_syncs += 1,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use headpond_log::CommitSide;

    use super::*;

    fn asked_of(outbox: &mut Outbox) -> Vec<(Ticket, MemberId)> {
        let mut effects = Vec::new();
        outbox.take(&mut effects);
        let sync = |effect| match effect {
            Effect::FlashSync { ticket, member } => (ticket, member),
            other => panic!("{other:?}"),
        };
        effects.into_iter().map(sync).collect()
    }

    #[test]
    fn a_sync_of_several_members_ends_with_the_last_and_fails_with_any() {
        for failing in [None, Some(0), Some(1)] {
            let mut outbox = Outbox::default();
            outbox.sync_flash(Purpose::LogSync(CommitSide::Here), &[MemberId(0), MemberId(2)]);
            let asked = asked_of(&mut outbox);
            assert_eq!(asked.iter().map(|(_, member)| *member).collect::<Vec<_>>(), [MemberId(0), MemberId(2)]);
            let outcome = |index| if failing == Some(index) { Outcome::Failed(Errno::IO) } else { Outcome::Done };
            let first = outbox.finish(asked[1].0, outcome(1));
            assert!(first.ended.is_none(), "the other is still under way");
            let last = outbox.finish(asked[0].0, outcome(0));
            let refused = [last.refused, first.refused].map(|refused| refused.map(|(member, _)| member));
            assert_eq!(refused, [0, 1].map(|index| (failing == Some(index)).then_some(asked[index].1)));
            let (purpose, outcome) = last.ended.unwrap();
            assert!(matches!(purpose, Purpose::LogSync(CommitSide::Here)));
            assert_eq!(matches!(outcome, Outcome::Failed(Errno::IO)), failing.is_some());
        }
    }

    #[test]
    fn a_read_out_of_a_row_is_one_of_each_place_until_the_last_part_has_come() {
        let places = [0, 1, 2].map(|member| Address { member: MemberId(member), offset: 8192 });
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut outbox = Outbox::default();
            outbox.read_flash(Purpose::Settling, &ReadFrom::Row(places.to_vec()), 4096);
            let reads =
                |outbox: &Outbox| places.map(|place| outbox.is_reading(Address { offset: 4096, ..place }, 8192));
            for part in order {
                assert_eq!(reads(&outbox), [true; 3], "part {part} of {order:?} is to come");
                outbox.finish(Ticket(part), Outcome::Failed(Errno::IO));
            }
            assert_eq!(reads(&outbox), [false; 3]);
        }
    }

    #[test]
    fn of_one_member_it_is_one_effect() {
        let mut outbox = Outbox::default();
        outbox.sync_flash(Purpose::Settling, &[MemberId(3)]);
        let [(ticket, member)] = asked_of(&mut outbox)[..] else { panic!("not one") };
        assert_eq!(member, MemberId(3));
        assert!(matches!(outbox.finish(ticket, Outcome::Done).ended, Some((Purpose::Settling, Outcome::Done))));
    }
}
