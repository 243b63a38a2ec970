//! Whether another host has the pool by now: a peer says so, or the registry.
//!
//! Invariant: once it was said, no change of the origin begins, no request of an application is served, and no list of
//! members is told beside the origin. A sync that waits for such a list is not answered.

use std::sync::{Arc, OnceLock};

use headpond_shard::Term;

/// Whether it was said, and for how long this host is the owner else. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Deposed(Arc<Said>);

#[derive(Default)]
struct Said {
    what: OnceLock<String>,
    then: OnceLock<Box<dyn Fn() + Send + Sync>>,
    term: Arc<Term>,
}

impl Deposed {
    /// What was said, and by whom, if anything.
    pub(crate) fn said(&self) -> Option<&str> {
        self.0.what.get().map(String::as_str)
    }

    /// How long this host is the owner.
    pub(crate) fn term(&self) -> &Arc<Term> {
        &self.0.term
    }

    /// Whether a peer's word counts, that it knows a larger owner's number. With a registry it does not: that alone says
    /// who the owner is.
    pub(crate) fn heeds_peers(&self) -> bool {
        !self.0.term.is_leased()
    }

    /// What happens when it is said.
    pub(crate) fn then(&self, act: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.then.set(Box::new(act));
    }

    /// Says it.
    pub(crate) fn say(&self, what: String) {
        let _ = self.0.what.set(what);
        self.0.term.end();
        if let Some(act) = self.0.then.get() {
            act();
        }
    }
}
