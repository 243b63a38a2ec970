//! All rules of a mount, in order, with counts of their matches.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rule::{Direction, Process, Rule};

/// The most rules of a mount: each is one bit of a [`Mask`].
pub const RULES_MAX: usize = 64;

/// The most rules that pin or give a share: the pool tells this many classes of blocks apart.
pub const CLASSES_MAX: u8 = 15;

/// The rules that a file or a process satisfies, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mask(pub u64);

/// What a rule has matched since it was made or since the daemon's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Matches {
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// Why a set cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetError {
    /// More than [`RULES_MAX`] rules.
    TooMany,
    /// More than [`CLASSES_MAX`] rules that pin or give a share.
    TooManyClasses,
    /// No rule is at this place.
    NoSuchRule(usize),
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "a mount has at most {RULES_MAX} rules. Remove one first"),
            Self::TooManyClasses => {
                write!(f, "a mount has at most {CLASSES_MAX} rules with pin or share. Remove one first")
            }
            Self::NoSuchRule(number) => write!(f, "there is no rule {number}"),
        }
    }
}

impl std::error::Error for SetError {}

/// A set of rules. See the crate's documentation.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    counters: Vec<Counters>,
    needs_process: bool,
    needs_command: bool,
    asks_for_copies: bool,
}

impl RuleSet {
    /// Makes a set of these rules, in this order. Rules that pin or give a share get a free class if they have none.
    /// If two rules have the same class, as in a text written by hand, one gets a new class.
    ///
    /// # Errors
    /// When there are too many.
    pub fn new(mut rules: Vec<Rule>) -> Result<Self, SetError> {
        if rules.len() > RULES_MAX {
            return Err(SetError::TooMany);
        }
        let mut taken = [false; CLASSES_MAX as usize + 1];
        for rule in &mut rules {
            let sound = rule.class.filter(|class| (1..=CLASSES_MAX).contains(class) && !taken[*class as usize]);
            rule.class = sound.filter(|_| rule.action.quota().is_some());
            if let Some(class) = rule.class {
                taken[class as usize] = true;
            }
        }
        for rule in rules.iter_mut().filter(|rule| rule.action.quota().is_some() && rule.class.is_none()) {
            let free = (1..=CLASSES_MAX).find(|class| !taken[*class as usize]).ok_or(SetError::TooManyClasses)?;
            taken[free as usize] = true;
            rule.class = Some(free);
        }
        Ok(Self {
            counters: rules.iter().map(|_| Counters::default()).collect(),
            needs_process: rules.iter().any(Rule::asks_for_process),
            needs_command: rules.iter().any(|rule| rule.command.is_some()),
            asks_for_copies: rules.iter().any(|rule| rule.copies.is_some()),
            rules,
        })
    }

    /// Parses what [`RuleSet::to_text`] wrote: one rule a line.
    ///
    /// # Errors
    /// The wrong line, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rules = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let rule =
            |(index, line): (usize, &str)| Rule::parse(line).map_err(|error| format!("rule {}: {error}", index + 1));
        Self::new(rules.map(rule).collect::<Result<_, _>>()?).map_err(|error| error.to_string())
    }

    /// The rules as text, one a line.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.rules.iter().map(|rule| format!("{rule}\n")).collect()
    }

    /// A set with one rule more, before the rule at `place` (from 0), or at the end. Counters stay with their rules.
    ///
    /// # Errors
    /// When there are too many, or the place does not exist.
    pub fn with(&self, rule: Rule, place: Option<usize>) -> Result<Self, SetError> {
        let place = place.unwrap_or(self.rules.len());
        if place > self.rules.len() {
            return Err(SetError::NoSuchRule(place + 1));
        }
        let mut rules = self.rules.clone();
        rules.insert(place, rule);
        let from =
            |index: usize| if index < place { Some(index) } else { index.checked_sub(1).filter(|_| index > place) };
        Self::new(rules).map(|set| set.counting_on(self, from))
    }

    /// A set without the rule at `place` (from 0).
    ///
    /// # Errors
    /// When no rule is at that place.
    pub fn without(&self, place: usize) -> Result<Self, SetError> {
        let mut rules = self.rules.clone();
        if place >= rules.len() {
            return Err(SetError::NoSuchRule(place + 1));
        }
        rules.remove(place);
        Self::new(rules).map(|set| set.counting_on(self, |index| Some(index + usize::from(index >= place))))
    }

    fn counting_on(self, before: &Self, from: impl Fn(usize) -> Option<usize>) -> Self {
        for (index, counters) in self.counters.iter().enumerate() {
            if let Some(old) = from(index).and_then(|index| before.counters.get(index)) {
                counters.requests.store(old.requests.load(Ordering::Relaxed), Ordering::Relaxed);
                counters.bytes.store(old.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        self
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What a rule has matched.
    #[must_use]
    pub fn counted(&self, index: usize) -> Matches {
        self.counters.get(index).map_or_else(Matches::default, |counters| Matches {
            requests: counters.requests.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
        })
    }

    /// Whether the set has no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any rule has a condition on processes.
    #[must_use]
    pub const fn needs_process(&self) -> bool {
        self.needs_process
    }

    /// Whether any rule has a condition on command lines.
    #[must_use]
    pub const fn needs_command(&self) -> bool {
        self.needs_command
    }

    /// Whether any rule says for how many copies a sync waits.
    #[must_use]
    pub const fn asks_for_copies(&self) -> bool {
        self.asks_for_copies
    }

    fn mask(&self, fits: impl Fn(&Rule) -> bool) -> Mask {
        let bit = |(index, rule): (usize, &Rule)| u64::from(fits(rule)) << index;
        Mask(self.rules.iter().enumerate().map(bit).fold(0, |all, bit| all | bit))
    }

    /// The rules whose conditions on files hold for a path.
    #[must_use]
    pub fn for_path(&self, path: &[u8]) -> Mask {
        self.mask(|rule| rule.fits_path(path))
    }

    /// The rules whose conditions on processes hold for this process, or for a request without one.
    #[must_use]
    pub fn for_process(&self, process: Option<&Process>) -> Mask {
        self.mask(|rule| rule.fits_process(process))
    }

    /// The first rule that a request satisfies. `file` and `process` are the rules that its file and its process
    /// satisfy.
    #[must_use]
    pub fn decide(&self, file: Mask, process: Mask, size: u64, direction: Direction, now: u64) -> Option<usize> {
        let mut left = file.0 & process.0;
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            if self.rules.get(index)?.fits_request(size, direction, now) {
                return Some(index);
            }
            left &= left - 1;
        }
        None
    }

    /// Counts a request for its rule.
    pub fn count(&self, index: usize, size: u64) {
        self.counters[index].requests.fetch_add(1, Ordering::Relaxed);
        self.counters[index].bytes.fetch_add(size, Ordering::Relaxed);
    }
}
