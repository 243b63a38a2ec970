//! The rules in force: the mount asks them, and the daemon's control part changes them.
//!
//! Cost where there are none: one load of a flag for each request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use headpond_engine::{Class, Handling, Treatment};
use headpond_rules::{Action, Mask, RuleSet};

use crate::rules_of_path::InForce;
use crate::tree::Known;

/// Shared by the mount and the daemon's control part.
#[derive(Debug, Default)]
pub struct LiveRules {
    any: AtomicBool,
    now: RwLock<Arc<InForce>>,
}

/// The rules that the path of a file satisfies.
pub(crate) fn mask_of(known: &Known, rules: &InForce) -> Mask {
    // Before its path is asked for: what comes in between is noticed with the next request.
    let renames = known.renames();
    known.beside.rules.mask(rules, renames, || known.path())
}

impl LiveRules {
    /// Puts others in force, for every request from now on.
    pub fn replace(&self, set: RuleSet) {
        let any = !set.is_empty();
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(InForce { set: Arc::new(set), generation: now.generation + 1 });
        self.any.store(any, Ordering::Release);
    }

    /// Those in force.
    #[must_use]
    pub fn now(&self) -> Arc<RuleSet> {
        self.in_force().set.clone()
    }

    /// Those in force, if there are any.
    pub(crate) fn any(&self) -> Option<Arc<InForce>> {
        self.any.load(Ordering::Acquire).then(|| self.in_force())
    }

    fn in_force(&self) -> Arc<InForce> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl InForce {
    /// What is done with a request that the rule at `index` decided, or that no rule did; it is counted for the
    /// rule with its size, if that is given.
    pub(crate) fn treatment(&self, index: Option<usize>, process: u32, counted: Option<u64>) -> Treatment {
        let Some(index) = index else { return Treatment { process, ..Treatment::default() } };
        if let Some(size) = counted {
            self.set.count(index, size);
        }
        let rule = &self.set.rules()[index];
        let handling = match rule.action {
            Action::Bypass => Handling::Bypass,
            Action::ReadOnly => Handling::ReadOnly,
            Action::WriteThrough => Handling::WriteThrough,
            Action::Cache | Action::Pin(_) | Action::Share(_) => Handling::Cache,
        };
        let class = rule.class.and_then(Class::new).unwrap_or_default();
        Treatment { process, handling, class, compression: rule.compression, ..Treatment::default() }
    }
}
