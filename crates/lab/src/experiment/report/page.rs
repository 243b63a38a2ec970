//! The page: one file that needs nothing else, not even a network. Verdict first.
//!
//! Invariant: each figure is a cell that names its place in `figures.json`, and shows that number rounded.

use super::super::{Definition, Load, PondCounts, Record};
use super::cells::cell;
use super::over_time::BY_SIDE;
use super::picture::{Drawing, LEFT, Picture, RIGHT, WIDTH, escaped};
use super::{Story, kinds, limits, settled, tables, unit};
use std::fmt::Write;

const TEMPLATE: &str = include_str!("page.html");
pub(super) const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// So many pictures of one side at one point are shown unasked.
const BY_SIDE_MAX: usize = 12;

/// The whole page.
pub fn html(story: &Story<'_>, pictures: &[Picture]) -> String {
    let definition = &story.plan.definition;
    let sentences: String = tables::verdict(story).iter().map(|text| format!("<li>{}</li>\n", escaped(text))).collect();
    let parts = [
        ("{{STYLE}}", STYLE.to_owned()),
        ("{{TITLE}}", escaped(&definition.title)),
        ("{{QUESTION}}", escaped(&definition.question)),
        ("{{VERDICT}}", sentences),
        ("{{PICTURES}}", gallery(pictures)),
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

/// The pictures in their order. Those of one side at one point can be folded, and are where there are many.
fn gallery(pictures: &[Picture]) -> String {
    let by_side = |picture: &Picture| picture.id.starts_with(BY_SIDE);
    let open = if pictures.iter().filter(|picture| by_side(picture)).count() > BY_SIDE_MAX { "" } else { " open" };
    let part = |part: &[Picture]| {
        let figures: String = part.iter().map(figure).collect();
        if by_side(&part[0]) {
            format!(
                "<details{open}>\n<summary>Side by side over time: where reads were answered, what the processors did ({} pictures)</summary>\n{figures}</details>\n",
                part.len()
            )
        } else {
            figures
        }
    };
    pictures.chunk_by(|one, next| by_side(one) == by_side(next)).map(part).collect()
}

fn figure(picture: &Picture) -> String {
    let legend: String = picture
        .lines
        .iter()
        .map(|line| format!("<span class=\"key c{}\">{}</span>", line.colour % 6, escaped(&line.name)))
        .collect();
    let zoom = matches!(picture.drawing, Drawing::Lines { .. } | Drawing::OverTime { .. } | Drawing::Layers { .. });
    format!(
        "<figure data-zoom=\"{zoom}\" data-left=\"{LEFT}\" data-right=\"{}\"><figcaption><span>{}</span><span class=\"legend\">{legend}</span></figcaption>\n{}</figure>\n",
        WIDTH - RIGHT,
        escaped(&picture.title),
        picture.inline()
    )
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
    rows.push(("over time".to_owned(), "A thin line is a run, the thick one the median of the runs at each moment. In pictures of more than 400 s a moment has several seconds: of a rate their mean, of a latency the worst. Where reads were answered is by the cache's own counters. The processors' shares are means of the runs; what another guest of the host took counts as idle.".to_owned()));
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

#[cfg(test)]
mod tests {
    use super::super::super::Second;
    use super::super::pictures::pictures;
    use super::super::tests::told;
    use super::*;

    #[test]
    fn pictures_by_side_are_folded_where_there_are_many() {
        let run = |point: usize, side: usize| {
            let system = vec![super::super::super::System { at: 1.0, user: 0.5, ..Default::default() }];
            let seconds = vec![Second { at: 1.0, throughput: 1.0, p95_ms: None, p99_ms: None }];
            Record { point, side, system, seconds, ..Record::blank() }
        };
        let one = told(&[run(0, 0), run(0, 1)], |story| html(story, &pictures(story)));
        assert!(one.contains("<details open>\n<summary>Side by side") && one.contains("(2 pictures)"), "{one}");
        told(&[run(0, 0)], |story| {
            let of = pictures(story).into_iter().find(|picture| picture.id == "side-processors-0-0").unwrap();
            let many = gallery(&vec![of; BY_SIDE_MAX + 1]);
            assert!(many.starts_with("<details>") && many.matches("<svg").count() == BY_SIDE_MAX + 1, "{many}");
        });
    }
}
