//! How far a use of the pool has come.
//!
//! ```text
//!            flash synced         each place has it       first checkpoint, and room
//! [Settling] ------------> [Healing] ------------> [Starting] ------------> [Serving]
//!            Request::Stop          the last one is over
//!  [Serving] ------------> [Stopping] ------------> [Stopped]
//! ```
//!
//! Invariants
//! - It goes forward only.
//! - Nothing is written before what recovery found is durable: a process that died may have left that in the device's
//!   cache alone, and a superblock, with the checkpoint that it leads to, could survive a loss of power that takes it.

/// Owned by the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Life {
    /// What recovery found is being made durable. Nothing else happens.
    #[default]
    Settling,
    /// What recovery found in some of its places is being brought to the others. Nothing else happens.
    Healing,
    /// The first checkpoint of this epoch is being written, or there is no room yet for the log to go on. Requests are
    /// held.
    Starting,
    /// Requests are taken.
    Serving,
    /// No new ones are; those under way end, and so does all background work.
    Stopping,
    /// Nothing happens any more.
    Stopped,
}

impl Life {
    /// Goes on to a later stage.
    pub(crate) fn becomes(&mut self, next: Self) {
        assert!(*self < next, "from {self:?} a pool's use goes on to {next:?}");
        *self = next;
    }

    /// Whether what recovery found is durable, in each of its places.
    pub(crate) fn is_settled(self) -> bool {
        self >= Self::Starting
    }

    /// Whether requests were ever taken.
    pub(crate) fn has_served(self) -> bool {
        self >= Self::Serving
    }

    /// Whether the end has come, or is over.
    pub(crate) fn is_ending(self) -> bool {
        self >= Self::Stopping
    }

    /// Whether all is over.
    pub(crate) fn is_over(self) -> bool {
        self == Self::Stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "from Stopping a pool's use goes on to Serving")]
    fn it_never_goes_back() {
        let mut life = Life::default();
        for next in [Life::Starting, Life::Serving, Life::Stopping, Life::Serving] {
            life.becomes(next);
        }
    }
}
