//! Random writes over how much of the space is in use: for each card, bare and through headpond, mirrored and not, and
//! with a device pulled meanwhile.
//!
//! Keeps true: where nothing is mirrored no device is pulled, as its data would be gone.

use super::super::report::picture::{Drawing, Line, Mark, Picture, Scale};
use super::side_by_side::side_by_side;
use super::table::Table;
use super::{Drawn, Output};
use crate::failure::{Failure, Result};
use clap::Args;
use headpond_base::Redundancy;
use headpond_models::flash::Model;
use headpond_timed::{ArrayModel, ArraySide, DeviceArray, FillPoint, FillSweep, sweep_fill};
use serde_json::json;
use std::num::NonZeroU32;

/// What `fill` is given.
#[derive(Args, Debug)]
pub(super) struct FillArgs {
    /// A modelled card (`headpond lab cards models` shows them). You can repeat this option
    #[arg(long, value_name = "NAME", default_values = ["tachion", "iodrive-duo", "iodrive", "iodrive-reserve", "flashmax-2"])]
    model: Vec<Model>,
    /// How many cards there are
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=8))]
    devices: u8,
    /// The size of each modelled card in MiB. A small pool has relatively more to keep free
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(64..=4096))]
    mib: u64,
    /// Percents of the space in use
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "20,33,40,50,60,70,80,90,100",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    used: Vec<u32>,
    /// A device of the mirrored pool is pulled at this percent, in a line of its own
    #[arg(long, value_name = "PERCENT", default_value_t = 60)]
    pulled_at: u32,
    /// How often the space is written over before a point counts, and again while it does
    #[arg(long, value_name = "N", default_value = "2")]
    times: NonZeroU32,
    #[command(flatten)]
    output: Output,
}

impl FillArgs {
    pub(super) const fn output(&self) -> &Output {
        &self.output
    }
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
struct Series {
    model: Model,
    side: ArraySide,
    redundancy: Redundancy,
    pulled_at: Option<u32>,
}

impl Series {
    fn name(&self) -> String {
        let side = if self.side == ArraySide::Bare { "bare" } else { "headpond" };
        let pulled = self.pulled_at.map_or_else(String::new, |at| format!(", one pulled at {at} %"));
        let mirrored = if self.redundancy == Redundancy::Mirror { ", mirrored" } else { "" };
        format!("{side}{mirrored}{pulled}")
    }
}

/// The lines of a card.
fn series(arguments: &FillArgs, model: Model) -> Vec<Series> {
    let of = |side, redundancy, pulled_at| Series { model, side, redundancy, pulled_at };
    let mut series = vec![of(ArraySide::Bare, Redundancy::None, None), of(ArraySide::Headpond, Redundancy::None, None)];
    if arguments.devices > 1 {
        series.push(of(ArraySide::Bare, Redundancy::Mirror, None));
        series.push(of(ArraySide::Headpond, Redundancy::Mirror, None));
    }
    // With one of two left nothing new is mirrored: that would be another line, of another protection.
    if arguments.devices > 2 {
        series.push(of(ArraySide::Headpond, Redundancy::Mirror, Some(arguments.pulled_at)));
    }
    series
}

/// Runs all, and draws a picture for each card.
pub(super) fn drawn(arguments: &FillArgs) -> Result<Drawn> {
    if !arguments.used.is_sorted() {
        return Err(Failure::Other("--used: the percents go up, because data is added and never removed".to_owned()));
    }
    if arguments.devices > 2 && !arguments.used.contains(&arguments.pulled_at) {
        return Err(Failure::Other(format!("--pulled-at {}: that is none of --used", arguments.pulled_at)));
    }
    let all: Vec<Series> = arguments.model.iter().flat_map(|model| series(arguments, *model)).collect();
    let work = |one: &Series| {
        let array = DeviceArray {
            devices: arguments.devices,
            model: ArrayModel::Card(one.model),
            bytes: arguments.mib << 20,
            redundancy: one.redundancy,
            seed: arguments.output.seed,
        };
        let (used, times) = (arguments.used.clone(), arguments.times);
        sweep_fill(&FillSweep { array, used, pulled_at: one.pulled_at, times }, one.side)
    };
    let found = side_by_side(&all, |one| format!("{}: {}", one.model.name, one.name()), work)?;
    let found: Vec<(Series, Vec<FillPoint>)> = all.into_iter().zip(found).collect();
    let of_card = |model: &Model| found.iter().filter(|(one, _)| one.model.name == model.name).collect::<Vec<_>>();
    let cards: Vec<_> = arguments.model.iter().map(|model| (*model, of_card(model))).collect();
    let figures = found.iter().map(|(one, points)| {
        let points: Vec<_> = points
            .iter()
            .map(|point| json!({"used": point.used, "mib": point.rate, "amplification": point.amplification}))
            .collect();
        json!({"model": one.model.name, "line": one.name(), "pulled_at": one.pulled_at, "points": points, "full_to_a_third": full_to_a_third(&found, one)})
    });
    Ok(Drawn {
        name: "fill",
        text: text(arguments, &cards),
        figures: json!({"devices": arguments.devices, "mib": arguments.mib, "seed": arguments.output.seed, "lines": figures.collect::<Vec<_>>()}),
        pictures: cards.iter().map(|(model, lines)| picture(arguments, model, lines)).collect(),
    })
}

/// What is left when all of the space is in use, of the rate with a third of it.
fn full_to_a_third(found: &[(Series, Vec<FillPoint>)], one: &Series) -> Option<f64> {
    let (_, points) =
        found.iter().find(|(other, _)| other.model.name == one.model.name && other.name() == one.name())?;
    let at = |used| points.iter().find(|point| point.used == used).map(|point| point.rate);
    // With a device less in between it says nothing of fill alone.
    one.pulled_at.is_none().then(|| Some(at(100)? / at(33)?))?
}

type CardLines<'a> = (Model, Vec<&'a (Series, Vec<FillPoint>)>);

fn text(arguments: &FillArgs, cards: &[CardLines<'_>]) -> String {
    let mut text = format!(
        "Random 16 KiB writes in MiB/s on {} modelled cards, by the percent of the space that is in use.\n",
        arguments.devices
    );
    for (model, lines) in cards {
        let used = arguments.used.iter().map(u32::to_string);
        let mut table =
            Table::new([model.name.to_owned()].into_iter().chain(used).chain(["full, times a third".to_owned()]));
        for (one, points) in lines {
            let rates = points.iter().map(|point| format!("{:.0}", point.rate));
            let owned = [((*one), points.clone())];
            let ratio = full_to_a_third(&owned, one).map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            table.row([one.name()].into_iter().chain(rates).chain([ratio]));
        }
        text += &format!("\n{}", table.markdown());
    }
    text
}

fn picture(arguments: &FillArgs, model: &Model, lines: &[&(Series, Vec<FillPoint>)]) -> Picture {
    let line = |(index, (one, points)): (usize, &&(Series, Vec<FillPoint>))| Line {
        name: one.name(),
        colour: index,
        points: points.iter().map(|point| (f64::from(point.used), point.rate)).collect(),
        spread: Vec::new(),
    };
    let mark = |(index, (one, _)): (usize, &&(Series, Vec<FillPoint>))| {
        let at = f64::from(one.pulled_at?);
        Some(Mark { at, line: index, text: "one of the devices is pulled".to_owned() })
    };
    Picture {
        id: format!("fill-{}", model.name),
        title: format!("{} modelled {}: random 16 KiB writes, MiB/s", arguments.devices, model.name),
        along: "% of the space in use".to_owned(),
        unit: "MiB/s".to_owned(),
        scale: Scale::Linear,
        drawing: Drawing::Lines {
            scale: Scale::Linear,
            warmup: None,
            marks: lines.iter().enumerate().filter_map(mark).collect(),
        },
        lines: lines.iter().enumerate().map(line).collect(),
    }
}
