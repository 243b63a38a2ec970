//! The rules in force: doors ask them, and the daemon's control part changes them.
//!
//! Cost where there are none: one load of a flag for each request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use headpond_engine::{Class, Handling, Treatment};
use headpond_rules::{Action, RuleSet};

use crate::rules_of_path::InForce;

/// Shared by the doors and the daemon's control part.
#[derive(Debug, Default)]
pub struct LiveRules {
    any: AtomicBool,
    now: RwLock<Arc<InForce>>,
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
    #[must_use]
    pub fn any(&self) -> Option<Arc<InForce>> {
        self.any.load(Ordering::Acquire).then(|| self.in_force())
    }

    fn in_force(&self) -> Arc<InForce> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl InForce {
    /// What is done with a request that the rule at `index` decided, or that no rule did; it is counted for the
    /// rule with its size, if that is given.
    #[must_use]
    pub fn treatment(&self, index: Option<usize>, process: u32, counted: Option<u64>) -> Treatment {
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
