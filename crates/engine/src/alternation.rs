//! Which changes of an object go next, when some go to the log and others to the origin.
//!
//! The two never mix: a change goes to the origin only while the object has nothing dirty, and to the log
//! only once the origin has synced what went there (see `ops/direct.rs` and `ops/change.rs`, `may_log`).
//! Invariants:
//! - Nobody goes before one of the other kind who has waited longer. So each kind goes some time,
//!   however busy the other is, and changes of one kind that wait together go together.
//! - Nobody waits for ever: what the origin refuses twice while a change waits for it is that change's error.

use crate::locks::OpId;

/// The changes that wait for those of the other kind to end. The number of requests under way bounds it; it is nearly
/// always empty.
#[derive(Default, Debug)]
pub(crate) struct Alternation(Vec<(OpId, bool)>);

impl Alternation {
    /// `op` waits. Requests are numbered in the order in which they came.
    pub(crate) fn wait(&mut self, op: OpId, direct: bool) {
        self.over(op);
        self.0.push((op, direct));
    }

    /// `op` waits no more.
    pub(crate) fn over(&mut self, op: OpId) {
        self.0.retain(|(waiting, _)| *waiting != op);
    }

    /// Whether anybody waits.
    pub(crate) const fn are_waited_for(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether a request of the other kind has waited longer than `op`.
    pub(crate) fn others_first(&self, op: OpId, direct: bool) -> bool {
        self.0.iter().any(|(waiting, kind)| *kind != direct && *waiting < op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_overtakes_one_of_the_other_kind_who_waits() {
        let mut alternation = Alternation::default();
        assert!(!alternation.others_first(OpId(1), true));
        alternation.wait(OpId(5), true);
        alternation.wait(OpId(7), false);
        assert!(alternation.others_first(OpId(8), false), "one for the log, behind one for the origin");
        assert!(alternation.others_first(OpId(8), true), "one for the origin, behind one for the log");
        assert!(!alternation.others_first(OpId(5), true));
        assert!(alternation.others_first(OpId(7), false));
        alternation.over(OpId(5));
        assert!(!alternation.others_first(OpId(7), false));
    }
}
