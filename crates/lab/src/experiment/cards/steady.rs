//! Random writes until they settle, by SNIA's rule: on cards formatted with a reserve and without, bare and through
//! headpond.

use super::super::report::picture::{Drawing, Line, Picture, Scale};
use super::side_by_side::side_by_side;
use super::table::Table;
use super::{Drawn, Output};
use crate::failure::Result;
use clap::Args;
use headpond_base::Redundancy;
use headpond_measure::{Settled, Summary, settled_to_the_end};
use headpond_models::flash::Model;
use headpond_timed::{ArrayModel, ArraySide, DeviceArray, SteadyRun, SteadyStep, run_steady};
use serde_json::json;
use std::num::NonZeroU32;

/// What `steady` is given.
#[derive(Args, Debug)]
pub(super) struct SteadyArgs {
    /// A modelled card (`headpond lab cards models` shows them). You can repeat this option
    #[arg(long, value_name = "NAME", default_values = ["iodrive", "iodrive-reserve", "flashmax-2", "flashmax-1400"])]
    model: Vec<Model>,
    /// The size of each modelled card in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(64..=4096))]
    mib: u64,
    /// How often the space is written over
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(3..=100))]
    times: u32,
    #[command(flatten)]
    output: Output,
}

impl SteadyArgs {
    pub(super) const fn output(&self) -> &Output {
        &self.output
    }
}

/// Steps for each time that the space is written over, and in a round of SNIA's rule.
const STEPS: NonZeroU32 = NonZeroU32::new(10).expect("it is not zero");
const ROUND: usize = 5;

type Found = Vec<((Model, ArraySide), Vec<SteadyStep>)>;

fn named((model, side): (Model, ArraySide)) -> String {
    format!("{}, {}", model.name, if side == ArraySide::Bare { "bare" } else { "headpond" })
}

/// The means of the rounds, and from which on it is steady.
fn settled(steps: &[SteadyStep]) -> (Vec<f64>, Option<Settled>) {
    let mean = |round: &[SteadyStep]| round.len() as f64 / round.iter().map(|step| 1.0 / step.rate).sum::<f64>();
    let rounds: Vec<f64> = steps.chunks_exact(ROUND).map(mean).collect();
    let found = settled_to_the_end(&rounds);
    (rounds, found)
}

/// Runs all, and draws them into one picture.
pub(super) fn drawn(arguments: &SteadyArgs) -> Result<Drawn> {
    let both = |model: &Model| [(*model, ArraySide::Bare), (*model, ArraySide::Headpond)];
    let all: Vec<(Model, ArraySide)> = arguments.model.iter().flat_map(both).collect();
    let work = |(model, side): &(Model, ArraySide)| {
        let array = DeviceArray {
            devices: 1,
            model: ArrayModel::Card(*model),
            bytes: arguments.mib << 20,
            redundancy: Redundancy::None,
            seed: arguments.output.seed,
        };
        run_steady(&SteadyRun { array, times: arguments.times, steps: STEPS }, *side)
    };
    let found = side_by_side(&all, |one| named(*one), work)?;
    let found: Found = all.into_iter().zip(found).collect();
    let mut table = Table::new([
        "card",
        "first tenth, MiB/s",
        "steady after, times written over",
        "steady, MiB/s",
        "steady, times the first",
        "its tenths vary by",
    ]);
    let mut lines = Vec::new();
    for (one, steps) in &found {
        let (_, settled) = settled(steps);
        let from = settled.map_or(steps.len(), |settled| settled.from * ROUND);
        let rates: Vec<f64> = steps[from..].iter().map(|step| step.rate).collect();
        let steady = Summary::of(&rates);
        let after = settled.map(|_| from as f64 / f64::from(STEPS.get()));
        let cell = |value: Option<String>| value.unwrap_or_else(|| "never".to_owned());
        table.row([
            named(*one),
            format!("{:.0}", steps[0].rate),
            cell(after.map(|times| format!("{times:.1}"))),
            cell(steady.map(|steady| format!("{:.0}", steady.mean))),
            cell(steady.map(|steady| format!("{:.2}", steady.mean / steps[0].rate))),
            cell(steady.map(|steady| format!("{:.1} %", steady.deviation / steady.mean * 100.0))),
        ]);
        let points: Vec<_> = steps.iter().map(|step| json!({"times": step.times, "mib": step.rate})).collect();
        lines.push(json!({"line": named(*one), "steady_after": after, "steady_mib": steady.map(|steady| steady.mean), "deviation_mib": steady.map(|steady| steady.deviation), "points": points}));
    }
    let text = format!(
        "Random 16 KiB writes to all of a modelled card, 32 at once, until they settle.\n\n{}",
        table.markdown()
    );
    let figures = json!({"mib": arguments.mib, "seed": arguments.output.seed, "lines": lines});
    Ok(Drawn { name: "steady", text, figures, pictures: vec![picture(&found)] })
}

fn picture(found: &Found) -> Picture {
    let line = |(colour, (one, steps)): (usize, &((Model, ArraySide), Vec<SteadyStep>))| Line {
        name: named(*one),
        colour,
        points: steps.iter().map(|step| (step.times, step.rate)).collect(),
        spread: Vec::new(),
    };
    Picture {
        id: "steady".to_owned(),
        title: "Modelled cards: random 16 KiB writes to all of the space, MiB/s".to_owned(),
        along: "how often the space was written over".to_owned(),
        unit: "MiB/s".to_owned(),
        scale: Scale::Linear,
        drawing: Drawing::Lines { scale: Scale::Linear, warmup: None, marks: Vec::new() },
        lines: found.iter().enumerate().map(line).collect(),
    }
}
