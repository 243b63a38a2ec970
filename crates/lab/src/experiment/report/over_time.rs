//! Pictures over time.

use super::super::plan::SideName;
use super::super::{Record, Second};
use super::picture::{Drawing, Line, Mark, Picture, Scale};
use super::pictures::runs;
use super::{Story, response, unit};

/// So many points are drawn over time; the others are in the files.
const OVER_TIME_MAX: usize = 12;
/// So many stretches of a run are marked over time.
const STRETCHES_MAX: usize = 6;

/// The first run of each side over time.
pub fn over_time(story: &Story<'_>) -> Vec<Picture> {
    let plan = story.plan;
    let drawn = if plan.points.len() > OVER_TIME_MAX {
        // Of each curve its last point, where the load is highest.
        let last = |case: usize| plan.points.iter().rposition(|point| point.case == case);
        (0..plan.definition.cases.len()).filter_map(last).collect()
    } else {
        (0..plan.points.len()).collect::<Vec<_>>()
    };
    let picture = |point: usize, id: &str, what: &str, unit: &str, scale, value: &dyn Fn(&Second) -> Option<f64>| {
        let side = |(index, name): (usize, &SideName)| {
            let first = runs(story, point, index).next();
            let seconds = first.iter().flat_map(|record| &record.seconds);
            let points = seconds.filter_map(|second| Some((second.at, value(second)?))).collect();
            Line { name: name.name.clone(), colour: index, points, spread: Vec::new() }
        };
        Picture {
            id: format!("{id}-{point}"),
            title: format!("{}, over time: {what}", plan.title(point)),
            along: "seconds".to_owned(),
            unit: unit.to_owned(),
            scale,
            drawing: Drawing::Lines { scale: Scale::Linear, warmup: warmup(story, point), marks: marks(story, point) },
            lines: plan.sides.iter().enumerate().map(side).collect(),
        }
    };
    let of = |point: usize| {
        [
            picture(point, "time", unit(plan), unit(plan), Scale::Linear, &|second| Some(second.throughput)),
            picture(
                point,
                "time-p95",
                "95th percentile of each second, ms (by factors)",
                "ms",
                Scale::Log,
                &|second| second.p95_ms,
            ),
            response::picture(story, point),
        ]
    };
    drawn.into_iter().flat_map(of).collect()
}

/// Up to where all runs that are drawn were warming up.
fn warmup(story: &Story<'_>, point: usize) -> Option<f64> {
    let firsts = (0..story.plan.sides.len()).filter_map(|side| runs(story, point, side).next());
    firsts.map(|record| record.warmup).reduce(f64::min)
}

/// Where a cache came into another regime, and where a run settled, of the runs that are drawn.
fn marks(story: &Story<'_>, point: usize) -> Vec<Mark> {
    let of = |side: usize| {
        let first = runs(story, point, side).next();
        let sides = &story.plan.sides;
        let whose = if sides.len() > 1 { format!("{}: ", sides[side].name) } else { String::new() };
        let mark = |at: f64, text: &str| Mark { at, line: side, text: format!("{whose}{text}") };
        if let Some(at) = first.and_then(|record| record.settling?.after) {
            return vec![mark(at, "steady")];
        }
        let stretches = first.map(Record::stretches).unwrap_or_default();
        // A regime that comes and goes all the time would draw a fence. The table has it.
        let few = stretches.len() <= STRETCHES_MAX;
        stretches.iter().filter(|_| few).map(|stretch| mark(stretch.from, stretch.regime.name())).collect()
    };
    (0..story.plan.sides.len()).flat_map(of).collect()
}
