//! Pictures over time: each run of a side thin, and the median of each moment thick.
//!
//! Invariant: the thick lines are the series of `figures.json`.

use super::super::Record;
use super::super::plan::SideName;
use super::moments::{self, Moments, Series};
use super::picture::{Drawing, Line, Mark, Picture, Scale};
use super::sides::{place, runs, scale};
use super::{Story, response, unit};
use serde_json::Value;

/// So begins the name of a picture of one side at one point: there are many of them.
pub const BY_SIDE: &str = "side-";
/// So many points are drawn over time; the others are in the files.
const OVER_TIME_MAX: usize = 12;
/// A stretch that is shorter, in seconds, is the rest of a window.
const STRETCH_MIN: f64 = 1.0;
/// So many stretches of a run are marked over time.
const STRETCHES_MAX: usize = 6;

/// The colours of flash, of the origin and of both, as where all reads went has them.
const ANSWERED: [(&str, usize, Series); 3] =
    [("from flash", 1, moments::FROM_FLASH), ("from the origin", 0, moments::FROM_ORIGIN), ("all", 5, moments::READS)];

/// What processors do, from below, in the colours that their whole time has.
const LAYERS: [(&str, usize, Series); 3] =
    [("programs", 1, moments::USER), ("kernel", 2, moments::SYSTEM), ("waiting for I/O", 3, moments::WAITING)];

/// All of them, with what else there is of the same points.
pub fn over_time(story: &Story<'_>) -> Vec<Picture> {
    let plan = story.plan;
    let drawn = if plan.points.len() > OVER_TIME_MAX {
        // Of each curve its last point, where the load is highest.
        let last = |case: usize| plan.points.iter().rposition(|point| point.case == case);
        (0..plan.definition.cases.len()).filter_map(last).collect()
    } else {
        (0..plan.points.len()).collect::<Vec<_>>()
    };
    drawn.into_iter().flat_map(|point| OfPoint::new(story, point).pictures()).collect()
}

/// The pictures of a point.
struct OfPoint<'a> {
    story: &'a Story<'a>,
    point: usize,
    moments: Moments,
}

impl<'a> OfPoint<'a> {
    fn new(story: &'a Story<'a>, point: usize) -> Self {
        let moments = Moments::of(story.records.iter().filter(|record| record.point == point));
        Self { story, point, moments }
    }

    fn pictures(&self) -> Vec<Picture> {
        let unit = unit(self.story.plan);
        let cells = &self.story.judgement.cells[self.point];
        let (scale, title) = scale(unit, cells.iter().map(|cell| cell.summary.median));
        let mut time = self.by_side("time", &title, unit, scale, &moments::THROUGHPUT);
        if let Drawing::OverTime { marks, .. } = &mut time.drawing {
            *marks = self.marks();
        }
        let mut pictures = vec![
            time,
            self.by_side("time-p95", &self.percentile(), "ms", Scale::Log, &moments::P95),
            response::picture(self.story, self.point),
            self.found(),
        ];
        pictures.extend((0..self.story.plan.sides.len()).map(|side| self.answered(side)));
        pictures.extend((0..self.story.plan.sides.len()).map(|side| self.processors(side)));
        pictures
    }

    /// The share of the reads that a cache answered.
    fn found(&self) -> Picture {
        let mut picture =
            self.by_side("time-found", "reads found in the cache, %", "%", Scale::Linear, &moments::FOUND);
        let percent = |line: &mut Line| line.points.iter_mut().for_each(|point| point.1 *= 100.0);
        picture.lines.iter_mut().for_each(percent);
        if let Drawing::OverTime { runs, .. } = &mut picture.drawing {
            runs.iter_mut().for_each(percent);
        }
        // A side without a cache needs no name.
        picture.lines.retain(|line| !line.points.is_empty());
        picture
    }

    /// Where reads of a side were answered.
    fn answered(&self, side: usize) -> Picture {
        let plan = self.story.plan;
        let counted = runs(self.story, self.point, side).any(|run| !run.pond.is_empty());
        let (what, unit) = if counted {
            ("blocks of 4 KiB a second", "blocks/s")
        } else {
            ("as the cache counts them, a second", "/s")
        };
        let runs = ANSWERED.iter().flat_map(|(_, colour, series)| self.runs(side, *colour, series)).collect();
        let line = |(name, colour, series): &(&str, usize, Series)| self.line(name, *colour, &self.told(side, series));
        Picture {
            id: format!("{BY_SIDE}reads-{}-{side}", self.point),
            title: format!(
                "{}, {}, over time: where reads were answered, {what}",
                plan.title(self.point),
                plan.sides[side].name
            ),
            along: "seconds".to_owned(),
            unit: unit.to_owned(),
            scale: Scale::Linear,
            drawing: Drawing::OverTime { warmup: self.warmup(), marks: Vec::new(), runs },
            lines: ANSWERED.iter().map(line).collect(),
        }
    }

    /// What the processors did while a side ran.
    fn processors(&self, side: usize) -> Picture {
        let plan = self.story.plan;
        let line = |(name, colour, series): &(&str, usize, Series)| {
            let mut line = self.line(name, *colour, &self.told(side, series));
            line.points.iter_mut().for_each(|point| point.1 *= 100.0);
            line
        };
        Picture {
            id: format!("{BY_SIDE}processors-{}-{side}", self.point),
            title: format!(
                "{}, {}, over time: what the processors did, % (blank: idle)",
                plan.title(self.point),
                plan.sides[side].name
            ),
            along: "seconds".to_owned(),
            unit: "%".to_owned(),
            scale: Scale::Linear,
            drawing: Drawing::Layers { warmup: self.warmup() },
            lines: LAYERS.iter().map(line).collect(),
        }
    }

    fn percentile(&self) -> String {
        let of = match self.moments.step() {
            1.0 => "each second".to_owned(),
            step => format!("the worst second in each {step} s"),
        };
        format!("95th percentile of {of}, ms (by factors)")
    }

    /// A line for each side, without marks.
    fn by_side(&self, id: &str, what: &str, unit: &str, scale: Scale, series: &Series) -> Picture {
        let line = |(side, name): (usize, &SideName)| self.line(&name.name, side, &self.told(side, series));
        let sides = &self.story.plan.sides;
        let thin = (0..sides.len()).flat_map(|side| self.runs(side, side, series)).collect();
        Picture {
            id: format!("{id}-{}", self.point),
            title: format!("{}, over time: {what}", self.story.plan.title(self.point)),
            along: "seconds".to_owned(),
            unit: unit.to_owned(),
            scale,
            drawing: Drawing::OverTime { warmup: self.warmup(), marks: Vec::new(), runs: thin },
            lines: sides.iter().enumerate().map(line).collect(),
        }
    }

    fn line(&self, name: &str, colour: usize, values: &[Option<f64>]) -> Line {
        Line { name: name.to_owned(), colour, points: self.moments.points(values), spread: Vec::new() }
    }

    /// What `figures.json` says of a side.
    fn told(&self, side: usize, series: &Series) -> moments::Values {
        let place = place(self.story, self.point, side).map(|place| format!("{place}/over_time/{}", series.name));
        let values = place.and_then(|place| self.story.figures.pointer(&place)).and_then(Value::as_array);
        values.into_iter().flatten().map(Value::as_f64).collect()
    }

    /// The runs of a side one by one, where there are several.
    fn runs(&self, side: usize, colour: usize, series: &Series) -> Vec<Line> {
        let runs: Vec<&Record> = runs(self.story, self.point, side).collect();
        let several = if runs.len() > 1 { runs.as_slice() } else { &[] };
        several.iter().map(|run| self.line("", colour, &(series.of)(&self.moments, run))).collect()
    }

    /// Up to where all runs were warming up.
    fn warmup(&self) -> Option<f64> {
        let records = self.story.records.iter().filter(|record| record.point == self.point);
        records.map(|record| record.warmup).reduce(f64::min)
    }

    /// Where a side settled, by the median of its runs, and where the cache of its first run came into another regime.
    fn marks(&self) -> Vec<Mark> {
        let of = |side: usize| {
            let sides = &self.story.plan.sides;
            let name = if sides.len() > 1 { format!("{}: ", sides[side].name) } else { String::new() };
            let mark = |at: f64, text: String| Mark { at, line: side, text };
            let cell = self.story.judgement.cells[self.point].iter().find(|cell| cell.side == side);
            if let Some(at) = cell.and_then(|cell| cell.settled?.after) {
                return vec![mark(at, format!("{name}steady"))];
            }
            let mut all = runs(self.story, self.point, side);
            let Some(first) = all.next() else { return Vec::new() };
            let run = all.next().map_or(String::new(), |_| format!(" (run {})", first.number));
            let stretches = first.stretches();
            // A regime that comes and goes all the time would draw a fence. The table has it.
            let few = stretches.len() <= STRETCHES_MAX;
            let text = |stretch: &super::super::Stretch| format!("{name}{}{run}", stretch.regime.name());
            stretches
                .iter()
                .filter(|one| few && one.to - one.from >= STRETCH_MIN)
                .map(|stretch| mark(stretch.from, text(stretch)))
                .collect()
        };
        (0..self.story.plan.sides.len()).flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{PondCounts, Second, System};
    use super::super::tests::told;
    use super::*;

    /// Three seconds of a run, with a cache that fills.
    fn run(number: u32, side: usize, rates: [f64; 3]) -> Record {
        let second = |(index, rate): (usize, &f64)| Second {
            at: index as f64 + 1.0,
            throughput: *rate,
            p95_ms: Some(1000.0 / rate),
            p99_ms: None,
        };
        // Of 40 reads in each second one more is found than in the second before.
        let pond = |at: u32| PondCounts {
            at: f64::from(at),
            held_blocks: 1 + u64::from(at),
            hit_blocks: u64::from(at * (at + 1) / 2),
            miss_blocks: u64::from(at * 40 - at * (at + 1) / 2),
            ..PondCounts::default()
        };
        Record {
            number,
            side,
            warmup: 1.0,
            seconds: rates.iter().enumerate().map(second).collect(),
            pond: if side == 1 { (0..=3).map(pond).collect() } else { Vec::new() },
            ..Record::blank()
        }
    }

    fn records() -> Vec<Record> {
        vec![
            run(1, 0, [10.0, 20.0, 30.0]),
            run(4, 0, [12.0, 10.0, 31.0]),
            run(5, 0, [50.0, 15.0, 32.0]),
            run(2, 1, [40.0, 41.0, 42.0]),
        ]
    }

    fn pictured<T>(id: &str, records: &[Record], look: impl FnOnce(&Picture, &Story<'_>) -> T) -> T {
        told(records, |story| {
            let pictures = over_time(story);
            look(pictures.iter().find(|picture| picture.id == id).unwrap(), story)
        })
    }

    fn thin(picture: &Picture) -> &[Line] {
        let Drawing::OverTime { runs, .. } = &picture.drawing else { panic!("{picture:?}") };
        runs
    }

    #[test]
    fn all_runs_are_thin_and_their_median_is_that_of_the_figures() {
        pictured("time-0", &records(), |picture, story| {
            assert_eq!(picture.lines[0].points, [(1.0, 12.0), (2.0, 15.0), (3.0, 31.0)]);
            let told = story.figures.pointer("/points/0/sides/0/over_time/throughput").unwrap();
            assert_eq!(*told, serde_json::json!([12.0, 15.0, 31.0]));
            let of = |colour: usize| thin(picture).iter().filter(|run| run.colour == colour).count();
            assert_eq!((of(0), of(1)), (3, 0), "a run alone is its own median");
            assert_eq!(thin(picture)[1].points[1], (2.0, 10.0));
            assert_eq!(picture.lines[1].points[2], (3.0, 42.0));
        });
        pictured("time-p95-0", &records(), |picture, _| {
            assert_eq!(picture.scale, Scale::Log);
            assert!(picture.title.contains("of each second, ms (by factors)"), "{}", picture.title);
        });
    }

    #[test]
    fn a_side_on_the_floor_is_seen_over_time_as_well() {
        let of = |median: f64| {
            let mut records = records();
            records.iter_mut().for_each(|record| record.figures.throughput = 10.0);
            records[3].figures.throughput = median;
            pictured("time-0", &records, |picture, _| {
                (picture.scale, picture.title.ends_with("requests/s (by factors)"))
            })
        };
        assert_eq!([of(200.0), of(201.0)], [(Scale::Linear, false), (Scale::Log, true)]);
    }

    #[test]
    fn reads_are_told_by_where_they_were_answered_and_the_ratio_by_side() {
        pictured("side-reads-0-1", &records(), |picture, story| {
            let lines: Vec<_> = picture.lines.iter().map(|line| (line.name.as_str(), line.points.clone())).collect();
            let of = |values: [f64; 3]| vec![(1.0, values[0]), (2.0, values[1]), (3.0, values[2])];
            assert_eq!(lines[0], ("from flash", of([1.0, 2.0, 3.0])));
            assert_eq!(lines[1], ("from the origin", of([39.0, 38.0, 37.0])));
            assert_eq!(lines[2], ("all", of([40.0, 40.0, 40.0])));
            let told = story.figures.pointer("/points/0/sides/1/over_time/reads_from_origin").unwrap();
            assert_eq!(*told, serde_json::json!([39.0, 38.0, 37.0]));
        });
        pictured("time-found-0", &records(), |picture, story| {
            let told = story.figures.pointer("/points/0/sides/1/over_time/reads_found/2").and_then(Value::as_f64);
            assert_eq!((picture.lines.len(), picture.lines[0].points[2].1), (1, told.unwrap() * 100.0));
            assert_eq!(picture.lines[0].name, "pond");
        });
        told(&records(), |story| {
            let without = |picture: &Picture| picture.id == "side-reads-0-0" && !picture.lines[0].points.is_empty();
            assert!(!over_time(story).iter().any(without), "a directory has no cache");
        });
    }

    #[test]
    fn the_processors_time_is_in_layers_that_are_the_means_of_the_runs() {
        let mut records = records();
        for (index, record) in records.iter_mut().take(2).enumerate() {
            let (user, system) = (0.25 + 0.5 * index as f64, 0.125);
            let of = |at: u32| System { at: f64::from(at), user, system, ..System::default() };
            record.system = (1..=3).map(of).collect();
        }
        pictured("side-processors-0-0", &records, |picture, story| {
            let of = |line: usize| picture.lines[line].points[2];
            assert_eq!([of(0), of(1), of(2)], [(3.0, 50.0), (3.0, 12.5), (3.0, 0.0)]);
            let told = |name: &str| story.figures.pointer(&format!("/points/0/sides/0/over_time/processors_{name}/2"));
            assert_eq!(
                [told("user"), told("system")].map(|share| share.and_then(Value::as_f64)),
                [Some(0.5), Some(0.125)]
            );
            assert!(picture.title.contains("idle"), "{}", picture.title);
        });
    }

    #[test]
    fn a_mark_says_of_which_run_it_is_where_there_are_several() {
        let texts = |records: &[Record]| {
            pictured("time-0", records, |picture, _| {
                let Drawing::OverTime { marks, .. } = &picture.drawing else { panic!("{picture:?}") };
                marks.iter().map(|mark| mark.text.clone()).collect::<Vec<_>>()
            })
        };
        let mut records = records();
        assert_eq!(texts(&records), ["pond: cold fill"]);
        records.push(run(3, 1, [40.0, 41.0, 42.0]));
        assert_eq!(texts(&records), ["pond: cold fill (run 2)"]);
    }
}
