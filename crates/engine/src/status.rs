//! What the log says of the status change time of an object's file at the origin.
//!
//! No program can put this time back, so it tells a change by others where size and modification time were put back.
//! But headpond moves it, too, with all that it does at the origin. After an orderly end the stamp's is the file's,
//! exactly (`ObjectFlags::ctime_counts`). After a crash it is a bound (`ObjectFlags::ctime_bounds`): a later one is a
//! change by others; an earlier one is what an origin that lost its power has left of headpond's own changes.
//!
//! ```text
//!                      destage, a reservation, a change of status: after the log durably said so
//!                 ┌──────────────────────────────────────────────────────────────────────────────┐
//!                 │                                                                               v
//!   the stamp's is a bound                                                              it tells nothing
//!                 ^                                                                               │
//!                 └──────────────────────────────────────────────────────────────────────────────┘
//!                      all that is over, the stamp has what the origin said after it, and it is quiet
//! ```
//!
//! Invariants
//! - While the front door changes the status of a file, no crash can leave an object that is dirty with the log's word
//!   that the stamp's time is a bound.
//! - A dirty object becomes clean only behind the log's word that the time tells nothing; a clean one becomes dirty
//!   only behind the log's word of how it is then. So a clean object's file may be changed without a word.
//!
//! Price: at most one flash sync before such a change of a dirty file, none for a clean one, none for a new one, and
//! none again within a second of the last; an entry of the object a second later, and one when a clean object becomes
//! dirty.

use headpond_base::{Nanos, Sequence};

/// Of one object. Owned by it.
#[derive(Default)]
pub(crate) struct ObjectStatus {
    /// Changes of the file's status that are under way.
    changing: u32,
    /// The stamp has the latest time that headpond gave the file.
    seen: bool,
    /// When it last changed: the log gets that later.
    restless: Option<Nanos>,
    /// The log is being told of blocks that are clean now.
    being_cleaned: bool,
    /// The first entry since which the log says that the time tells nothing, if it is not one of an earlier life.
    doubted_at: Option<Sequence>,
}

impl ObjectStatus {
    /// A change begins.
    pub(crate) const fn begins(&mut self) {
        self.changing += 1;
        self.restless = None;
    }

    /// A change is over; what the origin said after it is in the stamp, or is not known.
    pub(crate) const fn ends(&mut self, seen: bool) {
        self.changing = self.changing.saturating_sub(1);
        self.seen = self.seen && seen;
    }

    /// The stamp has the latest time.
    pub(crate) const fn note_seen(&mut self) {
        self.seen = true;
    }

    /// The file may have a later time than the stamp's.
    pub(crate) const fn note_lost(&mut self) {
        self.seen = false;
    }

    /// It was changed now, and may be again soon.
    pub(crate) const fn note_restless(&mut self, now: Nanos) {
        self.restless = Some(now);
    }

    /// Whether the last change was then; it is quiet from now on.
    pub(crate) fn quiets_down(&mut self, since: Nanos) -> bool {
        self.restless.take_if(|restless| *restless == since).is_some()
    }

    /// Destage says, or has said, which blocks are clean.
    pub(crate) const fn note_cleaning(&mut self, cleaned: bool) {
        self.being_cleaned = cleaned;
    }

    /// The log says this from here on.
    pub(crate) const fn said(&mut self, at: Sequence, bounds: bool) {
        self.doubted_at = match self.doubted_at {
            _ if bounds => None,
            None => Some(at),
            before => before,
        };
    }

    pub(crate) const fn is_settled(&self) -> bool {
        self.changing == 0 && self.seen && self.restless.is_none() && !self.being_cleaned
    }

    /// The entry that must be durable before the status is changed, while the log says that the time tells nothing.
    pub(crate) const fn doubted_at(&self) -> Option<Sequence> {
        self.doubted_at
    }
}
