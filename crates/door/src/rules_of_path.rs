//! Which rules the path of a file satisfies. Found once for each set of rules and each name.

use std::sync::{Arc, Mutex, PoisonError};

use headpond_rules::{Mask, RuleSet};

/// A set of rules, numbered among all sets that were ever in force. A mask has the number of its set.
#[derive(Debug, Default)]
pub struct InForce {
    /// The rules.
    pub set: Arc<RuleSet>,
    /// The number.
    pub generation: u64,
}

/// The rules that the path of a file satisfies, as last found.
#[derive(Debug, Default)]
pub struct RulesOfPath(Mutex<Option<OfName>>);

/// The mask of a file after `renames` renames.
#[derive(Clone, Copy, Debug)]
struct OfName {
    renames: u32,
    masked: Masked,
}

/// A mask, with the generation of its rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Masked {
    /// The generation of the rules.
    pub generation: u64,
    /// The mask.
    pub mask: Mask,
}

impl RulesOfPath {
    /// The rules that the path of a file satisfies after `renames` renames. Calls `path` only if the mask is not
    /// known.
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
