//! A fault plan in words, for the command line of tests with whole programs.
//!
//! The words, separated by commas:
//!
//! | word | the flash |
//! | --- | --- |
//! | `none` | works; faults may be put on it while it is in use |
//! | `lose-unsynced` | holds writes back in memory until a sync, so that a killed daemon loses them |
//! | `early=N` | lets N of 1,000 held blocks through early, in no order |
//! | `torn=N` | tears N of 1,000 of those: only some of their sectors of 512 bytes get through |
//! | `lying-syncs` | holds writes back, and acknowledges syncs without carrying them out |
//! | `seed=N` | decides which blocks and sectors |
//! | `read-errors=FIRST[+COUNT]` | fails COUNT reads with EIO, from number FIRST on, counted from 0; without COUNT all |
//! | `write-errors=...`, `sync-errors=...` | the same for writes and syncs |
//! | `accept-torn-batch` | works; but recovery takes a torn batch of the log for whole |
//!
//! Invariant: an unknown word is refused, so no test runs without its fault.

use std::str::FromStr;
use std::time::Duration;

use headpond_base::Errno;

use crate::{Fault, FaultPlan, OpKind, Withhold};

impl FromStr for FaultPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        let mut held = Withhold::default();
        let mut withhold = false;
        for word in text.split(',') {
            let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            match (name, value) {
                ("none", None) => {}
                ("accept-torn-batch", None) => plan.accept_torn_batch = true,
                ("lose-unsynced", None) => withhold = true,
                ("lying-syncs", None) => (withhold, held.lies) = (true, true),
                ("early", Some(value)) => held.early_per_mille = number(word, value)?,
                ("torn", Some(value)) => held.torn_per_mille = number(word, value)?,
                ("seed", Some(value)) => held.seed = number(word, value)?,
                ("delay", Some(value)) => plan.delay = Duration::from_millis(number(word, value)?),
                ("read-errors", Some(value)) => plan.faults.push(fault(OpKind::Read, word, value)?),
                ("write-errors", Some(value)) => plan.faults.push(fault(OpKind::Write, word, value)?),
                ("sync-errors", Some(value)) => plan.faults.push(fault(OpKind::Sync, word, value)?),
                _ => return Err(format!("'{word}' is no fault that is known")),
            }
        }
        if !withhold && held != Withhold::default() {
            return Err("early, torn and seed say how writes are lost: add lose-unsynced".to_owned());
        }
        plan.withhold = withhold.then_some(held);
        Ok(plan)
    }
}

fn number<N: FromStr>(word: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("'{word}': '{value}' is not a number that fits"))
}

fn fault(kind: OpKind, word: &str, value: &str) -> Result<Fault, String> {
    let (first, count) = match value.split_once('+') {
        Some((first, count)) => (first, number(word, count)?),
        None => (value, u64::MAX),
    };
    Ok(Fault { kind, first: number(word, first)?, count, errno: Errno::IO })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_the_plan_that_they_say() {
        let plan: FaultPlan = "lose-unsynced,early=200,torn=500,seed=7,sync-errors=3+2".parse().unwrap();
        let held = Withhold { early_per_mille: 200, torn_per_mille: 500, seed: 7, ..Withhold::default() };
        assert_eq!(plan.withhold, Some(held));
        assert_eq!(plan.faults, [Fault { kind: OpKind::Sync, first: 3, count: 2, errno: Errno::IO }]);
        let plan: FaultPlan = "lying-syncs".parse().unwrap();
        assert!(plan.withhold.is_some_and(|withhold| withhold.lies));
        assert!(!plan.accept_torn_batch);
        assert_eq!("delay=20".parse().map(|plan: FaultPlan| plan.delay), Ok(Duration::from_millis(20)));
        let plan: FaultPlan = "lose-unsynced,accept-torn-batch".parse().unwrap();
        assert!(plan.withhold.is_some() && plan.accept_torn_batch);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in ["", "lose", "early=9", "lose-unsynced,early=x", "read-errors=1+", "lose-unsynced=1"] {
            assert!(text.parse::<FaultPlan>().is_err(), "{text}");
        }
    }
}
