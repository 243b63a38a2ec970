//! Which rules a file's path satisfies: found once for each set of rules and each name.

use std::sync::{Arc, Mutex, PoisonError};

use headpond_rules::{Mask, RuleSet};

/// A set of rules with its number among all that were in force, by which masks are known to be its.
#[derive(Debug, Default)]
pub struct InForce {
    /// The rules.
    pub set: Arc<RuleSet>,
    /// The number.
    pub generation: u64,
}

/// The rules that a file's path satisfies, as found last.
#[derive(Debug, Default)]
pub struct RulesOfPath(Mutex<Option<OfName>>);

/// What was found of a file when it had been renamed so often.
#[derive(Clone, Copy, Debug)]
struct OfName {
    renames: u32,
    masked: Masked,
}

/// A mask, and the generation of rules that it is for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Masked {
    /// Of the rules.
    pub generation: u64,
    /// The mask.
    pub mask: Mask,
}

impl RulesOfPath {
    /// The rules that the path satisfies of a file that has been renamed so often. The path is asked for only if that is not known.
    pub fn mask(&self, rules: &InForce, renames: u32, path: impl FnOnce() -> Vec<u8>) -> Mask {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = rules.generation;
        if let Some(OfName { masked, .. }) =
            found.filter(|of| (of.masked.generation, of.renames) == (generation, renames))
        {
            return masked.mask;
        }
        let mask = rules.set.for_path(&path());
        *found = Some(OfName { renames, masked: Masked { generation, mask } });
        mask
    }
}
