//! Whether the stamp of an object's file at the origin tells a change by others, now and after a crash.
//!
//! The stamp is the file's size and times as headpond left them. While headpond itself changes the file, it proves
//! nothing. So the log says before each change that one is going on, and afterwards that it is over.
//!
//! ```text
//!                       reserves                       works
//!            +-------> [Reserving] ------------------+
//!            |             | no reservation for a    |
//!            |             | while                   v
//!        [Trusted] <-------+                     [Changing] <------------+
//!            ^  |                works               ^  |                | the log counts again
//!            |  +------------------------------------+  | goes direct    |
//!            |  |                                       v                |
//!            |  +---------------- goes direct -> [ChangedDirectly] ------+
//!            |                                          |
//!            +------- is left: synced and stamped ------+   (from Changing, too)
//! ```
//!
//! Invariants
//! - What is durable of the log is no more trusting than the state here, while the file is changed for the first time.
//! - `ChangedDirectly`: nothing is dirty here, and after a crash the origin's size and time count; but for
//!   `size_counts`, see
//!   [`StampTrust::own_size_counts`].
//! - A file that is left is `Trusted` only if nobody reserves space there, and no reservation failed since the stamp.

use headpond_base::Sequence;
use headpond_format::ObjectFlags;

/// What goes on at the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// Nothing: a file that does not look like the stamp was changed by others.
    #[default]
    Trusted,
    /// Changes ask for space there, or did a moment ago, and that is all.
    Reserving,
    /// Destage, or whatever else headpond does there.
    Changing,
    /// Changes go to the file, and not to the log.
    ChangedDirectly,
}

/// Of one object. Owned by it.
#[derive(Default)]
pub(crate) struct StampTrust {
    state: State,
    /// After a crash the object's own size and time count, and not those of a file that was changed directly.
    own_size_counts: bool,
    /// Changes that are asking for space, or are about to.
    reserving: u32,
    /// A reservation failed, and may have changed the file's time.
    time_adrift: bool,
    /// The first entry of the log that says that the file is changing, if it is not one of an earlier life.
    said_at: Option<Sequence>,
}

impl StampTrust {
    /// As the log said last.
    pub(crate) fn from_flags(flags: ObjectFlags) -> Self {
        let state = match (flags.destaging, flags.direct) {
            (false, _) => State::Trusted,
            (true, false) => State::Changing,
            (true, true) => State::ChangedDirectly,
        };
        Self { state, own_size_counts: flags.size_counts, ..Self::default() }
    }

    /// What the log is to say.
    pub(crate) const fn flags_beside(&self, others: ObjectFlags) -> ObjectFlags {
        ObjectFlags {
            destaging: !self.is_trusted(),
            direct: self.is_changed_directly(),
            size_counts: self.own_size_counts,
            ..others
        }
    }

    /// The log says how things are, from this entry on.
    pub(crate) fn note_said(&mut self, at: Sequence) {
        self.said_at = (!self.is_trusted()).then(|| self.said_at.unwrap_or(at));
    }

    /// The entry that must be durable before the file is changed, unless an earlier life had said so.
    pub(crate) const fn said_at(&self) -> Option<Sequence> {
        self.said_at
    }

    /// Whether a file that does not look like the stamp was changed by others.
    pub(crate) const fn is_trusted(&self) -> bool {
        matches!(self.state, State::Trusted)
    }

    /// Whether changes go to the file, and not to the log.
    pub(crate) const fn is_changed_directly(&self) -> bool {
        matches!(self.state, State::ChangedDirectly)
    }

    /// Whether the object's size counts after a crash, though the file was changed directly.
    pub(crate) const fn own_size_counts(&self) -> bool {
        self.own_size_counts
    }

    /// Whether some change asks for space, or is about to.
    pub(crate) const fn is_reserving(&self) -> bool {
        self.reserving > 0
    }

    /// A change is about to ask for space; whether the log has to say so first.
    pub(crate) const fn begins_reserving(&mut self) -> bool {
        self.reserving += 1;
        let says = self.is_trusted();
        if says {
            self.state = State::Reserving;
        }
        says
    }

    /// A change asks for none any more; whether the log is to be told so in a while.
    pub(crate) const fn ends_reserving(&mut self) -> bool {
        self.reserving -= 1;
        self.reserving == 0 && matches!(self.state, State::Reserving)
    }

    /// Nobody has asked for space for a while; whether the log may say so.
    pub(crate) const fn settle_reservations(&mut self) -> bool {
        if self.reserving > 0 || !matches!(self.state, State::Reserving) {
            return false;
        }
        self.state = if self.time_adrift { State::Changing } else { State::Trusted };
        self.is_trusted()
    }

    /// A reservation failed. Nobody may have put the file's time back: it is known again once it gets a stamp.
    pub(crate) const fn loses_time(&mut self) {
        self.time_adrift = true;
    }

    /// The file gets a stamp.
    pub(crate) const fn gets_stamp(&mut self) {
        self.time_adrift = false;
    }

    /// headpond is about to change the file; whether the log has to say so first.
    pub(crate) const fn begin_change(&mut self) -> bool {
        let says = self.is_trusted();
        if !self.is_changed_directly() {
            self.state = State::Changing;
        }
        says
    }

    /// A change goes to the file and not to the log; whether the log has to say so first. The object's own size counts
    /// on only where the file's is not known.
    pub(crate) const fn goes_direct(&mut self, size_is_known: bool) -> bool {
        let says = !self.is_changed_directly() || self.own_size_counts;
        self.state = State::ChangedDirectly;
        self.own_size_counts = self.own_size_counts && !size_is_known;
        says
    }

    /// A change at the origin failed, and may have left another size there: after a crash the object's own counts.
    pub(crate) const fn makes_own_size_count(&mut self) {
        self.own_size_counts = true;
    }

    /// A change goes to the log; whether others had gone to the file before, so that the log has to say which size
    /// counts.
    pub(crate) const fn log_counts_again(&mut self) -> bool {
        let went_direct = self.is_changed_directly();
        if went_direct {
            self.state = State::Changing;
        }
        went_direct
    }

    /// Destage is through with the file: it is synced, and has its stamp. Others may be asking for space there. Gives
    /// whether its time is adrift nevertheless, so that it needs another.
    pub(crate) const fn leave(&mut self) -> bool {
        self.state = match (self.reserving, self.time_adrift) {
            (0, false) => State::Trusted,
            (0, true) => State::Changing,
            _ => State::Reserving,
        };
        self.own_size_counts = false;
        self.time_adrift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_trusted_once_all_that_headpond_did_there_is_over() {
        let mut trust = StampTrust::default();
        assert!(trust.begins_reserving() && !trust.begins_reserving(), "said once");
        assert!(!trust.ends_reserving() && trust.ends_reserving());
        assert!(trust.settle_reservations() && trust.is_trusted());

        assert!(trust.begins_reserving() && !trust.begin_change());
        assert!(!trust.ends_reserving(), "destage works there by now");
        assert!(!trust.settle_reservations() && !trust.is_trusted());
        assert!(!trust.begins_reserving() && !trust.leave());
        assert!(!trust.is_trusted(), "space is being reserved");
        assert!(trust.ends_reserving() && trust.settle_reservations());
    }

    #[test]
    fn after_a_reservation_that_failed_a_file_needs_a_stamp() {
        let mut trust = StampTrust::default();
        trust.begins_reserving();
        trust.loses_time();
        trust.ends_reserving();
        assert!(!trust.settle_reservations() && !trust.is_trusted());
        trust.begin_change();
        assert!(trust.leave() && !trust.is_trusted());
        trust.gets_stamp();
        assert!(!trust.leave() && trust.is_trusted());
    }

    #[test]
    fn what_goes_direct_is_said_once_and_again_after_a_change_in_the_log_or_a_failure() {
        let mut trust = StampTrust::default();
        assert!(trust.goes_direct(true) && !trust.goes_direct(true));
        assert!(!trust.begin_change() && trust.is_changed_directly(), "destage there leaves it so");
        assert!(trust.log_counts_again() && !trust.log_counts_again());
        assert!(trust.goes_direct(true));
        trust.makes_own_size_count();
        assert!(trust.goes_direct(false) && trust.own_size_counts(), "the file's size is not known");
        assert!(trust.goes_direct(true) && !trust.own_size_counts());
        trust.leave();
        assert!(trust.is_trusted());
    }

    #[test]
    fn each_state_comes_back_from_what_the_log_says_of_it() {
        for bits in 0..8 {
            let [destaging, direct, size_counts] = [1, 2, 4].map(|bit| bits & bit != 0);
            // A file that nothing goes on at is not changed directly, whatever a forged log says.
            let direct = direct && destaging;
            let flags = ObjectFlags { destaging, direct, size_counts, ..ObjectFlags::default() };
            assert_eq!(StampTrust::from_flags(flags).flags_beside(ObjectFlags::default()), flags);
        }
    }
}
