//! The result of a session: one page that needs nothing else, its pictures, and every number.
//!
//! ```text
//! report.html        the verdict, pictures, tables, how it was measured
//! pictures/*.svg     each picture by itself
//! figures.json       every number of the page, and every run with its seconds
//! figures.csv        a line for each run
//! ```
//!
//! Invariant: the page takes each number from `figures.json`, and says where it is there.

mod cells;
mod kinds;
mod limits;
mod moments;
mod over_time;
mod page;
pub(in crate::experiment) mod picture;
mod pictures;
mod response;
mod settled;
mod sides;
mod tables;

use super::extrapolation::{Extrapolation, extrapolate};
use super::judge::{SessionJudgement, judge, short};
use super::results::Session;
use super::{Plan, Record, Results};
use crate::failure::{Failure, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// What the report is made of.
struct Story<'a> {
    plan: &'a Plan,
    records: &'a [Record],
    judgement: &'a SessionJudgement,
    /// Where processors are varied: each side at its best.
    limits: &'a [Extrapolation],
    /// `figures.json`.
    figures: &'a Value,
    about: &'a [(String, String)],
    seed: u64,
}

/// The style of every page.
pub(super) const STYLE: &str = page::STYLE;

/// What a session's report is made of, for a page of several.
pub struct ReportParts {
    /// What a reader should take away, most important first.
    pub sentences: Vec<String>,
    /// Its pictures.
    pub pictures: Vec<picture::Picture>,
    /// `figures.json`.
    pub figures: Value,
}

/// What the report of a session says.
///
/// # Errors
/// When no run has ended yet.
pub fn told(results: &Results) -> Result<ReportParts> {
    with_story(results, |story| {
        Ok(ReportParts {
            sentences: tables::verdict(story),
            pictures: pictures::pictures(story),
            figures: story.figures.clone(),
        })
    })
}

/// Writes the report. Returns it as text, and where the page is.
pub fn write(results: &Results) -> Result<(String, PathBuf)> {
    with_story(results, |story| write_story(results.directory(), story))
}

fn with_story<T>(results: &Results, tell: impl FnOnce(&Story<'_>) -> Result<T>) -> Result<T> {
    let plan = results.plan()?;
    let records = results.records()?;
    if records.is_empty() {
        return Err(Failure::Other("no run has ended yet: there is nothing to report".to_owned()));
    }
    let session = results.session();
    let judgement = judge(&plan, &records, session.seed);
    let limits = extrapolate(&plan, &records, &judgement);
    let figures = figures(&plan, &records, &judgement, &limits, session);
    let story = Story {
        plan: &plan,
        records: &records,
        judgement: &judgement,
        limits: &limits,
        figures: &figures,
        about: &session.about,
        seed: session.seed,
    };
    tell(&story)
}

fn write_story(directory: &Path, story: &Story<'_>) -> Result<(String, PathBuf)> {
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(Failure::io(format!("writing {}", path.display())))?;
        Ok(path)
    };
    write("figures.json", story.figures.to_string())?;
    write("figures.csv", tables::csv(story))?;
    let pictures = pictures::pictures(story);
    let folder = directory.join("pictures");
    fs::create_dir_all(&folder).map_err(Failure::io(format!("making {}", folder.display())))?;
    for picture in &pictures {
        write(&format!("pictures/{}.svg", picture.id), picture.file())?;
    }
    let page = write("report.html", page::html(story, &pictures))?;
    Ok((tables::text(story), page))
}

/// Every number, in the order of points and sides.
fn figures(
    plan: &Plan,
    records: &[Record],
    judgement: &SessionJudgement,
    limits: &[Extrapolation],
    session: &Session,
) -> Value {
    let sides: Vec<Value> = plan
        .sides
        .iter()
        .map(|side| json!({"name": side.name, "target": plan.targets[side.target].describe()}))
        .collect();
    let points: Vec<Value> = judgement
        .cells
        .iter()
        .enumerate()
        .map(|(point, cells)| {
            let cells: Vec<Value> = cells.iter().map(|cell| json!({
                "side": plan.sides[cell.side].name,
                "runs": cell.values.len(),
                "throughput": {
                    "values": cell.values, "median": cell.summary.median, "mean": cell.summary.mean,
                    "least": cell.summary.least, "most": cell.summary.most, "variation": cell.summary.variation(),
                },
                "p99_ms": cell.p99_ms, "max_ms": cell.max_ms,
                "response_ms": response::figures(records, point, cell.side),
                "over_time": moments::figures(records, point, cell.side),
                "written_for_each": cell.written, "reads_found": cell.found,
                "variation_10s": cell.variation, "origin_variation_10s": cell.origin_variation,
                "kinds": kinds::figures(records, point, cell.side),
                "steady_runs": cell.steady.0, "judged_runs": cell.steady.1,
                "settled": cell.settled.map(|found| json!({
                    "runs": found.runs.0, "after_s": found.after, "first": found.first, "mean": found.mean,
                    "deviation": found.deviation,
                })),
                "regimes": cell.regimes.map(|[cold, warm, bound]| json!({
                    "cold_fill": cold, "warm": warm, "destage_bound": bound,
                })),
                "limit": cell.limit,
            })).collect();
            json!({"title": plan.title(point), "x": plan.points[point].x, "sides": cells})
        })
        .collect();
    let comparisons: Vec<Value> = judgement
        .comparisons
        .iter()
        .map(|found| {
            json!({
                "point": plan.title(found.point), "side": plan.sides[found.side].name, "against": plan.sides[found.against].name,
                "p99_ratio": found.p99, "written_ratio": found.written,
                "ratio": found.ratio.ratio, "interval": found.ratio.interval, "p": found.test.p,
                "enough_runs": found.enough(), "significant": found.enough() && found.test.significant(),
                "runs": [found.runs.0, found.runs.1],
            })
        })
        .collect();
    json!({
        "experiment": plan.definition, "targets": session.targets, "seed": session.seed, "began": session.began,
        "about": session.about, "unit": unit(plan), "sides": sides, "points": points, "comparisons": comparisons,
        "limits": limits::figures(plan, limits), "runs": records, "runs_planned": plan.runs(),
    })
}

/// What throughput is counted in.
fn unit(plan: &Plan) -> &'static str {
    match plan.definition.load {
        super::Load::Fio => "requests/s",
        super::Load::Oltp | super::Load::Tpcc | super::Load::Pgbench => "transactions/s",
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Definition, Target};
    use super::*;

    /// Tells the story of made-up records of `profiles`, whose sides are a directory and a mount.
    pub(super) fn told<T>(records: &[Record], look: impl FnOnce(&Story<'_>) -> T) -> T {
        told_of(Definition::find("profiles").unwrap(), records, look)
    }

    pub(super) fn told_of<T>(definition: Definition, records: &[Record], look: impl FnOnce(&Story<'_>) -> T) -> T {
        let targets = ["bare=/bare", "pond=headpond:mode=write-back"].map(str::to_owned);
        let parsed = targets.iter().map(|text| Target::parse(text).unwrap()).collect();
        let plan = Plan::of(definition.clone(), parsed).unwrap();
        let session = Session { format: 0, definition, targets: targets.into(), seed: 1, began: 0, about: Vec::new() };
        let judgement = judge(&plan, records, session.seed);
        let limits = extrapolate(&plan, records, &judgement);
        let figures = figures(&plan, records, &judgement, &limits, &session);
        let (about, seed) = (session.about.as_slice(), session.seed);
        let story =
            Story { plan: &plan, records, judgement: &judgement, limits: &limits, figures: &figures, about, seed };
        look(&story)
    }
}
