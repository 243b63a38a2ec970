//! A load with several kinds of transactions, by kind: each figure is the median of the runs.

use super::super::{Load, Record, Transactions, tpcc_load};
use super::cells::cell;
use super::picture::escaped;
use super::{Story, short};
use serde_json::{Value, json};
use std::fmt::Write;

/// What `figures.json` says of a side's runs at a point; empty where there is one kind only.
pub fn figures(records: &[Record], point: usize, side: usize) -> Vec<Value> {
    let runs: Vec<&Record> = records.iter().filter(|record| record.point == point && record.side == side).collect();
    let Some(first) = runs.first() else { return Vec::new() };
    let of = |(number, one): (usize, &Transactions)| {
        let same = || runs.iter().filter_map(|run| run.kinds.get(number));
        let median = |value: fn(&Transactions) -> Option<f64>| {
            let values: Vec<f64> = same().filter_map(value).collect();
            headpond_measure::Summary::of(&values).map(|summary| summary.median)
        };
        json!({
            "kind": one.kind,
            "per_minute": median(|one| Some(one.per_minute)),
            "p50_ms": median(|one| one.p50_ms), "p90_ms": median(|one| one.p90_ms), "p99_ms": median(|one| one.p99_ms),
            "rolled_back": same().map(|one| one.rolled_back).sum::<u64>(),
            "again": same().map(|one| one.again).sum::<u64>(),
        })
    };
    first.kinds.iter().enumerate().map(of).collect()
}

/// A section of the page, or nothing.
pub fn section(story: &Story<'_>) -> String {
    if story.plan.definition.load != Load::Tpcc {
        return String::new();
    }
    let mut rows = String::from(
        "<tr><th>load</th><th>side</th><th>kind</th><th>a minute</th><th>p50, ms</th><th>p90, ms</th><th>p99, ms</th><th>rolled back</th><th>tried again</th></tr>\n",
    );
    for (point, cells) in story.judgement.cells.iter().enumerate() {
        for (index, found) in cells.iter().enumerate() {
            let at = format!("/points/{point}/sides/{index}/kinds");
            let kinds = story.figures.pointer(&at).and_then(Value::as_array);
            for (number, kind) in kinds.into_iter().flatten().enumerate() {
                let value = |name: &str| cell(story, &format!("{at}/{number}/{name}"));
                // Writing to a string does not fail.
                let _ = writeln!(
                    rows,
                    "<tr><th>{}</th><th><span class=\"key c{}\">{}</span></th><th>{}</th>{}{}{}{}{}{}</tr>",
                    escaped(&story.plan.title(point)),
                    found.side % 6,
                    escaped(&story.plan.sides[found.side].name),
                    escaped(kind["kind"].as_str().unwrap_or_default()),
                    value("per_minute"),
                    value("p50_ms"),
                    value("p90_ms"),
                    value("p99_ms"),
                    value("rolled_back"),
                    value("again")
                );
            }
        }
    }
    format!("<h2>By kind of transaction</h2>\n<div class=\"scroll\"><table>\n{rows}</table></div>\n")
}

/// What the verdict says of them: the transaction that the standard counts.
pub fn sentences(story: &Story<'_>) -> Vec<String> {
    let mut sentences = Vec::new();
    for (point, cells) in story.judgement.cells.iter().enumerate() {
        for (index, found) in cells.iter().enumerate() {
            let of = |name: &str| {
                let place = format!("/points/{point}/sides/{index}/kinds/0/{name}");
                story.figures.pointer(&place).and_then(Value::as_f64).map(short)
            };
            if let (Some(orders), Some(p90)) = (of("per_minute"), of("p90_ms")) {
                let side = &story.plan.sides[found.side].name;
                let at = if story.plan.points.len() > 1 { story.plan.title(point) + ": " } else { String::new() };
                sentences
                    .push(format!("{at}{side} takes {orders} new orders a minute; 90 % of them take up to {p90} ms."));
            }
        }
    }
    sentences
}

/// What a reader has to know about the load.
pub fn about(story: &Story<'_>) -> Option<String> {
    let definition = &story.plan.definition;
    if definition.load != Load::Tpcc {
        return None;
    }
    let mut text = String::from(
        "By the rules of TPC-C (standard specification, revision 5.11) but for these: no thinking or keying time, deliveries are carried out at once, no referential constraints. So these figures are no tpmC and cannot be compared with published ones. After each run the consistency conditions (3.3.2, all but the eleventh) are looked at.",
    );
    if let Some(smaller) = tpcc_load::scaled_down(definition) {
        text += " ";
        text += &smaller;
    }
    Some(text)
}
