//! How response times are distributed, as far as each run tells: its percentiles and its longest.

use super::super::{Figures, Record};
use super::picture::{Drawing, Line, Picture, Scale};
use super::sides::{place, runs};
use super::{Story, unit};
use serde_json::{Value, json};

/// A share of the requests, by its name in `figures.json` and in the picture.
type Share = (&'static str, &'static str, fn(&Figures) -> Option<f64>);

const SHARES: [Share; 5] = [
    ("p50", "50 %", |figures| figures.p50_ms),
    ("p95", "95 %", |figures| figures.p95_ms),
    ("p99", "99 %", |figures| figures.p99_ms),
    ("p999", "99.9 %", |figures| figures.p999_ms),
    ("longest", "longest", |figures| figures.max_ms),
];
/// So many runs are named one by one.
const NAMED_MAX: usize = 6;

/// What `figures.json` says of a side's runs at a point: of each share the median of the runs, and their range.
pub fn figures(records: &[Record], point: usize, side: usize) -> Value {
    let of = |(name, _, value): &Share| {
        let runs = records.iter().filter(|record| record.point == point && record.side == side);
        let values: Vec<f64> = runs.filter_map(|record| value(&record.figures)).collect();
        let found = headpond_measure::Summary::of(&values)
            .map(|summary| json!({"median": summary.median, "least": summary.least, "most": summary.most}));
        ((*name).to_owned(), found.into())
    };
    Value::Object(SHARES.iter().map(of).collect())
}

/// The picture of a point.
pub fn picture(story: &Story<'_>, point: usize) -> Picture {
    let line = |side: usize| {
        let mut line = Line {
            name: format!("{}, {}", story.plan.sides[side].name, which(story, point, side)),
            colour: side,
            points: Vec::new(),
            spread: Vec::new(),
        };
        for (at, (name, ..)) in SHARES.iter().enumerate() {
            let figure = |of: &str| {
                let place = format!("{}/response_ms/{name}/{of}", place(story, point, side)?);
                story.figures.pointer(&place)?.as_f64()
            };
            if let (Some(median), Some(least), Some(most)) = (figure("median"), figure("least"), figure("most")) {
                line.points.push((at as f64, median));
                line.spread.push((least, most));
            }
        }
        line
    };
    Picture {
        id: format!("response-{point}"),
        title: format!(
            "{}: response times, ms (by factors): the median of the runs, and their range",
            story.plan.title(point)
        ),
        along: format!("this share of the {} took no longer", unit(story.plan).trim_end_matches("/s")),
        unit: "ms".to_owned(),
        scale: Scale::Log,
        drawing: Drawing::Profile { groups: SHARES.iter().map(|(_, title, _)| (*title).to_owned()).collect() },
        lines: (0..story.plan.sides.len()).map(line).filter(|line| !line.points.is_empty()).collect(),
    }
}

/// The runs of a side by their numbers, or how many there are.
fn which(story: &Story<'_>, point: usize, side: usize) -> String {
    let numbers: Vec<String> = runs(story, point, side).map(|record| record.number.to_string()).collect();
    match numbers.len() {
        1 => format!("run {}", numbers[0]),
        2..=NAMED_MAX => format!("runs {}", numbers.join(", ")),
        count => format!("{count} runs"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::told;
    use super::*;

    fn run(number: u32, side: usize, p50: f64) -> Record {
        let figures = Figures {
            throughput: 1.0,
            p50_ms: Some(p50),
            p95_ms: Some(p50 * 2.0),
            p99_ms: Some(p50 * 3.0),
            p999_ms: Some(p50 * 4.0),
            max_ms: Some(p50 * 50.0),
            ..Figures::default()
        };
        Record { number, side, figures, ..Record::blank() }
    }

    #[test]
    fn each_share_is_the_median_of_the_runs_that_are_named() {
        let records = [run(1, 0, 10.0), run(4, 0, 30.0), run(5, 0, 20.0), run(2, 1, 0.5)];
        told(&records, |story| {
            let picture = picture(story, 0);
            assert_eq!(picture.scale, Scale::Log);
            let names: Vec<&str> = picture.lines.iter().map(|line| line.name.as_str()).collect();
            assert_eq!(names, ["bare, runs 1, 4, 5", "pond, run 2"]);
            assert_eq!(picture.lines[0].points, [(0.0, 20.0), (1.0, 40.0), (2.0, 60.0), (3.0, 80.0), (4.0, 1000.0)]);
            assert_eq!(picture.lines[0].spread[4], (500.0, 1500.0));
            let told = |side: u32, of: &str| story.figures.pointer(&format!("/points/0/sides/{side}/response_ms/{of}"));
            assert_eq!(told(0, "longest/most"), Some(&json!(1500.0)));
            assert_eq!(told(1, "p999/median"), Some(&json!(2.0)));
            let svg = picture.file();
            assert!(svg.contains(">99.9 %<") && svg.contains("pond, run 2 at longest: 25.0 ms"), "{svg}");
        });
    }

    #[test]
    fn a_load_without_percentiles_has_no_such_picture() {
        let blind = Record { figures: Figures { throughput: 1.0, ..Figures::default() }, ..Record::blank() };
        told(&[blind], |story| {
            assert!(picture(story, 0).lines.is_empty(), "and what has no line is not in the page");
            assert_eq!(story.figures.pointer("/points/0/sides/0/response_ms/p50"), Some(&Value::Null));
        });
    }

    #[test]
    fn many_runs_are_counted_and_not_named() {
        let records: Vec<Record> = (1..=7).map(|number| run(number, 0, 1.0)).collect();
        told(&records, |story| assert_eq!(which(story, 0, 0), "7 runs"));
    }
}
