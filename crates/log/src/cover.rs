//! The second tail, as the log uses it: what was appended survives the process before anybody hears of it.

use headpond_base::{OwnerNumber, Stream};

use crate::log::Log;
use crate::mutation::Mutation;
use crate::second_tail::SecondTail;

impl Log {
    /// From now on host batches lie in memory that outlives the process.
    ///
    /// # Panics
    /// When something was appended before.
    pub fn survive_in(&mut self, second_tail: SecondTail) {
        assert!(self.open.are_none(Stream::Host), "a second tail is given before the first append");
        self.second_tail = Some(second_tail.with_bug(self.mutation));
    }

    /// What is written from now on says that it is this owner's.
    ///
    /// # Panics
    /// When something was appended before.
    pub fn owned_by(&mut self, owner: OwnerNumber) {
        assert!(self.open.are_none(Stream::Host), "an owner is named before the first append");
        self.owner = owner;
    }

    /// Whether all host entries up to the last [`Log::take_io`] survive the process. `true` if they are not to.
    #[must_use]
    pub fn is_covered(&self) -> bool {
        let covered = self.second_tail.as_ref().is_none_or(SecondTail::covers_all);
        covered || !self.takes_writes() || Mutation::AnswerUncovered.is_planted(self.mutation)
    }

    /// Whether the second tail has room for another change.
    #[must_use]
    pub fn has_cover(&self) -> bool {
        self.second_tail.as_ref().is_none_or(SecondTail::has_room)
    }

    /// Publishes what was appended to the open host batch.
    pub(crate) fn publish(&mut self) {
        let Some(open) = self.open.current(Stream::Host) else { return };
        let (Some(batch), Some(tail)) = (&open.batch, &self.second_tail) else { return };
        if tail.is_published(batch, self.next_batch) {
            return;
        }
        let at = self.geometry.first_location(open.id).plus(batch.start);
        let (head, places) = (self.batch_head(open, batch), self.places_to_write(open.id, at));
        if let Some(tail) = &mut self.second_tail {
            tail.publish(batch, &places, &head);
        }
    }

    /// Publishes what was appended. A batch that found no slot is submitted at once: it survives once it is written.
    pub(crate) fn cover(&mut self) {
        if self.second_tail.is_none() || !self.takes_writes() || Mutation::PublishLate.is_planted(self.mutation) {
            return;
        }
        let open = self.open.current(Stream::Host).and_then(|open| open.batch.as_ref());
        if open.is_some_and(|batch| batch.slot().is_none() && !batch.entries.is_empty()) {
            self.close(Stream::Host);
        }
        self.publish();
    }
}
