//! What happens when the flash takes nothing more (promise 5): the origin is used directly, and
//! whatever of the dirty data can still be read goes there.
//!
//! Invariant: the origin is not changed before it is durably said, beside its data, that the pool
//! no longer knows of changes. Otherwise the next start would put old dirty data over newer.

use headpond_base::Errno;

use crate::effect::{Effect, Outcome};
use crate::engine::{Engine, Purpose};

/// Whether the origin's side knows that the pool has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum PoolFailed {
    /// It has not, or nobody was told yet.
    #[default]
    Untold,
    /// It is being written down.
    Telling,
    /// It is durable: the origin may be changed.
    Told,
    /// It could not be written down: the origin must not be changed.
    Unsaid(Errno),
}

impl PoolFailed {
    /// Whether the origin's side was asked to note it, and has answered.
    pub(crate) const fn is_answered(self) -> bool {
        matches!(self, Self::Told | Self::Unsaid(_))
    }

    pub(crate) fn answered(&mut self, outcome: &Outcome) {
        *self = match outcome {
            Outcome::Failed(errno) => Self::Unsaid(*errno),
            _ => Self::Told,
        };
    }
}

impl Engine {
    /// Tells the origin's side once the flash has failed.
    pub(crate) fn disown_pool(&mut self) {
        if self.store.log.failed() && self.pool_failed == PoolFailed::Untold {
            self.pool_failed = PoolFailed::Telling;
            self.start(Purpose::Disown, |ticket| Effect::PoolFailed { ticket });
        }
    }

    /// Whether the origin may be changed: the flash works, or it is known that it does not.
    pub(crate) fn may_change_origin(&self) -> bool {
        !self.store.log.failed() || self.pool_failed == PoolFailed::Told
    }

    /// Why the origin must not be changed, if that is for good.
    pub(crate) const fn origin_barred(&self) -> Option<Errno> {
        match self.pool_failed {
            PoolFailed::Unsaid(errno) => Some(errno),
            _ => None,
        }
    }
}
