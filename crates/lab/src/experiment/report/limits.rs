//! Experiments with different numbers of processors: what ran out, and what more processors would bring.

use super::super::extrapolation::{self, Extrapolation, Limit};
use super::cells::cell;
use super::picture::escaped;
use super::{Plan, Story, short, unit};
use serde_json::{Value, json};
use std::fmt::Write;

/// What `figures.json` says of them.
pub fn figures(plan: &Plan, found: &[Extrapolation]) -> Vec<Value> {
    let of = |one: &Extrapolation| {
        json!({
            "point": plan.title(one.point), "side": plan.sides[one.side].name,
            "throughput": one.throughput, "cores": one.cores, "busy_cores": one.busy, "device_busy": one.device,
            "limit": words(one.limit), "core_ms_each": one.cost_ms, "core_ms_change": one.cost_change,
            "cores_for_a_full_device": one.full.map(|(cores, _)| cores),
            "throughput_of_a_full_device": one.full.map(|(_, throughput)| throughput),
        })
    };
    found.iter().map(of).collect()
}

const fn words(limit: Limit) -> &'static str {
    match limit {
        Limit::Processors => "the processors",
        Limit::Device => "the device",
        Limit::Neither => "neither",
    }
}

/// What the verdict says: for each side what ran out, and where that leads.
pub fn sentences(story: &Story<'_>) -> Vec<String> {
    let sentence = |one: &Extrapolation| {
        let side = &story.plan.sides[one.side].name;
        let device = one.device.map_or("unknown".to_owned(), |share| format!("{:.0} % busy", share * 100.0));
        let at = format!(
            "{side} does most at {} ({} {}), with {} of {} processors at work and the device {device}: ",
            story.plan.title(one.point),
            short(one.throughput),
            unit(story.plan),
            short(one.busy),
            short(one.cores)
        );
        let rest = match (one.limit, one.full) {
            (Limit::Processors, Some((cores, throughput))) => format!(
                "the processors are the limit. The device would be full with {} of them at work, at {} {}, if each went on costing as much of both.",
                short(cores),
                short(throughput),
                unit(story.plan)
            ),
            (Limit::Processors, None) => {
                "the processors are the limit; the device has too little to do to tell what it could.".to_owned()
            }
            (Limit::Device, _) => "the device is the limit.".to_owned(),
            (Limit::Neither, _) => {
                "neither is the limit, it waits for answers (a modelled disk's count as such), so nothing is extrapolated."
                    .to_owned()
            }
        };
        at + &rest
    };
    story.limits.iter().map(sentence).collect()
}

/// A section of the page, or nothing.
pub fn section(story: &Story<'_>) -> String {
    if story.limits.is_empty() {
        return String::new();
    }
    let mut rows = format!(
        "<tr><th>side</th><th>at its best at</th><th>{}</th><th>processors</th><th>at work</th><th>device busy</th><th>a processor's ms for each</th><th>change of that</th><th>processors to fill the device</th><th>{} then</th><th>the limit</th></tr>\n",
        unit(story.plan),
        unit(story.plan)
    );
    for (index, one) in story.limits.iter().enumerate() {
        let at = |name: &str| cell(story, &format!("/limits/{index}/{name}"));
        // Writing to a string does not fail.
        let _ = writeln!(
            rows,
            "<tr><th><span class=\"key c{}\">{}</span></th><th>{}</th>{}{}{}{}{}{}{}{}<td class=\"words\">{}</td></tr>",
            one.side % 6,
            escaped(&story.plan.sides[one.side].name),
            escaped(&story.plan.title(one.point)),
            at("throughput"),
            at("cores"),
            at("busy_cores"),
            at("device_busy"),
            at("core_ms_each"),
            at("core_ms_change"),
            at("cores_for_a_full_device"),
            at("throughput_of_a_full_device"),
            words(one.limit)
        );
    }
    format!(
        "<h2>What was the limit, and what lies behind it</h2>\n<div class=\"scroll\"><table>\n{rows}</table></div>\n"
    )
}

/// The assumption behind the extrapolation, for its readers.
pub fn about(story: &Story<'_>) -> Option<String> {
    if !extrapolation::wanted(story.plan) {
        return None;
    }
    let changes: Vec<String> = story
        .limits
        .iter()
        .filter_map(|one| {
            let change = one.cost_change?;
            Some(format!("{:+.0} % ({})", change * 100.0, story.plan.sides[one.side].name))
        })
        .collect();
    let measured = if changes.is_empty() {
        "It was not put to the test: no side was measured with more processors than another.".to_owned()
    } else {
        format!(
            "From the fewest processors measured to more, a processor's part of it changed by {}.",
            changes.join(", ")
        )
    };
    Some(format!(
        "Assumed: what an operation costs, of a processor and of the device, stays the same however many run at once. {measured} Busy is the share of the time in which the device had something to do; one that serves many at once is not full at 100 %, and goes further than this says. The counters are the machine's: whatever else ran on those processors and used that device is in them."
    ))
}
