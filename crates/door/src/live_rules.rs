//! The rules in force. Doors ask them, and the daemon's control part changes them.
//!
//! Without rules each request costs one load of a flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use headpond_engine::{Class, Handling, Treatment};
use headpond_rules::{Action, Direction, Mask, RuleSet};

use crate::rules_of_path::InForce;

/// The doors and the daemon's control part share it.
#[derive(Debug, Default)]
pub struct LiveRules {
    any: AtomicBool,
    now: RwLock<Arc<InForce>>,
}

impl LiveRules {
    /// Puts other rules in force, for every request from now on.
    pub fn replace(&self, set: RuleSet) {
        let any = !set.is_empty();
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(InForce { set: Arc::new(set), generation: now.generation + 1 });
        self.any.store(any, Ordering::Release);
    }

    /// The rules in force.
    #[must_use]
    pub fn now(&self) -> Arc<RuleSet> {
        self.in_force().set.clone()
    }

    /// The rules in force; `None` if there are none.
    #[must_use]
    pub fn any(&self) -> Option<Arc<InForce>> {
        self.any.load(Ordering::Acquire).then(|| self.in_force())
    }

    fn in_force(&self) -> Arc<InForce> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl InForce {
    /// The treatment of a request. `index` is the rule that decided it, if one did. `counted` is the request's size,
    /// if the rule should count it.
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
        let (compression, copies) = (rule.compression, rule.copies);
        Treatment { process, handling, class, compression, copies, ..Treatment::default() }
    }

    /// On how many other hosts a sync of a file must be. Its size is 0, for conditions on requests.
    #[must_use]
    pub fn copies(&self, file: Mask, process: Mask, now: u64) -> Option<u8> {
        self.set.rules()[self.set.decide(file, process, 0, Direction::Write, now)?].copies
    }
}
