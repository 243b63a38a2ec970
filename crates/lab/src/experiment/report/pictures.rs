//! The pictures of a session, in the order of the page.

use super::super::plan::SideName;
use super::super::{Record, System, Vary};
use super::over_time::over_time;
use super::picture::{Drawing, Line, Picture, Scale};
use super::sides::{runs, scale};
use super::{Story, unit};

/// A share of the processors' time, with its name.
type Part = (&'static str, fn(&System) -> f64);

/// All pictures of a session.
pub fn pictures(story: &Story<'_>) -> Vec<Picture> {
    let mut pictures = Vec::new();
    let plan = story.plan;
    for (case, of) in plan.definition.cases.iter().enumerate() {
        if let Some(vary) = of.vary {
            let name = |what: &str| format!("{}: {what}", of.name);
            let knee = |id: &str, what: &str, unit: &str, value: &dyn Fn(&Record) -> Option<f64>| Picture {
                id: format!("{id}-{case}"),
                title: name(what),
                along: vary.title().to_owned(),
                unit: unit.to_owned(),
                scale: Scale::Linear,
                drawing: Drawing::Lines {
                    scale: if vary == Vary::Used { Scale::Linear } else { Scale::Log },
                    warmup: None,
                    marks: Vec::new(),
                },
                lines: lines_over_x(story, case, value),
            };
            pictures.push(knee("throughput", unit(plan), unit(plan), &|record| Some(record.figures.throughput)));
            let percentile = |id: &str, what: &str, value: fn(&Record) -> Option<f64>| {
                let what = format!("{what} percentile of the latency, ms (by factors)");
                Picture { scale: Scale::Log, ..knee(id, &what, "ms", &value) }
            };
            pictures.push(percentile("p95", "95th", |record| record.figures.p95_ms));
            pictures.push(percentile("p99", "99th", |record| record.figures.p99_ms));
        }
    }
    pictures.extend(bars(story));
    pictures.extend(over_time(story));
    pictures.extend(where_it_went(story));
    pictures.extend(processors(story));
    pictures.retain(|picture| picture.lines.iter().any(|line| !line.points.is_empty()));
    pictures
}

/// A median with the least and the most.
fn spread(values: &[f64]) -> Option<(f64, (f64, f64))> {
    let summary = headpond_measure::Summary::of(values)?;
    Some((summary.median, (summary.least, summary.most)))
}

fn lines_over_x(story: &Story<'_>, case: usize, value: &dyn Fn(&Record) -> Option<f64>) -> Vec<Line> {
    let plan = story.plan;
    let side = |(index, name): (usize, &SideName)| {
        let mut line = Line { name: name.name.clone(), colour: index, points: Vec::new(), spread: Vec::new() };
        for (number, point) in plan.points.iter().enumerate().filter(|(_, point)| point.case == case) {
            let values: Vec<f64> = runs(story, number, index).filter_map(value).collect();
            if let (Some(x), Some((median, range))) = (point.x, spread(&values)) {
                line.points.push((f64::from(x), median));
                line.spread.push(range);
            }
        }
        line
    };
    plan.sides.iter().enumerate().map(side).collect()
}

/// Loads without an axis, side by side.
fn bars(story: &Story<'_>) -> Option<Picture> {
    let plan = story.plan;
    let points: Vec<usize> = (0..plan.points.len()).filter(|point| plan.points[*point].x.is_none()).collect();
    let side = |(index, name): (usize, &SideName)| {
        let mut line = Line { name: name.name.clone(), colour: index, points: Vec::new(), spread: Vec::new() };
        for (group, point) in points.iter().enumerate() {
            let values: Vec<f64> = runs(story, *point, index).map(|record| record.figures.throughput).collect();
            if let Some((median, range)) = spread(&values) {
                line.points.push((group as f64, median));
                line.spread.push(range);
            }
        }
        line
    };
    let medians = points.iter().flat_map(|point| &story.judgement.cells[*point]).map(|cell| cell.summary.median);
    let (scale, unit_title) = scale(unit(plan), medians);
    (!points.is_empty()).then(|| Picture {
        id: "bars".to_owned(),
        title: format!("Side by side, {unit_title}: the median of the runs, and their range"),
        along: String::new(),
        unit: unit(plan).to_owned(),
        scale,
        drawing: Drawing::Bars { groups: points.iter().map(|point| plan.title(*point)).collect() },
        lines: plan.sides.iter().enumerate().map(side).collect(),
    })
}

/// Where the blocks that reads asked for were found, in percent.
fn where_it_went(story: &Story<'_>) -> Option<Picture> {
    let plan = story.plan;
    let mut groups = Vec::new();
    let mut lines = ["from flash", "from the origin"]
        .iter()
        .enumerate()
        .map(|(colour, name)| Line {
            name: (*name).to_owned(),
            colour: 1 - colour,
            points: Vec::new(),
            spread: Vec::new(),
        })
        .collect::<Vec<_>>();
    for point in 0..plan.points.len() {
        for side in 0..plan.sides.len() {
            let reads = runs(story, point, side).filter_map(Record::reads_found);
            let (hits, misses) =
                reads.fold((0.0, 0.0), |(hits, misses), (found, missed)| (hits + found as f64, misses + missed as f64));
            if hits + misses > 0.0 {
                let at = groups.len() as f64;
                groups.push(format!("{}: {}", plan.sides[side].name, plan.title(point)));
                lines[0].points.push((at, 100.0 * hits / (hits + misses)));
                lines[1].points.push((at, 100.0 * misses / (hits + misses)));
            }
        }
    }
    stacks("reads", "Where reads found their data, % (of blocks, or as the cache counts them)", groups, lines)
}

/// What the processors did, in percent.
fn processors(story: &Story<'_>) -> Option<Picture> {
    let plan = story.plan;
    let parts: [Part; 3] = [
        ("programs", |system| system.user),
        ("kernel", |system| system.system),
        ("waiting for I/O", |system| system.waiting),
    ];
    let mut groups = Vec::new();
    let mut lines: Vec<Line> = parts
        .iter()
        .enumerate()
        .map(|(colour, (name, _))| Line {
            name: (*name).to_owned(),
            colour: colour + 1,
            points: Vec::new(),
            spread: Vec::new(),
        })
        .collect();
    for point in 0..plan.points.len() {
        for side in 0..plan.sides.len() {
            let mean = |value: fn(&System) -> f64| {
                let means: Vec<f64> = runs(story, point, side)
                    .filter_map(|record| record.machine(|system| Some(value(system))))
                    .collect();
                headpond_measure::Summary::of(&means).map(|summary| summary.mean * 100.0)
            };
            if mean(parts[0].1).is_some() {
                let at = groups.len() as f64;
                groups.push(format!("{}: {}", plan.sides[side].name, plan.title(point)));
                for (line, (_, value)) in lines.iter_mut().zip(&parts) {
                    line.points.extend(mean(*value).map(|mean| (at, mean)));
                }
            }
        }
    }
    stacks("processors", "What the processors did, % of their time", groups, lines)
}

fn stacks(id: &str, title: &str, groups: Vec<String>, lines: Vec<Line>) -> Option<Picture> {
    (!groups.is_empty()).then(|| Picture {
        id: id.to_owned(),
        title: title.to_owned(),
        along: String::new(),
        unit: "%".to_owned(),
        scale: Scale::Linear,
        drawing: Drawing::Stacks { groups },
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::{Definition, Figures};
    use super::super::tests::told_of;
    use super::*;

    fn run(point: usize, side: usize, throughput: f64) -> Record {
        let (p95_ms, p99_ms) = (Some(throughput / 10.0), Some(throughput));
        Record { point, side, figures: Figures { throughput, p95_ms, p99_ms, ..Figures::default() }, ..Record::blank() }
    }

    #[test]
    fn a_side_on_the_floor_makes_the_axis_one_by_factors() {
        let bars = |lesser: f64| {
            told_of(Definition::find("profiles").unwrap(), &[run(0, 0, lesser), run(0, 1, 2_000.0)], |story| {
                let bars = bars(story).unwrap();
                (bars.scale, bars.title)
            })
        };
        let (even, title) = bars(100.0);
        assert_eq!(
            (even, title.as_str()),
            (Scale::Linear, "Side by side, requests/s: the median of the runs, and their range")
        );
        let (factors, title) = bars(99.0);
        assert_eq!(factors, Scale::Log);
        assert!(title.contains("requests/s (by factors)"), "{title}");
        assert_eq!(scale("x", [0.0, 5.0].into_iter()), (Scale::Linear, "x".to_owned()), "nothing is no factor");
    }

    #[test]
    fn each_percentile_over_threads_is_that_of_the_figures() {
        let records = [run(0, 0, 100.0), run(0, 0, 140.0), run(1, 0, 300.0), run(0, 1, 90.0)];
        told_of(Definition::find("fileio").unwrap(), &records, |story| {
            let pictures = pictures(story);
            for (id, name) in [("p95-0", "p95"), ("p99-0", "p99")] {
                let picture = pictures.iter().find(|picture| picture.id == id).unwrap();
                assert_eq!((picture.scale, picture.lines.len()), (Scale::Log, 2), "{id}");
                let told = |point: u32| {
                    let place = format!("/points/{point}/sides/0/response_ms/{name}/median");
                    story.figures.pointer(&place).and_then(serde_json::Value::as_f64).unwrap()
                };
                assert_eq!(picture.lines[0].points, [(1.0, told(0)), (2.0, told(1))], "{id}");
            }
            let p95 = pictures.iter().find(|picture| picture.id == "p95-0").unwrap();
            assert_eq!((p95.lines[0].points[0].1, p95.lines[0].spread[0]), (12.0, (10.0, 14.0)));
            assert!(p95.title.contains("95th percentile"), "{}", p95.title);
        });
    }
}
