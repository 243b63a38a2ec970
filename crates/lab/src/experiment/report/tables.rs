//! The figures as lines: for a terminal, and for a spreadsheet.

use super::super::judge::{Comparison, short};
use super::{Story, unit};
use headpond_measure::RUNS_MIN;
use std::fmt::Write;

/// From here on a run was disturbed by others on the machine.
const WAITED_MAX: f64 = 0.10;

/// A line for each run.
pub fn csv(story: &Story<'_>) -> String {
    let mut text = String::from(
        "run,side,load,x,repetition,throughput,operations,seconds,read_bytes,write_bytes,mean_ms,p50_ms,p95_ms,p99_ms,p999_ms,max_ms,steady,variation_10s,origin_variation_10s,settled_after_s,cold_fill,warm,destage_bound,written_for_each,reads_found,waited\n",
    );
    let cell = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    for record in story.records {
        let (figures, point) = (&record.figures, &story.plan.points[record.point]);
        let case = &story.plan.definition.cases[point.case];
        let latencies =
            [figures.mean_ms, figures.p50_ms, figures.p95_ms, figures.p99_ms, figures.p999_ms, figures.max_ms];
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            record.number,
            quoted(&story.plan.sides[record.side].name),
            quoted(&case.name),
            point.x.map_or(String::new(), |x| x.to_string()),
            record.repetition,
            figures.throughput,
            figures.operations,
            figures.seconds,
            figures.read_bytes,
            figures.write_bytes,
            latencies.map(cell).join(","),
            record.steadiness.map_or("", |found| if found.steady { "yes" } else { "no" }),
            cell(record.variation()),
            cell(record.origin_variation()),
            cell(record.settling.and_then(|settling| settling.after)),
            record.regimes().map_or_else(|| ",,".to_owned(), |shares| shares.map(|share| cell(Some(share))).join(",")),
            cell(record.written_for_each()),
            cell(record.share_found()),
            cell(record.waited)
        );
    }
    text
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// The verdict and the figures, for a terminal.
pub fn text(story: &Story<'_>) -> String {
    let plan = story.plan;
    let mut text = String::new();
    for sentence in verdict(story) {
        let _ = writeln!(text, "{sentence}");
    }
    let titles = (0..plan.points.len()).map(|point| plan.title(point).chars().count());
    let width = titles.max().unwrap_or(0).max(4);
    let sides = plan.sides.iter().map(|side| side.name.chars().count()).max().unwrap_or(0).max(4);
    let _ = writeln!(
        text,
        "\n{:width$}  {:sides$}  {:>14}  {:>9}  {:>9}  {:>8}  {:>8}  {:>4}  steady",
        "load",
        "side",
        unit(plan),
        "p99 ms",
        "max ms",
        "10 s var",
        "origin",
        "runs"
    );
    for (point, cells) in story.judgement.cells.iter().enumerate() {
        for cell in cells {
            let of = |value: Option<f64>| value.map_or("-".to_owned(), short);
            let steady = if cell.steady.1 == 0 {
                "too short".to_owned()
            } else {
                format!("{} of {}", cell.steady.0, cell.steady.1)
            };
            let _ = writeln!(
                text,
                "{:width$}  {:sides$}  {:>14}  {:>9}  {:>9}  {:>8}  {:>8}  {:>4}  {steady}",
                plan.title(point),
                plan.sides[cell.side].name,
                short(cell.summary.median),
                of(cell.p99_ms),
                of(cell.max_ms),
                cell.variation.map_or("-".to_owned(), percent),
                cell.origin_variation.map_or("-".to_owned(), percent),
                cell.values.len()
            );
        }
    }
    text
}

/// What else differs between the two sides of a comparison.
fn besides(story: &Story<'_>, found: &Comparison) -> String {
    let mut text = found.p99.map_or(String::new(), |times| format!("; 99th percentile {} times", short(times)));
    if let Some(times) = found.written {
        text += &format!("; {} times the bytes written for each", short(times));
    }
    let variation = |side: usize| {
        story.judgement.cells[found.point].iter().find(|cell| cell.side == side).and_then(|cell| cell.variation)
    };
    if let (Some(this), Some(other)) = (variation(found.side), variation(found.against)) {
        text += &format!("; its averages of 10 s vary by {}, the other's by {}", percent(this), percent(other));
    }
    text
}

/// A share for people.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// What a reader should take away, most important first.
pub fn verdict(story: &Story<'_>) -> Vec<String> {
    let plan = story.plan;
    let comparisons = &story.judgement.comparisons;
    let mut sentences = Vec::new();
    if !comparisons.is_empty() && comparisons.iter().all(|found| !found.enough()) {
        sentences.push(format!(
            "Too few runs of each side to tell any difference from chance: {RUNS_MIN} are needed. As measured, and no more than that:"
        ));
    }
    let few = !sentences.is_empty();
    sentences.extend(comparisons.iter().map(|found| {
        let (side, base) = (&plan.sides[found.side].name, &plan.sides[found.against].name);
        let words = if few { format!("{} times {base}", short(found.ratio.ratio)) } else { found.words(base) };
        format!("{}: {side} {words}{}.", plan.title(found.point), besides(story, found))
    }));
    if sentences.is_empty() {
        for (point, cells) in story.judgement.cells.iter().enumerate() {
            sentences.extend(cells.iter().map(|cell| {
                format!(
                    "{}: {} does {} {}.",
                    plan.title(point),
                    plan.sides[cell.side].name,
                    short(cell.summary.median),
                    unit(plan)
                )
            }));
        }
    }
    sentences.extend(super::kinds::sentences(story));
    sentences.extend(super::limits::sentences(story));
    sentences.extend(super::settled::sentences(story));
    let (judged, steady) = story
        .judgement
        .cells
        .iter()
        .flatten()
        .fold((0, 0), |(judged, steady), cell| (judged + cell.steady.1, steady + cell.steady.0));
    if judged == 0 {
        sentences.push("The runs were too short to say whether they had settled.".to_owned());
    } else if steady < judged {
        sentences.push(format!("Not steady: {} of {judged} runs had not settled by SNIA's rule; their figures would change with more time.", judged - steady));
    }
    let waited: Vec<f64> = story.records.iter().filter_map(|record| record.waited).collect();
    let disturbed = waited.iter().filter(|share| **share > WAITED_MAX).count();
    if disturbed > 0 {
        sentences.push(format!(
            "Disturbed: in {disturbed} of {} runs the guest waited for a processor for more than {:.0} % of the time in \
             which it could have run, half of all runs for more than {:.0} %. A side that needs the processor would do more alone.",
            waited.len(),
            WAITED_MAX * 100.0,
            headpond_measure::median(&waited).unwrap_or(0.0) * 100.0
        ));
    }
    let doubts = story.records.iter().filter(|record| !record.doubts.is_empty()).count();
    if doubts > 0 {
        sentences.push(format!("{doubts} runs have numbers that do not add up: see below."));
    }
    if story.records.len() < plan.runs() {
        sentences.push(format!(
            "This is part of a session: {} of {} runs have ended.",
            story.records.len(),
            plan.runs()
        ));
    }
    sentences
}
