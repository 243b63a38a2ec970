//! Whether a run shows the steady state: where it settled, and what its cache did while it counted.

use super::super::judge::Cell;
use super::super::regime::Regime;
use super::cells::cell;
use super::picture::escaped;
use super::{Story, short, unit};
use std::fmt::Write;

/// From this share of the measured time on, the verdict mentions a cache that fills.
const FILLING_TOLD: f64 = 0.2;

/// What the cache was doing in the part that counts, in words.
pub fn regimes(found: &Cell) -> String {
    let Some(shares) = found.regimes else { return "-".to_owned() };
    let told: Vec<String> = Regime::ALL
        .iter()
        .zip(shares)
        .filter(|(_, share)| *share >= 0.005)
        .map(|(regime, share)| format!("{} {:.0} %", regime.name(), share * 100.0))
        .collect();
    told.join(", ")
}

/// What the verdict says of runs that go on until they are steady, and of caches that were still filling.
pub fn sentences(story: &Story<'_>) -> Vec<String> {
    let plan = story.plan;
    let mut sentences = Vec::new();
    for (point, cells) in story.judgement.cells.iter().enumerate() {
        for found in cells {
            let name = format!("{}: {}", plan.title(point), plan.sides[found.side].name);
            if let Some(settled) = found.settled {
                let rest = format!(
                    "{} {}, standard deviation {}; at first {}",
                    short(settled.mean),
                    unit(plan),
                    short(settled.deviation),
                    short(settled.first)
                );
                sentences.push(match settled.after {
                    Some(after) if settled.runs.0 == settled.runs.1 => {
                        format!("{name} settles after {} s: from there on {rest}.", short(after))
                    }
                    Some(after) => format!(
                        "{name} settles in {} of {} runs, after {} s: {rest}.",
                        settled.runs.0,
                        settled.runs.1,
                        short(after)
                    ),
                    None => format!("{name} is not steady: it never settled. Its last five rounds: {rest}."),
                });
            } else if let Some([filling, ..]) = found.regimes.filter(|shares| shares[0] >= FILLING_TOLD) {
                sentences.push(format!(
                    "{name} was still filling its cache for {:.0} % of the time that counts.",
                    filling * 100.0
                ));
            }
        }
    }
    sentences
}

/// A section of the page, or nothing.
pub fn section(story: &Story<'_>) -> String {
    let plan = story.plan;
    if plan.definition.round.is_none() {
        return String::new();
    }
    let mut rows = format!(
        "<tr><th>load</th><th>side</th><th>runs that settled</th><th>after, s</th><th>{} at first</th><th>from there on</th><th>standard deviation</th></tr>\n",
        unit(plan)
    );
    for (point, cells) in story.judgement.cells.iter().enumerate() {
        for (index, found) in cells.iter().enumerate() {
            let at = |name: &str| cell(story, &format!("/points/{point}/sides/{index}/settled/{name}"));
            // Writing to a string does not fail.
            let _ = writeln!(
                rows,
                "<tr><th>{}</th><th><span class=\"key c{}\">{}</span></th>{}{}{}{}{}</tr>",
                escaped(&plan.title(point)),
                found.side % 6,
                escaped(&plan.sides[found.side].name),
                at("runs"),
                at("after_s"),
                at("first"),
                at("mean"),
                at("deviation")
            );
        }
    }
    format!("<h2>How it settled</h2>\n<div class=\"scroll\"><table>\n{rows}</table></div>\n")
}

/// What the regimes are, where a cache was measured.
pub fn about(story: &Story<'_>) -> Option<String> {
    let any = story.judgement.cells.iter().flatten().any(|cell| cell.regimes.is_some());
    any.then(|| {
        "By the mount's counters, in windows of 5 s. Destage-bound: more than one operation in a hundred had to wait for room or for destage. Cold fill: else, what the pool holds grew by more than a hundredth, and more than two in a hundred of the blocks that were read, if any, were missing. Warm: else.".to_owned()
    })
}
