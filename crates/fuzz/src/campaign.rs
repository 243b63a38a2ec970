//! Many inputs for one target. A failing one is shortened and saved.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::edits::spoil;
use crate::failures::{command, save};
use crate::guard::{Watchdog, caught};
use crate::input::Input;
use crate::seed::Seed;
use crate::subject::{Base, PlantedBug, Told};
use crate::target::Target;
use crate::targets;

/// What a campaign does, and for how long.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The target.
    pub target: Target,
    /// The seed. It decides everything except when the time is up.
    pub seed: u64,
    /// The most inputs.
    pub inputs: u64,
    /// The longest time.
    pub time: Duration,
    /// The directory for failing inputs.
    pub failures: PathBuf,
    /// A planted bug of recovery, for tests of the tests.
    pub planted: PlantedBug,
}

/// The result of a campaign.
#[derive(Debug)]
pub struct CampaignOutcome {
    /// The target.
    pub target: Target,
    /// Inputs tried.
    pub inputs: u64,
    /// The time that it took.
    pub took: Duration,
    /// How many inputs gave each kind of verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// The number of different verdicts, with their words.
    pub different: usize,
    /// The first failure: what was wrong, and the command that repeats it.
    pub failure: Option<String>,
}

impl fmt::Display for CampaignOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.inputs as f64 / self.took.as_secs_f64().max(0.001);
        let Self { target, inputs, different, .. } = self;
        write!(
            f,
            "{target}: {inputs} inputs in {:.0} s ({rate:.0}/s), {different} different verdicts",
            self.took.as_secs_f64()
        )?;
        for (index, (verdict, count)) in self.verdicts.iter().enumerate() {
            write!(f, "{} {verdict} {count}", if index == 0 { ":" } else { "," })?;
        }
        match &self.failure {
            None => write!(f, ". No failure"),
            Some(failure) => write!(f, "\nFAILED: {failure}"),
        }
    }
}

/// How many valid images one campaign starts from. It takes a while to make a pool.
const BASES: u64 = 24;

/// The most inputs that are kept to be spoiled further.
const KEPT_MAX: usize = 2000;

/// Fuzzes one target until the time or the inputs run out, or an input fails.
#[must_use]
pub fn fuzz(campaign: &Campaign) -> CampaignOutcome {
    let target = campaign.target;
    let mut seed = Seed(campaign.seed ^ (target as u64) << 56);
    let mut outcome = CampaignOutcome {
        target,
        inputs: 0,
        took: Duration::ZERO,
        verdicts: BTreeMap::new(),
        different: 0,
        failure: None,
    };
    let (started, watchdog) = (Instant::now(), Watchdog::new(campaign.failures.clone()));
    let mut bases: HashMap<u64, Base> = HashMap::new();
    let (mut kept, mut seen): (Vec<Input>, std::collections::HashSet<String>) = (Vec::new(), Default::default());
    while outcome.inputs < campaign.inputs && started.elapsed() < campaign.time {
        outcome.inputs += 1;
        let mut input = if kept.is_empty() || seed.one_in(2) {
            let base = campaign.seed.wrapping_mul(1000).wrapping_add(seed.below(BASES));
            Input { forged: seed.one_in(2), ..Input::new(target, base) }
        } else {
            kept[seed.index(kept.len())].clone()
        };
        let base = bases.entry(input.base).or_insert_with(|| targets::base(target, input.base));
        spoil(&mut seed, &mut input, base);
        watchdog.begin(&input);
        let told = run(&input, base, campaign.planted);
        watchdog.end();
        match told {
            Ok(told) => {
                *outcome.verdicts.entry(told.verdict).or_default() += 1;
                if seen.insert(told.words) && kept.len() < KEPT_MAX {
                    kept.push(input);
                }
            }
            Err(what) => {
                let (input, what) = shorten(input, base, what, campaign.planted);
                let path = save(&campaign.failures, &input);
                outcome.failure = Some(format!("{what}\n{}", command(&path)));
                break;
            }
        }
    }
    outcome.different = seen.len();
    outcome.took = started.elapsed();
    outcome
}

/// Runs one input again.
///
/// # Errors
/// What is wrong.
pub fn replay(input: &Input) -> Result<String, String> {
    let base = targets::base(input.target, input.base);
    run(input, &base, PlantedBug::None).map(|told| format!("{}: {}", told.verdict, told.words))
}

fn run(input: &Input, base: &Base, planted: PlantedBug) -> Result<Told, String> {
    caught(|| targets::run(input, base, planted))
}

/// Removes edits as long as the input fails without them.
fn shorten(mut input: Input, base: &Base, mut what: String, planted: PlantedBug) -> (Input, String) {
    let mut at = 0;
    while at < input.edits.len() + input.devices.len() {
        let mut without = input.clone();
        match at.checked_sub(input.edits.len()) {
            None => drop(without.edits.remove(at)),
            Some(at) => drop(without.devices.remove(at)),
        }
        match run(&without, base, planted) {
            Err(why) => (input, what) = (without, why),
            Ok(_) => at += 1,
        }
    }
    (input, what)
}
