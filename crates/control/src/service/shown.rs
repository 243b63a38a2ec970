//! Flushes and rules in a daemon's answers.

use serde::{Deserialize, Serialize};

use crate::wording::Size;

/// A flush in an answer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FlushShown {
    /// Its handle.
    pub handle: u64,
    /// The path below which it flushes. Empty for everything.
    pub path: String,
    /// `running`, `done`, `cancelled` or `failed`.
    pub state: String,
    /// Why it failed.
    pub why: String,
    /// Bytes that it must still write to the origin.
    pub left_bytes: u64,
    /// Its dirty bytes at its start.
    pub total_bytes: u64,
    /// How long it has been running, or ran.
    pub seconds: f64,
    /// How long it still takes at its pace, if known.
    pub left_seconds: Option<f64>,
}

/// A rule in an answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleShown {
    /// Its place, from 1. The first rule that matches decides.
    pub number: usize,
    /// The rule, as `add` takes it.
    pub rule: String,
    /// Requests that it decided.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Why it matches nothing any more, or until when it matches. Otherwise empty.
    pub state: String,
    /// For a rule that pins, or gives a share: bytes that the pool holds for it now.
    #[serde(default)]
    pub held_bytes: Option<u64>,
    /// Its quota in this pool.
    #[serde(default)]
    pub quota_bytes: Option<u64>,
}

impl RuleShown {
    /// The remark behind the rule: what it holds, and whether it still matches anything.
    #[must_use]
    pub fn remark(&self) -> String {
        let held = match (self.held_bytes, self.quota_bytes) {
            (Some(held), Some(quota)) => format!("holds {} of {}", Size(held), Size(quota)),
            _ => String::new(),
        };
        let said: Vec<&str> = [held.as_str(), &self.state].into_iter().filter(|part| !part.is_empty()).collect();
        if said.is_empty() { String::new() } else { format!("    # {}", said.join("; ")) }
    }
}

/// What headpond would do with a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// The rule that decides. None if no rule matches.
    pub decided_by: Option<RuleShown>,
    /// The action that applies, as its word.
    pub action: String,
}
