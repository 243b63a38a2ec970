//! The page: one file that needs nothing else, not even a network. Verdict first.
//!
//! Invariant: each figure is a cell that names its place in `figures.json`, and shows that number rounded.

use super::super::plan::SideName;
use super::super::{Definition, Load, PondCounts, Record, Second, System, Vary};
use super::cells::cell;
use super::picture::{Drawing, LEFT, Line, Mark, Picture, RIGHT, Scale, WIDTH, escaped};
use super::{Story, kinds, limits, settled, tables, unit};
use std::fmt::Write;

const TEMPLATE: &str = include_str!("page.html");
pub(super) const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// A share of the processors' time, with its name.
type Part = (&'static str, fn(&System) -> f64);
/// So many points are drawn over time; the others are in the files.
const OVER_TIME_MAX: usize = 12;
/// So many stretches of a run are marked over time.
const STRETCHES_MAX: usize = 6;

/// The whole page.
pub fn html(story: &Story<'_>, pictures: &[Picture]) -> String {
    let definition = &story.plan.definition;
    let sentences: String = tables::verdict(story).iter().map(|text| format!("<li>{}</li>\n", escaped(text))).collect();
    let figures: String = pictures.iter().map(figure).collect();
    let parts = [
        ("{{STYLE}}", STYLE.to_owned()),
        ("{{TITLE}}", escaped(&definition.title)),
        ("{{QUESTION}}", escaped(&definition.question)),
        ("{{VERDICT}}", sentences),
        ("{{PICTURES}}", figures),
        ("{{FIGURES}}", figures_table(story)),
        ("{{COMPARISONS}}", comparisons_table(story)),
        ("{{KINDS}}", kinds::section(story) + &settled::section(story) + &limits::section(story)),
        ("{{POND}}", pond_table(story)),
        ("{{DOUBTS}}", doubts(story)),
        ("{{ABOUT}}", about(story)),
        ("{{COMMANDS}}", commands(story)),
        // `<` would let a name end the script's element.
        ("{{DATA}}", story.figures.to_string().replace('<', "\\u003c")),
        ("{{SCRIPT}}", SCRIPT.to_owned()),
    ];
    // Replaces marks in the template alone: the parts that go in may hold anything.
    let mut page = String::new();
    let mut rest = TEMPLATE;
    while let Some((at, (mark, part))) =
        parts.iter().filter_map(|part| rest.find(part.0).map(|at| (at, part))).min_by_key(|found| found.0)
    {
        page.push_str(&rest[..at]);
        page.push_str(part);
        rest = &rest[at + mark.len()..];
    }
    page + rest
}

fn figure(picture: &Picture) -> String {
    let legend: String = picture
        .lines
        .iter()
        .map(|line| format!("<span class=\"key c{}\">{}</span>", line.colour % 6, escaped(&line.name)))
        .collect();
    let zoom = matches!(picture.drawing, Drawing::Lines { .. });
    format!(
        "<figure data-zoom=\"{zoom}\" data-left=\"{LEFT}\" data-right=\"{}\"><figcaption><span>{}</span><span class=\"legend\">{legend}</span></figcaption>\n{}</figure>\n",
        WIDTH - RIGHT,
        escaped(&picture.title),
        picture.inline()
    )
}

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
            let mut p99 =
                knee("p99", "99th percentile of the latency, ms (by factors)", "ms", &|record| record.figures.p99_ms);
            p99.scale = Scale::Log;
            pictures.push(p99);
        }
    }
    pictures.extend(bars(story));
    pictures.extend(over_time(story));
    pictures.extend(where_it_went(story));
    pictures.extend(processors(story));
    pictures.retain(|picture| picture.lines.iter().any(|line| !line.points.is_empty()));
    pictures
}

/// The runs of a side at a point.
fn runs<'a>(story: &'a Story<'_>, point: usize, side: usize) -> impl Iterator<Item = &'a Record> {
    story.records.iter().filter(move |record| record.point == point && record.side == side)
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
    (!points.is_empty()).then(|| Picture {
        id: "bars".to_owned(),
        title: format!("Side by side, {}: the median of the runs, and their range", unit(plan)),
        along: String::new(),
        unit: unit(plan).to_owned(),
        scale: Scale::Linear,
        drawing: Drawing::Bars { groups: points.iter().map(|point| plan.title(*point)).collect() },
        lines: plan.sides.iter().enumerate().map(side).collect(),
    })
}

/// The first run of each side over time.
fn over_time(story: &Story<'_>) -> Vec<Picture> {
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

fn figures_table(story: &Story<'_>) -> String {
    let plan = story.plan;
    let mut rows = format!(
        "<tr><th>load</th><th>side</th><th>{}</th><th>least</th><th>most</th><th>variation of the runs</th><th>of averages of 10 s</th><th>of what the origin got in 10 s</th><th>p99, ms</th><th>longest, ms</th><th>bytes written for each</th><th>runs</th><th>steady</th><th>the cache meanwhile</th><th>what was the limit</th></tr>\n",
        unit(plan)
    );
    for (point, cells) in story.judgement.cells.iter().enumerate() {
        for (index, found) in cells.iter().enumerate() {
            let at = |name: &str| cell(story, &format!("/points/{point}/sides/{index}/{name}"));
            let steady = if found.steady.1 == 0 {
                "too short to tell".to_owned()
            } else {
                format!("{} of {}", found.steady.0, found.steady.1)
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                rows,
                "<tr><th>{}</th><th><span class=\"key c{}\">{}</span></th>{}{}{}{}{}{}{}{}{}{}<td>{steady}</td><td class=\"words\">{}</td><td class=\"words\">{}</td></tr>",
                escaped(&plan.title(point)),
                found.side % 6,
                escaped(&plan.sides[found.side].name),
                at("throughput/median"),
                at("throughput/least"),
                at("throughput/most"),
                at("throughput/variation"),
                at("variation_10s"),
                at("origin_variation_10s"),
                at("p99_ms"),
                at("max_ms"),
                at("written_for_each"),
                at("runs"),
                settled::regimes(found),
                escaped(&found.limit)
            );
        }
    }
    rows
}

fn comparisons_table(story: &Story<'_>) -> String {
    let plan = story.plan;
    if story.judgement.comparisons.is_empty() {
        return "<tr><td class=\"words\">One side alone: nothing is compared.</td></tr>".to_owned();
    }
    let mut rows = String::from(
        "<tr><th>load</th><th>side</th><th>against</th><th>times</th><th>from</th><th>to</th><th>p</th><th>p99, times</th><th>bytes written for each, times</th></tr>\n",
    );
    for (index, found) in story.judgement.comparisons.iter().enumerate() {
        let at = |name: &str| cell(story, &format!("/comparisons/{index}/{name}"));
        let _ = writeln!(
            rows,
            "<tr><th>{}</th><th>{}</th><th>{}</th>{}{}{}{}{}{}</tr>",
            escaped(&plan.title(found.point)),
            escaped(&plan.sides[found.side].name),
            escaped(&plan.sides[found.against].name),
            at("ratio"),
            at("interval/0"),
            at("interval/1"),
            at("p"),
            at("p99_ratio"),
            at("written_ratio")
        );
    }
    rows
}

/// Of each run with a mount: what it counted in the part that counts.
fn pond_table(story: &Story<'_>) -> String {
    let mut rows = String::from(
        "<tr><th>run</th><th>load</th><th>side</th><th>blocks from flash</th><th>from the origin</th><th>origin reads</th><th>origin writes</th><th>MiB read there</th><th>MiB written there</th></tr>\n",
    );
    for record in story.records.iter().filter(|record| !record.pond.is_empty()) {
        let gained = |counter: fn(&PondCounts) -> u64| record.gained(counter).unwrap_or(0);
        let _ = writeln!(
            rows,
            "<tr><th>{}</th><th>{}</th><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            record.number,
            escaped(&story.plan.title(record.point)),
            escaped(&story.plan.sides[record.side].name),
            gained(|pond| pond.hit_blocks),
            gained(|pond| pond.miss_blocks),
            gained(|pond| pond.origin_reads),
            gained(|pond| pond.origin_writes),
            gained(|pond| pond.origin_read_bytes) >> 20,
            gained(|pond| pond.origin_write_bytes) >> 20
        );
    }
    rows
}

fn doubts(story: &Story<'_>) -> String {
    let doubts: String = story
        .records
        .iter()
        .flat_map(|record| record.doubts.iter().map(move |doubt| (record.number, doubt)))
        .map(|(number, doubt)| format!("<li>run {number}: {}</li>\n", escaped(doubt)))
        .collect();
    if doubts.is_empty() {
        "<p>The numbers of every run add up: percentiles in order, seconds to the total, requests to bytes.</p>"
            .to_owned()
    } else {
        format!("<p>These numbers do not add up:</p><ul>{doubts}</ul>")
    }
}

fn about(story: &Story<'_>) -> String {
    let plan = story.plan;
    let definition = &plan.definition;
    let mut rows = story.about.to_vec();
    rows.extend(plan.sides.iter().map(|side| (side.name.clone(), plan.targets[side.target].describe())));
    rows.push((
        "what counts".to_owned(),
        format!(
            "{}. {} runs of each side, taking turns. No run and no value is left out.",
            what_counts(story.plan),
            definition.repeats
        ),
    ));
    rows.push((
        "how it is judged".to_owned(),
        format!(
            "Ratios are of medians, with a 95 % interval by bootstrap (seed {}); a difference is claimed where the test of Mann and Whitney gives p < 0.05, with four runs a side at least. Steady is SNIA's rule: five rounds within 20 % of their average, and a slope of 10 % at most.",
            story.seed
        ),
    ));
    rows.push(("load".to_owned(), how_it_asks(definition).to_owned()));
    rows.extend(limits::about(story).map(|text| ("how it is extrapolated".to_owned(), text)));
    rows.extend(settled::about(story).map(|text| ("the cache meanwhile".to_owned(), text)));
    rows.extend(kinds::about(story).map(|text| ("rules".to_owned(), text)));
    if let Some(limit) = definition.write_limit {
        rows.push((
            "flash".to_owned(),
            format!(
                "The lab's own: ext4 on a loop device that takes no more than {limit} MB (1,000,000 bytes) of writes a second while a load runs; reads are not slowed down. Both headpond's pool and what is called flash lie on it."
            ),
        ));
    }
    rows.push((
        "bytes written for each".to_owned(),
        "What the block device under the flash of a mount, or under a bare directory, counted in the part that counts, by the operations in it: whatever else the file system writes there is in it.".to_owned(),
    ));
    if definition.load == Load::Pgbench {
        rows.push((
            "percentiles".to_owned(),
            "pgbench tells the mean latency of each second, and no percentiles.".to_owned(),
        ));
    } else if definition.load.on_database() {
        rows.push(("percentiles over time".to_owned(), "sysbench tells the 95th of each second; 50th, 99th and 99.9th are from its histogram of the part that counts.".to_owned()));
    }
    rows.push(("from".to_owned(), definition.source.clone()));
    rows.iter().map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value))).collect()
}

fn commands(story: &Story<'_>) -> String {
    let of = |record: &Record| {
        let lines: String =
            record.commands.iter().map(|(name, line)| format!("# {}\n{}\n", escaped(name), escaped(line))).collect();
        format!(
            "<h3>run {}: {}, {}</h3>\n<pre>{lines}</pre>\n",
            record.number,
            escaped(&story.plan.sides[record.side].name),
            escaped(&story.plan.title(record.point))
        )
    };
    story.records.iter().filter(|record| record.repetition == 1).map(of).collect()
}

/// Which part of a run counts.
fn what_counts(plan: &super::Plan) -> String {
    let definition = &plan.definition;
    definition.round.map_or_else(
        || {
            format!(
                "{}, which is thrown away by the clock",
                plan.times()
            )
        },
        |round| {
            format!(
                "Of the {} s of each run what comes after it settled: the first round of {round} s from which on every five rounds in a row are steady, up to the end. Of a run that has not settled, the last five rounds",
                definition.seconds
            )
        },
    )
}

/// Whether the load waits for its answers.
fn how_it_asks(definition: &Definition) -> &'static str {
    let rates = definition.cases.iter().filter(|case| case.rate.is_some()).count();
    match (definition.load.on_database(), rates) {
        (true, rates) if rates == definition.cases.len() => {
            "Open loop: transactions are due at random moments at the rate named, whatever became of those before, and a latency counts from then on, the wait for a free client included."
        }
        (true, 1..) => {
            "Where a rate is named an open loop: transactions are due at random moments, and a latency counts from then on. Elsewhere a closed one: a client asks again when it was answered."
        }
        (false, 1..) => {
            "Where a rate is named an open loop: requests are due evenly, whatever became of those before, and a latency counts from when a request was due, sent late or not (by fio's log of every request; lateness below a millisecond is not seen). Before fio waits for the next to be due it lets what is under way end, so one slow answer delays those that were due meanwhile: no latency is too short, and some may be longer than those of users who do not wait for each other. Elsewhere a closed one: a client asks again when it was answered."
        }
        _ => {
            "Closed loop: a client asks again when it was answered, so a stall is one long latency for each client, not one for each request that would have come meanwhile."
        }
    }
}
