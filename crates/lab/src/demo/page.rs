//! The page of a demo: one file that needs nothing else, not even a network.

use super::Outcome;
use super::chart::{Chart, ChartCurve, Scale};
use super::plan::TABLES_MIB;
use super::side::Side;
use super::table::{self, short};
use crate::pond::Figures;
use crate::statistics::WINDOW_SECONDS;
use crate::sysbench::Second;
use std::fmt::Write;

const TEMPLATE: &str = include_str!("page.html");
pub(super) const STYLE: &str = include_str!("page.css");
pub(super) const SCRIPT: &str = include_str!("page.js");

/// The whole page.
pub fn html(outcome: &Outcome) -> String {
    let charts = charts(outcome);
    let parts = [
        ("{{STYLE}}", STYLE.to_owned()),
        ("{{SCRIPT}}", SCRIPT.to_owned()),
        ("{{SUMMARY}}", summary(outcome)),
        ("{{TILES}}", tiles(outcome)),
        ("{{CHARTS}}", charts.iter().map(figure).collect()),
        ("{{TABLE}}", figures_table(outcome)),
        ("{{RETURN}}", code_marks(&escape(&table::return_home(outcome)))),
        ("{{AVERAGES}}", averages_table(outcome)),
        ("{{SETTINGS}}", settings(outcome)),
        ("{{COMMANDS}}", commands(outcome)),
        ("{{POINTS}}", points(&charts)),
    ];
    filled(TEMPLATE, &parts)
}

/// A template with its parts.
pub(super) fn filled(template: &str, parts: &[(&str, String)]) -> String {
    parts.iter().fold(template.to_owned(), |page, (mark, part)| page.replace(mark, part))
}

/// What the page's script gets.
pub(super) fn points(charts: &[Chart]) -> String {
    let points: Vec<_> = charts.iter().map(Chart::points).collect();
    // `<` would let a name end the script's element.
    serde_json::Value::from(points).to_string().replace('<', "\\u003c")
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Words between backquotes become code.
fn code_marks(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() }).collect()
}

fn summary(outcome: &Outcome) -> String {
    let plan = &outcome.plan;
    format!(
        "sysbench <code>oltp_read_write</code>, {} clients, pareto distribution, {TABLES_MIB} MiB of tables, {} MiB buffer pool. {} \
         {} s of warm-up and {} s that count on each side.",
        plan.load.threads,
        plan.settings.buffer_pool_mib,
        escape(&outcome.storage),
        plan.warmup,
        plan.seconds
    )
}

fn tiles(outcome: &Outcome) -> String {
    let tile = |label: &str, without: String, with: String, unit: &str| {
        format!(
            "<div class=\"tile\"><div class=\"label\">{label}</div><div class=\"pair\"><span class=\"without\">{without}</span>\
             <span class=\"arrow\">&rarr;</span><span class=\"with big\">{with}</span> <span class=\"unit\">{unit}</span></div></div>\n"
        )
    };
    let sides = [&outcome.without, &outcome.with];
    let pair = |value: &dyn Fn(&Side) -> f64| sides.map(|side| short(value(side)));
    let per_transaction = |side: &Side| {
        side.rate(|figures| figures.origin_reads + figures.origin_writes) / side.totals.tps.max(f64::MIN_POSITIVE)
    };
    let ratio = outcome.with.totals.tps / outcome.without.totals.tps.max(f64::MIN_POSITIVE);
    let [tps, tps_with] = pair(&|side| side.totals.tps);
    let [p95, p95_with] = pair(&|side| side.totals.p95_ms);
    let [requests, requests_with] = pair(&per_transaction);
    format!(
        "<div class=\"tile hero\"><div class=\"label\">more transactions</div><div class=\"with big\">{} &times;</div></div>\n",
        short(ratio)
    ) + &tile("transactions per second", tps, tps_with, "")
        + &tile("95th percentile latency", p95, p95_with, "ms")
        + &tile("origin requests per transaction", requests, requests_with, "")
}

fn charts(outcome: &Outcome) -> Vec<Chart> {
    let sides = [(&outcome.without, "without"), (&outcome.with, "with")];
    let curve = |(side, class): (&Side, &'static str), points: Vec<(f64, f64)>, averages| ChartCurve {
        name: side.title,
        class,
        points,
        averages,
    };
    let chart = |id, title, unit, (scale, height), curves| Chart {
        id,
        title,
        unit,
        scale,
        height,
        curves,
        warmup: f64::from(outcome.plan.warmup),
        seconds: f64::from(outcome.plan.warmup + outcome.plan.seconds),
        marks: Vec::new(),
    };
    let requests = |figures: &Figures| figures.origin_reads + figures.origin_writes;
    let mut charts = vec![
        chart("tps", "Transactions per second", "", (Scale::Linear, 300.0), {
            let tps = |side: &Side| side.seconds.iter().map(|second| (second.at, second.tps)).collect();
            sides.map(|(side, class)| curve((side, class), tps(side), averages(outcome, side))).into()
        }),
        chart("latency", "Latency, 95th percentile of each second (logarithmic)", "ms", (Scale::Log, 240.0), {
            // Where sysbench forgets the warm-up it prints a zero for a second that had transactions.
            let told = |second: &&Second| second.p95_ms > 0.0 || second.tps == 0.0;
            let p95 = |side: &Side| side.seconds.iter().filter(told).map(|second| (second.at, second.p95_ms)).collect();
            sides.map(|(side, class)| curve((side, class), p95(side), Vec::new())).into()
        }),
        chart("origin", "Requests to the origin per second, reads and writes", "", (Scale::Linear, 200.0), {
            sides.map(|(side, class)| curve((side, class), side.rates(requests), Vec::new())).into()
        }),
    ];
    if outcome.with.cached {
        let dirty = outcome.with.samples.iter().map(|sample| (sample.at, sample.figures.dirty_blocks as f64 / 256.0));
        let side = (&outcome.with, "with");
        charts.push(chart(
            "hits",
            "Reads found on flash",
            "%",
            (Scale::Linear, 160.0),
            vec![curve(side, hits(&outcome.with), Vec::new())],
        ));
        charts.push(chart(
            "dirty",
            "Newer on flash than on the origin (dirty)",
            "MiB",
            (Scale::Linear, 160.0),
            vec![curve(side, dirty.collect(), Vec::new())],
        ));
    }
    charts
}

/// The averages of the measured part with their places in time.
fn averages(outcome: &Outcome, side: &Side) -> Vec<(f64, f64, f64)> {
    let window = WINDOW_SECONDS as f64;
    let start = |index: usize| f64::from(outcome.plan.warmup) + index as f64 * window;
    side.windows().iter().enumerate().map(|(index, mean)| (start(index), start(index) + window, *mean)).collect()
}

/// The share of blocks found on flash, in percent, of each second.
fn hits(side: &Side) -> Vec<(f64, f64)> {
    let found = side.rates(|figures| figures.hit_blocks);
    let missed = side.rates(|figures| figures.miss_blocks);
    let share = |((at, found), (_, missed)): (&(f64, f64), &(f64, f64))| {
        (found + missed > 0.0).then(|| (*at, 100.0 * found / (found + missed)))
    };
    found.iter().zip(&missed).filter_map(share).collect()
}

pub(super) fn figure(chart: &Chart) -> String {
    let legend: String =
        chart.curves.iter().map(|curve| format!("<span class=\"key {}\">{}</span>", curve.class, curve.name)).collect();
    format!(
        "<figure id=\"figure-{}\"><figcaption><span>{}</span><span class=\"legend\">{legend}</span></figcaption>\n{}</figure>\n",
        chart.id,
        chart.title,
        chart.svg()
    )
}

fn figures_table(outcome: &Outcome) -> String {
    let mut rows = format!(
        "<tr><th></th><th class=\"without\">{}</th><th class=\"with\">{}</th><th>with : without</th></tr>\n",
        outcome.without.title, outcome.with.title
    );
    for row in table::rows(outcome) {
        let [without, with] = &row.values;
        // Writing to a string does not fail.
        let _ =
            writeln!(rows, "<tr><th>{}</th><td>{without}</td><td>{with}</td><td>{}</td></tr>", row.label, row.ratio);
    }
    rows
}

fn averages_table(outcome: &Outcome) -> String {
    let (without, with) = (averages(outcome, &outcome.without), averages(outcome, &outcome.with));
    let row = |((from, to, a), (_, _, b)): (&(f64, f64, f64), &(f64, f64, f64))| {
        format!("<tr><th>{from:.0} s to {to:.0} s</th><td>{}</td><td>{}</td></tr>\n", short(*a), short(*b))
    };
    without.iter().zip(&with).map(row).collect()
}

fn settings(outcome: &Outcome) -> String {
    let plan = &outcome.plan;
    let mut rows: Vec<(String, String)> =
        outcome.versions.iter().map(|(name, version)| ((*name).to_owned(), version.clone())).collect();
    rows.push(("InnoDB, both sides".to_owned(), plan.settings.options().join(" ")));
    rows.push((
        "tables".to_owned(),
        format!(
            "{} tables of {} rows, {TABLES_MIB} MiB: {} times the buffer pool",
            plan.load.tables,
            plan.load.rows,
            TABLES_MIB / plan.settings.buffer_pool_mib
        ),
    ));
    rows.push((
        "what counts".to_owned(),
        format!(
            "Each side starts cold from the same copy of the tables. Its first {} s are thrown away by the clock, not by what they look like; \
             sysbench's own totals of the {} s after that are in the table.",
            plan.warmup, plan.seconds
        ),
    ));
    rows.iter().map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value))).collect()
}

fn commands(outcome: &Outcome) -> String {
    let block = |side: &Side| {
        let lines: String = side.commands.iter().map(|(name, line)| format!("# {name}\n{}\n", escape(line))).collect();
        format!("<h3>{}</h3>\n<pre>{lines}</pre>\n", side.title)
    };
    block(&outcome.without) + &block(&outcome.with)
}
