//! `headpond replay`: tries policies and sizes on a trace. The result is a table, a picture, or JSON.
//!
//! Invariant: it reads the trace, and writes to standard output and the picture's file. It needs, asks and changes no
//! mount.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use headpond_control::Refusal;
use headpond_policy::{Adaptive, Admission, Policy};
use headpond_trace::{CacheSize, Curve, LoadOptions, LoadedTrace, ReplayOutcome, ReplayedDestage};
use headpond_trace::{chart, destage, replay};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::print;
use crate::traces::{ReadingArgs, caveats, load};

/// The arguments of `headpond replay`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond replay monday.trace --policies all            a trace of `headpond record`
  headpond replay w1.vscsi                               compares adaptive with lru at four sizes
  headpond replay w1.vscsi --policies all --chart w1.svg compares all policies and draws a chart
  headpond replay OLTP.lis.zst --unit page               for a trace whose addresses are pages
  headpond replay usr_0.csv.gz --format msr --reads-only --sizes 64M,1G,10%
  headpond replay w1.vscsi --json | jq -c '[.policy, .size_blocks, .miss_ratio]'

headpond reads traces that are compressed with zstd, gzip or xz. docs/replay.md says how it counts.")]
pub struct ReplayArgs {
    /// The trace file
    pub trace: PathBuf,
    /// How to read it
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Ignore the trace's writes
    #[arg(long)]
    pub reads_only: bool,
    /// Eviction policies to try: fifo, lru, s3-fifo, w-tinylfu, adaptive, or all
    #[arg(long, value_delimiter = ',', default_value = "lru,adaptive", value_parser = policies)]
    pub policies: Vec<Policies>,
    /// Sizes of the cache: shares of the trace's footprint (5%), blocks (20000) or bytes (64M)
    #[arg(long, value_delimiter = ',', default_value = "1%,5%,10%,20%")]
    pub sizes: Vec<CacheSize>,
    /// Which missed blocks enter the cache
    #[arg(long, value_enum, default_value_t = AdmissionArg::Always)]
    pub admission: AdmissionArg,
    /// Draw the miss ratio for each size into this file: SVG, or HTML if the name ends with .html
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,
    /// Print JSON: one line with an object for each policy and size
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// Which missed blocks enter the cache.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionArg {
    /// every block that the policy wants
    Always,
    /// a block enters at its second miss, if headpond still remembers the first
    Returning,
}

/// One policy, or all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policies {
    /// One.
    One(Policy),
    /// All of them.
    All,
}

fn policies(text: &str) -> Result<Policies, String> {
    if text == "all" {
        return Ok(Policies::All);
    }
    text.parse().map(Policies::One).map_err(|error: headpond_policy::UnknownPolicy| error.to_string())
}

/// The result for a policy at a size.
struct Line {
    outcome: ReplayOutcome,
    destage: ReplayedDestage,
}

/// `headpond replay`.
pub fn run(args: &ReplayArgs) -> Result<(), Refusal> {
    let options = LoadOptions { reads_only: args.reads_only, ..args.reading.options(&args.trace)? };
    let load = load(&args.trace, options)?;
    let policies = wanted(&args.policies);
    let bar = bar(args.quiet, load.references().len() * policies.len() * args.sizes.len());
    let admission = match args.admission {
        AdmissionArg::Always => Admission::Always,
        AdmissionArg::Returning => Admission::Returning,
    };
    let mut lines = Vec::new();
    for size in &args.sizes {
        let blocks = size.blocks(load.footprint());
        let destage = destage(&load, blocks, 0);
        for policy in &policies {
            bar.set_message(format!("{policy}, {blocks} blocks"));
            let outcome = replay(&load, *policy, admission, blocks, &mut |done| bar.inc(done));
            if args.json {
                print(&(json(&outcome, &destage) + "\n"))?;
            }
            lines.push(Line { outcome, destage });
        }
    }
    bar.finish_and_clear();
    if !args.json {
        print(&table(&load, &lines))?;
        print(&load.facts().map_or_else(String::new, |facts| caveats(&facts)))?;
    }
    args.chart.as_deref().map_or(Ok(()), |path| draw(path, &args.trace, &load, &policies, &lines))
}

fn wanted(asked: &[Policies]) -> Vec<Policy> {
    let mut wanted = Vec::new();
    for policy in asked.iter().flat_map(|asked| match asked {
        Policies::One(policy) => vec![*policy],
        Policies::All => Policy::ALL.to_vec(),
    }) {
        if !wanted.contains(&policy) {
            wanted.push(policy);
        }
    }
    wanted
}

fn bar(quiet: bool, references: usize) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(references as u64), ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} %, {eta} left, {msg}") {
        bar.set_style(style);
    }
    bar
}

fn json(outcome: &ReplayOutcome, destage: &ReplayedDestage) -> String {
    serde_json::json!({
        "policy": outcome.policy.name(),
        "size_blocks": outcome.size_blocks,
        "references": outcome.references,
        "misses": outcome.misses,
        "miss_ratio": outcome.miss_ratio(),
        "fills": outcome.fills,
        "flash_writes": outcome.flash_writes,
        "memory_blocks": if outcome.policy == Policy::Adaptive { Adaptive::memory_for(outcome.size_blocks) } else { 0 },
        "write_requests": destage.write_requests,
        "written_blocks": destage.written_blocks,
        "destaged_blocks": destage.destaged_blocks,
        "destage_ios": destage.destage_ios,
    })
    .to_string()
}

#[allow(clippy::cast_precision_loss)] // shares to show
fn table(load: &LoadedTrace, lines: &[Line]) -> String {
    let references = load.references().len();
    let mut text = format!(
        "{references} references of {} blocks, in {} requests\n\n\
         policy        size (blocks)   of footprint   miss ratio   fills (of references)   flash writes\n",
        load.footprint(),
        load.requests()
    );
    for Line { outcome, .. } in lines {
        let _ = writeln!(
            text,
            "{:<12} {:>14} {:>12.2} % {:>12.4} {:>12} ({:>6.2} %) {:>14}",
            outcome.policy,
            outcome.size_blocks,
            outcome.size_blocks as f64 * 100.0 / load.footprint() as f64,
            outcome.miss_ratio(),
            outcome.fills,
            outcome.fills as f64 * 100.0 / outcome.references as f64,
            outcome.flash_writes
        );
    }
    if load.write_requests() == 0 {
        return text;
    }
    let _ = writeln!(text, "\n{} write requests would have reached the origin as", load.write_requests());
    let mut seen = Vec::new();
    for Line { outcome, destage } in lines {
        if seen.contains(&outcome.size_blocks) {
            continue;
        }
        seen.push(outcome.size_blocks);
        let _ = writeln!(
            text,
            "{:>12} at {:>9} blocks: {:.1} times fewer; {} of {} written blocks were absorbed",
            destage.destage_ios,
            outcome.size_blocks,
            destage.write_requests as f64 / destage.destage_ios.max(1) as f64,
            destage.written_blocks - destage.destaged_blocks,
            destage.written_blocks
        );
    }
    text
}

fn draw(path: &Path, trace: &Path, load: &LoadedTrace, policies: &[Policy], lines: &[Line]) -> Result<(), Refusal> {
    let curve = |policy: &Policy| {
        let of = lines.iter().filter(|line| line.outcome.policy == *policy);
        let mut points: Vec<_> = of.map(|line| (line.outcome.size_blocks, line.outcome.miss_ratio())).collect();
        points.sort_by_key(|point| point.0);
        Curve { name: policy.name().to_owned(), points }
    };
    let curves: Vec<_> = policies.iter().map(curve).collect();
    let title = trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut drawing = chart(&title, load.footprint(), &curves);
    if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("html")) {
        drawing = format!("<!doctype html>\n<meta charset=\"utf-8\">\n<title>headpond replay</title>\n{drawing}");
    }
    std::fs::write(path, drawing)
        .map_err(|error| Refusal::Failed { doing: format!("write the drawing to {}", path.display()), error })
}
